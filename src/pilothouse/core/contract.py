"""The contract: what a World, a Decider and a Judge are. N worlds and M deciders need N+M adapters.

One run is: `wants = decider.hello()`, `begins = world.begin(wants)`, `decider.begin(begins, cluster)`, then turns of
`batch = world.advance()`, `reply = decider.decide(batch)`, `world.apply(reply)` until advance returns None.
The first batch holds Began, the last one Ended.

Worlds hold a job with dependencies (`Job.after`) until they are met, and only then send JobSubmitted. So a decider whose
protocol has no word for dependencies can still drive them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from pilothouse.model.decisions import Decision, Reply, Wants
from pilothouse.model.events import Batch, Begins, Event

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster


class Traits(msgspec.Struct, frozen=True):
    """What a decider can be told, and how it answers. core/translate.py speaks for those that lack a word."""

    decides_on_cluster: bool = False
    """It decides through the Cluster, which checks each decision at once. Its events and replies need nothing more."""
    speaks_unasked: bool = False
    """It may speak at any time (RFC 27), so it has a `fileno` for the world to watch. Where Begins.time_waits or
    Batch.waits is set, decide() returns when the peer is quiet; elsewhere it returns what was said so far."""
    full_names: bool = False
    """It knows jobs as `workload!name`."""
    withdrawals: bool = True
    """It understands JobWithdrawn and answers ConfirmWithdrawal."""
    requeues: bool = True
    """It understands JobRequeued."""
    lost_nodes: bool = True
    """It understands that a node is lost and may come back (NodesLeft.may_return)."""
    absent_units: bool = True
    """It starts nothing on units that are unavailable once it was told so."""
    feasibility: bool = True
    """It answers FeasibilityAsked."""
    estimates: bool = True
    """It answers EstimateAsked."""
    shapes: bool = True
    """It knows what a job asks for beyond a number of units (nodes, GPUs, constraints), and places it accordingly."""
    memory: bool = True
    """With shapes: it knows the memory that a job asks for as well."""


class World(Protocol):
    """Where jobs run."""

    name: str

    def begin(self, wants: Wants) -> Begins:
        """Returns the resources, and what is known about the work."""
        ...

    def advance(self) -> Batch | None:
        """Returns the next moment at which a decision may be needed; None: it is over. A live world blocks here."""
        ...

    def apply(self, reply: Reply) -> None:
        """Carries out decisions. One that this world cannot carry out is a DecisionError (see decision_table.py)."""
        ...

    def watch(self, fd: int) -> None:
        """Makes advance() return, maybe with no event, when fd is readable. Does nothing where the clock stands still
        while the decider thinks."""
        ...

    def close(self) -> None:
        """Releases everything, whatever state the run is in; may be called twice."""
        ...


class Decider(Protocol):
    """What schedules: a policy (policy_decider.py), or a scheduler that a protocol reaches."""

    name: str

    @property
    def traits(self) -> Traits: ...

    def hello(self) -> Wants:
        """Meets the scheduler, and returns what it wants of the world."""
        ...

    def begin(self, begins: Begins, cluster: Cluster) -> None:
        """Learns the world. The first batch asks for decisions, not this."""
        ...

    def decide(self, batch: Batch) -> Reply:
        """Returns decisions. Must return even if the peer is silent (a limit, then PeerError)."""
        ...

    def fileno(self) -> int:
        """A descriptor that is readable when the decider has something to say. Only asked where traits.speaks_unasked."""
        ...

    def close(self) -> None:
        """Says goodbye; may be called twice, and after an error."""
        ...


Turn = Callable[[Batch], Reply]
"""What answers batches: a decider's `decide`, or something around it."""


class Judge(Protocol):
    """Checks the decisions of a decider that does not decide on the Cluster. The Cluster itself is the usual one."""

    now: float

    def observe(self, event: Event) -> None:
        """Takes note of an event."""
        ...

    def book(self, decision: Decision) -> None:
        """Raises DecisionError if the decision is illegal, else counts it as made."""
        ...

    def take_decisions(self) -> list[Decision]:
        """Ends the turn: the decisions that were booked."""
        ...


class WorldJudges:
    """The Judge of a world that checks decisions itself, at the date at which they take effect: it lets all of them pass."""

    now = 0.0

    def observe(self, event: Event) -> None:
        """Nothing is kept."""

    def book(self, decision: Decision) -> None:
        """Nothing is refused here."""

    def take_decisions(self) -> list[Decision]:
        return []


WORLD_JUDGES: Judge = WorldJudges()
"""With this judge a Session passes batches and replies on as they are: nothing is checked, and nothing translated."""
