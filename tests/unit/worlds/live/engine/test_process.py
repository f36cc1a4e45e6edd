"""The engine's sockets to its cylinders."""

from __future__ import annotations

import socket

from pilothouse.worlds.live.engine.cylinder import Inbox, framed, send
from pilothouse.worlds.live.engine.process import CylinderLink
from pilothouse.worlds.live.wire import messages as m


def test_a_cylinder_that_does_not_read_does_not_stop_its_engine() -> None:
    """A bundle that is larger than what fits into the socket, for a cylinder that is stopped."""
    ours, theirs = socket.socketpair()
    link, work = CylinderLink(ours, 0), m.Work(m.Assignment(1, (0,), [m.Task(1, line=b"x" * 5_000_000)]), {})
    stop = m.Stop(1, "killed")
    assert not link.send(work)
    assert not link.send(stop)
    inbox, got, flushed = Inbox(theirs), [], False
    while len(got) < 2:
        got += inbox.receive() or []
        flushed = link.flush()
    assert flushed and [len(data) + 4 for data in got] == [len(framed(work)), len(framed(stop))]
    theirs.close()
    assert link.send(work), "what a dead cylinder would have got is dropped"


def test_what_a_cylinder_had_sent_before_its_end_is_read() -> None:
    ours, theirs = socket.socketpair()
    link = CylinderLink(ours, 0)
    large = m.Finished(1, [m.Result(task, 1, 0, 1, 0.0, 0.0, reason="x" * 100) for task in range(1000)])
    send(theirs, large)
    send(theirs, m.Finished(1, [], True))
    theirs.close()
    assert link.close() == [large, m.Finished(1, [], True)]
