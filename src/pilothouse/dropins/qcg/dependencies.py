"""Which jobs and iterations wait for others, and when they stop waiting.

`after` may name a job (all of it), one iteration (`job:3`), or the iteration of the same index (`job:${it}`). A name
that nobody has, and one that ended without success, can never be met. Comes in: entries, and names that have ended;
goes out: what is ready now and what will never be.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from pilothouse.dropins.qcg.registry import Entry, Registry, split_name
from pilothouse.formats.qcg_variables import replaced
from pilothouse.model.lifecycle import FINAL, JobState

Place = tuple[Entry, int | None]
"""A job, or one of its iterations."""


class Verdict(enum.Enum):
    READY = "all that it waits for has succeeded"
    WAITS = "something has not ended yet"
    NEVER = "something will never succeed"


class Dependencies:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waiters: dict[str, list[Place]] = {}
        self._missing: dict[tuple[int, int | None], set[str]] = {}

    def enter(self, entry: Entry) -> Iterator[tuple[Place, Verdict]]:
        """A new job: what of it is ready, or never will be. What waits is told by `ended` later."""
        after = entry.planned.after
        own, per_iteration = _sorted(after, entry)
        verdict = self._judge((entry, None), own)
        if verdict is Verdict.READY:
            yield from self._enter_parts(entry, per_iteration)
        elif verdict is Verdict.NEVER:
            yield (entry, None), verdict

    def _enter_parts(self, entry: Entry, per_iteration: list[str]) -> Iterator[tuple[Place, Verdict]]:
        if not per_iteration:
            yield (entry, None), Verdict.READY
            return
        loop = entry.description.iteration
        assert loop is not None
        for index in range(loop.start, loop.stop):
            if entry.state_of(index) in FINAL:
                continue
            values = {"it": str(index), "itval": loop.value(index)}
            place = (entry, index)
            verdict = self._judge(place, [replaced(name, values) for name in per_iteration])
            if verdict is not Verdict.WAITS:
                yield place, verdict

    def _judge(self, place: Place, names: list[str]) -> Verdict:
        missing = set()
        for name in map(_plainly, names):
            state = self._state(name)
            if state is None or (state in FINAL and state is not JobState.SUCCEEDED):
                return Verdict.NEVER
            if state is not JobState.SUCCEEDED:
                missing.add(name)
        if not missing:
            return Verdict.READY
        entry, index = place
        self._missing[entry.number, index] = missing
        for name in missing:
            self._waiters.setdefault(name, []).append(place)
        return Verdict.WAITS

    def _state(self, name: str) -> JobState | None:
        job, index = split_name(name)
        entry = self._registry.entries.get(job)
        if entry is None or (index is not None and (entry.parts is None or index not in entry.parts.iteration)):
            return None
        return entry.state_of(index)

    def ended(self, name: str, state: JobState) -> Iterator[tuple[Place, Verdict]]:
        """A job or iteration has ended: what that makes ready, or impossible."""
        for place in self._waiters.pop(name, ()):
            entry, index = place
            missing = self._missing.get((entry.number, index))
            if missing is None or entry.state_of(index) in FINAL:
                continue
            if state is not JobState.SUCCEEDED:
                del self._missing[entry.number, index]
                yield place, Verdict.NEVER
                continue
            missing.discard(name)
            if missing:
                continue
            del self._missing[entry.number, index]
            if index is not None:
                yield place, Verdict.READY
            else:
                yield from self._enter_parts(entry, _sorted(entry.planned.after, entry)[1])

    def waiting(self) -> list[Place]:
        """Everything that still waits for something else."""
        numbers = {entry.number: entry for places in self._waiters.values() for entry, _ in places}
        return [(numbers[number], index) for number, index in self._missing if number in numbers]

    def forget(self, place: Place) -> None:
        """It was cancelled: it waits for nothing any more."""
        self._missing.pop((place[0].number, place[1]), None)


def _plainly(name: str) -> str:
    """`job:03` is the iteration that ends as `job:3`."""
    job, index = split_name(name)
    return name if index is None else f"{job}:{index}"


def _sorted(after: tuple[str, ...], entry: Entry) -> tuple[list[str], list[str]]:
    """Names that the whole job waits for, and names that each iteration waits for on its own."""
    if entry.parts is None:
        return list(after), []
    per_iteration = [name for name in after if "$" in name]
    return [name for name in after if "$" not in name], per_iteration
