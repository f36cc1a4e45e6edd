"""Jobs that are submitted while the run goes on, and cancelled. Sans-IO."""

from __future__ import annotations

import msgspec

from pilothouse.core.dependencies import Verdict
from pilothouse.model import events as e
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import JobState, Stimulus
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.assignments import end_unstarted, kill_for_good
from pilothouse.worlds.live.driver.state import DriverState
from pilothouse.worlds.live.driver.task_groups import environment_for, group_of_job, task_for
from pilothouse.worlds.live.driver.update import record, update

FIRST_SUBMITTED = 10**12
"""The first task id of submitted jobs where there is a task file: lower ones belong to its lines."""


def submit(driver: DriverState, job: Job, now: float) -> int:
    """Takes a job in and returns its task id. It waits for `job.after` here. One without a command is recorded by `bind`."""
    task_id = driver.next_task
    if driver.backlog.feeder is not None:
        task_id = max(task_id, FIRST_SUBMITTED)
    if job.command is not None:
        record(driver, _known(job, task_id), now)
    else:
        update(driver, r.JobKnown(job.id, task_id, b""), now)
    admit(driver, job, task_id, now)
    return task_id


def bind(driver: DriverState, job_id: str, command: Command, now: float) -> None:
    """Sets the command of a job that the decider knows and that has not started."""
    group = driver.groups.get(job_id)
    if group is None:
        return
    group.job.command = command
    ((task_id, task),) = group.tasks.items()
    group.tasks[task_id] = task_for(command, task_id, task.attempt)
    group.environment = environment_for(group.job, bind=driver.options.environment.bind)
    record(driver, _known(group.job, task_id), now)


def _known(job: Job, task_id: int) -> r.JobKnown:
    """The record, without what only simulations and forwarding protocols need of a job."""
    shape = job.shape
    if job.profile is not None or job.source is not None or (shape is not None and shape.constraint is not None):
        shape = None if shape is None else msgspec.structs.replace(shape, constraint=None)
        job = msgspec.structs.replace(job, profile=None, source=None, shape=shape)
    return r.JobKnown(job.id, task_id, msgspec.msgpack.encode(job))


def admit(driver: DriverState, job: Job, task_id: int, now: float) -> None:
    """Queues a job, holds it, or ends it at once if a job that it waits for did not succeed."""
    attempt = driver.backlog.attempts.get(task_id, 1)
    group = group_of_job(job, task_id, attempt, bind=driver.options.environment.bind)
    verdict = driver.dependencies.enter(job.id, group, job.after, driver.outcomes.get)
    if verdict is Verdict.NEVER:
        end_unstarted(driver, group, JobState.OMITTED, "a job that it waits for did not succeed", now)
    elif verdict is Verdict.WAITS:
        group.step(Stimulus.HELD)
    else:
        driver.backlog.add(group)


def release_dependents(driver: DriverState, now: float) -> None:
    """What the ends of submitted jobs mean for those that wait for them."""
    while driver.just_ended:
        job_id = driver.just_ended.pop()
        free, omitted = driver.dependencies.ended(job_id, succeeded=driver.outcomes[job_id])
        for group in free:
            driver.backlog.add(group)
        for group in omitted:
            end_unstarted(driver, group, JobState.OMITTED, f"job {job_id} did not succeed", now)


def cancel(driver: DriverState, job_id: str, now: float) -> bool:
    """Withdraws a job that waits, or ends one that runs; False if it is unknown or over."""
    group = driver.groups.get(job_id)
    if group is not None and group.state is not JobState.WAITING:
        kill_for_good(driver, group, now)
        return True
    if group is not None:
        driver.events.append(e.JobWithdrawn(now, job_id))
    else:
        group = driver.dependencies.remove(job_id) or driver.backlog.withdraw(job_id)
    if group is not None:
        end_unstarted(driver, group, JobState.KILLED, "cancelled", now)
    return group is not None
