"""The life of a steered job as this program believes it, and the table of what follows from what is seen.

Theory. Slurm holds the truth; a look shows it, late. For each job there is a belief (what the decider was told, what was
ordered) and, look after look, something seen. `ACTIONS` names what follows for every pair. What was ordered shows only in
looks that were started after the order was answered: earlier looks are not used for that job (`Tracked.fresh_from`).

    HELD ──offer──► WAITING ──StartJob──► ORDERED ──seen running──► RUNNING ──seen over──► forgotten
      ▲                │                     │ not taken up in time     │ requeued by Slurm
      └── not ready ───┘◄── seen in the queue ── RETURNING ◄────────────┘

The units of a job are held for the decider from StartJob until the job is seen in the queue again, or over. So a job that
Slurm starts while it is being taken back is never booked twice.
"""

from __future__ import annotations

import enum

import msgspec

from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.slurm.commands import Mark
from pilothouse.worlds.slurm.look import JobRow
from pilothouse.worlds.slurm.records import Part, Request
from pilothouse.worlds.slurm.requests import Wish


class Belief(enum.Enum):
    HELD = "the decider does not know it: it is not ready, or must not be steered"
    WAITING = "the decider may start it"
    ORDERED = "the decider started it, Slurm has not yet"
    RUNNING = "it runs, and the decider knows where"
    RETURNING = "it is being taken back from the partition of starts"
    REFUSED = "the decider will never start it"
    FOREIGN = "it runs, and another scheduler started it"


class Seen(enum.Enum):
    READY = "waits in the queue, and may start"
    BLOCKED = "waits in the queue: held, too early, or after another job"
    ORDERED = "waits in the partition of starts"
    RUNS = "holds nodes"
    OVER = "has ended, or is no longer listed"
    ELSEWHERE = "waits in another partition"


class Tracked(msgspec.Struct):
    """One job."""

    id: str
    row: JobRow
    belief: Belief
    submitted_at: float
    """The first date of submission: a requeue sets a new one in Slurm."""
    request: Request | None = None
    """None: not read yet."""
    mark: Mark | None = None
    """What the last order changed."""
    evenly: bool = False
    """Its tasks of several CPUs are spread evenly."""
    wish: Wish | None = None
    """The request as the decider was told of it."""
    job: Job | None = None
    """As the decider knows it."""
    units: IdSet = IdSet()
    node_names: tuple[str, ...] = ()
    """Where it was ordered to, or runs."""
    parts: dict[str, Part] = {}
    """What it holds of these nodes, or will hold."""
    ordered_nodes: int = 0
    """The number of nodes that it was ordered to."""
    fresh_from: float = 0.0
    """Looks that were asked for earlier do not show the last order; inf: it was not answered yet."""
    command: int = 0
    """The number of that order."""
    refusals: int = 0
    """Orders in a row that Slurm did not take up."""
    offer_from: float = 0.0
    """Not offered to the decider before this date."""
    note: str = ""
    """Why it waits, where the decider does not know."""


ENDS: dict[str, JobState] = {
    "COMPLETED": JobState.SUCCEEDED,
    "TIMEOUT": JobState.TIMED_OUT,
    "DEADLINE": JobState.TIMED_OUT,
    "CANCELLED": JobState.KILLED,
    "PREEMPTED": JobState.KILLED,
    "REVOKED": JobState.KILLED,
    "NODE_FAIL": JobState.LOST,
    "BOOT_FAIL": JobState.LOST,
    "FAILED": JobState.FAILED,
    "OUT_OF_MEMORY": JobState.FAILED,
}

_B, _S = Belief, Seen
ACTIONS: dict[tuple[Belief, Seen], str] = {
    (_B.HELD, _S.READY): "offer",
    (_B.HELD, _S.BLOCKED): "note_block",
    (_B.HELD, _S.ORDERED): "nothing",
    (_B.HELD, _S.RUNS): "became_foreign",
    (_B.HELD, _S.OVER): "forget",
    (_B.HELD, _S.ELSEWHERE): "forget",
    (_B.WAITING, _S.READY): "compare",
    (_B.WAITING, _S.BLOCKED): "withdraw",
    (_B.WAITING, _S.ORDERED): "withdraw",
    (_B.WAITING, _S.RUNS): "withdraw_running",
    (_B.WAITING, _S.OVER): "withdraw_forget",
    (_B.WAITING, _S.ELSEWHERE): "withdraw_forget",
    (_B.ORDERED, _S.READY): "came_back",
    (_B.ORDERED, _S.BLOCKED): "came_back",
    (_B.ORDERED, _S.ORDERED): "check_order",
    (_B.ORDERED, _S.RUNS): "launched",
    (_B.ORDERED, _S.OVER): "ended",
    (_B.ORDERED, _S.ELSEWHERE): "ended",
    (_B.RUNNING, _S.READY): "came_back",
    (_B.RUNNING, _S.BLOCKED): "came_back",
    (_B.RUNNING, _S.ORDERED): "take_back",
    (_B.RUNNING, _S.RUNS): "compare_running",
    (_B.RUNNING, _S.OVER): "ended",
    (_B.RUNNING, _S.ELSEWHERE): "ended",
    (_B.RETURNING, _S.READY): "came_back",
    (_B.RETURNING, _S.BLOCKED): "came_back",
    (_B.RETURNING, _S.ORDERED): "take_back",
    (_B.RETURNING, _S.RUNS): "launched",
    (_B.RETURNING, _S.OVER): "ended",
    (_B.RETURNING, _S.ELSEWHERE): "ended",
    (_B.REFUSED, _S.READY): "offer_if_changed",
    (_B.REFUSED, _S.BLOCKED): "hold_again",
    (_B.REFUSED, _S.ORDERED): "hold_again",
    (_B.REFUSED, _S.RUNS): "became_foreign",
    (_B.REFUSED, _S.OVER): "forget",
    (_B.REFUSED, _S.ELSEWHERE): "forget",
    (_B.FOREIGN, _S.READY): "foreign_came_back",
    (_B.FOREIGN, _S.BLOCKED): "foreign_came_back",
    (_B.FOREIGN, _S.ORDERED): "foreign_came_back",
    (_B.FOREIGN, _S.RUNS): "compare_running",
    (_B.FOREIGN, _S.OVER): "ended",
    (_B.FOREIGN, _S.ELSEWHERE): "ended",
}
"""What follows from a belief and what is seen: methods of steering.Steering. Total; a test keeps it so."""
