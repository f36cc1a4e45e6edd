"""The queue as a policy sees it: the waiting jobs as a sequence that is safe to iterate over while jobs are started."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import SupportsIndex, overload

from pilothouse.model.job import Job


class Queue:
    """The waiting jobs in order of arrival. Iterating is safe while jobs are started."""

    __slots__ = ("_waiting",)

    def __init__(self, waiting: dict[str, Job]) -> None:
        self._waiting = waiting

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._waiting.values()))

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, job: object) -> bool:
        return isinstance(job, Job) and job.id in self._waiting

    @overload
    def __getitem__(self, index: SupportsIndex) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> list[Job]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Job | list[Job]:
        """`queue[0]` is the job that has waited longest: cheap. Other places are counted from the front."""
        if isinstance(index, slice):
            return list(self._waiting.values())[index]
        place = index.__index__()
        if not -len(self._waiting) <= place < len(self._waiting):
            raise IndexError(f"{len(self._waiting)} jobs wait; there is no place {place}")
        jobs = iter(self._waiting.values()) if place >= 0 else reversed(self._waiting.values())
        return next(islice(jobs, place if place >= 0 else -place - 1, None))
