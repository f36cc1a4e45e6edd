"""The engines of a run's contexts: they are started, and others take the place of those that were lost.

A slot belongs to one engine at a time. The driver holds a list of leases (keys of engines): one engine for each part of a
context. An engine gets the lease of another only when that one has ended, as far as can be known; one that comes back
without its lease is sent away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pilothouse.worlds.live.contexts import Context, Departure, Launch
from pilothouse.worlds.live.driver.state import DriverState
from pilothouse.worlds.live.engine_files import DeadEngines

if TYPE_CHECKING:
    from pilothouse.worlds.live.contexts.programs import ProgramContext


class EngineSupply:
    def __init__(
        self, driver: DriverState, contexts: list[Context], dead: DeadEngines, launch: Callable[[], Launch],
        warn: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.contexts = contexts
        self.gone_for_good = 0
        """Engines that ended and were not replaced."""
        self.given_up = 0
        """Those of them that had failed too often."""
        self._state = driver
        self._dead = dead
        self._launch = launch
        self._warn = warn
        self._not_ended: list[tuple[Context, Departure]] = []
        """Programs that have ended while something that they started may still run."""

    @property
    def expected(self) -> int:
        """Engines that the contexts have started."""
        return sum(context.engines for context in self.contexts)

    def start(self, context: Context) -> None:
        context.start(self._launch())
        self._note_leases()

    def adopt(self, context: ProgramContext, engines: dict[str, str]) -> None:
        """Engines (key -> host) that an earlier driver started for this context."""
        self.contexts.append(context)
        context.adopt(engines)
        self._note_leases()

    def look(self, now: float) -> None:
        """Replaces engines that have ended."""
        self._dead.report_silent(self._state, now)
        departures = [*self._not_ended, *((context, gone) for context in self.contexts for gone in context.ended())]
        self._not_ended = []
        for context, departure in departures:
            self._departed(context, departure, now)
        self._replace_lost()
        self._note_leases()

    def close(self, wait: Callable[[], bool] | None) -> None:
        """The run is over: returns when no process of an engine is left on this host. `wait`: see Context.close."""
        for context in self.contexts:
            context.close(self._state.engines.keys_seen, wait)
        while wait is not None and self._dead.some_live() and wait():
            pass

    def _departed(self, context: Context, departure: Departure, now: float) -> None:
        driver = self._state
        engine = driver.engines.by_key(departure.key)
        why = f"its program ended with code {departure.code}"
        if engine is not None and not departure.engine_ended:
            code = departure.code
            self._warn(f"{departure.context}: the program that started {engine} ended with code {code}; it goes on")
            return
        # Its warden would have reported first: it is gone as well.
        if engine is not None and not self._dead.report(driver, driver.engines.present[engine], why, now):
            self._not_ended.append((context, departure))
            return
        if not departure.code or driver.over or driver.stopped_because:
            self.gone_for_good += 1
            return
        again = context.again(departure.key, self._launch(), had_joined=departure.key in driver.engines.keys_seen)
        then = "starting another" if again else "giving up"
        where = f"{departure.context}: {departure.place}" if departure.place else departure.context
        self._warn(f"{where}: an engine was lost ({departure.text or why}); {then}")
        self.given_up += not again
        self.gone_for_good += not again

    def _replace_lost(self) -> None:
        """Engines of an earlier driver. Those that this one started are replaced when their program ends."""
        driver = self._state
        lost, driver.lost_engines = driver.lost_engines, []
        for joined in lost if not driver.over and not driver.stopped_because else ():
            if self._dead.may_run(joined):
                driver.lost_engines.append(joined)
                continue
            for context in self.contexts:
                if context.name == joined.context and context.again(joined.key, self._launch(), had_joined=True):
                    self._warn(f"{context.name}: the engine on {joined.node} was lost; starting another")

    def _note_leases(self) -> None:
        self._state.leases = {key for context in self.contexts for key in context.keys}
