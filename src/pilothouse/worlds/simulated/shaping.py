"""Changes to a workload before it is simulated: denser arrivals, one week of a log; and which of its jobs are counted.

In: a Workload. Out: another, whose jobs are copies; the given one stays as it is.
"""

from __future__ import annotations

from math import isfinite

import msgspec
from msgspec import structs

from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError
from pilothouse.model.job import Job

WEEK_S = 7 * 86400.0


class Shaping(msgspec.Struct, frozen=True):
    """What is simulated of a workload, and what of it is measured."""

    load: float = 1.0
    """Jobs arrive so many times as densely."""
    week: int | None = None
    """Only the jobs of this week, from 0."""
    warm_up: float = 0.0
    """Jobs submitted in the first so many seconds are simulated and not measured."""
    cool_down: float = 0.0
    """The same for the last so many seconds before the last submission."""

    def check(self) -> None:
        """InputError for values that make no sense."""
        if not (isfinite(self.load) and self.load > 0):
            raise InputError("load", "not a factor", expected="a number above 0", found=str(self.load))
        if self.week is not None and self.week < 0:
            raise InputError("week", "no such week", expected="a number from 0", found=str(self.week))
        for name, value in (("warm-up", self.warm_up), ("cool-down", self.cool_down)):
            if not (isfinite(value) and value >= 0):
                raise InputError(name, "not a length of time", expected="seconds", found=str(value))

    def of(self, workload: Workload) -> Workload:
        """The workload in this shape: the week first, then the load."""
        if self.week is not None:
            workload = one_week(workload, self.week)
        return workload if self.load == 1.0 else denser(workload, self.load)

    def window(self, jobs: list[Job]) -> tuple[float, float] | None:
        """The dates of submission that are measured; None: all. InputError if no job is left."""
        if not (self.warm_up or self.cool_down):
            return None
        dates = [job.submitted_at for job in jobs]
        begin, end = min(dates, default=0.0) + self.warm_up, max(dates, default=0.0) - self.cool_down
        if not any(begin <= date <= end for date in dates):
            span = max(dates, default=0.0) - min(dates, default=0.0)
            cut = f"warm-up and cool-down take {self.warm_up + self.cool_down:g} s"
            raise InputError("workload", "no job is left to measure", found=f"submissions within {span:g} s; {cut}")
        return begin, end


AS_IT_IS = Shaping()


def denser(workload: Workload, load: float) -> Workload:
    """All gaps between submissions divided by `load`."""
    return _with(workload, [structs.replace(job, submitted_at=job.submitted_at / load) for job in workload.jobs])


def one_week(workload: Workload, week: int) -> Workload:
    """The jobs of a week, counted from the first submission; its dates begin at 0. A job that waits for one of another week
    does not wait, and is counted."""
    zero = _first(workload) + week * WEEK_S
    kept = [job for job in workload.jobs if zero <= job.submitted_at < zero + WEEK_S]
    if not kept:
        raise InputError(workload.path, f"no job in week {week}", expected=f"one of {weeks_text(workload)}")
    ids = {job.id for job in kept}
    cut = 0
    jobs = []
    for job in kept:
        after = tuple(other for other in job.after if other in ids)
        cut += len(after) < len(job.after)
        jobs.append(structs.replace(job, submitted_at=job.submitted_at - zero, after=after))
    made = _with(workload, jobs)
    if cut:
        made.oddities = {**made.oddities, "waits no more for a job of another week": cut}
    return made


def weeks(workload: Workload) -> list[int]:
    """The weeks that are whole and have jobs; of a log of less than a week, week 0."""
    zero = _first(workload)
    seen = sorted({int((job.submitted_at - zero) // WEEK_S) for job in workload.jobs})
    return seen[:-1] or seen


def weeks_text(workload: Workload) -> str:
    found = weeks(workload)
    return f"0 to {found[-1]}" if found == list(range(len(found))) else ", ".join(map(str, found))


def _first(workload: Workload) -> float:
    return min((job.submitted_at for job in workload.jobs), default=0.0)


def _with(workload: Workload, jobs: list[Job]) -> Workload:
    return structs.replace(workload, jobs=jobs)
