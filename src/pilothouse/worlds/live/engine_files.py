"""What engines leave in the run's folder: the spools of those that have ended, and the packs of those that do not see it.

An engine of this host has ended when nobody holds the lock of its spool; the logs there tell what it did. A warden
reports the end of its engine. Where it was killed too, or the driver had ended meanwhile, the driver reads the spool
itself. Tasks that no process is left to end are ended first: others may get them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path

from pilothouse.access.files import open_own
from pilothouse.formats.output_pack import PACK_SUFFIX, pack_path
from pilothouse.model.errors import InputError, RunError
from pilothouse.worlds.live.driver.engine_frames import engine_vanished
from pilothouse.worlds.live.driver.engines import EngineProxy
from pilothouse.worlds.live.driver.state import DriverState
from pilothouse.worlds.live.engine.spool import SUFFIX, is_of_this_host, is_unlocked, remains_of, spool_folder
from pilothouse.worlds.live.engine.task_processes import end_orphans
from pilothouse.worlds.live.records import EngineJoined, Record, TaskEnded

SILENT_S = 5.0
"""After how long it is looked whether an engine that is not heard has ended."""
SYNC_S = 0.2
"""Between two waits for the disk that packs need."""


class DeadEngines:
    """Looks for them in the run's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: list[Path] = []

    def report(self, driver: DriverState, proxy: EngineProxy, reason: str, now: float) -> bool:
        """An engine whose process is known to have ended. False while some of its tasks may still run: ask again."""
        folder = spool_folder(self._folder, proxy.joined.key)
        if not proxy.joined.key or not folder.exists():
            engine_vanished(driver, proxy.id, reason, now)
            return True
        if not is_unlocked(folder):
            return False
        end_orphans()
        remains = remains_of(folder, proxy.id)
        if remains is None:
            engine_vanished(driver, proxy.id, reason, now)
        else:
            engine_vanished(driver, proxy.id, reason, now, remains.finished, remains.begun)
        self._read.append(folder)
        return True

    def report_silent(self, driver: DriverState, now: float) -> None:
        """Engines that are not heard, because they ended without a word."""
        for proxy in list(driver.engines.present.values()):
            if now - proxy.heard_at < SILENT_S or not proxy.joined.key:
                continue
            if remains_of(spool_folder(self._folder, proxy.joined.key), proxy.id) is not None:
                self.report(driver, proxy, "all its processes have ended", now)

    def may_run(self, joined: EngineJoined) -> bool:
        """Whether an engine that was given up still holds its slots, as far as this host can know."""
        return bool(joined.key) and not is_unlocked(spool_folder(self._folder, joined.key))

    def some_live(self) -> bool:
        """Whether processes of an engine of this host live, also of one that another program started."""
        return any(is_of_this_host(folder) and not is_unlocked(folder) for folder in self._folder.glob(f"*{SUFFIX}"))

    def forget_written(self) -> None:
        """The journal has what was read: removes the spools."""
        for folder in self._read:
            shutil.rmtree(folder, ignore_errors=True)
        self._read.clear()

    def sweep(self) -> None:
        """All work is done: removes what engines left that were killed before they joined, or given up."""
        for folder in self._folder.glob(f"*{SUFFIX}"):
            if is_unlocked(folder):
                shutil.rmtree(folder, ignore_errors=True)


def sizes_of_packs(folder: Path) -> dict[str, int]:
    """Key of an engine -> how much of its pack is in the folder."""
    return {
        path.name.removeprefix("engine-").removesuffix(PACK_SUFFIX): path.stat().st_size
        for path in folder.glob(f"engine-*{PACK_SUFFIX}")
    }


class PackSync:
    """Puts packs on the disk, before the journal says that the tasks have ended.

    In a run with many short tasks that would cost a tenth of the rate, so it is done every SYNC_S at most: a loss of power can
    take the output of tasks that ended in that time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: set[int] = set()
        """Ranks of engines whose tasks have written since their pack was put on the disk."""
        self._synced_at = -inf

    def note(self, records: Iterable[Record]) -> None:
        self._waiting.update(record.rank for record in records if type(record) is TaskEnded and record.output)

    def sync(self, keys_by_rank: Mapping[int, str], now: float) -> None:
        """Waits for the disk. RunError: some are left. What an engine on another host wrote is as safe as the file system
        that the hosts share makes it."""
        if now < self._synced_at + SYNC_S:
            return
        self._synced_at = now
        while self._waiting:
            path = pack_path(self._folder, keys_by_rank.get(rank := next(iter(self._waiting)), ""))
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fdatasync(fd)
                finally:
                    os.close(fd)
            except FileNotFoundError:
                pass  # removed by the user: `output` will say so
            except OSError as error:
                raise RunError(f"{path}: cannot write: {error}") from error
            self._waiting.discard(rank)


def write_parts(folder: Path, parts: list[tuple[str, int, bytes]]) -> None:
    """Writes parts (key, place, bytes) and takes them off the list, each when it is written. RunError: some are left.

    A part is written at its place, so writing it twice does no harm.
    """
    while parts:
        key, place, data = parts[0]
        path = pack_path(folder, key)
        try:
            fd = open_own(path, os.O_WRONLY | os.O_CREAT)
            try:
                while data:
                    written = os.pwrite(fd, data, place)
                    place, data = place + written, data[written:]
            finally:
                os.close(fd)
        except (OSError, InputError) as error:
            raise RunError(f"{path}: cannot write: {error}") from error
        del parts[0]
