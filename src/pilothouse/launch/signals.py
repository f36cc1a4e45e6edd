"""Signal handlers that end a run in an orderly way."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def on_signals(act: Callable[[int], None], *numbers: int) -> Iterator[None]:
    """While the body runs, the first signal of each number (SIGINT and SIGTERM unless named) calls `act(number)`.

    The second has its default effect: an orderly end may take too long. `act` may raise. Handlers are put back at the end.
    """

    def handle(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        act(number)

    before = {number: signal.signal(number, handle) for number in numbers or INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(number: int) -> None:
    """For `on_signals`: ends the program as the signal would, but through every `finally`."""
    raise SystemExit(128 + number)
