"""Assignments: what one decision gives to one engine, how it is sent or ended early, and its results. Sans-IO."""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.core.node_index import gpus_taken
from pilothouse.formats.task_file import TaskLine
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import ENDS, FINAL, JobState, Stimulus
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.engines import EngineProxy
from pilothouse.worlds.live.driver.state import KILL_NOTE, DriverState, record
from pilothouse.worlds.live.driver.task_groups import CUT_S, NODE_LOST, TaskGroup, task_of_line, with_more_memory
from pilothouse.worlds.live.wire.messages import (
    CYLINDER_KILLED,
    FINISH,
    LOST_CODE,
    OUT_OF_MEMORY,
    Assignment,
    Finished,
    Kill,
    Report,
    Result,
    Start,
    Task,
)


def send_assignment(driver: DriverState, proxy: EngineProxy, number: int, group: TaskGroup) -> None:
    slots = tuple(IdSet(proxy.part(group.units)))
    environment = group.environment
    if group.job.walltime != environment.walltime:
        environment = msgspec.structs.replace(environment, walltime=group.job.walltime)
    if environment.keep > driver.output_room:
        environment = msgspec.structs.replace(environment, keep=max(1, driver.output_room))  # not 0: it is told
    assignment = Assignment(
        number, slots, list(group.tasks.values()), environment, group.gpus.get(proxy.id, ()),
        _nodes_of(driver, group.units) if group.job.id in driver.spanning or not group.from_file else "",
        CUT_S if group.size > 1 and proxy.joined.context not in driver.context_limits else inf,
    )  # fmt: skip
    proxy.channel.push(Start([assignment]))
    driver.speak_to[proxy.id] = None


def take_gpus(driver: DriverState, group: TaskGroup) -> None:
    """Chooses GPUs by name on each of a job's nodes: as many as the decider's Cluster counts."""
    shape = group.job.shape
    if shape is None or not (shape.gpus_per_node or shape.gpus_per_chunk):
        return
    for proxy in {owner.id: owner for unit in group.units if (owner := driver.engines.owner(unit))}.values():
        count = gpus_taken(shape, proxy.part(group.units).bit_count())
        group.gpus[proxy.id] = tuple(proxy.free_gpus[:count])
        del proxy.free_gpus[:count]


def _give_gpus_back(driver: DriverState, group: TaskGroup) -> None:
    for engine, names in group.gpus.items():
        if engine in driver.engines.present:
            driver.engines.present[engine].free_gpus.extend(names)
    group.gpus = {}


def _nodes_of(driver: DriverState, units: IdSet) -> str:
    """`name:count` for each node of the set, in order."""
    parts = []
    rest = units
    while rest:
        proxy = driver.engines.owner(rest.first())
        if proxy is None:  # it has left, and the job is about to be ended
            rest -= IdSet.of([rest.first()])
            continue
        parts.append(f"{proxy.node.name}:{len(rest & proxy.units)}")
        rest -= proxy.units
    return ",".join(parts)


def kill_group(driver: DriverState, group: TaskGroup, reason: str) -> None:
    """Tells its engine to end it."""
    group.kill_reason = group.kill_reason or reason
    _send_kill(driver, group, reason)


def cut_short(driver: DriverState, group: TaskGroup) -> None:
    """Tells its engine to give back what has not begun."""
    _send_kill(driver, group, FINISH)


def _send_kill(driver: DriverState, group: TaskGroup, reason: str) -> None:
    proxy = driver.engines.present.get(group.engine)
    if proxy is not None and proxy.welcomed:
        proxy.channel.push(Kill((group.assignment,), reason))
        driver.speak_to[proxy.id] = None


def kill_for_good(driver: DriverState, group: TaskGroup, now: float) -> None:
    """A user or the decider ends it. Recorded, as its engine may hear of it from the next driver only."""
    record(driver, r.Note(f"{KILL_NOTE}{group.job.id}", b"killed"), now)
    kill_group(driver, group, "killed")


_STATES = {"walltime": JobState.TIMED_OUT, "killed": JobState.KILLED, "dismissed": JobState.LOST}
"""The state of a task that was ended, by the reason that its engine gives."""


def take_report(driver: DriverState, proxy: EngineProxy, report: Report, now: float) -> None:
    for result in report.per_engine:
        _engine_command_ended(driver, proxy, result, now)
    for finished in report.finished:
        _take_finished(driver, proxy, finished, now)


