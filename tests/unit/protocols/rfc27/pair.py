"""Both ends in one process, for tests: a manager with its broker, and a scheduler (engine, instance, policy)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Decider
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.translate import CheckedTurn
from pilothouse.formats import jobspec, resource_set
from pilothouse.formats.resource_set import RankResources, ResourceSet
from pilothouse.model.decisions import Reply
from pilothouse.model.events import Batch
from pilothouse.model.idset import IdSet
from pilothouse.policies.catalog import make
from pilothouse.protocols.rfc27 import frames
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.handshake import Phase
from pilothouse.protocols.rfc27.manager import Manager
from pilothouse.protocols.rfc27.manager_events import Allocated, Event
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine
from pilothouse.protocols.rfc27.scheduler_adapter import SchedulerAdapter
from unit.protocols.rfc27.in_process_link import InProcessLink

JOB = 1 << 24


def of_owner(message: Message) -> Message:
    """The request with the credentials that a broker gives those of its job manager."""
    message.userid, message.rolemask = 0, frames.ROLE_OWNER
    return message


def spec(slots: int = 1, **more: Any) -> bytes:
    return jobspec.encode(jobspec.Jobspec(slots=slots, command=("true",), **{"cores_per_slot": 1, **more}))


def inventory(nodes: int = 2, cores: int = 4, gpus: int = 0) -> bytes:
    ranks = tuple(RankResources(rank, IdSet.span(0, cores), IdSet.span(0, gpus)) for rank in range(nodes))
    return resource_set.encode(ResourceSet(ranks=ranks, hosts=tuple(f"n{rank}" for rank in range(nodes))))


class Pair:
    """A manager and a scheduler. `heard` and `said` hold what the scheduler was told and what it answered."""

    def __init__(self, *, strict: bool = False, nodes: int = 2, cores: int = 4, gpus: int = 0, limit: int = 0,
                 policy: str = "fcfs", decider: Callable[[], Decider] | None = None) -> None:  # fmt: skip
        self.strict = strict
        self.limit = limit
        self.policy = policy
        self.make_decider = decider or (lambda: PolicyDecider(make(policy, {})))
        self.manager = Manager(strict=strict)
        self.broker = Broker(self.manager, inventory(nodes, cores, gpus), IdSet.span(0, nodes))
        self.heard: list[Message] = []
        self.said: list[Message] = []
        self.log: list[Message] = []
        """Both, in the order in which they passed the broker."""
        self.events: list[Event] = []
        self.now = 0.0
        self._ids = 0
        self._peer = 0

    def connect(self) -> None:
        """A new scheduler process: it knows nothing but what the manager tells."""
        self.begin()
        self.settle()

    def begin(self) -> None:
        """As `connect`, but jobs that are allocated do not start."""
        self.begin_slowly()
        self.link.run()

    def begin_slowly(self) -> None:
        """The first message of a new scheduler waits to be carried."""
        self.engine = SchedulerEngine(limit=self.limit, strict=self.strict)
        self.adapter = SchedulerAdapter()
        self.adapter.engine = self.engine
        self.decide: Callable[[Batch], Reply] | None = None
        self.link = InProcessLink(_Spied(self), self.engine, self._think, on_wire=True)
        self.link._peer = self._peer
        self.link.now = self.now
        self._peer = self.link.join()

    def crash(self) -> None:
        self.link.disconnect()
        self.settle_manager()

    def submit(self, slots: int = 1, **more: Any) -> int:
        self._ids += 1
        job_id = self._ids << 24
        urgency = more.pop("urgency", 16)
        self.manager.submit(self.now, job_id, spec(slots, **more), urgency=urgency)
        return job_id

    def settle(self) -> None:
        """Both ends talk until they are quiet; what was allocated runs."""
        self.link.now = self.now
        while True:
            self.broker.flush(self.now)
            self.link.run()
            if not self.settle_manager():
                return

    def settle_manager(self) -> bool:
        events = self.manager.take_events()
        for event in events:
            # it may have been canceled since
            if type(event) is Allocated and event.id in self.manager.holding and not self.manager.jobs[event.id].started:
                self.manager.start(self.now, event.id)
        self.events += events
        return bool(events)

    def finish(self, job_id: int) -> None:
        self.manager.finish(self.now, job_id)
        self.settle()

    def topics(self, messages: list[Message], job_id: int | None = None) -> list[str]:
        return [m.topic for m in messages if job_id is None or body(m).get("id") == job_id]

    def _think(self, now: float) -> None:
        self.adapter.handle(now, self.engine.take_events())
        if self.decide is None and self.engine.phase is Phase.ONLINE:
            decider = self.make_decider()
            self.cluster = cluster = Cluster(self.adapter.begins(now), self.policy)
            decider.begin(cluster.begins, cluster)
            on_cluster = decider.traits.decides_on_cluster
            self.decide = decider.decide if on_cluster else CheckedTurn(decider, cluster, cluster)
        while self.decide is not None and self.adapter.events:
            self.adapter.apply(now, self.decide(Batch(now, self.adapter.take_events())).decisions)
            self.adapter.events += self.adapter.calls.due(now)


class _Spied:
    """The broker, with an ear on both directions."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pair.broker, name)

    def receive(self, now: float, peer: int, message: Message) -> None:
        self._pair.said.append(msgspec.structs.replace(message))
        self._pair.log.append(self._pair.said[-1])
        self._pair.broker.receive(now, peer, message)

    def take(self) -> list[tuple[int, Message]]:
        taken = self._pair.broker.take()
        self._pair.heard += [message for _, message in taken]
        self._pair.log += [message for _, message in taken]
        return taken


def body(message: Message) -> Any:
    """The JSON of a message; {} where there is none."""
    if message.payload is None or (message.type == frames.RESPONSE and message.errnum):
        return {}
    return msgspec.json.decode(message.body())
