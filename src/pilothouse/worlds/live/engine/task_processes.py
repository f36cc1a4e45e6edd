"""The processes of tasks: starting one cheaply, and adopting, reaping and ending all that descends from it (Linux).

A task is started by vfork and exec, with no shell where its line needs none, and leads its own session, so that a signal to
the group reaches the grandchildren. _spawn.c starts programs and waits for them in one call; `spawn` is its plain twin.

A subreaper is the parent of every orphan among its descendants, whatever the orphan did to its environment, session or
descriptors. The warden and the cylinders of an engine are subreapers, so no task escapes unless all of them are killed at once.
For that case tasks carry a mark which `env -i setsid` does not remove, and which needs no privilege: a resource limit that
limits nothing, the soft limit of RLIMIT_RTTIME (getrlimit(2)), whose value names the warden. Whoever finds that an engine has
ended without a word, or starts another on its host, ends the processes whose warden is gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import shutil
import signal
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import NamedTuple

from pilothouse.worlds.live.wire.messages import Task

BASH, PLAIN_SHELL = "/bin/bash", "/bin/sh"

_PLAIN = re.compile(r"[A-Za-z0-9_./,:@%+-][A-Za-z0-9_./,:@%+=-]*(?:[ \t]+[A-Za-z0-9_./,:@%+=-]+)*[ \t]*")
"""Words that every shell hands on as they stand."""

_SHELL_WORDS = frozenset((
    ".", ":", "alias", "bg", "bind", "break", "builtin", "caller", "case", "cd", "command", "compgen",
    "complete", "compopt", "continue", "coproc", "declare", "dirs", "disown", "do", "done", "elif", "else",
    "enable", "esac", "eval", "exec", "exit", "export", "fc", "fg", "fi", "for", "function", "getopts",
    "hash", "help", "history", "if", "in", "jobs", "kill", "let", "local", "logout", "mapfile", "popd",
    "pushd", "pwd", "read", "readarray", "readonly", "return", "select", "set", "shift", "shopt", "source",
    "suspend", "test", "then", "time", "times", "trap", "type", "typeset", "ulimit", "umask", "unalias",
    "unset", "until", "wait", "while", "printf",
))  # fmt: skip
"""Bash keywords and builtins whose programs of the same name, if any, behave differently."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIMIT = "Max realtime timeout"
"""The name of RLIMIT_RTTIME in /proc/PID/limits."""
_MARK = 1 << 62
"""A limit of this many microseconds or more (100,000 years) is a mark: _MARK, the warden's pid and its start (_STARTED_BITS)."""
_STARTED_BITS = 40
_PID_BITS = 22
"""The kernel's PID_MAX_LIMIT is 2**22."""


class SpawnError(Exception):
    """The program could not be started; the text says why."""


def find_shell(path: str) -> str:
    """Bash; the plain shell where there is none (Alpine). `path` is searched for systems that keep it elsewhere (NixOS)."""
    return BASH if os.path.exists(BASH) else shutil.which("bash", path=path) or PLAIN_SHELL


Launch = tuple[int, int, list[bytes], list[bytes]]
"""How to start a task: its id and attempt, argv, and variables of its own."""


class Launcher:
    """Decides how a line is run, and remembers where programs are."""

    def __init__(self, path: str, *, always_shell: bool = False) -> None:
        self._path = path
        self._always_shell = always_shell
        self._where: dict[str, bytes | None] = {}
        self._shell = os.fsencode(find_shell(path))

    def launches(self, tasks: list[Task], variables: str) -> list[Launch]:
        """How to start tasks: together, while what that needs is in the processor's caches. `variables`: see Welcome.task_env.

        Ends before a task that cannot be started; raises what is wrong with it if that is the first one.
        """
        launches: list[Launch] = []
        for task in tasks:
            try:
                launches.append(self._launch(task, variables))
            except Exception:
                if not launches:
                    raise
                break
        return launches

    def _launch(self, task: Task, variables: str) -> Launch:
        text = variables.format(task=task.task_id, line=task.line_number, repeat=task.repeat_index, attempt=task.attempt)
        own = os.fsencode(text).split(b"\0") if text else []
        if not task.argv:
            return task.task_id, task.attempt, self.argv(os.fsdecode(task.line)), own
        name = os.fsdecode(task.argv[0])
        program = self.find(name)
        if program is None:
            raise SpawnError(f"{name}: no such program")
        return task.task_id, task.attempt, [program, *task.argv[1:]], own

    def argv(self, line: str) -> list[bytes]:
        """The arguments to execute for a task line; the first is an absolute path."""
        if not self._always_shell and _PLAIN.fullmatch(line):
            words = line.split()
            program = self.find(words[0])
            if program is not None and words[0] not in _SHELL_WORDS and "=" not in words[0]:
                return [program, *map(os.fsencode, words[1:])]
        return [self._shell, b"-c", os.fsencode(line)]

    def find(self, name: str) -> bytes | None:
        """The program's path; None where there is none (a shell then says so in its own words)."""
        try:
            return self._where[name]
        except KeyError:
            found = shutil.which(name, path=self._path)
            where = os.fsencode(os.path.abspath(found)) if found and "/" not in name else found and os.fsencode(found)
            self._where[name] = where or None
            return self._where[name]


