"""The manager as a World around a live world: requests come in while jobs run.

A Session runs it like any other world, with any decider. Between two turns it answers requests from the network, lets
the executor submit ready jobs to the live world, empties the manager's outbox, and looks whether it is done. Requests of a
file are read first, one in each turn: each sees the jobs of those before it started, and none of them ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from pilothouse.dropins.qcg.executor import Executor
from pilothouse.dropins.qcg.files import ManagerFiles
from pilothouse.dropins.qcg.manager import Manager
from pilothouse.dropins.qcg.registry import state_name
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.protocols.qcg.client import GovernorLink
from pilothouse.protocols.qcg.network import Answer, Network
from pilothouse.worlds.live.world import LiveWorld

log = logging.getLogger("pilothouse.qcg")

GATHER_S = 0.05
"""How long an end may be kept from subscribers while other jobs run."""
LINGER_S = 0.5
"""How long a manager whose jobs are done still answers requests."""


class Service:
    """A QCG PilotJob Manager with its interfaces and files."""

    name = "qcg"

    def __init__(
        self,
        live: LiveWorld,
        manager: Manager,
        executor: Executor,
        files: ManagerFiles,
        *,
        network: Network | None = None,
        requests: Sequence[bytes] = (),
        node_order: tuple[str, ...] = (),
        restore: Callable[[], None] | None = None,
        progress: Callable[[str], None] | None = None,
        governor: GovernorLink | None = None,
    ) -> None:
        self.live = live
        self._manager = manager
        self._executor = executor
        self._files = files
        self._network = network
        self._requests = requests
        self._taken = files.taken
        self._reading = True
        self.left = 0
        """How many jobs had not ended when the end of a request file ended the manager."""
        self._node_order = node_order
        self._restore = restore
        self._progress = progress
        self._governor = governor
        self._unpublished: list[tuple[str, dict[str, object]]] = []
        self._gathering: threading.Timer | None = None
        self._done_at: float | None = None
        self._begun = self._closed = False
        live.on_tick.append(self._tick)

    # ---- the contract of a World

    def begin(self, wants: d.Wants) -> e.Begins:
        begins = self.live.begin(wants)
        # Engines join in any order; nodes are listed in the order in which they were named.
        order = {name: number for number, name in enumerate(self._node_order)}
        nodes = tuple(sorted(begins.nodes, key=lambda node: (order.get(node.name, len(order)), node.first)))
        begins = msgspec.structs.replace(begins, nodes=nodes)
        executor, queue = self._executor, self._manager.queue
        queue.joined(nodes)
        if not all(node.cores >= node.count for node in nodes):
            executor.settings = msgspec.structs.replace(executor.settings, binding=False)
        received = self._network is not None or self._progress is not None
        queue.publishes = received or log.isEnabledFor(logging.DEBUG)
        self._begun = True
        if self._governor is not None:
            self._governor.confirm()
        used = ", ".join(f"{node.name} {node.count}" for node in nodes)
        log.info("available resources: %d cores on %d nodes (%s)", begins.units, len(nodes), used)
        if self._restore is not None:
            self._restore()
        if self._network is not None:
            self.live.watch(self._network.fd)
        return begins

    def advance(self) -> e.Batch | None:
        if self._reading and self._taken < len(self._requests):
            self._read_next()
            return self._observed(e.Batch(self.live.now(), self.live.more_events()))
        if self._reading:
            self._reading = False
            self._end_of_file()
        self._serve()
        self._settle()
        if self._network is not None and self._network.pending:
            # More requests than are answered at once: the descriptor will not become readable for them again.
            return e.Batch(self.live.now(), [])
        batch = self.live.advance()
        if batch is None:
            return None
        self._observed(batch)
        self._serve()
        self._settle()
        # Jobs that became ready by an end are decided about together with the end.
        if not (batch.events and isinstance(batch.events[-1], e.Ended)) and (more := self.live.more_events()):
            batch.events.extend(more)
            batch.now = self.live.now()
        return batch

    def _observed(self, batch: e.Batch) -> e.Batch:
        for event in batch.events:
            self._executor.observe(event, time.time())
        return batch

    def apply(self, reply: d.Reply) -> None:
        now = time.time()
        for decision in reply.decisions:
            if isinstance(decision, d.StartJob):
                self._executor.start(decision, now)
            elif isinstance(decision, d.RejectJob):
                self._executor.refuse(decision, now)
        self.live.apply(reply)
        self._manager.queue.turn_is_over()
        self._executor.turn_is_over(time.time())
        self._settle()
        self._stop_if_done()

    def watch(self, fd: int) -> None:
        self.live.watch(fd)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._begun:
            self._settle()
            if self._gathering is not None:
                self._gathering.cancel()
                self._gathering.join()
            self._publish()
            self._files.write_status(self._manager.status(time.time(), self._manager.usage()))
        self.live.close()
        if self._network is not None:
            self._network.close()
        if self._governor is not None:
            self._governor.close()
        self._files.close()
        log.info("manager stopped")

    # ---- requests

    def _serve(self) -> None:
        if self._network is not None:
            self._network.serve(self._answer)

    def _answer(self, text: bytes) -> Answer:
        answer = self._manager.handle(text, time.time())
        # Before the client has its answer: an accepted job must survive, and a client that learns of an end must not
        # receive its event later, when it waits for other jobs.
        self._empty_outbox()
        self._publish()
        log_request(text, answer)
        self._stop_if_done()
        return answer

    def _read_next(self) -> None:
        """The file interface: requests in order, answers to the log."""
        answer = self._answer(self._requests[self._taken])
        self._taken += 1
        self._files.note_taken(self._taken)
        log_file_answer(answer)
        self._settle()

    def _end_of_file(self) -> None:
        manager = self._manager
        if self._network is not None or manager.finish_when_done or manager.stop_at is not None:
            return
        if manager.dialect.waits_at_end_of_file or self._restore is not None:
            manager.finish_when_done = True
        else:
            # The specification, control: without it the manager finishes as soon as all requests are read.
            log.info("all requests are read, and no control request says to wait for the jobs")
            self.left = manager.registry.unfinished
            self._executor.terminating = True
            manager.stop_at = time.time()
        self._stop_if_done()

    # ---- between two turns

    def _settle(self) -> None:
        """Submits ready jobs to the live world, and empties the outbox."""
        if not self._executor.terminating:
            self._executor.feed(time.time())
        self._empty_outbox()
        if self._unpublished and self._gathering is None:
            self._publish_or_gather()

    def _empty_outbox(self) -> None:
        outbox = self._manager.queue.take_outbox()
        if outbox.accepted:
            self._files.accepted(outbox.accepted)
        for entry in outbox.removed:
            self._files.removed(entry)
        for job_id in outbox.cancelled:
            self._executor.cancel(job_id, time.time())
        if outbox.finished and not self._executor.terminating:
            self._files.finished(outbox.finished)
            for entry, index in outbox.finished:
                if self._governor is not None and index is None and (attributes := entry.description.attributes):
                    self._governor.notify(entry.name, state_name(entry.status.state), attributes)
        self._unpublished += outbox.publications

    def _publish_or_gather(self) -> None:
        """Jobs that began together often end together: a client that asks after the first event shall see them all."""
        ends = any(topic in ("JFI", "IFI") for topic, _ in self._unpublished)
        if self._network is None or not ends or not self._manager.queue.busy:
            self._publish()
        else:
            self._gathering = threading.Timer(GATHER_S, self.live.call, (self._publish,))
            self._gathering.start()

    def _publish(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        publications, self._unpublished = self._unpublished, []
        for topic, event in publications:
            if self._network is not None:
                self._network.publish(topic, event)
            if self._progress is not None and topic in ("JFI", "IFI"):
                part = f":{event['it']}" if "it" in event else ""
                self._progress(f"{event['job']}{part} {event['state']}")
            log.debug("%s %s", topic, event)

    def _tick(self) -> None:
        """Called twice a second."""
        if self._begun:
            self._executor.read_running_bundles(time.time())
            self._settle()
            self._stop_if_done()

    def _stop_if_done(self) -> None:
        """Called after each turn and each request, and twice a second."""
        manager, now = self._manager, time.time()
        if manager.stop_at is not None and now >= manager.stop_at:
            self.live.stop("finish was asked for")
        elif manager.finish_when_done and not self._reading and manager.queue.all_finished:
            if self._done_at is None:
                self._done_at = now
            if self._network is None or now >= self._done_at + LINGER_S:
                self.live.no_more()

    def terminate(self) -> None:
        """After a signal: jobs are killed, but not reported or tracked, so that a resumed manager runs them again."""
        log.info("terminated by a signal")
        self._executor.terminating = True
        self.live.stop("terminated")


def log_request(text: bytes, answer: Answer) -> None:
    if log.isEnabledFor(logging.INFO):
        log.info("request %s", text[:2000].decode("utf-8", "replace"))
        log.info("answer %s", msgspec.json.encode(answer)[:2000].decode())


def log_file_answer(answer: Answer) -> None:
    log.info("FileInterface reply message: %s", msgspec.json.format(msgspec.json.encode(answer)).decode())
