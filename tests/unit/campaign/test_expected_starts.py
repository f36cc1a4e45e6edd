"""When a task of a live run is expected to start."""

from __future__ import annotations

from pilothouse.campaign.expected_starts import ExpectedStart, TaskDurations, expected_start
from pilothouse.formats.task_file import TaskReader
from pilothouse.journal.plan import Plan
from pilothouse.journal.waiting import HeldTask, Present, Progress, UnfinishedLines, waiting_tasks
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.policies.catalog import make


def expect(text: str, task_id: int, durations: TaskDurations | None, *, foreign: bool = False, slots: int = 2) -> ExpectedStart:
    """Task 0 has run for 4 s on slot 0 of the only node."""
    lines = list(TaskReader("tasks", requests=True).read(text.encode().splitlines(keepends=True)))
    at = Present(
        now=100.0, started_at=0.0, driven=True, decider="fcfs", nodes=(Node("n", 0, slots),),
        running=(e.Running(Job("0", 1), IdSet(1), 96.0),), held={0: HeldTask(0, 1, "0", "n", "0", 96.0)}, progress=Progress(),
    )  # fmt: skip

    def unfinished() -> UnfinishedLines:
        return UnfinishedLines(iter(lines), at.progress.done)

    waiting = list(waiting_tasks(unfinished(), at, Plan().job_of))
    task = next(one for one in waiting if one.task_id == task_id)
    return expected_start(task, iter(waiting), unfinished(), at, durations, None if foreign else lambda: make("fcfs", {}))


def test_slots_are_taken_in_turn() -> None:
    text = "x\n" * 6
    found = [expect(text, task, TaskDurations(10.0)).at for task in range(1, 6)]
    assert found == [100.0, 106.0, 110.0, 116.0, 120.0]


def test_barriers_and_dependencies_hold() -> None:
    assert expect("x\n#DISBATCH BARRIER\ny\n", 2, TaskDurations(10.0)).at == 106.0
    named = "#PILOTHOUSE name=a\nx\n\n#PILOTHOUSE after=a name=b\ny\n\n#PILOTHOUSE after=b\nz\n"
    assert expect(named, 2, TaskDurations(10.0)).at == 116.0


def test_a_task_that_took_longer_than_expected_is_about_to_end() -> None:
    assert expect("x\ny\n", 1, TaskDurations(1.0), slots=1).at == 100.0


def test_what_cannot_be_told_is_said() -> None:
    assert "no task of this run has ended" in expect("x\ny\n", 1, None).why
    assert "outside of this program" in expect("x\ny\n", 1, TaskDurations(1.0), foreign=True).why
    assert "large enough" in expect("x\n#PILOTHOUSE cores=9\ny\n", 1, TaskDurations(1.0)).why
