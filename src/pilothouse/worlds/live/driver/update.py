"""What each record changes in the driver's state. Sans-IO.

`update` runs for what happens now (`record`) and, after a restart, for what the journal holds (restore.py): both lead to
the same state.
"""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.engines import ProxyState, ProxyStimulus
from pilothouse.worlds.live.driver.state import DriverState
from pilothouse.worlds.live.requests import ANSWER_NOTE, Answer

NOT_HEARD = "not heard since the restart"
LIMIT_NOTE = "limit of "
KILL_NOTE = "end of "
CANCEL_NOTE = "cancelled task "
"""Names of notes: how many more tasks a context may be given, jobs that are to be ended, tasks that users have cancelled."""


def record(driver: DriverState, entry: r.Record, now: float) -> None:
    """Something happens: it is written down before anything that depends on it is sent."""
    driver.records.append(entry)
    update(driver, entry, now)


def update(driver: DriverState, entry: r.Record, now: float, *, restoring: bool = False) -> None:
    match entry:
        case r.TaskEnded():
            _task_ended(driver, entry, restoring=restoring)
        case r.Assigned(id=number, job_id=job_id, engine=engine):
            driver.next_assignment = max(driver.next_assignment, number + 1)
            if restoring:
                driver.restored[number] = entry
            else:
                group = driver.groups[job_id]
                group.assignment, group.engine = number, engine
                driver.assignments[number] = group
                driver.engines.present[engine].assignments.add(number)
                driver.running_tasks += len(group.tasks)
        case r.Closed(id=number):
            driver.restored.pop(number, None)
            closed = driver.assignments.pop(number, None)
            if closed is not None:
                driver.running_tasks -= len(closed.tasks)
                driver.engines.present[closed.engine].assignments.discard(number)
                closed.assignment, closed.engine = 0, ""
        case r.Returned(id=number, tasks=returned):
            if restoring:
                kept = [task for task in driver.restored[number].tasks if task.task_id not in returned]
                driver.restored[number] = msgspec.structs.replace(driver.restored[number], tasks=kept)
            else:
                for task_id in returned:
                    driver.backlog.give_back(driver.assignments[number].tasks.pop(task_id))
                driver.running_tasks -= len(returned)
        case r.EngineJoined():
            state = ProxyState.EXPECTED if restoring else ProxyState.JOINED
            proxy = driver.engines.enter(entry, state, now, inf)
            if restoring:
                proxy.closed_for = NOT_HEARD
        case r.EngineLeft(engine=engine, lost=lost):
            if lost and not restoring:
                driver.lost_engines.append(driver.engines.present[engine].joined)
            stimulus = ProxyStimulus.SILENT if lost else ProxyStimulus.SAID_GOODBYE
            driver.engines.remove(driver.engines.present[engine], stimulus)
        case r.JobKnown(job_id=job_id, task_id=task_id, data=data):
            driver.next_task = max(driver.next_task, task_id + 1)
            driver.known_jobs[job_id] = (task_id, data if restoring else b"")
        case r.Note(name=name, value=value) if name.startswith(LIMIT_NOTE):
            driver.context_limits[name.removeprefix(LIMIT_NOTE)] = int(value)
        case r.Note(name=name, value=value) if name.startswith(KILL_NOTE) and restoring:
            driver.restored_kills[name.removeprefix(KILL_NOTE)] = value.decode()
        case r.Note(name=name) if name.startswith(CANCEL_NOTE):
            driver.backlog.cancelled.add(int(name.removeprefix(CANCEL_NOTE)))
        case r.Note(name=name, value=value) if name.startswith(ANSWER_NOTE):
            driver.answered = max(driver.answered, msgspec.json.decode(value, type=Answer).number)
        case r.Reopened(task_id=task_id):
            ended_as, attempt = driver.done.reopen(task_id)
            driver.counts[ended_as] -= 1
            driver.backlog.attempts[task_id] = attempt + 1
        case _:
            pass


def _task_ended(driver: DriverState, ended: r.TaskEnded, *, restoring: bool) -> None:
    if ended.output:
        driver.output_room -= ended.out_bytes + ended.err_bytes - ended.left_out
    if ended.kind == "P":
        return
    group = driver.groups.get(ended.job_id)
    succeeded = ended.state is JobState.SUCCEEDED
    if group is not None and not succeeded:
        group.worst, group.code = ended.state, ended.return_code
    if not ended.final:
        driver.backlog.attempts[ended.task_id] = ended.attempt + 1
        if ended.state is JobState.LOST:
            driver.losses[ended.task_id] = driver.losses.get(ended.task_id, 0) + 1
        return
    driver.done.add(ended.task_id, ended.state, ended.attempt)
    driver.backlog.cancelled.discard(ended.task_id)
    driver.backlog.attempts.pop(ended.task_id, None)
    driver.losses.pop(ended.task_id, None)
    if ended.kind != "N":
        return
    driver.counts[ended.state] += 1
    if group is not None and group.tasks.pop(ended.task_id, None) is not None and group.assignment:
        driver.running_tasks -= 1
    if not ended.line_number:  # a submitted job, which the journal may not know if it was never bound
        driver.known_jobs.pop(ended.job_id, None)
        driver.outcomes[ended.job_id] = succeeded
        driver.just_ended.append(ended.job_id)
        driver.next_task = max(driver.next_task, ended.task_id + 1)
    elif not restoring and ended.job_id:  # else it was omitted before it became a job
        driver.backlog.ended(ended.task_id, failed=not succeeded)
