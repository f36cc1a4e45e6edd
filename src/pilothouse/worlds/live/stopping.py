"""How long a run that was stopped may take to end, and how long a run may be idle while jobs wait. Sans-IO: it is shown the
driver's state, and says what to tell the user.
"""

from __future__ import annotations

from pilothouse.worlds.live.driver.state import DriverState
from pilothouse.worlds.live.records import NO_ENGINE

STOP_S = 20.0
"""How long a run that was stopped waits for its engines and for room on the disk, beside the grace of its tasks."""
SAY_EVERY_S = 5.0
STUCK_S = 60.0
"""After how long the user is told that jobs wait and nothing runs."""
DEADLOCK_S = 2.0
"""After how long a run in which nothing can happen any more is stopped."""


class Idleness:
    def __init__(self) -> None:
        self._since = 0.0

    def is_for_good(self, driver: DriverState, now: float) -> bool:
        """Whether jobs have waited for a while and nothing that the driver knows of will start them."""
        if driver.running_tasks or not driver.waiting or driver.stopped_because:
            self._since = now
        return now - self._since > DEADLOCK_S and driver.stuck

    def look(self, driver: DriverState, now: float) -> str:
        """What the user should know, now and then; otherwise ""."""
        if now - self._since <= STUCK_S:
            return ""
        self._since = now + 10 * STUCK_S
        why = "the decider starts none of them" if driver.engines.present else NO_ENGINE
        return f"{driver.waiting} jobs wait, nothing runs, and {why}"


class Stopping:
    def __init__(self, grace_s: float) -> None:
        self.abandoned = False
        """The run ends whatever its engines do."""
        self._limit_s = STOP_S + grace_s
        self._since = 0.0
        self._say_at = SAY_EVERY_S

    def look(self, driver: DriverState, now: float) -> str:
        """About twice a second. What the run waits for, now and then, and at last that it waits no longer; else ""."""
        if not driver.stopped_because or driver.finishing:
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
        return bool(driver.stopped_because) and not driver.finishing and now > self._since + self._limit_s
