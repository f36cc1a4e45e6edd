"""Behind `pilothouse watch`: draws a run on the terminal again and again, and does what the keys ask for."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from pathlib import Path

from rich.console import Console
from rich.live import Live

from pilothouse.journal.run_reader import RunReader
from pilothouse.journal.run_state import RunState
from pilothouse.views.keyboard import Prompt, keyboard
from pilothouse.views.rate import RateMeter
from pilothouse.views.time_left import TimeLeft
from pilothouse.views.watch import Screen
from pilothouse.worlds.live.requests import StopContext, StopEngine, ask


def watch(folder: Path, *, once: bool, every_s: float) -> None:
    """Until q; where the output is no terminal, or with `once`, the state now."""
    console, meter, screen = Console(), RateMeter(), Screen()
    with closing(RunReader(folder)) as reader:
        if once or not console.is_terminal:
            state = reader.read()
            console.print(screen.draw(state, meter.per_second(state), console.width, 10_000, interactive=False))
            return
        with (
            suppress(KeyboardInterrupt), keyboard() as keys, closing(TimeLeft(folder)) as left,
            Live(console=console, screen=True, auto_refresh=False) as live,
        ):  # fmt: skip
            look_at = 0.0
            while True:
                if time.monotonic() >= look_at:
                    state = reader.read()
                    meter.note(state.now, state.finished)
                    screen.left = left.now(state.unfinished) if state.ended_at is None else None
                    look_at = time.monotonic() + max(0.1, every_s)
                width, height = console.size
                live.update(screen.draw(state, meter.per_second(state), width, height), refresh=True)
                wait_s = max(0.0, look_at - time.monotonic())
                if keys is None:
                    time.sleep(wait_s)
                elif (key := keys.key(wait_s)) is not None and not press(key, screen, state, reader.folder):
                    return


def press(key: str, screen: Screen, state: RunState, folder: Path) -> bool:
    """Does what a key asks for; False: quit."""
    if screen.prompt is not None:
        entered = screen.prompt.press(key)
        screen.search = screen.prompt.text if entered is not False else ""
        if entered is not None:
            screen.prompt = None
        screen.cursor = 0
        return True
    chosen = screen.chosen(state)
    if screen.question:
        if key in ("y", "Y") and chosen is not None:
            if screen.question.startswith("Stop context"):
                ask(folder, StopContext(chosen.context))
                screen.message = f"asked context {chosen.context} to stop"
            else:
                ask(folder, StopEngine(chosen.engine))
                screen.message = f"asked engine {chosen.rank} to stop"
        screen.question = ""
        return True
    screen.message = ""
    if key in ("up", "k"):
        screen.move(-1, state)
    elif key in ("down", "j"):
        screen.move(1, state)
    elif key == "tab":
        screen.next_section()
    elif key == "/":
        screen.prompt = Prompt("search: ")
    elif key == "escape":
        screen.search = screen.section = ""
    elif key in ("e", "E") and chosen is not None and chosen.present:
        screen.question = f"Stop engine {chosen.rank} on {chosen.node} when its tasks are done? (y/n)"
    elif key in ("c", "C") and chosen is not None and chosen.present:
        screen.question = f"Stop context {chosen.context} when its tasks are done? (y/n)"
    return key != "q"
