"""Time has passed: engines that are silent, allocations that end, calls that are due. Sans-IO."""

from __future__ import annotations

from pilothouse.worlds.live.driver.engine_leaves import close_if_ending, engine_lost
from pilothouse.worlds.live.driver.engines import ProxyState, ProxyStimulus
from pilothouse.worlds.live.driver.state import DriverState


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
