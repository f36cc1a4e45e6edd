"""Work on a dask.distributed cluster: yields results as they come, like launch/workers.py. Needs `pilothouse[sweep]`.

A task whose worker dies is run again on another by dask's scheduler, as often as its `allowed-failures` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from pilothouse.launch.workers import Died
from pilothouse.model.errors import InputError

Task = TypeVar("Task")
Result = TypeVar("Result")
CONNECT_S = 30
MOST_AT_ONCE = 5000
"""Tasks that the scheduler knows at a time."""


def on_dask(
    function: Callable[[Task], Result], tasks: Sequence[Task], address: str
) -> Iterator[tuple[int, Result | Died]]:
    """Pairs of number and `function(tasks[number])`, in the order in which they are done."""
    try:
        import distributed
    except ImportError:
        hint = "pip install 'pilothouse[sweep]'"
        raise InputError("--dask", "dask.distributed is not installed", hint=hint) from None
    dask: Any = distributed
    with _client(dask.Client, address) as client:
        if not client.scheduler_info(n_workers=-1)["workers"]:
            click.echo(f"waiting for workers at {client.scheduler.address}", err=True)
        rest = iter(range(len(tasks)))
        numbers: dict[Any, int] = {}

        def submit(number: int) -> Any:
            future = client.submit(function, tasks[number], pure=False)
            numbers[future] = number
            return future

        done = dask.as_completed([submit(number) for number, _ in zip(rest, range(MOST_AT_ONCE), strict=False)])
        for future in done:
            number = numbers.pop(future)
            try:
                yield number, future.result()
            except dask.KilledWorker:
                yield number, Died(None)
            future.release()
            following = next(rest, None)
            if following is not None:
                done.add(submit(following))


def _client(kind: Any, address: str) -> Any:
    """A client of the scheduler at an address, or of the one that a scheduler file names."""
    try:
        if Path(address).is_file():
            return kind(scheduler_file=address, timeout=CONNECT_S)
        return kind(address, timeout=CONNECT_S)
    except (OSError, ValueError, TypeError) as problem:
        expected = "tcp://HOST:PORT of a dask scheduler, or the file that it wrote"
        raise InputError("--dask", f"no scheduler at {address}: {problem}", expected=expected) from None
