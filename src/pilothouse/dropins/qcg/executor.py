"""The executor: ready jobs go to the live world, and what became of them comes back. (The specification's Executor.)

A job's command is made when its cores are known: it is bound to the job just before it starts. Tiny jobs are
handed over in bundles (bundles.py), whose members are told of one by one all the same.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

from pilothouse.dropins.qcg.bundles import Bundle, Bundles, Result, is_bundle, is_narrow
from pilothouse.dropins.qcg.dependencies import Place
from pilothouse.dropins.qcg.launch import Launch, Surroundings, prepare
from pilothouse.dropins.qcg.work import WINDOW, Work
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live.records import TaskEnded
from pilothouse.worlds.live.world import LiveWorld

log = logging.getLogger("pilothouse.qcg")

SPARE_LOTS = 4
"""How many one-core jobs wait in the live world besides two for each core."""
_BY_OTHERS = ("", "killed", "walltime", "dismissed")
"""Reasons of an end that are no complaint about the program."""


class Executor:
    """Between the manager's work and a live world."""

    def __init__(
        self,
        live: LiveWorld,
        work: Work,
        around: Surroundings,
        bundles: Bundles | None,
        clock: Callable[[], float],
    ) -> None:
        self.live = live
        self.work = work
        self.bundles = bundles
        self.terminating = False
        """What ends from now on ends with the manager: a resumed one runs it again."""
        self._around = around
        self._clock = clock
        self._narrow: set[str] = set()
        """One-core jobs and bundles that wait in the live world."""
        self._ends: dict[str, TaskEnded] = {}
        self._over: list[str] = []
        """Bundles that have ended and whose results are still to be read."""
        self._launches: dict[str, tuple[str, str]] = {}
        """Member of a bundle -> its directory and program, until it is the one that runs."""
        self._complaints: dict[str, str] = {}
        live.on_task.append(self._note_end)

    # ---- handing over

    def feed(self, now: float) -> None:
        """Ready jobs for the live world: as many as could start soon, tiny ones in bundles."""
        work, bundles = self.work, self.bundles
        cores = work.totals.cores
        size = bundles.size(cores, work.ready) if bundles is not None else 1
        # Bundles are long and take time to prepare: one for each core is ready while another runs there.
        lots = max(0, (cores if size > 1 else 2 * cores + SPARE_LOTS) - len(self._narrow))
        jobs = work.feed(WINDOW - self.live.waiting, now, lots * size)
        if bundles is not None and size > 1:
            jobs = list(bundles.gather(jobs, size, cores, more=work.ready > 0))
        for job in jobs:
            self.live.submit(job)
            if is_narrow(job):
                self._narrow.add(job.id)
            if bundles is not None and is_bundle(job.id):
                self._prepare_ahead(bundles.alive[job.id])

    def withdraw(self, job_id: str) -> None:
        """It was cancelled before it started."""
        bundle = self.bundles.of(job_id) if self.bundles is not None else None
        if bundle is None or self.bundles is None:
            self._narrow.discard(job_id)
            self.live.cancel(job_id)
        elif self.bundles.drop(bundle, job_id):
            self.bundles.close(bundle)
            self._narrow.discard(bundle.id)
            self.live.cancel(bundle.id)

    def kill(self, job_id: str) -> None:
        """It was cancelled while it runs, or while its bundle does: then that is ended only if it is the one that runs."""
        bundle = self.bundles.of(job_id) if self.bundles is not None else None
        if bundle is None or self.bundles is None:
            self.live.cancel(job_id)
            return
        self._read_bundle(bundle, self._clock())
        if bundle.left and bundle.left[0] == job_id:
            self.live.cancel(bundle.id)
        elif job_id in bundle.left:
            self.bundles.cancel(bundle, job_id)

    # ---- the life of a job

    def start(self, order: d.StartJob, now: float) -> None:
        work = self.work
        self._narrow.discard(order.job_id)
        if is_bundle(order.job_id):
            self._start_bundle(order, now)
            return
        place = work.place_of(order.job_id)
        if place is None:
            return  # cancelled while it was decided about; the live world knows
        work.allocated(order.job_id, order.units, now)
        launch = self._prepared(place, order.job_id, order.units)
        self.live.bind(order.job_id, launch.command)
        work.launched(order.job_id, now, wd=launch.wd, program=launch.program)

    def _note_end(self, record: TaskEnded) -> None:
        if record.final and record.job_id:
            self._ends[record.job_id] = record

    def observe(self, event: e.Event) -> None:
        work, now = self.work, self._clock()
        if isinstance(event, e.JobEnded):
            self._narrow.discard(event.job_id)
            if is_bundle(event.job_id):
                self._over.append(event.job_id)
                return
            if self.terminating:
                return
            record = self._ends.pop(event.job_id, None)
            pid, code, message = self._told(event, record)
            if record is not None and self.bundles is not None:
                self.bundles.pace.note(record.ended_at - record.started_at)
            # A job that was stopped before it began has no end of its own in the journal.
            state = JobState.KILLED if record is None and event.state is JobState.SUCCEEDED else event.state
            work.ended(event.job_id, state, code, now, pid=pid, message=message)
        elif isinstance(event, e.JobRequeued):
            self._requeued(event.job_id, now)
        elif isinstance(event, e.NodesJoined):
            log.warning("nodes joined: %s", ", ".join(node.name for node in event.nodes))
            self.work.joined(event.nodes)
        elif isinstance(event, e.NodesLeft):
            log.warning("nodes left: %s", ", ".join(event.names))

    def refuse(self, order: d.RejectJob, now: float) -> None:
        """A decider will never start it."""
        self._narrow.discard(order.job_id)
        members = [order.job_id]
        bundle = self.bundles.alive.get(order.job_id) if self.bundles is not None else None
        if bundle is not None and self.bundles is not None:
            members = self.bundles.close(bundle)
        for member in members:
            if self.work.place_of(member) is not None:
                self.work.refused(member, order.reason, now)

    def _prepared(self, place: Place, job_id: str, units: IdSet) -> Launch:
        entry, index = place
        shares = self.work.layout.shares(units)
        launch = prepare(entry.description, index, shares, self._around, _step_id())
        try:
            for directory in launch.directories:
                if directory != self._around.root_wd and not os.path.isdir(directory):
                    os.makedirs(directory, exist_ok=True)
            for path, text in launch.files:
                Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            # It will fail where it is started; this says why.
            self._complaints[job_id] = str(error)
        return launch

    def _told(self, event: e.JobEnded, record: TaskEnded | None) -> tuple[int, int, str]:
        """pid, exit code and message of an end, in 0.14.2's words where it has some."""
        message = self._complaints.pop(event.job_id, "")
        if record is None:
            return -1, event.return_code, message or event.reason
        if event.state is JobState.TIMED_OUT:
            return record.pid, record.return_code, message or "Wall time limit reached"
        if record.reason in _BY_OTHERS:
            return record.pid or -1, record.return_code, message
        if event.state is JobState.LOST:
            return -1, record.return_code, message or f"lost with its node: {record.reason}"
        return -1, -1, message or _as_python_says(record.reason)

    # ---- bundles

    def _start_bundle(self, order: d.StartJob, now: float) -> None:
        bundles, work = self.bundles, self.work
        assert bundles is not None
        bundle = bundles.alive.get(order.job_id)
        if bundle is None:
            return  # all its members were cancelled meanwhile
        for member in bundle.left:
            work.allocated(member, order.units, now)
        self.live.bind(order.job_id, bundle.command or self._bundle_command(bundle, order.units))
        bundle.running = True
        self._launch_next(bundle, now)

    def _bundle_command(self, bundle: Bundle, units: IdSet) -> Command:
        assert self.bundles is not None
        commands = []
        for member in bundle.left:
            place = self.work.place_of(member)
            assert place is not None, "a member that is not in the world was dropped"
            launch = self._prepared(place, member, units)
            self._launches[member] = (launch.wd, launch.program)
            commands.append(launch.command)
        return self.bundles.write(bundle, commands)

    def _prepare_ahead(self, bundle: Bundle) -> None:
        """On one node a bundle is the same whatever core it gets: all is ready when its turn comes."""
        nodes = self.work.layout.nodes
        if len(nodes) == 1 and not self._around.binding:
            bundle.command = self._bundle_command(bundle, IdSet.span(nodes[0].first, 1))

    def _launch_next(self, bundle: Bundle, now: float) -> None:
        """Members run one after another: the first without a result is the one that runs."""
        if bundle.left and bundle.left[0] in self._launches:
            wd, program = self._launches.pop(bundle.left[0])
            self.work.launched(bundle.left[0], now, wd=wd, program=program)

    def look_at_bundles(self) -> None:
        """Called twice a second: members that have ended, and what slow ones hold up."""
        if self.bundles is not None and not self.terminating:
            for bundle in list(self.bundles.alive.values()):
                if bundle.running:
                    self._read_bundle(bundle, self._clock())

    def turn_is_over(self) -> None:
        """Reads what bundles left, last of all: the cores that they had are at work again by now."""
        over, self._over = self._over, []
        for bundle_id in over:
            self._bundle_ended(bundle_id)

    def _read_bundle(self, bundle: Bundle, now: float) -> None:
        assert self.bundles is not None
        for result in self.bundles.results(bundle):
            self._member_ended(result)
            self._launch_next(bundle, result.ended_at)
        for member in self.bundles.take_returned(bundle):
            self._give_back(member, now)

    def _member_ended(self, result: Result) -> None:
        assert self.bundles is not None
        work = self.work
        if work.place_of(result.job_id) is None:
            return
        if result.reason == "killed" and not work.is_cancelling(result.job_id):
            self._give_back(result.job_id, result.ended_at)
            return
        self.bundles.pace.note(result.ended_at - result.started_at)
        state = JobState.SUCCEEDED if result.return_code == 0 else JobState.FAILED
        record = _as_record(result, state)
        pid, code, message = self._told(e.JobEnded(0.0, result.job_id, state, result.return_code, IdSet()), record)
        work.ended(result.job_id, state, code, result.ended_at, pid=pid, message=message)

    def _give_back(self, member: str, now: float) -> None:
        self._launches.pop(member, None)
        if self.work.is_cancelling(member):
            self.work.ended(member, JobState.KILLED, -15, now)
        else:
            self.work.give_back(member)

    def _bundle_ended(self, bundle_id: str) -> None:
        assert self.bundles is not None
        now = self._clock()
        bundle = self.bundles.alive.get(bundle_id)
        if bundle is None or self.terminating:
            return  # a resumed manager will read its results
        self._read_bundle(bundle, now)
        for member in list(bundle.left):
            self._give_back(member, now)
        self.bundles.close(bundle)

    def _requeued(self, job_id: str, now: float) -> None:
        """Its node was lost, and the live world will start it again."""
        work = self.work
        if not is_bundle(job_id):
            if work.place_of(job_id) is not None:
                work.requeued(job_id, now)
            return
        bundle = self.bundles.alive.get(job_id) if self.bundles is not None else None
        if bundle is None or self.bundles is None:
            return
        self._read_bundle(bundle, now)
        self.bundles.lost(bundle)
        for member in bundle.left:
            self._launches.pop(member, None)
            work.requeued(member, now)

    # ---- what a resumed manager is told

    def adopt(self, known: list[str]) -> None:
        """Jobs that the live world has from before: they are not handed to it again."""
        now = self._clock()
        for job_id in known:
            if is_bundle(job_id):
                continue
            units = self.live.units_of(job_id) or None
            place = self.work.adopt(job_id, now, units)
            if place is None:
                self.live.cancel(job_id)
                continue
            if units is not None:
                entry, index = place
                launch = prepare(entry.description, index, self.work.layout.shares(units), self._around, _step_id())
                self.work.launched(job_id, now, wd=launch.wd, program=launch.program)

    def adopt_bundle(self, bundle: Bundle) -> None:
        """A bundle that an engine may still have in hand."""
        assert self.bundles is not None
        work, now = self.work, self._clock()
        units = self.live.units_of(bundle.id)
        if not units:
            self.bundles.close(bundle)
            return
        for member in list(bundle.left):
            place = work.adopt(member, now, units)
            if place is None:
                self.bundles.drop(bundle, member)
                continue
            launch = self._prepared(place, member, units)
            self._launches[member] = (launch.wd, launch.program)
        self._launch_next(bundle, now)


def _step_id() -> str:
    """Of a start, unlike any other: what a random UUID would be, for a tenth of its price."""
    return os.urandom(16).hex()


def _as_python_says(reason: str) -> str:
    """Why a program was not started (`/no/such: No such file or directory`), as 0.14.2 tells it."""
    program, _, why = reason.rpartition(": ")
    if why == "no such program":
        # What is there but may not be executed was not found either.
        why = os.strerror(errno.EACCES if "/" in program and os.path.exists(program) else errno.ENOENT)
    number = _NUMBERS.get(why)
    return reason if number is None else f"[Errno {number}] {why}: '{program}'"


_NUMBERS = {os.strerror(number): number for number in errno.errorcode}


def _as_record(result: Result, state: JobState) -> TaskEnded:
    """A member's end in the words of the live world."""
    return TaskEnded(
        0, 0, -1, 1, "N", state, result.return_code, -1, "", result.pid, result.started_at, result.ended_at,
        0, b"", 0, b"", b"", result.reason,
    )  # fmt: skip
