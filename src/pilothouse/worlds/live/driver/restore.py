"""A restarted driver: from the records of a journal to the state that they describe. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterable

from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import Stimulus
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.assignments import kill_group
from pilothouse.worlds.live.driver.engines import PRESENT
from pilothouse.worlds.live.driver.flow import admit, release_dependents
from pilothouse.worlds.live.driver.state import DriverState, update
from pilothouse.worlds.live.driver.task_groups import NODE_LOST, TaskGroup, environment_for


def restore(driver: DriverState, records: Iterable[r.Record], now: float) -> None:
    """Engines that had not left are expected back, with what they had."""
    for entry in records:
        update(driver, entry, now, restoring=True)
    for assigned in driver.restored.values():
        _reopen(driver, assigned)
    driver.restored.clear()
    release_dependents(driver, now)
    for task_id, data in list(driver.known_jobs.values()):
        job = r.job_from(data)
        if job.id not in driver.groups:
            admit(driver, job, task_id, now)


def _reopen(driver: DriverState, assigned: r.Assigned) -> None:
    """An assignment that an engine may still have."""
    attempts, proxy = driver.backlog.attempts, driver.engines.present[assigned.engine]
    tasks = {
        task.task_id: task
        for task in assigned.tasks
        if task.task_id not in driver.done and attempts.get(task.task_id, 1) <= task.attempt
    }
    known = driver.known_jobs.get(assigned.job_id)
    if known is not None:
        job = r.job_from(known[1])
        group = TaskGroup(job, tasks, environment_for(job, bind=driver.options.environment.bind), from_file=False)
    else:
        group = driver.backlog.named_group(assigned.job_id, tasks)
        driver.backlog.held.update(tasks)
        driver.backlog.taken(assigned.job_id)
    group.units = IdSet.parse(assigned.units)
    for stimulus in (Stimulus.QUEUED, Stimulus.ALLOCATED, Stimulus.LAUNCHED):
        group.step(stimulus)
    group.assignment, group.engine = assigned.id, proxy.id
    group.gpus = {engine: names for engine, names in r.gpus_of_text(assigned.gpus).items() if engine in driver.engines.present}
    for engine, names in group.gpus.items():
        owner_gpus = driver.engines.present[engine].free_gpus
        owner_gpus[:] = [name for name in owner_gpus if name not in names]
    if group.units.mask & ~proxy.node.mask:
        driver.spanning.add(assigned.job_id)
        owners = [driver.engines.owner(unit) for unit in group.units]
        if any(owner is None or owner.state not in PRESENT for owner in owners):
            kill_group(driver, group, NODE_LOST)
    group.kill_reason = driver.restored_kills.get(assigned.job_id, group.kill_reason)
    driver.groups[assigned.job_id] = group
    driver.assignments[assigned.id] = group
    proxy.assignments.add(assigned.id)
    driver.running_tasks += len(tasks)
