"""Jobs that wait for other jobs: which may go on, which must be held, which can never run.

In: items (jobs) with the names that they wait for, and names that have ended. Out: a verdict for each new item, and the
items that an end sets free or makes hopeless. What an end means is the caller's business: True for success.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Verdict(enum.Enum):
    READY = "all that it waits for has succeeded"
    WAITS = "something that it waits for has not ended"
    NEVER = "something that it waits for will never succeed"


class Dependencies(Generic[Item]):
    """The held items, by key."""

    def __init__(self) -> None:
        self.held: dict[Hashable, Item] = {}
        self._missing: dict[Hashable, set[str]] = {}
        self._waiters: dict[str, list[Hashable]] = {}

    def enter(
        self, key: Hashable, item: Item, names: Iterable[str], succeeded: Callable[[str], bool | None]
    ) -> Verdict:
        """Judges a new item, and holds it if it must wait. `succeeded` says how a name ended; None: it has not."""
        missing = set()
        for name in names:
            outcome = succeeded(name)
            if outcome is False:
                return Verdict.NEVER
            if outcome is None:
                missing.add(name)
        if not missing:
            return Verdict.READY
        self.held[key] = item
        self._missing[key] = missing
        for name in missing:
            self._waiters.setdefault(name, []).append(key)
        return Verdict.WAITS

    def remove(self, key: Hashable) -> Item | None:
        """Takes a held item out."""
        self._missing.pop(key, None)
        return self.held.pop(key, None)

    def ended(self, name: str, *, succeeded: bool) -> tuple[list[Item], list[Item]]:
        """Notes an end. Returns the items that are free now, and those that never will be."""
        free: list[Item] = []
        hopeless: list[Item] = []
        for key in self._waiters.pop(name, ()):
            missing = self._missing.get(key)
            if missing is None:
                continue
            missing.discard(name)
            if not succeeded or not missing:
                del self._missing[key]
                (free if succeeded else hopeless).append(self.held.pop(key))
        return free, hopeless
