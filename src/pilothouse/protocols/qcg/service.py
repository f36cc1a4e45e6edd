"""The manager at work: a World around a live world, with requests coming in while it goes on.

A Session runs it like any other world, with any decider. Between two turns it answers requests (network), hands ready
jobs to the live world, carries out what the manager left in its outbox, and watches for the end. A job's command is
made when its cores are known: until then the live world holds a stand-in for it.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from pilothouse.formats.qcg_description import Dialect
from pilothouse.formats.qcg_requests import preferred_dialect
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.job import Command, Node
from pilothouse.model.lifecycle import FINAL, JobState
from pilothouse.protocols.qcg.answers import Answer, System
from pilothouse.protocols.qcg.dependencies import Place
from pilothouse.protocols.qcg.folder import Folder
from pilothouse.protocols.qcg.launch import Launch, Surroundings, prepare
from pilothouse.protocols.qcg.manager import Manager
from pilothouse.protocols.qcg.network import Network
from pilothouse.protocols.qcg.work import WINDOW
from pilothouse.worlds.live.records import JobKnown, Record, Recorder, TaskEnded
from pilothouse.worlds.live.world import LiveWorld

log = logging.getLogger("pilothouse.qcg")

LINGER_S = 0.5
"""How long a manager whose work is done still answers, so that whoever waits can hear of it."""
_STAND_IN = "pilothouse: this job has no cores yet"
STAND_IN = Command(argv=(_STAND_IN,))
_BY_OTHERS = ("", "killed", "walltime", "dismissed")
"""Reasons of an end that are no complaint about the program."""


class SparingRecorder:
    """Leaves jobs out of the journal that have no command yet: a resumed manager hands them out again anyway."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def write(self, records: list[Record]) -> None:
        kept = [record for record in records if type(record) is not JobKnown or _STAND_IN.encode() not in record.data]
        if kept:
            self._recorder.write(kept)

    def close(self) -> None:
        self._recorder.close()


