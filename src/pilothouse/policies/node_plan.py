"""The plan of conservative backfilling where jobs ask for nodes, GPUs or memory: when and where each waiting job is to start.

In and out as in reservation_plan.py, which counts units and is used where no waiting job has a shape. A reservation here is for
particular nodes, with everything that the job asks for of each. After an end that was not expected all of them are made again,
in order.

Only the first MOST_RESERVED jobs that cannot start have reservations. Jobs behind them wait until they are among these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster
    from pilothouse.core.node_timetable import NodeTimetable, Share

MOST_RESERVED = 50


class NodePlan:
    """Reservations of nodes for the first waiting jobs; none is delayed by a job behind it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._held: dict[str, float] = {}
        """Running jobs -> when they are expected to end."""
        self._queue: list[tuple[Job, float]] = []
        """The waiting jobs, with the duration of each."""
        self._placed: list[tuple[float, list[Share]] | None] = []
        """When and where each starts, in their order; None: never. Those that have just come have no entry yet."""
        self._timetable: NodeTimetable | None = None
        """None: to be made anew."""

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        """How many jobs hold units."""
        return len(self._held)

    def hold(self, job_id: str, date: float, units: int) -> None:
        """A job runs, and is expected to end at that date."""
        self._held[job_id] = date

    def release(self, job_id: str, now: float) -> bool:
        """A job is over. Returns whether it was known to run."""
        expected = self._held.pop(job_id, None)
        if expected != now:
            self._timetable = None
        return expected is not None

    def add(self, job: Job, units: int, duration: float) -> None:
        """A job waits, behind the others."""
        self._queue.append((job, duration))

    def remove(self, job: Job) -> bool:
        """A job was started. Its place in the plan is kept. Returns whether it was there."""
        for index, entry in enumerate(self._queue):
            if entry[0] is job:
                del self._queue[index]
                del self._placed[index : index + 1]
                return True
        return False

    def due(self, now: float, free: int) -> list[Job]:
        """The jobs that are to start by now, in their order."""
        if self._timetable is not None:
            self._timetable.forget_before(now)
        self._place()
        return [self._queue[index][0] for index, at in enumerate(self._placed) if at is not None and at[0] <= now]

    def units(self, job: Job) -> IdSet | None:
        """The units that a job is to start on; None: some of them are not free yet."""
        for (planned, _), at in zip(self._queue, self._placed, strict=False):
            if planned is job and at is not None and self._timetable is not None:
                return self._timetable.units(at[1])
        return None

    def jobs(self) -> list[Job]:
        """The waiting jobs in their order."""
        return [job for job, _ in self._queue]

    def starts(self) -> dict[str, float]:
        """Job id -> when it is to start; without those that have no reservation."""
        self._place()
        return {self._queue[index][0].id: at[0] for index, at in enumerate(self._placed) if at is not None}

    def _place(self) -> None:
        timetable, now = self._timetable, self._cluster.now
        if timetable is None:
            self._placed = []
            ends = [(date, job_id) for job_id, date in self._held.items()]
            timetable = self._timetable = self._cluster.timetable(ends)
        reserved = sum(at is None or at[0] > now for at in self._placed)
        while len(self._placed) < len(self._queue) and reserved < MOST_RESERVED:
            job, duration = self._queue[len(self._placed)]
            at = timetable.earliest(job, duration)
            self._placed.append(at)
            if at is not None:
                timetable.take(job, at[1], at[0], duration)
            reserved += at is None or at[0] > now
