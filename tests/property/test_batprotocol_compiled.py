"""The frequent messages of batprotocol in C: the bytes and the decisions that the Python codec gives, whatever comes."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.protocols.batprotocol import binary
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.decisions import FILL, DecisionReader
from pilothouse.protocols.batprotocol.events import FINAL, EventWriter
from pilothouse.protocols.batprotocol.wire import Malformed

compiled = pytest.importorskip("pilothouse.protocols.batprotocol._codec", reason="not compiled here")

KINDS = (e.JobSubmitted, e.JobEnded, e.NoMoreJobs, FINAL)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
dates = st.floats(0, 1e12)
jobs = st.builds(
    Job,
    names,
    st.integers(0, 2**32 - 1),
    st.one_of(st.just(inf), st.floats(1e-6, 1e9)),
    dates,
    st.one_of(st.none(), st.builds(Profile, names, st.just(Delay(1.0)))),
    st.integers(0, 5),
    extra_data=st.one_of(st.none(), names),
)
ended = st.builds(
    e.JobEnded, dates, names, st.sampled_from(sorted(FINAL, key=str)), st.integers(-(2**31), 2**31), st.just(IdSet())
)
told_events = st.one_of(st.builds(e.JobSubmitted, dates, jobs), ended, st.builds(e.NoMoreJobs, dates))


@given(dates, st.lists(told_events, min_size=1, max_size=5))
def test_events_are_the_same_bytes(now: float, told: list[e.Event]) -> None:
    writer = EventWriter(d.Wants())
    message = m.Message(now, [m.EventAndTimestamp(event.at, writer.write(event)) for event in told])
    profiles: dict[str, Profile] = {}
    assert compiled.encode(now, told, KINDS, profiles) == binary.encode(message)
    assert profiles == writer.profiles


@pytest.mark.parametrize(
    "event",
    [
        e.CallArrived(1.0, "c"),
        e.JobSubmitted(1.0, Job("j", 1, shape=Shape(nodes=2))),
        e.JobSubmitted(1.0, Job("j\ud800", 1)),
        e.JobSubmitted(1.0, Job("j", 2**32)),
        e.JobEnded(1.0, "j", JobState.RUNNING, 0, IdSet()),
    ],
)
def test_other_events_are_left_to_python(event: e.Event) -> None:
    assert compiled.encode(1.0, [e.NoMoreJobs(0.0), event], KINDS, {}) is None
    assert compiled.encode(1.0, [], KINDS, {}) is None


ranges = st.lists(
    st.one_of(
        st.integers(0, 8191).map(str),
        st.tuples(st.integers(0, 8000), st.integers(0, 190)).map(lambda pair: f"{pair[0]}-{pair[0] + pair[1]}"),
    ),
    max_size=6,
).map(" ".join)
odd_sets = st.one_of(ranges, st.text("0123456789- ,x", max_size=12), st.sampled_from(["8192", "[0-3]", "5-3", "1-"]))
placements = st.one_of(
    st.builds(
        m.PredefinedExecutorPlacementStrategyWrapper, st.sampled_from(list(m.PredefinedExecutorPlacementStrategy))
    ),
    st.builds(m.CustomExecutorToHostMapping, st.lists(st.integers(0, 9), max_size=3)),
)


overrides = st.one_of(st.none(), st.lists(st.builds(m.ProfileAllocationPlacement, names, ranges, placements), max_size=1))
storage = st.one_of(st.none(), st.lists(st.builds(m.StorageHost, names, st.integers(0, 9)), max_size=1))


def execute(sets: st.SearchStrategy[str]) -> st.SearchStrategy[m.ExecuteJobEvent]:
    return st.builds(m.ExecuteJobEvent, names, st.builds(m.AllocationPlacement, sets, placements), overrides, storage)


def replies(sets: st.SearchStrategy[str]) -> st.SearchStrategy[m.Message]:
    kinds = st.one_of(
        execute(sets), st.builds(m.RejectJobEvent, names), st.builds(m.KillJobsEvent, st.lists(names, min_size=1))
    )
    events = st.lists(st.builds(m.EventAndTimestamp, st.floats(0, 10), kinds), max_size=4)
    return st.builds(m.Message, st.floats(0, 10), events)


def plainly(data: bytes) -> tuple[float, list[tuple[object, ...]]] | None:
    """What the Python codec reads, as the compiled one says it; None: something is wrong with it."""
    try:
        message = binary.decode(data)
        last, found, reader = 0.0, [], DecisionReader()
        for item in message.events or ():
            if not last <= item.timestamp <= message.now:
                return None
            last = item.timestamp
            decision = reader.read(item.event, item.timestamp)
            if type(decision) is d.StartJob:
                assert decision.placement is not None
                found.append((decision.at, decision.job_id, decision.units.mask, decision.placement is FILL))
            else:
                assert type(decision) is d.RejectJob
                found.append((decision.at, decision.job_id))
    except Malformed:
        return None
    return message.now, found


@given(replies(ranges))
def test_decisions_are_the_same(message: m.Message) -> None:
    events = sorted(message.events or [], key=lambda item: item.timestamp)
    data = binary.encode(m.Message(max([message.now, *(item.timestamp for item in events)]), events))
    frequent = all(
        type(item.event) is m.RejectJobEvent
        or (
            type(item.event) is m.ExecuteJobEvent
            and type(item.event.allocation.executor_placement) is m.PredefinedExecutorPlacementStrategyWrapper
            and not item.event.profile_allocation_override
            and not item.event.storage_placement
        )
        for item in events
    )
    assert compiled.decode(data) == (plainly(data) if frequent else None)


@settings(max_examples=300)
@given(replies(odd_sets), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3), st.integers(0, 8))
@example(m.Message(0.0, []), [(48, 5)], 0)
def test_whatever_it_accepts_python_accepts_too(message: m.Message, wrong: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(binary.encode(message))
    for place, value in wrong:
        data[place % len(data)] = value
    broken = bytes(data[: len(data) - cut])
    found = compiled.decode(broken)
    if found is not None:
        assert repr(found) == repr(plainly(broken))


def test_wrong_use_is_refused() -> None:
    for arguments in ((1.0, [], KINDS), (1.0, (), KINDS, {}), ("x", [], KINDS, {}), (1.0, [], KINDS[:3], {})):
        with pytest.raises(TypeError):
            compiled.encode(*arguments)
    with pytest.raises(TypeError):
        compiled.decode("text")
    with pytest.raises(ValueError, match="no function"):
        compiled.take_decisions(0, b"")
