"""One reader, many viewers: the state of a run is read once a second and sent to all who listen.

Every event is the whole state, so a viewer whose line is slow misses some and still sees the newest; one that takes
nothing for STALLED_S is cut off. While no one listens nothing is read. The page's data costs more: it is made again only
after PAUSE_FACTOR times as long as making it took.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor

from pilothouse.model.errors import PilothouseError
from pilothouse.views.web.http import event
from pilothouse.views.web.source import Source

STALLED_S = 30.0
PAUSE_FACTOR = 40.0
DATA_EVERY_S = 2.0
log = logging.getLogger("pilothouse.web")


class Viewer:
    """A connection that gets events."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._transport = writer.transport
        self._free_at = time.monotonic()

    def send(self, data: bytes, now: float) -> bool:
        """Sends an event unless the last one is still on its way. False: it has been for too long."""
        if self._transport.is_closing():
            return False
        if self.backlog == 0:
            self._free_at = now
            self._transport.write(data)
        return now - self._free_at <= STALLED_S

    @property
    def backlog(self) -> int:
        """Bytes that wait to be sent."""
        return self._transport.get_write_buffer_size()

    def cut_off(self) -> None:
        self._transport.abort()


class Feed:
    def __init__(self, source: Source, every_s: float) -> None:
        self._source = source
        self._every_s = every_s
        self._viewers: set[Viewer] = set()
        self._someone = asyncio.Event()
        # SQLite keeps to one thread, and a slow drawing must not hold up the state.
        self._state_thread, self._data_thread = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._drawing: asyncio.Future[bytes] | None = None
        self._draw_at = 0.0
        self._drawn = asyncio.Event()
        self._last = b""
        self.data = b""
        """The page's data, gzipped."""
        self.number = 0

    def join(self, viewer: Viewer) -> None:
        self._viewers.add(viewer)
        if self._last:
            viewer.send(self._last, time.monotonic())
        self._someone.set()

    def leave(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)
        if not self._viewers:
            self._someone.clear()

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._someone.wait()
            began = time.monotonic()
            try:
                self._draw_when_due(began)
                found = await loop.run_in_executor(self._state_thread, self._source.look, self.number)
                self._tell(event("look", found))
            except (PilothouseError, OSError) as problem:
                self._tell(event("problem", _json(str(problem))))
            await asyncio.sleep(max(0.05, self._every_s - (time.monotonic() - began)))

    def _tell(self, data: bytes) -> None:
        self._last = data
        now = time.monotonic()
        for viewer in [viewer for viewer in self._viewers if not viewer.send(data, now)]:
            self.leave(viewer)
            viewer.cut_off()

    def _draw_when_due(self, now: float) -> None:
        if self._drawing is None and now >= self._draw_at and (not self.number or self._source.changed()):
            self._drawing = asyncio.get_running_loop().run_in_executor(self._data_thread, self._source.data)
            self._drawing.add_done_callback(lambda done: self._take_drawing(done, now))

    def _take_drawing(self, done: asyncio.Future[bytes], began: float) -> None:
        now = time.monotonic()
        self._drawing = None
        self._draw_at = now + max(DATA_EVERY_S, PAUSE_FACTOR * (now - began))
        if done.cancelled():
            return
        problem = done.exception()
        if problem is None:
            self.data, self.number = done.result(), self.number + 1
        elif isinstance(problem, PilothouseError | OSError):
            self._tell(event("problem", _json(str(problem))))
        else:
            raise problem

    async def output(self, task: int, *, stdout: bool) -> bytes:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._data_thread, lambda: self._source.output(task, stdout=stdout))

    def close(self) -> None:
        for viewer in list(self._viewers):
            viewer.cut_off()
        self._state_thread.submit(self._source.close)
        self._state_thread.shutdown()
        self._data_thread.shutdown(cancel_futures=True)


def _json(text: str) -> bytes:
    import msgspec

    return msgspec.json.encode(text)
