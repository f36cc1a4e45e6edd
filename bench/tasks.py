"""How fast real tasks go, side by side with a C loop and the peers that are installed, in one run.

    python bench/tasks.py [rate] [peers] [sleep] [start] [resume] [million[=N]]      (default: all but million)

`rate` is `/bin/true` on two slots: bursts of a C vfork loop (the physical limit), ours and xargs take turns, and the
median of the ratios within each turn is told, so that a busy neighbour slows all of them alike. Where it is allowed, the
bursts run in the real-time class, as those of the figures in the documentation did.

`million` runs that many tasks (or N) and compares the first 10,000 with the last: tasks per second beside a C loop that
ran next to each, and the CPU that driver and engine spent on a task, which a busy neighbour hardly changes.
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
from bisect import bisect_left
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


def million(lab: Lab, count: int = 1_000_000) -> None:
    """Many tasks of a program without a C library, so that driver and engine are what is measured: does anything grow?"""
    part = min(10_000, count // 4)
    tiny = lab.compile("tiny", TINY, "-nostdlib", "-static")
    loop = lab.compile("loop", C_LOOP)

    def limit() -> float:
        done = subprocess.run([str(loop), str(part), "2", str(tiny)], capture_output=True, text=True, check=True)
        return float(done.stdout)

    file = lab.file(str(tiny), count)
    folder = lab.folder / "million"
    before = limit()
    began = time.monotonic()
    command = [*PILOTHOUSE, str(file), "--slots", "2", "--dir", str(folder), "-q"]
    run = subprocess.Popen(command, cwd=lab.folder, env=lab.env)
    samples = watched(run)
    whole = time.monotonic() - began
    after = limit()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    size = (folder / "journal.sqlite").stat().st_size / 2**20
    print(
        f"million: {count:,} tasks in {whole:.0f} s ({count / whole:,.0f}/s), driver's peak {peak:.0f} MB (target 300)"
    )
    print(f"  journal {size:.0f} MB, {size * 2**20 / count:.0f} bytes a task")
    print(f"  {'tasks':>22}   {'tasks/s':>7}  {'of a C loop':>11}   CPU µs a task: {'driver':>6}  {'engine':>6}")
    shown: dict[str, list[float]] = {}
    wide = max(part, count // 20)
    windows = [("the first", 1000, part), ("the last", count - 1000 - part, part)]
    windows += [("from", count * tenth // 10 + (1000 if not tenth else -1000), wide) for tenth in (0, 2, 4, 6, 8)]
    windows += [("until the end", count - 1000 - wide, wide)]
    with sqlite3.connect(folder / "journal.sqlite") as db:
        for name, start_at, width in windows:
            query_text = "SELECT min(ended_at), max(ended_at) FROM ends WHERE rowid BETWEEN ? AND ?"
            from_s, to_s = db.execute(query_text, (start_at, start_at + width)).fetchone()
            share = (start_at + width / 2) / count
            speed = width / (to_s - from_s)
            spent = [(at(samples, to_s, which) - at(samples, from_s, which)) / width * 1e6 for which in (1, 2)]
            shown[name] = [speed, *spent]
            of_limit = speed / (before + (after - before) * share)
            where = f"{name} {width:,}" if name.startswith("the") else f"{width:,} from {start_at:,}"
            print(f"  {where:>22}   {speed:7,.0f}  {of_limit:11.2f}   {'':14} {spent[0]:6.1f}  {spent[1]:6.1f}")
    print(f"  the C loop did {before:,.0f}/s before the run and {after:,.0f}/s after it")
    first, last = shown["the first"], shown["the last"]
    print(
        f"  the last {part:,} against the first: driver's CPU x {last[1] / first[1]:.2f}, engine's x {last[2] / first[2]:.2f}, "
        f"time x {first[0] / last[0]:.2f}, time measured in C loops x {first[0] / before / (last[0] / after):.2f}"
    )


Sample = tuple[float, float, float]
"""When (seconds since 1970), and the CPU seconds that driver and engine had used by then."""


def watched(run: subprocess.Popen[bytes]) -> list[Sample]:
    """Waits for the end of a run; what its processes had used, five times a second."""
    samples: list[Sample] = []
    while run.poll() is None:
        family = _family(run.pid)
        used = [sum(map(_cpu_s, part)) for part in (family[:1], family[1:])]
        if not samples or used[1] >= samples[-1][2]:
            samples.append((time.time(), used[0], used[1]))
        time.sleep(0.2)
    return samples


def _family(pid: int) -> list[int]:
    """A driver, its engine and its cylinders: all that lives for longer than a task."""
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        try:
            for thread in os.listdir(f"/proc/{one}/task"):
                children = Path(f"/proc/{one}/task/{thread}/children").read_text().split()
                todo.extend(int(child) for child in children if "python" in os.readlink(f"/proc/{child}/exe"))
        except OSError:
            continue
    return found


def _cpu_s(pid: int) -> float:
    """To the nanosecond, where ticks would be too coarse."""
    total = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
    except OSError:
        pass
    return total / 1e9


def at(samples: list[Sample], when: float, which: int) -> float:
    """The CPU seconds at a moment between two samples."""
    index = min(max(1, bisect_left(samples, (when, 0.0, 0.0))), len(samples) - 1)
    early, late = samples[index - 1], samples[index]
    return early[which] + (late[which] - early[which]) * (when - early[0]) / (late[0] - early[0])


PARTS: dict[str, Callable[..., None]] = {
    "rate": rate, "peers": peers, "sleep": sleep, "start": start, "resume": resume, "million": million,
}  # fmt: skip


def main() -> None:
    chosen = sys.argv[1:] or [name for name in PARTS if name != "million"]
    lab = Lab()
    try:
        for chosen_part in chosen:
            name, _, count = chosen_part.partition("=")
            if name not in PARTS or (count and (name != "million" or not count.isdigit())):
                sys.exit(f"{chosen_part}: no such part; there are {', '.join(PARTS)}")
            PARTS[name](lab, *([int(count)] if count else []))
    finally:
        shutil.rmtree(lab.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
