"""disBatch's messages through its key-value service, as they are under its keys.

    .controller         to the driver: (word, value); see `ControllerMessage`
    .db info            DisBatchInfo: the options, name, id and folder of the run
    .common env         the variables that all tasks have
    .context_N          a context: its nodes, and how many cylinders each has
    .cylinder R C       to a cylinder: ("task", TaskInfo) or ("stop", None)
    .per engine N       of edition 2: ("task", TaskInfo) or ("barrier notification", TaskInfo) for every engine, in order
    .per engine START N of edition 3: ("task", TaskInfo) or ("stop", None); the same with STOP
    engine R            "running", then "engine stopped"

Edition 2 is disBatch of 2021, 3 is disBatch 3.0: they differ in the module of their classes, in commands (text, bytes) and in
what a report carries. Out: pickles. In: typed structs; a value that is no message of disBatch is None, or UnknownClass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from pilothouse.protocols.disbatch import pickles
from pilothouse.protocols.disbatch.pickles import Instance

CONTROLLER = ".controller"
DB_INFO = ".db info"
STOP = pickles.write(("stop", None))
T = TypeVar("T", bound=msgspec.Struct)
_MODULES = {2: "__main__", 3: "disbatch.disBatch"}


class TaskInfo(msgspec.Struct, frozen=True):
    """A task, a barrier or a per-engine command."""

    task_id: int
    line_number: int
    repeat_index: int
    command: bytes
    kind: str = "N"
    key: str = ".task"
    age: int = 0
    barrier_key: str | None = None


class TaskReport(msgspec.Struct, frozen=True):
    task: TaskInfo
    node: str
    pid: int
    return_code: int
    started_at: float
    ended_at: float
    out_bytes: int = 0
    out_text: str = ""
    err_bytes: int = 0
    err_text: str = ""


class Context(msgspec.Struct, frozen=True):
    rank: int
    label: str
    kind: str
    nodes: tuple[str, ...]
    cylinders: tuple[int, ...]
    cores: tuple[int, ...]
    """Of each cylinder of a node."""
    task_limit: int = 0
    dealt: tuple[str, ...] = ()
    """Variables whose values are dealt out to the cylinders."""


class Register(msgspec.Struct, frozen=True):
    """A context or an engine wants a number, under a key of its choice."""

    which: str
    key: str


class ContextInfo(msgspec.Struct, frozen=True):
    context: Context


class StopRequest(msgspec.Struct, frozen=True):
    """A monitor wants an engine or a context to stop."""

    what: str
    """`engine` or `context`."""
    rank: int


class EngineStarted(msgspec.Struct, frozen=True):
    rank: int
    context: int
    host: str
    pid: int
    at: float


class EngineStopped(msgspec.Struct, frozen=True):
    status: str
    rank: int


class CylinderAvailable(msgspec.Struct, frozen=True):
    rank: int
    pid: int
    group: int
    key: str


class CylinderStopped(msgspec.Struct, frozen=True):
    rank: int
    key: str


class TaskDone(msgspec.Struct, frozen=True):
    report: TaskReport
    rank: int
    cylinder: int
    """-1: the one for per-engine commands."""
    key: str


class HeartBeat(msgspec.Struct, frozen=True):
    """Of an engine (edition 3), or of tasks."""

    rank: int | None
    tasks: tuple[int, ...]


class Internal(msgspec.Struct, frozen=True):
    """What disBatch's driver says to itself: it feeds tasks, clears barriers, looks at heart beats."""

    word: str


ControllerMessage = (
    Register | ContextInfo | StopRequest | EngineStarted | EngineStopped | CylinderAvailable | CylinderStopped | TaskDone
    | HeartBeat | Internal
)  # fmt: skip
INTERNAL = (
    "special task", "task", "task skipped", "feeder exception", "no more tasks", "driver heart beat", "task hb fail",
    "clearing barriers",
)  # fmt: skip


def read_controller(data: bytes) -> ControllerMessage | None:
    """The message; None: not one of disBatch's. Raises UnknownClass."""
    try:
        word, value = pickles.read(data)
        match word, value:
            case "register", ("context" | "engine" as which, str(key)):
                return Register(which, key)
            case "context info", Instance():
                return ContextInfo(read_context(value))
            case "stop engine" | "stop context", int(rank):
                return StopRequest(word.removeprefix("stop "), rank)
            case "engine started", (int(rank), int(context), str(host), int(pid), float(at)):
                return EngineStarted(rank, context, host, pid, at)
            case "engine stopped", (status, int(rank)):
                return EngineStopped(str(status), rank)
            case "cylinder available", (int(rank), int(pid), int(group), str(key)):
                return CylinderAvailable(rank, pid, group, key)
            case "cylinder stopped", (int(rank), str(key)):
                return CylinderStopped(rank, key)
            case "task done", (Instance() as report, int(rank), int(cylinder), *_, str(key)):
                return TaskDone(read_report(report), rank, cylinder, key)
            case "task heart beat", int(task):
                return HeartBeat(None, (task,))
            case "engine heart beats", (int(rank), list(beats)):
                return HeartBeat(rank, tuple(int(task) for _, task in beats))
            case str(), _ if word in INTERNAL:
                return Internal(word)
    except pickles.UnknownClass:
        raise
    except (ValueError, TypeError, KeyError, msgspec.ValidationError):
        return None
    return None


