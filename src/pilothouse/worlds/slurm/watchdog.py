"""Gives the queue back to Slurm when the steering program is gone (`--fail-open`).

A small process of its own reads a pipe. As long as the steering program lives it writes to the pipe (the lease). When the
pipe is closed (an end, a crash, kill -9) or nothing came for LEASE_S, the partition is set UP: Slurm schedules its jobs
itself. A steering program that goes on, or starts again, sets it DOWN. Signals that end both (`systemctl stop`, Ctrl-C) are
ignored here: the end of the pipe is what counts.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

LEASE_S = 60.0
RENEW_S = 5.0
RETRY_S = 5.0
MOST_TRIES = 120
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Lease:
    """The steering program's end of the pipe."""

    def __init__(self, partition: str, lease_s: float = LEASE_S) -> None:
        self._partition = partition
        self._lease_s = lease_s
        self._process: subprocess.Popen[bytes] | None = None
        self._renewed_at = 0.0

    def start(self) -> None:
        command = [sys.executable, "-S", __file__, self._partition, str(self._lease_s)]
        # Signals are blocked until the process ignores them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def renew(self) -> None:
        now = time.monotonic()
        if self._process is not None and now - self._renewed_at > RENEW_S:
            self._renewed_at = now
            assert self._process.stdin is not None
            try:
                os.write(self._process.stdin.fileno(), b".")
            except OSError:
                # It was ended from outside: a new one watches.
                self._process.wait()
                self.start()

    def end(self) -> None:
        """The queue goes back to Slurm."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def give_back(partition: str) -> None:
    """Sets the partition UP, again and again until Slurm answers."""
    command = ["scontrol", "update", f"partitionname={partition}", "state=UP"]
    for _ in range(MOST_TRIES):
        if subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(RETRY_S)


def watch(partition: str, lease_s: float) -> None:
    """Reads the lease from standard input until it ends."""
    expired = False
    while True:
        ready, _, _ = select.select([0], [], [], lease_s)
        if ready and not os.read(0, 4096):
            break
        if not ready and not expired:
            expired = True
            give_back(partition)
        elif ready:
            expired = False
    give_back(partition)


if __name__ == "__main__":
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    watch(sys.argv[1], float(sys.argv[2]))
