"""The jobs of a manager from their acceptance to their end: what waits, what is ready, what runs.

Accepted jobs come in by `accept`. `take_ready` hands out ready jobs in order of arrival, a few at a time; loops are
expanded only then. What happens to them in the world (`allocated`, `launched`, `ended`, `refused`) changes their
states and makes others ready that depend on them. Events to publish, ends to report and jobs to kill are left in the
outbox, which the service empties.
"""

from __future__ import annotations

import heapq
from itertools import islice
from math import inf

import msgspec

from pilothouse.core.dependencies import Dependencies, Verdict
from pilothouse.dropins.qcg.job_command import NodeLayout
from pilothouse.dropins.qcg.registry import (
    Entry,
    Item,
    Iterations,
    JobStatus,
    Registry,
    Runtime,
    Usage,
    duration_text,
    split_name,
    state_name,
)
from pilothouse.formats.qcg_requests import SubmittedJob
from pilothouse.formats.qcg_variables import replaced
from pilothouse.formats.qcg_workload import Sizing, Totals, Unfit, UnitRequest
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import ENDS, FINAL, JobState, Stimulus

WINDOW = 4096
"""How many jobs may wait in the world at once; the others wait here."""
RENUMBERED = 64
"""How many queue positions are kept up to date."""


class Outbox(msgspec.Struct):
    """What the service has to carry out."""

    publications: list[tuple[str, dict[str, object]]] = []
    """(topic, event): IST, IFI, JST, JFI, NOJ."""
    accepted: list[Entry] = []
    finished: list[Item] = []
    """Jobs and iterations that have ended, in order: to be reported and tracked."""
    removed: list[Entry] = []
    cancelled: list[str] = []
    """Jobs that the world must withdraw or kill."""


