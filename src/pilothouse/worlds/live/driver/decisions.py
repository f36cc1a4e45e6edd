"""Carries out the decisions of the decider. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pilothouse.core.decision_table import table
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.lifecycle import JobState, Stimulus
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.assignments import (
    end_unstarted,
    kill_for_good,
    requeue,
    send_assignment,
    take_gpus,
)
from pilothouse.worlds.live.driver.engine_frames import stop_context
from pilothouse.worlds.live.driver.engines import PRESENT
from pilothouse.worlds.live.driver.flow import stop
from pilothouse.worlds.live.driver.state import LIMIT_NOTE, DriverState, record


def apply(driver: DriverState, decision: d.Decision, now: float) -> None:
    """Raises DecisionError for what a live world cannot do."""
    _TABLE[type(decision)](driver, decision, now)


def _start(driver: DriverState, decision: d.StartJob, now: float) -> None:
    group = driver.groups.get(decision.job_id)
    if group is None:
        # Withdrawn in the very batch that let the decider start it: its units are free again.
        driver.events.append(e.JobEnded(now, decision.job_id, JobState.KILLED, -15, decision.units))
        return
    assert group.from_file or group.job.command is not None, f"job {decision.job_id} is started without a command"
    proxy, has_all = driver.engines.holder(decision.units)
    limit = None if proxy is None else driver.context_limits.get(proxy.joined.context)
    spent = limit is not None and limit <= 0
    group.units = decision.units
    group.step(Stimulus.ALLOCATED)
    driver.waiting -= 1
    if proxy is None or proxy.closed_for or proxy.state not in PRESENT or driver.stopped_because or spent:
        # Its engine left, or was asked to, before the decision was made.
        requeue(driver, group, "its node left before it started", now)
        return
    if limit is not None and group.from_file:
        # Of a bundle that is larger than what the context may still be given, the rest waits for others.
        for task_id in list(group.tasks)[limit:]:
            driver.backlog.give_back(group.tasks.pop(task_id))
    number, tasks = driver.next_assignment, list(group.tasks.values())
    units = proxy.text_of(decision.units) if has_all else str(decision.units)
    take_gpus(driver, group)
    memory_mb = 0 if group.job.shape is None else group.job.shape.memory_mb_per_node
    gpus = r.text_of_gpus(group.gpus) if group.gpus else ""
    came_at = driver.date(group.job.submitted_at) if group.from_file and group.job.submitted_at else 0.0
    given = r.Assigned(number, group.job.id, proxy.id, units, driver.date(now), tasks, gpus, memory_mb, came_at)
    record(driver, given, now)
    group.step(Stimulus.LAUNCHED)
    if not has_all:
        driver.spanning.add(group.job.id)
    send_assignment(driver, proxy, number, group)
    proxy.given += len(tasks)
    if limit is not None:
        # Specification, Driver: a context that was given its limit of tasks is shut down.
        context = proxy.joined.context
        record(driver, r.Note(f"{LIMIT_NOTE}{context}", str(limit - len(tasks)).encode()), now)
        if limit <= len(tasks):
            stop_context(driver, context, "task limit of its context", now)


def _reject(driver: DriverState, decision: d.RejectJob, now: float) -> None:
    group = driver.groups.get(decision.job_id)
    if group is not None:
        record(driver, r.Refused(decision.job_id, driver.date(now), decision.reason), now)
        state = JobState.OMITTED if decision.omitted else JobState.REFUSED
        end_unstarted(driver, group, state, decision.reason, now)


def _kill(driver: DriverState, decision: d.KillJobs, now: float) -> None:
    alive = [job_id for job_id in decision.job_ids if job_id in driver.groups]
    done = driver.kills.ask(decision, driver.groups, now)
    for job_id in alive:
        kill_for_good(driver, driver.groups[job_id], now)
    driver.events += done


def _call(driver: DriverState, decision: d.CallAt | d.CallEvery | d.StopCalls, now: float) -> None:
    driver.calls.ask(decision, now)


def _note_estimate(driver: DriverState, decision: d.AnswerEstimate, now: float) -> None:
    driver.estimates[decision.job_id] = decision.seconds


def _stop(driver: DriverState, decision: d.StopWorld, now: float) -> None:
    stop(driver, "the decider stopped the run", now)


def _ignore(driver: DriverState, decision: d.Decision, now: float) -> None:
    """Changes nothing in a live run."""


_IGNORED = (
    d.ConfirmWithdrawal, d.Annotate, d.SetMetadata, d.AnswerFeasibility, d.FinishRegistration,
    d.ResumeRegistration,
)  # fmt: skip
_HANDLERS: dict[type, Callable[[DriverState, Any, float], None]] = {
    d.StartJob: _start,
    d.RejectJob: _reject,
    d.KillJobs: _kill,
    d.CallAt: _call,
    d.CallEvery: _call,
    d.StopCalls: _call,
    d.StopWorld: _stop,
    d.AnswerEstimate: _note_estimate,
    **dict.fromkeys(_IGNORED, _ignore),
}
_TABLE = table(_HANDLERS, "live")
