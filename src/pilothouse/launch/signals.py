"""Signal handlers that end a run in an orderly way."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A closed terminal (SIGHUP) ends a run in order, so that it can be resumed. Under nohup, which ignores it, the run goes on."""


@contextmanager
def on_signals(act: Callable[[int], None], *numbers: int, again: bool = False) -> Iterator[None]:
    """While the body runs, the first signal of each number (INTERRUPTS unless named) calls `act(number)`.

    The second has its default effect, as an orderly end may take too long; `again`: it calls `act` too. `act` may raise.
    Handlers are put back at the end.
    """

    def handle(number: int, _frame: object) -> None:
        if not again:
            signal.signal(number, signal.SIG_DFL)
        act(number)

    heeded = [number for number in numbers or INTERRUPTS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(number: int) -> None:
    """For `on_signals`: ends the program as the signal would, but through every `finally`."""
    raise SystemExit(128 + number)