class JobQueue:
    """Everything between the acceptance of a job and its end."""

    def __init__(self, instance: str, nodes: tuple[Node, ...], *, reserved: int = 0) -> None:
        """`reserved` cores of the allocation are given to no job: they count as used."""
        self.registry = Registry()
        self.layout = NodeLayout(nodes)
        self.totals = Totals.of(nodes)
        self._instance = instance
        self._reserved = reserved
        self._dependencies: Dependencies[Item] = Dependencies()
        self._ready: list[tuple[int, int, Entry, bool]] = []
        """(arrival, index, job, whether the indexes after this one follow)."""
        self.ready = 0
        """How many jobs and iterations these are."""
        self._sizings: dict[int, Sizing] = {}
        self._in_world: dict[str, Item] = {}
        self._units: dict[str, IdSet] = {}
        self._started_at: dict[str, float] = {}
        self._cancelling: set[str] = set()
        self._waiting: dict[int, Entry] = {}
        self._last_started = 0
        self._reused: set[str] = set()
        self._to_omit: list[Item] = []
        self._none_left = False
        self.publishes = True
        """Whether anything receives publications."""
        self.outbox = Outbox()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Each node once; one whose engine was replaced is `name#2` from then on."""
        return tuple({node.name.partition("#")[0]: node for node in self.layout.nodes}.values())

    def joined(self, nodes: tuple[Node, ...]) -> None:
        """Nodes joined late, or again."""
        self.layout.add(nodes)
        self.totals = Totals.of(self.nodes)

    def take_outbox(self) -> Outbox:
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
        """Whether any job has cores."""
        return bool(self._units)

    def item_of(self, job_id: str) -> Item | None:
        """The job or iteration with that id in the world, as long as it is there."""
        return self._in_world.get(job_id)

    def is_cancelling(self, job_id: str) -> bool:
        return job_id in self._cancelling

    # ---- accepting, removing, cancelling

    def accept(self, jobs: list[SubmittedJob], now: float) -> list[Entry]:
        """All jobs are registered before any is judged: they may depend on each other in any order.

        Those whose dependencies can never be met are omitted by the next `take_ready`, so that the answer comes first.
        """
        entries = [self._register(job, now) for job in jobs]
        for entry in entries:
            self._judge((entry, None))
        return entries

    def _register(self, submitted: SubmittedJob, now: float) -> Entry:
        entry = self.registry.add(submitted, now)
        if submitted.loop_free and submitted.description.iteration is not None:
            entry.iterations = Iterations(submitted.description.iteration)
        entry.queue_position = len(self._waiting)
        self._waiting[entry.number] = entry
        self.outbox.accepted.append(entry)
        return entry

    def remove(self, entry: Entry) -> None:
        """Forgets a job that has ended."""
        del self.registry.entries[entry.name]
        self._reused.add(entry.name)
        self.outbox.removed.append(entry)

    def cancel(self, entry: Entry, index: int | None, now: float) -> None:
        """Cancels a job with all its iterations, or one iteration. What runs is killed first, and ends later."""
        if index is not None or entry.iterations is None:
            self._cancel_one((entry, index), now)
        else:
            entry.cancelled = True
            self._dependencies.remove((entry, None))
            for part in range(entry.iterations.loop.start, entry.iterations.loop.stop):
                if entry.state_of(part) not in FINAL:
                    self._cancel_one((entry, part), now)
        self._settle(now)

    def _cancel_one(self, item: Item, now: float) -> None:
        entry, index = item
        job_id = self._world_id(entry, index)
        if entry.state_of(index) in (JobState.STARTING, JobState.RUNNING):
            if job_id not in self._cancelling:
                self._cancelling.add(job_id)
                self.outbox.cancelled.append(job_id)
            return
        if self._in_world.pop(job_id, None) is not None:
            self.outbox.cancelled.append(job_id)
        self._dependencies.remove(item)
        self._end(item, Stimulus.KILLED, now)

    # ---- ready jobs

    def _judge(self, item: Item) -> None:
        """A new item becomes ready, or waits for others, or will be omitted.

        `after` may name a job (all of it), one iteration (`job:3`), or the iteration of the same index (`job:${it}`).
        """
        entry, index = item
        names = list(entry.submitted.after)
        if names and entry.iterations is not None:
            names = [name for name in names if ("$" in name) is (index is not None)]
        if index is not None and entry.iterations is not None:
            values = {"it": str(index), "itval": entry.iterations.loop.value(index)}
            names = [replaced(name, values) for name in names]
        verdict = self._dependencies.enter(item, item, map(_plain_name, names), self._succeeded)
        if verdict is Verdict.READY:
            self._make_ready(item)
        elif verdict is Verdict.NEVER:
            # Omitted later, in a loop: recursion along a chain of jobs would be as deep as the chain is long.
            self._to_omit.append(item)

    def _succeeded(self, name: str) -> bool | None:
        """Whether a job or iteration succeeded; None: it has not ended. Unknown names never succeed."""
        found = self.registry.find(name)
        state = found[0].state_of(found[1]) if found is not None else JobState.OMITTED
        return state is JobState.SUCCEEDED if state in FINAL else None

    def _make_ready(self, item: Item) -> None:
        """What it waited for has succeeded. Its iterations may have dependencies of their own."""
        entry, index = item
        loop = entry.iterations.loop if entry.iterations is not None else None
        if loop is None or index is not None:
            self.ready += 1
            heapq.heappush(self._ready, (entry.number, 0 if index is None else index, entry, False))
        elif not any("$" in name for name in entry.submitted.after):
            self.ready += len(loop)
            heapq.heappush(self._ready, (entry.number, loop.start, entry, True))
        else:
            for part in range(loop.start, loop.stop):
                if entry.state_of(part) not in FINAL:
                    self._judge((entry, part))

    def take_ready(self, room: int, now: float, narrow_room: int = WINDOW) -> list[Job]:
        """The next jobs for the world, in order of arrival, at most `room`.

        At most `narrow_room` of them ask for one core: while one of those waits no core is free, so that nothing
        behind it could start either.
        """
        jobs: list[Job] = []
        while self._ready and len(jobs) < room and narrow_room > 0:
            number, index, entry, whole_loop = heapq.heappop(self._ready)
            self.ready -= 1
            loop = entry.iterations.loop if entry.iterations is not None else None
            if whole_loop and loop is not None and index + 1 < loop.stop:
                heapq.heappush(self._ready, (number, index + 1, entry, True))
            item: Item = (entry, index if loop is not None else None)
            if entry.status.final or entry.state_of(item[1]) in FINAL or self._world_id(*item) in self._in_world:
                continue
            request = self._request(item, now)
            if request is not None:
                jobs.append(self._world_job(item, request))
                narrow_room -= request.units == 1 and request.shape is None
        self._settle(now)
        return jobs

    def _request(self, item: Item, now: float) -> UnitRequest | None:
        """The units that it asks for. None: the allocation is too small, and the job has failed for that reason."""
        entry, index = item
        try:
            sizing = self._sizings.get(entry.number)
            if sizing is None:
                sizing = Sizing(entry.description, self.totals)
                if entry.iterations is not None:
                    self._sizings[entry.number] = sizing
            return sizing.request(0 if index is None or entry.iterations is None else index - entry.iterations.loop.start)
        except Unfit as error:
            entry.status_of(index).say(str(error))
            self._end(item, Stimulus.FAILED, now)
            return None

    def _world_job(self, item: Item, request: UnitRequest) -> Job:
        entry, index = item
        job_id = self._world_id(entry, index)
        self._in_world[job_id] = item
        walltime = entry.description.resources.walltime_s
        return Job(
            id=job_id,
            units=request.units,
            most_units=request.most_units,
            shape=request.shape,
            walltime=walltime if walltime is not None else inf,
            submitted_at=entry.arrived_at,
            priority=-float(entry.number),
        )

    def _world_id(self, entry: Entry, index: int | None) -> str:
        name = entry.full_name(index)
        # The world never takes an id twice; a name may be submitted again once its job was removed.
        return f"{name}#{entry.number}" if entry.name in self._reused else name

    # ---- what happens in the world

    def allocated(self, job_id: str, units: IdSet, now: float) -> None:
        """A decider gave it these units."""
        entry, index = item = self._in_world[job_id]
        status = entry.status_of(index)
        self._units[job_id] = units
        status.runtime = Runtime(self.layout.named_cores(units), self.layout.counted_cores(units))
        self._last_started = max(self._last_started, entry.number)
        if entry.iterations is None or index == entry.iterations.loop.stop - 1:
            self._waiting.pop(entry.number, None)
        self._step(item, status, Stimulus.ALLOCATED, now)

    def launched(self, job_id: str, now: float, *, wd: str, program: str) -> None:
        """It runs."""
        entry, index = item = self._in_world[job_id]
        status = entry.status_of(index)
        self._started_at[job_id] = now
        if status.runtime is not None:
            status.runtime.wd = wd
            status.runtime.program = program
        self._step(item, status, Stimulus.LAUNCHED, now)

    def ended(
        self, job_id: str, state: JobState, return_code: int, now: float, *, pid: int = -1, message: str = ""
    ) -> None:
        item = self._in_world.pop(job_id, None)
        started_at = self._free(job_id)
        if item is None:
            return  # withdrawn: it has ended for the client already
        if job_id in self._cancelling:
            self._cancelling.discard(job_id)
            state = JobState.KILLED
        status = item[0].status_of(item[1])
        if status.runtime is not None:
            status.runtime.rtime = duration_text(now - started_at if started_at is not None else 0.0)
            status.runtime.exit_code = return_code
            status.runtime.pid = pid
        if message:
            status.say(message)
        self._end(item, ENDS[state], now)
        self._settle(now)

    def return_unstarted(self, job_id: str) -> None:
        """It had units, but was not begun: it is ready again, and clients see nothing of this."""
        entry, index = item = self._in_world.pop(job_id)
        self._free(job_id)
        status = entry.status_of(index)
        if status.state is not JobState.WAITING:
            status.undo_start()
        self._make_ready(item)

    def requeued(self, job_id: str, now: float) -> None:
        """Its node was lost; it waits again."""
        item = self._in_world[job_id]
        self._free(job_id)
        self._step(item, item[0].status_of(item[1]), Stimulus.REQUEUED, now)

    def refused(self, job_id: str, reason: str, now: float) -> None:
        """The decider will never start it."""
        entry, index = item = self._in_world.pop(job_id)
        entry.status_of(index).say(reason)
        self._end(item, Stimulus.REFUSED, now)
        self._settle(now)

    def _free(self, job_id: str) -> float | None:
        """Its units are free again. Returns when it started, if it did."""
        self._units.pop(job_id, None)
        return self._started_at.pop(job_id, None)

    # ---- resuming

    def restore(
        self, item: Item, state: JobState, ended_at: float, runtime: Runtime | None = None, started_at: float = 0.0
    ) -> None:
        """Something had ended before the manager was resumed. Ends that are known already are skipped."""
        entry, index = item
        if entry.state_of(index) in FINAL:
            return
        self._dependencies.remove(item)
        if state is JobState.OMITTED and index is None and entry.iterations is not None:
            entry.iterations.omit_rest()
        status = entry.status_of(index)
        if runtime is not None:
            status.runtime = runtime
            status.step(Stimulus.ALLOCATED, started_at)
            status.step(Stimulus.LAUNCHED, started_at)
        elif state is JobState.SUCCEEDED and index is not None:
            status.step(Stimulus.ALLOCATED, ended_at)
        self._end(item, ENDS[state], ended_at)

    def replace(self, entry: Entry) -> None:
        """Its name was submitted again later: it had ended and was removed."""
        if not entry.status.final:
            self.registry.unfinished -= 1
            self._waiting.pop(entry.number, None)
            entry.status.step(Stimulus.KILLED, entry.arrived_at)
        self.remove(entry)

    def named_in_world(self, job_id: str) -> Item | None:
        """The job or iteration that has this id in the world, whether it is there or not."""
        for name in (job_id, job_id.rpartition("#")[0]):
            item = self.registry.find(name)
            if item is not None and self._world_id(*item) == job_id:
                return item
        return None

    def adopt(self, job_id: str, now: float, units: IdSet | None) -> Item | None:
        """A job that the world still has: running on `units`, or waiting. None if it is not wanted any more."""
        item = self.named_in_world(job_id)
        if item is None or item[0].state_of(item[1]) in FINAL:
            return None
        self._in_world[job_id] = item
        if units is not None:
            self.allocated(job_id, units, now)
        return item

    # ---- changes of state

    def _step(self, item: Item, status: JobStatus, stimulus: Stimulus, now: float) -> None:
        if status.step(stimulus, now):
            self._publish(item, status.state)

    def _end(self, item: Item, stimulus: Stimulus, now: float) -> None:
        entry, index = item
        status = entry.status_of(index)
        status.step(stimulus, now)
        self._publish(item, status.state)
        self.outbox.finished.append(item)
        iterations = entry.iterations
        if index is None:
            self._forget(entry, omitted=status.state is JobState.OMITTED)
        elif iterations is not None:
            iterations.unfinished -= 1
            iterations.unsuccessful += status.state is not JobState.SUCCEEDED
        succeeded = status.state is JobState.SUCCEEDED
        free, hopeless = self._dependencies.ended(entry.full_name(index), succeeded=succeeded)
        self._to_omit += hopeless
        for freed in free:
            self._make_ready(freed)
        if index is not None and iterations is not None and iterations.unfinished == 0 and not entry.status.final:
            whole = Stimulus.FAILED if iterations.unsuccessful else Stimulus.SUCCEEDED
            self._end((entry, None), Stimulus.KILLED if entry.cancelled else whole, now)

    def _forget(self, entry: Entry, *, omitted: bool) -> None:
        self.registry.unfinished -= 1
        self._waiting.pop(entry.number, None)
        self._sizings.pop(entry.number, None)
        if omitted:
            entry.queue_position = None
        if self.registry.unfinished == 0:
            self._none_left = True  # published by _settle, after the job's own event

    def _settle(self, now: float) -> None:
        """Ends one stimulus: omits what can never run, and publishes that no job is left."""
        self._omit_all(now)
        if self.registry.unfinished and not self._in_world and not self._ready:
            # Nothing runs and nothing is ready: what still waits is a circle.
            for entry, index in list(self._dependencies.held.values()):
                if entry.state_of(index) not in FINAL:
                    entry.status_of(index).say("the jobs that it waits for wait for it")
                    self._to_omit.append((entry, index))
            self._omit_all(now)
        if self._none_left and self.registry.unfinished == 0:
            self._none_left = False
            self.outbox.publications.append(("NOJ", {"manager": self._instance}))

    def _omit_all(self, now: float) -> None:
        while self._to_omit:
            items, self._to_omit = self._to_omit, []
            for entry, index in items:
                if entry.state_of(index) not in FINAL:
                    if index is None and entry.iterations is not None:
                        entry.iterations.omit_rest()
                    self._end((entry, index), Stimulus.OMITTED, now)

    def turn_is_over(self) -> None:
        """All decisions of one turn are known: the queue positions in listJobs move up."""
        last, self._last_started = self._last_started, 0
        if not last or not self._waiting:
            return
        full = self.usage.free == 0
        for position, entry in enumerate(islice(self._waiting.values(), RENUMBERED)):
            if full and entry.number > last:
                break
            entry.queue_position = position

    def _publish(self, item: Item, state: JobState) -> None:
        entry, index = item
        if not self.publishes or (state is JobState.STARTING and not entry.dialect.scheduled_state):
            return
        event: dict[str, object] = {"manager": self._instance, "job": entry.name, "state": state_name(state)}
        if index is not None:
            event["it"] = index
        kind = "J" if index is None else "I"
        self.outbox.publications.append((f"{kind}ST", event))
        if state in FINAL:
            self.outbox.publications.append((f"{kind}FI", event))


def _plain_name(name: str) -> str:
    """`job:03` is the iteration that ends as `job:3`."""
    job, index = split_name(name)
    return name if index is None else f"{job}:{index}"
