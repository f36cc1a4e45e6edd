"""Starts that cannot take effect yet, and what the decider hears of their ends.

In: starts of jobs whose units are away or do not suit them, withdrawals and kills of these jobs. Out: the decisions that the
world gets instead, and events for the decider. A held job never started: if it ends, the world is told that it is rejected,
and the decider that it was killed.
"""

from __future__ import annotations

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState

CALL = "pilothouse: translation"
"""The id of calls that are asked for here and not by the decider."""
KILLED_CODE = -1


class HeldStarts(dict[str, d.StartJob]):
    """Job id -> its start, in the order of the decisions."""

    def __init__(self) -> None:
        super().__init__()
        self.later: list[e.Event] = []
        """Events for the next batch."""

    def take_later(self) -> list[e.Event]:
        later, self.later = self.later, []
        return later

    def tell_soon(self, at: float, *events: e.Event) -> d.Decision:
        """Keeps events for the next batch, and returns the call that makes it come at once."""
        self.later += events
        return d.CallAt(at, at, CALL)

    def end(self, at: float, job_id: str) -> e.JobEnded | None:
        """Takes a held start out; returns the end that the decider is told, if there was one."""
        held = self.pop(job_id, None)
        return None if held is None else killed(at, job_id, held.units)

    def kill(self, decision: d.KillJobs, reason: str) -> list[d.Decision]:
        """Held jobs are rejected for this reason, and told as killed. The others are killed."""
        made: list[d.Decision] = []
        for job_id in decision.job_ids:
            ended = self.end(decision.at, job_id)
            if ended is None:
                made.append(d.KillJobs(decision.at, (job_id,)))
                continue
            made.append(d.RejectJob(decision.at, job_id, reason))
            made.append(self.tell_soon(decision.at, ended, e.JobsKilled(decision.at, (job_id,), {})))
        return made


def killed(at: float, job_id: str, units: IdSet) -> e.JobEnded:
    return e.JobEnded(at, job_id, JobState.KILLED, KILLED_CODE, units)
