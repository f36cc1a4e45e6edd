"""Engines that are asked to leave, say goodbye, or are lost. Sans-IO."""

from __future__ import annotations

from math import inf

from pilothouse.model import events as e
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.assignments import kill_group
from pilothouse.worlds.live.driver.engines import EngineProxy, ProxyState, ProxyStimulus
from pilothouse.worlds.live.driver.results import close_assignment, lose_task
from pilothouse.worlds.live.driver.state import DriverState
from pilothouse.worlds.live.driver.task_groups import NODE_LOST
from pilothouse.worlds.live.driver.update import NOT_HEARD, record
from pilothouse.worlds.live.wire.messages import Leave


def ask_to_leave(driver: DriverState, engine: str, reason: str, now: float, *, at_once: bool = False) -> bool:
    """Soft shutdown: it finishes its tasks (`at_once`: ends them), then goes. False if there is no such engine."""
    proxy = driver.engines.present.get(engine)
    if proxy is None:
        return False
    _close(driver, proxy, reason, now)
    if proxy.state is not ProxyState.LEAVING or (at_once and not proxy.leaves_at_once):
        proxy.step(ProxyStimulus.ASKED_TO_LEAVE)
        proxy.leaves_at_once = at_once
        if proxy.welcomed:
            send_leave(driver, proxy)
    return True


def stop_context(driver: DriverState, context: str, reason: str, now: float) -> int:
    """Soft shutdown of all engines of a context; how many were asked."""
    members = [proxy.id for proxy in driver.engines.present.values() if proxy.joined.context == context]
    for engine in members:
        ask_to_leave(driver, engine, reason, now)
    return len(members)


def send_leave(driver: DriverState, proxy: EngineProxy) -> None:
    """An engine knows only of its own assignments. Jobs of other engines that have units here as well must end first."""
    held = any(driver.groups[job_id].units.mask & proxy.node.mask for job_id in driver.spanning)
    if held and not proxy.leaves_at_once:
        driver.leave_later[proxy.id] = None
    else:
        driver.leave_later.pop(proxy.id, None)
        proxy.channel.push(Leave(proxy.closed_for, proxy.leaves_at_once))
        driver.speak_to[proxy.id] = None


def send_delayed_leaves(driver: DriverState) -> None:
    for engine in list(driver.leave_later):
        proxy = driver.engines.present.get(engine)
        if proxy is None:
            del driver.leave_later[engine]
        elif proxy.welcomed:
            send_leave(driver, proxy)


def close_if_ending(driver: DriverState, proxy: EngineProxy, now: float) -> bool:
    """Gives an engine no more work if its allocation ends before a task would: after its walltime, or the time that tasks
    have taken so far.
    """
    if proxy.closed_for or proxy.ends_at == inf:
        return False
    task_s = driver.options.walltime
    if task_s == inf:
        mean_s = driver.backlog.pace.mean_s
        task_s = mean_s if mean_s != inf else 0.0
    ends = proxy.ends_at - now < task_s + driver.options.grace_s
    if ends:
        _close(driver, proxy, "its allocation ends", now)
    return ends


def _close(driver: DriverState, proxy: EngineProxy, reason: str, now: float) -> None:
    """No more work for this engine."""
    if proxy.closed_for == NOT_HEARD:
        proxy.closed_for = reason  # and it stays closed when it is heard
    elif not proxy.closed_for:
        proxy.closed_for = reason
        if driver.begun and driver.parting_until == inf:
            driver.events.append(e.UnitsUnavailable(now, proxy.units))


def engine_vanished(driver: DriverState, engine: str, reason: str, now: float) -> None:
    """Its context knows that its process has ended, and its warden has not reported."""
    proxy = driver.engines.present.get(engine)
    if proxy is not None:
        engine_lost(driver, proxy, reason, None, now)


def engine_lost(driver: DriverState, proxy: EngineProxy, reason: str, begun: set[int] | None, now: float) -> None:
    """It is gone; without a reason it said goodbye. Its tasks run again, or are reported as lost. `begun`: those that had
    been started (None: unknown).
    """
    for number in sorted(proxy.assignments):
        group = driver.assignments[number]
        for task in list(group.tasks.values()):
            if begun is None or task.task_id in begun:
                lose_task(driver, group, task, proxy, reason, now)
        close_assignment(driver, group, proxy, reason, now)
    for job_id in driver.spanning:
        if driver.groups[job_id].units.mask & proxy.node.mask:
            kill_group(driver, driver.groups[job_id], NODE_LOST)
    lost = bool(reason)
    record(driver, r.EngineLeft(proxy.id, driver.date(now), reason or "done", lost), now)
    if driver.begun and driver.parting_until == inf:
        # When all work is done engines leave, which is no news for a decider.
        driver.events.append(e.NodesLeft(now, (proxy.node.name,), proxy.units, may_return=lost))
    if proxy.state is ProxyState.LOST:
        driver.dismissals.append(proxy.id)
