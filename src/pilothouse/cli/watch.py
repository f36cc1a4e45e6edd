"""`pilothouse watch`: a run in the terminal, while it goes on or afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pilothouse.model.errors import InputError

if TYPE_CHECKING:
    from pilothouse.views.run_state import RunState
    from pilothouse.views.watch import Screen

_ESCAPES = {b"\x1b[A": "up", b"\x1bOA": "up", b"\x1b[B": "down", b"\x1bOB": "down"}


@click.command("watch")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--once", is_flag=True, help="Show the state now and end; also where the output is no terminal.")
@click.option("--every", default=1.0, show_default=True, metavar="SECONDS", help="How often to look.")
def command(folder: Path, once: bool, every: float) -> None:
    """Watch a running or finished run: tasks, engines, contexts, rate, time left, failures.

    Keys: up and down (or k and j) choose an engine, e asks it to stop, c asks its context to stop, q quits. Whoever is
    asked to stop first finishes the tasks that it has.

    \b
    Examples:
      pilothouse watch tasks.txt.run1
      pilothouse watch --once tasks.txt.run1
    """
    try:
        from rich.console import Console
    except ImportError as error:
        raise InputError("watch", "the terminal view needs the extra pilothouse[ui]") from error
    from pilothouse.views.run_reader import RunReader
    from pilothouse.views.run_state import RateMeter
    from pilothouse.views.watch import Screen

    console = Console()
    reader = RunReader(_run_folder(folder))
    meter, screen = RateMeter(), Screen()
    try:
        if once or not console.is_terminal:
            state = reader.read()
            console.print(screen.draw(state, meter.per_second(state), console.width, 10_000, interactive=False))
            return
        _interact(console, reader, meter, screen, max(0.1, every))
    finally:
        reader.close()


def _run_folder(folder: Path) -> Path:
    """The folder itself, or the one that a disBatch run keeps beside its status file."""
    if folder.is_dir():
        return folder
    beside = Path(str(folder).removesuffix("_status.txt") + "_run")
    return beside if beside.is_dir() else folder


def _interact(console: object, reader: object, meter: object, screen: Screen, every_s: float) -> None:
    """The screen and the keys, until q."""
    import os
    import select
    import sys
    import termios
    import time
    import tty

    from rich.console import Console
    from rich.live import Live

    from pilothouse.views.run_reader import RunReader
    from pilothouse.views.run_state import RateMeter

    assert isinstance(console, Console) and isinstance(reader, RunReader) and isinstance(meter, RateMeter)
    keys = sys.stdin.fileno() if sys.stdin.isatty() else None
    before = termios.tcgetattr(keys) if keys is not None else None
    try:
        if keys is not None:
            tty.setcbreak(keys)
        with Live(console=console, screen=True, auto_refresh=False) as live:
            state = reader.read()
            look_at = 0.0
            while True:
                if time.monotonic() >= look_at:
                    state = reader.read()
                    meter.note(state.now, state.finished)
                    look_at = time.monotonic() + every_s
                width, height = console.size
                live.update(screen.draw(state, meter.per_second(state), width, height), refresh=True)
                wait_s = max(0.0, look_at - time.monotonic())
                if keys is None:
                    time.sleep(wait_s)
                elif select.select([keys], [], [], wait_s)[0] and not _press(os.read(keys, 16), screen, state, reader):
                    return
    except KeyboardInterrupt:
        return
    finally:
        if keys is not None and before is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _press(data: bytes, screen: Screen, state: RunState, reader: object) -> bool:
    """What a key does; False: quit."""
    from pilothouse.views.run_reader import RunReader
    from pilothouse.worlds.live.requests import ask_to_stop

    assert isinstance(reader, RunReader)
    key = _ESCAPES.get(data, data.decode("ascii", "replace"))
    chosen = screen.chosen(state)
    if screen.question:
        if key in ("y", "Y") and chosen is not None:
            if screen.question.startswith("Stop context"):
                ask_to_stop(reader.folder, "context", chosen.context)
                screen.message = f"asked context {chosen.context} to stop"
            else:
                ask_to_stop(reader.folder, "engine", chosen.engine)
                screen.message = f"asked engine {chosen.rank} to stop"
        screen.question = ""
        return True
    screen.message = ""
    if key == "q":
        return False
    if key in ("up", "k"):
        screen.move(-1, state)
    elif key in ("down", "j"):
        screen.move(1, state)
    elif key in ("e", "E") and chosen is not None and chosen.present:
        screen.question = f"Stop engine {chosen.rank} on {chosen.node} when its tasks are done? (y/n)"
    elif key in ("c", "C") and chosen is not None and chosen.present:
        screen.question = f"Stop context {chosen.context} when its tasks are done? (y/n)"
    return True
