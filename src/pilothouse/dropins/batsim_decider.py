"""A scheduler as the Batsim drop-ins ask it: its time is measured, and a deadlock is not told to it."""

from __future__ import annotations

from time import perf_counter

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Decider
from pilothouse.model.decisions import Reply, Wants
from pilothouse.model.errors import PeerError
from pilothouse.model.events import Batch, Begins, Ended


class MeasuredDecider:
    """`spent_s` is the time that the scheduler took for its answers, `close_problem` what went wrong at its end."""

    def __init__(self, decider: Decider, wants: Wants | None = None) -> None:
        """`wants`: what the options of the drop-in say in place of the scheduler."""
        self.name = decider.name
        self.traits = decider.traits
        self.spent_s = 0.0
        self._wants = wants
        self.close_problem: PeerError | None = None
        self._decider = decider
        self._decide = decider.decide

    def hello(self) -> Wants:
        wants = self._decider.hello()
        self.name = self._decider.name
        return wants if self._wants is None else self._wants

    def begin(self, begins: Begins, cluster: Cluster) -> None:
        self._decider.begin(begins, cluster)

    def decide(self, batch: Batch) -> Reply:
        last = batch.events[-1]
        if type(last) is Ended and last.reason:
            return Reply(batch.now, [])  # Batsim ends without a word when it can go nowhere.
        asked_at = perf_counter()
        reply = self._decide(batch)
        self.spent_s += perf_counter() - asked_at
        return reply

    def fileno(self) -> int:
        return self._decider.fileno()

    def close(self) -> None:
        try:
            self._decider.close()
        except PeerError as problem:
            self.close_problem = problem
