"""How fast real tasks go, side by side with a C loop and the peers that are installed, in one run.

    python bench/tasks.py [rate] [peers] [sleep] [start] [resume] [million]      (default: all but million)

`rate` is `/bin/true` on two slots: bursts of a C vfork loop (the physical limit), ours and xargs take turns, and the
median of the ratios within each turn is told, so that a busy neighbour slows all of them alike. Where it is allowed, the
bursts run in the real-time class, as those of the figures in the documentation did.
"""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PILOTHOUSE = [sys.executable, "-c", "from pilothouse.cli.main import main; main()", "run"]
TASKS = 3000
TURNS = 7
C_LOOP = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
extern char **environ;
int main(int count, char **words) {
    int tasks = atoi(words[1]), slots = atoi(words[2]), running = 0, done = 0, started = 0, status;
    char *argv[] = {words[3], 0};
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    while (done < tasks) {
        while (running < slots && started < tasks) {
            if (vfork() == 0) { execve(argv[0], argv, environ); _exit(127); }
            running++; started++;
        }
        wait(&status); running--; done++;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%f\n", tasks / ((to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9));
}
"""
HYPERQUEUE = """
import sys
from hyperqueue.cluster import LocalCluster, WorkerConfig
from hyperqueue.job import Job
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=2))
    job = Job()
    for _ in range(int(sys.argv[1])):
        job.program(["/bin/true"])
    client = cluster.client()
    client.wait_for_jobs([client.submit(job)])
"""
QCG_JOBS = """[{"request": "submit", "jobs": [{"name": "x", "iteration": {"start": 0, "stop": %d},
  "execution": {"exec": "/bin/true"}, "resources": {"numCores": {"exact": 1}}}]},
  {"request": "control", "command": "finishAfterAllTasksDone"}]"""
TINY = 'void _start(void) { __asm__ volatile("mov $60, %eax; xor %edi, %edi; syscall"); }'


class Lab:
    """A folder, the compiled programs, and how a burst is run."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bench-tasks-"))
        self.env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self.front = (
            ["chrt", "-f", "5"] if subprocess.run(["chrt", "-f", "5", "true"], check=False).returncode == 0 else []
        )
        self._runs = 0

    def compile(self, name: str, source: str, *flags: str) -> Path:
        path = self.folder / name
        (self.folder / f"{name}.c").write_text(source)
        subprocess.run(["gcc", "-O2", *flags, str(path) + ".c", "-o", str(path)], check=True)
        return path

    def file(self, line: str, count: int) -> Path:
        path = self.folder / "tasks.txt"
        path.write_text(f"{line}\n" * count)
        return path

    def run(self, *command: str, timed: bool = True) -> float:
        """Wall seconds of one command."""
        began = time.monotonic()
        front = self.front if timed else []
        quiet = subprocess.DEVNULL
        subprocess.run([*front, *command], cwd=self.folder, env=self.env, check=False, stdout=quiet, stderr=quiet)
        return time.monotonic() - began

    def pilothouse(self, file: Path, slots: int, *, timed: bool = True) -> tuple[float, float, Path]:
        """Wall seconds of the whole command, seconds from the first start to the last end, and the run's folder."""
        self._runs += 1
        folder = self.folder / f"R{self._runs}"
        command = [*PILOTHOUSE, str(file), "--slots", str(slots), "--dir", str(folder), "-q"]
        whole = self.run(*command, timed=timed)
        (span,) = query(folder, "SELECT max(ended_at) - min(started_at) FROM ends")
        return whole, span, folder


def query(folder: Path, text: str) -> tuple[float, ...]:
    with sqlite3.connect(folder / "journal.sqlite") as db:
        row: tuple[float, ...] = db.execute(text).fetchone()
        return row


def rate(lab: Lab) -> None:
    loop = lab.compile("loop", C_LOOP)
    file = lab.file("/bin/true", TASKS)
    ratios, wholes, xargs_ratios, rates = [], [], [], []

    def c_rate() -> float:
        command = [*lab.front, str(loop), str(TASKS), "2", "/bin/true"]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    for _ in range(TURNS):
        before = c_rate()
        whole, span, _ = lab.pilothouse(file, 2)
        xargs = lab.run("sh", "-c", f"xargs -P2 -n1 /bin/true < {file}") if shutil.which("xargs") else 0.0
        limit = (before + c_rate()) / 2
        ratios.append(TASKS / span / limit)
        wholes.append(TASKS / whole / limit)
        rates.append((limit, TASKS / span))
        if xargs:
            xargs_ratios.append(TASKS / xargs / limit)
    limit, ours = (statistics.median(column) for column in zip(*rates, strict=True))
    print(f"rate: C vfork loop {limit:,.0f}/s, pilothouse {ours:,.0f}/s, two slots, {TASKS} x /bin/true, {TURNS} turns")
    print(f"  pilothouse / C loop    median {statistics.median(ratios):.2f}   best {max(ratios):.2f}   (target 0.85)")
    print(f"  the same with start-up and end of the command   median {statistics.median(wholes):.2f}")
    if xargs_ratios:
        print(f"  xargs -P2 / C loop     median {statistics.median(xargs_ratios):.2f}")


