"""What tasks wait for, by what a journal holds."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pilothouse.formats.task_file import TaskLine, TaskReader
from pilothouse.journal.plan import Plan
from pilothouse.journal.waiting import HeldTask, Present, Progress, UnfinishedLines, WaitingTask, waiting_tasks
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape

ENDED = (1, "N", "succeeded", 50.0, 1, "", "", 1)
NODE = Node("n", 0, 4, gpus=2, memory_mb=1000)


def lines(text: str) -> list[TaskLine]:
    return list(TaskReader("tasks", requests=True).read(text.encode().splitlines(keepends=True)))


def present(*runs: e.Running, nodes: tuple[Node, ...] = (NODE,), driven: bool = True, held: Iterable[int] = ()) -> Present:
    hold = {task: HeldTask(task, 1, str(task), "n", "0", 90.0) for task in held}
    return Present(
        now=100.0, started_at=10.0, driven=driven, decider="easy", nodes=nodes, running=runs, held=hold, progress=Progress()
    )  # fmt: skip


def run(units: str, shape: Shape | None = None) -> e.Running:
    mask = IdSet.parse(units)
    return e.Running(Job("r", len(mask), shape=shape), mask, 90.0)


def waits(text: str, at: Present) -> dict[int, WaitingTask]:
    unfinished = UnfinishedLines(iter(lines(text)), at.progress.done)
    return {task.task_id: task for task in waiting_tasks(unfinished, at, Plan().job_of)}


@pytest.mark.parametrize(
    ("request_", "at", "what", "words"),
    [
        ("cores=2", present(run("0-2")), "cores", "it needs 2 on one node, and at most 1 of a node are free"),
        ("cores=1", present(run("0-3")), "cores", "it needs 1, and 0 of 4 are free"),
        ("mem=600M", present(run("0", Shape(memory_mb_per_node=500))), "memory", "600 MB on one node, and at most 500 MB"),
        ("gpus=2", present(run("0", Shape(gpus_per_node=1))), "gpus", "GPUs: it needs 2 on one node, and at most 1"),
        ("cores=9", present(), "node", "a node that is large enough: it needs 1 nodes that have 9 units"),
        ("cores=1", present(nodes=()), "engine", "none is there"),
        ("cores=1", present(driven=False), "driver", "--resume"),
        ("cores=1", present(), "policy", "(easy): it fits (4 of 4 cores are free)"),
    ],
)
def test_what_is_lacking(request_: str, at: Present, what: str, words: str) -> None:
    found = waits(f"#PILOTHOUSE {request_}\ntrue\n", at)[0]
    assert found.wait.what == what
    assert words in found.wait.text


def test_one_that_fits_behind_one_that_does_not_waits_for_the_policy() -> None:
    found = waits("#PILOTHOUSE cores=4\ntrue\n\ntrue\ntrue\n", present(run("0-1")))
    assert found[0].wait.what == "cores"
    assert found[1].wait.what == found[2].wait.what == "policy"
    assert "task 0, which waits for cores, is before it" in found[2].wait.text
    assert [found[task].ahead for task in range(3)] == [0, 1, 2]


def test_those_that_may_start_next_take_the_free_cores() -> None:
    found = waits("true\n" * 6, present(run("0-1")))
    assert [found[task].wait.what for task in range(6)] == ["policy", "policy", *["cores"] * 4]


def test_barriers_and_dependencies() -> None:
    text = "#PILOTHOUSE name=a\nfirst\n\n#PILOTHOUSE after=a\nsecond\n\n#DISBATCH BARRIER\nthird\n"
    at = present(run("0"), held=[0])
    found = waits(text, at)
    assert set(found) == {1, 3}
    assert (found[1].wait.what, found[1].wait.text) == ("dependency", "a: task 0 runs")
    assert (found[3].wait.what, found[3].wait.text) == ("barrier", "the barrier of line 7: 2 tasks before it have not ended")
    assert found[1].since == 10.0
    at = present()
    at.progress.note(0, 1, "N", "succeeded", 50.0, 1, "a", "", 2)
    assert waits(text, at)[1].wait.what == "policy"
    assert waits(text, at)[1].since == 50.0
    at.progress.note(1, 1, "N", "succeeded", 60.0, 1, "", "", 5)
    at.progress.note(2, 1, "B", "succeeded", 61.0, 1, "", "", 7)
    assert (waits(text, at)[3].wait.what, waits(text, at)[3].since) == ("policy", 61.0)


def test_a_dependency_that_failed() -> None:
    at = present()
    at.progress.note(0, 1, "N", "failed", 50.0, 1, "a", "", 2)
    assert "did not succeed" in waits("#PILOTHOUSE name=a\nx\n\n#PILOTHOUSE after=a\ny\n", at)[1].wait.text


def test_a_task_that_is_tried_again_waits_since_its_last_end() -> None:
    at = present(run("0-3"))
    at.progress.note(0, 1, "N", "failed", 70.0, 0, "", "", 1)
    assert waits("x\n", at)[0].since == 70.0


def test_submitted_jobs() -> None:
    at = present(run("0-3"))
    at.submitted = [(7, Job("a", 1)), (8, Job("b", 1, after=("a",)))]
    found = waits("", at)
    assert found[7].wait.what == "cores"
    assert found[8].wait.text == "a: task 7 waits"


def test_lines_are_read_no_further_than_asked_and_dropped_once_ended() -> None:
    at = present(held=[0])
    source = iter(lines("a\nb\nc\n"))
    unfinished = UnfinishedLines(source, at.progress.done)
    first = next(waiting_tasks(unfinished, at, Plan().job_of))
    assert first.task_id == 1
    at.progress.note(0, *ENDED)
    at.progress.note(1, *ENDED)
    assert next(waiting_tasks(unfinished, at, Plan().job_of)).task_id == 2


def test_a_task_behind_others_of_its_bundle() -> None:
    held = HeldTask(5, 1, "j", "n1", "0", 0.0, before=2)
    assert held.wait is not None and held.wait.text == "its slot on n1: 2 tasks of its bundle are before it"
    assert HeldTask(5, 1, "j", "n1", "0", 0.0).wait is None
