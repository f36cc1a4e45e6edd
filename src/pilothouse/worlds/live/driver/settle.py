"""The flow of work to the decider, from the first engines to the end of the run. Sans-IO.

`begins` gives the decider its first picture. `settle` runs after each stimulus: it submits jobs while there is room for
them, records barriers, and finds out whether the run is over. `stop` ends a run before its work is done.
"""

from __future__ import annotations

from math import inf

from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState, Stimulus
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.assignments import kill_group, omit_line
from pilothouse.worlds.live.driver.engine_frames import ask_to_leave, send_delayed_leaves
from pilothouse.worlds.live.driver.state import DriverState
from pilothouse.worlds.live.driver.submissions import release_dependents
from pilothouse.worlds.live.driver.task_requests import withdraw
from pilothouse.worlds.live.driver.update import record

PARTING_S = 15.0
"""How long the driver waits for engines to say goodbye when all work is done. Those with commands of their own to run are
waited for as long as they are heard, unless the run was stopped."""
MOST_AHEAD = 50
"""Jobs that wait although no unit is free for them, where there are very many units."""


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
        _record_barriers(driver, now)
        for line in feeder.omitted():
            omit_line(driver, line, now)
    if driver.no_more and not driver.told_no_more and (feeder is None or feeder.nothing_more):
        driver.told_no_more = True
        driver.events.append(e.NoMoreJobs(now))
    if driver.options.retire_idle and driver.told_no_more and not driver.stopped_because:
        _retire_idle(driver, now)
    if driver.parting_until == inf and driver.nothing_to_do:
        driver.parting_until = now + PARTING_S
        for engine in list(driver.engines.present):
            ask_to_leave(driver, engine, "all work is done", now, at_once=bool(driver.stopped_because))
    if driver.parting_until != inf:
        # START and STOP commands take as long as they take.
        waits = driver.has_engine_commands and not driver.stopped_because
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


def stop(driver: DriverState, reason: str, now: float) -> None:
    """Tasks without a result may be resumed later."""
    if driver.stopped_because:
        return
    driver.stopped_because = reason
    driver.no_more = True
    if driver.backlog.feeder is not None:
        driver.backlog.feeder.stop()
    for group in list(driver.groups.values()):
        if group.state is JobState.WAITING:
            driver.events.append(e.JobWithdrawn(now, group.job.id))
            group.step(Stimulus.KILLED)
            del driver.groups[group.job.id]
            driver.waiting -= 1
        else:
            kill_group(driver, group, "killed")
    # Engines are told at once, not when all has ended: an impatient user may end the driver before.
    for engine in list(driver.engines.present):
        ask_to_leave(driver, engine, reason, now, at_once=True)
