"""Packs of task output."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse.formats.output_pack import STDERR, STDOUT, Chunk, encode, read_backwards, scan
from pilothouse.model.errors import InputError
from pilothouse.worlds.live.engine.output import PackWriter

PIECES = st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=3000)), max_size=8)


def write_task(writer: PackWriter, task: int, pieces: list[tuple[int, bytes]], limit: int) -> tuple[int, int]:
    writer.begin(task, 1, limit)
    written = [0, 0]
    for stream, data in pieces:
        writer.add(stream, data)
        written[stream] += len(data)
        if len(data) % 2:
            writer.flush()
    return writer.end((written[0], written[1]))


@settings(deadline=None, max_examples=50)
@given(tasks=st.lists(PIECES, max_size=5))
def test_what_was_added_is_read(tasks: list[list[tuple[int, bytes]]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("pack") / "pack"
    writer = PackWriter(path)
    places = [write_task(writer, task, pieces, 10**6) for task, pieces in enumerate(tasks)]
    for task, (pieces, (place, left_out)) in enumerate(zip(tasks, places, strict=True)):
        assert not left_out
        if not place:
            assert not any(data for _, data in pieces)
            continue
        with path.open("rb") as pack:
            chunks = [*read_backwards(pack, place, "pack")][::-1]
            found = [chunk for _, chunk in scan(pack, 0, "pack") if chunk.task_id == task]
        assert found == chunks
        for stream in (STDOUT, STDERR):
            expected = b"".join(data for kind, data in pieces if kind == stream)
            assert b"".join(chunk.data for chunk in chunks if chunk.stream == stream) == expected


def test_beyond_the_limit_beginning_and_end_are_kept(tmp_path: Path) -> None:
    writer = PackWriter(tmp_path / "pack")
    data = b"".join(b"%07d\n" % number for number in range(1000))
    place, left_out = write_task(writer, 3, [(STDOUT, data[:5000]), (STDOUT, data[5000:])], 1000)
    with (tmp_path / "pack").open("rb") as pack:
        last, first = read_backwards(pack, place, "pack")
    assert first.data == data[:500] and last.data == data[-250:] and last.position == len(data) - 250
    assert left_out == len(data) - 750


def test_two_writers_share_a_file(tmp_path: Path) -> None:
    """As the cylinders of an engine do."""
    writers = [PackWriter(tmp_path / "pack") for _ in range(2)]
    places = {}
    for task in range(20):
        places[task] = write_task(writers[task % 2], task, [(STDOUT, b"%d" % task * 600)], 10**6)[0]
    with (tmp_path / "pack").open("rb") as pack:
        for task, place in places.items():
            assert [chunk.data for chunk in read_backwards(pack, place, "pack")] == [b"%d" % task * 600]


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
def test_a_damaged_pack_is_named(tmp_path: Path, cut: int) -> None:
    place, _ = write_task(PackWriter(tmp_path / "pack"), 1, [(STDOUT, b"text" * 500)], 10**6)
    whole = (tmp_path / "pack").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:cut])
    flipped = bytearray(whole)
    flipped[cut] ^= 0x55
    (tmp_path / "flipped").write_bytes(flipped)
    for name in ("cut", "flipped"):
        with (tmp_path / name).open("rb") as pack, pytest.raises(InputError, match="damaged"):
            list(read_backwards(pack, place, name))
    with (tmp_path / "cut").open("rb") as pack:
        assert list(scan(pack, 0, "cut")) == []  # a writer may be at work on it


def test_a_ring_of_chunks_ends() -> None:
    import io

    chunk = encode(Chunk(STDOUT, 1, 1, 0, b"x"), before=1)
    with pytest.raises(InputError, match="damaged"):
        list(read_backwards(io.BytesIO(chunk), 1, "ring"))
