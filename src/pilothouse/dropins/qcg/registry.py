"""The registry: every job that was submitted, its iterations, and what happened to each of them.

A job is an Entry with a Life (state, history, messages, where it ran). An iterated job of 0.14.2 also has Parts: one
Life per iteration that has begun or ended, and a state that all others share, so that a long loop costs nothing before
it runs. States are those of model/lifecycle.py, and change only through its table.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pilothouse.formats.qcg_description import Description, Dialect, Iteration
from pilothouse.formats.qcg_requests import Planned
from pilothouse.model.lifecycle import FINAL, QCG, JobState, Stimulus, step

UNSUCCESSFUL = FINAL - {JobState.SUCCEEDED}


class Runtime(msgspec.Struct):
    """Where and how a job ran; what is not known yet is None."""

    allocation: str
    """0.14.2's words: `n0[0:1],n1[0]`."""
    counts: str
    """The specification's words: `e0003:2`."""
    wd: str | None = None
    rtime: str | None = None
    exit_code: int | None = None
    pid: int | None = None
    program: str | None = None

    def shown(self, dialect: Dialect) -> dict[str, str]:
        specification = dialect is Dialect.SPECIFICATION
        fields: dict[str, object | None] = {
            "allocation": self.counts if specification else self.allocation,
            "wd": self.wd,
            "rtime": self.rtime,
        }
        if not specification and self.exit_code is not None:
            # 0.14.2 tells which process it was when that has ended.
            fields |= {"exit_code": self.exit_code, "pid": self.pid, "pname": self.program}
        return {key: str(value) for key, value in fields.items() if value is not None}


class Life:
    """What happened to one job or iteration."""

    __slots__ = ("history", "messages", "runtime", "state")

    def __init__(self, state: JobState = JobState.KNOWN) -> None:
        self.state = state
        self.history: list[tuple[JobState, float]] = []
        self.messages: str | None = None
        self.runtime: Runtime | None = None

    def step(self, stimulus: Stimulus, now: float) -> bool:
        """Changes the state; True if that is a change which clients can see."""
        before = self.state
        if stimulus is Stimulus.SUCCEEDED and before is JobState.WAITING:
            # An iterated job is QUEUED until its last iteration has ended: its own start is never told.
            before = step(before, Stimulus.ALLOCATED)
        self.state = step(before, stimulus)
        if QCG[self.state] == QCG[before] and before is not JobState.KNOWN:
            return False
        self.history.append((self.state, now))
        return True

    def unstart(self) -> None:
        """Back to waiting, as if it had not been its turn."""
        while self.history and self.history[-1][0] in (JobState.STARTING, JobState.RUNNING):
            self.history.pop()
        self.state = step(self.state, Stimulus.REQUEUED)
        self.runtime = None

    def say(self, message: str) -> None:
        self.messages = message if self.messages is None else f"{self.messages}\n{message}"

    @property
    def final(self) -> bool:
        return self.state in FINAL


class Parts:
    """The iterations of one job. `rest` is the state of all that have no Life of their own."""

    __slots__ = ("_lives", "iteration", "rest", "unfinished", "unsuccessful")

    def __init__(self, iteration: Iteration) -> None:
        self.iteration = iteration
        self.rest = JobState.WAITING
        self.unfinished = len(iteration)
        self.unsuccessful = 0
        self._lives: dict[int, Life] = {}

    def state(self, index: int) -> JobState:
        life = self._lives.get(index)
        return self.rest if life is None else life.state

    def life(self, index: int) -> Life:
        """The Life of an iteration, made when something happens to it for the first time."""
        life = self._lives.get(index)
        if life is None:
            life = self._lives[index] = Life(self.rest)
        return life

    def known_life(self, index: int) -> Life | None:
        return self._lives.get(index)

    def close(self, state: JobState) -> None:
        """All iterations that never began end together with their job."""
        untouched = len(self.iteration) - len(self._lives)
        self.rest = state
        self.unfinished -= untouched
        self.unsuccessful += untouched

    def counts(self) -> Iterator[tuple[JobState, int]]:
        for life in self._lives.values():
            yield life.state, 1
        untouched = len(self.iteration) - len(self._lives)
        if untouched:
            yield self.rest, untouched


class Entry:
    """One submitted job."""

    __slots__ = ("arrived_at", "cancelled", "dialect", "life", "name", "number", "parts", "planned", "queue_position")

    def __init__(self, planned: Planned, number: int, arrived_at: float) -> None:
        self.name = planned.name
        self.planned = planned
        self.dialect = planned.dialect
        self.number = number
        self.arrived_at = arrived_at
        self.life = Life()
        self.parts: Parts | None = None
        self.queue_position: int | None = None
        self.cancelled = False

    @property
    def description(self) -> Description:
        return self.planned.description

    def open_parts(self, iteration: Iteration) -> None:
        self.parts = Parts(iteration)

    def life_of(self, index: int | None) -> Life:
        if index is None:
            return self.life
        assert self.parts is not None
        return self.parts.life(index)

    def state_of(self, index: int | None) -> JobState:
        if index is None:
            return self.life.state
        assert self.parts is not None
        return self.parts.state(index)

    def full_name(self, index: int | None) -> str:
        return self.name if index is None else f"{self.name}:{index}"


class Registry:
    """All entries by name, in order of arrival."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.unfinished = 0
        self._number = 0

    def add(self, planned: Planned, now: float) -> Entry:
        self._number += 1
        entry = Entry(planned, self._number, now)
        self.entries[entry.name] = entry
        self.unfinished += 1
        return entry

    def remove(self, name: str) -> None:
        del self.entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __len__(self) -> int:
        return len(self.entries)

    def statistics(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many jobs, and how many iterations (a plain job is one), stand where."""
        jobs, iterations = _zeros(), _zeros()
        for entry in self.entries.values():
            group = _GROUPS[entry.life.state]
            jobs[group] += 1
            if entry.parts is None:
                iterations[group] += 1
            else:
                for state, count in entry.parts.counts():
                    iterations[_GROUPS[state]] += count
        return jobs, iterations


_GROUP_OF_NAME = {
    "QUEUED": "InSchedule",
    "SCHEDULED": "InSchedule",
    "EXECUTING": "Executing",
    "SUCCEED": "Finished",
    "CANCELED": "Finished",
    "FAILED": "Failed",
    "OMITTED": "Failed",
}
_GROUPS = {state: _GROUP_OF_NAME[QCG[state]] for state in JobState}


def _zeros() -> dict[str, int]:
    return {"InSchedule": 0, "Failed": 0, "Finished": 0, "Executing": 0}


def split_name(name: str) -> tuple[str, int | None]:
    """`job:3` -> ("job", 3), `job:-1` -> ("job", -1); no job has a name with a colon whose index is no number."""
    job, colon, index = name.partition(":")
    if colon:
        try:
            return job, int(index)
        except ValueError:
            return name, None
    return name, None


def state_name(state: JobState, dialect: Dialect) -> str:
    """What a client calls the state. The specification has no SCHEDULED."""
    name = QCG[state]
    return "QUEUED" if dialect is Dialect.SPECIFICATION and name == "SCHEDULED" else name
