"""The task feeder: no task before its age, barriers passed once and in order, CHECK, skipping, streams that pause."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse.formats.task_file import LineKind, TaskLine, TaskReader, read_file
from pilothouse.worlds.live.feeder import TRANSITIONS, Feeder, Feeding, FeedingStimulus


def lines(text: str) -> Iterator[TaskLine]:
    return read_file(io.BytesIO(text.encode()), "tasks")


def commands(tasks: list[TaskLine]) -> list[str]:
    return [task.command for task in tasks]


def test_the_table_is_total_and_a_stop_is_for_good() -> None:
    assert set(TRANSITIONS) == set(product(Feeding, FeedingStimulus))
    stopped = Feeding.STOPPED
    assert all(TRANSITIONS[stopped, stimulus] is stopped for stimulus in FeedingStimulus)
    assert all(TRANSITIONS[state, FeedingStimulus.STOP] is stopped for state in Feeding)


def test_reads_no_further_than_asked() -> None:
    read = 0

    def counted() -> Iterator[TaskLine]:
        nonlocal read
        for line in lines("#DISBATCH REPEAT 1000000 x\n"):
            read += 1
            yield line

    feeder = Feeder(counted())
    assert len(feeder.take(5)) == 5
    assert read == 6


def test_nothing_passes_a_barrier_before_all_tasks_ended() -> None:
    feeder = Feeder(lines("a\nb\n#DISBATCH BARRIER k\nc\n"))
    assert commands(feeder.take(9)) == ["a", "b"]
    assert feeder.state is Feeding.AT_BARRIER
    feeder.ended(failed=True)
    assert feeder.take(9) == [] and feeder.passed() == []
    feeder.ended(failed=False)
    assert [barrier.key for barrier in feeder.passed()] == ["k"]
    assert feeder.age == 1
    (task,) = feeder.take(9)
    assert (task.command, task.age) == ("c", 1)
    assert feeder.state is Feeding.EXHAUSTED and not feeder.over
    feeder.ended(failed=False)
    assert feeder.over


def test_a_failed_check_ends_the_run() -> None:
    feeder = Feeder(lines("a\n#DISBATCH BARRIER CHECK\nb\n"))
    feeder.take(1)
    feeder.ended(failed=True)
    assert feeder.check_failed and feeder.over
    assert [barrier.kind for barrier in feeder.passed()] == [LineKind.CHECK]
    assert feeder.take(1) == []


def test_a_check_looks_back_to_the_last_barrier_only() -> None:
    feeder = Feeder(lines("a\n#DISBATCH BARRIER\nb\n#DISBATCH BARRIER CHECK\nc\n"))
    feeder.take(1)
    feeder.ended(failed=True)
    feeder.take(1)
    feeder.ended(failed=False)
    assert commands(feeder.take(1)) == ["c"]
    assert len(feeder.passed()) == 2


def test_per_engine_lists_are_known_at_once() -> None:
    feeder = Feeder(lines("#DISBATCH PERENGINE START s\n#DISBATCH PERENGINE STOP t\na\n"))
    assert feeder.engine_lists_complete
    assert (commands(feeder.engine_start), commands(feeder.engine_stop)) == (["s"], ["t"])
    assert feeder.age == 2


def test_an_empty_file_is_over_at_once() -> None:
    assert Feeder(lines("# nothing\n")).over


def test_known_tasks_are_skipped_and_their_failures_count() -> None:
    feeder = Feeder(lines("a\nb\n#DISBATCH BARRIER CHECK\nc\n"), known=lambda line: True if line.task_id < 2 else None)
    assert feeder.over and feeder.check_failed
    assert feeder.skipped == 2


def test_a_stream_that_pauses_is_not_over() -> None:
    items: list[TaskLine | None] = [None, *lines("#DISBATCH PERENGINE START s\na\n"), None]
    feeder = Feeder(iter(items))
    assert not feeder.engine_lists_complete
    assert commands(feeder.take(1)) == ["a"]
    assert feeder.state is Feeding.FEEDING
    feeder.ended(failed=False)
    assert feeder.over


@settings(deadline=None)
@given(st.lists(st.sampled_from("tbc"), max_size=30), st.integers(1, 5), st.randoms(use_true_random=False))
def test_ages_hold_in_every_interleaving(kinds: list[str], slots: int, rng: random.Random) -> None:
    words = {"t": "task", "b": "#DISBATCH BARRIER", "c": "#DISBATCH BARRIER CHECK"}
    text = "".join(words[kind] + "\n" for kind in kinds)
    feeder = Feeder(lines(text))
    running: list[TaskLine] = []
    ran: list[int] = []
    passed: list[int] = []
    while not feeder.over:
        for task in feeder.take(rng.randint(0, slots - len(running))):
            assert task.age == feeder.age
            assert all(other.age == task.age for other in running), "a barrier was crossed"
            running.append(task)
        if running and (rng.random() < 0.5 or len(running) == slots or feeder.state is not Feeding.FEEDING):
            ran.append(running.pop(rng.randrange(len(running))).task_id)
            feeder.ended(failed=False)
        passed += [barrier.task_id for barrier in feeder.passed()]
    passed += [barrier.task_id for barrier in feeder.passed()]
    assert sorted(ran) == [i for i, kind in enumerate(kinds) if kind == "t"]
    assert passed == [i for i, kind in enumerate(kinds) if kind != "t"]


def test_a_barrier_waits_for_per_engine_commands_with_ids() -> None:
    text = b"one\n#DISBATCH PERENGINE echo E\n#DISBATCH BARRIER\ntwo\n"
    feeder = Feeder(TaskReader("tasks", lenient=True, edition=2).read(text.splitlines()))
    assert feeder.engine_start == [] and commands(feeder.take(9)) == ["one"]
    (command,) = feeder.engine_start
    feeder.ended(failed=False, task_id=0)
    assert feeder.passed() == []
    feeder.engine_command_ended(command, failed=False)
    assert [line.task_id for line in feeder.passed()] == [2]
    assert commands(feeder.take(9)) == ["two"]
