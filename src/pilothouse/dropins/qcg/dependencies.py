"""Which jobs and iterations wait for others, and when they stop waiting.

`after` may name a job (all of it), one iteration (`job:3`), or the iteration of the same index (`job:${it}`). A
dependency on an unknown name, or on a job that did not succeed, is never met. Comes in: new entries, and names that
have ended. Goes out: items that are ready, and items that never will be.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator

from pilothouse.dropins.qcg.registry import Entry, Item, Registry, split_name
from pilothouse.formats.qcg_variables import replaced
from pilothouse.model.lifecycle import FINAL, JobState


class Verdict(enum.Enum):
    READY = "all that it waits for has succeeded"
    WAITS = "something has not ended yet"
    NEVER = "something will never succeed"


class Dependencies:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waiters: dict[str, list[Item]] = {}
        self._missing: dict[Item, set[str]] = {}

    def enter(self, entry: Entry) -> Iterator[tuple[Item, Verdict]]:
        """Yields what of a new job is ready or never will be. Items that wait are yielded by `ended` later."""
        after = entry.submitted.after
        if not after:
            yield (entry, None), Verdict.READY
        else:
            whole = [name for name in after if entry.iterations is None or "$" not in name]
            yield from self._judged((entry, None), whole)

    def ended(self, name: str, state: JobState) -> Iterator[tuple[Item, Verdict]]:
        """Yields what becomes ready or impossible because a job or iteration has ended."""
        for item in self._waiters.pop(name, ()):
            missing = self._missing.get(item)
            if missing is None or item[0].state_of(item[1]) in FINAL:
                continue
            missing.discard(name)
            if state is not JobState.SUCCEEDED:
                del self._missing[item]
                yield item, Verdict.NEVER
            elif not missing:
                del self._missing[item]
                yield from self._ready(item)

    def _judged(self, item: Item, names: Iterable[str]) -> Iterator[tuple[Item, Verdict]]:
        verdict = self._judge(item, names)
        if verdict is Verdict.READY:
            yield from self._ready(item)
        elif verdict is Verdict.NEVER:
            yield item, verdict

    def _judge(self, item: Item, names: Iterable[str]) -> Verdict:
        missing = set()
        for name in names:
            found = self._registry.find(name)
            state = found[0].state_of(found[1]) if found is not None else None
            if state is None or (state in FINAL and state is not JobState.SUCCEEDED):
                return Verdict.NEVER
            if state is not JobState.SUCCEEDED:
                job, index = split_name(name)
                missing.add(name if index is None else f"{job}:{index}")  # `job:03` ends as `job:3`
        if not missing:
            return Verdict.READY
        self._missing[item] = missing
        for name in missing:
            self._waiters.setdefault(name, []).append(item)
        return Verdict.WAITS

    def _ready(self, item: Item) -> Iterator[tuple[Item, Verdict]]:
        """A job whose own dependencies are met may have iterations with dependencies of their own."""
        entry, index = item
        own = [name for name in entry.submitted.after if "$" in name] if entry.iterations is not None else []
        if index is not None or not own or entry.iterations is None:
            yield item, Verdict.READY
            return
        loop = entry.iterations.loop
        for part in range(loop.start, loop.stop):
            if entry.state_of(part) not in FINAL:
                values = {"it": str(part), "itval": loop.value(part)}
                yield from self._judged((entry, part), [replaced(name, values) for name in own])

    def waiting(self) -> list[Item]:
        """Everything that still waits for something else."""
        return list(self._missing)

    def forget(self, item: Item) -> None:
        """The item was cancelled: it waits for nothing any more."""
        self._missing.pop(item, None)
