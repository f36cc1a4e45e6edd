"""Does a run go on while strangers hold thousands of idle connections to its driver?

    python bench/idle.py [--connections 5000] [--tasks 12000] [--turns 5]

Runs `pilothouse run` on /bin/true with and without the connections, turn about, and prints the share of the rate that is
left: the median with them by the median without (the aim is 0.90). On a busy machine the CPU time of the driver says more: of
the driver, from the moment when all connections are made. The connections come from a process of their own,
which does nothing else.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST_LOOKS = 25
GATE_S = 6.0
"""How long the first tasks take: the connections are made in this time, and those that are left are closed 10 s after they were
made."""
RUN = [sys.executable, "-c", "from pilothouse.cli.main import main; main()", "run", "-q"]
HOLD = """
import resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
for _ in range(int(sys.argv[2])):
    made = socket.socket()
    made.settimeout(2)
    try:
        made.connect(("127.0.0.1", int(sys.argv[1])))
    except OSError:
        pass
    held.append(made)
print(len(held), flush=True)
sys.stdin.read()
"""


def port_of(folder: Path) -> int:
    """The driver's port, as soon as it is in the journal and connections are taken."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with sqlite3.connect(f"file:{folder}/journal.sqlite?mode=ro", uri=True) as db:
                row = db.execute("SELECT value FROM notes WHERE name='port'").fetchone()
            if row is not None:
                socket.create_connection(("127.0.0.1", int(row[0])), timeout=5).close()
                return int(row[0])
        except (sqlite3.Error, OSError):
            pass
        time.sleep(0.02)
    sys.exit("the run did not begin")


def cpu_s(pid: int) -> float:
    """What a process has used, with those that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def quiet(pid: int) -> float:
    """Waits until a process has nothing to do: the connections are idle then. Its CPU time."""
    seen = [-1.0]
    while len(seen) < MOST_LOOKS and (len(seen) < 3 or seen[-1] - seen[-3] > 0.02):
        time.sleep(0.2)
        seen.append(cpu_s(pid))
    return seen[-1]


def rate(folder: Path, tasks: int, connections: int) -> tuple[float, float]:
    """Tasks per second from the first start to the last end, as the journal has it, and CPU milliseconds per task. The first
    tasks wait for us.
    """
    go = folder / "go"
    gate = f"while [ ! -e {go} ]; do sleep 0.02; done\n"
    (folder / "tasks").write_text(gate * 2 + "/bin/true\n" * tasks)
    run = subprocess.Popen([*RUN, "tasks", "--slots", "2", "--dir", "run"], cwd=folder)
    port = port_of(folder / "run")
    began, holder = time.monotonic(), None
    if connections:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(port), str(connections)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert holder.stdout is not None
        holder.stdout.readline()
    before_s = quiet(run.pid)
    # Tasks are bundled by how long those before them took: the first ones must take the same time in all runs.
    time.sleep(max(0.0, began + GATE_S - time.monotonic()))
    go.touch()
    _, status, used = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    if status:
        sys.exit(f"the run ended with {run.returncode}")
    if holder is not None:
        holder.kill()
        holder.wait()
    with sqlite3.connect(folder / "run/journal.sqlite") as db:
        count, first, last = db.execute(
            "SELECT count(*), min(started_at), max(ended_at) FROM ends WHERE task_id > 1 AND state = 'succeeded'"
        ).fetchone()
    if count != tasks:
        sys.exit(f"{count} of {tasks} tasks ran")
    return float(count / (last - first)), 1000 * (used.ru_utime + used.ru_stime - before_s) / tasks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--tasks", type=int, default=12_000)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    seen: dict[int, list[tuple[float, float]]] = {0: [], options.connections: []}
    for turn in range(options.turns):
        for connections in (0, options.connections) if turn % 2 == 0 else (options.connections, 0):
            with tempfile.TemporaryDirectory() as folder:
                seen[connections].append(rate(Path(folder), options.tasks, connections))
        alone, beside = seen[0][-1], seen[options.connections][-1]
        print(
            f"turn {turn + 1}: {alone[0]:,.0f} tasks/s and {alone[1]:.2f} CPU ms a task alone, "
            f"{beside[0]:,.0f} and {beside[1]:.2f} with the connections",
            flush=True,
        )
    medians = [[statistics.median(column) for column in zip(*turns, strict=True)] for turns in seen.values()]
    left, dearer = medians[1][0] / medians[0][0], medians[1][1] / medians[0][1]
    print(
        f"idle: {left:.2f} of the rate is left with {options.connections:,} idle connections (aim 0.90); "
        f"a task takes {dearer:.2f} times the CPU time"
    )
    return 0 if hard > options.connections else 1


if __name__ == "__main__":
    sys.exit(main())
