"""The screen of `pilothouse watch`: a run's state drawn for a terminal of any size from 80 x 24 on.

In: a RunState, the size, what the viewer has chosen (an engine, a section, a search). Out: a rich renderable that fills the
screen and never scrolls; what does not fit is cut, least important first. `tab` gives one section all the room.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pilothouse.journal.run_state import EngineRow, Failure, RunningTask, RunState
from pilothouse.views.clock import clock
from pilothouse.views.keyboard import Prompt
from pilothouse.views.rate import outcome, time_left_s
from pilothouse.views.time_left import Left

KEYS = "up/down choose  e stop engine  c stop context  tab sections  / search  q quit"
SECTIONS = ("", "engines", "running", "failures")
"""Which section has all the room; "": they share it."""
_COLOURS = {"running": "green", "leaving": "yellow", "gone": "dim", "lost": "red"}


class Screen:
    """What the viewer has chosen; draws the state accordingly."""

    def __init__(self) -> None:
        self.cursor = 0
        self.message = ""
        self.question = ""
        self.section = ""
        self.search = ""
        self.prompt: Prompt | None = None
        self.left: Left | None = None
        """As a forecast says; None: the rate tells."""

    def move(self, step: int, state: RunState) -> None:
        count = len(self.engines(state))
        self.cursor = min(max(0, self.cursor + step), max(0, count - 1))

    def next_section(self) -> None:
        self.section = SECTIONS[(SECTIONS.index(self.section) + 1) % len(SECTIONS)]

    def chosen(self, state: RunState) -> EngineRow | None:
        engines = self.engines(state)
        return engines[min(self.cursor, len(engines) - 1)] if engines else None

    def engines(self, state: RunState) -> list[EngineRow]:
        """Those that are there first; of the others only the lost ones, unless the run is over."""
        present = [engine for engine in state.engines if engine.present]
        others = [e for e in state.engines if not e.present and (e.state == "lost" or state.ended_at is not None)]
        return [e for e in present + others if self._finds(f"{e.rank}", e.node, e.context, e.state)]

    def running(self, state: RunState) -> list[RunningTask]:
        return [task for task in state.running_tasks if self._finds(f"{task.task_id}", task.node, task.command)]

    def failures(self, state: RunState) -> list[Failure]:
        found = state.failures
        return [bad for bad in found if self._finds(f"{bad.task_id}", bad.node, bad.command, bad.reason, bad.last_words)]

    def _finds(self, *texts: str) -> bool:
        wanted = self.search.lower()
        return not wanted or any(wanted in text.lower() for text in texts)

    def draw(self, state: RunState, rate: float, width: int, height: int, *, interactive: bool = True) -> Group:
        engines, running, failures = self.engines(state), self.running(state), self.failures(state)
        head = _head(state, rate, width, self.left)
        room = max(6, height - len(head) - (1 if interactive else 0) - 1)
        needs = {"engines": max(1, len(engines)) + 1, "running": len(running), "failures": 2 * len(failures)}
        needs |= {name: need + 1 for name, need in needs.items() if need and name != "engines"}
        if self.section:
            needs = {name: need if name == self.section else 0 for name, need in needs.items()}
        rooms = share(room, needs)
        tables: list[Table] = []
        if rooms["engines"] > 1:
            cursor = min(self.cursor, len(engines) - 1) if interactive else -1
            tables.append(_engine_table(engines, cursor, rooms["engines"] - 1, width))
        if rooms["running"] > 1:
            tables.append(_running_table(running, state.now, rooms["running"] - 1, width))
        if rooms["failures"] > 1:
            tables.append(_failure_table(failures, rooms["failures"] - 1, width))
        parts: list[RenderableType] = [*head, Text(), *tables]
        if interactive:
            parts += [Text()] * max(0, room - sum(table.row_count + 1 for table in tables))
            parts.append(Text(self._foot()[:width], style="reverse" if self.question else "dim", no_wrap=True))
        return Group(*parts)

    def _foot(self) -> str:
        if self.prompt is not None:
            return f"{self.prompt.label}{self.prompt.text}_"
        found = f"only what has {self.search!r} (escape: all)   " if self.search else ""
        return self.question or self.message or found + KEYS


def share(room: int, needs: dict[str, int]) -> dict[str, int]:
    """How many lines each section gets: what it needs, or an equal part; what one leaves over goes to the others."""
    rooms = dict.fromkeys(needs, 0)
    left = room
    open_ = {name: need for name, need in needs.items() if need}
    while open_:
        part = left // len(open_)
        small = {name: need for name, need in open_.items() if need <= part}
        if not small:
            for name in open_:
                rooms[name] = part
            return rooms
        for name, need in small.items():
            rooms[name] = need
            left -= need
            del open_[name]
    return rooms


def _head(state: RunState, rate: float, width: int, forecast: Left | None) -> list[Text]:
    left_s = time_left_s(state, rate)
    how = outcome(state)
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(state.name, style="bold")
    title.append(f"  {how}", style="green" if how == "running" else "yellow")
    title.append(f"  {clock(state.elapsed_s)}")
    if forecast is not None:
        between = f"{clock(forecast.low)} to {clock(forecast.high)}"
        title.append(f"  about {clock(forecast.seconds)} left ({between})", style="cyan")
    elif left_s is not None:
        title.append(f"  about {clock(left_s)} left", style="cyan")
    counts = Text(no_wrap=True, overflow="ellipsis")
    of_total = f"/{state.total}" if state.total is not None else ""
    counts.append(f"tasks {state.finished}{of_total}", style="bold")
    counts.append(f"  running {state.running}  ")
    if state.waiting is not None:
        counts.append(f"waiting {state.waiting}  ")
    counts.append(f"failed {state.failed}", style="red" if state.failed else "")
    if state.skipped:
        counts.append(f"  skipped {state.skipped}")
    if state.barriers:
        counts.append(f"  barriers {state.barriers}")
    counts.append(f"  {rate:.4g}/s  slots {state.slots}")
    head = [title, counts, _contexts(state), _bar(state, width)]
    if state.waits_for:
        waits = f"task {state.next_task} waits for {state.waits_for}"
        head.append(Text(waits, style="dim", no_wrap=True, overflow="ellipsis"))
    return head


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
        share_done = min(1.0, state.finished / state.total)
        label = f" {share_done:6.1%}"
        cells = max(10, width - len(label) - 1)
        bad = round(cells * min(1.0, state.failed / state.total)) or (1 if state.failed else 0)
        done = max(0, round(cells * share_done) - bad)
        bar.append("█" * done, style="green")
        bar.append("█" * bad, style="red")
        bar.append("░" * max(0, cells - done - bad), style="dim")
        bar.append(label)
    return bar


def _table(width: int) -> Table:
    return Table(box=None, padding=(0, 1), pad_edge=False, width=width, show_edge=False, header_style="bold")


def _engine_table(engines: list[EngineRow], cursor: int, room: int, width: int) -> Table:
    table = _table(width)
    table.add_column("", min_width=1)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("context", no_wrap=True, overflow="ellipsis", max_width=10)
    table.add_column("node", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("slots in use", no_wrap=True)
    for name in ("done", "failed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    first = max(0, min(cursor - room + 1, len(engines) - room)) if cursor >= 0 else 0
    for index, engine in enumerate(engines[first : first + room], first):
        marked = index == cursor
        table.add_row(
            ">" if marked else " ", str(engine.rank), engine.context, engine.node, _load(engine), str(engine.finished),
            str(engine.failed), engine.state,
            style=("bold " if marked else "") + _COLOURS.get(engine.state, ""),
        )  # fmt: skip
    if not engines:
        table.add_row("", "", "none", "", "", "", "", "", style="yellow")
    return table


def _load(engine: EngineRow) -> str:
    """Busy slots, as a bar and a number."""
    share_busy = min(1.0, engine.running / engine.slots) if engine.slots else 0.0
    filled = round(4 * share_busy)
    return "█" * filled + "░" * (4 - filled) + f" {engine.running}/{engine.slots}"


def _running_table(tasks: list[RunningTask], now: float, room: int, width: int) -> Table:
    """The oldest first: what hangs is on top."""
    table = _table(width)
    table.add_column("running", justify="right", no_wrap=True, style="cyan")
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("for", justify="right", no_wrap=True)
    table.add_column("node", no_wrap=True, overflow="ellipsis", max_width=16)
    table.add_column("slots", no_wrap=True, overflow="ellipsis", max_width=9)
    table.add_column("command", no_wrap=True, overflow="ellipsis", ratio=1)
    for task in tasks[:room]:
        command = Text(" ".join(task.command.split()))
        age = clock(max(0.0, now - task.since))
        table.add_row(str(task.task_id), str(task.line_number), age, task.node, task.slots, command)
    return table


def _failure_table(failures: list[Failure], room: int, width: int) -> Table:
    """Each with the last line that it wrote to standard error, if it wrote any."""
    table = _table(width)
    table.add_column("failed", justify="right", no_wrap=True, style="red")
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("code", justify="right", no_wrap=True)
    table.add_column("node", no_wrap=True, overflow="ellipsis", max_width=16)
    table.add_column("command, and its last words", no_wrap=True, overflow="ellipsis", ratio=1)
    for failure in failures:
        lines = 2 if failure.last_words else 1
        if room < lines:
            break
        room -= lines
        command = " ".join(failure.command.split())
        code = str(failure.return_code) if not failure.reason else f"{failure.return_code} {failure.reason}"[:24]
        table.add_row(str(failure.task_id), str(failure.line_number), code, failure.node, Text(command))
        if failure.last_words:
            table.add_row("", "", "", "", Text(f"  {failure.last_words}", style="dim"))
    return table
