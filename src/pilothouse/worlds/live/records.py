"""What a live run writes down: one struct for each event that a restarted driver, a view or a user may need.

The driver makes them; the journal keeps them (`Recorder`), before anything that depends on them is sent. A restarted
driver reads the same records in the same order, and comes to the same state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from pilothouse.model.job import Command, Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live.wire.messages import Task

if TYPE_CHECKING:
    from pilothouse.formats.task_file import TaskLine

NO_ENGINE = "no engine is left"
"""Why a run was stopped that cannot go on."""


class EngineJoined(msgspec.Struct, frozen=True):
    engine: str
    rank: int
    context: str
    node: str
    """Unique in the run; a second engine on a host is `host#2`."""
    slots: int
    first_unit: int
    pid: int
    at: float
    """Dates in records are seconds since 1970."""
    key: str = ""
    gpus: tuple[str, ...] = ()
    memory_mb: int = 0
    cores: int = 0


class EngineLeft(msgspec.Struct, frozen=True):
    engine: str
    at: float
    reason: str
    lost: bool = False


class JobKnown(msgspec.Struct, frozen=True):
    """A job that came in while the run went on (the lines of a task file are not repeated here)."""

    job_id: str
    task_id: int
    data: bytes
    """The Job, MessagePack."""


def job_from(data: bytes) -> Job:
    """The job of a JobKnown. It has no profile: those of simulations could not be decoded."""
    fields = msgspec.msgpack.decode(data)
    fields["shape"] = msgspec.convert(fields["shape"], Shape | None)
    fields["command"] = msgspec.convert(fields["command"], Command | None)
    fields["after"] = tuple(fields["after"])
    return Job(**fields)


class Assigned(msgspec.Struct, frozen=True, gc=False):
    """A decision that was carried out: these tasks, on these units of this engine."""

    id: int
    job_id: str
    engine: str
    units: str
    at: float
    tasks: list[Task]
    gpus: str = ""
    """Names of GPUs by engine; see `text_of_gpus`."""
    memory_mb: int = 0
    """Memory that it was given on each of its nodes."""
    submitted_at: float = 0.0
    """When its tasks were read from the file and the decider was told of them; 0 for submitted jobs, which say it themselves."""


def text_of_gpus(gpus: Mapping[str, tuple[str, ...]]) -> str:
    """`engine=0,1 other=0`"""
    return " ".join(f"{engine}={','.join(names)}" for engine, names in gpus.items())


def gpus_of_text(text: str) -> dict[str, tuple[str, ...]]:
    """What `text_of_gpus` wrote."""
    pairs = (part.partition("=") for part in text.split())
    return {engine: tuple(names.split(",")) for engine, _, names in pairs}


class Returned(msgspec.Struct, frozen=True):
    """Tasks of an open assignment that its engine gave back unbegun."""

    id: int
    tasks: tuple[int, ...]


class Closed(msgspec.Struct, frozen=True, gc=False):
    """Nothing of this assignment is on the engine any more."""

    id: int
    at: float


class TaskEnded(msgspec.Struct, frozen=True, gc=False):
    """The end of one attempt; with `final`, of the task."""

    task_id: int
    line_number: int
    repeat_index: int
    attempt: int
    kind: str
    """`N` a task, `B` and `C` barriers, `P` a per-engine command (its task id is that in its own list), `S` skipped."""
    state: JobState
    return_code: int
    rank: int
    """Of the engine; -1: none."""
    node: str
    pid: int
    started_at: float
    ended_at: float
    out_bytes: int
    out_snippet: bytes
    err_bytes: int
    err_snippet: bytes
    command: bytes
    reason: str = ""
    final: bool = True
    job_id: str = ""
    cpu_s: float = 0.0
    memory_kb: int = 0
    name: str = ""
    """The name that its request gives to it."""
    last_line: bytes = b""
    output: int = 0
    left_out: int = 0
    """These three as in Result."""


def barrier_passed(line: TaskLine, at: float) -> TaskEnded:
    """The record of a barrier that was passed."""
    return TaskEnded(
        line.task_id, line.line_number, line.repeat_index, 1, line.kind.value, JobState.SUCCEEDED, 0, -1, "", -1, at, at,
        0, b"", 0, b"", line.command.encode("utf-8", "surrogateescape"),
    )  # fmt: skip


class Reopened(msgspec.Struct, frozen=True):
    """A user wants a task that did not succeed to be run once more: its end is now that of an attempt that did not count."""

    task_id: int
    at: float


class Refused(msgspec.Struct, frozen=True):
    """A decider will never start this job."""

    job_id: str
    at: float
    reason: str


class Note(msgspec.Struct, frozen=True):
    """Anything else about the run, by name; a later one replaces an earlier one."""

    name: str
    value: bytes


Record: TypeAlias = EngineJoined | EngineLeft | JobKnown | Assigned | Returned | Closed | TaskEnded | Reopened | Refused | Note


class Recorder(Protocol):
    """Whatever keeps records: the journal, or a list in a test."""

    def write(self, records: list[Record], *, durable: bool = True) -> None:
        """Keeps all of them, or raises RunError and keeps none. What was written is lost with no process; if `durable`, all that
        was written up to now is not lost with the power either."""
        ...

    def close(self) -> None: ...
