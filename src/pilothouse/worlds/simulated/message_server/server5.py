"""The message server of Batsim 5: what differs from the server in control.py, which has Batsim 4's ways.

The first message waits for the submitters that are already there; what the decider orders is judged when it is handled,
registrations too; a separate actor keeps periodic calls and probes, and the server is busy for one message whenever it
talks to it: to add, to stop, and once at the end. Some facts carry a stale date (see STALE). Machines stay "computing"
after a job, until they are switched.

Comes in and goes out: as in control.py. Orders are in batsim5_orders.py, periodic things in batsim5_periodic.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.simulated.message_server import decisions5 as orders
from pilothouse.worlds.simulated.message_server.machine_book import Machine, MachineBook
from pilothouse.worlds.simulated.message_server.periodic import Periodic
from pilothouse.worlds.simulated.message_server.rounded_agenda import RoundedAgenda
from pilothouse.worlds.simulated.message_server.rounds import (
    Actor,
    Command,
    Cost,
    Mailbox,
    exchange,
    receive,
    send,
    sleep,
    spawn,
    turn,
)
from pilothouse.worlds.simulated.message_server.server import Known, Rules, Server, Source, Watcher
from pilothouse.worlds.simulated.message_server.sources import JobSource
from pilothouse.worlds.simulated.message_server.stepped_agenda import SteppedAgenda
from pilothouse.worlds.simulated.physics.execution import Run
from pilothouse.worlds.simulated.physics.machines import Machines, MachineState
from pilothouse.worlds.simulated.physics.platform import MASTER, Platform
from pilothouse.worlds.simulated.physics.sharing import Flow

STALE: frozenset[type] = frozenset((e.ExternalEvent, e.PowerStateChanged, e.UnitsSwitched, e.JobsKilled))
"""QUIRK: these facts are dated like the last message or the last fact of another kind (pinned by tests/golden)."""

RULES = Rules(stale_dates=STALE, checks_allocations=False, late_call_is_wrong=False, meters_take_turns=False)


def _unheard(_: Flow) -> None:
    """The message is only thought of."""


class Batsim5Machines(MachineBook):
    """QUIRK: a machine is not idle again after its last job; its time is added up at each start of a job."""

    def __init__(self, nodes: Sequence[Node], storage: Sequence[Node] = ()) -> None:
        super().__init__(nodes, storage)
        self.unable_mask = 0
        """The machines that cannot compute now: asleep, or on their way."""

    def to(self, machine: Machine, state: MachineState, now: float) -> None:
        super().to(machine, state, now)
        if state is MachineState.IDLE or state is MachineState.COMPUTING:
            self.unable_mask &= ~(1 << machine.number)
        else:
            self.unable_mask |= 1 << machine.number

    def occupy(self, units: IdSet, job_id: str, now: float) -> None:
        busy_s = 0.0
        for first, last in units.intervals():
            for machine in self.machines[first : last + 1]:
                if machine.state is MachineState.COMPUTING:
                    busy_s += now - machine.since
                    machine.since = now
                else:
                    self.to(machine, MachineState.COMPUTING, now)
                machine.users.append(job_id)
        self.seconds[MachineState.COMPUTING] += busy_s

    def release(self, units: IdSet, job_id: str, now: float) -> None:
        for first, last in units.intervals():
            for machine in self.machines[first : last + 1]:
                machine.users.remove(job_id)


class Batsim5JobSource(JobSource):
    """The jobs of one workload. With energy, the first submission asks each host for its energy."""

    def __init__(self, jobs: Iterable[Job], before_first: Callable[[], int] | None = None) -> None:
        super().__init__(jobs)
        self._before_first = before_first

    def actor(self, server: Server) -> Actor:
        plain = super().actor(server)
        yield next(plain)  # the hello
        if self.jobs and self._before_first is not None and self.jobs[0].submitted_at <= server.agenda.now:
            yield from self._ask()
        while True:
            try:
                command = plain.send(None)
            except StopIteration:
                return
            yield command

    def _ask(self) -> Generator[Command, Any, None]:
        assert self._before_first is not None
        # QUIRK: each question takes a turn, so at one date the jobs come behind what the decider orders first.
        for _ in range(self._before_first()):
            yield turn()


class Batsim5Server(Server):
    """The state of a Batsim 5, and the actor that serves its mailbox."""

    def __init__(
        self,
        begins: e.Begins,
        sources: Sequence[Source],
        platform: Platform,
        *,
        watcher: Watcher | None = None,
        decider: str = "EDC",
        strict: d.Wants | None = None,
        exact_ties: bool = True,
    ) -> None:
        super().__init__(
            begins,
            sources,
            platform,
            rules=RULES,
            watcher=watcher,
            decider=decider,
            agenda=SteppedAgenda() if exact_ties else RoundedAgenda(),
        )
        self.machines: Batsim5Machines = Batsim5Machines(begins.nodes, begins.storage)
        self._lingering: dict[str, Flow] = {}
        """QUIRK: a parallel task that reached its walltime stays on hosts and links until the job is forgotten."""
        demands = self.physics.demands
        demands.ranks_report = False
        if isinstance(self.agenda, SteppedAgenda):
            demands.alarm = self.agenda.alarm
        demands.linger = self._lingering.__setitem__
        self.strict = strict
        self.decide: Callable[[e.Batch], d.Reply] | None = None
        """Asks the decider without leaving the simulation; None: batches are handed out by the world around."""
        self.findable: set[str] = set(self.profiles)
        """Profiles that a new job may name: those that have not been collected."""
        self.calls: set[str] = set()
        """The ids of calls that are still to come, once each."""
        self.periodic = Periodic(self)
        self._costs: dict[int, Cost] = {}
        self._say_ready = send(self.mailbox, (self._on_ready, None), self.costs.from_master)
        self._keeper = Mailbox()
        self.stopped = False
        self.warnings: list[str] = []

    def refuse(self, rule: str, detail: str) -> DecisionError:
        """The error for the order that is being handled; the detail is what the peer's users look for."""
        return DecisionError(self.decider, self.order_index, rule, detail)

    def set_power_state(self, unit: int, power_state: int) -> None:
        """Power states work without energy too."""
        physics = self.physics
        if physics.machines is None:
            physics.machines = Machines(physics, energy=False)
        self.machines[unit].power_state = power_state
        physics.machines.set_pstate(IdSet(1 << unit), power_state)

    def tell_keeper(self, then: Callable[[], None]) -> Actor:
        """The server sends a message itself, to the keeper of periodic things, and waits until it is there."""
        yield send(self._keeper, then, self.costs.from_master)

    def _keep(self) -> Actor:
        """The keeper: does what the server tells it to."""
        while True:
            then = yield receive(self._keeper)
            then()

    # ---- the actor

    def serve(self) -> Actor:
        mailbox = self.mailbox
        listen = receive(mailbox)
        self.watcher.began(self)
        self.rounds.start(self._keep())
        yield turn()
        self.tell(e.Began(self.begins.started_at, self.begins))
        self._ready = True
        while not self.ended:
            if self.stopped and not self._end_told:
                self._told.clear()
                self._ready = True
                yield from self._say_end()
                mailbox.waiting.clear()
                yield self._speak()
            elif self._ready and not self._end_told and not mailbox.waiting:
                if not self._told and self._is_over():
                    yield from self._say_end()
                if self._told:
                    yield self._speak()
            handler, argument = yield listen
            started = handler(argument)
            if started is None:
                pass
            elif isinstance(started, Generator):
                yield from started
            else:
                for actor in started:
                    yield spawn(actor)
        self.rounds.stop()

    def _say_end(self) -> Generator[Command, Any, None]:
        """The keeper of periodic things is told first."""
        yield from self.tell_keeper(lambda: None)
        self.tell(e.Ended(self.agenda.now))
        self._end_told = True

    def _speak(self) -> Command:
        self._told_at = self.agenda.now
        for job_id in self._over_and_told:
            self._collect(self.jobs[job_id].job)
            if self._lingering and (flow := self._lingering.pop(job_id, None)) is not None:
                self.physics.stop_flow(flow)
        return super()._speak()

    def _collect(self, job: Job) -> None:
        """QUIRK: without reuse a profile is gone as soon as one job that uses it has ended, not the last one."""
        begins = self.begins
        if job.profile is not None and not (begins.dynamic_registration and begins.profile_reuse):
            self.findable.discard(job.profile.name)

    def _converse(self, batch: e.Batch) -> Actor:
        agenda, mailbox, cost = self.agenda, self.mailbox, self.costs.from_master
        reply: d.Reply
        if self.decide is None:
            reply = yield exchange(batch)
        else:
            reply = self.decide(batch)
        for index, order in enumerate(reply.decisions):
            if order.at > agenda.now:
                yield sleep(order.at - agenda.now)
            yield send(mailbox, (self._on_order, (index, order)), cost)
        if reply.now > agenda.now:
            yield sleep(reply.now - agenda.now)
        yield self._say_ready

    def _on_order(self, indexed: tuple[int, d.Decision]) -> Any:
        if self.stopped:
            return None
        self.order_index, order = indexed
        handler = orders.HANDLERS.get(type(order))
        if handler is None:
            raise self.refuse("unhandled", f"Unhandled event type: {type(order).__name__}")
        return handler(self, order)

    def on_submitted(self, submitted: tuple[list[Job], Any]) -> None:
        now = self.agenda.now
        for job in submitted[0]:
            self.jobs[job.id] = Known(job)
            self.unfinished += 1
            self.tell(e.JobSubmitted(now, job))

    def start(self, known: Known, run: Run) -> Sequence[Actor]:
        """Starts a job at once, without an actor of its own."""
        known.run = run
        known.state = JobState.RUNNING
        self.machines.occupy(run.units, run.job.id, self.agenda.now)
        self.watcher.job_started(self, known)
        self.physics.start(run)
        return ()

    def _leave(self, known: Known, state: JobState, return_code: int) -> Actor:
        if state is JobState.FAILED and return_code < 0:
            # QUIRK: a profile's own return code is taken for Batsim's own codes.
            if return_code < -2:
                raise self.refuse("return code", f"Job '{known.job.id}': unknown return code {return_code}")
            state = JobState.TIMED_OUT if return_code == -1 else JobState.KILLED
        run = known.run
        if run is None or known.state is not JobState.RUNNING:
            return  # It was killed in the same round.
        self.release(known, state, return_code)
        unit = run.units.first()
        cost = self._costs.get(unit)
        if cost is None:
            cost = self._costs[unit] = self.costs.from_unit(unit)
        if self.physics.fluid.busy:
            cost = self._among_flows(unit, cost)
        yield send(self.mailbox, (self._on_ended, known), cost)

    def _among_flows(self, unit: int, cost: Cost) -> Cost:
        """What a message costs while parallel tasks use the same links: its byte gets its share of them."""
        physics = self.physics
        message = physics.demands.message(unit, MASTER, 1.0, _unheard)
        return Cost(cost.latency_s, physics.fluid.rate_of_newcomer(message))

    def stop(self) -> None:
        """Everything ends; jobs that run leave no trace."""
        self.stopped = True
        self.periodic.clear()
        for known in self.jobs.values():
            if known.state is JobState.RUNNING and known.run is not None:
                self.physics.kill(known.run)
                known.state = JobState.KILLED
