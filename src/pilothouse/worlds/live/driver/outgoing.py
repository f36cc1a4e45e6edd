"""The frames that the driver sends to engines, once the records are written. Sans-IO."""

from __future__ import annotations

from pilothouse.worlds.live.driver.state import DriverState
from pilothouse.worlds.live.wire.messages import VERSION, Dismiss, DriverFrame


def frames(driver: DriverState, now: float) -> list[DriverFrame]:
    """What is new, what must be repeated, and signs of life."""
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
