"""Tasks per second of a run that goes on, and how long the rest will take."""

from __future__ import annotations

from collections import deque

from pilothouse.journal.run_state import RunState

RATE_WINDOW_S = 60.0
"""The rate is that of the last minute, or of the whole run while it is younger."""


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
                return max(0.0, (after - before) / (now - then))
        return state.finished / state.elapsed_s if state.elapsed_s > 0 else 0.0


def time_left_s(state: RunState, rate: float) -> float | None:
    """How long the rest will take at this rate; None where that is not known."""
    if state.ended_at is not None or state.total is None or rate <= 0:
        return None
    return max(0, state.total - state.finished) / rate


def outcome(state: RunState) -> str:
    """How the run stands, in words."""
    if state.ended_at is not None:
        return "ended"
    if state.unattended:
        return "no driver: go on with pilothouse run --resume"
    return "running" if any(engine.present for engine in state.engines) else "no engine"
