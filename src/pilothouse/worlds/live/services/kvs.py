"""The key-value store of a run: a queue of opaque values per key, and readers that wait for the next one.

In: put, read, cancel, watch. Out: each waiting reader's `deliver` is called when its value is there. `get` removes the
oldest value, `view` returns the newest. A put serves the waiting readers in their order, up to the first that removes the
value; otherwise the value is kept. Values are bytes with a four-byte label (their coding), which is not interpreted. No IO
here: a Shelf keeps the values.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from pickle import dumps
from typing import Literal, Protocol

import msgspec

MOST_WAITING_BYTES = 4 << 30
"""What all values together may take in memory; a put beyond it raises StoreFull."""

TEXT = b"ASTR"
JSON = b"JSON"
PICKLE = b"PYPK"

Event = Literal["get", "put", "view", "wait"]
_LETTERS: dict[str, Event] = {"g": "get", "p": "put", "v": "view", "w": "wait"}


class Value(msgspec.Struct, frozen=True, gc=False):
    coding: bytes
    data: bytes


class ShelfError(Exception):
    """The shelf failed; the request that caused it fails."""


class StoreFull(ShelfError):
    """A put that would exceed what the store may hold."""


class Shelf(Protocol):
    """Storage: one queue of values per key."""

    def append(self, key: bytes, value: Value) -> None: ...
    def pop_oldest(self, key: bytes) -> Value | None: ...
    def newest(self, key: bytes) -> Value | None: ...
    def clear(self, key: bytes) -> None: ...
    def lengths(self) -> Iterator[tuple[bytes, int]]: ...


class MemoryShelf:
    """Values in this process."""

    def __init__(self, most_bytes: int = MOST_WAITING_BYTES) -> None:
        self._queues: dict[bytes, deque[Value]] = {}
        self._bytes = 0
        self._most_bytes = most_bytes

    def append(self, key: bytes, value: Value) -> None:
        if self._bytes + len(value.data) > self._most_bytes:
            raise StoreFull(f"the key-value store holds {self._bytes} bytes; {len(value.data)} more are too many")
        self._bytes += len(value.data)
        self._queues.setdefault(key, deque()).append(value)

    def pop_oldest(self, key: bytes) -> Value | None:
        queue = self._queues.get(key)
        if queue is None:
            return None
        value = queue.popleft()
        self._bytes -= len(value.data)
        if not queue:
            del self._queues[key]
        return value

    def newest(self, key: bytes) -> Value | None:
        queue = self._queues.get(key)
        return queue[-1] if queue else None

    def clear(self, key: bytes) -> None:
        for value in self._queues.pop(key, ()):
            self._bytes -= len(value.data)

    def lengths(self) -> Iterator[tuple[bytes, int]]:
        return ((key, len(queue)) for key, queue in self._queues.items())


class Reader:
    """A pending read. `takes`: it removes the value."""

    __slots__ = ("deliver", "key", "takes")

    def __init__(self, key: bytes, takes: bool, deliver: Callable[[Value], None]) -> None:
        self.key = key
        self.takes = takes
        self.deliver = deliver


class KeyValueStore:
    def __init__(self, shelf: Shelf | None = None) -> None:
        self.shelf: Shelf = MemoryShelf() if shelf is None else shelf
        self._readers: dict[bytes, deque[Reader]] = {}
        self._watchers: dict[bytes | None, dict[Event, set[bytes]]] = {}
        self._watching_keys: set[bytes] = set()
        self._counts: Counter[str] = Counter()

    def put(self, key: bytes, value: Value) -> None:
        self._counts["put"] += 1
        taken = False
        while not taken and (readers := self._readers.get(key)):
            reader = readers.popleft()
            if not readers:
                del self._readers[key]
            taken = reader.takes
            self._counts["get" if taken else "view"] += 1
            self._counts["released"] += 1
            reader.deliver(value)
        if not taken:
            self.shelf.append(key, value)
        self._tell("put", key)

    def read(self, reader: Reader) -> None:
        """Delivers at once if there is a value, else when one comes."""
        event: Event = "get" if reader.takes else "view"
        self._tell(event, reader.key)
        value = self.shelf.pop_oldest(reader.key) if reader.takes else self.shelf.newest(reader.key)
        if value is not None:
            self._counts[event] += 1
            reader.deliver(value)
            return
        self._readers.setdefault(reader.key, deque()).append(reader)
        self._counts["wait"] += 1
        self._counts["acquired"] += 1
        self._tell("wait", reader.key)

    def cancel(self, reader: Reader) -> None:
        """The reader no longer waits; nothing happens if it does not wait."""
        readers = self._readers.get(reader.key)
        if readers is not None and reader in readers:
            readers.remove(reader)
            if not readers:
                del self._readers[reader.key]

    def replace(self, key: bytes, value: Value) -> None:
        """Makes this the only value of the key: for state that is looked at, not queued."""
        self.shelf.clear(key)
        self.put(key, value)

    def watch(self, watching_key: bytes, spec: bytes) -> None:
        """`KEY:EVENTS` (letters of get, put, view, wait): each one on KEY is put as `event key` under watching_key.

        An empty KEY means all keys; events that are not named are no longer watched. Watching keys are not watched themselves.
        """
        key, colon, letters = spec.rpartition(b":")
        if not colon:
            return
        self._watching_keys.add(watching_key)
        events = self._watchers.setdefault(key or None, {})
        for letter, event in _LETTERS.items():
            if letter.encode() in letters:
                events.setdefault(event, set()).add(watching_key)
            else:
                events.get(event, set()).discard(watching_key)

    def dump(self) -> bytes:
        """The state for monitors, as disBatch's client reads it (a pickle of plain lists; we only write it)."""
        names = ("get", "put", "view", "wait", "acquired", "released")
        counts = [self._counts[name] for name in names]
        waiting = [(key, len(readers)) for key, readers in self._readers.items()]
        kept = [(key, length, _shown(self.shelf.newest(key))) for key, length in list(self.shelf.lengths())]
        return dumps((counts, waiting, kept))

    def _tell(self, event: Event, key: bytes) -> None:
        if not self._watchers or key in self._watching_keys:
            return
        for watched in (None, key):
            for watching_key in self._watchers.get(watched, {}).get(event, ()):
                self.put(watching_key, Value(TEXT, event.encode() + b" " + key))


def _shown(value: Value | None) -> tuple[bytes, bytes | None] | tuple[bytes, bytes | None, int]:
    if value is None:
        return (TEXT, b"")
    if value.coding in (JSON, b"HTML"):
        return (value.coding, value.data)
    if value.coding != TEXT:
        return (value.coding, None, len(value.data))
    if len(value.data) > 50:
        return (value.coding, value.data[:24] + b"..." + value.data[-23:], len(value.data))
    return (value.coding, value.data)
