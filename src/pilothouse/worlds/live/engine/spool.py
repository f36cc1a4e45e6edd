"""The spool of an engine: files in which its cylinders write what they begin and how it ended, before they go on.

    KEY.spool/identity    the engine's id as the driver knows it, its host, and how long it waits for a driver
    KEY.spool/lock        held by warden, engine and cylinders: while it is, tasks may run
    KEY.spool/N.M         the log of cylinder N; M counts its processes
    KEY.output            the pack with the output of its tasks (output.py), which stays when the spool goes

A log is a sequence of records: an assignment, a task that is about to begin, its result. Each record is written before
the next task begins, so a reader knows exactly which tasks ended, which had begun and which had not. Logs survive all
processes of an engine. Its warden reads them when the engine dies, and the driver reads them when the warden is gone too.

A log is emptied when the cylinder gets its next assignment: the driver gives a slot away only when it has the results of the
assignment before in its journal.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import struct
import tempfile
import time
import weakref
from pathlib import Path

import msgspec

from pilothouse.formats.output_pack import PACK_SUFFIX
from pilothouse.worlds.live.wire.messages import Finished, Result, encode
from pilothouse.worlds.live.wire.sockets import KEYS_FILE

SUFFIX = ".spool"
_EMPTIED_BYTES = 64 * 1024
"""A log that is larger than this is emptied when it may be."""
_RETRY_S = 0.5
"""A full disk: how long until the next attempt to write."""
_NUMBER = struct.Struct("<cIq")
"""Kind, length of the record, number."""
_RESULT = struct.Struct("<cI")
_ASSIGNMENT, _BEGIN, _END = b"A", b"B", b"E"

_decode_result = msgspec.msgpack.Decoder(Result).decode


def spool_folder(run_folder: str | Path, key: str) -> Path:
    """Where the engine with this key keeps its spool, if it can."""
    return Path(run_folder) / f"engine-{key}{SUFFIX}"


class Identity(msgspec.Struct, frozen=True):
    """Whose spool it is."""

    engine: str
    host: str
    boot: str
    """Names one run of the host's kernel: locks mean nothing after it, or on another host."""
    wait_for_driver_s: float = 0.0


