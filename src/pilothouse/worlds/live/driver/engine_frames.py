"""Engines as the driver sees them: their frames, their silence, and how they leave or are lost. Sans-IO.

An engine says Hello and gets a Welcome with all it must know; later it sends Reports, and at last Bye. If it dies, its
warden reports for it. An engine that was given up and sends again is dismissed.
"""

from __future__ import annotations

from math import inf

from pilothouse.model import events as e
from pilothouse.model.numerals import whole_number
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.assignments import (
    close_assignment,
    kill_group,
    lose_task,
    send_assignment,
    take_report,
)
from pilothouse.worlds.live.driver.engines import EngineProxy, ProxyState, ProxyStimulus
from pilothouse.worlds.live.driver.state import LIMIT_NOTE, NOT_HEARD, DriverState, record
from pilothouse.worlds.live.driver.task_groups import NODE_LOST, task_of_line
from pilothouse.worlds.live.wire import messages as m
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


def engine_vanished(
    driver: DriverState, engine: str, reason: str, now: float,
    finished: list[m.Finished] | None = None, begun: set[int] | None = None,
) -> None:  # fmt: skip
    """Its process has ended, and its warden has not reported. `finished` and `begun`: what its spool says, if that could be
    read.
    """
    proxy = driver.engines.present.get(engine)
    if proxy is not None:
        take_report(driver, proxy, m.Report(finished or []), now)
        engine_lost(driver, proxy, reason, begun, now)


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
    for job_id in sorted(driver.spanning):
        if driver.groups[job_id].units.mask & proxy.node.mask:
            kill_group(driver, driver.groups[job_id], NODE_LOST)
    lost = bool(reason)
    record(driver, r.EngineLeft(proxy.id, driver.date(now), reason or "done", lost), now)
    if driver.begun and driver.parting_until == inf:
        # When all work is done engines leave, which is no news for a decider.
        driver.events.append(e.NodesLeft(now, (proxy.node.name,), proxy.units, may_return=lost))
    if proxy.state is ProxyState.LOST:
        driver.dismissals.append(proxy.id)


ACK_WITHIN_S = 0.5


def hear(driver: DriverState, frame: m.EngineFrame, now: float) -> None:
    """A frame of an engine, or of its warden."""
    proxy = driver.engines.present.get(frame.engine)
    if proxy is None:
        _hear_stranger(driver, frame, now)
        return
    proxy.heard_at = now
    driver.speak_to[proxy.id] = None
    if frame.session == 0:
        # It has not got our welcome, or we were restarted, or its warden reports for it.
        for body in frame.bodies:
            if type(body) is not m.Hello:
                _take(driver, proxy, body, now)
                if type(body) is m.Output:
                    driver.wardens_told[proxy.id] = driver.kept_output.get(proxy.joined.key, 0)
            elif not proxy.welcomed:
                _welcome_back(driver, proxy, body, now)
    elif frame.session != driver.session or not proxy.welcomed:
        proxy.speaks_at = now  # it must learn of this incarnation
    elif proxy.channel.take(frame.seq, frame.ack, now):
        proxy.speaks_at = min(proxy.speaks_at, now + ACK_WITHIN_S)
        for body in frame.bodies:
            _take(driver, proxy, body, now)


def _take(driver: DriverState, proxy: EngineProxy, body: m.FromEngine, now: float) -> None:
    if type(body) is m.Report:
        take_report(driver, proxy, body, now)
    elif type(body) is m.Output:
        proxy.speaks_at = now
        _take_output(driver, proxy.joined.key, body)
    elif type(body) is m.Bye:
        proxy.speaks_at = now
        reason, begun = (body.reason, set(body.begun)) if body.died else ("", set())
        engine_lost(driver, proxy, reason, begun, now)


def _take_output(driver: DriverState, key: str, output: m.Output) -> None:
    """Part of the pack of an engine that does not see the run's folder; some of it may be there already."""
    there = driver.kept_output.get(key, 0)
    data = output.data[there - output.at :] if 0 <= output.at <= there else b""
    if data and key and "/" not in key:
        driver.outputs.append((key, there, data))
        driver.kept_output[key] = there + len(data)


def _hear_stranger(driver: DriverState, frame: m.EngineFrame, now: float) -> None:
    hello = next((body for body in frame.bodies if type(body) is m.Hello), None)
    departed = driver.engines.departed.get(frame.engine)
    if departed is not None and departed.state is ProxyState.GONE and frame.session == driver.session:
        departed.speaks_at = now  # it has not got our acknowledgement
        driver.speak_to[frame.engine] = None
    elif hello is not None and hello.leased and hello.properties.get("key", "") not in driver.leases:
        driver.superseded.append(frame.engine)
    elif hello is None or departed is not None or driver.too_late:
        driver.dismissals.append(frame.engine)
    elif not driver.start_commands_known():
        driver.not_ready_for.append(frame.engine)  # it will say hello again
    else:
        _join(driver, frame.engine, hello, now)


def _join(driver: DriverState, engine: str, hello: m.Hello, now: float) -> None:
    held = 0
    for job_id in driver.spanning:
        held |= driver.groups[job_id].units.mask
    record(driver, driver.engines.describe(engine, hello, driver.date(now), held), now)
    proxy = driver.engines.present[engine]
    proxy.ends_at = hello.ends_at - driver.unix_offset
    _welcome(driver, proxy)
    if driver.begun:
        driver.events.append(e.NodesJoined(now, (proxy.node,)))
    close_if_ending(driver, proxy, now)
    announced, context = whole_number(hello.properties.get("task_limit", "")), proxy.joined.context
    if announced is not None and context not in driver.context_limits:
        record(driver, r.Note(f"{LIMIT_NOTE}{context}", str(announced).encode()), now)
    limit = driver.context_limits.get(context)
    if limit is not None and limit <= 0:
        ask_to_leave(driver, engine, "task limit of its context", now)


