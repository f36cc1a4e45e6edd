"""Runs a bundle of tiny jobs one after another on one core: a program of its own, which knows nothing of this package.

    python -I -S bundle_runner.py SPEC RESULTS SECONDS

SPEC (marshal) is a list of (index, argv, environment, cwd, stdin, stdout, stderr). Each end is a line of RESULTS:
`index code pid started ended reason`. After SECONDS the job that runs is the last: the line `returned index` gives back
what follows it. Indexes (one a line) in RESULTS.cancel are not begun. TERM ends the job that runs, and the bundle with
it; the reason is `killed`. Jobs lead their own sessions, as all tasks of the live world do.
"""

import contextlib
import marshal
import os
import signal
import sys
import time

NOT_STARTED = 127
KILL_AFTER_S = 8.0
"""From TERM to KILL; whoever sent the TERM waits a little longer before it kills this program."""
BASE = dict(os.environ)  # once: os.environ decodes every value each time

Job = tuple[int, list[str], dict[str, str], str, str, str, str]


class Runner:
    def __init__(self, results: str) -> None:
        self._out = os.open(results, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._cancel_file = f"{results}.cancel"
        self._null = os.open(os.devnull, os.O_RDWR)
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
        try:
            with open(self._cancel_file, encoding="ascii") as stream:
                return str(index) in stream.read().split()
        except FileNotFoundError:
            return False

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
            actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(self._files(names, opened))]
            pid = os.posix_spawnp(
                argv[0], argv, {**BASE, **env}, file_actions=actions, setsid=True,
                setsigdef=(signal.SIGALRM, signal.SIGTERM, signal.SIGPIPE),
            )  # fmt: skip
        except OSError as problem:
            return 0, NOT_STARTED, f"{problem.filename or argv[0]}: {problem.strerror}"
        finally:
            for fd in opened:
                os.close(fd)
        self._pid = pid
        if self._killed:
            self._signal(signal.SIGTERM)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._pid = 0
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
