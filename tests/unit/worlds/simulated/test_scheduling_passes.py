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
