"""How long a run that was stopped may take to end. Sans-IO: it is shown the driver's state, and says what to tell the user."""

from __future__ import annotations

from pilothouse.worlds.live.driver.state import DriverState

STOP_S = 20.0
"""How long a run that was stopped waits for its engines and for room on the disk, beside the grace of its tasks."""
SAY_EVERY_S = 5.0


class Stopping:
    def __init__(self, grace_s: float) -> None:
        self.abandoned = False
        """The run ends whatever its engines do."""
        self._limit_s = STOP_S + grace_s
        self._since = 0.0
        self._say_at = SAY_EVERY_S

    def look(self, driver: DriverState, now: float) -> str:
        """About twice a second. What the run waits for, now and then, and at last that it waits no longer; else ""."""
        if not driver.stopped_because:
            self._since = now
            return ""
        waited_s = now - self._since
        engines = ", ".join(sorted(proxy.node.name for proxy in driver.engines.present.values())[:5])
        waits_for = f"{driver.running_tasks} tasks and {len(driver.engines.present)} engines ({engines})"
        if self.is_too_late(driver, now):
            self.abandoned = True
            return f"gave up waiting for {waits_for} after {waited_s:.0f} s"
        if waited_s < self._say_at:
            return ""
        self._say_at += SAY_EVERY_S
        return f"stopping ({driver.stopped_because}): waiting for {waits_for}"

    def is_too_late(self, driver: DriverState, now: float) -> bool:
        """Whether the run was stopped longer ago than it may take to end."""
        return bool(driver.stopped_because) and now > self._since + self._limit_s
