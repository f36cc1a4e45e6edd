"""Frames from engines and to them. Sans-IO.

An engine says Hello and gets a Welcome with all it must know; later it sends Reports, and at last Bye. If it dies, its
warden reports for it. An engine that was given up and sends again is dismissed.
"""

from __future__ import annotations

from pilothouse.model import events as e
from pilothouse.worlds.live.driver.assignments import send_assignment
from pilothouse.worlds.live.driver.engine_leaves import ask_to_leave, close_if_ending, engine_lost, send_leave
from pilothouse.worlds.live.driver.engines import EngineProxy, ProxyState, ProxyStimulus
from pilothouse.worlds.live.driver.results import take_report
from pilothouse.worlds.live.driver.state import DriverState
from pilothouse.worlds.live.driver.task_groups import task_of_line
from pilothouse.worlds.live.driver.update import NOT_HEARD, record
from pilothouse.worlds.live.wire.messages import (
    VERSION,
    Bye,
    Dismiss,
    DriverFrame,
    EngineFrame,
    FromEngine,
    Hello,
    Kill,
    Report,
    Welcome,
)

ACK_WITHIN_S = 0.5


def hear(driver: DriverState, frame: EngineFrame, now: float) -> None:
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
            if type(body) is not Hello:
                _take(driver, proxy, body, now)
            elif not proxy.welcomed:
                _welcome_back(driver, proxy, body, now)
    elif frame.session != driver.session or not proxy.welcomed:
        proxy.speaks_at = now  # it must learn of this incarnation
    elif proxy.channel.take(frame.seq, frame.ack, now):
        proxy.speaks_at = min(proxy.speaks_at, now + ACK_WITHIN_S)
        for body in frame.bodies:
            _take(driver, proxy, body, now)


def _take(driver: DriverState, proxy: EngineProxy, body: FromEngine, now: float) -> None:
    if type(body) is Report:
        take_report(driver, proxy, body, now)
    elif type(body) is Bye:
        proxy.speaks_at = now
        reason, begun = (body.reason, set(body.begun)) if body.died else ("", set())
        engine_lost(driver, proxy, reason, begun, now)


def _hear_stranger(driver: DriverState, frame: EngineFrame, now: float) -> None:
    hello = next((body for body in frame.bodies if type(body) is Hello), None)
    departed = driver.engines.departed.get(frame.engine)
    if departed is not None and departed.state is ProxyState.GONE and frame.session == driver.session:
        departed.speaks_at = now  # it has not got our acknowledgement
        driver.speak_to[frame.engine] = None
    elif hello is None or departed is not None or driver.too_late:
        driver.dismissals.append(frame.engine)
    elif not driver.start_commands_known():
        driver.not_ready_for.append(frame.engine)  # it will say hello again
    else:
        _join(driver, frame.engine, hello, now)


def _join(driver: DriverState, engine: str, hello: Hello, now: float) -> None:
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
    limit = hello.properties.get("task_limit", "")
    if limit.isdigit():
        driver.context_limits.setdefault(proxy.joined.context, int(limit))
    if driver.context_limits.get(proxy.joined.context, 1) <= 0:
        ask_to_leave(driver, engine, "task limit of its context", now)


def _welcome_back(driver: DriverState, proxy: EngineProxy, hello: Hello, now: float) -> None:
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
            proxy.channel.push(Kill((number,), reason))
    if proxy.state is ProxyState.LEAVING:
        send_leave(driver, proxy)
    if hello.leaving:
        ask_to_leave(driver, proxy.id, "it was leaving", now)


def _welcome(driver: DriverState, proxy: EngineProxy) -> None:
    options, feeder, joined = driver.options, driver.backlog.feeder, proxy.joined
    proxy.welcomed = True
    rank = str(joined.rank)
    own = {"PILOTHOUSE_ENGINE": rank, "PILOTHOUSE_NODE": joined.node, "DISBATCH_ENGINE_RANK": rank}
    proxy.channel.push(
        Welcome(
            rank=joined.rank,
            env={**options.env, **own},
            task_env=options.task_env,
            # Many engines send less often each, but always often enough not to be given up.
            heartbeat_s=min(max(options.heartbeat_s, len(driver.engines.present) / 500), options.lost_after_s / 4),
            wait_for_driver_s=options.wait_for_driver_s,
            grace_s=options.grace_s,
            first_unit=joined.first_unit,
            on_join=[task_of_line(line) for line in feeder.engine_start] if feeder else [],
            on_leave=[task_of_line(line) for line in feeder.engine_stop] if feeder else [],
        )
    )
    driver.speak_to[proxy.id] = None


def frames(driver: DriverState, now: float) -> list[DriverFrame]:
    """The frames to send once the records are written: what is new, what must be repeated, and signs of life."""
    out: list[DriverFrame] = []
    session = driver.session
    for engine in driver.speak_to:
        proxy = driver.engines.present.get(engine) or driver.engines.departed.get(engine)
        if proxy is None:
            continue
        received = proxy.channel.received
        news = proxy.channel.outgoing(now) if proxy.welcomed else []
        out.extend(DriverFrame(VERSION, engine, session, seq, received, bodies) for seq, bodies in news)
        if not news and proxy.speaks_at <= now:
            out.append(DriverFrame(VERSION, engine, session, 0, received, []))
        if news or proxy.speaks_at <= now:
            proxy.speaks_at = now + driver.options.heartbeat_s
    for engine in driver.dismissals:
        dismissal = Dismiss("not of this run any more", driver.too_late)
        out.append(DriverFrame(VERSION, engine, session, 0, 0, [dismissal]))
    out.extend(DriverFrame(VERSION, engine, session, 0, 0, []) for engine in driver.not_ready_for)
    driver.dismissals.clear()
    driver.not_ready_for.clear()
    driver.speak_to.clear()
    return out
