"""The pack of an engine that does not see the run's folder, on its way to the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilothouse.formats.output_pack import pack_path
from pilothouse.model.errors import RunError
from pilothouse.worlds.live.engine.output import PackTail
from pilothouse.worlds.live.engine.shipping import PIECE_BYTES, Shipping
from pilothouse.worlds.live.engine.spool import Spool
from pilothouse.worlds.live.engine_files import sizes_of_packs, write_parts
from pilothouse.worlds.live.wire.messages import Finished
from pilothouse.worlds.live.wire.sockets import KEYS_FILE


def shipping(path: Path, size: int, window_bytes: int) -> Shipping:
    path.write_bytes(bytes(size))
    return Shipping(PackTail(path), window_bytes)


def test_no_more_is_on_its_way_than_the_window(tmp_path: Path) -> None:
    one = shipping(tmp_path / "pack", 10 * PIECE_BYTES, 3 * PIECE_BYTES)
    pieces = list(iter(lambda: one.next_piece(1), None))
    assert [piece.at for piece in pieces if piece] == [0, PIECE_BYTES, 2 * PIECE_BYTES]
    assert one.take_acknowledged(1)
    assert not one.take_acknowledged(1)
    piece = one.next_piece(2)
    assert piece is not None and piece.at == 3 * PIECE_BYTES


def test_a_result_is_behind_what_its_tasks_wrote(tmp_path: Path) -> None:
    one = shipping(tmp_path / "pack", 2 * PIECE_BYTES, PIECE_BYTES)
    one.hold(Finished(7, []))
    assert one.next_piece(1) and one.next_result() is None and one.next_piece(1) is None
    one.take_acknowledged(1)
    assert one.next_piece(2) and one.next_result() == Finished(7, []) and one.next_result() is None


def test_a_later_driver_gets_what_it_lacks(tmp_path: Path) -> None:
    one = shipping(tmp_path / "pack", 100, PIECE_BYTES)
    one.next_piece(1)
    one.begin(40, [Finished(7, [])])
    assert one.held_back == [Finished(7, [])] and one.next_result() is None
    piece = one.next_piece(1)
    assert piece is not None and (piece.at, len(piece.data)) == (40, 60)
    assert one.next_result() == Finished(7, [])


def test_a_pack_that_is_not_there_yet(tmp_path: Path) -> None:
    one = Shipping(PackTail(tmp_path / "none"))
    one.hold(Finished(7, []))
    assert one.next_piece(1) is None and one.next_result() == Finished(7, [])


def test_parts_are_written_at_their_places(tmp_path: Path) -> None:
    parts = [("a", 0, b"one"), ("b", 0, b"x"), ("a", 3, b"two"), ("a", 0, b"one")]
    write_parts(tmp_path, parts)
    assert not parts and pack_path(tmp_path, "a").read_bytes() == b"onetwo"
    assert sizes_of_packs(tmp_path) == {"a": 6, "b": 1}


def test_what_cannot_be_written_stays(tmp_path: Path) -> None:
    pack_path(tmp_path, "a").symlink_to("elsewhere")
    parts = [("b", 0, b"x"), ("a", 0, b"one")]
    with pytest.raises(RunError, match="symbolic link"):
        write_parts(tmp_path, parts)
    assert parts == [("a", 0, b"one")]


def test_a_folder_of_the_same_name_on_another_host_is_not_the_run_s(tmp_path: Path) -> None:
    """It may be there from an earlier run."""
    (tmp_path / KEYS_FILE).write_text('{"server_public":"other"}')
    elsewhere = Spool(str(tmp_path / "s"), "e", "this")
    assert not elsewhere.shared and not (tmp_path / "s").exists()
    elsewhere.remove()
    assert Spool(str(tmp_path / "s"), "e", "other").shared
