"""Storms over programs that use engines in other ways: a `Pool`, the stand-ins for disBatch and for QCG-PilotJob.

Their own processes are spared; their engines, wardens, cylinders and tasks are killed and stopped. Each must come to its end, say
of every piece of work what became of it, and leave nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.e2e.live_runs import COMMAND
from tests.storms import processes
from tests.storms.storm import ENDED_WITHIN_S, LIMIT_S, Outcome

PIECES = 60
LENGTHS = (0, 0.02, 0.1, 0.4)
POOL = """\
import json, sys, time
from pilothouse import Pool
def work(number, seconds):
    open("record", "a").write(f"{number}\\n")
    time.sleep(seconds)
    return number
with Pool(slots=3, folder="R") as pool:
    futures = [pool.submit(work, number, seconds) for number, seconds in enumerate(json.load(open("lengths")))]
    told = []
    for number, future in enumerate(futures):
        try:
            told.append(future.result() == number)
        except Exception as problem:
            told.append("worker" in str(problem))  # killed itself, or lost too often
json.dump(told, open("told", "w"))
"""


def run_program_storm(folder: Path, kind: str, seed: int, kills: int) -> Outcome:
    """`kind`: pool, disbatch or qcg."""
    folder.mkdir(parents=True)
    folder = folder.resolve()
    chance, outcome = random.Random(seed), Outcome(tasks=PIECES)
    lengths = [chance.choice(LENGTHS) for _ in range(PIECES)]
    with (folder / "said").open("w+") as said:
        command = _command(folder, kind, lengths)
        # Jobs of QCG run in login shells: the user's profile must not be cut off in the middle of what it does.
        env = {**os.environ, "HOME": str(folder)}
        program = subprocess.Popen(command, cwd=folder, env=env, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        until = time.monotonic() + LIMIT_S
        try:
            while program.poll() is None and time.monotonic() < until:
                if outcome.kills.total() < kills:
                    _strike(chance, program.pid, outcome)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.wait(chance.uniform(0.05, 0.4))
        finally:
            if program.poll() is None:
                outcome.other.append(f"{kind} does not end")
                program.kill()
                program.wait()
        said.seek(0)
        text = said.read()
    if "Traceback" in text:
        outcome.other.append(f"{kind}: {text[-2000:]}")
    late = time.monotonic() + ENDED_WITHIN_S
    while (left := processes.working_in(folder)) and time.monotonic() < late:
        time.sleep(0.05)
    outcome.orphans += [f"{kind}: process {pid} is left" for pid in left]
    processes.kill(left)
    outcome.lost += _lost(folder, kind)
    return outcome


def _command(folder: Path, kind: str, lengths: list[float]) -> list[str]:
    if kind == "pool":
        (folder / "lengths").write_text(json.dumps(lengths))
        (folder / "script.py").write_text(POOL)
        return [sys.executable, "script.py"]
    if kind == "disbatch":
        (folder / "tasks").write_text("".join(f"echo {number} >> record; sleep {s}\n" for number, s in enumerate(lengths)))
        return [*COMMAND, "disbatch", "-s", f"{os.uname().nodename}:3", "tasks"]
    jobs = [
        {"name": f"j{number}", "execution": {"script": f"sleep {seconds}"}, "resources": {"numCores": {"exact": 1}}}
        for number, seconds in enumerate(lengths)
    ]
    requests = [{"request": "submit", "jobs": jobs}, {"request": "control", "command": "finishAfterAllTasksDone"}]
    (folder / "requests.json").write_text(json.dumps(requests))
    report = ("--report-format", "json", "--report-file", "report")
    return [*COMMAND, "qcg", "--file-path", "requests.json", "--nodes", "n1:2,n2:2", "--wd", str(folder), *report]


def _strike(chance: random.Random, program: int, outcome: Outcome) -> None:
    wardens = [pid for pid in processes.descendants(program) if _is_warden(pid)]
    if not wardens:
        return
    warden = chance.choice(wardens)
    offspring = processes.children(warden)
    if not offspring:
        return
    engine, cylinders = offspring[0], offspring[1:]
    tasks = [task for cylinder in cylinders for task in processes.children(cylinder)]
    found = {"engine": [engine], "warden": [warden], "cylinder": cylinders, "task": tasks}
    names = [name for name in chance.sample(sorted(found), chance.choice([1, 1, 2, 3])) if found[name]]
    victims = [(name, chance.choice(found[name])) for name in names]
    stopped: list[int] = []
    if chance.random() < 0.3:
        stopped = processes.kill([chance.choice([warden, engine, *cylinders])], signal.SIGSTOP)
        outcome.stops.update(["any"] * len(stopped))
    began = {pid: processes.started(pid) for pid in stopped}
    gone = processes.kill([pid for _, pid in victims])
    outcome.kills.update(name for name, pid in victims if pid in gone)
    outcome.together += len(gone) if len(gone) > 1 else 0
    time.sleep(chance.choice([0.0, 0.1]))
    processes.kill([pid for pid in stopped if processes.started(pid) == began[pid]], signal.SIGCONT)


def _is_warden(pid: int) -> bool:
    return processes.is_engine_program(pid) and not processes.is_engine_program(processes.parent(pid))


def _lost(folder: Path, kind: str) -> list[str]:
    """Pieces of work whose end is not known, or not true."""
    if kind == "pool":
        if not (folder / "told").exists():
            return ["the pool's program did not come to its end"]
        told = json.loads((folder / "told").read_text())
        return [f"call {number} has a wrong result" for number, good in enumerate(told) if not good]
    if kind == "disbatch":
        rows = [line.split("\t")[1] for path in folder.glob("*_status.txt") for line in path.read_text().splitlines()]
        found = {number: rows.count(str(number)) for number in range(PIECES)}
        return [f"task {number} has {count} lines" for number, count in found.items() if count < 1]
    report = next(folder.rglob("report*"), None)
    known = [json.loads(line)["name"] for line in report.read_text().splitlines()] if report is not None else []
    return [f"job {number} has {known.count(f'j{number}')} ends" for number in range(PIECES) if known.count(f"j{number}") != 1]
