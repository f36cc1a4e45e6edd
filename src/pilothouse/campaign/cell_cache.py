"""Results of cells on disk: one line of JSON for each, appended as it comes. What was cut off by a crash is left out.

The key of a result is a hash of all that it depends on, so that results of another grid, or of files that have changed, are
never mistaken for those that are asked for.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

import msgspec

from pilothouse.model.errors import InputError

Result = TypeVar("Result")


class CellCache(Generic[Result]):
    """Key -> result, for `with`: the file is open as long."""

    def __init__(self, path: Path, kind: type[Result]) -> None:
        self._path = path
        self._line = msgspec.json.Decoder(tuple[str, kind])  # type: ignore[valid-type]
        self._found: dict[str, Result] = {}

    def __enter__(self) -> CellCache[Result]:
        try:
            self._stream = self._path.open("a+b")
        except OSError as problem:
            raise InputError(str(self._path), f"cannot be written: {problem.strerror}") from None
        self._stream.seek(0)
        data = self._stream.read()
        for line in data.split(b"\n"):
            try:
                key, result = self._line.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue  # the last line of a sweep that was killed, or one of an older version
            self._found[key] = result
        if data and not data.endswith(b"\n"):
            self._stream.write(b"\n")
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None) -> None:
        self._stream.close()

    def get(self, key: str) -> Result | None:
        return self._found.get(key)

    def put(self, key: str, result: Result) -> None:
        """Keeps it; it is on disk when this returns, unless the machine loses power."""
        self._found[key] = result
        self._stream.write(msgspec.json.encode((key, result)) + b"\n")
        self._stream.flush()


