"""The flow of work to the decider, from the first engines to the end of the run. Sans-IO.

`begins` gives the decider its first picture. Jobs may be submitted and cancelled while the run goes on. `settle` runs
after each stimulus: it shows jobs to the decider while there is room for them, records barriers, and finds out whether the
run is over. `finish` and `stop` end a run before its work is done.
"""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.core.dependencies import Verdict
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import JobState, Stimulus
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.assignments import (
    cut_short,
    end_task,
    end_unstarted,
    kill_for_good,
    kill_group,
    omit_line,
)
from pilothouse.worlds.live.driver.engine_frames import ask_to_leave, send_commands, send_delayed_leaves
from pilothouse.worlds.live.driver.state import DriverState, record, update
from pilothouse.worlds.live.driver.task_groups import environment_for, group_of_job, task_for

PARTING_S = 15.0
"""How long the driver waits for engines to say goodbye when all work is done. Those with commands of their own to run are
waited for as long as they are heard, unless the run was stopped."""
MOST_AHEAD = 50
"""Jobs that wait although no unit is free for them, where there are very many units."""
FIRST_SUBMITTED = 10**12
"""The first task id of submitted jobs where there is a task file: lower ones belong to its lines."""
CANCELLED = "cancelled"


def begins(driver: DriverState, now: float) -> e.Begins:
    """The decider's first picture; from now on changes are events."""
    driver.begun = True
    driver.events.clear()
    engines = driver.engines.present.values()
    present = sum(proxy.node.mask for proxy in engines)
    running = tuple(
        # A job that spans nodes may have lost some of them already: the decider never knew those.
        e.Running(group.job, IdSet(group.units.mask & present), now)
        for group in driver.groups.values()
        if group.state is not JobState.WAITING
    )
    begins = e.Begins(
        tuple(proxy.node for proxy in engines), time_waits=False, started_at=now, running=running,
        unavailable=IdSet(sum(proxy.units.mask for proxy in engines if proxy.closed_for)), config={"world": "live"},
    )  # fmt: skip
    driver.events.append(e.Began(now, begins))
    # Jobs whose engine was found gone before the decider was there.
    waiting = [group.job for group in driver.groups.values() if group.state is JobState.WAITING]
    driver.events.extend(e.JobSubmitted(now, job) for job in waiting)
    return begins


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
        end_unstarted(driver, group, JobState.KILLED, CANCELLED, now)
    return group is not None


def settle(driver: DriverState, now: float) -> None:
    if not driver.begun:
        return
    if driver.task_failed and not driver.stopped_because:
        stop(driver, "a task failed", now)
    release_dependents(driver, now)
    if driver.leave_later:
        send_delayed_leaves(driver)
    if not driver.stopped_because and driver.engines.present:
        _submit_work(driver, now)
    feeder = driver.backlog.feeder
    if feeder is not None:
        if feeder.engine_start:
            send_commands(driver)
        _record_barriers(driver, now)
        for line in feeder.omitted():
            omit_line(driver, line, now)
    if driver.no_more and not driver.told_no_more and (feeder is None or feeder.nothing_more):
        driver.told_no_more = True
        driver.events.append(e.NoMoreJobs(now))
    if driver.options.retire_idle and driver.told_no_more and not driver.stopped_because:
        _retire_idle(driver, now)
    ends_tasks = bool(driver.stopped_because) and not driver.finishing
    if driver.parting_until == inf and driver.nothing_to_do:
        driver.parting_until = now + PARTING_S
        for engine in list(driver.engines.present):
            ask_to_leave(driver, engine, "all work is done", now, at_once=ends_tasks)
    if driver.parting_until != inf:
        # START and STOP commands take as long as they take.
        waits = driver.has_engine_commands and not ends_tasks
        driver.over = driver.over or not driver.engines.present or (now > driver.parting_until and not waits)


def _retire_idle(driver: DriverState, now: float) -> None:
    """Engines that have finished leave while others still work: no task will come for them. Their contexts give their nodes
    back.
    """
    if driver.waiting or not driver.assignments or driver.backlog.waiting_here or driver.dependencies.held:
        return
    spanned = 0
    for job_id in driver.spanning:
        spanned |= driver.groups[job_id].units.mask
    idle = [
        proxy.id
        for proxy in driver.engines.present.values()
        if proxy.welcomed and not (proxy.closed_for or proxy.assignments or proxy.node.mask & spanned)
    ]
    for engine in idle:
        ask_to_leave(driver, engine, "no more tasks", now)


def _submit_work(driver: DriverState, now: float) -> None:
    window = driver.options.window or enough(driver.engines.units, len(driver.assignments) * driver.options.units)
    if driver.waiting < window:
        for group in driver.backlog.groups(window - driver.waiting, driver.engines.units, now):
            group.step(Stimulus.QUEUED)
            driver.groups[group.job.id] = group
            driver.waiting += 1
            driver.events.append(e.JobSubmitted(now, group.job))
        if driver.backlog.withdrawn:
            withdraw(driver, now)


def withdraw(driver: DriverState, now: float) -> None:
    """Records the ends of cancelled tasks that the decider never knew."""
    for task in driver.backlog.withdraw_cancelled():
        end_task(driver, task, JobState.KILLED, CANCELLED, now)
        driver.backlog.ended(task.task_id, failed=True)


def enough(units: int, busy: int) -> int:
    """How many jobs should wait: one for every free unit, and some more, so that a decider has a choice. More would only
    lie in memory for long before their turn.
    """
    return max(8, min(units + units // 2, max(0, units - busy) + MOST_AHEAD))


def _record_barriers(driver: DriverState, now: float) -> None:
    assert driver.backlog.feeder is not None
    for line in driver.backlog.feeder.passed():
        if line.task_id not in driver.done:
            record(driver, r.barrier_passed(line, driver.date(now)), now)


def finish(driver: DriverState, reason: str, now: float) -> None:
    """Begins nothing more; tasks that run may end. The others may be resumed later."""
    if driver.stopped_because:
        return
    _begin_no_more(driver, reason, now)
    driver.finishing = True
    for group in driver.groups.values():
        cut_short(driver, group)


def _begin_no_more(driver: DriverState, reason: str, now: float) -> None:
    driver.stopped_because = driver.stopped_because or reason
    driver.no_more = True
    if driver.backlog.feeder is not None:
        driver.backlog.feeder.stop()
    for group in [group for group in driver.groups.values() if group.state is JobState.WAITING]:
        driver.events.append(e.JobWithdrawn(now, group.job.id))
        group.step(Stimulus.KILLED)
        del driver.groups[group.job.id]
        driver.waiting -= 1


def stop(driver: DriverState, reason: str, now: float) -> None:
    """Ends tasks that run. Those without a result may be resumed later."""
    if driver.stopped_because and not driver.finishing:
        return
    _begin_no_more(driver, reason, now)
    driver.finishing = False
    for group in list(driver.groups.values()):
        kill_group(driver, group, "killed")
    # Engines are told at once, not when all has ended: an impatient user may end the driver before.
    for engine in list(driver.engines.present):
        ask_to_leave(driver, engine, reason, now, at_once=True)
