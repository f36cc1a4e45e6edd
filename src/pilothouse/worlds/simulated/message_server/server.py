"""A simulated world behind a message server: every notification costs simulated time, as in the real Batsim.

Holds the server of a Batsim (one actor that receives one message at a time on the master host) and the actors that send
to it: submitters, the answers of the decider, ends of jobs, calls, kills. The physics is the same as in world.py; only
the dates at which the decider hears of things, and at which its orders take effect, differ. Comes in: sources of jobs
and events, the cost of a message from each unit, orders. Goes out: batches, and a record of each job.

The server takes messages first in, first out; a transfer costs the latency of the sender's route to the master plus one
byte over its bandwidth, and starts only when the server comes back for it. After each message the server writes to the
decider if the decider is ready, no other message waits, and there is something to tell. The orders of a reply are
messages too, each not before its own date, and one more message makes the decider ready again.

Orders are judged when the server handles them (control_orders.py), against the true state at that date, because that is
when they take effect: an order for later may rely on something that ends in between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError, InputError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Profile
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.message_server import decisions4 as orders
from pilothouse.worlds.simulated.message_server.machine_book import MachineBook
from pilothouse.worlds.simulated.message_server.parts import Known, MessageCosts, Rules, Source, Watcher
from pilothouse.worlds.simulated.message_server.rounded_agenda import RoundedAgenda
from pilothouse.worlds.simulated.message_server.rounds import (
    FREE,
    Actor,
    Command,
    Mailbox,
    Rounds,
    Wait,
    post,
    receive,
    send,
    sleep,
    spawn,
    turn,
)
from pilothouse.worlds.simulated.message_server.sources import JobSource
from pilothouse.worlds.simulated.message_server.stepped_agenda import SteppedAgenda
from pilothouse.worlds.simulated.message_server.workflow import WorkflowSource
from pilothouse.worlds.simulated.physics.execution import Physics, Run
from pilothouse.worlds.simulated.physics.platform import Platform

__all__ = ["ControlledWorld", "Known", "MessageCosts", "Rules", "Server", "Source", "Watcher"]

_SEND, _EXCHANGE = Wait.SEND, Wait.EXCHANGE

Handler = Callable[[Any], Sequence[Actor] | Actor | None]
"""What the server does with a message; it may start actors, or have to wait (then it is an actor itself)."""


class Server:
    """The state of the resource manager, and the actor that serves its mailbox."""

    def __init__(
        self,
        begins: e.Begins,
        sources: Sequence[Source],
        platform: Platform,
        *,
        rules: Rules | None = None,
        watcher: Watcher | None = None,
        decider: str = "scheduler",
        agenda: SteppedAgenda | RoundedAgenda | None = None,
    ) -> None:
        self.begins = begins
        self.costs = MessageCosts.of(platform)
        self._from_master = self.costs.from_master
        self.rules = rules or Rules()
        self._stale_dates = self.rules.stale_dates
        self.watcher = watcher or Watcher()
        self.decider = decider
        self.agenda = SteppedAgenda() if agenda is None else agenda
        self.rounds = Rounds(self.agenda)
        self.mailbox = Mailbox()
        self._is_ready = self.send(self._on_ready)
        self.jobs: dict[str, Known] = {}
        self.met = {job.id for source in sources if isinstance(source, JobSource) for job in source.jobs}
        """Every job that was ever heard of: no id is given twice."""
        self.profiles: dict[str, Profile] = dict(begins.profiles)
        self.physics = Physics(
            self.agenda,
            self._on_run_ended,
            platform,
            profiles=self.profiles,
            energy=begins.energy,
            tells=self._on_job_speaks,
        )
        self.profile_users: dict[str, int] = {}
        """Of each registered profile, how many jobs and profiles need it; when nobody does any more, it is forgotten."""
        self.hidden_profiles: set[str] = set()
        """Profiles that no new job may have."""
        self._collected: list[Profile] = []
        self.workloads: set[str] = set(begins.workloads)
        self.machines = MachineBook(begins.nodes, begins.storage)
        self.registering = begins.dynamic_registration
        self.sources = sources
        self.silent_job_sources = sum(source.tells_jobs for source in sources)
        self.open_workflows = sum(isinstance(source, WorkflowSource) for source in sources)
        self.silent_event_sources = len(sources) - self.silent_job_sources
        self.unfinished = 0
        """Jobs that were submitted and are neither over nor refused."""
        self.pending = 0
        """Calls, kills, switches and probes that are under way: the run is not over before they are."""
        self.order_index = 0
        self._meters_read_at: dict[int, float] = {}
        self._told: list[e.Event] = []
        self._told_at = 0.0
        self._over_and_told: list[str] = []
        self._ready = False
        self._end_told = False
        self.ended = False

    def energy_j(self, units: IdSet | None = None) -> float:
        """Joules since 0 of these machines; None: of all."""
        assert self.physics.machines is not None
        return self.physics.machines.energy_j(units)

    def read_meters(self, units: IdSet) -> Generator[Command, Any, None]:
        """The turns that Batsim 4 spends on reading the meters of these machines, then of all.

        A meter that has not been read at this date costs a turn. No time passes, but messages of others get ahead.
        """
        now = self.agenda.now
        if not self.begins.energy or not self.rules.meters_take_turns:
            return
        for unit in (*units, *range(len(self.machines))):
            if self._meters_read_at.get(unit) != now:
                yield turn(partial(self._meters_read_at.__setitem__, unit, now))

    def speed(self, unit: int, power_state: int) -> float:
        """Flop/s of one core of a machine in a power state."""
        nodes = self.begins.nodes
        return (nodes[unit] if unit < len(nodes) else self.begins.storage[unit - len(nodes)]).speeds[power_state]

    def new_known(self, job: Job, origin: Mailbox | None = None) -> Known:
        return Known(job, origin=origin)

    # ---- facts

    def tell(self, fact: e.Event) -> None:
        """Adds a fact, dated now, to what the decider will hear next."""
        if self._stale_dates and type(fact) in self._stale_dates:
            fact.at = self._told_at
        else:
            self._told_at = self.agenda.now
        self._told.append(fact)

    def send(self, handler: Handler, argument: object = None, *, unit: int | None = None) -> Command:
        """A message to the server, from a unit or from the master."""
        cost = self._from_master if unit is None else self.costs.from_unit(unit)
        return (_SEND, self.mailbox, (handler, argument), cost)

    def refuse(self, rule: str, detail: str) -> DecisionError:
        """The error for the order that is being handled."""
        return DecisionError(self.decider, self.order_index, rule, f"{detail} (at {self.agenda.now:f})")

    # ---- the actor

    def serve(self) -> Actor:
        """The server itself: one message after the other until the end has been told and heard."""
        mailbox = self.mailbox
        next_message = receive(mailbox)
        yield from self._begin()
        while not self.ended:
            handler, argument = yield next_message
            started = handler(argument)
            if started is None:
                pass
            elif isinstance(started, (list, tuple)):
                for actor in started:
                    yield spawn(actor)
            else:
                yield from started
            if self._ready and not self._end_told and not mailbox.waiting:
                if not self._told and self._is_over():
                    self.tell(e.Ended(self.agenda.now))
                    self._end_told = True
                if self._told:
                    yield self._speak()
        self.rounds.stop()

    def _begin(self) -> Generator[Command, Any, None]:
        if self.rules.first_message_waits:
            self.rounds.start(self._hello())
            yield receive(self.mailbox)
        self.watcher.began(self)
        self.tell(e.Began(self.begins.started_at, self.begins))
        yield self._speak()

    def _hello(self) -> Actor:
        yield self.send(self.on_hello)

    def _speak(self) -> Command:
        batch = e.Batch(self.agenda.now, self._told)
        self._told = []
        self._ready = False
        if self._over_and_told:
            over = [self.jobs.pop(job_id).job.profile for job_id in self._over_and_told]
            self._over_and_told.clear()
            if self.begins.dynamic_registration and not self.begins.profile_reuse:
                self._collected += [profile for profile in over if profile is not None]
        return spawn(self._converse(batch))

    def _converse(self, batch: e.Batch) -> Actor:
        """Hands the batch to the decider and its orders to the server."""
        agenda = self.agenda
        reply: d.Reply = yield (_EXCHANGE, batch, None, 0.0)
        while self._collected:
            orders.collect(self, self._collected.pop())
        for index, order in enumerate(reply.decisions):
            if type(order) in orders.NOTED:
                self.order_index = index
                orders.note(self, order)
            if order.at > agenda.now:
                yield sleep(order.at - agenda.now)
            yield self.send(self._on_order, (index, order))
        if reply.now > agenda.now:
            yield sleep(reply.now - agenda.now)
        yield self._is_ready

    def _is_over(self) -> bool:
        return not (
            self.silent_job_sources or self.silent_event_sources or self.unfinished or self.pending or self.registering
        )

    # ---- what messages do

    def on_hello(self, _: object) -> None:
        """A source is there; nothing depends on it."""

    def on_bye(self, source: Source) -> None:
        self.open_workflows -= isinstance(source, WorkflowSource)
        if source.tells_jobs:
            self.silent_job_sources -= 1
            if not self.silent_job_sources:
                self.tell(e.NoMoreJobs(self.agenda.now))
        else:
            self.silent_event_sources -= 1
            if not self.silent_event_sources:
                self.tell(e.NoMoreExternalEvents(self.agenda.now))

    def _on_ready(self, _: object) -> None:
        self._ready = True
        if self._end_told:
            self.ended = True

    def _on_order(self, indexed: tuple[int, d.Decision]) -> Sequence[Actor] | None:
        self.order_index, order = indexed
        return orders.HANDLERS[type(order)](self, order)

    def on_submitted(self, submitted: tuple[list[Job], Mailbox | None]) -> None:
        if self.rules.ends_with_workflows and not self.open_workflows:
            return
        jobs, origin = submitted
        for job in jobs:
            self.jobs[job.id] = Known(job, origin=origin)
            self.unfinished += 1
            self.tell(e.JobSubmitted(self.agenda.now, job))

    def on_external(self, facts: list[e.Event]) -> None:
        for fact in facts:
            if isinstance(fact, e.UnitsUnavailable | e.UnitsAvailable) and fact.units.mask >> len(self.machines):
                raise InputError("external events", f"there are no machines {fact.units}: {len(self.machines)} exist")
            if type(fact) is e.UnitsUnavailable:
                self._refuse_change("unavailable", self.machines.go_away(fact.units, self.agenda.now))
            elif type(fact) is e.UnitsAvailable:
                self._refuse_change("available", self.machines.come_back(fact.units, self.agenda.now))
            fact.at = self.agenda.now
            self.tell(fact)

    def _refuse_change(self, state: str, already: IdSet) -> None:
        if already:
            raise InputError("external events", f"{already} become {state} at {self.agenda.now:f}, and are so already")

    # ---- runs

    def start(self, known: Known, run: Run) -> Sequence[Actor]:
        """Starts a job: it runs from now on."""
        known.run = run
        known.state = JobState.RUNNING
        return [self._run(known, run)]

    def _run(self, known: Known, run: Run) -> Actor:
        self.machines.occupy(run.units, run.job.id, self.agenda.now)
        if self.begins.energy:
            yield from self.read_meters(run.units)
        self.watcher.job_started(self, known)
        self.physics.start(run)

    def _on_run_ended(self, run: Run, state: JobState, return_code: int) -> None:
        """The physics says that a job is over by itself."""
        self.rounds.start(self._leave(self.jobs[run.job.id], state, return_code))

    def _on_job_speaks(self, run: Run, message: msgspec.Raw, heard: Callable[[], None]) -> None:
        self.rounds.start(self._speaker(run, message, heard))

    def _speaker(self, run: Run, message: msgspec.Raw, heard: Callable[[], None]) -> Actor:
        """A job waits until the server has got its message."""
        fact = e.JobMessage(self.agenda.now, run.job.id, message)
        yield self.send(self._on_job_message, fact, unit=run.units.first())
        heard()

    def _on_job_message(self, fact: e.JobMessage) -> None:
        fact.at = self.agenda.now
        self.tell(fact)

    def _leave(self, known: Known, state: JobState, return_code: int) -> Actor:
        run = known.run
        if run is None or known.state is not JobState.RUNNING:
            return  # It was killed in the same round.
        if run.task_was_cut:
            yield turn()  # Cancelling the task.
        self.release(known, state, return_code)
        if self.begins.energy:
            yield from self.read_meters(run.units)
        yield self.send(self._on_ended, known, unit=run.units.first())

    def release(self, known: Known, state: JobState, return_code: int) -> None:
        """A job gives its units back."""
        run = known.run
        assert run is not None
        known.state = state
        known.return_code = return_code
        known.ended_at = self.agenda.now
        self.machines.release(run.units, run.job.id, self.agenda.now)
        self.watcher.job_left(self, known)

    def _on_ended(self, known: Known) -> Actor | None:
        if known.origin is not None:
            return self._call_back(known, known.origin)
        self.over(known)
        return None

    def _call_back(self, known: Known, origin: Mailbox) -> Actor:
        """Whoever submitted the job is told first, and the server waits for it."""
        cost = self.costs.from_master
        if origin.receiver is not None:
            yield send(origin, known.job.id, cost)
        else:
            yield sleep(cost.latency_s + 1.0 / cost.bandwidth)
            yield post(origin, known.job.id, FREE)
        self.over(known)

    def over(self, known: Known) -> None:
        """The server hears that a job is over: the decider will, and it is forgotten once the decider knows."""
        units = known.run.units if known.run is not None else IdSet()
        self.tell(e.JobEnded(self.agenda.now, known.job.id, known.state, known.return_code, units))
        self.forget(known)

    def forget(self, known: Known) -> None:
        """Records a job that is over or refused."""
        run = known.run
        record = JobRecord(
            known.job,
            known.state,
            None if run is None else run.started_at,
            known.ended_at if run is not None else self.agenda.now,
            IdSet() if run is None else run.units,
            known.return_code,
            known.energy_j,
            known.metadata,
        )
        self.unfinished -= 1
        self._over_and_told.append(known.job.id)
        self.watcher.job_over(record)

    def run_all_at_once(self, jobs: Iterable[Job]) -> None:
        """No decider and no messages: every job starts at 0 on the first machines, whoever else is there."""
        self.watcher.began(self)
        for job in jobs:
            run = Run(job, IdSet.span(0, job.units), 0.0)
            known = self.jobs[job.id] = Known(job, JobState.RUNNING, run)
            self.rounds.start(self._run(known, run))
        for _ in self.rounds.run():
            raise AssertionError("nobody asks a decider here")


class ControlledWorld:
    """The World around a Server. Same input, same events, same dates."""

    name = "sim"

    def __init__(self, server: Server) -> None:
        self.server = server
        self._conversation: Generator[e.Batch, d.Reply, None] | None = None
        self._reply: d.Reply | None = None
        self._over = False

    def begin(self, wants: d.Wants) -> e.Begins:
        wishes = {
            name: wish
            for name in ("dynamic_registration", "acknowledge_registration", "profile_reuse", "forward_profiles")
            if (wish := getattr(wants, name)) is not None
        }
        server = self.server
        server.begins = msgspec.structs.replace(server.begins, **wishes)
        server.registering = server.begins.dynamic_registration
        return server.begins

    def advance(self) -> e.Batch | None:
        """The next message to the decider. A run that can go nowhere ends with a batch that says who waits in vain."""
        if self._over:
            return None
        server = self.server
        try:
            if self._conversation is None:
                for source in server.sources:
                    server.rounds.start(source.actor(server))
                server.rounds.start(server.serve())
                self._conversation = server.rounds.run()
                return next(self._conversation)
            assert self._reply is not None, "advance() before the reply to the last batch"
            reply, self._reply = self._reply, None
            return self._conversation.send(reply)
        except StopIteration:
            self._over = True
        if server.ended:
            return None
        now = server.agenda.now
        waiting = tuple(known.job.id for known in server.jobs.values() if known.state is JobState.WAITING)
        reason = "registration was never finished" if server.registering else "nothing can happen any more"
        return e.Batch(now, [e.Ended(now, waiting, reason)])

    def apply(self, reply: d.Reply) -> None:
        self._reply = reply

    def watch(self, fd: int) -> None:
        """Simulated time waits for the decider, so there is nothing to watch."""

    def close(self) -> None:
        """Nothing is held open."""