def _welcome_back(driver: DriverState, proxy: EngineProxy, hello: m.Hello, now: float) -> None:
    """Sends what an earlier driver, or this one before the engine was there, wanted of it; assignments come first."""
    proxy.step(ProxyStimulus.HEARD)
    proxy.ends_at = hello.ends_at - driver.unix_offset
    _welcome(driver, proxy)
    if proxy.closed_for == NOT_HEARD:
        proxy.closed_for = ""
        if driver.begun:
            driver.events.append(e.UnitsAvailable(now, proxy.units))
    for number in sorted(proxy.assignments.difference(hello.held)):
        send_assignment(driver, proxy, number, driver.assignments[number])
    for number in sorted(proxy.assignments):
        if reason := driver.assignments[number].kill_reason:
            proxy.channel.push(m.Kill((number,), reason))
    if proxy.state is ProxyState.LEAVING:
        send_leave(driver, proxy)
    if hello.leaving:
        ask_to_leave(driver, proxy.id, "it was leaving", now)


def _welcome(driver: DriverState, proxy: EngineProxy) -> None:
    options, feeder, joined = driver.options, driver.backlog.feeder, proxy.joined
    proxy.welcomed = True
    proxy.commands = len(feeder.engine_start) if feeder else 0
    rank = str(joined.rank)
    own = {"PILOTHOUSE_ENGINE": rank, "PILOTHOUSE_NODE": joined.node}
    if options.task_env:
        own["DISBATCH_ENGINE_RANK"] = rank
    proxy.channel.push(
        m.Welcome(
            rank=joined.rank,
            env={**options.env, **own},
            task_env=options.task_env,
            # Many engines send less often each, but always often enough not to be given up.
            heartbeat_s=min(max(options.heartbeat_s, len(driver.engines.present) / 500), options.lost_after_s / 4),
            wait_for_driver_s=options.wait_for_driver_s,
            grace_s=options.grace_s,
            linger_s=options.linger_s,
            kept=driver.kept_output.get(joined.key, 0),
            first_unit=joined.first_unit,
            assignments=tuple(sorted(proxy.assignments)),
            on_join=[task_of_line(line) for line in feeder.engine_start] if feeder else [],
            on_leave=[task_of_line(line) for line in feeder.engine_stop] if feeder else [],
        )
    )
    driver.speak_to[proxy.id] = None


def send_commands(driver: DriverState) -> None:
    """Per-engine commands that stand below tasks: every engine gets them before tasks that stand below them."""
    feeder = driver.backlog.feeder
    assert feeder is not None
    for proxy in driver.engines.present.values():
        if proxy.welcomed and proxy.commands < len(feeder.engine_start):
            proxy.commands = len(feeder.engine_start)
            proxy.channel.push(m.Commands([task_of_line(line) for line in feeder.engine_start]))
            driver.speak_to[proxy.id] = None


def frames(driver: DriverState, now: float) -> list[m.DriverFrame]:
    """The frames to send once the records are written: what is new, what must be repeated, and signs of life."""
    out: list[m.DriverFrame] = []
    session = driver.session
    for engine in driver.speak_to:
        proxy = driver.engines.present.get(engine) or driver.engines.departed[engine]
        received = proxy.channel.received
        news = proxy.channel.outgoing(now) if proxy.welcomed else []
        out.extend(m.DriverFrame(m.VERSION, engine, session, seq, received, bodies) for seq, bodies in news)
        if not news and proxy.speaks_at <= now:
            out.append(m.DriverFrame(m.VERSION, engine, session, 0, received, []))
        if news or proxy.speaks_at <= now:
            proxy.speaks_at = now + driver.options.heartbeat_s
    for engine in driver.dismissals:
        dismissal = m.Dismiss("not of this run any more", driver.too_late)
        out.append(m.DriverFrame(m.VERSION, engine, session, 0, 0, [dismissal]))
    for engine in driver.superseded:
        dismissal = m.Dismiss("another engine has its slots", over=True)
        out.append(m.DriverFrame(m.VERSION, engine, session, 0, 0, [dismissal]))
    driver.superseded.clear()
    for engine, size in driver.wardens_told.items():
        out.append(m.DriverFrame(m.VERSION, engine, session, 0, 0, [m.Kept(size)]))
    driver.wardens_told.clear()
    out.extend(m.DriverFrame(m.VERSION, engine, session, 0, 0, []) for engine in driver.not_ready_for)
    driver.dismissals.clear()
    driver.not_ready_for.clear()
    driver.speak_to.clear()
    return out


def tick(driver: DriverState, now: float) -> None:
    """Called about twice a second, and when a call is due."""
    options = driver.options
    for proxy in list(driver.engines.present.values()):
        patience = options.return_within_s if proxy.state is ProxyState.EXPECTED else options.lost_after_s
        if now - proxy.heard_at > patience:
            proxy.step(ProxyStimulus.SILENT)
            engine_lost(driver, proxy, "not heard for too long", None, now)
        elif not close_if_ending(driver, proxy, now) and proxy.welcomed and proxy.speaks_at <= now:
            driver.speak_to[proxy.id] = None
    driver.events.extend(driver.calls.due(now))
