"""The manager at work: a World around a live world, with requests coming in while it goes on.

A Session runs it like any other world, with any decider. Between two turns it answers requests (network), lets the
executor hand ready jobs to the live world, carries out what the manager left in its outbox, and watches for the end.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable

import msgspec

from pilothouse.dropins.qcg.answers import Answer, System
from pilothouse.dropins.qcg.bundles import Bundles
from pilothouse.dropins.qcg.executor import Executor
from pilothouse.dropins.qcg.folder import Folder
from pilothouse.dropins.qcg.launch import Surroundings
from pilothouse.dropins.qcg.manager import Manager
from pilothouse.dropins.qcg.network import Network
from pilothouse.dropins.qcg.parent import Parent
from pilothouse.formats.qcg_description import Dialect
from pilothouse.formats.qcg_requests import preferred_dialect
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.job import Node
from pilothouse.worlds.live.world import LiveWorld

log = logging.getLogger("pilothouse.qcg")

GATHER_S = 0.05
"""How long an end may be kept from subscribers while other jobs run."""
LINGER_S = 0.5
"""How long a manager whose work is done still answers, so that whoever waits can hear of it."""


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
        bundles: Bundles | None = None,
        restore: Callable[[Service], None] | None = None,
        progress: Callable[[str], None] | None = None,
        parent: Parent | None = None,
        reserved: int = 0,
    ) -> None:
        self.live = live
        self.folder = folder
        self.manager: Manager
        self.executor: Executor
        self._system = system
        self._around = around
        self._clock = clock
        self._network = network
        self._requests = requests
        self._node_order = node_order
        self._cluster = cluster
        self._bundles = bundles
        self._restore = restore
        self._progress = progress
        self._parent = parent
        self._reserved = reserved
        self._unpublished: list[tuple[str, dict[str, object]]] = []
        self._gathering: threading.Timer | None = None
        self._done_at: float | None = None
        self._stopped = False
        live.on_tick.append(self._tick)

    # ---- the contract

    def begin(self, wants: d.Wants) -> e.Begins:
        begins = self.live.begin(wants)
        nodes = self._ordered(begins.nodes)
        begins = msgspec.structs.replace(begins, nodes=nodes)
        binding = all(node.cores >= node.count for node in nodes)
        around = msgspec.structs.replace(self._around, binding=self._around.binding and binding)
        self.manager = Manager(
            self._system, nodes, lambda: uuid.uuid4().hex, cluster=self._cluster, reserved=self._reserved
        )
        self.executor = Executor(self.live, self.manager.work, around, self._bundles, self._clock)
        listened = self._network is not None or self._progress is not None
        self.manager.work.tells = listened or log.isEnabledFor(logging.DEBUG)
        if self._parent is not None:
            self._parent.confirm()
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
        if self._network is not None and self._network.pending:
            # More clients than are answered at once: the descriptor has told of them and will not do so again.
            return e.Batch(self.live.now(), [])
        batch = self.live.advance()
        if batch is None:
            return None
        for event in batch.events:
            self.executor.observe(event)
        self._serve()
        self._settle()
        # What an end has set free is decided about together with the end.
        if not (batch.events and isinstance(batch.events[-1], e.Ended)) and (more := self.live.more_events()):
            batch.events.extend(more)
            batch.now = self.live.now()
        return batch

    def apply(self, reply: d.Reply) -> None:
        work, now = self.manager.work, self._clock()
        for order in reply.decisions:
            if isinstance(order, d.StartJob):
                self.executor.start(order, now)
            elif isinstance(order, d.RejectJob):
                self.executor.refuse(order, now)
        self.live.apply(reply)
        work.turn_is_over()
        self.executor.turn_is_over()
        self._settle()
        self._watch_for_the_end()

    def watch(self, fd: int) -> None:
        self.live.watch(fd)

    def close(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        if hasattr(self, "manager"):
            self._settle()
            if self._gathering is not None:
                self._gathering.cancel()
                self._gathering.join()
            self._publish()
            self.folder.write_status(self.manager.status(self._clock()))
        self.live.close()
        if self._network is not None:
            self._network.close()
        if self._parent is not None:
            self._parent.close()
        self.folder.close()
        log.info("manager stopped")

    # ---- requests

    def _serve(self) -> None:
        if self._network is not None:
            self._network.serve(self._answer)

    def _answer(self, text: bytes) -> Answer:
        now = self._clock()
        answer = self.manager.handle(text, now)
        self._publish_before_the_answer()
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
        if not self.executor.terminating:
            self.executor.feed(now)
        outbox = work.take()
        if outbox.accepted:
            self.folder.accepted(outbox.accepted)
        for job_id in outbox.withdraw:
            self.executor.withdraw(job_id)
        for job_id in outbox.kill:
            self.executor.kill(job_id)
        if outbox.finished and not self.executor.terminating:
            self.folder.finished(outbox.finished)
            if self._parent is not None:
                self._parent.notify(entry for entry, index in outbox.finished if index is None)
        self._unpublished += outbox.publications
        if self._unpublished and self._gathering is None:
            self._publish_or_gather()

    def _publish_or_gather(self) -> None:
        """Jobs that began together often end together: whoever hears of one and asks at once shall see them all."""
        ends = any(topic in ("JFI", "IFI") for topic, _ in self._unpublished)
        if self._network is None or not ends or not self.manager.work.busy:
            self._publish()
            return
        self._gathering = threading.Timer(GATHER_S, self.live.call, (self._publish,))
        self._gathering.start()

    def _publish_before_the_answer(self) -> None:
        """Whoever is told that a job has ended must not hear of it later, as news of jobs that came since."""
        publications = self.manager.work.outbox.publications
        if publications or self._unpublished:
            self._unpublished += publications
            publications.clear()
            self._publish()

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
        if hasattr(self, "manager"):
            self.executor.look_at_bundles()
            self._settle()
            self._watch_for_the_end()

    def _watch_for_the_end(self) -> None:
        """After each turn and each request, and with each tick."""
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
        self.executor.terminating = True
        self.live.stop("terminated")

    # ---- the life of a job
