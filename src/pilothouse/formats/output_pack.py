"""A pack: one file that holds what all tasks of an engine wrote to stdout and stderr, in chunks.

A chunk is a header and bytes, compressed where that pays. It is appended by one write, so that the processes of an engine can
share a file. Each header names the place of the chunk before it of the same attempt: who knows the last one finds them all, and
reads nothing else. The journal keeps that place for every attempt that ended.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from pilothouse.model.errors import InputError

STDOUT, STDERR = 0, 1
PACK_SUFFIX = ".output"
_HEADER = struct.Struct("<2sBBHqQIIQ")
"""Mark, stream, whether compressed, attempt, task, position in its stream, bytes, bytes here, place of the chunk before."""
_CHECKSUM = struct.Struct("<I")
"""After the header; of the header and the bytes."""
_PREFIX_BYTES = _HEADER.size + _CHECKSUM.size
_MARK = b"OP"
_WORTH_COMPRESSING_BYTES = 512
_LEVEL = 1
"""Of compression: the quickest."""
_MOST_CHUNK_BYTES = 1 << 28


def pack_path(run_folder: Path, key: str) -> Path:
    """The pack of the engine with this key."""
    return run_folder / f"engine-{key}{PACK_SUFFIX}"


class Chunk(msgspec.Struct, frozen=True):
    """Part of what one attempt of a task wrote to one stream."""

    stream: int
    attempt: int
    task_id: int
    position: int
    """How many bytes it had written to this stream before."""
    data: bytes


def encode(chunk: Chunk, before: int) -> bytes:
    """`before`: the place of the attempt's last chunk, 0 if there is none."""
    data, compressed = chunk.data, False
    if len(data) >= _WORTH_COMPRESSING_BYTES:
        smaller = zlib.compress(data, _LEVEL)
        if len(smaller) < len(data):
            data, compressed = smaller, True
    header = _HEADER.pack(
        _MARK, chunk.stream, compressed, chunk.attempt & 0xFFFF, chunk.task_id, chunk.position, len(chunk.data), len(data),
        before,
    )  # fmt: skip
    return header + _CHECKSUM.pack(zlib.crc32(data, zlib.crc32(header))) + data


def read_backwards(pack: BinaryIO, place: int, name: str) -> Iterator[Chunk]:
    """The chunks of an attempt, the last one first, from the place of the last one. Raises InputError at a damaged one."""
    while place:
        try:
            chunk, before = _read_at(pack, place - 1, name)
        except EOFError:
            raise InputError(name, f"damaged at byte {place - 1}", found="the end of the file") from None
        if before >= place:
            raise InputError(name, f"damaged at byte {place - 1}", found=f"a chunk that follows one at byte {before - 1}")
        yield chunk
        place = before


def scan(pack: BinaryIO, at: int, name: str) -> Iterator[tuple[int, Chunk]]:
    """Every whole chunk from byte `at` on, with the byte after it. Ends at one that is not whole yet."""
    while True:
        try:
            chunk, _ = _read_at(pack, at, name)
        except EOFError:
            return
        at = pack.tell()
        yield at, chunk


def _read_at(pack: BinaryIO, at: int, name: str) -> tuple[Chunk, int]:
    """Raises EOFError where the file ends within the chunk."""
    pack.seek(at)
    prefix = pack.read(_PREFIX_BYTES)
    if len(prefix) < _PREFIX_BYTES:
        raise EOFError
    header = prefix[: _HEADER.size]
    mark, stream, compressed, attempt, task_id, position, size, length, before = _HEADER.unpack(header)
    try:
        if mark != _MARK or max(size, length) > _MOST_CHUNK_BYTES:
            raise ValueError("no chunk begins here")
        data = pack.read(length)
        if len(data) < length:
            raise EOFError
        if prefix[_HEADER.size :] != _CHECKSUM.pack(zlib.crc32(data, zlib.crc32(header))):
            raise ValueError("the checksum differs")
        if compressed:
            data = zlib.decompressobj().decompress(data, size)
        return Chunk(stream, attempt, task_id, position, data), before
    except (zlib.error, ValueError) as error:
        raise InputError(name, f"damaged at byte {at}", found=str(error)) from None
