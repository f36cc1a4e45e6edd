"""A live run at one moment: counts, engines, contexts, the last failures. No IO here: journal/run_reader.py makes it."""

from __future__ import annotations

import msgspec

from pilothouse.worlds.live.requests import Answer


class Wait(msgspec.Struct, frozen=True):
    """What a task waits for."""

    what: str
    """`cores`, `memory`, `gpus`, `node` (one that is large enough), `engine`, `barrier`, `dependency`, `slot` (it is on a node,
    behind others of its bundle), `policy`, `driver`."""
    text: str

    def __str__(self) -> str:
        return f"waits for {self.text}"


def behind_others(before: int, node: str) -> Wait | None:
    """What a task waits for that its engine has, and so many others of its bundle before it."""
    if not before:
        return None
    others = "1 task of its bundle is before it" if before == 1 else f"{before:,} tasks of its bundle are before it"
    return Wait("slot", f"its slot on {node}: {others}")


class EngineRow(msgspec.Struct, frozen=True):
    """An engine of a live run."""

    rank: int
    engine: str
    context: str
    node: str
    slots: int
    running: int
    finished: int
    failed: int
    state: str
    """`running`, `leaving`, `gone` or `lost`."""
    joined_at: float = 0.0

    @property
    def present(self) -> bool:
        return self.state in ("running", "leaving")


class RunningTask(msgspec.Struct, frozen=True):
    """A task that is being run."""

    task_id: int
    line_number: int
    since: float
    """When it began, as far as the driver knows: when it was assigned, or when the task before it in its group ended."""
    rank: int
    """Of its engine."""
    node: str
    slots: str
    """Of its engine, counted from 0."""
    command: str
    attempt: int = 1


class Failure(msgspec.Struct, frozen=True):
    """A task that did not succeed."""

    task_id: int
    line_number: int
    return_code: int
    node: str
    ended_at: float
    command: str
    reason: str = ""
    last_words: str = ""
    """The last line that it wrote to standard error."""


class QueuedTask(msgspec.Struct, frozen=True):
    """A task that waits."""

    task_id: int
    waits_for: str
    """As `pilothouse explain` says it."""
    since: float
    command: str
    name: str = ""
    """As its request names it; of a submitted job, its id."""


class RunState(msgspec.Struct, frozen=True):
    """`pilothouse watch --json`: a live run now. Dates are seconds since 1970."""

    name: str
    started_at: float
    now: float
    finished: int
    failed: int
    running: int
    total: int | None = None
    """Tasks in all, where that is known."""
    barriers: int = 0
    skipped: int = 0
    ended_at: float | None = None
    engines: tuple[EngineRow, ...] = ()
    failures: tuple[Failure, ...] = ()
    """The last ones first."""
    unattended: bool = False
    """Its driver ended before the run did."""
    running_tasks: tuple[RunningTask, ...] = ()
    """Those that have run for the longest time first."""
    waiting: int | None = None
    """Tasks that have not been begun, where their number is known."""
    next_task: int | None = None
    """The first task that waits."""
    waits_for: str = ""
    """What it waits for, as `pilothouse explain` says it."""
    waiting_tasks: tuple[QueuedTask, ...] = ()
    """The first of those that wait."""
    answers: tuple[Answer, ...] = ()
    """What became of the last requests of users; the last one first."""

    @property
    def unfinished(self) -> int | None:
        """Tasks that have not ended, where their number is known."""
        return None if self.total is None else max(0, self.total - self.finished)

    @property
    def elapsed_s(self) -> float:
        return max(0.0, (self.ended_at or self.now) - self.started_at)

    @property
    def slots(self) -> int:
        return sum(engine.slots for engine in self.engines if engine.state == "running")

    @property
    def contexts(self) -> dict[str, list[EngineRow]]:
        found: dict[str, list[EngineRow]] = {}
        for engine in self.engines:
            found.setdefault(engine.context, []).append(engine)
        return found
