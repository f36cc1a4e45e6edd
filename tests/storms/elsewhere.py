"""A storm over hosts that do not see the run's folder: engines and drivers are killed, and every output must come home whole.

If all processes of such an engine are killed, what it had not sent is lost with it and runs again: wardens are spared here.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from tests.e2e.live_runs import COMMAND, rows
from tests.storms.storm import LIMIT_S, Outcome

from pilothouse.formats.output_pack import STDOUT
from pilothouse.journal.output import open_outputs

TASKS = 150
_ENDED = "SELECT count(*) FROM ends WHERE final AND kind = 'N'"


def run_elsewhere(folder: Path, seed: int, kills: int, env: dict[str, str], tasks: int = TASKS) -> Outcome:
    """`env`: for ssh to hosts h1 and h2, which do not see the folder."""
    chance = random.Random(seed)
    lengths = [chance.choice([0, 5, 500, 5000, 100_000]) for _ in range(tasks)]
    lines = [f"seq -f '{task}:%g' 1 {length}; sleep 0.1\n" for task, length in enumerate(lengths)]
    (folder / "tasks").write_text("".join(lines))
    outcome, run = Outcome(tasks=tasks), folder / "R"
    words = ["tasks", "--dir", "R", "--ssh", "h1:2,h2:1", "--bundle", "5"]
    until = time.monotonic() + LIMIT_S
    driver: subprocess.Popen[bytes] | None = None
    try:
        while rows(run, _ENDED) != [(tasks,)] and time.monotonic() < until:
            if driver is None or driver.poll() is not None:
                again = bool(rows(run, "SELECT 1 FROM notes"))
                driver = subprocess.Popen([*COMMAND, "run", "-q", *(["--resume", "R"] if again else words)], cwd=folder, env=env)
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(chance.uniform(0.1, 0.8))
            if outcome.kills.total() < kills:
                outcome.kills.update(_strike(chance, run, driver))
        if driver is not None:
            driver.wait(LIMIT_S)
    finally:
        if driver is not None:
            driver.kill()
            driver.wait()
    _check(run, lengths, outcome)
    return outcome


def _strike(chance: random.Random, run: Path, driver: subprocess.Popen[bytes]) -> Counter[str]:
    engines = rows(run, "SELECT pid FROM engines WHERE left_at IS NULL")
    if driver.poll() is not None or not rows(run, "SELECT 1 FROM ends") or not engines:
        return Counter()
    if chance.random() < 0.4:
        driver.kill()
        driver.wait()
        return Counter(["driver"])
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(str(chance.choice(engines)[0])), signal.SIGKILL)
        return Counter(["engine"])
    return Counter()


def _check(run: Path, lengths: list[int], outcome: Outcome) -> None:
    with open_outputs(run) as reader:
        found = {output.task: output.text(STDOUT).decode() for _, output in reader.read(None) if output.state == "succeeded"}
    for task, length in enumerate(lengths):
        if task not in found:
            outcome.lost.append(f"task {task} has no end")
        elif found[task] != "".join(f"{task}:{number}\n" for number in range(1, length + 1)):
            outcome.wrong_outputs.append(f"task {task} wrote {length} lines, and {found[task].count(chr(10))} are there")
    outcome.outputs = len(found)
