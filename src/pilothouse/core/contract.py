"""The contract of the house: what a World and a Decider are. N worlds and M deciders cost N+M adapters.

One run is: `wants = decider.hello()`, `begins = world.begin(wants)`, `decider.begin(begins, cluster)`, then turns of
`batch = world.advance()`, `reply = decider.decide(batch)`, `world.apply(reply)` until advance returns None.
The first batch holds Began, the last one Ended.

Worlds hold back a job with dependencies (`Job.after`) until they are met, and only then tell of its submission; so
deciders whose protocol has no word for dependencies can still drive them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pilothouse.model.decisions import Reply, Wants
from pilothouse.model.events import Batch, Begins

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster


class World(Protocol):
    """Where jobs run."""

    name: str

    def begin(self, wants: Wants) -> Begins:
        """What resources there are, and what is known about the work."""
        ...

    def advance(self) -> Batch | None:
        """The next moment at which a decision may be needed; None: it is over. A live world blocks here."""
        ...

    def apply(self, reply: Reply) -> None:
        """Carries out orders that have been judged legal."""
        ...

    def watch(self, fd: int) -> None:
        """A world whose clock runs by itself also returns from advance() (maybe with no event) when fd is readable."""
        ...

    def close(self) -> None:
        """Lets go of everything, whatever state the run is in; may be called twice."""
        ...


class Decider(Protocol):
    """What schedules: a foreign scheduler that a protocol reaches. (A Policy is steered by core.session directly.)

    One that knows jobs as `workload!name` says so with an attribute `full_names = True`.
    """

    name: str

    def hello(self) -> Wants:
        """Meets the scheduler, and asks what it wants of the world."""
        ...

    def begin(self, begins: Begins, cluster: Cluster) -> None:
        """Learns the world. No orders yet: the first batch asks for them."""
        ...

    def decide(self, batch: Batch) -> Reply:
        """The orders. Must return even if the peer is silent (a limit, then PeerError)."""
        ...

    def close(self) -> None:
        """Says goodbye; may be called twice, and after an error."""
        ...


@runtime_checkable
class Talkative(Protocol):
    """A decider that speaks out of turn (RFC 27). Where Begins.time_waits, or Batch.waits, its decide() waits until the
    peer is quiet; elsewhere it returns what was said so far, and the world is asked to watch `fileno()`."""

    def fileno(self) -> int: ...
