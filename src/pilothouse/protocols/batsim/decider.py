"""Decider `batsim:ENDPOINT[?dialect=2|3|4][&config=FILE]`: a scheduler written for Batsim 2 to 4; we are its Batsim.

In: batches. Out: replies. The protocol is strictly request and reply: one message of each side in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilothouse.core.contract import Traits
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import InputError, PeerError
from pilothouse.model.power_states import sleep_states
from pilothouse.model.profile import Profile
from pilothouse.protocols.batsim import codec
from pilothouse.protocols.batsim.decision_reader import DecisionReader
from pilothouse.protocols.batsim.event_writer import EventWriter
from pilothouse.protocols.batsim.settings import Dialect, Settings
from pilothouse.protocols.process import PeerProcess
from pilothouse.protocols.request_socket import RequestChannel

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster
    from pilothouse.protocols.batsim.redis_store import RedisStore

DEFAULT_ENDPOINT = "tcp://localhost:28000"

WRITTEN_PRECISION_S = 6e-7
"""Dates on the wire have six decimals."""
EARLIEST_S = 1e-6
"""The first date that a scheduler is told after SIMULATION_BEGINS."""


class BatsimDecider:
    """A scheduler behind a socket. `timeout` (seconds) limits the wait for an answer; None: no limit.

    `keeps_rounding`: rounded dates stay as they are, as in a real Batsim. `as_released`: a scheduler for Batsim 2 is treated as
    Batsim 2.0.0 does where the specification allows more. `profiles`: a dictionary of the profiles by full
    name to which the owner adds registered ones. `any_dialect`: how a user asks for messages that every generation reads.
    """

    traits = Traits(
        full_names=True, withdrawals=False, requeues=False, lost_nodes=False, feasibility=False, shapes=False
    )

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
        as_released: bool = False,
        profiles: dict[str, Profile] | None = None,
        any_dialect: str = "?dialect=any",
    ) -> None:
        self.name = name or f"scheduler at {endpoint or DEFAULT_ENDPOINT}"
        self._endpoint = endpoint or DEFAULT_ENDPOINT
        self._timeout_s = timeout or 0.0
        self._command = command
        self._settings = settings or Settings()
        self._keeps_rounding = keeps_rounding
        self._as_released = as_released
        self._profiles = profiles
        self._dialect = Dialect.named(dialect or "any")
        self._is_any = self._dialect is Dialect.ANY
        self._any_dialect = any_dialect
        self._channel: RequestChannel | None = None
        self._process: PeerProcess | None = None
        self._store: RedisStore | None = None
        self._writer: EventWriter
        self._reader: DecisionReader
        self._over = False
        self.parting = ""
        """How the process that we started ended; empty if it ended well."""

    def hello(self) -> d.Wants:
        """Starts the scheduler if there is a command for it. The connection is made by the first message."""
        if self._settings.redis.enabled:
            from pilothouse.protocols.batsim.redis_store import RedisStore

            self._store = RedisStore(self._settings.redis, self.name)
        self._writer = EventWriter(self._settings, self._dialect, self._store, self._profiles, as_released=self._as_released)
        self._reader = DecisionReader(
            self.name,
            self._writer.profiles,
            self._store,
            self._dialect,
            keeps_profiles=self._profiles is None,
            as_released=self._as_released,
        )
        if self._command:
            self._process = PeerProcess(self._command)
        self._channel = RequestChannel(self._endpoint, self.name, timeout_s=self._timeout_s, process=self._process)
        submission = self._settings.job_submission
        dynamic = submission.from_scheduler
        return d.Wants(
            dynamic_registration=dynamic.enabled or None,
            acknowledge_registration=dynamic.acknowledge if dynamic.enabled else None,
            forward_profiles=submission.forward_profiles or None,
        )

    def fileno(self) -> int:
        raise AssertionError("a Batsim scheduler only answers requests")

    def begin(self, begins: e.Begins, cluster: Cluster) -> None:
        self._reader.note_units({node.first: states for node in begins.nodes if (states := sleep_states(node))})

    def decide(self, batch: e.Batch) -> d.Reply:
        channel, now = self._channel, batch.now
        assert channel is not None, "decide() before hello()"
        if len(batch.events) > 1 and type(batch.events[0]) is e.Began:
            # SIMULATION_BEGINS is alone in its message: clients are ready only after they have read the whole message.
            first = self.decide(e.Batch(now, batch.events[:1]))
            rest = self.decide(e.Batch(max(now, first.now), batch.events[1:]))
            return d.Reply(rest.now, [*first.decisions, *rest.decisions])
        writer = self._writer
        events = writer.events(batch)
        if not events and self._is_any:
            events = writer.withheld(said=False)
        if not events:
            return d.Reply(now, [])
        began = bool(batch.events) and type(batch.events[0]) is e.Began
        last = self._over = bool(batch.events) and type(batch.events[-1]) is e.Ended
        # Nothing happens at 0 in a Batsim, where messages take time; pybatsim's allocations must begin later than that.
        told = now if began or self._keeps_rounding else max(now, EARLIEST_S)
        message = codec.encode(told, events)
        answer = self._first_answer(message) if began and not self._is_any else channel.exchange(message, last)
        if not answer:
            return d.Reply(now, [])  # It closed the connection instead of answering the last message.
        reply = self._reader.reply(codec.decode_from_scheduler(answer, self.name))
        if self._is_any:
            self._tell_withheld(now, reply)
        if not self._keeps_rounding:
            _restore_dates(reply, told, now)
        return reply

    def _first_answer(self, message: bytes) -> bytes:
        """Asks a scheduler of one generation for the first time. One of another generation ends here as a rule."""
        assert self._channel is not None
        try:
            return self._channel.exchange(message)
        except PeerError as problem:
            if not self._channel.ready:
                raise
            spoken = f"it was told SIMULATION_BEGINS of Batsim {self._dialect.value}"
            hint = f"{spoken}; if it is for another generation: {self._any_dialect}"
            raise PeerError(problem.peer, problem.problem, hint=hint) from None

    def _tell_withheld(self, now: float, reply: d.Reply) -> None:
        """Sends notifications that waited for the scheduler's generation; adds the decisions that follow to the reply."""
        assert self._channel is not None
        self._writer.listener = self._reader.speaker
        events = self._writer.withheld(bool(reply.decisions))
        if events and (answer := self._channel.exchange(codec.encode(now, events))):
            more = self._reader.reply(codec.decode_from_scheduler(answer, self.name))
            reply.now = max(reply.now, more.now)
            reply.decisions += more.decisions

    def event_name(self, index: int) -> str:
        """The wire name of the event of a decision of the last reply."""
        return self._reader.event_name(index)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._store is not None:
            self._store.close()
        if self._process is not None:
            self.parting = self._process.close(orderly=self._over)
            self._process = None


def batsim_decider(address: str, options: dict[str, str], *, timeout: float | None = None) -> BatsimDecider:
    """The decider of the name `batsim:ENDPOINT?dialect=2&config=FILE`."""
    unknown = set(options) - {"dialect", "config"}
    if unknown:
        raise InputError(f"batsim:{address}", "unknown option", expected="dialect or config", found=min(unknown))
    settings = Settings.read(options["config"]) if "config" in options else None
    # A configuration file is Batsim 2's, and so is the scheduler then.
    dialect = options.get("dialect", "2" if settings else "")
    return BatsimDecider(address, dialect=dialect, settings=settings, timeout=timeout)


def _restore_dates(reply: d.Reply, told: float, now: float) -> None:
    """Replaces the date of the message, which a scheduler returns rounded to six decimals, by the exact one."""
    if abs(reply.now - told) < WRITTEN_PRECISION_S:
        reply.now = now
    for decision in reply.decisions:
        if abs(decision.at - told) < WRITTEN_PRECISION_S:
            decision.at = now
