"""A guard over a run whose decision component is loaded into the simulating process: the component's crash is not ours.

The whole run takes place in a child process; the parent only waits. So a call of the component costs a call and nothing
more, and one that crashes, ends its process or hangs ends a child. The parent then says in one line what happened, and
writes what the child had not written yet: the last lines of each file are kept in memory that both share (`Kept`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from pilothouse.launch.output_files import opened
from pilothouse.protocols.batprotocol.channel import InProcessLibrary

ROOM_BYTES = 1 << 20
"""Lines of one file that may wait in memory."""
MOST_FILES = 4
_HEAD = struct.Struct("<II")
_BODY_AT = 4096 + _HEAD.size  # behind the head and the longest path that a system knows
_CALL = struct.Struct("<dd")
_END = struct.Struct("<Bi")
_END_AT = _CALL.size
_MASTER_AT = _END_AT + _END.size
_PR_SET_PDEATHSIG = 1


class Kept:
    """A text file whose latest lines wait in shared memory; only what a file of ours needs."""

    def __init__(self, path: str, room: mmap.mmap) -> None:
        self._stream = opened(path)
        self._room = room
        self._used = 0
        name = os.fsencode(os.path.abspath(path))[:4096]
        room[_HEAD.size : _HEAD.size + len(name)] = name
        _HEAD.pack_into(room, 0, 0, len(name))

    def write(self, text: str) -> int:
        data = text.encode()
        start = _BODY_AT + self._used
        end = start + len(data)
        if end > ROOM_BYTES:
            self.flush()
            if len(data) > ROOM_BYTES - _BODY_AT:
                self._stream.write(text)
                self._stream.flush()
                return len(text)
            start, end = _BODY_AT, _BODY_AT + len(data)
        self._room[start:end] = data
        self._used = end - _BODY_AT
        struct.pack_into("<I", self._room, 0, self._used)
        return len(text)

    def flush(self) -> None:
        if self._used:
            self._stream.buffer.write(self._room[_BODY_AT : _BODY_AT + self._used])
            self._stream.flush()
            self._used = 0
            struct.pack_into("<I", self._room, 0, 0)

    def close(self) -> None:
        self.flush()
        self._stream.close()


def rescue(room: mmap.mmap) -> None:
    """Writes the lines that the process which kept them did not come to write."""
    used, length = _HEAD.unpack_from(room)
    if used:
        path = Path(os.fsdecode(room[_HEAD.size : _HEAD.size + length]))
        with path.open("ab") as stream:
            stream.write(room[_BODY_AT : _BODY_AT + used])


class Guard:
    """What parent and child share: since when a call has lasted, what the date is in the simulation, and how it ended."""

    def __init__(self) -> None:
        self._watch = mmap.mmap(-1, 4096)
        self._rooms = [mmap.mmap(-1, ROOM_BYTES) for _ in range(MOST_FILES)]
        self._free = list(self._rooms)

    # ---- in the child

    def opened(self, path: str) -> TextIO:
        """A new file whose lines are not lost."""
        return Kept(path, self._free.pop(0))  # type: ignore[return-value]

    def library(self, path: str, method: str) -> GuardedLibrary:
        return GuardedLibrary(path, method, self._watch)

    def note_master(self, name: str) -> None:
        data = name.encode()[:255]
        self._watch[_MASTER_AT : _MASTER_AT + 1 + len(data)] = bytes([len(data)]) + data

    # ---- in the parent

    @property
    def _now(self) -> float:
        return float(_CALL.unpack_from(self._watch)[1])

    @property
    def _master(self) -> str:
        length = self._watch[_MASTER_AT]
        return self._watch[_MASTER_AT + 1 : _MASTER_AT + 1 + length].decode()

    def run(
        self, work: Callable[[], int], silence_s: float, critical: Callable[[str, float, str], None], name: str
    ) -> int:
        """Runs work() in a child; its result, or -SIGABRT after a line that says how the component ended it."""
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        child = os.fork()
        if not child:
            self._be_the_child(work, parent)
        try:
            status = self._wait(child, silence_s)
        except KeyboardInterrupt:
            os.kill(child, signal.SIGINT)
            os.waitpid(child, 0)
            raise
        ended, code = _END.unpack_from(self._watch, _END_AT)
        if ended:
            return int(code)
        if status is None:
            problem = f"no answer within {silence_s:g} s"
        elif os.WIFSIGNALED(status):
            problem = f"the component crashed ({signal.Signals(os.WTERMSIG(status)).name})"
        else:
            problem = f"the component ended its process with code {os.waitstatus_to_exitcode(status)}"
        for room in self._rooms:
            rescue(room)
        critical(f"{problem} ({name})", self._now, self._master)
        return -signal.SIGABRT

    def _be_the_child(self, work: Callable[[], int], parent: int) -> None:
        code = 1
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                code = work()
        except KeyboardInterrupt:
            code = 130
        except Exception:
            traceback.print_exc()
        _END.pack_into(self._watch, _END_AT, 1, code)
        sys.stdout.flush()
        sys.stderr.flush()
        # What the library registered to run at exit must not decide how this process ends.
        os._exit(0)

    def _wait(self, child: int, silence_s: float) -> int | None:
        """How the child ended; None if a call lasted too long and it was killed."""
        if silence_s:
            descriptor = os.pidfd_open(child)
            try:
                waiting = select.poll()
                waiting.register(descriptor, select.POLLIN)
                while not waiting.poll(int(min(silence_s / 4, 1.0) * 1000) + 1):
                    began = _CALL.unpack_from(self._watch)[0]
                    if began and time.monotonic() - began > silence_s:
                        os.kill(child, signal.SIGKILL)
                        os.waitpid(child, 0)
                        return None
            finally:
                os.close(descriptor)
        return os.waitpid(child, 0)[1]


class GuardedLibrary(InProcessLibrary):
    """A component in this process, which is the child: each call is noted."""

    def __init__(self, path: str, method: str, watch: mmap.mmap) -> None:
        super().__init__(path, method)
        self._watch = watch
        self.date: Callable[[], float] = lambda: 0.0
        """Tells the date in the simulation."""

    def hello(self, init: bytes) -> tuple[int, bytes]:
        _CALL.pack_into(self._watch, 0, time.monotonic(), 0.0)
        hello = super().hello(init)
        _CALL.pack_into(self._watch, 0, 0.0, 0.0)
        return hello

    def exchange(self, message: bytes) -> bytes:
        _CALL.pack_into(self._watch, 0, time.monotonic(), self.date())
        answer = super().exchange(message)
        _CALL.pack_into(self._watch, 0, 0.0, 0.0)
        return answer

    def close(self) -> None:
        _CALL.pack_into(self._watch, 0, time.monotonic(), self.date())
        super().close()
        _CALL.pack_into(self._watch, 0, 0.0, 0.0)