def peers(lab: Lab) -> None:
    """The same file through whatever is installed; seconds of the whole command, and the ratio to ours."""
    count = 1000
    file = lab.file("/bin/true", count)
    ours = min(lab.pilothouse(file, 2)[0] for _ in range(3))
    print(f"peers: {count} x /bin/true, two slots, start and end included")
    print(f"  {'pilothouse':<14} {ours:7.2f} s")
    for name, command, tasks in _peer_commands(lab, file, count):
        spent = lab.run(*command)
        note = "" if tasks == count else f"   ({tasks} tasks only)"
        print(f"  {name:<14} {spent:7.2f} s   {spent / tasks / (ours / count):6.1f} x ours per task{note}")


def _peer_commands(lab: Lab, file: Path, count: int) -> Iterator[tuple[str, list[str], int]]:
    """Name, command and number of tasks of each peer that is here."""
    if shutil.which("xargs"):
        yield "xargs -P2", ["sh", "-c", f"xargs -P2 -n1 /bin/true < {file}"], count
    if shutil.which("parallel"):
        yield "GNU parallel", ["sh", "-c", f"parallel -j2 < {file}"], count
    clients = ROOT / ".venvs"
    queue = clients / "hyperqueue" / "bin" / "python"
    if queue.exists():
        yield "HyperQueue", [str(queue), "-c", HYPERQUEUE, str(count)], count
    pilot = clients / "qcg" / "bin" / "qcg-pm-service"
    if pilot.exists():
        jobs = lab.folder / "jobs.json"
        jobs.write_text(QCG_JOBS % count)
        command = [str(pilot), "--wd", str(lab.folder / "wd"), "--file", "--file-path", str(jobs)]
        yield "QCG PilotJob", [*command, "--nodes", "localhost:2"], count
    batch = clients / "disbatch" / "bin"
    if (batch / "disBatch").exists():
        few = 20
        short = lab.folder / "few"
        short.write_text("/bin/true\n" * few)
        path = f"{batch}:{os.environ['PATH']}"
        yield "disBatch", ["env", f"PATH={path}", "disBatch", "-s", "localhost:2", str(short)], few


def sleep(lab: Lab) -> None:
    file = lab.file("sleep 0.1", 200)
    runs = [lab.pilothouse(file, 8) for _ in range(3)]
    span = min(run[1] for run in runs)
    print(f"sleep: 200 x sleep 0.1 on 8 slots: {span:.3f} s, {span / 2.5 - 1:.1%} over the ideal 2.5 s (target 5 %)")
    print(f"  with start-up and end of the command: {min(run[0] for run in runs):.3f} s")


def start(lab: Lab) -> None:
    file = lab.file("true", 1)
    firsts, wholes = [], []
    for _ in range(5):
        began = time.time()
        whole, _, folder = lab.pilothouse(file, 2)
        firsts.append(query(folder, "SELECT min(started_at) FROM ends")[0] - began)
        wholes.append(whole)
    print(f"start: first task after {min(firsts):.3f} s (target 0.5), a run of one task {min(wholes):.3f} s")


def resume(lab: Lab) -> None:
    """A run of 100,000 tasks of which all but ten are done."""
    count = 100_000
    file = lab.file("/bin/true", 10)
    _, _, folder = lab.pilothouse(file, 2)
    with file.open("a") as stream:
        stream.write("/bin/true\n" * count)
    with sqlite3.connect(folder / "journal.sqlite") as db:
        row = list(db.execute("SELECT * FROM ends WHERE task_id = 0").fetchone())
        db.executemany(
            f"INSERT INTO ends VALUES ({','.join('?' * len(row))})", ([task, *row[1:]] for task in range(10, count))
        )
    spent = lab.run(*PILOTHOUSE, "--resume", str(folder), "-q")
    (ended,) = query(folder, "SELECT count(DISTINCT task_id) FROM ends WHERE final")
    assert ended == count + 10, ended
    print(f"resume: over {count:,} finished tasks in {spent:.2f} s (target 5 s; disBatch 3.0: 227 s)")


def million(lab: Lab) -> None:
    """A million tasks of a program without a C library, so that the driver is what is measured."""
    count = 1_000_000
    tiny = lab.compile("tiny", TINY, "-nostdlib", "-static")
    file = lab.file(str(tiny), count)
    whole, span, folder = lab.pilothouse(file, 2, timed=False)  # minutes of real-time class would be unkind
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    order = "SELECT max(ended_at) - min(ended_at) FROM (SELECT ended_at FROM ends ORDER BY rowid LIMIT 10000 OFFSET {})"
    first = query(folder, order.format(1000))[0]
    last = query(folder, order.format(count - 11_000))[0]
    size = (folder / "journal.sqlite").stat().st_size / 2**20
    print(
        f"million: {count:,} tasks in {whole:.0f} s ({count / span:,.0f}/s), driver's peak {peak:.0f} MB (target 300)"
    )
    print(f"  10,000 tasks took {first:.2f} s at the beginning, {last:.2f} s at the end; journal {size:.0f} MB")


PARTS: dict[str, Callable[[Lab], None]] = {
    "rate": rate, "peers": peers, "sleep": sleep, "start": start, "resume": resume, "million": million,
}  # fmt: skip


def main() -> None:
    chosen = sys.argv[1:] or [name for name in PARTS if name != "million"]
    lab = Lab()
    try:
        for name in chosen:
            if name not in PARTS:
                sys.exit(f"{name}: no such part; there are {', '.join(PARTS)}")
            PARTS[name](lab)
    finally:
        shutil.rmtree(lab.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