def _take_finished(driver: DriverState, proxy: EngineProxy, finished: Finished, now: float) -> None:
    group = driver.assignments.get(finished.assignment)
    if group is None:
        return  # reported twice, or taken away from it meanwhile
    for result in finished.results:
        task = group.tasks.get(result.task_id)
        if task is not None and task.attempt == result.attempt:
            _task_result(driver, group, task, result, proxy, now)
    returned = tuple(task_id for task_id in finished.returned if task_id in group.tasks)
    if returned and group.from_file and not group.kill_reason:
        record(driver, r.Returned(finished.assignment, returned), now)
    if finished.closed:
        for task in list(group.tasks.values()) if finished.forgotten else ():
            lose_task(driver, group, task, proxy, "the record of its end was lost", now)
        close_assignment(driver, group, proxy, NODE_LOST, now)


def close_assignment(driver: DriverState, group: TaskGroup, proxy: EngineProxy, reason: str, now: float) -> None:
    """Its engine does not have it any more: what is left of it waits again, unless it was to be ended."""
    record(driver, r.Closed(group.assignment, driver.date(now)), now)
    _give_gpus_back(driver, group)
    if group.killed and driver.stopped_because:
        group.tasks.clear()
    elif group.killed:
        at = driver.date(now)
        for task in list(group.tasks.values()):
            result = Result(task.task_id, task.attempt, -15, -1, at, at, reason=group.kill_reason)
            _record_end(driver, _ended(task, result, JobState.KILLED, group, proxy), task, now)
    if group.tasks:
        requeue(driver, group, reason, now)
    else:
        _finish(driver, group, now)


def _task_result(
    driver: DriverState, group: TaskGroup, task: Task, result: Result, proxy: EngineProxy, now: float
) -> None:
    if result.reason in (NODE_LOST, CYLINDER_KILLED):
        lose_task(driver, group, task, proxy, result.reason, now)
        return
    if not result.reason:
        state = JobState.FAILED if result.return_code else JobState.SUCCEEDED
        driver.backlog.pace.note(result.ended_at - result.started_at)
    else:
        state = _STATES.get(result.reason, JobState.FAILED)
    may_retry = state in (JobState.FAILED, JobState.TIMED_OUT) and not driver.stopped_because and group.from_file
    larger = _with_more_memory(driver, group, task, result) if may_retry else None
    retries = driver.options.retries
    if task.request is not None and task.request.retries is not None:
        retries = task.request.retries
    retry = larger is not None or (may_retry and task.attempt - driver.losses.get(task.task_id, 0) <= retries)
    # A resumed run begins it again, unless it must not be begun twice.
    cut_off = state is JobState.KILLED and bool(driver.stopped_because) and not driver.options.at_most_once
    _record_end(driver, _ended(task, result, state, group, proxy, final=not retry and not cut_off), task, now)
    if retry or cut_off:
        del group.tasks[task.task_id]
        driver.running_tasks -= 1
        if retry:
            driver.backlog.give_back(msgspec.structs.replace(larger or task, attempt=task.attempt + 1))
    elif state is JobState.SUCCEEDED:
        proxy.done += 1
    else:
        proxy.failed += 1
        driver.task_failed |= driver.options.fail_fast


def _with_more_memory(driver: DriverState, group: TaskGroup, task: Task, result: Result) -> Task | None:
    """With --retry-mem: a task that was ended for its memory asks for more."""
    factor = driver.options.retry_memory
    if not factor or not result.reason.startswith(OUT_OF_MEMORY):
        return None
    largest_mb = max(proxy.joined.memory_mb for proxy in driver.engines.present.values())
    return with_more_memory(task, group.environment.memory_mb, factor, largest_mb)


def omit_line(driver: DriverState, line: TaskLine, now: float) -> None:
    """A task of the file that waits for one that did not succeed ends without having been a job."""
    end_task(driver, task_of_line(line), JobState.OMITTED, "a task that it waits for did not succeed", now)


def end_task(
    driver: DriverState, task: Task, state: JobState, reason: str, now: float, group: TaskGroup | None = None
) -> None:
    """A task that no engine has ends."""
    at = driver.date(now)
    result = Result(task.task_id, task.attempt, 1, -1, at, at, reason=reason)
    _record_end(driver, _ended(task, result, state, group, None), task, now)


