"""Runs a bundle of tiny jobs one after another on one core: a program of its own, which knows nothing of this package.

    python -I -S bundle_runner.py SPEC RESULTS SECONDS

SPEC (marshal) is a list of (index, argv, environment, cwd, stdin, stdout, stderr). Each end is a line of RESULTS:
`index code pid started ended reason`. After SECONDS the job that runs is the last: the line `returned index` gives back
what follows it. TERM (sent to the whole group) ends the job that runs, and the bundle with it; the reason is `killed`.
"""

import marshal
import os
import signal
import sys
import time

NOT_STARTED = 127
BASE = dict(os.environ)  # once: os.environ decodes every value each time


def main(spec: str, results: str, seconds: str) -> None:
    with open(spec, "rb") as stream:
        jobs = marshal.load(stream)
    out = os.open(results, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDWR)
    last = killed = False

    def enough(number: int, _frame: object) -> None:
        nonlocal last, killed
        killed = killed or number == signal.SIGTERM
        if not last:
            last = True
            os.write(out, f"returned {position}\n".encode())

    signal.signal(signal.SIGALRM, enough)
    signal.signal(signal.SIGTERM, enough)
    position = -1
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    here = ""
    for job in jobs:
        if last:
            break
        position = job[0]
        if job[3] != here:
            here = enter(job[3])
        started = time.time()
        pid, code, reason = run(job, null, here)
        if killed and code:
            reason = "killed"
        os.write(out, f"{position} {code} {pid} {started!r} {time.time()!r} {reason}\n".encode())


def enter(cwd: str) -> str:
    try:
        os.chdir(cwd)
    except OSError:
        return ""
    return cwd


def run(job: tuple[int, list[str], dict[str, str], str, str, str, str], null: int, here: str) -> tuple[int, int, str]:
    """pid, exit code, and why it could not be started."""
    _, argv, env, cwd, stdin, stdout, stderr = job
    opened = []
    try:
        if not here:
            return 0, NOT_STARTED, f"cannot enter {cwd}"
        files = [null, null, null]
        if stdin:
            files[0] = os.open(stdin, os.O_RDONLY)
            opened.append(files[0])
        for number, name in ((1, stdout), (2, stderr)):
            if name and number == 2 and name == stdout:
                files[2] = files[1]
            elif name:
                files[number] = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
                opened.append(files[number])
        actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(files)]
        defaults = (signal.SIGALRM, signal.SIGTERM, signal.SIGPIPE)
        pid = os.posix_spawnp(argv[0], argv, {**BASE, **env}, file_actions=actions, setsigdef=defaults)
    except OSError as problem:
        return 0, NOT_STARTED, f"{problem.filename or argv[0]}: {problem.strerror}"
    finally:
        for fd in opened:
            os.close(fd)
    return pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), ""


if __name__ == "__main__":
    main(*sys.argv[1:])
