"""The simulated world of a resource manager that starts jobs in scheduling passes, one every so many seconds.

Slurm makes a pass every second: a job that a scheduler orders to start holds its units at once, and runs from the next pass
on. `pilothouse simulate --control-latency 1s` says so to a simulation.
"""

from __future__ import annotations

from typing import Any

from pilothouse.core.calls import next_multiple
from pilothouse.model import decisions as d
from pilothouse.worlds.simulated.world import SimulatedWorld


class SimulatedPasses(SimulatedWorld):
    """Jobs start at the first multiple of `pass_every_s` after the decision. All other decisions take effect at once, but
    for those about a job that is still to start."""

    def __init__(self, *arguments: Any, pass_every_s: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._pass_every_s = pass_every_s
        self._ordered: set[str] = set()
        """The jobs that the decider has started."""

    def apply(self, reply: d.Reply) -> None:
        for decision in reply.decisions:
            if isinstance(decision, d.StartJob):
                self._ordered.add(decision.job_id)
            elif not self._is_about_a_start(decision):
                continue
            decision.at = next_multiple(max(decision.at, reply.now), self._pass_every_s)
        super().apply(reply)

    def _is_about_a_start(self, decision: d.Decision) -> bool:
        if isinstance(decision, d.KillJobs):
            names = decision.job_ids
        elif isinstance(decision, d.SetJobState):
            names = (decision.job_id,)
        else:
            return False
        return any(name in self._ordered and name in self._waiting for name in names)
