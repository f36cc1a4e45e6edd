"""Metrics of a run: waits, turnarounds, slowdowns, utilisation. Collected as jobs end, 40 bytes a job.

Slowdown is turnaround / run time; bounded slowdown is max(1, turnaround / max(tau, run time)). Rejected jobs are counted
and otherwise left out. A job was backfilled if it started before one that had arrived earlier.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from math import inf, isnan, nan

import msgspec

from pilothouse.model.lifecycle import JobState
from pilothouse.model.masks import bit_count
from pilothouse.model.record import JobRecord
from pilothouse.views.schedule import Schedule, overtakers

TAU = 10.0
_AT_ONCE = 1024


class Spread(msgspec.Struct, frozen=True):
    """Where the values lie. NaN where there are none."""

    mean: float
    median: float
    p95: float
    max: float


class Metrics(msgspec.Struct, frozen=True):
    jobs: int
    succeeded: int
    failed: int
    timed_out: int
    killed: int
    rejected: int
    wait: Spread
    turnaround: Spread
    slowdown: Spread
    bounded_slowdown: Spread
    utilisation: float
    """Busy unit-seconds over all unit-seconds, from the first submission to the last end."""
    makespan: float
    """From the first submission to the last end."""
    backfilled: float
    """Share of started jobs that overtook another."""
    tau: float = TAU


class Collector:
    """Takes records, and hands them on to `sinks` in batches; `metrics(units)` at any time.

    With a `window` of dates only jobs that were submitted in it are counted, and the utilisation is that between its dates.
    """

    def __init__(
        self, tau: float = TAU, *sinks: Callable[[list[JobRecord]], object], window: tuple[float, float] | None = None
    ) -> None:
        self._tau = tau
        self._window = window
        self._sinks = (self._count if window is None else self._count_in_window, *sinks)
        self._submitted = array("d")
        self._started = array("d")
        self._ended = array("d")
        self._busy = 0.0
        self._seen = 0
        self._first_submission = inf
        self._counts: Counter[JobState] = Counter()
        self._records: list[JobRecord] = []
        """What was added and is not counted yet."""

    def add(self, record: JobRecord) -> None:
        records = self._records
        records.append(record)
        if len(records) >= _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        if self._records:
            for sink in self._sinks:
                sink(self._records)
            self._records = []

    def _count(self, records: list[JobRecord]) -> None:
        self._counts.update([record.state for record in records])
        self._first_submission = min(self._first_submission, *[record.job.submitted_at for record in records])
        ran = [record for record in records if record.started_at is not None]
        starts: list[float] = [record.started_at for record in ran]  # type: ignore[misc]
        self._submitted.extend([record.job.submitted_at for record in ran])
        self._started.extend(starts)
        self._ended.extend([record.ended_at for record in ran])
        busy = self._busy
        for record, start in zip(ran, starts, strict=True):
            busy += (record.ended_at - start) * bit_count(record.units.bits)
        self._busy = busy

    def _count_in_window(self, records: list[JobRecord]) -> None:
        assert self._window is not None
        begin, end = self._window
        self._seen += len(records)
        busy = self._busy
        for record in records:
            start = record.started_at
            if start is not None and start < end and record.ended_at > begin:
                busy += (min(record.ended_at, end) - max(start, begin)) * bit_count(record.units.bits)
        counted = [record for record in records if begin <= record.job.submitted_at <= end]
        if counted:
            self._count(counted)
        self._busy = busy

    def __len__(self) -> int:
        """The jobs that ended, counted or not."""
        return (self._counts.total() if self._window is None else self._seen) + len(self._records)

    def metrics(self, units: int, *, ranks: bool = True) -> Metrics:
        """`ranks=False` leaves out what needs sorting (medians, percentiles, the share backfilled): a tenth of the time."""
        self.flush()
        submitted, started, ended, tau = self._submitted, self._started, self._ended, self._tau
        turnarounds = [end - submit for submit, end in zip(submitted, ended, strict=True)]
        runs = [end - start for start, end in zip(started, ended, strict=True)]
        makespan = max(ended) - self._first_submission if ended else 0.0
        measured_s = makespan if self._window is None else self._window[1] - self._window[0]
        count = self._counts
        return Metrics(
            jobs=count.total(),
            succeeded=count[JobState.SUCCEEDED],
            failed=count[JobState.FAILED] + count[JobState.LOST],
            timed_out=count[JobState.TIMED_OUT],
            killed=count[JobState.KILLED],
            rejected=count[JobState.REFUSED] + count[JobState.OMITTED],
            wait=spread([start - submit for submit, start in zip(submitted, started, strict=True)], ranks),
            turnaround=spread(turnarounds, ranks),
            slowdown=spread(
                [t / r if r else 1.0 if not t else inf for t, r in zip(turnarounds, runs, strict=True)], ranks
            ),
            bounded_slowdown=spread(
                [
                    1.0 if bounded < 1.0 else bounded
                    for bounded in [t / (r if r > tau else tau) for t, r in zip(turnarounds, runs, strict=True)]
                ],
                ranks,
            ),
            utilisation=self._busy / (units * measured_s) if measured_s and units else 0.0,
            makespan=makespan,
            backfilled=self._share_backfilled() if ranks else nan,
            tau=tau,
        )

    def _share_backfilled(self) -> float:
        count = len(self._started)
        return len(overtakers(self._submitted, self._started, range(count))) / count if count else 0.0

    def add_schedule(self, schedule: Schedule) -> None:
        """Takes the jobs of a schedule that have ended."""
        self.flush()
        done = [row for row, end in enumerate(schedule.ended) if not isnan(end)]
        self._counts.update([schedule.states[row] for row in done])
        self._first_submission = min(self._first_submission, *[schedule.submitted[row] for row in done], inf)
        ran = [row for row in done if not isnan(schedule.started[row])]
        for column, source in (
            (self._submitted, schedule.submitted),
            (self._started, schedule.started),
            (self._ended, schedule.ended),
        ):
            column.extend([source[row] for row in ran])
        self._busy += sum([(schedule.ended[row] - schedule.started[row]) * schedule.widths[row] for row in ran])


def metrics_of(schedule: Schedule, tau: float = TAU) -> Metrics:
    """The metrics of a run that was read back: of those of its jobs that have ended."""
    collector = Collector(tau)
    collector.add_schedule(schedule)
    return collector.metrics(schedule.units)


def spread(values: list[float], ranks: bool = True) -> Spread:
    """Mean, median, 95th percentile (nearest rank) and maximum."""
    if not values:
        return Spread(nan, nan, nan, nan)
    count = len(values)
    if not ranks:
        return Spread(sum(values) / count, nan, nan, max(values))
    values = sorted(values)
    middle = count // 2
    median = values[middle] if count % 2 else (values[middle - 1] + values[middle]) / 2
    return Spread(sum(values) / count, median, values[max(0, -(-count * 95 // 100) - 1)], values[-1])
