"""What it costs to keep the output of tasks, and how fast it is found.

    python bench/output.py [rate] [find] [million[=N]]      (default: rate and find)

`rate`: runs of tasks that write ten lines take turns, with output kept and without (50,000 tasks each in all); told are the
median of the ratios within each turn, and the ratio of the best, so that a busy neighbour slows both alike. `find`: the
command `pilothouse output DIR TASK` after a run of 50,000 such tasks, beside an empty Python: the best of ten, and its CPU time,
which a busy neighbour hardly changes. `million`: that many tasks of one line (or N). They are not run: the writers of engine and
driver write what those would; then the disk is measured, and one task is looked for.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tasks import PILOTHOUSE, Lab, query

TASKS = 50_000
TURNS = 10
LINES = "seq 10"
LOOKED_FOR = 31_415
BATCH = 1000


def run(lab: Lab, file: Path, name: str, *options: str) -> tuple[Path, float]:
    """The run's folder, and its tasks per second."""
    folder = lab.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    command = [*PILOTHOUSE, str(file), "--slots", "2", "--dir", str(folder), "-q", *options]
    subprocess.run(command, cwd=lab.folder, env=lab.env, check=True)
    tasks, span = query(folder, "SELECT count(*), max(ended_at) - min(started_at) FROM ends")
    return folder, tasks / span


def rate(lab: Lab) -> None:
    file = lab.file(LINES, TASKS // TURNS)
    rates: dict[str, list[float]] = {"with": [], "without": []}
    options = {"with": (), "without": ("--output-limit", "0")}
    for turn in range(TURNS):
        for name in list(rates)[:: 1 if turn % 2 else -1]:
            rates[name].append(run(lab, file, name, *options[name])[1])
    ratios = [kept / cut for kept, cut in zip(rates["with"], rates["without"], strict=True)]
    best = max(rates["with"]) / max(rates["without"])
    speeds = f"best {max(rates['with']):,.0f}/s with output kept, {max(rates['without']):,.0f}/s without"
    print(f"rate: {TASKS:,} x {LINES} in {TURNS} turns, two slots: {speeds}")
    print(f"  ratio of each turn: median {statistics.median(ratios):.3f}; ratio of the best: {best:.3f}   (target 0.90)")


def find(lab: Lab) -> None:
    folder, _ = run(lab, lab.file(LINES, TASKS), "find")
    said, spent = look_for(lab, folder, LOOKED_FOR)
    assert said == "".join(f"{number}\n" for number in range(1, 11)), said
    print(f"find: pilothouse output DIR {LOOKED_FOR} of {TASKS:,}: {spent} (target 0.1)")
    print(f"  an empty Python: {timed(lab, sys.executable, '-c', 'pass')}")


def look_for(lab: Lab, folder: Path, task: int) -> tuple[str, str]:
    """What the command prints, and the time that it takes."""
    command = [str(Path(sys.executable).with_name("pilothouse")), "output", str(folder), str(task)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=lab.env).stdout
    return said, timed(lab, *command)


def timed(lab: Lab, *command: str) -> str:
    """The least of ten: wall time, and CPU time."""
    env = {name: value for name, value in lab.env.items() if name != "PYTHONDONTWRITEBYTECODE"}
    wall_s, cpu_s = [], []
    for _ in range(10):
        began = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env) as program:
            _, _, used = os.wait4(program.pid, 0)
            program.returncode = 0
        wall_s.append(time.monotonic() - began)
        cpu_s.append(used.ru_utime + used.ru_stime)
    return f"{min(wall_s):.3f} s (CPU {min(cpu_s):.3f} s)"


def million(lab: Lab, count: int = 1_000_000) -> None:
    """A real run of one task gives the records; engine and driver's own writers write as many of them."""
    from pilothouse.formats.output_pack import STDOUT, pack_path
    from pilothouse.journal.store import Journal
    from pilothouse.model.lifecycle import JobState
    from pilothouse.worlds.live import records as r
    from pilothouse.worlds.live.engine.output import PackWriter

    folder, _ = run(lab, lab.file("echo one line of some task", 1), "million", "--bundle", "1")
    journal = Journal(folder)
    names = ",".join(r.TaskEnded.__struct_fields__)
    row = journal._db.execute(f"SELECT {names} FROM ends").fetchone()  # the record as the run wrote it
    (key,) = journal._db.execute("SELECT key FROM engines").fetchone()
    known = dict(zip(r.TaskEnded.__struct_fields__, row, strict=True))
    known["state"] = JobState(known["state"])
    writers = [PackWriter(pack_path(folder, key)) for _ in range(2)]
    began = time.monotonic()
    for first in range(1, count, BATCH):
        records: list[r.Record] = []
        tasks = range(first, min(first + BATCH, count))
        for task in tasks:
            writer = writers[task % 2]
            text = f"one line of task {task}\n".encode()
            writer.begin(task, 1, 1 << 20)
            writer.add(STDOUT, text)
            place, _ = writer.end((len(text), 0))
            told = {"task_id": task, "line_number": task + 1, "out_bytes": len(text), "out_snippet": text, "output": place}
            records.append(r.TaskEnded(**{**known, **told, "job_id": f"{first}+{len(tasks) - 1}@{first}"}))
        journal.write(records)
    journal.close()
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    large = [path for path in sorted(folder.iterdir()) if path.is_file() and path.stat().st_size > 1e6]
    parts = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.0f} MB" for path in large)
    spent_s = time.monotonic() - began
    print(f"million: {count:,} tasks of one line, by our writers in {spent_s:.0f} s: {size / 1e6:.0f} MB (target 300): {parts}")
    task = count * 3 // 4
    said, spent = look_for(lab, folder, task)
    assert said == f"one line of task {task}\n", said
    print(f"  pilothouse output DIR {task}: {spent} (target 0.2); an empty Python: {timed(lab, sys.executable, '-c', 'pass')}")


PARTS = {"rate": rate, "find": find, "million": million}


def main() -> None:
    lab = Lab()
    try:
        for word in sys.argv[1:] or ("rate", "find"):
            name, _, count = word.partition("=")
            PARTS[name](lab, *([int(count)] if count else []))
    finally:
        shutil.rmtree(lab.folder)


if __name__ == "__main__":
    main()
