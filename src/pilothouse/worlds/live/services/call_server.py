"""The call server of a Pool: gives calls to its workers, first come, first served, and their answers back.

In: calls (`submit`), messages of workers, and the news that a worker's task has ended. Out: answers, and requests for workers.
It runs in a thread of its own, which alone uses the socket. Workers that have nothing to do are kept for IDLE_S; one leaves at
once when something else waits for its slot that came before the next call.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from math import inf

import msgspec
import zmq

from pilothouse.worlds.live.services import call_worker as w
from pilothouse.worlds.live.wire.sockets import Credentials, DriverSocket, Keys, own_addresses

IDLE_S = 10.0
STAY_EVERY_S = 10.0
MOST_BAD_STARTS = 3
"""So many workers in a row that ended before they asked for a call: then waiting calls fail."""


class PendingCall(msgspec.Struct, eq=False):
    number: int
    serial: int
    """Its place among all that was submitted."""
    data: bytes
    started: Callable[[], bool]
    """Called when a worker gets it; False: it was cancelled."""
    answered: Callable[[bytes, str], None]
    failed: Callable[[str], None]
    cancel: Callable[[], object]
    losses: int = 0
    """How many workers had begun it and were lost: it cannot be cancelled any more."""


class CallServer:
    """`start_worker` submits a task that runs a worker; `slots` are the most that may be there at once. `first_other` is the
    serial of the first thing that waits for a slot and is not a call (inf: none does). `broken` is called with the reason if the
    thread of the calls dies; all calls have failed by then. A call that was lost `most_losses` times fails."""

    def __init__(
        self, keys: Keys, listens: tuple[str, ...], slots: int, start_worker: Callable[[], None],
        first_other: Callable[[], float], drained: Callable[[], None], broken: Callable[[str], None], most_losses: int,
    ) -> None:  # fmt: skip
        self._wire = DriverSocket(keys, *listens)
        addresses = own_addresses(self._wire.port, listens)
        self.credentials = Credentials(addresses, keys.server_public, keys.client_public, keys.client_secret)
        self._slots = slots
        self._start_worker = start_worker
        self._first_other = first_other
        self._drained = drained
        self._broken = broken
        self._most_losses = most_losses
        self._lock = threading.RLock()
        self._pending: deque[PendingCall] = deque()
        self._running: dict[bytes, PendingCall] = {}
        """By worker."""
        self._parked: dict[bytes, float] = {}
        """Workers without a call, and since when."""
        self._workers = 0
        """Worker tasks that were submitted and have not ended."""
        self._seen: set[bytes] = set()
        """Workers that have asked for a call, by the beginnings of their names."""
        self._ended: set[bytes] = set()
        """Workers whose task has ended, by the same. A process of one may live on (its node was cut off): it gets no call."""
        self._bad_starts = 0
        self._closing = False
        self._over = ""
        """Why no call is answered any more; "": they are."""
        self._bell_read, self._bell_write = os.pipe()
        os.set_blocking(self._bell_read, False)
        os.set_blocking(self._bell_write, False)
        self._thread = threading.Thread(target=self._serve, name="pilothouse calls", daemon=True)
        self._thread.start()

    def submit(self, call: PendingCall) -> None:
        with self._lock:
            over = self._over
            if not over:
                self._pending.append(call)
                self._call_workers()
        if over:
            call.failed(over)
        self._ring()

    def worker_ended(self, task_id: int, attempt: int, reason: str, *, again: bool, final: bool) -> None:
        """The task of a worker has ended. `again`: it was lost with its node, and its call runs again; otherwise that fails."""
        with self._lock:
            self._workers -= final
            mark = f"{task_id}-{attempt}-".encode()
            self._ended.add(mark)
            if final and mark not in self._seen:
                self._bad_starts += 1
            self._seen.discard(mark)
            for peer in [peer for peer in self._parked if peer.startswith(mark)]:
                del self._parked[peer]
            broken = [self._running.pop(peer) for peer in list(self._running) if peer.startswith(mark)]
            for call in broken:
                call.losses += 1
            if again and not self._over:
                self._pending.extendleft(call for call in reversed(broken) if call.losses < self._most_losses)
                broken = [call for call in broken if call.losses >= self._most_losses]
            if final and self._bad_starts >= MOST_BAD_STARTS and not self._running:
                broken += self._pending
                self._pending.clear()
            self._call_workers()
        for call in broken:
            call.failed(reason)
        self._ring()

    def fail_all(self, reason: str) -> None:
        """The pool has ended; later calls fail as well."""
        with self._lock:
            broken = [*self._pending, *self._running.values()]
            self._pending.clear()
            self._running.clear()
            self._over = reason
        for call in broken:
            call.failed(reason)
        self._ring()

    def cancel_pending(self) -> None:
        """Calls that no worker has had are cancelled: `started` of each says so."""
        with self._lock:
            cancelled = [call for call in self._pending if not call.losses]
            self._pending = deque(call for call in self._pending if call.losses)
        for call in cancelled:
            call.cancel()

    def close(self) -> None:
        """No more calls will come: workers leave when all have been answered."""
        with self._lock:
            self._closing = True
        self._ring()

    def join(self) -> None:
        self._thread.join()

    def _call_workers(self) -> None:
        wanted = min(len(self._pending) + len(self._running), self._slots)
        while self._workers < wanted:
            self._workers += 1
            self._start_worker()

    def _ring(self) -> None:
        with self._lock, contextlib.suppress(OSError):  # it is full, or the server has ended
            os.write(self._bell_write, b"!")

    # ---- the thread

    def _serve(self) -> None:
        try:
            self._answer_calls()
        except BaseException as problem:
            why = f"the thread of the calls ended: {type(problem).__name__}: {problem}"
            self.fail_all(why)
            self._broken(why)
        finally:
            self._wire.close()
            with self._lock:
                os.close(self._bell_read)
                os.close(self._bell_write)
                self._bell_write = -1

    def _answer_calls(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wire.socket, zmq.POLLIN)
        poller.register(self._bell_read, zmq.POLLIN)
        stay_at = time.monotonic() + STAY_EVERY_S
        drained = False
        while not self._over:
            ready = dict(poller.poll(1000))
            if self._bell_read in ready:
                os.read(self._bell_read, 4096)
            if self._wire.socket in ready:
                for peer, message in self._wire.receive():
                    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                        self._hear(peer, w.decode_from_worker(message))
            self._give_out()
            if time.monotonic() >= stay_at:
                stay_at = time.monotonic() + STAY_EVERY_S
                for peer in list(self._parked):
                    self._tell(peer, w.Stay())
            if self._closing and not drained and not self._pending and not self._running:
                drained = True
                self._drained()

    def _hear(self, peer: bytes, message: w.FromWorker) -> None:
        call, mark = None, peer.rpartition(b"-")[0] + b"-"
        with self._lock:
            if mark in self._ended:
                self._tell(peer, w.Leave())
                return
            self._bad_starts = 0
            self._seen.add(mark)
            if isinstance(message, w.Done):
                call = self._running.pop(peer, None)
            if peer not in self._running:
                self._parked[peer] = time.monotonic()
        if isinstance(message, w.Ready):
            self._tell(peer, w.Stay())
        elif call is not None and call.number == message.call:
            call.answered(message.answer, message.trace)

    def _give_out(self) -> None:
        now = time.monotonic()
        for peer, since in list(self._parked.items()):
            with self._lock:
                while self._pending and self._pending[0].serial < self._first_other():
                    call = self._pending.popleft()
                    if call.losses or call.started():
                        self._running[peer] = call
                        break
                else:
                    if not (now - since > IDLE_S or self._closing or self._first_other() < inf):
                        continue
                    call = None
                del self._parked[peer]
            self._tell(peer, w.Leave() if call is None else w.Call(call.number, call.data))

    def _tell(self, peer: bytes, order: w.ToWorker) -> None:
        self._wire.send(peer, w.encode(order))
