"""The screen of `pilothouse watch`: a run's state drawn for a terminal of any size from 80 x 24 on.

In: a RunState, the size, the chosen engine, a message. Out: a rich renderable that fills the screen and
never scrolls; what does not fit is cut, least important first.
"""

from __future__ import annotations

from collections import deque

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pilothouse.journal.run_state import EngineRow, RunState
from pilothouse.views.clock import clock

RATE_WINDOW_S = 60.0
"""The rate is that of the last minute, or of the whole run while it is younger."""
KEYS = "up/down choose   e stop engine   c stop context   q quit"
_COLOURS = {"running": "green", "leaving": "yellow", "gone": "dim", "lost": "red"}


class Screen:
    """What the viewer has chosen; draws the state accordingly."""

    def __init__(self) -> None:
        self.cursor = 0
        self.message = ""
        self.question = ""

    def move(self, step: int, state: RunState) -> None:
        count = len(shown_engines(state))
        self.cursor = min(max(0, self.cursor + step), max(0, count - 1))

    def chosen(self, state: RunState) -> EngineRow | None:
        engines = shown_engines(state)
        return engines[min(self.cursor, len(engines) - 1)] if engines else None

    def draw(self, state: RunState, rate: float, width: int, height: int, *, interactive: bool = True) -> Group:
        engines = shown_engines(state)
        head = _head(state, rate, width)
        foot = 1 if interactive else 0
        room = max(4, height - len(head) - foot - 1)
        failures_room = min(len(state.failures) + 1, max(2, room // 3)) if state.failures else 0
        engines_room = max(2, room - failures_room)
        parts: list[RenderableType] = [*head, Text()]
        parts.append(_engine_table(engines, self.cursor if interactive else -1, engines_room - 1, width))
        if failures_room:
            parts.append(_failure_table(state, failures_room - 1, width))
        if interactive:
            used = min(max(1, len(engines)), engines_room - 1) + 1 + failures_room
            parts += [Text()] * max(0, room - used)
            line = self.question or self.message or KEYS
            parts.append(Text(line[:width], style="reverse" if self.question else "dim", no_wrap=True))
        return Group(*parts)


def shown_engines(state: RunState) -> list[EngineRow]:
    """Those that are there first; of the others only the lost ones, unless the run is over."""
    present = [engine for engine in state.engines if engine.present]
    others = [e for e in state.engines if not e.present and (e.state == "lost" or state.ended_at is not None)]
    return present + others


def _head(state: RunState, rate: float, width: int) -> list[Text]:
    left_s = time_left_s(state, rate)
    if state.ended_at is not None:
        outcome = "ended"
    elif state.unattended:
        outcome = "no driver: go on with pilothouse run --resume"
    elif not any(engine.present for engine in state.engines):
        outcome = "no engine"
    else:
        outcome = "running"
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(state.name, style="bold")
    title.append(f"  {outcome}", style="green" if outcome == "running" else "yellow")
    title.append(f"  {clock(state.elapsed_s)}")
    if left_s is not None:
        title.append(f"  about {clock(left_s)} left", style="cyan")
    counts = Text(no_wrap=True, overflow="ellipsis")
    of_total = f"/{state.total}" if state.total is not None else ""
    counts.append(f"tasks {state.finished}{of_total}", style="bold")
    counts.append(f"  running {state.running}  ")
    counts.append(f"failed {state.failed}", style="red" if state.failed else "")
    if state.skipped:
        counts.append(f"  skipped {state.skipped}")
    if state.barriers:
        counts.append(f"  barriers {state.barriers}")
    counts.append(f"  {rate:.4g}/s  slots {state.slots}")
    return [title, counts, _contexts(state), _bar(state, width)]


def _contexts(state: RunState) -> Text:
    """One line: what each context has and has done."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for name, engines in state.contexts.items():
        present = [engine for engine in engines if engine.present]
        line.append(f"{name} ", style="bold" if present else "dim")
        done = sum(engine.finished for engine in engines)
        slots = sum(engine.slots for engine in present)
        line.append(f"{len(present)} engine{'s' * (len(present) != 1)}, {slots} slots, {done} done   ")
    return line


def _bar(state: RunState, width: int) -> Text:
    bar = Text(no_wrap=True)
    if state.total:
        share = min(1.0, state.finished / state.total)
        label = f" {share:6.1%}"
        cells = max(10, width - len(label) - 1)
        bad = round(cells * min(1.0, state.failed / state.total)) or (1 if state.failed else 0)
        done = max(0, round(cells * share) - bad)
        bar.append("█" * done, style="green")
        bar.append("█" * bad, style="red")
        bar.append("░" * max(0, cells - done - bad), style="dim")
        bar.append(label)
    return bar


def _table(width: int) -> Table:
    return Table(box=None, padding=(0, 1), pad_edge=False, width=width, show_edge=False, header_style="bold")


def _engine_table(engines: list[EngineRow], cursor: int, room: int, width: int) -> Table:
    table = _table(width)
    table.add_column("", width=1)
    for name, justify in (("rank", "right"), ("context", "left"), ("node", "left"), ("slots", "right")):
        table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    for name in ("busy", "done", "failed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    first = max(0, min(cursor - room + 1, len(engines) - room)) if cursor >= 0 else 0
    for index, engine in enumerate(engines[first : first + room], first):
        marked = index == cursor
        table.add_row(
            ">" if marked else " ", str(engine.rank), engine.context, engine.node, str(engine.slots),
            str(engine.running), str(engine.finished), str(engine.failed), engine.state,
            style=("bold " if marked else "") + _COLOURS.get(engine.state, ""),
        )  # fmt: skip
    if not engines:
        table.add_row("", "", "none", "", "", "", "", "", "", style="yellow")
    return table


def _failure_table(state: RunState, room: int, width: int) -> Table:
    table = _table(width)
    table.add_column("failed", justify="right", no_wrap=True, style="red")
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("code", justify="right", no_wrap=True)
    table.add_column("node", no_wrap=True, overflow="ellipsis", max_width=16)
    table.add_column("command", no_wrap=True, overflow="ellipsis", ratio=1)
    for failure in state.failures[:room]:
        command = " ".join(failure.command.split())
        code = str(failure.return_code) if not failure.reason else f"{failure.return_code} {failure.reason}"[:24]
        table.add_row(str(failure.task_id), str(failure.line_number), code, failure.node, Text(command))
    return table


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
    """How long the rest will take at this rate; None where that is not known."""
    if state.ended_at is not None or state.total is None or rate <= 0:
        return None
    return max(0, state.total - state.finished) / rate
