"""A scheduler written for Batsim 2 to 4 as a Decider: we play the resource manager towards it.

In: batches. Out: replies, in the strict request-reply turn of the protocol. `--by batsim:ENDPOINT[?dialect=2|3|4][&config=FILE]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilothouse.core.contract import Traits
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import InputError
from pilothouse.model.job import Node
from pilothouse.model.profile import Profile
from pilothouse.protocols.batsim import codec
from pilothouse.protocols.batsim.channel import SchedulerChannel
from pilothouse.protocols.batsim.decision_reader import DecisionReader
from pilothouse.protocols.batsim.event_writer import EventWriter
from pilothouse.protocols.batsim.redis_store import RedisStore
from pilothouse.protocols.batsim.settings import Dialect, Settings
from pilothouse.protocols.process import PeerProcess

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster

DEFAULT_ENDPOINT = "tcp://localhost:28000"

WRITTEN_PRECISION_S = 6e-7
"""Dates on the wire are this exact."""


class BatsimDecider:
    """A foreign scheduler behind a socket. No `timeout` (seconds): wait for its answers for ever.

    `keeps_rounding`: its dates count as they are written, as they do for a real Batsim. `profiles`: those that exist, by
    full name, where somebody else keeps them and adds the registered ones.
    """

    traits = Traits(full_names=True, withdrawals=False, requeues=False, lost_nodes=False, feasibility=False)

    def __init__(
        self,
        endpoint: str = DEFAULT_ENDPOINT,
        *,
        dialect: str = "",
        settings: Settings | None = None,
        timeout: float | None = None,
        command: str = "",
        name: str = "",
        keeps_rounding: bool = False,
        profiles: dict[str, Profile] | None = None,
    ) -> None:
        self.name = name or f"scheduler at {endpoint or DEFAULT_ENDPOINT}"
        self._endpoint = endpoint or DEFAULT_ENDPOINT
        self._timeout_s = timeout or 0.0
        self._command = command
        self._settings = settings or Settings()
        self._keeps_rounding = keeps_rounding
        self._profiles = profiles
        self._dialect = Dialect.named(dialect or "any")
        self._is_any = self._dialect is Dialect.ANY
        self._channel: SchedulerChannel | None = None
        self._process: PeerProcess | None = None
        self._store: RedisStore | None = None
        self._facts: EventWriter
        self._orders: DecisionReader
        self._over = False
        self.parting = ""
        """How the process that we started ended, if not well."""

    def hello(self) -> d.Wants:
        """Connects (the protocol has no greeting), and starts the scheduler if that is our task."""
        if self._settings.redis.enabled:
            self._store = RedisStore(self._settings.redis, self.name)
        self._facts = EventWriter(self._settings, self._dialect, self._store, self._profiles)
        self._orders = DecisionReader(
            self.name, self._facts.profiles, self._store, self._dialect, keeps_profiles=self._profiles is None
        )
        if self._command:
            self._process = PeerProcess(self._command)
        self._channel = SchedulerChannel(self._endpoint, self.name, timeout_s=self._timeout_s, process=self._process)
        submission = self._settings.job_submission
        dynamic = submission.from_scheduler
        return d.Wants(
            dynamic_registration=dynamic.enabled or None,
            acknowledge_registration=dynamic.acknowledge if dynamic.enabled else None,
            forward_profiles=submission.forward_profiles or None,
        )

    def fileno(self) -> int:
        raise AssertionError("a Batsim scheduler speaks in turn")

    def begin(self, begins: e.Begins, cluster: Cluster) -> None:
        self._orders.note_units({node.first: states for node in begins.nodes if (states := sleep_states(node))})

    def decide(self, batch: e.Batch) -> d.Reply:
        channel, told, now = self._channel, batch.events, batch.now
        assert channel is not None, "decide() before hello()"
        if len(told) > 1 and type(told[0]) is e.Began:
            # SIMULATION_BEGINS is alone in its message: clients get ready only after they have read all of it.
            first = self.decide(e.Batch(now, told[:1]))
            rest = self.decide(e.Batch(max(now, first.now), told[1:]))
            return d.Reply(rest.now, [*first.decisions, *rest.decisions])
        facts = self._facts
        events = facts.events(batch)
        if not events and self._is_any:
            events = facts.withheld(said=False)
        if not events:
            return d.Reply(now, [])
        last = self._over = type(told[-1]) is e.Ended
        answer = channel.exchange(codec.encode(now, events), last)
        if not answer:
            return d.Reply(now, [])  # It left on the last message instead of answering it.
        reply = self._orders.reply(codec.decode_from_scheduler(answer, self.name))
        if self._is_any:
            self._tell_withheld(now, reply)
        if not self._keeps_rounding:
            _restore_dates(reply, now)
        return reply

    def _tell_withheld(self, now: float, reply: d.Reply) -> None:
        """One more turn, if there is something that could only be told now; its orders are added to the reply."""
        assert self._channel is not None
        self._facts.listener = self._orders.speaker
        events = self._facts.withheld(bool(reply.decisions))
        if events and (answer := self._channel.exchange(codec.encode(now, events))):
            more = self._orders.reply(codec.decode_from_scheduler(answer, self.name))
            reply.now = max(reply.now, more.now)
            reply.decisions += more.decisions

    def event_name(self, index: int) -> str:
        """The wire name of the event that an order of the last reply came from."""
        return self._orders.event_name(index)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._store is not None:
            self._store.close()
        if self._process is not None:
            self.parting = self._process.close(orderly=self._over)
            self._process = None


def batsim_decider(address: str, options: dict[str, str], *, timeout: float | None = None) -> BatsimDecider:
    """The decider that `batsim:ENDPOINT?dialect=2&config=FILE` names."""
    unknown = set(options) - {"dialect", "config"}
    if unknown:
        raise InputError(f"batsim:{address}", "unknown option", expected="dialect or config", found=min(unknown))
    settings = Settings.read(options["config"]) if "config" in options else None
    return BatsimDecider(address, dialect=options.get("dialect", ""), settings=settings, timeout=timeout)


def _restore_dates(reply: d.Reply, now: float) -> None:
    """A scheduler answers with the date that it was told, which has six decimals: it means the date that we have."""
    if abs(reply.now - now) < WRITTEN_PRECISION_S:
        reply.now = now
    for order in reply.decisions:
        if abs(order.at - now) < WRITTEN_PRECISION_S:
            order.at = now


def sleep_states(node: Node) -> frozenset[int]:
    """The power states of a simulated host that are sleep: property `sleep_pstates`, `sleep:off:on` triplets."""
    triplets = node.properties.get("sleep_pstates", "").split(",")
    firsts = (triplet.partition(":")[0].strip() for triplet in triplets)
    return frozenset(int(first) for first in firsts if first.isdigit())
