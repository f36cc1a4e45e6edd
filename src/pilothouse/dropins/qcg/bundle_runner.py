"""Runs a bundle of tiny jobs one after another on one core. This is a separate program that imports nothing from us.

    python -I -S bundle_runner.py SPEC RESULTS SECONDS

SPEC (marshal) is a list of (index, argv, environment, cwd, stdin, stdout, stderr). Each end is a line of RESULTS:
`index code pid started ended reason`. After SECONDS the running job is the last one: the line `returned index` gives
back the jobs behind it. Jobs whose indexes are in RESULTS.cancel (one a line) are skipped. TERM ends the running job,
with the reason `killed`, and then the bundle. Jobs lead their own sessions, like all tasks of the live world.
"""

import contextlib
import marshal
import os
import signal
import sys
import time
from collections.abc import Callable

NOT_STARTED = 127
FAILED_EXEC = 255
"""Exit code of a child that could not execute its program."""
KILL_AFTER_S = 8.0
"""From TERM to KILL of a job. The engine waits a little longer before it kills this program."""
BASE = dict(os.environ)  # once: os.environ decodes every value each time
SEARCHED = [os.fsencode(folder or ".") for folder in BASE.get("PATH", os.defpath).split(os.pathsep)]
_MAY_VFORK = (True,) if sys.version_info < (3, 14) else ()
"""Later versions have no such argument: they always may."""

Job = tuple[int, list[str], dict[str, str], str, str, str, str]


class Spawner:
    """Starts programs. In Python 3.11 to 3.14 it calls the function behind `subprocess`: a fifth faster than posix_spawn."""

    def __init__(self, *, quick: bool = True) -> None:
        self._fork_exec: Callable[..., int] | None = None
        if quick and (3, 11) <= sys.version_info[:2] <= (3, 14):
            with contextlib.suppress(ImportError):
                from _posixsubprocess import fork_exec

                self._fork_exec = fork_exec
        self._error_read, self._error_write = os.pipe()
        os.set_blocking(self._error_read, False)
        self._names: tuple[str, ...] = ()
        self._inherited: list[bytes] = []

    def start(self, argv: list[str], env: dict[str, str], fds: list[int]) -> int:
        """The pid. Raises OSError; see also `failure`."""
        if self._fork_exec is None:
            return os.posix_spawnp(
                argv[0], argv, {**BASE, **env}, setsid=True,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(fds)],
                setsigdef=(signal.SIGALRM, signal.SIGTERM, signal.SIGPIPE),
            )  # fmt: skip
        names = tuple(env)
        if names != self._names or not self._inherited:
            # Jobs of one bundle mostly have the same variables.
            self._names = names
            self._inherited = [os.fsencode(f"{key}={value}") for key, value in BASE.items() if key not in env]
        variables = self._inherited + [os.fsencode(f"{key}={value}") for key, value in env.items()]
        program = os.fsencode(argv[0])
        programs = [program] if b"/" in program else [folder + b"/" + program for folder in SEARCHED]
        stdin, out, err = fds
        return self._fork_exec(
            argv, programs, False, (self._error_write,), None, variables, stdin, -1, -1, out, -1, err,
            self._error_read, self._error_write, True, True, -1, None, None, None, -1, None, *_MAY_VFORK,
        )  # fmt: skip

    def failure(self) -> str:
        """Why the last program that ended with 255 could not be executed; "" if it was."""
        try:
            text = os.read(self._error_read, 50_000)
        except BlockingIOError:
            return ""
        kind, _, rest = text.decode("ascii", "replace").partition(":")
        return os.strerror(int(rest.partition(":")[0], 16)) if kind == "OSError" else kind


class Runner:
    def __init__(self, results: str) -> None:
        self._out = os.open(results, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._cancel_file = f"{results}.cancel"
        self._null = os.open(os.devnull, os.O_RDWR)
        self._spawner = Spawner()
        self._here = ""
        self._position = -1
        self._pid = 0
        self._last = self._killed = False

    def run_all(self, jobs: list[Job], seconds: float) -> None:
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        for job in jobs:
            if self._last:
                break
            if self._is_cancelled(job[0]):
                continue
            self._position = job[0]
            started = time.time()
            pid, code, reason = self._run(job)
            if self._killed and code:
                reason = "killed"
            self._write(f"{job[0]} {code} {pid} {started!r} {time.time()!r} {reason}")

    def _is_cancelled(self, index: int) -> bool:
        if not os.access(self._cancel_file, os.F_OK):
            return False
        with open(self._cancel_file, encoding="ascii") as stream:
            return str(index) in stream.read().split()

    def _write(self, line: str) -> None:
        os.write(self._out, f"{line}\n".encode())

    def _give_back(self) -> None:
        if not self._last:
            self._last = True
            self._write(f"returned {self._position}")

    def _on_alarm(self, _number: int, _frame: object) -> None:
        if self._killed:
            self._signal(signal.SIGKILL)
        else:
            self._give_back()

    def _on_term(self, _number: int, _frame: object) -> None:
        self._killed = True
        self._give_back()
        self._signal(signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, KILL_AFTER_S)

    def _signal(self, number: int) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, number)

    def _run(self, job: Job) -> tuple[int, int, str]:
        """pid, exit code, and why it could not be started."""
        _, argv, env, cwd, *names = job
        opened: list[int] = []
        try:
            if cwd != self._here:
                os.chdir(cwd)
                self._here = cwd
            pid = self._spawner.start(argv, env, self._files(names, opened))
        except OSError as error:
            return 0, NOT_STARTED, f"{error.filename or argv[0]}: {error.strerror}"
        finally:
            for fd in opened:
                os.close(fd)
        self._pid = pid
        if self._killed:
            self._signal(signal.SIGTERM)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._pid = 0
        if code == FAILED_EXEC and (problem := self._spawner.failure()):
            return 0, NOT_STARTED, f"{argv[0]}: {problem}"
        return pid, code, ""

    def _files(self, names: list[str], opened: list[int]) -> list[int]:
        files = [self._null, self._null, self._null]
        for target, name in enumerate(names):
            if name and target == 2 and name == names[1]:
                files[2] = files[1]
            elif name:
                flags = os.O_RDONLY if target == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                files[target] = os.open(name, flags, 0o666)
                opened.append(files[target])
        return files


def main(spec: str, results: str, seconds: str) -> None:
    with open(spec, "rb") as stream:
        jobs = marshal.load(stream)
    Runner(results).run_all(jobs, float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
