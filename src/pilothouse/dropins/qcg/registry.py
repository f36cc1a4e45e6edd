"""The registry: every job that was submitted, its iterations, and what happened to each of them.

A job is an Entry with a JobStatus (state, history, messages, where it ran). An iterated job of 0.14.2 also has
Iterations: a JobStatus for each iteration that has begun or ended, and one state that all others share, so that a long
loop takes no memory before it runs. States are those of model/lifecycle.py, and change only through its table. Names of
states, dates and durations are written here as clients and reports show them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from pilothouse.formats.qcg_description import Description, Iteration
from pilothouse.formats.qcg_dialect import LATER, Dialect
from pilothouse.formats.qcg_requests import SubmittedJob
from pilothouse.model.lifecycle import FINAL, QCG, JobState, Stimulus, step


class Usage(msgspec.Struct, frozen=True):
    nodes: int
    cores: int
    used: int

    @property
    def free(self) -> int:
        return self.cores - self.used

    def shown(self, *keys: str) -> dict[str, object]:
        """Under these names: nodes, cores, used, free."""
        return dict(zip(keys, (self.nodes, self.cores, self.used, self.free), strict=True))


class Runtime(msgspec.Struct):
    """Where and how a job ran; what is not known yet is None."""

    allocation: str
    """As 0.14.2 writes it: `n0[0:1],n1[0]`."""
    counts: str
    """As the specification writes it: `e0003:2`."""
    wd: str | None = None
    rtime: str | None = None
    exit_code: int | None = None
    pid: int | None = None
    program: str | None = None

    def shown(self, dialect: Dialect) -> dict[str, str]:
        fields: dict[str, object | None]
        if dialect.plain_answers:
            # The example of the specification: while a job runs, its place alone is shown.
            fields = {"allocation": self.counts} | ({} if self.rtime is None else {"wd": self.wd, "rtime": self.rtime})
        else:
            fields = {"allocation": self.allocation, "wd": self.wd, "rtime": self.rtime}
            if self.exit_code is not None:
                # 0.14.2 names the process once it has ended.
                fields |= {"exit_code": self.exit_code, "pid": self.pid, "pname": self.program}
        return {key: str(value) for key, value in fields.items() if value is not None}


class JobStatus:
    """What happened to one job or iteration."""

    __slots__ = ("history", "messages", "runtime", "state")

    def __init__(self, state: JobState = JobState.KNOWN) -> None:
        self.state = state
        self.history: list[tuple[JobState, float]] = []
        self.messages: str | None = None
        self.runtime: Runtime | None = None

    def step(self, stimulus: Stimulus, now: float) -> bool:
        """Changes the state. Returns whether clients can see the change."""
        before = self.state
        if stimulus is Stimulus.SUCCEEDED and before is JobState.WAITING:
            # An iterated job is QUEUED until its last iteration has ended; clients never see it start.
            before = step(before, Stimulus.ALLOCATED)
        self.state = step(before, stimulus)
        if QCG[self.state] == QCG[before] and before is not JobState.KNOWN:
            return False
        self.history.append((self.state, now))
        return True

    def undo_start(self) -> None:
        """Back to waiting, without a trace in the history."""
        while self.history and self.history[-1][0] in (JobState.STARTING, JobState.RUNNING):
            self.history.pop()
        self.state = step(self.state, Stimulus.REQUEUED)
        self.runtime = None

    def say(self, message: str) -> None:
        self.messages = message if self.messages is None else f"{self.messages}\n{message}"

    @property
    def final(self) -> bool:
        return self.state in FINAL


class Iterations:
    """The iterations of one job. `rest` is the state of all that have no JobStatus of their own."""

    __slots__ = ("_begun", "loop", "rest", "unfinished", "unsuccessful")

    def __init__(self, loop: Iteration) -> None:
        self.loop = loop
        self.rest = JobState.WAITING
        self.unfinished = len(loop)
        self.unsuccessful = 0
        self._begun: dict[int, JobStatus] = {}

    def state(self, index: int) -> JobState:
        status = self._begun.get(index)
        return self.rest if status is None else status.state

    def status(self, index: int) -> JobStatus:
        """Of one iteration; made when something happens to it for the first time."""
        status = self._begun.get(index)
        if status is None:
            status = self._begun[index] = JobStatus(self.rest)
        return status

    def shown(self, index: int) -> JobStatus:
        """The same for reading: nothing is kept."""
        return self._begun.get(index) or JobStatus(self.rest)

    def omit_rest(self) -> None:
        """All iterations that never began are omitted together with their job."""
        untouched = len(self.loop) - len(self._begun)
        self.rest = step(self.rest, Stimulus.OMITTED)
        self.unfinished -= untouched
        self.unsuccessful += untouched

    def counts(self) -> Iterator[tuple[JobState, int]]:
        for status in self._begun.values():
            yield status.state, 1
        yield self.rest, len(self.loop) - len(self._begun)


class Entry:
    """One submitted job."""

    __slots__ = ("arrived_at", "cancelled", "dialect", "iterations", "name", "number", "queue_position", "status", "submitted")

    def __init__(self, submitted: SubmittedJob, number: int, arrived_at: float) -> None:
        self.name = submitted.name
        self.submitted = submitted
        self.dialect = submitted.dialect
        self.number = number
        self.arrived_at = arrived_at
        self.status = JobStatus()
        self.iterations: Iterations | None = None
        self.queue_position: int | None = None
        self.cancelled = False

    @property
    def description(self) -> Description:
        return self.submitted.description

    def has(self, index: int | None) -> bool:
        """Whether the index is one of its iterations (None: the job itself)."""
        return index is None or (self.iterations is not None and index in self.iterations.loop)

    def status_of(self, index: int | None) -> JobStatus:
        if index is None:
            return self.status
        assert self.iterations is not None
        return self.iterations.status(index)

    def state_of(self, index: int | None) -> JobState:
        if index is None:
            return self.status.state
        assert self.iterations is not None
        return self.iterations.state(index)

    def full_name(self, index: int | None) -> str:
        return self.name if index is None else f"{self.name}:{index}"


Item = tuple[Entry, int | None]
"""A job (index None), or one of its iterations."""


class Registry:
    """All entries by name, in order of arrival."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.unfinished = 0
        self._number = 0

    def add(self, submitted: SubmittedJob, now: float) -> Entry:
        self._number += 1
        entry = self.entries[submitted.name] = Entry(submitted, self._number, now)
        self.unfinished += 1
        entry.status.step(Stimulus.QUEUED, now)
        return entry

    def find(self, name: str) -> Item | None:
        """The job or iteration of that name; None if there is none."""
        job, index = split_name(name)
        entry = self.entries.get(job)
        return (entry, index) if entry is not None and entry.has(index) else None

    def statistics(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many jobs, and how many iterations (a plain job is one), are in each group of states."""
        jobs, iterations = ({"InSchedule": 0, "Failed": 0, "Finished": 0, "Executing": 0} for _ in range(2))
        for entry in self.entries.values():
            group = _GROUPS[entry.status.state]
            jobs[group] += 1
            if entry.iterations is None:
                iterations[group] += 1
            else:
                for state, count in entry.iterations.counts():
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


def split_name(name: str) -> tuple[str, int | None]:
    """`job:3` -> ("job", 3), `job:-1` -> ("job", -1); a name whose ending is not a number stays whole."""
    job, colon, index = name.partition(":")
    if colon:
        try:
            return job, int(index)
        except ValueError:
            pass
    return name, None


def state_name(state: JobState, dialect: Dialect = LATER) -> str:
    """The state as clients know it."""
    name = QCG[state]
    return "QUEUED" if name == "SCHEDULED" and not dialect.scheduled_state else name


@lru_cache(maxsize=4096)
def date_text(when: float) -> str:
    """Cached: jobs of one list arrive together, and one often begins when another ends."""
    return datetime.fromtimestamp(when).isoformat(sep=" ", timespec="microseconds")


def duration_text(seconds: float) -> str:
    """`0:00:06.082136`; the fraction is always there, so that it can be parsed."""
    if 0.0 <= seconds < 60.0:
        whole = int(seconds * 1e6 + 0.5)  # most jobs are short, and a timedelta is slow
        return f"0:00:{whole // 1_000_000:02}.{whole % 1_000_000:06}" if whole < 60_000_000 else "0:01:00.000000"
    text = str(timedelta(seconds=max(0.0, seconds)))
    return text if "." in text else f"{text}.000000"


def visible_history(status: JobStatus, dialect: Dialect) -> list[tuple[str, float]]:
    """(name, date) of each state that the dialect has."""
    return [
        (state_name(state, dialect), when)
        for state, when in status.history
        if dialect.scheduled_state or state is not JobState.STARTING
    ]
