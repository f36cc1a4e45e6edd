"""Tasks that wait for others by name."""

from __future__ import annotations

from pilothouse.formats.task_file import TaskLine, TaskReader
from pilothouse.worlds.live.feeder import Feeder, Feeding


def feeder(text: str, known: dict[int, bool] | None = None) -> Feeder:
    lines: list[TaskLine | None] = [*TaskReader("tasks").read(text.encode().splitlines(keepends=True))]
    return Feeder(iter(lines), lambda line: (known or {}).get(line.task_id))


def taken(feed: Feeder, most: int = 10) -> list[str]:
    """Everything that may run now."""
    found: list[str] = []
    while lines := feed.take(most):
        found += [line.command for line in lines]
    return found


WORK = "#PILOTHOUSE name=a\na1\na2\n#PILOTHOUSE after=a name=b\nb\n#PILOTHOUSE after=b,a\nc\n\nd\n"


def test_a_task_waits_for_all_of_a_name_and_those_behind_it_go_on() -> None:
    feed = feeder(WORK)
    assert taken(feed) == ["a1", "a2", "d"]
    assert feed.state is Feeding.EXHAUSTED and not feed.nothing_more
    feed.ended(failed=False, task_id=0)
    assert taken(feed) == []
    feed.ended(failed=False, task_id=1)
    assert taken(feed) == ["b"]
    feed.ended(failed=False, task_id=2)
    assert taken(feed) == ["c"] and feed.nothing_more and not feed.over
    feed.ended(failed=False, task_id=3)
    feed.ended(failed=False, task_id=4)
    assert feed.over


def test_a_failure_omits_all_that_wait_for_it_in_turn() -> None:
    feed = feeder(WORK)
    taken(feed)
    feed.ended(failed=True, task_id=0)
    assert [line.command for line in feed.omitted()] == ["b", "c"]
    assert taken(feed) == [] and feed.nothing_more and not feed.omitted()


def test_names_of_an_earlier_life_count() -> None:
    feed = feeder(WORK, {0: False, 1: False})
    assert taken(feed) == ["b", "d"]
    feed = feeder(WORK, {0: False, 1: True})
    assert taken(feed) == ["d"] and [line.command for line in feed.omitted()] == ["b", "c"]


def test_a_barrier_waits_for_held_tasks() -> None:
    feed = feeder("#PILOTHOUSE name=a\na\n#PILOTHOUSE after=a\nb\n\n#DISBATCH BARRIER\nc\n")
    assert taken(feed) == ["a"]
    feed.ended(failed=False, task_id=0)
    assert not feed.passed() and taken(feed) == ["b"]
    feed.ended(failed=False, task_id=1)
    assert len(feed.passed()) == 1 and taken(feed) == ["c"]
    feed = feeder("#PILOTHOUSE name=a\na\n#PILOTHOUSE after=a\nb\n\n#DISBATCH BARRIER CHECK\nc\n")
    taken(feed)
    feed.ended(failed=True, task_id=0)
    assert feed.check_failed


def test_what_is_taken_together_asks_for_the_same() -> None:
    feed = feeder("a\nb\n#PILOTHOUSE cores=2\nc\nd\n#PILOTHOUSE walltime=9\ne\nf\n")
    assert [len(feed.take(10)) for _ in range(5)] == [2, 2, 1, 1, 0]
