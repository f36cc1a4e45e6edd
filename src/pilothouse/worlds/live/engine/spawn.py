"""Starting one process, as cheaply as Python can: vfork and exec, no shell where a line needs none, no wrapper
programs.

In: what to run, its environment, its three descriptors. Out: a pid that leads its own session, so that a signal to the
group reaches the grandchildren. `_posixsubprocess.fork_exec` is what `subprocess` itself uses; where its signature is
not the one known here, `os.posix_spawn` does the same some 5 % slower.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence

SHELL = b"/bin/bash"

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


class SpawnError(Exception):
    """The program could not be started; the text says why."""


class Launcher:
    """Decides how a line is run, and remembers where programs are."""

    def __init__(self, path: str, *, always_shell: bool = False) -> None:
        self._path = path
        self._always_shell = always_shell
        self._where: dict[str, bytes | None] = {}

    def argv(self, line: str) -> list[bytes]:
        """The arguments to execute for a task line; the first is an absolute path."""
        if not self._always_shell and _PLAIN.fullmatch(line):
            words = line.split()
            program = self.find(words[0])
            if program is not None and words[0] not in _SHELL_WORDS and "=" not in words[0]:
                return [program, *map(os.fsencode, words[1:])]
        return [SHELL, b"-c", os.fsencode(line)]

    def find(self, name: str) -> bytes | None:
        """The program's path; None where there is none (a shell then says so in its own words)."""
        try:
            return self._where[name]
        except KeyError:
            found = shutil.which(name, path=self._path)
            where = os.fsencode(os.path.abspath(found)) if found and "/" not in name else found and os.fsencode(found)
            self._where[name] = where or None
            return self._where[name]


Fds = tuple[int, int, int]
"""stdin, stdout, stderr of a child."""


def _find_fork_exec() -> Callable[..., int] | None:
    """subprocess's own spawner if this Python has the signature that is known here."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13) or not sys.platform.startswith("linux"):
        return None
    try:
        import _posixsubprocess
    except ImportError:
        return None
    found: Callable[..., int] = _posixsubprocess.fork_exec
    return found


Native = Callable[[list[bytes], list[bytes], int, int, int, int, int, int, int], tuple[int, int, int, int]]


def find_native() -> Native | None:
    """The compiled twin (_spawn.c), which starts a program and waits for it in one call; None where it is not built."""
    try:
        from pilothouse.worlds.live.engine._spawn import run  # type: ignore[import-not-found]
    except ImportError:
        return None
    found: Native = run
    return found


class Spawner:
    """Starts children. One pipe for all of them tells why an exec failed: vfork returns after the exec was tried."""

    def __init__(self) -> None:
        self._fork_exec = _find_fork_exec()
        self._error_read, self._error_write = os.pipe()
        os.set_blocking(self._error_read, False)
        os.set_blocking(self._error_write, False)

    def spawn(self, argv: list[bytes], env: Sequence[bytes], fds: Fds) -> int:
        """The new pid. SpawnError where this fails at once; see also `failure`."""
        stdin, out, err = fds
        try:
            if self._fork_exec is not None:
                # Descriptors are close-on-exec throughout (PEP 446): close_fds=False costs nothing and leaks nothing.
                return self._fork_exec(
                    argv, (argv[0],), False, (self._error_write,), None, env, stdin, -1, -1, out, -1, err,
                    self._error_read, self._error_write, True, True, -1, None, None, None, -1, None, True,
                )  # fmt: skip
            pairs = dict(entry.split(b"=", 1) for entry in env)
            actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(fds)]
            return os.posix_spawn(argv[0], argv, pairs, file_actions=actions, setsid=True)
        except OSError as error:
            raise SpawnError(f"{os.fsdecode(argv[0])}: {error.strerror}") from error

    def failure(self) -> str:
        """Why the last child with exit code 255 could not execute its program; "" if it could."""
        try:
            text = os.read(self._error_read, 50_000)
        except BlockingIOError:
            return ""
        kind, _, rest = text.partition(b":")
        number = rest.partition(b":")[0]
        if kind != b"OSError":
            return text.decode("ascii", "replace")
        code = int(number, 16)
        return os.strerror(code) if code else errno.errorcode.get(code, "could not be executed")
