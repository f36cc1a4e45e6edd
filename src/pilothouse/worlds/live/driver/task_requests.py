"""What users ask while a run goes on: cancel a task, run one that did not succeed once more, ask the scheduler about one, end the
run. Sans-IO.

A task of a bundle that runs cannot be ended alone; as a bundle gives back what it has not begun within a second (CUT_S), a
task that was cancelled is looked at again with every tick until it has ended.
"""

from __future__ import annotations

import msgspec

from pilothouse.model import events as e
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.assignments import end_task, end_unstarted, kill_for_good
from pilothouse.worlds.live.driver.flow import CANCELLED, cancel, finish, stop, withdraw
from pilothouse.worlds.live.driver.state import CANCEL_NOTE, DriverState, record
from pilothouse.worlds.live.driver.task_groups import TaskGroup


class Refusal(Exception):
    """Why a request is not obeyed."""


def cancel_task(driver: DriverState, task_id: int, now: float) -> str:
    """Ends a task, or sees to it that it is never begun. What happens, in words. Raises Refusal."""
    if task_id in driver.done:
        raise Refusal(f"task {task_id} has ended")
    if driver.too_late:
        raise Refusal("the run ends")
    submitted = next((job_id for job_id, (number, _) in driver.known_jobs.items() if number == task_id), None)
    if submitted is not None:
        cancel(driver, submitted, now)
        return f"job {submitted} is ended"
    feeder = driver.backlog.feeder
    in_hand = driver.backlog.came_back(task_id) or any(task_id in group.tasks for group in driver.groups.values())
    if feeder is None or task_id < 0 or (feeder.nothing_more and not in_hand):
        raise Refusal(f"there is no task {task_id}")
    record(driver, r.Note(f"{CANCEL_NOTE}{task_id}", b""), now)
    look_at_cancelled(driver, now)
    if task_id in driver.done:
        return f"task {task_id} will not be run"
    return f"task {task_id} is ended, or not begun when its turn comes"


def end_run(driver: DriverState, how: str, reason: str, now: float) -> str:
    """Begins nothing more and lets tasks that run end (`finish`), or ends them. What happens, in words. Raises Refusal."""
    if driver.over or (driver.stopped_because and (how == "finish" or not driver.finishing)):
        raise Refusal("the run ends")
    count = len(driver.assignments)  # of each, one task runs
    number = f"{count:,} task{'s' * (count != 1)}"
    if how == "finish":
        finish(driver, reason, now)
        return f"nothing more is begun; {number} still run{'s' * (count == 1)}"
    stop(driver, reason, now)
    return f"nothing more is begun; {number} {'is' if count == 1 else 'are'} ended"


def look_at_cancelled(driver: DriverState, now: float) -> None:
    """Ends the cancelled tasks that can be ended now."""
    cancelled = driver.backlog.cancelled
    if not cancelled:
        return
    for group in list(driver.groups.values()):
        if group.from_file and not cancelled.isdisjoint(group.tasks):
            _end_cancelled(driver, group, now)
    withdraw(driver, now)


def _end_cancelled(driver: DriverState, group: TaskGroup, now: float) -> None:
    rest = set(group.tasks) - driver.backlog.cancelled
    if group.state is JobState.WAITING:
        for task_id in set(group.tasks) - rest:
            end_task(driver, group.tasks[task_id], JobState.KILLED, CANCELLED, now, group)
        if not rest:
            driver.events.append(e.JobWithdrawn(now, group.job.id))
            end_unstarted(driver, group, JobState.KILLED, CANCELLED, now)
    elif not rest and not group.killed:
        kill_for_good(driver, group, now)


def retry_task(driver: DriverState, task_id: int, now: float) -> str:
    """Queues a task that did not succeed once more. What happens, in words. Raises Refusal."""
    if task_id not in driver.done.failed:
        raise Refusal(f"task {task_id} has not failed")
    if driver.too_late:
        raise Refusal("the run ends: afterwards, pilothouse run --resume DIR --retry-failed")
    task = driver.failed_tasks.pop(task_id, None)
    feeder = driver.backlog.feeder
    if task is None or feeder is None:
        raise Refusal(f"task {task_id} is not a line of the task file, or too many have failed since")
    record(driver, r.Reopened(task_id, driver.date(now)), now)
    feeder.reopened(task_id, "" if task.request is None else task.request.name)
    attempt = driver.backlog.attempts[task_id]
    driver.backlog.give_back(msgspec.structs.replace(task, attempt=attempt))
    return f"task {task_id} waits for attempt {attempt}"


def ask_about(driver: DriverState, task_id: int, now: float) -> str:
    """Asks the decider how long a task will wait; returns the id of its job in driver.estimates. Raises Refusal."""
    group = next((group for group in driver.groups.values() if task_id in group.tasks), None)
    if group is None:
        raise Refusal(f"the scheduler does not know task {task_id}: it has ended, or its turn has not come")
    if group.state is not JobState.WAITING:
        raise Refusal(f"task {task_id} does not wait")
    driver.estimates.pop(group.job.id, None)
    driver.events.append(e.EstimateAsked(now, group.job))
    return group.job.id
