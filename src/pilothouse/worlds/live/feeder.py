"""The task feeder: hands out tasks in order, and none of a later age before every barrier of an earlier one is passed.

In: TaskLines (lazily; None where a stream has nothing to give yet), and the news that tasks ended.
Out: tasks that may run now, barriers that were passed, and whether more will come. No IO, no clock.

The driver asks for as many tasks as it has room for, so a file of a million lines is never further read than its
slots need. As a barrier holds back all that comes after it, the tasks given out and not ended are exactly those that
the barrier waits for: one counter decides, and no task needs to be remembered here.

    FEEDING --barrier met--> AT_BARRIER --all ended--> FEEDING
                             AT_BARRIER --all ended, CHECK, one failed--> STOPPED
    FEEDING --no more lines--> EXHAUSTED
    any --stop()--> STOPPED
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from pilothouse.formats.task_file import LineKind, TaskLine


class Feeding(Enum):
    FEEDING = "feeding"
    AT_BARRIER = "at barrier"
    EXHAUSTED = "exhausted"
    STOPPED = "stopped"


Known = Callable[[TaskLine], bool | None]
"""What an earlier run knows of a task: None: it must run; else whether it failed."""


class Feeder:
    """Hands out the tasks of one source."""

    def __init__(self, lines: Iterator[TaskLine | None], known: Known | None = None) -> None:
        self.state = Feeding.FEEDING
        self.age = 0
        self.given_out = 0
        self.outstanding = 0
        self.skipped = 0
        """Tasks whose result was known."""
        self.check_failed = False
        self.engine_start: list[TaskLine] = []
        self.engine_stop: list[TaskLine] = []
        self.engine_lists_complete = False
        self._lines = lines
        self._known = known
        self._waiting: TaskLine | None = None
        self._barrier: TaskLine | None = None
        self._failed_since_barrier = False
        self._passed: list[TaskLine] = []
        self.look()

    @property
    def over(self) -> bool:
        """Nothing more will be given out, and all that was given out has ended."""
        return self.state in (Feeding.EXHAUSTED, Feeding.STOPPED) and self.outstanding == 0

    @property
    def has_next(self) -> bool:
        """A task waits to be asked for."""
        return self._waiting is not None

    def look(self) -> None:
        """Reads ahead by one line: per-engine lists and the end are known before anybody asks for a task."""
        while self._waiting is None and self.state is Feeding.FEEDING:
            try:
                line = next(self._lines)
            except StopIteration:
                self.state = Feeding.EXHAUSTED
                self.engine_lists_complete = True
                return
            if line is None:
                return
            if line.kind is LineKind.ENGINE_START or line.kind is LineKind.ENGINE_STOP:
                (self.engine_start if line.kind is LineKind.ENGINE_START else self.engine_stop).append(line)
                self.age = line.age + 1
                continue
            self.engine_lists_complete = True
            if line.kind is not LineKind.TASK:
                self._barrier = line
                self.state = Feeding.AT_BARRIER
                self._try_barrier()
            elif self._known is not None and (failed := self._known(line)) is not None:
                self._failed_since_barrier |= failed
                self.skipped += 1
            else:
                self._waiting = line

    def take(self, most: int) -> list[TaskLine]:
        """At most `most` tasks that may run now."""
        given: list[TaskLine] = []
        while len(given) < most:
            self.look()
            if self._waiting is None or self.state is Feeding.STOPPED:
                break
            given.append(self._waiting)
            self._waiting = None
            self.outstanding += 1
        self.given_out += len(given)
        self.look()
        return given

    def ended(self, *, failed: bool) -> None:
        """A task that was given out has its final result (after retries)."""
        assert self.outstanding > 0, "a task ended that was not given out"
        self.outstanding -= 1
        self._failed_since_barrier |= failed
        self._try_barrier()
        self.look()

    def engine_command_failed(self) -> None:
        """A per-engine command failed: BARRIER CHECK minds that as well, as in disBatch."""
        self._failed_since_barrier = True

    def passed(self) -> list[TaskLine]:
        """The barriers passed since the last call, in order."""
        passed, self._passed = self._passed, []
        return passed

    def stop(self) -> None:
        """Gives nothing more out (fail-fast, or the user's wish)."""
        self.state = Feeding.STOPPED
        self.engine_lists_complete = True

    def _try_barrier(self) -> None:
        if self.state is not Feeding.AT_BARRIER or self.outstanding or self._barrier is None:
            return
        barrier, self._barrier = self._barrier, None
        self._passed.append(barrier)
        self.age = barrier.age + 1
        if barrier.kind is LineKind.CHECK and self._failed_since_barrier:
            self.check_failed = True
            self.stop()
            return
        self._failed_since_barrier = False
        self.state = Feeding.FEEDING
