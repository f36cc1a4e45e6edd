"""A schedule as columns: what every view of a run is made of, whatever the run was.

views/read_run.py makes one of the files of a simulation or of the journal of a live run. Row i of every column is the same
job (in a live run: task). Columns are arrays of the standard library: `numpy.frombuffer` takes them as they are, and
nothing here needs numpy. Allocations stay text: as bitmasks those of a machine with 90,000 cores would need gigabytes.

Dates are seconds since the beginning of the run's clock; `clock_began` is that date since 1970 for a live run.
A job that has not started, or not ended, has NaN there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby
from math import inf, isnan, nan
from operator import itemgetter

import msgspec

from pilothouse.formats.jobs_csv import LATEST_S
from pilothouse.model.idset import MOST_ID
from pilothouse.model.job import Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.record import JobRecord


class Steps(msgspec.Struct, frozen=True):
    """A step function: `values[i]` holds from `dates[i]` on; 0 before. Dates ascend, each occurs once."""

    dates: array[float]
    values: array[float]

    @classmethod
    def summed(cls, changes: Iterable[tuple[float, float]]) -> Steps:
        """From (date, change) pairs in any order. Changes of one date are one step; a date without a change is none."""
        dates, values = array("d"), array("d")
        level = 0.0
        for date, group in groupby(sorted(changes, key=itemgetter(0)), key=itemgetter(0)):
            change = sum(change for _, change in group)
            if change:
                level += change
                dates.append(date)
                values.append(level)
        return cls(dates, values)

    def at(self, date: float) -> float:
        place = bisect_right(self.dates, date)
        return self.values[place - 1] if place else 0.0

    def integral(self, start: float, end: float) -> float:
        """The area below the steps between two dates."""
        inside = slice(bisect_right(self.dates, start), bisect_right(self.dates, end))
        dates = [start, *self.dates[inside], end]
        values = [self.at(start), *self.values[inside]]
        return sum(value * (dates[i + 1] - dates[i]) for i, value in enumerate(values))

    def mean(self, start: float, end: float) -> float:
        return self.integral(start, end) / (end - start) if end > start else 0.0

    @property
    def highest(self) -> float:
        return max(self.values, default=0.0)


def _reals() -> array[float]:
    return array("d")


def _integers() -> array[int]:
    return array("l")


class Schedule(msgspec.Struct, eq=False, kw_only=True):
    """One run, as far as it has come."""

    name: str
    """Short, for headings and legends: the policy of a simulation, the folder of a live run."""
    path: str
    """The folder, or what the names of its files begin with."""
    live: bool
    policy: str = ""
    """As the user named it; "" if that was not recorded."""
    over: bool = True
    """Whether the run has ended."""
    now: float = 0.0
    """How far the run's clock has come: the last date that anything is known of."""
    clock_began: float = 0.0
    units: int = 0
    nodes: tuple[Node, ...] = ()
    """The nodes of a live run. Units of a simulation are hosts without a name here."""
    total: int | None = None
    """Jobs in all, where that is known: more than there are rows while the run goes on."""
    workloads: list[str] = []
    """The files that the jobs of a simulation came from, as the user named them."""
    ids: list[str] = []
    users: list[str] = []
    """"" where it is not known. Those of a simulation are filled in by read_run.add_users."""
    submitted: array[float] = msgspec.field(default_factory=_reals)
    started: array[float] = msgspec.field(default_factory=_reals)
    ended: array[float] = msgspec.field(default_factory=_reals)
    requested: array[int] = msgspec.field(default_factory=_integers)
    widths: array[int] = msgspec.field(default_factory=_integers)
    """Units that it was given; 0 if it never started."""
    allocated: list[str] = []
    """Those units as text: `0-3 7`."""
    walltimes: array[float] = msgspec.field(default_factory=_reals)
    """Infinite where none was set."""
    states: list[JobState] = []
    exit_codes: array[int] = msgspec.field(default_factory=_integers)
    reasons: dict[int, str] = {}
    """Why a job did not succeed or was refused, by row, where that is known."""
    last_words: dict[int, str] = {}
    """The last line that a failed task wrote to standard error, by row."""
    commands: list[str] = []
    """What each task runs. Empty for a simulation."""
    places: list[str] = []
    """The node that each task ran on. Empty for a simulation."""
    memory: array[float] = msgspec.field(default_factory=_reals)
    """The most memory that each task used, in bytes; NaN where it was not measured. Empty for a simulation."""
    cpu: array[float] = msgspec.field(default_factory=_reals)
    """CPU seconds of each task. Empty for a simulation."""
    capacity: Steps | None = None
    """Units that engines offered, over time. None: `units` all the time."""
    energy: Steps | None = None
    """Joules used so far, where recorded."""
    machine_states: dict[str, Steps] = {}
    """How many machines are sleeping, idle, computing ..., where recorded."""

    def __len__(self) -> int:
        return len(self.ids)

    def check(self) -> None:
        """Raises ValueError if a number cannot be: views would draw nonsense, or for ever."""
        for column in (self.submitted, self.started, self.ended):
            if any(abs(date) > LATEST_S for date in column):  # NaN is not
                raise ValueError("a date that cannot be")
        if not 0 <= self.units <= MOST_ID or any(not 0 <= width <= MOST_ID for width in self.widths):
            raise ValueError("a number of units that cannot be")

    def row(self, job_id: str) -> int | None:
        """The row of a job, by its id with or without the workload's name."""
        for row, known in enumerate(self.ids):
            if job_id in (known, known.partition("!")[2]):
                return row
        return None

    def ran(self) -> list[int]:
        """The rows of jobs that started."""
        return [row for row, start in enumerate(self.started) if not isnan(start)]

    def held_until(self, row: int) -> float:
        """When the job's units became free; for a job that still runs, how far the run has come."""
        end = self.ended[row]
        return max(self.now, self.started[row]) if isnan(end) else end

    def first_submission(self) -> float:
        return min(self.submitted, default=0.0)

    def last_end(self) -> float:
        return max((end for end in self.ended if not isnan(end)), default=self.first_submission())

    def busy(self) -> Steps:
        """Units in use."""
        widths = self.widths
        return Steps.summed(
            change
            for row in self.ran()
            for change in ((self.started[row], widths[row]), (self.held_until(row), -widths[row]))
        )

    def memory_in_use(self) -> Steps:
        """Bytes that running tasks use at most: the sum of their peaks."""
        return Steps.summed(
            change
            for row, used in enumerate(self.memory)
            if not isnan(used) and not isnan(self.started[row])
            for change in ((self.started[row], used), (self.held_until(row), -used))
        )

    def waiting(self) -> Steps:
        """Jobs that were submitted and not started."""
        return Steps.summed(self._waits(array("l", [1]) * len(self)))

    def waiting_units(self) -> Steps:
        """Units that waiting jobs asked for."""
        return Steps.summed(self._waits(self.requested))

    def _waits(self, sizes: array[int]) -> Iterator[tuple[float, float]]:
        """A refused job waits for no time; one without a start or an end still waits."""
        for submit, start, end, size in zip(self.submitted, self.started, self.ended, sizes, strict=True):
            leaves = end if isnan(start) else start
            yield submit, size
            if not isnan(leaves):
                yield leaves, -size

    def take(self, records: list[JobRecord]) -> None:
        """Adds jobs that have ended."""
        for record in records:
            job, start = record.job, record.started_at
            self.ids.append(job.id)
            self.users.append(job.user)
            self.submitted.append(job.submitted_at)
            self.started.append(date_or_nan(start))
            self.ended.append(record.ended_at)
            self.requested.append(job.units)
            self.widths.append(len(record.units))
            self.allocated.append(record.units.to_text())
            self.walltimes.append(job.walltime)
            self.states.append(record.state)
            self.exit_codes.append(record.return_code)
            self.now = max(self.now, record.ended_at)

    def boxes(self, rows: Iterable[int]) -> Iterator[tuple[int, int, int]]:
        """(row, first unit, last unit) of each run of neighbouring units of these jobs."""
        for row in rows:
            for first, last in intervals(self.allocated[row]):
                yield row, first, last


def intervals(text: str) -> list[tuple[int, int]]:
    """`0-3 7` or `0-3,7` as (0, 3), (7, 7). Raises ValueError."""
    found = []
    for part in text.replace(",", " ").split():
        first, dash, last = part.partition("-")
        low = int(first)
        found.append((low, int(last) if dash else low))
    return found


def overtakers(submitted: array[float], started: array[float], rows: Iterable[int]) -> list[int]:
    """Those of the rows (of jobs that started) that started before one that had been submitted earlier: the backfilled."""
    # Two stable sorts by one number each are faster than one by pairs.
    order = sorted(rows, key=started.__getitem__)
    order.sort(key=submitted.__getitem__)
    latest = -inf
    found = []
    for row in order:
        start = started[row]
        if start < latest:
            found.append(row)
        else:
            latest = start
    return found


def date_or_nan(date: float | None) -> float:
    return nan if date is None else date
