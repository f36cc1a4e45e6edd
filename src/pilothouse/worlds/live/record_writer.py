"""Writes what a live run keeps: the output that engines send, then records. A full disk is waited for.

In: parts of packs and records. Out: files in the run's folder, and a line for the user when they cannot be written and when they
can be written again.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path

from pilothouse.model.errors import PeerError, RunError
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.engines import Engines
from pilothouse.worlds.live.engine_files import PackSync, write_parts


class RecordWriter:
    def __init__(
        self, folder: Path, recorder: r.Recorder, engines: Engines, warn: Callable[[str], None], wait: Callable[[], bool]
    ) -> None:
        """`wait` is called before another attempt; False: there is none."""
        self.not_durable = False
        """Records were written that may be lost with the power."""
        self._folder = folder
        self._recorder = recorder
        self._engines = engines
        self._packs = PackSync(folder)
        self._warn = warn
        self._wait = wait
        self._failing = False

    def write(self, outputs: list[tuple[str, int, bytes]], records: list[r.Record], now: float, *, durable: bool) -> None:
        """Returns when all is written. Raises PeerError if another driver has the run, RunError if there is no other attempt."""
        self._packs.note(records)
        while True:
            try:
                write_parts(self._folder, outputs)
                if durable:
                    self._packs.sync(self._engines.keys_by_rank, now)
                if records or (durable and self.not_durable):
                    self._recorder.write(records, durable=durable)
                    self.not_durable = not durable
                break
            except PeerError:
                raise
            except RunError as error:
                if not self._failing:
                    self._failing = True
                    self._warn(f"{error}; nothing is begun until that can be written")
                if not self._wait():
                    raise
        if self._failing:
            self._failing = False
            self._warn(f"{self._folder}: can be written again")

    def close(self) -> None:
        """Puts on the disk what is not there yet."""
        try:
            self._packs.sync(self._engines.keys_by_rank, inf)
        except RunError as error:
            self._warn(str(error))
