"""The values of the key-value service in a Redis: one list per key, so that they outlive the driver.

In: a `redis://` address and a name for the run. Out: a Shelf. An entry is the value's coding followed by its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pilothouse.model.errors import InputError, PeerError
from pilothouse.worlds.live.services.kvs import ShelfError, Value
from pilothouse.worlds.live.services.kvs_wire import CODING_BYTES

if TYPE_CHECKING:
    import redis


_P = ParamSpec("_P")
_T = TypeVar("_T")


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
        self._error = redis.RedisError
        self._prefix = f"pilothouse:{run_name}:".encode()

    def append(self, key: bytes, value: Value) -> None:
        self._ask(self._redis.rpush, self._prefix + key, value.coding + value.data)

    def pop_oldest(self, key: bytes) -> Value | None:
        return _value(self._ask(self._redis.lpop, self._prefix + key))

    def newest(self, key: bytes) -> Value | None:
        return _value(self._ask(self._redis.lindex, self._prefix + key, -1))

    def clear(self, key: bytes) -> None:
        self._ask(self._redis.delete, self._prefix + key)

    def lengths(self) -> Iterator[tuple[bytes, int]]:
        names = self._ask(lambda: list(self._redis.scan_iter(match=_literally(self._prefix) + b"*")))
        for name in names:
            yield name[len(self._prefix) :], self._ask(self._redis.llen, name)

    def _ask(self, command: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return command(*args, **kwargs)
        except self._error as error:
            raise ShelfError(f"Redis: {error}") from error


def _value(entry: object) -> Value | None:
    if not isinstance(entry, bytes):
        return None
    return Value(entry[:CODING_BYTES], entry[CODING_BYTES:])


def _literally(prefix: bytes) -> bytes:
    """The prefix as a Redis pattern: run names may hold characters that patterns use."""
    return b"".join(b"\\" + bytes([c]) if bytes([c]) in b"*?[]\\^" else bytes([c]) for c in prefix)
