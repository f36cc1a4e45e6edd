"""The values of the key-value service in a Redis: one list per key, so that they outlive the driver.

In: a `redis://` address and a name for the run. Out: a Shelf. An entry is the value's coding followed by its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pilothouse.model.errors import InputError, PeerError
from pilothouse.protocols.disbatch.kvs import Value
from pilothouse.protocols.disbatch.kvs_wire import CODING_BYTES

if TYPE_CHECKING:
    import redis


class RedisShelf:
    def __init__(self, url: str, run_name: str) -> None:
        try:
            import redis
        except ImportError as error:
            raise InputError(url, "Redis needs the extra pilothouse[redis]") from error
        try:
            self._redis: redis.Redis = redis.Redis.from_url(url)
            self._redis.ping()
        except (redis.RedisError, ValueError) as error:
            raise PeerError(f"Redis at {url}", str(error)) from error
        self._prefix = f"pilothouse:{run_name}:".encode()

    def append(self, key: bytes, value: Value) -> None:
        self._redis.rpush(self._prefix + key, value.coding + value.data)

    def pop_oldest(self, key: bytes) -> Value | None:
        return _value(self._redis.lpop(self._prefix + key))

    def newest(self, key: bytes) -> Value | None:
        return _value(self._redis.lindex(self._prefix + key, -1))

    def clear(self, key: bytes) -> None:
        self._redis.delete(self._prefix + key)

    def lengths(self) -> Iterator[tuple[bytes, int]]:
        for name in self._redis.scan_iter(match=_literally(self._prefix) + b"*"):
            yield name[len(self._prefix) :], self._redis.llen(name)


def _value(entry: object) -> Value | None:
    if not isinstance(entry, bytes):
        return None
    return Value(entry[:CODING_BYTES], entry[CODING_BYTES:])


def _literally(prefix: bytes) -> bytes:
    """The prefix as a Redis pattern: run names may hold characters that patterns use."""
    return b"".join(b"\\" + bytes([c]) if bytes([c]) in b"*?[]\\^" else bytes([c]) for c in prefix)
