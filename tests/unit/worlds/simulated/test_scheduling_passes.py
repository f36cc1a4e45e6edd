"""Jobs start at scheduling passes; a job that is still to start can be killed."""

from __future__ import annotations

import pytest

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.policies.catalog import make
from pilothouse.worlds.simulated.scheduling_passes import SimulatedPasses

BEGINS = e.Begins(nodes=(Node("a", 0), Node("b", 1)))


def jobs() -> list[Job]:
    """Submission, width, run time."""
    wanted = [(0.0, 2, 2.5), (0.2, 1, 0.3), (0.4, 1, 1.0), (9.0, 2, 1.0)]
    return [Job(str(i), width, 60.0, at, Profile(str(i), Delay(run))) for i, (at, width, run) in enumerate(wanted)]


def test_jobs_start_at_passes() -> None:
    records: list[JobRecord] = []
    world = SimulatedPasses(BEGINS, jobs(), record=records.append, pass_every_s=0.5)
    Session(world, PolicyDecider(make("fcfs", {}))).run()
    assert [(one.job.id, one.started_at, one.ended_at) for one in records] == [
        ("0", 0.5, 3.0),
        # Ordered at 3.0, when the first one ended: there was a pass at that moment, which they missed.
        ("1", 3.5, pytest.approx(3.8)),
        ("2", 3.5, 4.5),
        ("3", 9.5, 10.5),
    ]


@pytest.mark.parametrize(
    ("decision", "state"),
    [
        (d.KillJobs(0.1, ("0",)), JobState.KILLED),
        (d.SetJobState(0.1, "0", JobState.FAILED), JobState.FAILED),
    ],
)
def test_a_job_that_is_still_to_start(decision: d.Decision, state: JobState) -> None:
    records: list[JobRecord] = []
    world = SimulatedPasses(BEGINS, jobs()[:1], record=records.append, pass_every_s=1.0)
    world.begin(d.Wants())
    world.advance()
    world.advance()
    world.apply(d.Reply(0.0, [d.StartJob(0.0, "0", IdSet.of([0, 1])), d.CallAt(0.0, 0.1)]))
    batch = world.advance()
    assert batch is not None and batch.now == 0.1
    world.apply(d.Reply(0.1, [decision]))
    while batch is not None:
        batch = world.advance()
    assert [(one.state, one.started_at, one.ended_at) for one in records] == [(state, 1.0, 1.0)]


def play(*replies: list[d.Decision], every: float = 1.0) -> tuple[list[JobRecord], list[tuple[float, str]]]:
    """One reply for each batch, then none. What became of the jobs, and what was heard when."""
    records: list[JobRecord] = []
    heard: list[tuple[float, str]] = []
    world = SimulatedPasses(BEGINS, jobs()[:3], record=records.append, pass_every_s=every)
    world.begin(d.Wants())
    left = list(replies)
    while (batch := world.advance()) is not None:
        heard += [(round(batch.now, 6), type(event).__name__) for event in batch.events]
        world.apply(d.Reply(batch.now, left.pop(0) if left else []))
    return records, heard


def start(at: float, name: str, *units: int) -> d.StartJob:
    return d.StartJob(at, name, IdSet.of(units))


def test_starts_wait_for_the_pass_wherever_they_stand_in_a_reply() -> None:
    """Batches: the beginning, and the submissions at 0, 0.2 and 0.4."""
    first: list[d.Decision] = [d.CallAt(0.0, 0.1, "c"), start(0.0, "0", 0), d.SetMetadata(0.0, "0", "m")]
    records, heard = play([], first, [], [], [d.Annotate(0.4, "1", {}), start(0.4, "1", 1)])
    assert [(one.job.id, one.started_at, one.metadata) for one in records] == [("1", 1.0, ""), ("0", 1.0, "m")]
    assert (0.1, "CallArrived") in heard


def test_a_start_that_is_dated_later_waits_for_the_pass_after_its_date() -> None:
    records, _ = play([], [start(1.7, "0", 0)], every=0.5)
    assert [(one.job.id, one.started_at) for one in records] == [("0", 2.0)]


def test_decisions_about_jobs_that_run_or_wait_for_no_start_take_effect_at_once() -> None:
    call: list[d.Decision] = [start(0.0, "0", 0), d.CallAt(0.0, 1.3, "c")]
    kill: list[d.Decision] = [d.KillJobs(1.3, ("0",)), d.SetJobState(1.3, "1", JobState.FAILED)]
    records, heard = play([], call, [], [], kill)
    ended = [(one.job.id, one.state, one.started_at, one.ended_at) for one in records]
    assert ended == [("0", JobState.KILLED, 1.0, 1.3), ("1", JobState.FAILED, 1.3, 1.3)]
    assert (1.3, "JobsKilled") in heard