def _record_end(driver: DriverState, ended: r.TaskEnded, task: Task, now: float) -> None:
    record(driver, ended, now)
    if ended.final and ended.line_number and ended.state is not JobState.SUCCEEDED:
        driver.remember_failed(task)


def lose_task(driver: DriverState, group: TaskGroup, task: Task, proxy: EngineProxy, reason: str, now: float) -> None:
    """A task that was begun, or may have been, on an engine that is gone."""
    options, stopping = driver.options, bool(driver.stopped_because)
    losses = driver.losses.get(task.task_id, 0) + 1
    again = options.reissue and not options.at_most_once and losses < options.most_losses
    again = again and (stopping or not group.killed)
    at = driver.date(now)
    result = Result(task.task_id, task.attempt, LOST_CODE, -1, at, at, reason=reason or "its engine left")
    state = JobState.KILLED if group.killed and not stopping else JobState.LOST
    _record_end(driver, _ended(task, result, state, group, proxy, final=not again), task, now)
    if again and stopping:
        del group.tasks[task.task_id]  # a resumed run begins it again
        driver.running_tasks -= 1
    elif again:
        group.tasks[task.task_id] = msgspec.structs.replace(task, attempt=task.attempt + 1)


def _engine_command_ended(driver: DriverState, proxy: EngineProxy, result: Result, now: float) -> None:
    feeder = driver.backlog.feeder
    if feeder is None:
        return
    stopping = result.task_id < 0
    lines = feeder.engine_stop if stopping else feeder.engine_start
    index = -1 - result.task_id if stopping else result.task_id
    state = JobState.FAILED if result.return_code else JobState.SUCCEEDED
    line = next((line for line in lines if line.task_id == index), None)
    if line is not None:
        record(driver, _ended(task_of_line(line), result, state, None, proxy, kind="P"), now)
        feeder.engine_command_ended(line, failed=state is JobState.FAILED)


def _ended(
    task: Task, result: Result, state: JobState, group: TaskGroup | None, proxy: EngineProxy | None,
    *, kind: str = "N", final: bool = True,
) -> r.TaskEnded:  # fmt: skip
    return r.TaskEnded(
        task.task_id, task.line_number, task.repeat_index, task.attempt, kind, state, result.return_code,
        proxy.joined.rank if proxy else -1, proxy.joined.node if proxy else "", result.pid, result.started_at,
        result.ended_at, result.out_bytes, result.out_snippet, result.err_bytes, result.err_snippet,
        task.line or b" ".join(task.argv), result.reason, final, group.job.id if group else "", result.cpu_s, result.memory_kb,
        task.request.name if task.request is not None else "", result.last_line, result.output, result.left_out,
    )  # fmt: skip


def requeue(driver: DriverState, group: TaskGroup, reason: str, now: float) -> None:
    """It waits for another decision; in a run that was stopped, its tasks are left for a resumed run."""
    if driver.stopped_because:
        group.worst, group.code = JobState.KILLED, -15
        _finish(driver, group, now)
        return
    group.step(Stimulus.REQUEUED)
    group.units, group.worst, group.code, group.kill_reason = IdSet(), JobState.SUCCEEDED, 0, ""
    driver.spanning.discard(group.job.id)
    driver.waiting += 1
    driver.events.append(e.JobRequeued(now, group.job.id, reason))


def _finish(driver: DriverState, group: TaskGroup, now: float) -> None:
    """All of its tasks have ended or were given back."""
    del driver.groups[group.job.id]
    driver.spanning.discard(group.job.id)
    group.step(ENDS[group.worst])
    driver.events.append(e.JobEnded(now, group.job.id, group.worst, group.code, group.units))
    if driver.kills:
        driver.events += driver.kills.ended(group.job.id, now)


def end_unstarted(driver: DriverState, group: TaskGroup, state: JobState, reason: str, now: float) -> None:
    """A job that no engine has ends: it was cancelled, refused or omitted."""
    for task in list(group.tasks.values()):
        end_task(driver, task, state, reason or state.value, now, group)
    if group.state not in FINAL:
        group.step(ENDS[state])
    if driver.groups.pop(group.job.id, None) is not None:
        driver.waiting -= 1
