"""Does a run go on while strangers hold thousands of idle connections to its driver?

    python bench/idle.py [--connections 5000] [--tasks 6000] [--turns 3]

Runs `pilothouse run` on /bin/true with and without the connections, turn about, and prints the share of the rate that is
left (median of the turns; the aim is 0.90). The connections come from a process of their own, which does nothing else.
"""

from __future__ import annotations

import argparse
import resource
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def rate(folder: Path, tasks: int, connections: int) -> float:
    """Tasks per second from the first start to the last end, as the journal has it. The first task waits for us."""
    go = folder / "go"
    gate = f"while [ ! -e {go} ]; do sleep 0.02; done\n"
    (folder / "tasks").write_text(gate * 2 + "/bin/true\n" * tasks)
    run = subprocess.Popen([*RUN, "tasks", "--slots", "2", "--dir", "run"], cwd=folder)
    port = port_of(folder / "run")
    holder = None
    if connections:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(port), str(connections)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert holder.stdout is not None
        holder.stdout.readline()
    go.touch()
    if run.wait() != 0:
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
    return float(count / (last - first))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--tasks", type=int, default=6000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    ratios = []
    for turn in range(options.turns):
        rates = {}
        for connections in (0, options.connections) if turn % 2 == 0 else (options.connections, 0):
            with tempfile.TemporaryDirectory() as folder:
                rates[connections] = rate(Path(folder), options.tasks, connections)
        ratios.append(rates[options.connections] / rates[0])
        print(f"turn {turn + 1}: {rates[0]:,.0f} tasks/s alone, {rates[options.connections]:,.0f} with the connections")
    print(f"idle: {statistics.median(ratios):.2f} of the rate is left with {options.connections:,} idle connections (aim 0.90)")
    return 0 if hard > options.connections else 1


if __name__ == "__main__":
    sys.exit(main())
