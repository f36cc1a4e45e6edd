"""Judges a steered run by slurmctld's own log: which job was ordered to which nodes, when it started, when it ended.

What must hold: a job starts on the nodes it was ordered to; no order names a node that another job holds or was ordered to;
no job starts before what it depends on has ended; and none is overtaken by a later order by more than one scheduling pass.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from pilothouse.formats import hostlist

LINE = re.compile(r"\[([^\]]+)\] (.*)")
JOB = r"JobId=(\d+(?:_\d+)?)(?:\((\d+)\))?"
ORDERED = re.compile(rf"(?:sched: )?_update_job: setting partition to (\S+) for {JOB}")
PLACED = re.compile(rf"(?:sched: )?_update_job: setting req_nodes to (\S*) for {JOB}")
STARTED = re.compile(rf"(?:sched: Allocate {JOB} NodeList=(\S+) .*Partition=go|.*Started {JOB} in go on (\S+))")
ENDED = re.compile(
    rf"_job_complete: {JOB} done|_slurm_rpc_kill_job: REQUEST_KILL_JOB {JOB}|Time limit exhausted for {JOB}"
)
PASS_S = 2.5
"""A scheduling pass on a busy machine."""


def dated(log: Iterable[str]) -> Iterator[tuple[float, str]]:
    """The lines of a slurmctld.log: date, text."""
    for found in filter(None, map(LINE.match, log)):
        yield datetime.fromisoformat(found[1]).timestamp(), found[2]


def judge(log: Iterable[str], after: Mapping[str, str], requeued: Mapping[str, float]) -> dict[str, float]:
    """Raises AssertionError, or returns figures.

    `after`: job -> the job that it depends on. `requeued`: job -> when its requeue was asked for. slurmctld logs a requeue
    when the last node of the job is free; it gives out the others before.
    """
    verdict = _Verdict(after)
    asked = [(at, job) for job, at in requeued.items()]
    for at, text in dated(log):
        while asked and asked[0][0] <= at:
            verdict.requeue(asked.pop(0)[1])
        verdict.read(at, text)
    assert not verdict.problems, verdict.problems
    return {
        "starts": len(verdict.waits),
        "median wait of an order": statistics.median(verdict.waits),
        "longest wait of an order": max(verdict.waits),
    }


class _Verdict:
    def __init__(self, after: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self.waits: list[float] = []
        self._after = after
        self._ordered: dict[str, float] = {}
        """Jobs that were ordered to start and have not: since when."""
        self._names: dict[str, set[str]] = {}
        """The nodes that were named last."""
        self._running: dict[str, set[str]] = {}
        self._over: set[str] = set()
        self._latest_order_started = -1.0

    def read(self, at: float, text: str) -> None:
        if match := ORDERED.match(text):
            if match[1] == "go":
                self._ordered[match[2]] = at
            else:
                self._ordered.pop(match[2], None)
        elif match := PLACED.match(text):
            self._place(match[2], set(filter(None, match[1].split(","))))
        elif match := STARTED.match(text):
            self._start(at, match[1] or match[4], set(hostlist.parse(match[3] or match[6])))
        elif match := ENDED.match(text):
            job = match[1] or match[3] or match[5]
            self._running.pop(job, None)
            self._ordered.pop(job, None)
            self._over.add(job)

    def requeue(self, job: str) -> None:
        if self._running.pop(job, None) is not None:
            self._over.discard(job)

    def _place(self, job: str, nodes: set[str]) -> None:
        self._names[job] = nodes
        if job in self._ordered:
            promised = {other: self._names.get(other, set()) for other in self._ordered if other != job}
            for other, taken in (*promised.items(), *self._running.items()):
                if taken & nodes:
                    self.problems.append(f"job {job} was ordered to {taken & nodes}, where job {other} was")

    def _start(self, at: float, job: str, nodes: set[str]) -> None:
        if nodes != self._names.get(job):
            self.problems.append(f"job {job} was ordered to {self._names.get(job)} and started on {nodes}")
        for other, taken in self._running.items():
            if taken & nodes:
                self.problems.append(f"jobs {other} and {job} are both on {taken & nodes}")
        earlier = self._after.get(job)
        if earlier and earlier not in self._over:
            self.problems.append(f"job {job} started before {earlier} had ended")
        order = self._ordered.pop(job, at)
        self.waits.append(at - order)
        if order < self._latest_order_started - PASS_S:
            self.problems.append(f"job {job} was overtaken by a later order")
        self._latest_order_started = max(self._latest_order_started, order)
        self._running[job] = nodes
