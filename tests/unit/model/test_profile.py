"""What is wrong with the amounts of a profile, which profiles are the same, and which parts one has."""

from __future__ import annotations

from math import inf, nan

import msgspec
import pytest

from pilothouse.model.profile import (
    Delay,
    ForkJoin,
    HomogeneousTask,
    Merge,
    ParallelTask,
    Profile,
    ReceiveMessage,
    SendMessage,
    Sequence,
    Spec,
    StagingTask,
    StorageTask,
    TraceKind,
    TraceReplay,
    is_same,
    parts_of,
    problem_of,
)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (Delay(0.5), ""),
        (Delay(0.0), "a delay of 0 s: it must be above 0"),
        (Delay(-1.0), "a delay of -1 s: it must be above 0"),
        (Delay(inf), "a delay of inf s: it must be above 0"),
        (Delay(nan), "a delay of nan s: it must be above 0"),
        (ParallelTask((), ()), ""),
        (ParallelTask((1.0, 0.0), ()), ""),
        (ParallelTask((1.0, 2.0), (0.0,) * 4), ""),
        (ParallelTask((), (1.0,) * 9), ""),
        (ParallelTask((1.0, 2.0), (0.0,) * 3), "a matrix of 3 amounts for 2 executors: 4 are needed"),
        (ParallelTask((1.0,), (0.0,) * 4), "a matrix of 4 amounts for 1 executors: 1 are needed"),
        (ParallelTask((), (0.0,) * 8), "a matrix of 8 amounts for 2 executors: 4 are needed"),
        (ParallelTask((1.0, -1.0), ()), "-1 flop: amounts must be 0 or more"),
        (ParallelTask((), (-1.0,)), "-1 bytes: amounts must be 0 or more"),
        (HomogeneousTask(0.0, 0.0), ""),
        (HomogeneousTask(-1.0, 0.0), "-1 flop: amounts must be 0 or more"),
        (HomogeneousTask(0.0, inf), "inf bytes: amounts must be 0 or more"),
        (HomogeneousTask(nan, 0.0), "nan flop: amounts must be 0 or more"),
        (StorageTask(0.0, 0.0), ""),
        (StorageTask(-1.0, 0.0), "-1 bytes: amounts must be 0 or more"),
        (StorageTask(0.0, -1.0), "-1 bytes: amounts must be 0 or more"),
        (StagingTask(0.0, "a", "b"), ""),
        (StagingTask(-2.0, "a", "b"), "-2 bytes: amounts must be 0 or more"),
        (Sequence(("a",), 0), ""),
        (Sequence(("a",), 1), ""),
        (Sequence(("a",), -1), "-1 repetitions: there must be 0 or more"),
        (ForkJoin(("a",)), ""),
        (TraceReplay(TraceKind.SMPI, "/f"), ""),
        (SendMessage(msgspec.Raw(b"1")), ""),
    ],
)
def test_what_is_wrong_with_the_amounts(spec: Spec, problem: str) -> None:
    assert problem_of(spec) == problem


def test_profiles_are_the_same_if_what_they_say_is() -> None:
    plain = Profile("a", Delay(1.0), 0, "x")
    assert is_same(plain, Profile("b", Delay(1.0), 0, "x"))
    for other in (Profile("a", Delay(2.0), 0, "x"), Profile("a", Delay(1.0), 1, "x"), Profile("a", Delay(1.0), 0, "y")):
        assert not is_same(plain, other)
    written = [
        Profile("a", Delay(float(number)), source=msgspec.Raw(text))
        for number, text in enumerate((b'{"type": "delay", "delay": 1}', b'{"delay":1,"type":"delay"}', b'{"delay": 2}'))
    ]
    assert is_same(written[0], written[1]) and not is_same(written[0], written[2]), "the texts count where both have one"
    assert is_same(written[1], Profile("a", Delay(1.0))) and is_same(Profile("a", Delay(2.0)), written[2])
    assert not is_same(written[0], Profile("a", Delay(1.0))) and not is_same(Profile("a", Delay(1.0)), written[0])


def test_the_parts_of_a_profile() -> None:
    for kind in (Sequence, ForkJoin, Merge):
        assert parts_of(kind(("a", "b", "a"))) == ("a", "b", "a")
    assert parts_of(ReceiveMessage(on_match="a", on_other="b", on_timeout="c")) == ("a", "b", "c")
    assert parts_of(ReceiveMessage(on_other="b")) == ("b",)
    assert parts_of(Delay(1.0)) == parts_of(ReceiveMessage()) == ()
