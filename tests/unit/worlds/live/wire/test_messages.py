"""Frames from the network: those that are read, and why others are dropped."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

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


def test_what_a_message_leaves_out() -> None:
    """A peer of the same version may leave out what is at the end of a message: these are the values that it means."""
    task = m.Task(5)
    assert msgspec.structs.astuple(task) == (5, 0, -1, 1, b"", (), None)
    environment = m.TaskEnvironment()
    assert msgspec.structs.astuple(environment) == (inf, "", "", "", "", {}, False, 0, 0)
    assert msgspec.structs.astuple(m.Assignment(1, (0,), [task])) == (1, (0,), [task], environment, (), "", inf)
    assert msgspec.structs.astuple(m.Result(5, 1, 2, 3, 4.0, 5.0))[6:] == (0, b"", 0, b"", "", 0.0, 0, b"", 0, 0)
    assert msgspec.structs.astuple(m.Hello("c", "n", 2, 7, 1.0))[5:] == (0, (), 0, {}, inf, (), False, False)
    assert msgspec.structs.astuple(m.Finished(1, [])) == (1, [], False, (), False)
    assert msgspec.structs.astuple(m.Report([])) == ([], [])
    assert msgspec.structs.astuple(m.Bye()) == ("", False, ())
    welcome = m.Welcome(1, {}, "", 2.0, 3.0, 4.0, 0)
    assert msgspec.structs.astuple(welcome)[7:] == ((), [], [], m.LINGER_S, 0)
    assert msgspec.structs.astuple(m.Kill((1,))) == ((1,), "killed")
    assert msgspec.structs.astuple(m.Leave()) == ("", False)
    assert msgspec.structs.astuple(m.Dismiss()) == ("", False)
    assert msgspec.structs.astuple(m.Prepare({}, "", 1.0)) == ({}, "", 1.0, m.LINGER_S)
    assert msgspec.structs.astuple(m.Work(m.Assignment(1, (0,), []), {}))[2:] == ((),)
    assert msgspec.structs.astuple(m.Stop(1, "killed")) == (1, "killed", False)


BODIES: list[m.FromEngine | m.FromDriver] = [
    m.Hello("c", "n", 2, 7, 1.0), m.Report([m.Finished(1, [m.Result(5, 1, 2, 3, 4.0, 5.0)])]), m.Bye(), m.Output(3, b"x"),
    m.Welcome(1, {}, "", 2.0, 3.0, 4.0, 0), m.Start([m.Assignment(1, (0,), [m.Task(5)])]), m.Kill((1,)), m.Leave(),
    m.Dismiss(), m.Kept(4),
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_every_message_comes_back_as_it_was(body: m.FromEngine | m.FromDriver) -> None:
    kind = m.EngineFrame if isinstance(body, m.FromEngine) else m.DriverFrame
    frame = kind(m.VERSION, "e", 1, 2, 3, [body])  # type: ignore[list-item]
    decode = m.decode_from_engine if kind is m.EngineFrame else m.decode_from_driver
    assert decode(m.encode(frame)) == frame
