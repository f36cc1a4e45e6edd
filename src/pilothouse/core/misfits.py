"""Requests with a shape that did not fit: equal ones need not be tried again before something is free.

Two requests are equal if they ask for as many units in the same shape (the same object) and avoid the same units.
"""

from __future__ import annotations

from pilothouse.model.answers import NotNow
from pilothouse.model.job import Job

Request = tuple[int, int, int, bool]
"""Units, most units, id of the shape, least."""


class Misfits:
    """The answers to requests that did not fit. Each is kept with the shape, so that the shape's id stays its own."""

    __slots__ = ("_anywhere", "_aside", "_avoided")

    def __init__(self) -> None:
        self._anywhere: dict[Request, tuple[object, NotNow]] = {}
        self._aside: dict[Request, tuple[object, NotNow]] = {}
        """The same for requests that must avoid the units `_avoided`."""
        self._avoided = 0

    def answer(self, job: Job, least: bool, avoid: int) -> NotNow | None:
        """The answer to an equal request, if there was one."""
        known = self._answers(avoid).get((job.units, job.most_units, id(job.shape), least))
        return None if known is None else known[1]

    def add(self, job: Job, least: bool, avoid: int, answer: NotNow) -> None:
        self._answers(avoid)[job.units, job.most_units, id(job.shape), least] = (job.shape, answer)

    def clear(self) -> None:
        """Something is free."""
        self._anywhere.clear()
        self._aside.clear()

    def _answers(self, avoid: int) -> dict[Request, tuple[object, NotNow]]:
        if not avoid:
            return self._anywhere
        if avoid is not self._avoided:
            # Another reservation of the same units may spare more GPUs or memory.
            if avoid != self._avoided or type(avoid) is not int:
                self._aside.clear()
            self._avoided = avoid
        return self._aside