class Log:
    """The log of one cylinder process, which is its only writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.close = weakref.finalize(self, os.close, self.fd)
        """Closes the file, at the latest when nothing refers to the log."""
        self._size = 0
        self.pending = b""
        """Records that are to be written with the next."""

    def begin(self, assignment: int) -> None:
        """An assignment; the driver has the results of those before."""
        if self._size > _EMPTIED_BYTES:
            os.ftruncate(self.fd, 0)
            self._size = 0
        self.pending += _NUMBER.pack(_ASSIGNMENT, _NUMBER.size, assignment)

    def running(self, task_id: int) -> None:
        """A task is about to begin. Returns when that is in the file."""
        self.pending += _NUMBER.pack(_BEGIN, _NUMBER.size, task_id)
        self.flush()

    def ended(self, result: Result) -> None:
        """The result of the running task, written at the latest with the begin of the next."""
        data = encode(result)
        self.pending += _RESULT.pack(_END, _RESULT.size + len(data)) + data

    def flush(self) -> None:
        """Waits while the disk is full: a task must not begin, nor its result be sent, before this is written."""
        while self.pending:
            try:
                written = os.write(self.fd, self.pending)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
                time.sleep(_RETRY_S)
                continue
            self.wrote(written, self.pending[written:])

    def wrote(self, size: int, pending: bytes) -> None:
        """So many bytes were written, and these are pending now."""
        self._size += size
        self.pending = pending


class LogContent(msgspec.Struct):
    """What a log says."""

    results: dict[int, list[Result]] = {}
    """By assignment, in the order in which they were begun."""
    running: int | None = None
    """The task that had begun and not ended."""

    @property
    def assignment(self) -> int | None:
        """The last one."""
        return next(reversed(self.results), None)

    @property
    def last_results(self) -> list[Result]:
        """Those of the last assignment."""
        return self.results[self.assignment] if self.assignment is not None else []


def read_log(path: Path) -> LogContent:
    """Stops at a record that is incomplete: its writer was killed."""
    content = LogContent()
    data = path.read_bytes()
    at = 0
    while at + _RESULT.size <= len(data):
        kind, length = _RESULT.unpack_from(data, at)
        if length < _RESULT.size or at + length > len(data):
            break
        try:
            if kind == _END:
                content.results.setdefault(content.assignment or 0, []).append(
                    _decode_result(data[at + _RESULT.size : at + length])
                )
                content.running = None
            else:
                number = _NUMBER.unpack_from(data, at)[2]
                if kind == _BEGIN:
                    content.running = number
                else:
                    content.results[number] = []
        except (msgspec.DecodeError, UnicodeDecodeError, struct.error):
            break
        at += length
    return content


class Spool:
    """One engine's spool, made by its warden. The lock is shared by all processes that are forked later."""

    def __init__(self, folder: str, identity: str, run_key: str = "") -> None:
        """`folder`: where to make it; if that is not possible (another host), in the folder for temporary files. `run_key`: the
        public key of the driver, by which the run's folder is told from a folder of the same name on another host."""
        try:
            if run_key and run_key.encode() not in (Path(folder).parent / KEYS_FILE).read_bytes():
                raise FileNotFoundError(folder)
            os.mkdir(folder, 0o700)
            self.folder = Path(folder)
        except OSError:
            self.folder = Path(tempfile.mkdtemp(prefix="pilothouse-", suffix=SUFFIX))
        self.shared = self.folder == Path(folder)
        """Whether it is in the run's folder."""
        self.pack = self.folder.with_suffix(PACK_SUFFIX) if self.shared else self.folder / "pack"
        self._lock = os.open(self.folder / "lock", os.O_WRONLY | os.O_CREAT, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._processes: dict[int, int] = {}
        self.identify(identity)

    def identify(self, engine: str, wait_for_driver_s: float = 0.0) -> None:
        """The engine has this id now, and waits so long for a driver."""
        draft = self.folder / "identity.new"
        draft.write_bytes(msgspec.json.encode(Identity(engine, os.uname().nodename, boot_id(), wait_for_driver_s)))
        draft.rename(self.folder / "identity")

    def new_log(self, cylinder: int) -> Log:
        """For a new process of this cylinder."""
        process = self._processes[cylinder] = self._processes.get(cylinder, -1) + 1
        return Log(self.folder / f"{cylinder}.{process}")

    def log_of(self, cylinder: int, process: int) -> LogContent:
        """What one process of a cylinder, which has ended, wrote."""
        return read_log(self.folder / f"{cylinder}.{process}")

    def release(self) -> None:
        """All tasks have ended: whoever reads it from now on finds all there is."""
        with contextlib.suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Remains(msgspec.Struct):
    """What an engine left behind: results that may not have reached the driver, and the tasks that were cut off."""

    identity: Identity
    finished: list[Finished]
    begun: set[int] | None
    """None: unknown, as the host was restarted and the last that was written may be lost."""


def read_spool(folder: Path) -> Remains:
    """Raises OSError, msgspec.DecodeError or UnicodeDecodeError if there is none."""
    identity = msgspec.json.decode((folder / "identity").read_bytes(), type=Identity)
    finished: list[Finished] = []
    begun: set[int] = set()
    for path in sorted(folder.iterdir()):
        if path.name.replace(".", "").isdigit():
            content = read_log(path)
            # Negative numbers are the engine's own START and STOP commands.
            finished.extend(Finished(number, results) for number, results in content.results.items() if number >= 0)
            if content.running is not None and (content.assignment or 0) >= 0:
                begun.add(content.running)
    return Remains(identity, finished, begun)


def remains_of(folder: Path, engine: str) -> Remains | None:
    """What a dead engine of this host left; None if it may still run, or if nothing is known."""
    try:
        identity = msgspec.json.decode((folder / "identity").read_bytes(), type=Identity)
        if identity.engine != engine or identity.host != os.uname().nodename:
            return None
        if identity.boot != boot_id():
            return Remains(identity, read_spool(folder).finished, None)
        return read_spool(folder) if is_unlocked(folder) else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_of_this_host(folder: Path) -> bool:
    """Whether a spool's engine is, or was, on this host since it was started."""
    try:
        identity = msgspec.json.decode((folder / "identity").read_bytes(), type=Identity)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return identity.host == os.uname().nodename and identity.boot == boot_id()


def is_unlocked(folder: Path) -> bool:
    """Whether all processes of an engine of this host have ended, or its warden has ended their tasks."""
    try:
        lock = os.open(folder / "lock", os.O_WRONLY)
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
