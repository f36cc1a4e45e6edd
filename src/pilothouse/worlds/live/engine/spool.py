"""Results that outlive an engine that is killed: shared memory between the engine, its cylinders and their warden.

Each cylinder has a region with the assignment that it works on, the task it has begun, and the results of those that
ended; the engine has one with the results that the driver has not acknowledged. When the engine dies, the warden reads
them all, so that the driver learns exactly which tasks ended, which were cut off and which were never begun.
"""

from __future__ import annotations

import mmap
import struct

import msgspec

from pilothouse.worlds.live.wire.messages import Finished, Result

REGION_BYTES = 64 * 1024
NAME_BYTES = 64
ENGINE_REGION_BYTES = 2 * 2**20

_HEAD = struct.Struct("<Iqq")
"""Bytes of records used, assignment, running task (-1: none)."""
_LENGTH = struct.Struct("<I")
_IDLE = -1

_encode = msgspec.msgpack.Encoder().encode
_decode_result = msgspec.msgpack.Decoder(Result).decode
_decode_finished = msgspec.msgpack.Decoder(list[Finished]).decode


class Region:
    """One cylinder's part. The owner writes, the warden reads when the owner is dead."""

    def __init__(self, memory: mmap.mmap, offset: int, size: int) -> None:
        self._memory = memory
        self._offset = offset
        self._size = size
        self._used = 0
        self._assignment = _IDLE

    def begin(self, assignment: int) -> None:
        self._used = 0
        self._assignment = assignment
        _HEAD.pack_into(self._memory, self._offset, 0, assignment, _IDLE)

    def running(self, task_id: int) -> None:
        _HEAD.pack_into(self._memory, self._offset, self._used, self._assignment, task_id)

    def ended(self, result: Result) -> None:
        """Keeps the result; one that no longer fits is dropped (the warden then counts the task as begun)."""
        record = _encode(result)
        start = _HEAD.size + self._used
        if start + _LENGTH.size + len(record) <= self._size:
            at = self._offset + start
            _LENGTH.pack_into(self._memory, at, len(record))
            self._memory[at + _LENGTH.size : at + _LENGTH.size + len(record)] = record
            self._used += _LENGTH.size + len(record)
            _HEAD.pack_into(self._memory, self._offset, self._used, self._assignment, _IDLE)

    def read(self) -> tuple[int, int, list[Result]]:
        """Assignment, the task that was running (-1: none), results."""
        used, assignment, running = _HEAD.unpack_from(self._memory, self._offset)
        results = []
        at, end = self._offset + _HEAD.size, self._offset + _HEAD.size + min(used, self._size - _HEAD.size)
        while at + _LENGTH.size <= end:
            (length,) = _LENGTH.unpack_from(self._memory, at)
            at += _LENGTH.size
            try:
                results.append(_decode_result(self._memory[at : at + length]))
            except msgspec.DecodeError:
                break  # the writer was killed in the middle of this record
            at += length
        return assignment, running, results


class EngineRegion:
    """The engine's results that the driver has not acknowledged."""

    def __init__(self, memory: mmap.mmap, offset: int, size: int) -> None:
        self._memory = memory
        self._offset = offset
        self._size = size

    def write(self, finished: list[Finished]) -> None:
        record = _encode(finished)
        if len(record) + _LENGTH.size > self._size:
            record = _encode([])
        at = self._offset + _LENGTH.size
        _LENGTH.pack_into(self._memory, self._offset, 0)
        self._memory[at : at + len(record)] = record
        _LENGTH.pack_into(self._memory, self._offset, len(record))

    def read(self) -> list[Finished]:
        (length,) = _LENGTH.unpack_from(self._memory, self._offset)
        if not length:
            return []
        at = self._offset + _LENGTH.size
        try:
            return _decode_finished(self._memory[at : at + length])
        except msgspec.DecodeError:
            return []


class Spool:
    """All regions of one engine: anonymous shared memory that its children inherit."""

    def __init__(self, cylinders: int) -> None:
        self._memory = mmap.mmap(-1, ENGINE_REGION_BYTES + cylinders * REGION_BYTES)
        self.engine = EngineRegion(self._memory, NAME_BYTES, ENGINE_REGION_BYTES - NAME_BYTES)
        self.cylinders = [
            Region(self._memory, ENGINE_REGION_BYTES + i * REGION_BYTES, REGION_BYTES) for i in range(cylinders)
        ]
        for region in self.cylinders:
            region.begin(_IDLE)

    def set_name(self, engine: str) -> None:
        """The engine's id as the driver knows it."""
        self._memory[:NAME_BYTES] = engine.encode().ljust(NAME_BYTES, b"\0")

    def name(self) -> str:
        return self._memory[:NAME_BYTES].rstrip(b"\0").decode()

    def unreported(self) -> tuple[list[Finished], set[int]]:
        """Results that may not have reached the driver, and the tasks that were running."""
        finished = self.engine.read()
        known = {(result.task_id, result.attempt) for entry in finished for result in entry.results}
        begun: set[int] = set()
        for region in self.cylinders:
            assignment, running, results = region.read()
            if assignment == _IDLE:
                continue
            fresh = [result for result in results if (result.task_id, result.attempt) not in known]
            if fresh:
                finished.append(Finished(assignment, fresh))
            if running != _IDLE:
                begun.add(running)
        return finished, begun
