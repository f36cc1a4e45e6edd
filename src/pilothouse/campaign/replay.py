"""A run that is over, replayed otherwise: under another policy, on more nodes. Its jobs take as long as they did.

In: the Schedule of a simulation, or the RunStart of a live run with the time that each task took. Out: a Schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isnan

import msgspec

from pilothouse.campaign.forecast import simulate
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.model.errors import InputError
from pilothouse.model.events import Begins
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.policies.base import Policy
from pilothouse.views.schedule import Schedule
from pilothouse.worlds.live.task_feed import RunStart
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.world import SimulatedWorld


def replay_simulated(run: Schedule, policy: Policy, name: str, units: int) -> Schedule:
    """The jobs of a simulation that ran, on so many units. Jobs larger than that are an InputError."""
    jobs = []
    for row, job_id in enumerate(run.ids):
        seconds = run.ended[row] - run.started[row]
        if isnan(seconds):
            continue
        if run.requested[row] > units:
            raise InputError(run.path, f"job {job_id} is larger than {units} units")
        timed_out = run.states[row] is JobState.TIMED_OUT
        length = run.walltimes[row] if timed_out and run.walltimes[row] < inf else seconds
        profile = Profile(f"{length:g}s", Delay(length))
        jobs.append(Job(job_id, run.requested[row], run.walltimes[row], run.submitted[row], profile, runtime=seconds))
    records: list[JobRecord] = []
    begins = Begins(nodes=Platform.of_nodes(units, 1).nodes())
    Session(SimulatedWorld(begins, jobs, record=records.append), PolicyDecider(policy)).run()
    return _schedule(run.path, name, units, records)


def replay_live(path: str, start: RunStart, took: Mapping[int, float], policy: Policy, name: str) -> Schedule:
    """The tasks of a live run, each of which takes as long as it took (by its number)."""
    outcome = simulate(start, lambda task, age: took[task.task_id], policy)
    records = [
        JobRecord(msgspec.structs.replace(task.job, id=task.name), JobState.SUCCEEDED, task.started_at, task.ended_at, task.units)
        for task in outcome.times
    ]
    return _schedule(path, name, start.units, records)


def _schedule(path: str, name: str, units: int, records: list[JobRecord]) -> Schedule:
    schedule = Schedule(name=name, path=path, live=False, policy=name, units=units)
    schedule.take(records)
    return schedule
