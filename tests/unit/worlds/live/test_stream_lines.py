"""Tasks of a pipe: in sequence, and an error of the source reaches the reader."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import pytest

from pilothouse.formats.task_file import TaskReader
from pilothouse.model.errors import RunError
from pilothouse.worlds.live.stream_lines import StreamLines


def commands(stream: Iterable[bytes]) -> Iterator[str]:
    """What is read from a stream, waiting where it has nothing to give yet."""
    woken = threading.Event()
    for line in StreamLines(stream, TaskReader("pipe"), woken.set):
        if line is None:
            assert woken.wait(10)
            woken.clear()
        else:
            yield line.command


def test_all_lines_come_in_sequence() -> None:
    lines = [f"echo {number}" for number in range(20_000)]
    assert list(commands([f"{line}\n".encode() for line in lines])) == lines


def test_an_error_of_the_source_is_not_the_end_of_the_tasks() -> None:
    def stream() -> Iterator[bytes]:
        yield b"echo 1\n"
        raise OSError(28, "No space left on device")

    found = commands(stream())
    assert next(found) == "echo 1"
    with pytest.raises(RunError, match="No space left"):
        next(found)
