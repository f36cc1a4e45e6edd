"""The work of a manager: what is ready, what runs, and what follows when something ends.

Accepted jobs come in by `enter`; what is ready is handed out in order of arrival by `feed`, a few at a time, and loops
are taken apart only then. The world's facts (`allocated`, `launched`, `ended`, `refused`) move jobs along and set
others free that waited for them. Publications, reports and orders are left in the outbox, which whoever runs the
manager carries out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from math import inf

import msgspec

from pilothouse.dropins.qcg.answers import Usage, duration_text
from pilothouse.dropins.qcg.dependencies import Dependencies, Place, Verdict
from pilothouse.dropins.qcg.layout import Layout
from pilothouse.dropins.qcg.registry import Entry, Life, Registry, Runtime, split_name, state_name
from pilothouse.formats.qcg_description import Dialect
from pilothouse.formats.qcg_requests import Planned
from pilothouse.formats.qcg_workload import Request, Sizing, Totals, Unfit
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import ENDS, FINAL, JobState, Stimulus

WINDOW = 4096
"""How many jobs may wait in the world at once; the others wait here."""
RENUMBERED = 64
"""How far into the queue positions are kept up to date."""


class Outbox(msgspec.Struct):
    """What the manager wants done."""

    publications: list[tuple[str, dict[str, object]]] = []
    """(topic, event): IST, IFI, JST, JFI, NOJ."""
    accepted: list[Entry] = []
    finished: list[Place] = []
    """Jobs and iterations that have ended, in order: to be reported and tracked."""
    removed: list[str] = []
    kill: list[str] = []
    withdraw: list[str] = []


class Past(msgspec.Struct, frozen=True):
    """How a job ended in an earlier life of the manager; what is not known is empty."""

    state: JobState
    allocation: str = ""
    counts: str = ""
    started_at: float = 0.0
    ended_at: float = 0.0
    return_code: int = 0
    pid: int = -1
    wd: str = ""


class Work:
    """Everything between the acceptance of a job and its end."""

    def __init__(self, instance: str, nodes: tuple[Node, ...], *, reserved: int = 0) -> None:
        self.registry = Registry()
        self.layout = Layout(nodes)
        self.totals = Totals.of(nodes)
        self._instance = instance
        self._reserved = reserved
        """Cores of the allocation that no job gets: they count as used."""
        self._dependencies = Dependencies(self.registry)
        self._ready: list[tuple[int, int, Entry, bool]] = []
        """(arrival, index, job, whether the indexes after this one follow)."""
        self.ready = 0
        """How many jobs and iterations these are."""
        self._sizings: dict[int, Sizing] = {}
        self._in_world: dict[str, Place] = {}
        self._units: dict[str, IdSet] = {}
        self._started_at: dict[str, float] = {}
        self._cancelling: set[str] = set()
        self._waiting: dict[int, Entry] = {}
        self._last_started = 0
        self._reused: set[str] = set()
        self._hopeless: list[Place] = []
        self._none_left = False
        self.tells = True
        """Whether anybody wants publications."""
        self.outbox = Outbox()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Each node once; one whose engine was replaced is `name#2` from then on."""
        return tuple({node.name.partition("#")[0]: node for node in self.layout.nodes}.values())

    def joined(self, nodes: tuple[Node, ...]) -> None:
        """Nodes that come late, or come again."""
        self.layout.add(nodes)
        self.totals = Totals.of(self.nodes)

    # ---- what the runner asks

    def take(self) -> Outbox:
        outbox, self.outbox = self.outbox, Outbox()
        return outbox

    @property
    def all_finished(self) -> bool:
        return self.registry.unfinished == 0

    @property
    def usage(self) -> Usage:
        used = 0
        for units in self._units.values():
            used |= units.mask
        return Usage(self.totals.nodes, self.totals.cores + self._reserved, used.bit_count() + self._reserved)

    @property
    def busy(self) -> bool:
        """Something has cores."""
        return bool(self._units)

    @property
    def idle(self) -> bool:
        """Nothing is in the world, and nothing could be handed to it."""
        return not self._in_world and not self._ready

    def place_of(self, job_id: str) -> Place | None:
        """The job or iteration that the world knows by that id, as long as it is there."""
        return self._in_world.get(job_id)

    # ---- coming and going

    def enter(self, jobs: list[Planned], now: float) -> list[Entry]:
        """Accepted jobs. All are registered before any is judged: they may wait for each other in any order.

        Those that wait in vain are omitted with the next `feed`, so that the answer comes first.
        """
        entries = [self._register(planned, now) for planned in jobs]
        for entry in entries:
            for place, verdict in self._dependencies.enter(entry):
                self._judged(place, verdict)
        return entries

    def _register(self, planned: Planned, now: float) -> Entry:
        entry = self.registry.add(planned, now)
        if planned.loop_free and planned.description.iteration is not None:
            entry.open_parts(planned.description.iteration)
        entry.life.step(Stimulus.QUEUED, now)
        entry.queue_position = len(self._waiting)
        self._waiting[entry.number] = entry
        self.outbox.accepted.append(entry)
        return entry

    def remove(self, entry: Entry) -> None:
        """Forgets a job that has ended."""
        self.registry.remove(entry.name)
        self._reused.add(entry.name)
        self.outbox.removed.append(entry.name)

    def cancel(self, entry: Entry, index: int | None, now: float) -> None:
        """Cancels a job with all its iterations, or one iteration. What runs is killed, and ends when it has ended."""
        if index is not None or entry.parts is None:
            self._cancel_one((entry, index), now)
        else:
            entry.cancelled = True
            for part in range(entry.parts.iteration.start, entry.parts.iteration.stop):
                if entry.state_of(part) not in FINAL:
                    self._cancel_one((entry, part), now)
        self._settle(now)

    def _cancel_one(self, place: Place, now: float) -> None:
        entry, index = place
        job_id = self._world_id(entry, index)
        if entry.state_of(index) in (JobState.STARTING, JobState.RUNNING):
            if job_id not in self._cancelling:
                self._cancelling.add(job_id)
                self.outbox.kill.append(job_id)
            return
        if self._in_world.pop(job_id, None) is not None:
            self.outbox.withdraw.append(job_id)
        self._dependencies.forget(place)
        self._end(place, Stimulus.KILLED, now)

    # ---- what is ready

    def _judged(self, place: Place, verdict: Verdict) -> None:
        entry, index = place
        if verdict is Verdict.NEVER:
            # Not at once: a long chain of jobs would be as many calls deep.
            self._hopeless.append(place)
        elif entry.parts is not None and index is None:
            self.ready += len(entry.parts.iteration)
            heapq.heappush(self._ready, (entry.number, entry.parts.iteration.start, entry, True))
        else:
            self.ready += 1
            heapq.heappush(self._ready, (entry.number, 0 if index is None else index, entry, False))

    def _omit(self, place: Place, now: float, message: str | None = None) -> None:
        entry, index = place
        if message is not None:
            entry.life_of(index).say(message)
        if index is None and entry.parts is not None:
            entry.parts.close(JobState.OMITTED)
        self._end(place, Stimulus.OMITTED, now)

    def feed(self, room: int, now: float, narrow_room: int = WINDOW) -> list[Job]:
        """The next jobs for the world, in order of arrival, at most `room`; loops are expanded here.

        `narrow_room` is how many jobs of one core are worth handing out: while one of those waits no core is free, so
        nothing behind it could start.
        """
        jobs: list[Job] = []
        self._omit_hopeless(now)
        while self._ready and len(jobs) < room and narrow_room > 0:
            number, index, entry, whole_loop = heapq.heappop(self._ready)
            self.ready -= 1
            loop = entry.parts.iteration if entry.parts is not None else None
            if whole_loop and loop is not None and index + 1 < loop.stop:
                heapq.heappush(self._ready, (number, index + 1, entry, True))
            place: Place = (entry, index if loop is not None else None)
            if entry.life.final or entry.state_of(place[1]) in FINAL or self._world_id(*place) in self._in_world:
                continue
            asked = self._asked(place, now)
            if asked is not None:
                jobs.append(self._world_job(place, asked))
                narrow_room -= asked.units == 1 and asked.shape is None
        self._settle(now)
        return jobs

    def _asked(self, place: Place, now: float) -> Request | None:
        """What it asks for; None if that can never be given, and it has failed for that reason."""
        entry, index = place
        try:
            sizing = self._sizings.get(entry.number)
            if sizing is None:
                sizing = Sizing(entry.description, self.totals)
                if entry.parts is not None:
                    self._sizings[entry.number] = sizing
            start = entry.parts.iteration.start if entry.parts is not None else 0
            return sizing.request(0 if index is None else index - start)
        except Unfit as error:
            entry.life_of(index).say(str(error))
            self._end(place, Stimulus.FAILED, now)
            return None

    def _world_job(self, place: Place, asked: Request) -> Job:
        entry, index = place
        job_id = self._world_id(entry, index)
        self._in_world[job_id] = place
        walltime = entry.description.resources.walltime_s
        return Job(
            id=job_id,
            units=asked.units,
            most_units=asked.most_units,
            shape=asked.shape,
            walltime=walltime if walltime is not None else inf,
            submitted_at=entry.arrived_at,
            priority=-float(entry.number),
        )

    def _world_id(self, entry: Entry, index: int | None) -> str:
        name = entry.full_name(index)
        # The world remembers every id that it has seen; a name may come again once its job was removed.
        return f"{name}#{entry.number}" if entry.name in self._reused else name

    # ---- facts

    def allocated(self, job_id: str, units: IdSet, now: float) -> None:
        """A decider gave it these units."""
        place = self._in_world[job_id]
        entry, index = place
        life = entry.life_of(index)
        self._units[job_id] = units
        life.runtime = Runtime(self.layout.named_cores(units), self.layout.counted_cores(units))
        self._last_started = max(self._last_started, entry.number)
        if entry.parts is None or index == entry.parts.iteration.stop - 1:
            self._waiting.pop(entry.number, None)
        self._step(place, life, Stimulus.ALLOCATED, now)

    def launched(self, job_id: str, now: float, *, wd: str, program: str) -> None:
        """It runs."""
        place = self._in_world[job_id]
        life = place[0].life_of(place[1])
        self._started_at[job_id] = now
        if life.runtime is not None:
            life.runtime.wd = wd
            life.runtime.program = program
        self._step(place, life, Stimulus.LAUNCHED, now)

    def ended(
        self, job_id: str, state: JobState, return_code: int, now: float, *, pid: int | None = None, message: str = ""
    ) -> None:
        """It is over."""
        place = self._in_world.pop(job_id, None)
        self._units.pop(job_id, None)
        started_at = self._started_at.pop(job_id, None)
        if place is None:
            return  # withdrawn: it has ended for the client already
        if job_id in self._cancelling:
            self._cancelling.discard(job_id)
            state = JobState.KILLED
        life = place[0].life_of(place[1])
        if life.runtime is not None:
            life.runtime.rtime = duration_text(now - started_at if started_at is not None else 0.0)
            life.runtime.exit_code = return_code
            life.runtime.pid = pid if pid is not None else -1
        if message:
            life.say(message)
        self._end(place, ENDS[state], now)
        self._settle(now)

    def give_back(self, job_id: str) -> None:
        """It had its turn, but was not begun: it is handed out again, and nobody need hear of it."""
        entry, index = place = self._in_world.pop(job_id)
        self._units.pop(job_id, None)
        self._started_at.pop(job_id, None)
        life = entry.life_of(index)
        if life.state is not JobState.WAITING:
            life.unstart()
        self._judged(place, Verdict.READY)

    def is_cancelling(self, job_id: str) -> bool:
        return job_id in self._cancelling

    def requeued(self, job_id: str, now: float) -> None:
        """Its node was lost; it waits again."""
        place = self._in_world[job_id]
        self._units.pop(job_id, None)
        self._started_at.pop(job_id, None)
        self._step(place, place[0].life_of(place[1]), Stimulus.REQUEUED, now)

    def refused(self, job_id: str, reason: str, now: float) -> None:
        """A decider will never start it."""
        place = self._in_world.pop(job_id)
        place[0].life_of(place[1]).say(reason)
        self._end(place, Stimulus.REFUSED, now)
        self._settle(now)

    # ---- what a resumed manager is told

    def restore(self, place: Place, past: Past, now: float) -> None:
        """How something ended in an earlier life of this manager. It is reported only if it was not."""
        entry, index = place
        if entry.state_of(index) in FINAL:
            return
        self._dependencies.forget(place)
        if past.state is JobState.OMITTED and index is None and entry.parts is not None:
            entry.parts.close(JobState.OMITTED)
        life = entry.life_of(index)
        if past.allocation:
            life.runtime = Runtime(past.allocation, past.counts)
            life.runtime.rtime = duration_text(past.ended_at - past.started_at)
            life.runtime.exit_code, life.runtime.pid = past.return_code, past.pid
            life.runtime.wd, life.runtime.program = past.wd or None, entry.description.execution.program
            life.step(Stimulus.ALLOCATED, past.started_at)
            life.step(Stimulus.LAUNCHED, past.started_at)
        elif past.state is JobState.SUCCEEDED and index is not None:
            life.step(Stimulus.ALLOCATED, now)
        self._end(place, ENDS[past.state], past.ended_at or now)

    def replace(self, name: str) -> None:
        """The name was used again later: its first owner had ended and was removed."""
        entry = self.registry.entries[name]
        if not entry.life.final:
            self.registry.unfinished -= 1
            self._waiting.pop(entry.number, None)
            entry.life.step(Stimulus.KILLED, entry.arrived_at)
        self.remove(entry)

    def adopt(self, job_id: str, now: float, units: IdSet | None) -> Place | None:
        """A job that the world has from before: running on `units`, or waiting. None if nobody wants it any more."""
        name = job_id.partition("#")[0]
        job, index = split_name(name)
        entry = self.registry.entries.get(job)
        if entry is None or (index is not None and (entry.parts is None or index not in entry.parts.iteration)):
            return None
        if entry.state_of(index) in FINAL or self._world_id(entry, index) != job_id:
            return None
        self._in_world[job_id] = (entry, index)
        if units is not None:
            self.allocated(job_id, units, now)
        return entry, index

    # ---- changes of state

    def _step(self, place: Place, life: Life, stimulus: Stimulus, now: float) -> None:
        if life.step(stimulus, now):
            self._publish(place, life.state)

    def _end(self, place: Place, stimulus: Stimulus, now: float) -> None:
        entry, index = place
        life = entry.life_of(index)
        life.step(stimulus, now)
        self._publish(place, life.state)
        self.outbox.finished.append(place)
        if index is None:
            self._forget(entry, omitted=life.state is JobState.OMITTED)
        else:
            parts = entry.parts
            assert parts is not None
            parts.unfinished -= 1
            parts.unsuccessful += life.state is not JobState.SUCCEEDED
        for freed, verdict in list(self._dependencies.ended(entry.full_name(index), life.state)):
            self._judged(freed, verdict)
        if index is not None and entry.parts is not None and entry.parts.unfinished == 0 and not entry.life.final:
            self._end((entry, None), _parent_stimulus(entry), now)

    def _forget(self, entry: Entry, *, omitted: bool) -> None:
        self.registry.unfinished -= 1
        self._waiting.pop(entry.number, None)
        self._sizings.pop(entry.number, None)
        if omitted:
            entry.queue_position = None
        if self.registry.unfinished == 0:
            # Told after the job's own event: _settle puts it at the end.
            self._none_left = True

    def _settle(self, now: float) -> None:
        """The end of one stimulus: what follows from it as a whole."""
        self._omit_hopeless(now)
        if self.registry.unfinished and self.idle:
            self._break_circles(now)
        if self._none_left and self.registry.unfinished == 0:
            self._none_left = False
            self.outbox.publications.append(("NOJ", {"manager": self._instance}))

    def _omit_hopeless(self, now: float) -> None:
        while self._hopeless:
            places, self._hopeless = self._hopeless, []
            for entry, index in places:
                if entry.state_of(index) not in FINAL:
                    self._omit((entry, index), now)

    def _break_circles(self, now: float) -> None:
        """Nothing runs and nothing is ready: what still waits, waits for itself."""
        for entry, index in self._dependencies.waiting():
            if entry.state_of(index) not in FINAL:
                self._omit((entry, index), now, "the jobs that it waits for wait for it")
        self._omit_hopeless(now)

    def turn_is_over(self) -> None:
        """All orders of one turn are known: the queue positions that listJobs shows move up."""
        last, self._last_started = self._last_started, 0
        if not last or not self._waiting:
            return
        full = self.usage.free == 0
        for position, entry in enumerate(_first(self._waiting.values(), RENUMBERED)):
            if full and entry.number > last:
                break
            entry.queue_position = position

    def _publish(self, place: Place, state: JobState) -> None:
        if not self.tells:
            return
        entry, index = place
        name = state_name(state, Dialect.LATER)
        event: dict[str, object] = {"manager": self._instance, "job": entry.name, "state": name}
        if index is not None:
            event["it"] = index
        kind = "J" if index is None else "I"
        self.outbox.publications.append((f"{kind}ST", event))
        if state in FINAL:
            self.outbox.publications.append((f"{kind}FI", event))


def _parent_stimulus(entry: Entry) -> Stimulus:
    assert entry.parts is not None
    if entry.cancelled:
        return Stimulus.KILLED
    return Stimulus.FAILED if entry.parts.unsuccessful else Stimulus.SUCCEEDED


def _first(entries: Iterable[Entry], count: int) -> Iterator[Entry]:
    for _, entry in zip(range(count), entries, strict=False):
        yield entry
