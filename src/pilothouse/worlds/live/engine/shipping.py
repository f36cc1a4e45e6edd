"""How the pack of an engine that does not see the run's folder gets to the driver. Sans-IO.

The pack (formats/output_pack.py) is sent in pieces, in order, over the engine's channel; the driver writes the same bytes at the
same places of a file in the run's folder. A result is sent behind the output of its task, so that the driver has what a task
wrote when it learns of its end. A window bounds what is on its way. What the driver has is told by Welcome, so that nothing is
remembered here for a later driver: it is read again from the file.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from pilothouse.worlds.live.wire.messages import Finished, Output

PIECE_BYTES = 1 << 18
WINDOW_BYTES = 1 << 22
"""The most that is on its way."""


class Pack(Protocol):
    """The file."""

    def size(self) -> int: ...

    def read(self, at: int, most: int) -> bytes:
        """What is there; less than `most` at the end of the file."""
        ...


class Shipping:
    """One engine's pack on its way."""

    def __init__(self, pack: Pack, window_bytes: int = WINDOW_BYTES) -> None:
        self._pack = pack
        self._window_bytes = window_bytes
        self._sent = self._acknowledged = 0
        self._on_their_way: deque[tuple[int, int]] = deque()
        """Numbers of frames, and how much has been sent with each."""
        self._behind: deque[tuple[int, Finished]] = deque()
        """Results, and how much must be sent before each."""

    @property
    def held_back(self) -> list[Finished]:
        """Results that have not been sent."""
        return [finished for _, finished in self._behind]

    def begin(self, kept: int, results: list[Finished]) -> None:
        """A driver that has so much of the pack; it gets these results, too."""
        self._sent = self._acknowledged = kept
        self._on_their_way.clear()
        size = self._pack.size()
        self._behind = deque((size, finished) for finished in results)

    def hold(self, finished: Finished) -> None:
        """Its tasks have written what is in the pack now."""
        self._behind.append((self._pack.size(), finished))

    def next_piece(self, seq: int) -> Output | None:
        """What goes out with this frame; None: nothing is left, or enough is on its way."""
        if self._sent - self._acknowledged >= self._window_bytes:
            return None
        data = self._pack.read(self._sent, PIECE_BYTES)
        if not data:
            return None
        piece = Output(self._sent, data)
        self._sent += len(data)
        self._on_their_way.append((seq, self._sent))
        return piece

    def next_result(self) -> Finished | None:
        """One that may be sent now."""
        return self._behind.popleft()[1] if self._behind and self._behind[0][0] <= self._sent else None

    def take_acknowledged(self, seq: int) -> bool:
        """The driver has all frames up to this one. Whether it has more of the pack than before."""
        before = self._acknowledged
        while self._on_their_way and self._on_their_way[0][0] <= seq:
            self._acknowledged = self._on_their_way.popleft()[1]
        return self._acknowledged > before