_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
Fds = tuple[int, int, int]
"""stdin, stdout, stderr of a child."""


class Begun(NamedTuple):
    """A task that was started and needs a look."""

    pid: int
    """Minus the error number if it could not be started."""
    status: int
    """-1: it had not ended."""
    ready: int
    """Whether there is output to drain."""
    survivors: int
    """Whether its process group lives on."""
    cpu_s: float
    memory_kb: int
    started_at: float
    started: float


Native = Callable[
    [list[Launch], list[bytes], Fds, Fds, int, bytes, float, float, int, float],
    tuple[bytes, tuple[int, int, int, int, float, int, float, float] | None, int, bytes],
]


def find_native() -> Native | None:
    """_spawn.c; None where it is not built."""
    try:
        from pilothouse.worlds.live.engine._spawn import run  # type: ignore[import-not-found]
    except ImportError:
        return None
    found: Native = run
    return found


def spawn(argv: list[bytes], env: Sequence[bytes], fds: Fds) -> int:
    """The new pid; minus the error number if the program cannot be executed, as the compiled twin has it."""
    variables = dict(entry.split(b"=", 1) for entry in env)
    # Other descriptors are close-on-exec throughout (PEP 446).
    actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(fds)]
    try:
        return os.posix_spawn(argv[0], argv, variables, file_actions=actions, setsid=True, setsigdef=_IGNORED_BY_PYTHON)
    except OSError as error:
        return -(error.errno or errno.EIO)


def adopt_orphans() -> None:
    """Makes this process a subreaper."""
    _process_control(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Ends this process when its parent ends."""
    _process_control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(70)  # it had ended before the kernel knew that we end with it


def _process_control(option: int, value: int) -> None:
    """prctl(2), which Python does not have. Without it (not Linux) orphans are found less surely."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def end_children(spared: Container[int] = ()) -> None:
    """Kills all that descends from here, also what moved to sessions of its own, until nothing is left."""
    while victims := [pid for pid in _children() if pid not in spared]:
        for pid in victims:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for pid in victims:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def reap(group: int = 1) -> None:
    """Takes note of the ends of adopted processes: of one process group, or of all."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass


def hear_children() -> int:
    """A descriptor that becomes readable when a child ends."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return read_fd


def has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def group_alive(pid: int) -> bool:
    reap(pid)
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _children() -> list[int]:
    """The pids whose parent is this process."""
    me = os.getpid()
    found = []
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            stat = Path("/proc", str(pid), "stat").read_bytes()
            if int(stat.rpartition(b")")[2].split()[1]) == me:
                found.append(pid)
    return found


def mark_of(warden: int) -> int:
    """What names a warden: its pid and when it began."""
    return _MARK | warden << _STARTED_BITS | _started(warden) % (1 << _STARTED_BITS)


def mark_tasks(mark: int) -> None:
    """Marks this process (a cylinder) and all that it starts from now on. Where the owner of the host limits the real time of
    processes, that limit stays, and there is no mark.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    if hard == resource.RLIM_INFINITY and (soft == resource.RLIM_INFINITY or soft >= _MARK):
        resource.setrlimit(resource.RLIMIT_RTTIME, (mark, hard))


def end_orphans() -> list[int]:
    """Ends tasks that were left because their cylinder, its engine and the warden were killed at once. A cylinder that is about
    to follow its warden may start another task meanwhile, so the search goes on until it finds nothing.
    """
    ended: list[int] = []
    while found := [pid for pid in _all_pids() if pid not in ended and _is_orphan(pid)]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended += found
    return ended


def _is_orphan(pid: int) -> bool:
    """Whether a process of this user is marked by a warden that is gone."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return False
        lines = Path("/proc", str(pid), "limits").read_text().splitlines()
        soft = next(line for line in lines if line.startswith(_LIMIT)).removeprefix(_LIMIT).split()[0]
        mark = int(soft)
    except (OSError, ValueError, StopIteration):
        return False  # it has ended, or has no limit
    return mark >= _MARK and mark_of(mark >> _STARTED_BITS & (1 << _PID_BITS) - 1) != mark


def _all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]


def _started(pid: int) -> int:
    """When a process began (clock ticks since boot), which tells it from a later one of the same number; 0: it is gone, or has
    ended and its parent has not noticed yet."""
    try:
        words = Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if words[0] in (b"Z", b"X") else int(words[19])
