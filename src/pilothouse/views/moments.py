"""A schedule moment by moment: what happened at each date, what was decided then, and why. Forwards and backwards.

Reasons are told from the records, as in views/story.py: they hold for any policy and any run, and say what can be seen from
outside (a job fits or not, it overtakes others or not), not what a policy had in mind.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from math import inf, isnan

from pilothouse.views.documents import Decided, MomentDocument, Queued, Running
from pilothouse.views.schedule import Schedule

_FEW = 3


class Moments:
    """The dates at which something happened in a run, in order."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        columns = (schedule.submitted, schedule.started, schedule.ended)
        self.dates = sorted({date for column in columns for date in column if not isnan(date)})
        self._by_submission = _order(schedule.submitted)
        self._by_start = _order(schedule.started)
        self._by_end = _order(schedule.ended)

    def __len__(self) -> int:
        return len(self.dates)

    def index_at(self, date: float) -> int:
        """The last moment that is not after the date."""
        return max(0, bisect_right(self.dates, date) - 1)

    def index_of(self, job_id: str) -> int | None:
        """The moment at which a job started, or came if it never did. None: there is no such job."""
        row = self.schedule.row(job_id)
        if row is None:
            return None
        start = self.schedule.started[row]
        return self.index_at(self.schedule.submitted[row] if isnan(start) else start)

    def next_decision(self, index: int, step: int) -> int | None:
        """The nearest moment after (step 1) or before (step -1) this one at which a job was started."""
        dates = self._by_start[0]
        place = bisect_right(dates, self.dates[index]) if step > 0 else bisect_left(dates, self.dates[index]) - 1
        return self.index_at(dates[place]) if 0 <= place < len(dates) else None

    def __iter__(self) -> Iterator[MomentDocument]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> MomentDocument:
        run, date = self.schedule, self.dates[index]
        _, come = self._by_submission
        arrived = _rows_at(self._by_submission, date)
        ended = [row for row in _rows_at(self._by_end, date) if not isnan(run.started[row])]
        started = sorted(_rows_at(self._by_start, date), key=run.submitted.__getitem__)
        begun = self._by_start[1][: bisect_right(self._by_start[0], date)]
        running = [row for row in begun if run.held_until(row) > date]
        waiting = [
            row
            for row in come[: bisect_right(self._by_submission[0], date)]
            if not run.started[row] <= date and not (isnan(run.started[row]) and run.ended[row] <= date)
        ]
        refused = [row for row in arrived if isnan(run.started[row]) and not isnan(run.ended[row])]
        free = run.units - sum(run.widths[row] for row in running)
        return MomentDocument(
            run=run.path,
            number=index,
            moments=len(self),
            date=date,
            units=run.units,
            free=free,
            submitted=[run.ids[row] for row in arrived],
            ended=[run.ids[row] for row in ended],
            refused=[run.ids[row] for row in refused],
            decided=[self._decided(row, date, waiting) for row in started],
            waiting=[self._queued(row, date, free) for row in waiting],
            running=[self._running(row) for row in sorted(running, key=run.held_until)],
        )

    def _decided(self, row: int, date: float, waiting: list[int]) -> Decided:
        run = self.schedule
        submit = run.submitted[row]
        passed = [run.ids[other] for other in waiting if run.submitted[other] < submit]
        if passed:
            why = f"backfilled past {some(passed)}"
        elif submit == date:
            why = "it came now, and fits"
        else:
            why = "first in the queue, and fits now"
        return Decided(
            job=run.ids[row], units=run.widths[row], allocated=run.allocated[row], waited=date - submit,
            walltime=_limit(run.walltimes[row]), why=why, passed=passed,
        )  # fmt: skip

    def _queued(self, row: int, date: float, free: int) -> Queued:
        run = self.schedule
        needed = run.requested[row]
        why = f"needs {needed:,}, {free:,} free" if needed > free else "fits, but is held back"
        return Queued(
            job=run.ids[row], units=needed, waited=date - run.submitted[row], walltime=_limit(run.walltimes[row]), why=why,
            starts=None if isnan(run.started[row]) else run.started[row],
        )  # fmt: skip

    def _running(self, row: int) -> Running:
        run = self.schedule
        limit = _limit(run.walltimes[row])
        return Running(
            job=run.ids[row], units=run.widths[row], allocated=run.allocated[row], started=run.started[row],
            expected_end=None if limit is None else run.started[row] + limit,
            ends=None if isnan(run.ended[row]) else run.ended[row],
        )  # fmt: skip


def _order(column: array[float]) -> tuple[list[float], list[int]]:
    """Dates that are known, ascending, and the rows that they belong to."""
    known = sorted((date, row) for row, date in enumerate(column) if not isnan(date))
    return [date for date, _ in known], [row for _, row in known]


def _rows_at(order: tuple[list[float], list[int]], date: float) -> list[int]:
    dates, rows = order
    return rows[bisect_left(dates, date) : bisect_right(dates, date)]


def _limit(walltime: float) -> float | None:
    return None if walltime == inf else walltime


def some(names: list[str], most: int = _FEW) -> str:
    """Up to three names, and how many more."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(local(name) for name in names[:most]) + more


def local(name: str) -> str:
    """A job's name without its workload."""
    return name.partition("!")[2] or name
