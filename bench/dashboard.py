"""What does a dashboard with many viewers cost a run?

    python bench/dashboard.py [--viewers 50] [--tasks 20000] [--turns 3] [--peer PYTHON]

Runs `pilothouse run` on /bin/true with and without `pilothouse web` and its viewers, turn about, and prints the share of
the rate that is left (median of the turns; the aim is 0.90), and, for a machine that is busy with other things, the CPU
time of the dashboard. Viewers do what the page does: they listen to /events and
fetch /data when it is new; all of them are in one process, at low priority, as browsers are on other machines. Prints also
how long after the end the last viewer knew of it. `--peer`: a Python that has Starlette and uvicorn; their time to start and
memory are printed beside ours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = [sys.executable, "-c", "from pilothouse.cli.main import main; main()"]
START = """
import os, sys, time
began = time.perf_counter()
exec(sys.argv[1])
took = time.perf_counter() - began
used = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS"))
print(f"{1000 * took:.0f} ms to import, {int(used) / 1024:.0f} MB")
"""
OURS = "import pilothouse.views.web.server"
THEIRS = "import uvicorn, starlette.applications, starlette.responses, starlette.routing, uvicorn.protocols.http.h11_impl"


async def view(port: int, token: str, tasks: int, ended: list[float], events: list[int]) -> None:
    """One viewer, until it has seen the last task end."""
    ask = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(b"GET /events HTTP/1.1\r\n" + ask)
    await reader.readuntil(b"\r\n\r\n")
    data = 0
    while True:
        look = json.loads((await reader.readuntil(b"\n\n")).partition(b"data: ")[2])
        events.append(1)
        if look["data"] != data:
            data = look["data"]
            other, line = await asyncio.open_connection("127.0.0.1", port)
            line.write(b"GET /data HTTP/1.1\r\n" + ask)
            await other.read()
            line.close()
        if look["state"]["finished"] >= tasks:
            ended.append(time.time())
            writer.close()
            return


async def all_views(port: int, token: str, tasks: int, viewers: int) -> tuple[list[float], int]:
    ended: list[float] = []
    events: list[int] = []
    await asyncio.gather(*(view(port, token, tasks, ended, events) for _ in range(viewers)))
    return ended, len(events)


def hold(port: int, token: str, tasks: int, viewers: int) -> None:
    os.nice(10)
    ended, events = asyncio.run(all_views(port, token, tasks, viewers))
    print(json.dumps({"ended": max(ended), "events": events}))


def cpu_s(pid: int) -> float:
    """CPU seconds of a process that goes on."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def rate(folder: Path, tasks: int, viewers: int) -> tuple[float, str, float]:
    """Tasks per second; what viewers saw; the dashboard's share of a core. The first tasks wait for us."""
    go = folder / "go"
    (folder / "tasks").write_text(f"while [ ! -e {go} ]; do sleep 0.02; done\n" * 2 + "/bin/true\n" * tasks)
    run = subprocess.Popen([*COMMAND, "run", "-q", "tasks", "--slots", "2", "--dir", "run"], cwd=folder)
    journal = f"file:{folder}/run/journal.sqlite?mode=ro"
    while True:
        try:
            with sqlite3.connect(journal, uri=True) as db:
                if db.execute("SELECT count(*) FROM assignments").fetchone()[0] >= 2:
                    break
        except sqlite3.Error:
            pass
        time.sleep(0.02)
    web = watchers = None
    if viewers:
        web = subprocess.Popen([*COMMAND, "web", "run"], cwd=folder, stdout=subprocess.PIPE, text=True)
        assert web.stdout is not None
        base, _, token = web.stdout.readline().strip().partition("#")
        port = base.strip("/").rpartition(":")[2]
        asks = [sys.executable, __file__, "--hold", port, token, "--tasks", str(tasks + 2), "--viewers", str(viewers)]
        watchers = subprocess.Popen(asks, stdout=subprocess.PIPE, text=True)
        time.sleep(2.0)  # all of them have connected, and the first data is made
    before_s = cpu_s(web.pid) if web else 0.0
    go.touch()
    if run.wait() != 0:
        sys.exit(f"the run ended with {run.returncode}")
    with sqlite3.connect(journal, uri=True) as db:
        count, first, last = db.execute(
            "SELECT count(*), min(started_at), max(ended_at) FROM ends WHERE task_id > 1 AND state = 'succeeded'"
        ).fetchone()
    if count != tasks:
        sys.exit(f"{count} of {tasks} tasks ran")
    told, share = "", 0.0
    if web is not None and watchers is not None:
        found = json.loads(watchers.communicate()[0])
        told = f"{found['events']:,} events, the last viewer knew of the end after {found['ended'] - last:.1f} s"
        share = (cpu_s(web.pid) - before_s) / (last - first)
        web.terminate()
        web.wait()
    return float(count / (last - first)), told, share


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--hold", nargs=2, metavar=("PORT", "TOKEN"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold:
        hold(int(options.hold[0]), options.hold[1], options.tasks, options.viewers)
        return 0
    if options.peer:
        for name, python, code in (("ours", sys.executable, OURS), ("Starlette, uvicorn", options.peer, THEIRS)):
            found = [subprocess.run([python, "-c", START, code], capture_output=True, text=True, check=True) for _ in range(3)]
            print(f"{name}: {min(one.stdout.strip() for one in found)}")
        return 0
    ratios, shares = [], []
    for turn in range(options.turns):
        rates = {}
        for viewers in (0, options.viewers) if turn % 2 == 0 else (options.viewers, 0):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                rates[viewers], seen, share = rate(Path(folder), options.tasks, viewers)
            if viewers:
                told = seen
                shares.append(share)
        ratios.append(rates[options.viewers] / rates[0])
        both = f"{rates[0]:,.0f} tasks/s alone, {rates[options.viewers]:,.0f} with the viewers"
        print(f"turn {turn + 1}: {both} ({told})", flush=True)
    print(f"dashboard: {statistics.median(ratios):.2f} of the rate is left with {options.viewers} viewers (aim 0.90)")
    print(f"CPU: the dashboard used {100 * statistics.median(shares):.1f} % of one core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
