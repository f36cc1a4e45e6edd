"""A live run at one moment, as people look at it: counts, rate, time left, engines, contexts, the last failures.

Made from the run's journal (journal/) or by hand in tests; shown by views/watch.py. No IO here.
"""

from __future__ import annotations

from collections import deque

import msgspec

RATE_WINDOW_S = 60.0
"""The rate is that of the last minute, or of the whole run while it is younger."""


class EngineRow(msgspec.Struct, frozen=True):
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


class Failure(msgspec.Struct, frozen=True):
    task_id: int
    line_number: int
    return_code: int
    node: str
    ended_at: float
    command: str
    reason: str = ""


class RunState(msgspec.Struct, frozen=True):
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
    """Its driver has gone before it ended."""

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


class RateMeter:
    """Tasks per second, from how many had ended when."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now: float, finished: int) -> None:
        self._seen.append((now, finished))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_WINDOW_S:
            self._seen.popleft()

    def per_second(self, state: RunState) -> float:
        """The rate now; that of the whole run if there is nothing newer to go by."""
        if len(self._seen) >= 2 and state.ended_at is None:
            (then, before), (now, after) = self._seen[0], self._seen[-1]
            if now - then >= 1.0:
                return (after - before) / (now - then)
        return state.finished / state.elapsed_s if state.elapsed_s > 0 else 0.0


def time_left_s(state: RunState, rate: float) -> float | None:
    """How long the rest will take at this rate; None where nobody can know."""
    if state.ended_at is not None or state.total is None or rate <= 0:
        return None
    return max(0, state.total - state.finished) / rate


def clock(seconds: float) -> str:
    """`1:02:03`, or `2d 03:04` for what takes days."""
    whole = round(seconds)
    if whole >= 86400:
        return f"{whole // 86400}d {whole // 3600 % 24:02d}:{whole // 60 % 60:02d}"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
