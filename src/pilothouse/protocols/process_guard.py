"""The parent of a scheduler process: ends all that descends from it when the program that wanted it is gone, however that ended.

    python process_guard.py LIFE STATUS COMMAND...

LIFE is a pipe whose other end that program holds open. Into STATUS goes 0, or the error number if the command cannot be started.
SIGTERM is handed on to the command's process group. The guard ends as the command does. It imports nothing of ours, so that it
starts quickly.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

GRACE_S = 0.5
"""How long the command may take to end after SIGTERM when the program is gone."""
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    life, status, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    for fd in (life, status):
        os.set_inheritable(fd, False)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    try:
        command = os.posix_spawnp(words[0], words, os.environ, setsid=True, setsigdef=(signal.SIGPIPE, signal.SIGXFSZ))
    except OSError as problem:
        os.write(status, str(problem.errno).encode())
        os._exit(127)
    signal.signal(signal.SIGTERM, lambda _number, _frame: _signal_group(command))
    os.write(status, b"0")
    os.close(status)
    poll = select.poll()
    for fd in (life, wake_read):
        poll.register(fd, select.POLLIN)
    until: float | None = None
    while (code := _end_of(command)) is None and (until is None or time.monotonic() < until):
        ready = [fd for fd, _ in poll.poll(None if until is None else 1000 * GRACE_S)]
        if wake_read in ready:
            os.read(wake_read, 512)
        if life in ready:
            poll.unregister(life)
            until = time.monotonic() + GRACE_S
            _signal_group(command)
    _end_descendants()
    if code is not None and code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code or 0)


def _end_of(command: int) -> int | None:
    """The exit code of the command if it has ended. Adopted processes that have ended are reaped."""
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if not ended:
            return None
        if ended == command:
            return os.waitstatus_to_exitcode(status)


def _signal_group(command: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(command, signal.SIGTERM)


def _end_descendants() -> None:
    """A subreaper is the parent of all orphans among its descendants: those of a process that is killed come next."""
    me = os.getpid()
    while True:
        children = []
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    if int(file.read().rpartition(b")")[2].split()[1]) == me:
                        children.append(int(entry))
            except (OSError, ValueError):
                continue
        if not children:
            return
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, PermissionError, ChildProcessError):
                continue


if __name__ == "__main__":
    main()
