"""Stops a run before its end: nothing more begins, and what runs is ended. Sans-IO."""

from __future__ import annotations

from pilothouse.model import events as e
from pilothouse.model.lifecycle import JobState, Stimulus
from pilothouse.worlds.live.driver.assignments import kill_group
from pilothouse.worlds.live.driver.engine_leaves import ask_to_leave
from pilothouse.worlds.live.driver.state import DriverState


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
