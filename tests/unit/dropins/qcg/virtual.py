"""A manager on a virtual allocation: real manager, real policy, real cluster; only processes and time are made up."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import msgspec

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.dropins.qcg.files import ManagerFiles
from pilothouse.dropins.qcg.job_command import NodeLayout
from pilothouse.dropins.qcg.job_queue import WINDOW
from pilothouse.dropins.qcg.manager import Manager, System
from pilothouse.dropins.qcg.registry import Entry
from pilothouse.formats.qcg_dialect import LATER, Dialect
from pilothouse.journal.read import JobRow
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.job import Node
from pilothouse.model.lifecycle import JobState
from pilothouse.policies.base import Policy
from pilothouse.policies.qcg import Qcg

Outcome = tuple[float, int, str]
"""Seconds, exit code, message."""


def nodes_of(*cores: int, gpus: int = 0) -> tuple[Node, ...]:
    nodes, first = [], 0
    for number, count in enumerate(cores):
        nodes.append(Node(f"n{number}", first, count, gpus=gpus))
        first += count
    return tuple(nodes)


class VirtualPilot:
    """`ask` sends a request, `run` lets time pass until nothing is left to happen (or until a date)."""

    def __init__(
        self,
        *cores: int,
        policy: Policy | None = None,
        outcome: Callable[[str], Outcome] = lambda name: (1.0, 0, ""),
        gpus: int = 0,
        files: ManagerFiles | None = None,
        dialect: Dialect = LATER,
    ) -> None:
        self.now = 1000.0
        self.files = files
        nodes = nodes_of(*cores, gpus=gpus)
        ids = iter(range(1, 10**9))
        self.manager = Manager(System("vm.1", self.now), nodes, lambda: f"id-{next(ids)}", dialect=dialect)
        self.queue = self.manager.queue
        self.layout = NodeLayout(nodes)
        self.cluster = Cluster(e.Begins(nodes, time_waits=False, started_at=self.now), "test")
        self.decider = PolicyDecider(policy or Qcg())
        self.decider.begin(self.cluster.begins, self.cluster)
        self.outcome = outcome
        self.published: list[tuple[str, dict[str, object]]] = []
        self.finished: list[tuple[Entry, int | None]] = []
        self.starts: list[tuple[float, str, str]] = []
        """(date, name, where) of each start."""
        self.rows: list[JobRow] = []
        """What a journal would say of ends."""
        self._agenda: list[tuple[float, int, str, Outcome]] = []
        self._serial = 0
        self._killed: set[str] = set()
        self._withdrawn: list[str] = []

    def ask(self, request: object, *, settle: bool = True) -> dict[str, object]:
        text = request if isinstance(request, bytes) else msgspec.json.encode(request)
        answer = self.manager.handle(text, self.now)
        self._collect()
        if settle:
            self.schedule([])
        return msgspec.json.decode(msgspec.json.encode(answer))

    def schedule(self, events: list[e.Event]) -> None:
        events.extend(e.JobWithdrawn(self.now, job_id) for job_id in self._withdrawn)
        self._withdrawn.clear()
        room = WINDOW - len(self.cluster.waiting)
        events.extend(e.JobSubmitted(self.now, job) for job in self.queue.take_ready(room, self.now))
        reply = self.decider.decide(e.Batch(self.now, events))
        for order in reply.decisions:
            if isinstance(order, d.StartJob):
                self.queue.allocated(order.job_id, order.units, self.now)
                entry, index = self.queue.item_of(order.job_id)  # type: ignore[misc]
                self.queue.launched(order.job_id, self.now, wd="/wd", program=entry.description.execution.program)
                self.starts.append((self.now, entry.full_name(index), self.layout.counted_cores(order.units)))
                self._enter(order.job_id, self.outcome(entry.full_name(index)))
            elif isinstance(order, d.RejectJob):
                self.queue.refused(order.job_id, order.reason, self.now)
        self.queue.turn_is_over()
        self._collect()

    def _enter(self, job_id: str, outcome: Outcome) -> None:
        self._serial += 1
        heapq.heappush(self._agenda, (self.now + outcome[0], self._serial, job_id, outcome))

    def _collect(self) -> None:
        outbox = self.queue.take_outbox()
        if self.files is not None:
            self.files.accepted(outbox.accepted)
            for entry in outbox.removed:
                self.files.removed(entry)
            self.files.finished(outbox.finished)
        self.published.extend(outbox.publications)
        self.finished.extend(outbox.finished)
        for job_id in outbox.cancelled:
            if job_id in self.cluster.running:
                self._killed.add(job_id)
                self._enter(job_id, (0.001, -15, ""))
            else:
                self._withdrawn.append(job_id)

    def run(self, until: float = float("inf")) -> None:
        while self._agenda and self._agenda[0][0] <= until:
            self.now = self._agenda[0][0]
            events: list[e.Event] = []
            while self._agenda and self._agenda[0][0] == self.now:
                _, _, job_id, outcome = heapq.heappop(self._agenda)
                run = self.cluster.running.get(job_id)
                if run is None:
                    continue
                state = JobState.SUCCEEDED if outcome[1] == 0 else JobState.FAILED
                state = JobState.KILLED if job_id in self._killed else state
                row = (job_id, run.units, "/wd", state, run.started_at, self.now, outcome[1], 4711)
                self.rows.append(JobRow(*row))
                self.queue.ended(job_id, state, outcome[1], self.now, pid=4711, message=outcome[2])
                events.append(e.JobEnded(self.now, job_id, state, outcome[1], run.units))
            self.schedule(events)
        if until != float("inf"):
            self.now = max(self.now, until)

    def states(self) -> dict[str, str]:
        answer = self.ask({"request": "status"}) and self.ask({"request": "listJobs"})
        return {name: job["status"] for name, job in answer["data"]["jobs"].items()}  # type: ignore[index]
