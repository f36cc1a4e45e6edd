"""The task feeder: hands out tasks in order, and none of a later age before every barrier of an earlier one is passed.

In: TaskLines (lazily; None where a stream has nothing to give yet), and the news that tasks ended. A task that waits for
others by name (`after`) is held until they have succeeded, while those behind it go on.
Out: tasks that may run now, barriers that were passed, and whether more will come. No IO, no clock.

The driver asks for as many tasks as it has room for, so a file of a million lines is never further read than its slots
need; `Pace` says how many tasks are worth one decision. As a barrier holds back all that comes after it, the tasks
given out and not ended are exactly those that the barrier waits for: one counter decides, and no task needs to be
remembered here.

    FEEDING --barrier met--> AT_BARRIER --all ended, none held--> FEEDING
                             AT_BARRIER --all ended, CHECK, one failed--> STOPPED
    FEEDING --no more lines--> EXHAUSTED
    any --stop()--> STOPPED
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from math import inf

from pilothouse.core.dependencies import Dependencies, Verdict
from pilothouse.formats.task_file import LineKind, TaskLine
from pilothouse.model.lifecycle import JobState

BUNDLE_S = 0.4
"""How much work a bundle should hold."""
SHORT_S = 0.05
"""Only tasks that take less than this are bundled: for longer ones a decision each costs nothing worth saving."""
LAST_S = 0.02
"""Towards the end bundles shrink to this, so that all slots end together."""
BUNDLE_BYTES = 2**20
MOST_BUNDLED = 1000
_SMOOTHING = 0.05


class Feeding(Enum):
    FEEDING = "feeding"
    AT_BARRIER = "at barrier"
    EXHAUSTED = "exhausted"
    STOPPED = "stopped"


class FeedingStimulus(Enum):
    BARRIER_MET = "the next line is a barrier"
    BARRIER_PASSED = "all tasks before the barrier have ended"
    NO_MORE_LINES = "the source has ended"
    STOP = "nothing more is to be given out"


_S = Feeding
_ROWS: dict[Feeding, tuple[Feeding, ...]] = {
    #                BARRIER_MET    BARRIER_PASSED  NO_MORE_LINES  STOP
    _S.FEEDING: (_S.AT_BARRIER, _S.FEEDING, _S.EXHAUSTED, _S.STOPPED),
    _S.AT_BARRIER: (_S.AT_BARRIER, _S.FEEDING, _S.AT_BARRIER, _S.STOPPED),
    _S.EXHAUSTED: (_S.EXHAUSTED, _S.EXHAUSTED, _S.EXHAUSTED, _S.STOPPED),
    _S.STOPPED: (_S.STOPPED, _S.STOPPED, _S.STOPPED, _S.STOPPED),
}
TRANSITIONS: dict[tuple[Feeding, FeedingStimulus], Feeding] = {
    (state, stimulus): target
    for state, row in _ROWS.items()
    for stimulus, target in zip(FeedingStimulus, row, strict=True)
}

MOST_HELD = 100_000
"""Tasks that wait for others; more are left unread."""

Known = Callable[[TaskLine], bool | None]
"""What an earlier run knows of a task: None: it must run; else whether it failed."""


class DoneIds:
    """Which tasks have their final result: all below a mark but a few, and a few above it. Failed ones are remembered."""

    def __init__(self) -> None:
        self.count = 0
        self.failed: dict[int, tuple[JobState, int]] = {}
        """Tasks that did not succeed: how and in which attempt they ended."""
        self._mark = 0
        self._above: set[int] = set()
        self._reopened: set[int] = set()

    def add(self, task_id: int, state: JobState, attempt: int) -> None:
        self.count += 1
        if state is not JobState.SUCCEEDED:
            self.failed[task_id] = (state, attempt)
        if task_id in self._reopened:
            self._reopened.remove(task_id)
            return
        if task_id != self._mark:
            self._above.add(task_id)
            return
        self._mark += 1
        while self._mark in self._above:
            self._above.remove(self._mark)
            self._mark += 1

    def reopen(self, task_id: int) -> tuple[JobState, int]:
        """A task that did not succeed has no final result any more. Returns how and in which attempt it had ended."""
        self.count -= 1
        if task_id in self._above:
            self._above.remove(task_id)
        else:
            self._reopened.add(task_id)
        return self.failed.pop(task_id)

    def known(self, line: TaskLine) -> bool | None:
        """For a Feeder: None: the task must run; else whether it failed."""
        return line.task_id in self.failed if line.task_id in self else None

    def __contains__(self, task_id: object) -> bool:
        return isinstance(task_id, int) and (
            (0 <= task_id < self._mark and task_id not in self._reopened) or task_id in self._above
        )


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
        self._failed_since_barrier: set[int] = set()
        """Tasks that did not succeed; -1 is a per-engine command."""
        self._passed: list[TaskLine] = []
        self._commands: set[int] = set()
        """Per-engine commands with a task id that have not ended on any engine: a barrier waits for them."""
        self._dependencies: Dependencies[TaskLine] = Dependencies()
        self._free: deque[TaskLine] = deque()
        """Tasks that were held, and need not wait any longer."""
        self._omitted: list[TaskLine] = []
        self._named: dict[int, str] = {}
        """Tasks that were read and have not ended, where they have a name."""
        self._open: dict[str, int] = {}
        """Name -> how many of them there are."""
        self._bad_names: dict[str, set[int]] = {}
        """Names of tasks that did not succeed, and which these are."""
        self.look()

    @property
    def over(self) -> bool:
        """Nothing more will be given out, and all that was given out has ended."""
        return self.nothing_more and self.outstanding == 0

    @property
    def nothing_more(self) -> bool:
        """Nothing more will be given out."""
        return self.state is Feeding.STOPPED or (self.state is Feeding.EXHAUSTED and not self._holds)

    @property
    def _holds(self) -> bool:
        """Tasks were read that have not been given out, besides the next one."""
        return bool(self._dependencies.held or self._free)

    @property
    def has_next(self) -> bool:
        """A task waits to be asked for."""
        return self._waiting is not None

    def look(self) -> None:
        """Reads ahead by one line: per-engine lists and the end are known before anybody asks for a task."""
        if self._waiting is None and self._free and self.state is not Feeding.STOPPED:
            self._waiting = self._free.popleft()
        while self._waiting is None and self.state is Feeding.FEEDING and len(self._dependencies.held) < MOST_HELD:
            try:
                line = next(self._lines)
            except StopIteration:
                self._step(FeedingStimulus.NO_MORE_LINES)
                self.engine_lists_complete = True
                return
            if line is None:
                return
            if line.kind in (LineKind.ENGINE_START, LineKind.ENGINE_STOP, LineKind.PER_ENGINE):
                (self.engine_stop if line.kind is LineKind.ENGINE_STOP else self.engine_start).append(line)
                if line.kind is LineKind.PER_ENGINE:
                    self._commands.add(line.task_id)
                self.age = line.age + 1
                continue
            self.engine_lists_complete = True
            if line.kind is not LineKind.TASK:
                self._barrier = line
                self._step(FeedingStimulus.BARRIER_MET)
                self._try_barrier()
            elif self._known is not None and (failed := self._known(line)) is not None:
                self.skipped += 1
                if failed:
                    self._failed(line.task_id, "" if line.request is None else line.request.name)
            elif line.request is None or self._is_free(line):
                self._waiting = line

    def take(self, most: int) -> list[TaskLine]:
        """At most `most` tasks that may run now, all with the same request."""
        given: list[TaskLine] = []
        while len(given) < most:
            self.look()
            line = self._waiting
            if line is None or self.state is Feeding.STOPPED or (given and line.request is not given[0].request):
                break
            given.append(line)
            self._waiting = None
            self.outstanding += 1
            if line.request is not None and not line.request.can_be_bundled:
                break
        self.given_out += len(given)
        self.look()
        return given

    def ended(self, *, failed: bool, task_id: int = -1) -> None:
        """A task that was given out has its final result (after retries)."""
        assert self.outstanding > 0, "a task ended that was not given out"
        self.outstanding -= 1
        if failed:
            self._failed(task_id)
        if task_id in self._named:
            self._name_ended(task_id, failed=failed)
        self._try_barrier()
        self.look()

    def reopened(self, task_id: int, name: str) -> None:
        """A task that did not succeed is run once more: barriers that have not been passed wait for it."""
        self.outstanding += 1
        self._failed_since_barrier.discard(task_id)
        if name:
            self._named[task_id] = name
            self._open[name] = self._open.get(name, 0) + 1
            bad = self._bad_names.get(name, set())
            bad.discard(task_id)
            if not bad:
                self._bad_names.pop(name, None)

    def _failed(self, task_id: int, name: str = "") -> None:
        self._failed_since_barrier.add(task_id)
        if name:
            self._bad_names.setdefault(name, set()).add(task_id)

    def engine_command_ended(self, line: TaskLine, *, failed: bool) -> None:
        """A per-engine command ended on one engine. BARRIER CHECK minds its failure as well, as in disBatch."""
        if failed:
            self._failed(-1)
        if line.kind is LineKind.PER_ENGINE:
            self._commands.discard(line.task_id)
            self._try_barrier()
            self.look()

    def passed(self) -> list[TaskLine]:
        """The barriers passed since the last call, in order."""
        passed, self._passed = self._passed, []
        return passed

    def omitted(self) -> list[TaskLine]:
        """The tasks that will never run, because one that they wait for did not succeed: those since the last call."""
        omitted, self._omitted = self._omitted, []
        return omitted

    def _is_free(self, line: TaskLine) -> bool:
        """Whether a task with a request may run now. Counts its name, and holds or omits the others."""
        request = line.request
        assert request is not None
        if request.name:
            self._named[line.task_id] = request.name
            self._open[request.name] = self._open.get(request.name, 0) + 1
        verdict = self._dependencies.enter(line.task_id, line, request.after, self._outcome)
        if verdict is Verdict.NEVER:
            self._omit([line])
        return verdict is Verdict.READY

    def _outcome(self, name: str) -> bool | None:
        """Whether all tasks of this name succeeded; None: some have not ended."""
        if name in self._bad_names:
            return False
        return None if self._open.get(name) else True

    def _name_ended(self, task_id: int, *, failed: bool) -> None:
        name = self._named.pop(task_id)
        self._open[name] -= 1
        if failed:
            self._failed(task_id, name)
        if failed or not self._open[name]:
            free, hopeless = self._dependencies.ended(name, succeeded=not failed)
            self._free.extend(free)
            self._omit(hopeless)

    def _omit(self, lines: list[TaskLine]) -> None:
        for line in lines:
            self._omitted.append(line)
            self._failed(line.task_id)
            if line.task_id in self._named:
                self._name_ended(line.task_id, failed=True)

    def stop(self) -> None:
        """Gives nothing more out (fail-fast, or the user's wish)."""
        self._step(FeedingStimulus.STOP)
        self.engine_lists_complete = True

    def _try_barrier(self) -> None:
        if self.state is not Feeding.AT_BARRIER or self.outstanding or self._barrier is None or self._holds or self._waiting:
            return
        if self._commands:
            return
        barrier, self._barrier = self._barrier, None
        self._passed.append(barrier)
        self.age = barrier.age + 1
        if barrier.kind is LineKind.CHECK and self._failed_since_barrier:
            self.check_failed = True
            self.stop()
            return
        self._failed_since_barrier.clear()
        self._step(FeedingStimulus.BARRIER_PASSED)

    def _step(self, stimulus: FeedingStimulus) -> None:
        """The only way to another state."""
        self.state = TRANSITIONS[self.state, stimulus]


class Pace:
    """How long tasks take, and so how many of them make a bundle.

    A bundle is several short tasks that run one after another on the units of one decision. Bundles keep the rate up where
    tasks take milliseconds; they never oversubscribe a unit, so every decider may be given them. Their size follows what
    tasks really took and shrinks to one towards the end of the file.
    """

    def __init__(self, most: int) -> None:
        self.mean_s = inf
        self.longest_bytes = 1
        """The longest command so far: bundles must fit into messages whatever they hold."""
        self._most = min(most, MOST_BUNDLED)

    def note(self, seconds: float) -> None:
        seconds = max(seconds, 1e-5)
        self.mean_s = seconds if self.mean_s == inf else self.mean_s + _SMOOTHING * (seconds - self.mean_s)

    def bundle(self, remaining: int | None, units: int) -> int:
        """How many tasks the next bundle should hold, with so many left and so many units."""
        if self._most <= 1 or self.mean_s > SHORT_S:
            return 1
        size = min(self._most, int(BUNDLE_S / self.mean_s), BUNDLE_BYTES // self.longest_bytes)
        if remaining is not None:
            size = min(size, max(remaining // (2 * max(1, units)), int(LAST_S / self.mean_s)))
        return max(1, size)
