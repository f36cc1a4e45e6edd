"""World `slurm[:QUEUE:GO]`: a Slurm cluster whose scheduler we are. The clock, the pace of looks, and the loop.

Users submit into partition QUEUE, which is DOWN, so Slurm starts nothing there. A decision moves a job into partition GO,
over the same nodes, with its node list; Slurm starts it at its next pass. steering.py is the part without processes.
"""

from __future__ import annotations

import logging
from math import inf
from typing import Protocol

from pilothouse.formats import duration
from pilothouse.model import events as e
from pilothouse.model.decisions import Reply, Wants
from pilothouse.model.errors import InputError, PeerError, quoted
from pilothouse.model.idset import IdSet
from pilothouse.worlds.slurm import commands, link
from pilothouse.worlds.slurm.book import Pair
from pilothouse.worlds.slurm.decisions import CANNOT, Decisions
from pilothouse.worlds.slurm.inventory import Inventory
from pilothouse.worlds.slurm.link import Answer, Asked, Facts, Heard, LookFailed, SlurmLink, Woken
from pilothouse.worlds.slurm.look import Look
from pilothouse.worlds.slurm.requests import Requests
from pilothouse.worlds.slurm.steering import DEFAULT_PATIENCE_S, Steering
from pilothouse.worlds.slurm.watchdog import Lease

_log = logging.getLogger("pilothouse.slurm")

LOOK_EVERY_S = 0.25
NODES_EVERY_S = 1.0
RESERVATIONS_EVERY_S = 10.0
BEGIN_LIMIT_S = 60.0
OPTIONS = {"once": "0", "patience": f"{DEFAULT_PATIENCE_S:g}", "notes": "0", "fail": "closed"}


class Link(Protocol):
    """The way to a Slurm. link.SlurmLink is the real one; tests have one in virtual time."""

    def now(self) -> float: ...

    def facts(self) -> Facts: ...

    def claim(self, name: str) -> None: ...

    @property
    def looking(self) -> bool: ...

    def ask(self, asked: Asked) -> None: ...

    def send(self, commands: list[commands.Command]) -> None: ...

    def wait(self, until: float) -> list[Heard]: ...

    def watch(self, fd: int) -> None: ...

    def close(self) -> None: ...


def slurm_world(address: str, options: dict[str, str]) -> SlurmWorld:
    """`slurm[:QUEUE:GO][?once=1&patience=15s&notes=1&fail=open]`."""
    unknown = set(options) - set(OPTIONS)
    if unknown:
        raise InputError("slurm", f"unknown option {min(unknown)!r}", expected=f"one of {', '.join(OPTIONS)}")
    chosen = OPTIONS | options
    if chosen["fail"] not in ("open", "closed"):
        raise InputError("slurm", "not a way to fail", expected="fail=open or fail=closed", found=quoted(chosen["fail"]))
    return SlurmWorld(
        pair_of(address),
        once=chosen["once"] == "1",
        patience_s=duration.parse(chosen["patience"], where="patience"),
        notes=chosen["notes"] == "1",
        fail_open=chosen["fail"] == "open",
    )


def pair_of(address: str) -> Pair:
    """`QUEUE:GO`, or nothing for `queue:go`."""
    if not address:
        return Pair()
    queue, _, go = address.partition(":")
    if not queue or not go or ":" in go or queue == go:
        raise InputError("slurm", "not a pair of partitions", expected="slurm:QUEUE:GO", found=quoted(address))
    return Pair(queue, go)


