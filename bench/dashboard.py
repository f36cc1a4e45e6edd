"""What does a dashboard with many viewers cost a run?

    python bench/dashboard.py [--viewers 50] [--phases 20] [--phase 2.0] [--peer PYTHON]

One run of /bin/true on two slots, with `pilothouse web` beside it. The viewers come and go together, a phase with them and a
phase without, turn about, so that whatever else the machine does falls on both. Prints the share of the rate that is left with
them (medians of the phases; the aim is 0.90), how old the states were that they saw, and the CPU time of the dashboard.
Viewers do what the page does: they listen to /events and fetch /data when it is new; all of them are in one process, at low
priority, as browsers are on other machines. `--peer`: a Python that has Starlette and uvicorn; their time to start and memory
are printed beside ours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
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
SETTLE_S = 0.3
"""At the beginning of a phase: what the other one left is done with."""


async def view(port: int, token: str, ages: list[float]) -> None:
    """One viewer, until it is cancelled."""
    ask = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        writer.write(b"GET /events HTTP/1.1\r\n" + ask)
        await reader.readuntil(b"\r\n\r\n")
        data, first = 0, True
        while True:
            look = json.loads((await reader.readuntil(b"\n\n")).partition(b"data: ")[2])
            if not first:  # that may be of the phase before
                ages.append(time.time() - look["now"])
            if look["data"] != data and not first:
                data = look["data"]
                other, line = await asyncio.open_connection("127.0.0.1", port)
                line.write(b"GET /data HTTP/1.1\r\n" + ask)
                await other.read()
                line.close()
            first = False
    finally:
        writer.close()


async def phases(port: int, token: str, viewers: int, count: int, length_s: float) -> None:
    """Prints (begin, end, whether there were viewers) of each phase, and how old their states were."""
    found: list[tuple[float, float, bool]] = []
    ages: list[float] = []
    for number in range(count):
        watched = number % 2 == 0
        tasks = [asyncio.ensure_future(view(port, token, ages)) for _ in range(viewers if watched else 0)]
        began = time.time() + SETTLE_S
        await asyncio.sleep(SETTLE_S + length_s)
        found.append((began, time.time(), watched))
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
    print(json.dumps({"phases": found, "ages": ages}))


def cpu_s(pid: int) -> float:
    """CPU seconds of a process that goes on."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def measure(folder: Path, viewers: int, count: int, length_s: float) -> None:
    (folder / "tasks").write_text("#DISBATCH REPEAT 100000000 /bin/true\n")
    run = subprocess.Popen([*COMMAND, "run", "-q", "tasks", "--slots", "2", "--dir", "run"], cwd=folder)
    journal = f"file:{folder}/run/journal.sqlite?mode=ro"
    ended = 0
    while not ended:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(journal, uri=True)) as db:
            ended = db.execute("SELECT count(*) FROM ends").fetchone()[0]
        time.sleep(0.05)
    web = subprocess.Popen([*COMMAND, "web", "run"], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert web.stdout is not None
    base, _, token = web.stdout.readline().strip().partition("#")
    port = base.strip("/").rpartition(":")[2]
    before_s = cpu_s(web.pid)
    how = ["--viewers", str(viewers), "--phases", str(count), "--phase", str(length_s)]
    asks = [sys.executable, __file__, "--hold", port, token, *how]
    found = json.loads(subprocess.run(asks, stdout=subprocess.PIPE, check=True).stdout)
    used_s = cpu_s(web.pid) - before_s
    for process in (web, run):
        process.terminate()
        process.wait()
    rates: dict[bool, list[float]] = {True: [], False: []}
    with contextlib.closing(sqlite3.connect(journal, uri=True)) as db:
        for begin, end, watched in found["phases"]:
            query = "SELECT count(*) FROM ends WHERE ended_at >= ? AND ended_at < ? AND state = 'succeeded'"
            rates[watched].append(db.execute(query, (begin, end)).fetchone()[0] / (end - begin))
    with_them, alone = statistics.median(rates[True]), statistics.median(rates[False])
    watched_s = sum(end - begin for begin, end, watched in found["phases"] if watched)
    print(f"{alone:,.0f} tasks/s alone, {with_them:,.0f} with {viewers} viewers, who got {len(found['ages']):,} states")
    ages = sorted(found["ages"])
    most = ages[int(0.99 * len(ages))]
    print(f"states were {statistics.median(ages):.2f} s old when they came, 99 in 100 at most {most:.2f} s")
    print(f"CPU: the dashboard used {100 * used_s / watched_s:.1f} % of one core while it was watched")
    print(f"dashboard: {with_them / alone:.2f} of the rate is left with {viewers} viewers (aim 0.90)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--phases", type=int, default=20)
    parser.add_argument("--phase", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--hold", nargs=2, metavar=("PORT", "TOKEN"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold:
        os.nice(10)
        port, token = options.hold
        asyncio.run(phases(int(port), token, options.viewers, options.phases, options.phase))
        return 0
    if options.peer:
        for name, python, code in (("ours", sys.executable, OURS), ("Starlette, uvicorn", options.peer, THEIRS)):
            found = [subprocess.run([python, "-c", START, code], capture_output=True, text=True, check=True) for _ in range(3)]
            print(f"{name}: {min(one.stdout.strip() for one in found)}")
        return 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        measure(Path(folder), options.viewers, options.phases, options.phase)
    return 0


if __name__ == "__main__":
    sys.exit(main())
