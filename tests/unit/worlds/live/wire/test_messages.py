"""Frames from the network: those that are read, and why others are dropped."""

from __future__ import annotations

from pilothouse.worlds.live.wire import messages as m


def frame(version: int = m.VERSION) -> bytes:
    return m.encode(m.EngineFrame(version, "e", 1, 2, 3, [m.Bye("done")]))


def test_a_frame_comes_back_as_it_was() -> None:
    assert m.read_engine_frame(frame()) == m.EngineFrame(m.VERSION, "e", 1, 2, 3, [m.Bye("done")])


def test_frames_that_cannot_be_read_are_said_to_be() -> None:
    other = m.VERSION + 1
    assert m.read_engine_frame(frame(other)) == (
        f"an engine uses version {other} of the protocol, this driver {m.VERSION}: it cannot join"
    )
    for data in (b"", b"\x93", b"\xc1", frame()[:-1], b"\x96\x01\xa1\xff\x01\x02\x03\x90"):
        told = m.read_engine_frame(data)
        assert isinstance(told, str)
        assert told.startswith("dropped a malformed message from an engine")


def test_a_frame_has_a_largest_size() -> None:
    assert isinstance(m.read_engine_frame(bytes(m.MOST_FRAME_BYTES)), str)
    assert m.read_engine_frame(bytes(m.MOST_FRAME_BYTES + 1)) == (
        f"dropped a message of {m.MOST_FRAME_BYTES + 1:,} bytes (more than {m.MOST_FRAME_BYTES:,})"
    )
