"""Behind `pilothouse explain DIR TASK` for live runs: finds the task, and puts its story together."""

from __future__ import annotations

import time
from pathlib import Path

from pilothouse.journal.present import WaitingReader, waiting_reader
from pilothouse.journal.read import numbers_of, read_attempts, read_notes
from pilothouse.journal.run_reader import answers
from pilothouse.journal.waiting import WaitingTask
from pilothouse.launch import naming
from pilothouse.launch.forecasts import forecast_start
from pilothouse.model.errors import InputError, PilothouseError
from pilothouse.views import documents
from pilothouse.views.task_story import ExpectedStart, TaskStory, ended_story, held_story, waiting_story
from pilothouse.worlds.live import requests

MOST_AHEAD = 100_000
"""Tasks before one whose start is simulated."""
ANSWER_WITHIN_S = 10.0
ANSWER_EVERY_S = 0.1
"""How long the run's scheduler may take to answer, and how often the journal is looked at."""
_NO_HOPE = ("driver", "engine", "node")
"""Nothing that the run does by itself ends these waits."""

_NO_SOURCE = "the tasks of this run do not come from a file of `pilothouse run`: those that have not begun are not known here"


def explain_task(folder: Path, name: str, *, as_json: bool, ask: bool = False) -> str:
    """The story of a task of the run in this folder. Raises InputError if there is none of that name or number.

    `ask`: the run's own scheduler is asked when a waiting task will start, not a simulation."""
    found = task_story(folder, name, ask=ask)
    return documents.text("task_story", found) if as_json else found.text(time.time())


def task_story(folder: Path, name: str, *, ask: bool = False) -> TaskStory:
    numbers = numbers_of(folder, name) or ([int(name)] if name.isdecimal() else [])
    if len(numbers) == 1:
        rows, final = read_attempts(folder, numbers[0])
        if final:
            return ended_story(rows)
    with waiting_reader(folder) as reader:
        numbers = numbers or _unended(reader, name)
        if len(numbers) > 1:
            shown = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
            raise InputError(str(folder), f"{len(numbers):,} tasks have the name {name}", hint=f"give a number: {shown}")
        for number in numbers:
            rows, _ = read_attempts(folder, number)
            if number in reader.present.held:
                return held_story(reader.present.held[number], rows)
            waiting = next((task for task in reader if task.task_id == number), None)
            if waiting is not None:
                decider = reader.present.decider
                expected = _asked(folder, decider, waiting) if ask else _expected(folder, decider, waiting)
                return waiting_story(waiting, rows, expected)
        if not reader.plan.source:
            raise InputError(str(folder), f"task {name} has not begun, or is not in it", hint=_NO_SOURCE)
    raise InputError(str(folder), f"there is no task {name} in it", hint=f"see: pilothouse tasks {folder}")


def _unended(reader: WaitingReader, name: str) -> list[int]:
    """The tasks of this name that have not ended."""
    running = [task.task_id for task in reader.present.held.values() if task.name == name]
    waiting = [line.task_id for line in reader.lines() if line.request is not None and line.request.name == name]
    return sorted({*running, *waiting})


def _asked(folder: Path, decider: str, task: WaitingTask) -> ExpectedStart:
    """What the run's scheduler says itself."""
    request = requests.AskEstimate(task.task_id)
    before = {answer.number for answer in answers(read_notes(folder))}
    requests.ask(folder, request)
    until = time.monotonic() + ANSWER_WITHIN_S
    while time.monotonic() < until:
        for answer in answers(read_notes(folder)):
            if answer.request == request and answer.number not in before:
                if answer.seconds is None:
                    return ExpectedStart(why=answer.text)
                start = answer.at + answer.seconds
                return ExpectedStart(start, start, start, f"as {decider} answers")
        time.sleep(ANSWER_EVERY_S)
    return ExpectedStart(why=f"{decider} has not answered within {ANSWER_WITHIN_S:g} s")


def _expected(folder: Path, decider: str, task: WaitingTask) -> ExpectedStart:
    if task.wait.what in _NO_HOPE:
        return ExpectedStart(why=f"it waits for {task.wait.text}")
    if decider.partition(":")[0] in naming.FOREIGN:
        return ExpectedStart(why=f"{decider} decides outside of this program; --ask asks it")
    if task.ahead > MOST_AHEAD:
        return ExpectedStart(why=f"{task.ahead:,} tasks are before it, more than are simulated ({MOST_AHEAD:,})")
    try:
        now, after_s = forecast_start(folder, str(task.task_id) if task.line is not None else task.job.id, task.ahead)
    except InputError as problem:
        return ExpectedStart(why=problem.problem)
    except PilothouseError as problem:
        return ExpectedStart(why=f"the policy {decider} cannot be asked: {problem}")
    why = f"if tasks take as long as those that ended, under {decider}"
    return ExpectedStart(now + after_s.median, now + after_s.low, now + after_s.high, why)