class Service:
    """A QCG PilotJob Manager with its interfaces and files."""

    name = "qcg"

    def __init__(
        self,
        live: LiveWorld,
        system: System,
        folder: Folder,
        around: Surroundings,
        *,
        clock: Callable[[], float],
        network: Network | None = None,
        requests: list[bytes] | None = None,
        node_order: tuple[str, ...] = (),
        cluster: str = "local",
        restore: Callable[[Service], None] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.live = live
        self.folder = folder
        self.manager: Manager
        self.terminating = False
        self._system = system
        self._around = around
        self._clock = clock
        self._network = network
        self._requests = requests
        self._node_order = node_order
        self._cluster = cluster
        self._restore = restore
        self._progress = progress
        self._ends: dict[str, TaskEnded] = {}
        self._complaints: dict[str, str] = {}
        self._done_at: float | None = None
        self._stopped = False
        live.on_task.append(self._note_end)
        live.on_tick.append(self._watch_for_the_end)

    # ---- the contract

    def begin(self, wants: d.Wants) -> e.Begins:
        begins = self.live.begin(wants)
        nodes = self._ordered(begins.nodes)
        begins = msgspec.structs.replace(begins, nodes=nodes)
        binding = all(node.cores >= node.count for node in nodes)
        self._around = msgspec.structs.replace(self._around, binding=self._around.binding and binding)
        self.manager = Manager(self._system, nodes, lambda: uuid.uuid4().hex, cluster=self._cluster)
        used = ", ".join(f"{node.name} {node.count}" for node in nodes)
        log.info("available resources: %d cores on %d nodes (%s)", begins.units, len(nodes), used)
        if self._restore is not None:
            self._restore(self)
        if self._network is not None:
            self.live.watch(self._network.fd)
        if self._requests is not None or self._network is None:
            self._read_file(self._requests or [])
        return begins

    def _ordered(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Engines join in any order; nodes are listed in the order in which they were named."""
        order = {name: number for number, name in enumerate(self._node_order)}
        return tuple(sorted(nodes, key=lambda node: (order.get(node.name, len(order)), node.first)))

    def advance(self) -> e.Batch | None:
        self._serve()
        self._settle()
        batch = self.live.advance()
        if batch is None:
            return None
        for event in batch.events:
            self._observe(event)
        self._serve()
        self._settle()
        # What an end has set free is decided about together with the end.
        driver = self.live.driver
        driver.settle(self.live.now())
        if driver.events and not isinstance(batch.events[-1] if batch.events else None, e.Ended):
            batch.events.extend(driver.events)
            driver.events = []
            batch.now = self.live.now()
        return batch

    def apply(self, reply: d.Reply) -> None:
        work, now = self.manager.work, self._clock()
        for order in reply.decisions:
            if isinstance(order, d.StartJob):
                self._start(order, now)
            elif isinstance(order, d.RejectJob) and work.place_of(order.job_id) is not None:
                work.refused(order.job_id, order.reason, now)
        self.live.apply(reply)
        work.turn_is_over()
        self._settle()

    def watch(self, fd: int) -> None:
        self.live.watch(fd)

    def close(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        if hasattr(self, "manager"):
            self._settle()
            self.folder.write_status(self.manager.status(self._clock()))
        self.live.close()
        if self._network is not None:
            self._network.close()
        self.folder.close()
        log.info("manager stopped")

    # ---- requests

    def _serve(self) -> None:
        if self._network is not None:
            self._network.serve(self._answer)

    def _answer(self, text: bytes) -> Answer:
        now = self._clock()
        answer = self.manager.handle(text, now)
        if log.isEnabledFor(logging.INFO):
            log.info("request %s", text[:2000].decode("utf-8", "replace"))
            log.info("answer %s", msgspec.json.encode(answer)[:2000].decode())
        outbox = self.manager.work.outbox
        # Before the client hears of it: a job that was accepted must survive.
        if outbox.accepted:
            self.folder.accepted(outbox.accepted)
            outbox.accepted.clear()
        for name in outbox.removed:
            self.folder.removed(name)
        outbox.removed.clear()
        self._watch_for_the_end()
        return answer

    def _read_file(self, requests: list[bytes]) -> None:
        """The file interface: all requests in order, answers to the log."""
        self.manager.dialect = preferred_dialect(requests)
        for text in requests:
            answer = self._answer(text)
            log.info("FileInterface reply message: %s", msgspec.json.format(msgspec.json.encode(answer)).decode())
            self._settle()
        manager = self.manager
        if self._network is None and not manager.finish_when_done and manager.stop_at is None:
            if manager.dialect is Dialect.SPECIFICATION:
                # The specification, control: without it the manager finishes as soon as all requests are read.
                log.info("all requests are read, and nobody said to wait for the jobs")
                manager.stop_at = self._clock()
            else:
                manager.finish_when_done = True

    # ---- between two turns

    def _settle(self) -> None:
        """Hands work to the live world, and carries out what the manager wants done."""
        work = self.manager.work
        now = self._clock()
        if not self.terminating:
            for job in work.feed(WINDOW - self.live.driver.waiting, now):
                job.command = STAND_IN
                self.live.submit(job)
        outbox = work.take()
        if outbox.accepted:
            self.folder.accepted(outbox.accepted)
        for job_id in (*outbox.kill, *outbox.withdraw):
            self.live.cancel(job_id)
        if outbox.finished and not self.terminating:
            self.folder.finished(outbox.finished)
        for topic, event in outbox.publications:
            if self._network is not None:
                self._network.publish(topic, event)
            if self._progress is not None and topic in ("JFI", "IFI"):
                part = f":{event['it']}" if "it" in event else ""
                self._progress(f"{event['job']}{part} {event['state']}")
            log.debug("%s %s", topic, event)

    def _watch_for_the_end(self) -> None:
        """Called twice a second, and after each request."""
        if not hasattr(self, "manager"):
            return
        manager, now = self.manager, self._clock()
        if manager.stop_at is not None and now >= manager.stop_at:
            self.live.stop("finish was asked for")
        elif manager.finish_when_done and manager.work.all_finished:
            if self._done_at is None:
                self._done_at = now
            lingering = self._network is not None and now < self._done_at + LINGER_S
            if not lingering:
                self.live.no_more()

    def terminate(self) -> None:
        """A signal: what runs is ended, but not told or tracked, so that a resumed manager runs it again."""
        log.info("terminated by a signal")
        self.terminating = True
        self.live.stop("terminated")

    # ---- the life of a job

    def _start(self, order: d.StartJob, now: float) -> None:
        work = self.manager.work
        place = work.place_of(order.job_id)
        if place is None:
            return  # cancelled while it was decided about; the live world knows
        work.allocated(order.job_id, order.units, now)
        launch = self._prepared(place, order)
        self._bind(order.job_id, launch.command)
        work.launched(order.job_id, now, wd=launch.wd, program=launch.program)

    def _prepared(self, place: Place, order: d.StartJob) -> Launch:
        entry, index = place
        shares = self.manager.work.layout.shares(order.units)
        launch = prepare(entry.description, index, shares, self._around, uuid.uuid4().hex)
        try:
            for directory in launch.directories:
                if not os.path.isdir(directory):
                    os.makedirs(directory, exist_ok=True)
            for path, text in launch.files:
                Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            # It will fail where it is started; this says why.
            self._complaints[order.job_id] = str(error)
        return launch

    def _bind(self, job_id: str, command: Command) -> None:
        """Puts the real command in the place of the stand-in, also for a driver that is restarted meanwhile."""
        driver = self.live.driver
        lot = driver.lots.get(job_id)
        if lot is None:
            return
        lot.job.command = command
        ((task_id, order),) = lot.tasks.items()
        argv = tuple(word.encode("utf-8", "surrogateescape") for word in command.argv)
        lot.tasks[task_id] = msgspec.structs.replace(order, line=b"", argv=argv)
        lot.surroundings = msgspec.structs.replace(
            lot.surroundings,
            cwd=command.cwd,
            stdin=command.stdin,
            stdout=command.stdout,
            stderr=command.stderr,
            env=command.env,
        )
        driver.records.append(JobKnown(job_id, task_id, msgspec.msgpack.encode(lot.job)))

    def _note_end(self, record: TaskEnded) -> None:
        if record.final and record.job_id:
            self._ends[record.job_id] = record

    def _observe(self, event: e.Event) -> None:
        work, now = self.manager.work, self._clock()
        if isinstance(event, e.JobEnded):
            if self.terminating:
                return
            record = self._ends.pop(event.job_id, None)
            pid, code, message = self._told(event, record)
            work.ended(event.job_id, event.state, code, now, pid=pid, message=message)
        elif isinstance(event, e.JobRequeued) and work.place_of(event.job_id) is not None:
            work.requeued(event.job_id, now)
        elif isinstance(event, e.NodesLeft | e.NodesJoined):
            log.warning("%s: %s", type(event).__name__, event)

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
        program, _, why = record.reason.rpartition(": ")
        if why.lower() in ("no such program", "no such file or directory"):
            return -1, -1, message or f"[Errno 2] No such file or directory: '{program}'"
        return -1, -1, message or record.reason

    # ---- what a resumed manager is told

    def adopt(self, known: list[str]) -> None:
        """Jobs that the live world has from before: they are not handed to it again."""
        now = self._clock()
        for job_id in known:
            lot = self.live.driver.lots.get(job_id)
            units = lot.units if lot is not None and lot.units else None
            place = self.manager.work.adopt(job_id, now, units)
            if place is None:
                self.live.cancel(job_id)
                continue
            if units is not None:
                entry, index = place
                launch = prepare(
                    entry.description, index, self.manager.work.layout.shares(units), self._around, uuid.uuid4().hex
                )
                self.manager.work.launched(job_id, now, wd=launch.wd, program=launch.program)

    @property
    def unfinished(self) -> int:
        return sum(entry.life.state not in FINAL for entry in self.manager.work.registry.entries.values())