class SlurmWorld:
    """A pair of partitions. `once`: the run ends when no job waits or runs in them."""

    def __init__(
        self,
        pair: Pair,
        *,
        slurm: Link | None = None,
        once: bool = False,
        patience_s: float = DEFAULT_PATIENCE_S,
        notes: bool = False,
        fail_open: bool = False,
    ) -> None:
        self.name = f"slurm:{pair.queue}:{pair.go}"
        self.pair = pair
        self.steering: Steering
        self._link: Link = SlurmLink() if slurm is None else slurm
        self._once = once
        self._patience_s = patience_s
        self._notes = notes
        self._lease = Lease(pair.queue) if fail_open else None
        self._decisions: Decisions
        self._look_at = self._nodes_at = self._reservations_at = -inf
        self._asked_at = 0.0
        self._failures = 0
        self._ended = False

    # ---- the contract

    def begin(self, wants: Wants) -> e.Begins:
        facts, look = self._meet()
        self.steering = steering_for(self.pair, facts, self._patience_s)
        self._check(facts)
        host = facts.config.get("SlurmctldHost[0]", "")
        self._link.claim(f"{facts.config.get('ClusterName', '')}@{host}:{facts.config.get('SlurmctldPort', '')}/{self.name}")
        self._decisions = Decisions(self.steering, notes=self._notes)
        if self._lease is not None:
            self._lease.start()
            self.steering.send(None, commands.partition_state(self.pair.queue, "DOWN"))
        now = self._link.now()
        begins = begins_of(self.steering, now, look, facts)
        self.steering.events.insert(0, e.Began(now, begins))
        self._send()
        return begins

    def _meet(self) -> tuple[Facts, Look]:
        """A slurmctld that is being restarted is waited for."""
        end = self._link.now() + BEGIN_LIMIT_S
        while True:
            try:
                return self._link.facts(), first_look(self._link)
            except PeerError as problem:
                if self._link.now() >= end:
                    raise
                _log.warning("%s; trying again", problem)
                self._link.wait(self._link.now() + 1.0)

    def _check(self, facts: Facts) -> None:
        for name in (self.pair.queue, self.pair.go):
            if name not in facts.partitions:
                hint = "pilothouse slurm-setup prints what to add to slurm.conf"
                raise InputError("slurm", f"there is no partition {name!r}", hint=hint)
        if self._lease is None and facts.partitions[self.pair.queue].get("State") == "UP":
            line = f"scontrol update partitionname={self.pair.queue} state=DOWN"
            raise InputError("slurm", f"partition {self.pair.queue} is UP: Slurm starts its jobs itself", hint=line)
        if facts.partitions[self.pair.go].get("State") != "UP":
            line = f"scontrol update partitionname={self.pair.go} state=UP"
            raise InputError("slurm", f"partition {self.pair.go} is not UP: no job could start", hint=line)

    def advance(self) -> e.Batch | None:
        if self._ended:
            return None
        steering = self.steering
        while True:
            now = self._link.now()
            steering.events += steering.calls.due(now)
            if self._decisions.stopped or (self._once and self._failures == 0 and steering.idle and not steering.events):
                self._ended = True
                steering.events.append(e.Ended(now))
            if steering.events:
                return e.Batch(now, steering.take_events())
            self._ask(now)
            until = min(steering.calls.next_at, inf if self._link.looking else self._look_at)
            woken = False
            for heard in self._link.wait(until):
                woken |= isinstance(heard, Woken)
                self._hear(heard)
            self._send()
            if self._lease is not None:
                self._lease.renew()
            if woken:
                # The decider has something to say without being asked.
                return e.Batch(self._link.now(), steering.take_events())

    def apply(self, reply: Reply) -> None:
        self._decisions.apply(self._link.now(), reply.decisions)
        self._send()

    def watch(self, fd: int) -> None:
        self._link.watch(fd)

    def close(self) -> None:
        self._link.close()
        if self._lease is not None:
            self._lease.end()

    # ---- looks and orders

    def _ask(self, now: float) -> None:
        if self._link.looking or now < self._look_at:
            return
        asked = Asked(
            nodes=now >= self._nodes_at,
            licences=now >= self._nodes_at and self.steering.wants_licences,
            reservations=now >= self._reservations_at,
        )
        if asked.nodes:
            self._nodes_at = now + NODES_EVERY_S
        if asked.reservations:
            self._reservations_at = now + RESERVATIONS_EVERY_S
        self._asked_at = now
        self._link.ask(asked)

    def _hear(self, heard: Heard) -> None:
        now = self._link.now()
        if isinstance(heard, Answer):
            self.steering.answered(now, heard.number, heard.problem, heard.shown)
        elif isinstance(heard, Look):
            self._failures = 0
            self.steering.observe(now, heard)
            if self.pair.queue in heard.up:
                self._queue_is_up()
            # A slow Slurm is asked less often.
            self._look_at = max(self._asked_at + LOOK_EVERY_S, now + (now - self._asked_at))
        elif isinstance(heard, LookFailed):
            self._failures += 1
            if self._failures in (1, 10, 100, 1000):
                _log.warning("Slurm does not answer: %s", heard.problem)
            self.steering.look_failed(now)
            self._nodes_at = self._reservations_at = -inf
            self._look_at = now + LOOK_EVERY_S * min(self._failures, 8)

    def _queue_is_up(self) -> None:
        """Slurm starts jobs of the queue itself: the lease has expired, or an administrator took it back."""
        if self._lease is not None:
            self.steering.send(None, commands.partition_state(self.pair.queue, "DOWN"))
        self.steering.warn(f"partition {self.pair.queue} is UP: Slurm starts its jobs itself")

    def _send(self) -> None:
        made = self.steering.take_commands()
        if made:
            self._link.send(made)
        for warning in self.steering.warnings:
            _log.warning("%s", warning)
        self.steering.warnings.clear()


def first_look(slurm: Link) -> Look:
    """Everything, now. Raises PeerError."""
    slurm.ask(Asked(licences=True, reservations=True))
    end = slurm.now() + BEGIN_LIMIT_S
    while slurm.now() < end:
        for heard in slurm.wait(end):
            if isinstance(heard, Look) and heard.nodes is not None:
                return heard
            if isinstance(heard, LookFailed):
                raise PeerError("slurm", heard.problem)
    raise PeerError("slurm", f"no answer within {BEGIN_LIMIT_S:g} s")


def steering_for(pair: Pair, facts: Facts, patience_s: float = DEFAULT_PATIENCE_S) -> Steering:
    """The state of a pair of partitions before the first look."""
    memory = link.counts_memory(facts.config)
    partition = pair.go or pair.queue  # Only looked at, not steered: there is one.
    by_cpu = not link.is_whole_nodes(facts.partitions.get(partition, {}), facts.config)
    cores = link.gives_whole_cores(facts.config)
    inventory = Inventory(partition, by_cpu=by_cpu, counts_memory=memory, whole_cores=cores)
    return Steering(pair, inventory, Requests(inventory), patience_s)


def begins_of(steering: Steering, now: float, look: Look, facts: Facts) -> e.Begins:
    """Takes note of the first look, and says what there is."""
    running = steering.begin(now, look, facts.jobs)
    steering.inventory.refresh()
    begins = e.Begins(
        nodes=tuple(steering.inventory.nodes.values()),
        time_waits=False,
        started_at=now,
        unavailable=IdSet(steering.inventory.off),
        running=running,
        survives_refusals=True,
        cannot=CANNOT,
    )
    steering.observe(now, look)
    return begins
