"""Work in several processes of this machine: `in_processes(function, count, workers)` yields results as they come.

Workers are forked: the function and what it refers to need not be pickled, and inputs that were read before are shared.
Only results are. A worker that dies takes one piece of work with it; that piece is tried again in another, and after
MOST_TRIES its result is `Died`. Work that raises ends all, with the traceback of the worker.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, TypeVar

import msgspec

from pilothouse.launch.running import die_with_parent

Result = TypeVar("Result")
MOST_TRIES = 3
FEWEST_JOBS = 10_000
"""Below so many simulated jobs a worker costs more than it saves."""


class Died(msgspec.Struct, frozen=True):
    """No result: the worker ended, each time that this was tried."""

    exit_code: int | None

    def __str__(self) -> str:
        code = self.exit_code
        how = f"with signal {-code}" if code is not None and code < 0 else f"with code {code}"
        return f"its process ended {how}, {MOST_TRIES} times"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def useful_workers(asked: int | None, runs: int, jobs: int) -> int:
    """Workers for so many simulations of so many jobs each: as asked for, else all cores, or one for what is done at once."""
    return asked or (1 if runs * jobs < FEWEST_JOBS else min(cores(), runs))


def in_processes(function: Callable[[int], Result], count: int, workers: int) -> Iterator[tuple[int, Result | Died]]:
    """Pairs of number and `function(number)` for 0 to count - 1, in the order in which they are done. With one worker the
    work is done in this process."""
    workers = min(workers, count)
    if workers <= 1:
        for number in range(count):
            yield number, function(number)
        return
    team: list[_Worker] = []
    waiting = list(range(count - 1, -1, -1))
    tries = [0] * count
    try:
        for _ in range(workers):
            team.append(_Worker(function, [one.pipe for one in team]))
        busy = 0
        for worker in team:
            worker.take(waiting.pop())
            busy += 1
        while busy:
            for pipe in wait([worker.pipe for worker in team]):
                worker = next(worker for worker in team if worker.pipe is pipe)
                number = worker.number
                answer = worker.answer()
                busy -= 1
                if answer is None:
                    tries[number] += 1
                    exit_code = worker.end()
                    team.remove(worker)
                    worker = _Worker(function, [one.pipe for one in team])
                    team.append(worker)
                    if tries[number] < MOST_TRIES:
                        waiting.append(number)
                    else:
                        yield number, Died(exit_code)
                else:
                    raised, value = answer
                    if raised:
                        raise RuntimeError(f"a worker failed:\n{value}")
                    yield number, value
                if waiting:
                    worker.take(waiting.pop())
                    busy += 1
                else:
                    team.remove(worker)
                    worker.end()
    finally:
        for worker in team:
            worker.kill()


class _Worker:
    """One process, and our end of the pipe to it."""

    def __init__(self, function: Callable[[int], Any], others: list[Connection]) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.number = -1
        sys.stdout.flush()  # otherwise the worker would print what is in the buffer as well
        sys.stderr.flush()
        with warnings.catch_warnings():
            # Python warns of forks in processes with threads. The worker only simulates; it touches none of their locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            args = (theirs, [self.pipe, *others], function, os.getpid())
            self.process: ForkProcess = context.Process(target=_serve, args=args)
            self.process.start()
        theirs.close()

    def take(self, number: int) -> None:
        self.number = number
        with suppress(OSError):  # it has died: answer() says so
            self.pipe.send(number)

    def answer(self) -> tuple[bool, Any] | None:
        """Whether it raised, and the result; None: the process has died."""
        try:
            found: tuple[bool, Any] = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return found

    def end(self) -> int | None:
        self.pipe.close()
        self.process.join()
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()
        self.end()


def _serve(pipe: Connection, others: list[Connection], function: Callable[[int], Any], parent: int) -> None:
    """What a worker does: takes numbers until its pipe is closed. It ends with the parent, whose locks it has inherited."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    for other in others:
        other.close()
    while True:
        try:
            number = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = False, function(number)
        except Exception:
            answer = True, traceback.format_exc()
        sys.stdout.flush()
        try:
            pipe.send(answer)
        except OSError:
            return
