"""How engines come, work and go, as the driver sees it. Sans-IO.

An engine says Hello and is welcomed with all it must know; it may be asked to leave, say goodbye, be spoken for by its
warden, or never be heard again. One that was given up and is heard after all is dismissed.
"""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.worlds.live.driver import records as r
from pilothouse.worlds.live.driver.engines import Proxy, ProxyState, ProxyStimulus
from pilothouse.worlds.live.driver.ledger import LIMIT, NOT_HEARD
from pilothouse.worlds.live.driver.outcomes import Outcomes
from pilothouse.worlds.live.driver.task_groups import CUT_S, NODE_LOST, Lot, order_of
from pilothouse.worlds.live.wire.messages import (
    Assignment,
    Bye,
    EngineFrame,
    Hello,
    Kill,
    Leave,
    Report,
    Start,
    Welcome,
)

ACK_WITHIN_S = 0.5


class Engagement(Outcomes):
    """The part of the driver that speaks with engines."""

    def hear(self, frame: EngineFrame, now: float) -> None:
        """A frame of an engine, or of its warden."""
        proxy = self.roster.engines.get(frame.engine)
        if proxy is None:
            self._hear_stranger(frame, now)
            return
        proxy.heard_at = now
        self._dirty[proxy.id] = None
        if frame.session == 0:
            self._hear_newcomer(proxy, frame, now)
            return
        if frame.session != self.session or not proxy.welcomed:
            proxy.speaks_at = now  # it must learn of this incarnation
            return
        if proxy.channel.take(frame.seq, frame.ack, now):
            proxy.speaks_at = min(proxy.speaks_at, now + ACK_WITHIN_S)
            for body in frame.bodies:
                if type(body) is Report:
                    self._report(proxy, body, now)
                elif type(body) is Bye:
                    self._goodbye(proxy, body, now)

    def _hear_stranger(self, frame: EngineFrame, now: float) -> None:
        hello = next((body for body in frame.bodies if type(body) is Hello), None)
        departed = self.roster.departed.get(frame.engine)
        if departed is not None and departed.state is ProxyState.GONE and frame.session == self.session:
            departed.speaks_at = now  # it has not heard that we know
            self._dirty[frame.engine] = None
        elif hello is None or departed is not None or self._too_late:
            self._dismissals.append(frame.engine)
        elif not self.start_commands_known():
            self._not_ready_for.append(frame.engine)  # it will say hello again
        else:
            held = 0
            for job_id in self._spanning:
                held |= self.lots[job_id].units.mask
            record = self.roster.describe(frame.engine, hello, now + self._unix_offset, held)
            self._record(record, now)
            proxy = self.roster.engines[frame.engine]
            proxy.ends_at = hello.ends_at - self._unix_offset
            self._welcome(proxy)
            if self._begun:
                self.events.append(e.NodesJoined(now, (proxy.node,)))
            if proxy.ends_at - now < self._least_time():
                self._close_for(proxy, "its allocation ends", now)
            limit = hello.properties.get("task_limit", "")
            if limit.isdigit():
                self._limits.setdefault(proxy.joined.context, int(limit))
            if self._limits.get(proxy.joined.context, 1) <= 0:
                self.ask_to_leave(proxy.id, "task limit of its context", now)

    @property
    def _too_late(self) -> bool:
        """Whether an engine that comes now would find nothing to do."""
        return bool(self._stopping) or self.over or self._parting_until != inf

    def start_commands_known(self) -> bool:
        """Whether the source has said all that an engine must run before its first task (a pipe may take its time)."""
        feeder = self.backlog.feeder
        if feeder is not None and not feeder.engine_lists_complete:
            feeder.look()
            return feeder.engine_lists_complete
        return True

    def _hear_newcomer(self, proxy: Proxy, frame: EngineFrame, now: float) -> None:
        """Hello of an engine that we know (it had not heard our welcome, or we were restarted), or a warden's last
        word.
        """
        for body in frame.bodies:
            if type(body) is Report:
                self._report(proxy, body, now)
            elif type(body) is Bye:
                self._goodbye(proxy, body, now)
            elif type(body) is Hello and not proxy.welcomed:
                proxy.step(ProxyStimulus.HEARD)
                proxy.ends_at = body.ends_at - self._unix_offset
                self._welcome(proxy)
                if proxy.closed_for == NOT_HEARD:
                    proxy.closed_for = ""
                    if self._begun:
                        self.events.append(e.UnitsAvailable(now, proxy.units))
                missing = [number for number in proxy.assignments if number not in body.held]
                for number in sorted(missing):
                    self._send_assignment(proxy, number, self._assignments[number])
                self._tell_what_it_missed(proxy)
                if body.leaving:
                    self.ask_to_leave(proxy.id, "it was leaving", now)

    def _tell_what_it_missed(self, proxy: Proxy) -> None:
        """What was asked of it before it was heard; after its assignments, or it would know nothing of them."""
        killed = [number for number in sorted(proxy.assignments) if self._assignments[number].kill_reason]
        for number in killed:
            proxy.channel.push(Kill((number,), self._assignments[number].kill_reason))
        if proxy.state is ProxyState.LEAVING:
            self._send_leave(proxy)

    def _welcome(self, proxy: Proxy) -> None:
        options, feeder = self.options, self.backlog.feeder
        proxy.welcomed = True
        proxy.channel.push(
            Welcome(
                rank=proxy.joined.rank,
                env={
                    **options.env,
                    "PILOTHOUSE_ENGINE": str(proxy.joined.rank),
                    "PILOTHOUSE_NODE": proxy.joined.node,
                    "DISBATCH_ENGINE_RANK": str(proxy.joined.rank),
                },
                task_env=options.task_env,
                # Many engines speak less often each, but always often enough not to be given up.
                heartbeat_s=min(max(options.heartbeat_s, len(self.roster.engines) / 500), options.lost_after_s / 4),
                wait_for_driver_s=options.wait_for_driver_s,
                grace_s=options.grace_s,
                first_unit=proxy.joined.first_unit,
                on_join=[order_of(line) for line in feeder.engine_start] if feeder else [],
                on_leave=[order_of(line) for line in feeder.engine_stop] if feeder else [],
            )
        )
        self._dirty[proxy.id] = None

    def _send_assignment(self, proxy: Proxy, number: int, lot: Lot) -> None:
        slots = tuple(IdSet(proxy.part(lot.units)))
        shape = lot.job.shape
        wanted = shape.gpus_per_node if shape is not None else 0
        if wanted and not lot.gpus:
            lot.gpus = tuple(proxy.free_gpus[:wanted])
            del proxy.free_gpus[:wanted]
        surroundings = lot.surroundings
        if lot.job.walltime != surroundings.walltime:
            surroundings = msgspec.structs.replace(surroundings, walltime=lot.job.walltime)
        assignment = Assignment(
            number, slots, list(lot.tasks.values()), surroundings, lot.gpus,
            self._nodes_of(lot.units) if lot.job.id in self._spanning or not lot.from_file else "",
            CUT_S if lot.size > 1 and proxy.joined.context not in self._limits else inf,
        )  # fmt: skip
        proxy.channel.push(Start([assignment]))
        self._dirty[proxy.id] = None

    def _nodes_of(self, units: IdSet) -> str:
        """`name:count` for each node of the set, in order."""
        parts = []
        rest = units
        while rest:
            proxy = self.roster.owner(rest.first())
            if proxy is None:  # it has left, and the job is about to be ended
                rest -= IdSet.of([rest.first()])
                continue
            parts.append(f"{proxy.node.name}:{len(rest & proxy.units)}")
            rest -= proxy.units
        return ",".join(parts)

    def ask_to_leave(self, engine: str, reason: str, now: float, *, at_once: bool = False) -> bool:
        """Soft shutdown: it finishes what it has (or is made to), then goes. False if there is no such engine."""
        proxy = self.roster.engines.get(engine)
        if proxy is None:
            return False
        self._close_for(proxy, reason, now)
        if proxy.state is not ProxyState.LEAVING or (at_once and not proxy.leaves_at_once):
            proxy.step(ProxyStimulus.ASKED_TO_LEAVE)
            proxy.leaves_at_once = at_once
            if proxy.welcomed:
                self._send_leave(proxy)
        return True

    def _send_leave(self, proxy: Proxy) -> None:
        """It knows only of what was assigned to itself: jobs of other engines that have units here as well are waited for."""
        if not proxy.leaves_at_once and any(self.lots[job_id].units.mask & proxy.node.mask for job_id in self._spanning):
            self._not_yet_told[proxy.id] = None
        else:
            self._not_yet_told.pop(proxy.id, None)
            proxy.channel.push(Leave(proxy.closed_for, proxy.leaves_at_once))
            self._dirty[proxy.id] = None

    def _tell_those_who_may_leave(self) -> None:
        for engine in list(self._not_yet_told):
            proxy = self.roster.engines.get(engine)
            if proxy is None:
                del self._not_yet_told[engine]
            elif proxy.welcomed:
                self._send_leave(proxy)

    def stop_context(self, context: str, reason: str, now: float) -> int:
        """Soft shutdown of all engines of a context; how many were asked."""
        members = [proxy.id for proxy in self.roster.engines.values() if proxy.joined.context == context]
        for engine in members:
            self.ask_to_leave(engine, reason, now)
        return len(members)

    def engine_vanished(self, engine: str, reason: str, now: float) -> None:
        """Whoever started it knows that its process is no more, and nobody spoke for it."""
        proxy = self.roster.engines.get(engine)
        if proxy is not None:
            self._engine_lost(proxy, reason, None, now)

    def _close_for(self, proxy: Proxy, reason: str, now: float) -> None:
        if proxy.closed_for == NOT_HEARD:
            proxy.closed_for = reason  # and it stays closed when it is heard
        elif not proxy.closed_for:
            proxy.closed_for = reason
            if self._begun and self._parting_until == inf:
                self.events.append(e.UnitsUnavailable(now, proxy.units))

    def _goodbye(self, proxy: Proxy, bye: Bye, now: float) -> None:
        proxy.speaks_at = now
        if bye.died:
            self._engine_lost(proxy, bye.reason, set(bye.begun), now)
        else:
            self._engine_lost(proxy, "", set(), now)

    def _engine_lost(self, proxy: Proxy, reason: str, begun: set[int] | None, now: float) -> None:
        """It is gone. What it had runs again, or is reported lost; `begun` (None: nobody knows) had been started."""
        for number in sorted(proxy.assignments):
            lot = self._assignments[number]
            for order in list(lot.tasks.values()):
                if begun is not None and order.task_id not in begun:
                    continue
                self._lose(lot, order, proxy, reason, now)
            self._release(lot, proxy, now)
            self._settle_lot(lot, proxy, reason, now)
        for job_id in [job_id for job_id in self._spanning if self.lots[job_id].units.mask & proxy.node.mask]:
            self._kill_lot(self.lots[job_id], NODE_LOST)
        lost = bool(reason)
        self._record(r.EngineLeft(proxy.id, now + self._unix_offset, reason or "done", lost), now)
        if self._begun and self._parting_until == inf:
            # When all work is done engines leave, which is no news for a decider.
            self.events.append(e.NodesLeft(now, (proxy.node.name,), proxy.units, may_return=lost))
        if proxy.state is ProxyState.LOST:
            self._dismissals.append(proxy.id)

    def _keep_within_limit(self, proxy: Proxy, lot: Lot) -> None:
        """A bundle that is larger than what its context may still be given is cut: the rest waits for others."""
        most = self._limits.get(proxy.joined.context)
        if most is not None and lot.from_file:
            for order in list(lot.tasks.values())[most:]:
                self.backlog.give_back(lot.tasks.pop(order.task_id))

    def _count_limit(self, proxy: Proxy, tasks: int, now: float) -> None:
        """Specification, Driver: a context that was given its limit of tasks is shut down."""
        proxy.given += tasks
        context = proxy.joined.context
        if context in self._limits:
            self._record(r.Note(f"{LIMIT}{context}", str(self._limits[context] - tasks).encode()), now)
            if self._limits[context] <= 0:
                self.stop_context(context, "task limit of its context", now)

    def _spent(self, proxy: Proxy) -> bool:
        """Whether its context has been given all the tasks that it may have."""
        return self._limits.get(proxy.joined.context, 1) <= 0

    def _least_time(self) -> float:
        """What a task needs before the end of an allocation: its walltime, or what tasks have taken so far."""
        if self.options.walltime != inf:
            return self.options.walltime + self.options.grace_s
        mean_s = self.backlog.pace.mean_s
        return self.options.grace_s + (mean_s if mean_s != inf else 0.0)
