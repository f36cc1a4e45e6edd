"""A reliable channel (no frame is lost, repeated or reordered) over a transport that may do all three. Sans-IO.

Frames are numbered; the receiver takes them in sequence only, the sender repeats what is not acknowledged in time. A
channel lives as long as one pair of driver incarnation and engine; what must survive longer is kept by its owner and sent
again (see Hello).
"""

from __future__ import annotations

from typing import Generic, TypeVar

RESEND_S = 2.0
MOST_RESENT = 64
"""Frames repeated at once; the rest follows when these are acknowledged."""

Body = TypeVar("Body")


class Channel(Generic[Body]):
    """Both directions of one end. The owner sends what `outgoing` returns and shows `take` what arrives."""

    __slots__ = ("_pending", "_resend_at", "_unacked", "next_seq", "received")  # a driver may have ten thousand

    def __init__(self) -> None:
        self.received = 0
        """The last frame of the other side that was taken in: what we acknowledge."""
        self.next_seq = 1
        self._pending: list[Body] = []
        self._unacked: list[tuple[int, list[Body]]] = []
        self._resend_at = 0.0

    def push(self, body: Body) -> None:
        """Will go out with the next frame."""
        self._pending.append(body)

    @property
    def idle(self) -> bool:
        """Everything that was pushed has been acknowledged."""
        return not self._pending and not self._unacked

    def outgoing(self, now: float) -> list[tuple[int, list[Body]]]:
        """Frames (number, bodies) to send now: what is new, and what must be repeated."""
        frames: list[tuple[int, list[Body]]] = []
        if self._unacked and now >= self._resend_at:
            frames = self._unacked[:MOST_RESENT]
            self._resend_at = now + RESEND_S
        if self._pending:
            frame = (self.next_seq, self._pending)
            self.next_seq += 1
            self._pending = []
            if not self._unacked:
                self._resend_at = now + RESEND_S
            self._unacked.append(frame)
            frames.append(frame)
        return frames

    def take(self, seq: int, ack: int, now: float) -> bool:
        """Notes a frame that arrived; whether its bodies are news and in order (0 is a sign of life: never)."""
        unacked = self._unacked
        if unacked and unacked[0][0] <= ack:
            acked = 1
            while acked < len(unacked) and unacked[acked][0] <= ack:
                acked += 1
            del unacked[:acked]
            self._resend_at = now + RESEND_S
        if seq != self.received + 1:
            return False
        self.received = seq
        return True
