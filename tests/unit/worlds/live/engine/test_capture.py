"""What is kept of a stream: all of it in the pack, its beginning and its end in the snippet, and its last line."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.worlds.live.engine.output import GAP, KEPT_BYTES, Capture

CHUNK = 65536
"""What is read at once; also what a pipe holds."""


class Stream:
    def __init__(self) -> None:
        self.kept = b""
        self.capture = Capture(self._keep)

    def _keep(self, data: bytes) -> None:
        self.kept += data

    def write(self, *parts: bytes) -> None:
        for part in parts:
            os.write(self.capture.write_fd, part)
            assert not self.capture.drain(), "the writer is still there"

    def close(self) -> None:
        os.close(self.capture.read_fd)
        if self.capture.write_fd >= 0:
            os.close(self.capture.write_fd)


def snippet(text: bytes) -> bytes:
    short = len(text) <= 2 * KEPT_BYTES
    return text if short else text[:KEPT_BYTES] + GAP + text[-KEPT_BYTES:]


@given(st.lists(st.lists(st.binary(min_size=1, max_size=50), max_size=4), min_size=1, max_size=3))
def test_snippets_of_any_tasks(tasks: list[list[bytes]]) -> None:
    stream = Stream()
    try:
        for parts in tasks:
            stream.write(*parts)
            text = b"".join(parts)
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            assert stream.capture.last_line() == (lines[-1] if lines else b"")
            assert stream.capture.take() == (len(text), snippet(text))
            assert stream.capture.take() == (0, b"") and stream.capture.last_line() == b""
        assert stream.kept == b"".join(part for parts in tasks for part in parts)
    finally:
        stream.close()


@pytest.mark.parametrize("size", [1, KEPT_BYTES, KEPT_BYTES + 1, 2 * KEPT_BYTES, 2 * KEPT_BYTES + 1, CHUNK - 1, CHUNK])
def test_snippets_of_every_size(size: int) -> None:
    stream = Stream()
    text = bytes(33 + number % 90 for number in range(size))
    stream.write(text)
    assert stream.capture.take() == (size, snippet(text)) and stream.kept == text
    stream.close()


def test_the_end_is_noticed_once_nothing_can_write() -> None:
    stream = Stream()
    other = os.dup(stream.capture.write_fd)
    stream.capture.close_write()
    os.write(other, b"last words")
    assert not stream.capture.drain()
    os.close(other)
    assert stream.capture.drain() and stream.capture.take() == (10, b"last words")
    stream.close()


@pytest.mark.parametrize("closed", [True, False])
def test_survivors_write_into_a_pipe_that_is_not_read_any_more(closed: bool) -> None:
    stream = Stream()
    survivor = os.dup(stream.capture.write_fd)
    before = stream.capture.write_fd
    if closed:
        stream.capture.close_write()
    stream.capture.replace()
    with pytest.raises(BrokenPipeError):
        os.write(survivor, b"too late")
    stream.write(b"new")
    assert stream.capture.take() == (3, b"new")
    os.close(survivor)
    stream.close()
    with pytest.raises(OSError):
        os.fstat(before)
