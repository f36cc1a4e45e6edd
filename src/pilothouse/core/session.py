"""The Session: one world, one decider, and the request-reply loop between them. Nothing else happens here.

A turn: the world says what happened (a Batch), the decider answers what to do (a Reply), the world does it. A reply with
one illegal decision is not applied at all.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import WORLD_JUDGES, Decider, Judge, Turn, World
from pilothouse.core.translate import CheckedTurn
from pilothouse.model.events import Batch, Ended


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended. `waiting` names the jobs that will never start: a deadlock if there are any."""

    ended_at: float
    turns: int
    waiting: tuple[str, ...] = ()
    reason: str = ""

    @property
    def deadlocked(self) -> bool:
        return bool(self.waiting) or bool(self.reason)


class Session:
    """Joins one world to one decider. `run` once. `judge` replaces the Cluster as the judge of decisions. `around` makes the
    turn that is used of the decider's: it may add decisions of its own, such as notes for users."""

    def __init__(
        self,
        world: World,
        decider: Decider,
        *,
        name: str = "",
        judge: Judge | None = None,
        around: Callable[[Turn, Cluster], Turn] | None = None,
    ) -> None:
        self.world = world
        self.decider = decider
        self.name = name
        self.cluster: Cluster
        self._judge = judge
        self._around = around

    def run(self, each_turn: Callable[[Batch], None] | None = None) -> Outcome:
        """Runs to the end. World and decider are closed in any case."""
        try:
            return self._run(each_turn)
        finally:
            self.world.close()
            self.decider.close()

    def _run(self, each_turn: Callable[[Batch], None] | None) -> Outcome:
        decider = self.decider
        wants = decider.hello()
        begins = self.world.begin(wants)
        self.cluster = cluster = Cluster(begins, self.name or decider.name, wants)
        decider.begin(begins, cluster)
        traits = decider.traits
        if traits.speaks_unasked:
            self.world.watch(decider.fileno())
        as_it_is = traits.decides_on_cluster or self._judge is WORLD_JUDGES
        decide: Turn = decider.decide if as_it_is else CheckedTurn(decider, cluster, self._judge or cluster)
        if self._around is not None:
            decide = self._around(decide, cluster)
        advance, apply, turns = self.world.advance, self.world.apply, 0
        batch = last = None
        while (batch := advance()) is not None:
            turns += 1
            apply(decide(batch))
            if each_turn is not None:
                each_turn(batch)
            last = batch
        if last is None or not last.events or type(last.events[-1]) is not Ended:
            return Outcome(begins.started_at if last is None else last.now, turns)
        end = last.events[-1]
        return Outcome(last.now, turns, end.waiting, end.reason)
