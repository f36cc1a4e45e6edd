"""What the Slurm world makes of each decision: commands for Slurm, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pilothouse.core.decision_table import WHAT, nothing, table
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.slurm import commands
from pilothouse.worlds.slurm.steering import Steering
from pilothouse.worlds.slurm.tracked import Belief


class Decisions:
    """Carries decisions out. `notes`: why a job waits is written into its admin comment."""

    def __init__(self, steering: Steering, *, notes: bool = False) -> None:
        self.steering = steering
        self.stopped = False
        self._notes = notes
        self._now = 0.0

    def apply(self, now: float, decisions: list[d.Decision]) -> None:
        """What this world cannot do is dropped with a warning: other users' jobs wait."""
        self._now = now
        for decision in decisions:
            try:
                _DECISIONS[type(decision)](self, decision)
            except DecisionError as problem:
                self.steering.warn(str(problem))

    def _start(self, decision: d.StartJob) -> None:
        steering = self.steering
        tracked = steering.jobs.get(decision.job_id)
        if tracked is None or tracked.belief is not Belief.WAITING:
            # For the decider it started, so it is told that it ended.
            reason = "withdrawn before it could start"
            ended = e.JobEnded(self._now, decision.job_id, JobState.KILLED, 1, decision.units, reason)
            steering.events.insert(0, ended)
            return
        steering.order(self._now, tracked, decision.units)

    def _reject(self, decision: d.RejectJob) -> None:
        tracked = self.steering.jobs.get(decision.job_id)
        if tracked is not None and tracked.belief is Belief.WAITING:
            tracked.belief = Belief.REFUSED
            tracked.note = decision.reason or "the scheduler rejected it and gave no reason"
            self.steering.warn(f"job {tracked.id} was rejected and stays in the queue: {tracked.note}")
            self._write_note(decision.job_id, f"rejected: {tracked.note}")

    def _annotate(self, decision: d.Annotate) -> None:
        note = decision.notes.get("sched")
        reason = note.get("reason_pending") if isinstance(note, dict) else None
        if reason:
            self._write_note(decision.job_id, f"waits: {reason}")

    def _set_metadata(self, decision: d.SetMetadata) -> None:
        self._write_note(decision.job_id, decision.text)

    def _write_note(self, job_id: str, text: str) -> None:
        tracked = self.steering.jobs.get(job_id)
        if self._notes and tracked is not None and tracked.belief in (Belief.WAITING, Belief.REFUSED):
            self.steering.send(None, commands.set_note(job_id, self.steering.mark_of(tracked), text))

    def _kill(self, decision: d.KillJobs) -> None:
        alive = tuple(job_id for job_id in decision.job_ids if job_id in self.steering.jobs)
        self.steering.events += self.steering.kills.ask(decision, alive, self._now)
        if alive:
            self.steering.send(None, program=("scancel", *alive))

    def _ask_calls(self, decision: d.CallAt | d.CallEvery | d.StopCalls) -> None:
        self.steering.calls.ask(decision, self._now)

    def _stop_world(self, decision: d.StopWorld) -> None:
        self.stopped = True


_HANDLERS: dict[type, Callable[[Decisions, Any], None]] = {
    d.StartJob: Decisions._start,
    d.RejectJob: Decisions._reject,
    d.Annotate: Decisions._annotate,
    d.SetMetadata: Decisions._set_metadata,
    d.KillJobs: Decisions._kill,
    d.CallAt: Decisions._ask_calls,
    d.CallEvery: Decisions._ask_calls,
    d.StopCalls: Decisions._ask_calls,
    d.StopWorld: Decisions._stop_world,
    d.ConfirmWithdrawal: nothing,
}
_DECISIONS = table(_HANDLERS, "slurm")
CANNOT = frozenset(WHAT.keys() - _HANDLERS.keys())