# ---- what is in them


def task_info(info: TaskInfo, edition: int) -> Instance:
    command = info.command.decode("utf-8", "surrogateescape") if edition == 2 else info.command
    key = info.barrier_key
    state = {
        "taskId": info.task_id, "taskStreamIndex": info.line_number, "taskRepIndex": info.repeat_index, "taskCmd": command,
        "taskKey": info.key, "bKey": key.encode() if key and edition == 3 else key, "kind": info.kind, "skipInfo": None,
    }  # fmt: skip
    if edition == 2:
        state["taskAge"] = info.age
    return Instance(_MODULES[edition], "TaskInfo", state)


def read_task_info(value: Instance) -> TaskInfo:
    """Raises KeyError, msgspec.ValidationError."""
    found = _of(value, "TaskInfo")
    command, key = found["taskCmd"], found.get("bKey")
    if isinstance(command, str):
        command = command.encode("utf-8", "surrogateescape")
    return _checked(
        TaskInfo(
            found["taskId"], found["taskStreamIndex"], found["taskRepIndex"], command, found["kind"], found["taskKey"] or "",
            found.get("taskAge", 0), key.decode("utf-8", "replace") if isinstance(key, bytes) else key,
        )
    )  # fmt: skip


def task_report(report: TaskReport, edition: int) -> Instance:
    state = {
        "taskInfo": task_info(report.task, edition), "host": report.node, "pid": report.pid, "returncode": report.return_code,
        "start": report.started_at, "end": report.ended_at, "outbytes": report.out_bytes, "outdata": report.out_text,
        "errbytes": report.err_bytes, "errdata": report.err_text, "engineReport": None,
    }  # fmt: skip
    return Instance(_MODULES[edition], "TaskReport", state)


def read_report(value: Instance) -> TaskReport:
    found = _of(value, "TaskReport")
    return _checked(
        TaskReport(
            read_task_info(found["taskInfo"]), found["host"] or "", found["pid"], found["returncode"], float(found["start"]),
            float(found["end"]), found["outbytes"], found["outdata"], found["errbytes"], found["errdata"],
        )
    )  # fmt: skip


def context(said: Context, info: Instance, args: Mapping[str, Any], edition: int) -> Instance:
    """`info`: of the run; `args`: options of the context."""
    state: dict[str, Any] = {
        "sysid": said.kind if edition == 3 else said.kind.upper(), "dbInfo": info, "rank": said.rank, "nodes": list(said.nodes),
        "cylinders": list(said.cylinders), "args": Instance("argparse", "Namespace", dict(args)), "label": said.label,
        "error": False, "kvsKey": f".context_{said.rank}", "retireCmd": None, "envres": list(said.dealt),
    }  # fmt: skip
    if edition == 3:
        state |= {"cores_per_cylinder": list(said.cores), "for_log": []}
    else:
        cores = [count * max(1, each) for count, each in zip(said.cylinders, said.cores, strict=True)]
        state |= {"wCylinders": list(said.cylinders), "cylinders": cores}
    return Instance(_MODULES[edition], "SlurmContext" if said.kind == "Slurm" else "SSHContext", state)


def read_context(value: Instance) -> Context:
    """Raises KeyError, TypeError, msgspec.ValidationError."""
    found = _of(value, "SSHContext", "SlurmContext")
    cylinders = tuple(found.get("wCylinders") or found["cylinders"])
    cores = found.get("cores_per_cylinder")
    if cores is None:
        cores = [all_ // count if count else all_ for all_, count in zip(found["cylinders"], cylinders, strict=True)]
    kind = "Slurm" if value.name == "SlurmContext" else "SSH"
    limit = _of(found["args"], "Namespace").get("context_task_limit") or 0
    return _checked(
        Context(
            found["rank"], found["label"], kind, tuple(found["nodes"]), cylinders, tuple(cores), limit,
            tuple(found.get("envres") or ()),
        )
    )  # fmt: skip


def run_info(name: str, unique_id: str, folder: str, args: Mapping[str, Any], edition: int) -> Instance:
    state = {"args": Instance("argparse", "Namespace", dict(args)), "name": name, "uniqueId": unique_id, "wd": folder}
    return Instance(_MODULES[edition], "DisBatchInfo", state)


def _of(value: object, *names: str) -> dict[str, Any]:
    if not isinstance(value, Instance) or value.name not in names:
        raise TypeError(f"expected {names[0]}")
    return value.state


def _checked(value: T) -> T:
    """Raises msgspec.ValidationError where a member has another type than it should."""
    return msgspec.convert(msgspec.structs.asdict(value), type(value))
