"""The executor (the specification's word): hands ready jobs to the live world and reports what became of them.

The command of a job is made when its cores are known, and bound to the job just before it starts. Tiny jobs are handed
over in bundles (bundles.py); the queue learns of each member's start and end all the same.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

from pilothouse.dropins.qcg.bundles import Bundle, Bundles, is_bundle, is_narrow
from pilothouse.dropins.qcg.job_command import LaunchSettings, PreparedJob, prepare
from pilothouse.dropins.qcg.job_queue import WINDOW, JobQueue
from pilothouse.dropins.qcg.registry import Item
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live.records import TaskEnded
from pilothouse.worlds.live.world import LiveWorld

log = logging.getLogger("pilothouse.qcg")

SPARE_JOBS = 4
"""How many one-core jobs wait in the live world besides two for each core."""
_BY_OTHERS = ("", "killed", "walltime", "dismissed")
"""Reasons of an end that do not come from the program itself."""


class Executor:
    """Connects a manager's queue to a live world."""

    def __init__(self, live: LiveWorld, queue: JobQueue, settings: LaunchSettings, bundles: Bundles) -> None:
        self.live = live
        self.queue = queue
        self.settings = settings
        self.bundles = bundles
        self.terminating = False
        """Jobs that end from now on are not reported: a resumed manager runs them again."""
        self._narrow: set[str] = set()
        """One-core jobs and bundles that wait in the live world."""
        self._ends: dict[str, TaskEnded] = {}
        self._ended_bundles: list[str] = []
        """Their results are still to be read."""
        self._members: dict[str, PreparedJob] = {}
        """Members of bundles that have not started."""
        self._complaints: dict[str, str] = {}
        live.on_task.append(self._note_end)

    # ---- handing over

    def feed(self, now: float) -> None:
        """Submits ready jobs to the live world: as many as could start soon, tiny ones in bundles."""
        queue, bundles = self.queue, self.bundles
        cores = queue.totals.cores
        size = bundles.size(cores, queue.ready)
        # Bundles are long and take time to prepare: one for each core is ready while another runs there.
        wanted = max(0, (cores if size > 1 else 2 * cores + SPARE_JOBS) - len(self._narrow))
        jobs = queue.take_ready(WINDOW - self.live.waiting, now, wanted * size)
        if size > 1:
            jobs = list(bundles.gather(jobs, size, cores, more=queue.ready > 0))
        for job in jobs:
            self.live.submit(job)
            if is_narrow(job):
                self._narrow.add(job.id)
            nodes = queue.layout.nodes
            if is_bundle(job.id) and len(nodes) == 1 and not self.settings.binding:
                # On one node a bundle is the same on every core: it can be prepared before it is started.
                bundle = bundles.alive[job.id]
                bundle.command = self._bundle_command(bundle, IdSet.span(nodes[0].first, 1))

    def cancel(self, job_id: str, now: float) -> None:
        """Withdraws a job that waits, or kills one that runs. Of a bundle that runs, only the running member is killed."""
        bundle = self.bundles.of(job_id)
        if bundle is None:
            self._narrow.discard(job_id)
            self.live.cancel(job_id)
        elif not bundle.running:
            if self.bundles.drop(bundle, job_id):
                self.bundles.close(bundle)
                self._narrow.discard(bundle.id)
                self.live.cancel(bundle.id)
        else:
            self._read_bundle(bundle, now)
            if bundle.left and bundle.left[0] == job_id:
                self.live.cancel(bundle.id)
            elif job_id in bundle.left:
                self.bundles.cancel(bundle, job_id)

    # ---- starts and ends

    def start(self, decision: d.StartJob, now: float) -> None:
        job_id, units = decision.job_id, decision.units
        self._narrow.discard(job_id)
        if is_bundle(job_id):
            self._start_bundle(job_id, units, now)
            return
        item = self.queue.item_of(job_id)
        if item is None:
            return  # cancelled while it was decided about; the live world knows
        self.queue.allocated(job_id, units, now)
        prepared = self._prepared(item, units)
        self._make_files(job_id, prepared)
        self.live.bind(job_id, prepared.command)
        self.queue.launched(job_id, now, wd=prepared.wd, program=prepared.program)

    def refuse(self, decision: d.RejectJob, now: float) -> None:
        """The decider will never start it."""
        self._narrow.discard(decision.job_id)
        bundle = self.bundles.alive.get(decision.job_id)
        for member in [decision.job_id] if bundle is None else self.bundles.close(bundle):
            if self.queue.item_of(member) is not None:
                self.queue.refused(member, decision.reason, now)

    def _note_end(self, record: TaskEnded) -> None:
        if record.final and record.job_id:
            self._ends[record.job_id] = record

    def observe(self, event: e.Event, now: float) -> None:
        if isinstance(event, e.JobEnded):
            self._narrow.discard(event.job_id)
            if is_bundle(event.job_id):
                self._ended_bundles.append(event.job_id)
            elif not self.terminating:
                self._job_ended(event, now)
        elif isinstance(event, e.JobRequeued):
            self._requeued(event.job_id, now)
        elif isinstance(event, e.NodesJoined):
            log.warning("nodes joined: %s", ", ".join(node.name for node in event.nodes))
            self.queue.joined(event.nodes)
        elif isinstance(event, e.NodesLeft):
            log.warning("nodes left: %s", ", ".join(event.names))

    def _job_ended(self, event: e.JobEnded, now: float) -> None:
        record = self._ends.pop(event.job_id, None)
        if record is None:
            # A job that was stopped before it began has no end of its own in the journal.
            state = JobState.KILLED if event.state is JobState.SUCCEEDED else event.state
            message = self._complaints.pop(event.job_id, "") or event.reason
            self.queue.ended(event.job_id, state, event.return_code, now, message=message)
        else:
            self.bundles.pace.note(record.ended_at - record.started_at)
            self._ended(event.job_id, event.state, record.return_code, record.pid, record.reason, now)

    def _ended(self, job_id: str, state: JobState, code: int, pid: int, reason: str, now: float) -> None:
        """Reports an end with 0.14.2's messages where it has some."""
        message = self._complaints.pop(job_id, "")
        if state is JobState.TIMED_OUT:
            message = message or "Wall time limit reached"
        elif reason in _BY_OTHERS:
            pid = pid or -1
        elif state is JobState.LOST:
            pid, message = -1, message or f"lost with its node: {reason}"
        else:
            pid, code, message = -1, -1, message or _as_python_error(reason)
        self.queue.ended(job_id, state, code, now, pid=pid, message=message)

    def _prepared(self, item: Item, units: IdSet) -> PreparedJob:
        entry, index = item
        # A step id is a random UUID; urandom costs a tenth of one.
        return prepare(
            entry.description, index, self.queue.layout.shares(units), self.settings, os.urandom(16).hex()
        )  # fmt: skip

    def _make_files(self, job_id: str, prepared: PreparedJob) -> None:
        try:
            for directory in prepared.directories:
                if directory != self.settings.root_wd and not os.path.isdir(directory):
                    os.makedirs(directory, exist_ok=True)
            for path, text in prepared.files:
                Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            # The job will fail when it is started; this says why.
            self._complaints[job_id] = str(error)

    # ---- bundles

    def _start_bundle(self, bundle_id: str, units: IdSet, now: float) -> None:
        bundle = self.bundles.alive.get(bundle_id)
        if bundle is None:
            return  # all its members were cancelled meanwhile
        for member in bundle.left:
            self.queue.allocated(member, units, now)
        self.live.bind(bundle_id, bundle.command or self._bundle_command(bundle, units))
        bundle.running = True
        self._launch_next(bundle, now)

    def _bundle_command(self, bundle: Bundle, units: IdSet) -> Command:
        commands = []
        for member in bundle.left:
            item = self.queue.item_of(member)
            assert item is not None, "a member that is not in the world was dropped"
            prepared = self._members[member] = self._prepared(item, units)
            self._make_files(member, prepared)
            commands.append(prepared.command)
        return self.bundles.write(bundle, commands)

    def _launch_next(self, bundle: Bundle, now: float) -> None:
        """Members run one after another: the first without a result is the one that runs."""
        if bundle.left and (prepared := self._members.pop(bundle.left[0], None)) is not None:
            self.queue.launched(bundle.left[0], now, wd=prepared.wd, program=prepared.program)

    def read_running_bundles(self, now: float) -> None:
        """Called twice a second: reports members that have ended, and takes back those that slow ones hold up."""
        if not self.terminating:
            for bundle in list(self.bundles.alive.values()):
                if bundle.running:
                    self._read_bundle(bundle, now)

    def turn_is_over(self, now: float) -> None:
        """Reads the results of bundles that have ended. This comes last: their cores are in use again by now."""
        ended, self._ended_bundles = self._ended_bundles, []
        for bundle_id in ended:
            bundle = self.bundles.alive.get(bundle_id)
            if bundle is not None and not self.terminating:  # else a resumed manager will read them
                self._read_bundle(bundle, now)
                for member in list(bundle.left):
                    self._give_back(member, now)
                self.bundles.close(bundle)

    def _read_bundle(self, bundle: Bundle, now: float) -> None:
        for result in self.bundles.results(bundle):
            if self.queue.item_of(result.job_id) is not None:
                if result.reason == "killed" and not self.queue.is_cancelling(result.job_id):
                    self._give_back(result.job_id, result.ended_at)
                else:
                    self.bundles.pace.note(result.ended_at - result.started_at)
                    code, pid, ended_at = result.return_code, result.pid, result.ended_at
                    self._ended(result.job_id, result.state, code, pid, result.reason, ended_at)
            self._launch_next(bundle, result.ended_at)
        for member in self.bundles.take_returned(bundle):
            self._give_back(member, now)

    def _give_back(self, member: str, now: float) -> None:
        self._members.pop(member, None)
        if self.queue.is_cancelling(member):
            self.queue.ended(member, JobState.KILLED, -15, now)
        else:
            self.queue.return_unstarted(member)

    def _requeued(self, job_id: str, now: float) -> None:
        """Its node was lost, and the live world will start it again."""
        bundle = self.bundles.alive.get(job_id)
        if bundle is not None:
            self._read_bundle(bundle, now)
            self.bundles.lost(bundle)
            for member in bundle.left:
                self._members.pop(member, None)
                self.queue.requeued(member, now)
        elif self.queue.item_of(job_id) is not None:
            self.queue.requeued(job_id, now)

    # ---- resuming

    def adopt(self, job_id: str, now: float) -> None:
        """A job that the live world still has is not submitted again."""
        units = self.live.units_of(job_id) or None
        item = self.queue.adopt(job_id, now, units)
        if item is None:
            self.live.cancel(job_id)
        elif units is not None:
            prepared = self._prepared(item, units)
            self.queue.launched(job_id, now, wd=prepared.wd, program=prepared.program)

    def adopt_bundle(self, bundle: Bundle, now: float) -> None:
        """A bundle that an engine may still have in hand."""
        units = self.live.units_of(bundle.id)
        if not units:
            self.bundles.close(bundle)
            return
        for member in list(bundle.left):
            item = self.queue.adopt(member, now, units)
            if item is None:
                self.bundles.drop(bundle, member)
            else:
                self._members[member] = self._prepared(item, units)
        self._launch_next(bundle, now)


def _as_python_error(reason: str) -> str:
    """Why a program was not started (`/no/such: No such file or directory`), as 0.14.2 shows it."""
    program, _, why = reason.rpartition(": ")
    if why == "no such program":
        # Also where the file exists but may not be executed.
        why = os.strerror(errno.EACCES if "/" in program and os.path.exists(program) else errno.ENOENT)
    number = _NUMBERS.get(why)
    return reason if number is None else f"[Errno {number}] {why}: '{program}'"


_NUMBERS = {os.strerror(number): number for number in errno.errorcode}
