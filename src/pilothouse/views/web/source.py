"""What a dashboard looks at: a live run by its journal, or a simulation by its files.

In: a run as the user named it. Out: `look`, the state now as JSON, once a second for all viewers together; `data`, the
block of the report's page, less often. Both only read. They are called in threads of their own, one call at a time each.
"""

from __future__ import annotations

import os
from math import isnan
from pathlib import Path
from typing import Protocol

import msgspec

from pilothouse.formats.output_pack import STDERR, STDOUT
from pilothouse.journal.output import open_outputs
from pilothouse.journal.run_reader import RunReader
from pilothouse.journal.run_state import RunState
from pilothouse.model.errors import InputError
from pilothouse.views.metrics import TAU
from pilothouse.views.rate import RateMeter, outcome, time_left_s
from pilothouse.views.read_live import read_live
from pilothouse.views.read_run import RunPath, add_users, find, read_run
from pilothouse.views.report.pack import pack
from pilothouse.views.session_now import NAME, SessionNow, read_now
from pilothouse.views.time_left import TimeLeft

MOST_SHOWN = 100
"""Running tasks, failures and engines that a viewer gets, of each."""
MOST_ROWS = 10_000
"""The last tasks of a live run that are drawn; `pilothouse report` draws all."""
MOST_OUTPUT_BYTES = 65_536
"""The end of a task's output that is shown."""


class Look(msgspec.Struct, frozen=True):
    """An event of the dashboard: the run now. `data` counts the blocks of the page's data; a new one is to be fetched."""

    name: str
    live: bool
    outcome: str
    data: int
    now: float
    """Seconds since 1970."""
    state: RunState | None = None
    """Of a live run, with the first rows of each list."""
    shown: dict[str, int] = {}
    """How many rows each list has in all."""
    rate: float = 0.0
    left_s: float | None = None
    ended: int = 0
    """Jobs of a simulation or steering session that have ended."""
    session: SessionNow | None = None
    """What runs and waits there, the first jobs of each."""
    total: int | None = None


class Source(Protocol):
    folder: Path | None
    """Where requests are left; None: nothing can be asked."""

    def look(self, data: int) -> bytes: ...

    def changed(self) -> bool:
        """Whether `data` would differ from what it gave the last time."""
        ...

    def data(self) -> bytes: ...

    def output(self, task: int, *, stdout: bool) -> bytes: ...

    def close(self) -> None: ...


def open_source(text: str) -> Source:
    """The run that a user named. Raises InputError."""
    found = find(text)
    return LiveSource(found) if found.journal is not None else SimulatedSource(found)


class LiveSource:
    """A run, a service or a pool: whatever keeps a journal."""

    def __init__(self, found: RunPath) -> None:
        assert found.journal is not None
        self.folder: Path | None = found.journal
        self._journal = found.journal
        self._name = found.name
        self._reader: RunReader | None = None
        self._meter = RateMeter()
        self._left = TimeLeft(found.journal)
        self._seen = self._drawn = (-1, -1, -1)

    def look(self, data: int) -> bytes:
        if self._reader is None:  # here and not above: SQLite keeps to one thread
            self._reader = RunReader(self._journal)
        state = self._reader.read()
        self._meter.note(state.now, state.finished)
        rate = self._meter.per_second(state)
        engines = sorted(state.engines, key=lambda engine: not engine.present)
        self._seen = (state.finished, state.running, len(engines))
        waiting = len(state.waiting_tasks) if state.waiting is None else max(state.waiting, len(state.waiting_tasks))
        shown = {"waiting": waiting, "running": state.running, "failures": state.failed, "engines": len(engines)}
        cut = msgspec.structs.replace(
            state, running_tasks=state.running_tasks[:MOST_SHOWN], failures=state.failures[:MOST_SHOWN],
            engines=tuple(engines[:MOST_SHOWN]), answers=state.answers[:MOST_SHOWN],
        )  # fmt: skip
        left = self._left.now(state.unfinished) if state.ended_at is None else None
        left_s = time_left_s(state, rate) if left is None else left.seconds
        return msgspec.json.encode(
            Look(state.name, True, outcome(state), data, state.now, cut, shown, rate, left_s, total=state.total)
        )

    def changed(self) -> bool:
        return self._seen != self._drawn

    def data(self) -> bytes:
        self._drawn = self._seen
        return pack([read_live(self._journal, self._name, last=MOST_ROWS)], TAU)

    def output(self, task: int, *, stdout: bool) -> bytes:
        """The end of what a task wrote. Raises InputError."""
        stream = STDOUT if stdout else STDERR
        with open_outputs(self._journal) as outputs:
            found = [ended for _, ended in outputs.read([task])] or list(outputs.read_running([task]))
        if not found:
            raise InputError(f"task {task}", "has written nothing yet")
        return found[-1].text(stream)[-MOST_OUTPUT_BYTES:]

    def close(self) -> None:
        self._left.close()
        if self._reader is not None:
            self._reader.close()


class SimulatedSource:
    """The files of a simulation or of a steering session: jobs.csv grows as jobs end."""

    folder: Path | None = None

    def __init__(self, found: RunPath) -> None:
        self._prefix = found.prefix
        self._name = found.name
        self._drawn = (-1, -1)
        self._ended = 0
        self._total: int | None = None
        self._over = False

    def look(self, data: int) -> bytes:
        said = "ended" if self._over else "running"
        at = os.stat(f"{self._prefix}jobs.csv").st_mtime
        found = None if self._over else read_now(self._prefix)
        if found is not None:
            running = [job for job in found.jobs if job.started_at is not None][:MOST_SHOWN]
            waiting = [job for job in found.jobs if job.started_at is None][:MOST_SHOWN]
            found = msgspec.structs.replace(found, jobs=running + waiting)
        shown = Look(self._name, False, said, data, at, ended=self._ended, total=self._total, session=found)
        return msgspec.json.encode(shown)

    def changed(self) -> bool:
        return self._stamp() != self._drawn

    def _stamp(self) -> tuple[int, int]:
        """Differs where there is something new."""
        try:
            present = os.stat(f"{self._prefix}{NAME}").st_mtime_ns
        except FileNotFoundError:
            present = 0
        return os.path.getsize(f"{self._prefix}jobs.csv"), present

    def data(self) -> bytes:
        self._drawn = self._stamp()
        run = read_run(f"{self._prefix}jobs.csv")
        add_users(run)
        ended = sum(1 for date in run.ended if not isnan(date))
        self._ended, self._total, self._over, self._name = ended, run.total, run.over, run.name
        return pack([run], TAU)

    def output(self, task: int, *, stdout: bool) -> bytes:
        raise InputError(f"job {task}", "is simulated: it writes nothing")

    def close(self) -> None:
        pass
