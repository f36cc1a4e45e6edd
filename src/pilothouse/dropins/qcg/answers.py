"""What the manager answers, in both dialects: plain data that is sent as JSON.

An answer is `{"code": 0 | 1, "message"?: text, "data"?: ...}`. Where the dialects differ, the later one nests answers
per job and tells of history and place in jobInfo only; the specification answers about one job at once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from pilothouse.dropins.qcg.registry import Entry, Life, Registry, state_name
from pilothouse.formats.qcg_description import Dialect
from pilothouse.model.lifecycle import JobState

Answer = dict[str, object]


class System(msgspec.Struct):
    """What the status answer says about the manager itself."""

    instance: str
    started_at: float
    host: str = ""
    account: str = ""
    wd: str = ""
    python_version: str = ""
    python: str = ""
    platform: str = ""
    address: str | None = None
    publisher: str | None = None
    interfaces: tuple[str, ...] = ()


class Usage(msgspec.Struct, frozen=True):
    nodes: int
    cores: int
    used: int

    @property
    def free(self) -> int:
        return self.cores - self.used


def ok(message: str | None = None, data: object = None) -> Answer:
    answer: Answer = {"code": 0}
    if message is not None:
        answer["message"] = message
    if data is not None:
        answer["data"] = data
    return answer


def refused(message: str) -> Answer:
    return {"code": 1, "message": message}


@lru_cache(maxsize=4096)
def date_text(when: float) -> str:
    """Remembered: jobs of one list arrive together, and one often begins when another ends."""
    return datetime.fromtimestamp(when).isoformat(sep=" ", timespec="microseconds")


def duration_text(seconds: float) -> str:
    """`0:00:06.082136`; the fraction is always there, so that it can be parsed."""
    if 0.0 <= seconds < 60.0:
        whole = int(seconds * 1e6 + 0.5)  # most jobs are short, and a timedelta is slow
        return f"0:00:{whole // 1_000_000:02}.{whole % 1_000_000:06}" if whole < 60_000_000 else "0:01:00.000000"
    text = str(timedelta(seconds=max(0.0, seconds)))
    return text if "." in text else f"{text}.000000"


def history_text(life: Life, dialect: Dialect) -> str:
    return "".join(f"\n{date_text(when)}: {name}" for name, when in visible_history(life, dialect))


def visible_history(life: Life, dialect: Dialect) -> list[tuple[str, float]]:
    """(name, date) of each state; the specification knows no SCHEDULED."""
    return [
        (state_name(state, dialect), when)
        for state, when in life.history
        if dialect is not Dialect.SPECIFICATION or state is not JobState.STARTING
    ]


def one_status(entry: Entry, index: int | None) -> Answer:
    """jobStatus of 0.14.2."""
    return {"jobName": entry.full_name(index), "status": state_name(entry.state_of(index), Dialect.LATER)}


def one_info(entry: Entry, index: int | None, *, with_childs: bool) -> Answer:
    """jobInfo of 0.14.2."""
    data = one_status(entry, index)
    if index is None and entry.parts is not None:
        loop = entry.parts.iteration
        data["iterations"] = {
            "start": loop.start,
            "stop": loop.stop,
            "total": len(loop),
            "finished": len(loop) - entry.parts.unfinished,
            "failed": entry.parts.unsuccessful,
        }
        if with_childs:
            data["childs"] = [_child(entry, child) for child in range(loop.start, loop.stop)]
    life = entry.life if index is None else _life_or_empty(entry, index)
    _add_details(data, life, Dialect.LATER)
    return data


def specified_status(entry: Entry) -> Answer:
    """jobStatus of the specification: everything about one job."""
    data: Answer = {"jobName": entry.name, "status": state_name(entry.life.state, Dialect.SPECIFICATION)}
    _add_details(data, entry.life, Dialect.SPECIFICATION)
    return data


def _child(entry: Entry, index: int) -> Answer:
    life = _life_or_empty(entry, index)
    child: Answer = {"iteration": index, "state": state_name(entry.state_of(index), Dialect.LATER)}
    if life.runtime is not None:
        child["runtime"] = life.runtime.shown(Dialect.LATER)
    return child


def _life_or_empty(entry: Entry, index: int) -> Life:
    assert entry.parts is not None
    return entry.parts.known_life(index) or Life(entry.parts.rest)


def _add_details(data: Answer, life: Life, dialect: Dialect) -> None:
    if life.messages is not None:
        data["messages"] = life.messages
    if life.runtime is not None:
        data["runtime"] = life.runtime.shown(dialect)
    if life.history:
        data["history"] = history_text(life, dialect)


def job_list(registry: Registry, dialect: Dialect) -> Answer:
    if dialect is Dialect.SPECIFICATION:
        return {"length": len(registry), "names": list(registry.entries)}
    jobs: dict[str, object] = {}
    for name, entry in registry.entries.items():
        item: Answer = {"status": state_name(entry.life.state, dialect)}
        if entry.life.messages is not None:
            item["messages"] = entry.life.messages
        if entry.queue_position is not None:
            item["inQueue"] = entry.queue_position
        jobs[name] = item
    return {"length": len(registry), "jobs": jobs}


def resources(usage: Usage, dialect: Dialect) -> Answer:
    if dialect is Dialect.SPECIFICATION:
        return {
            "totalCores": usage.cores,
            "totalNodes": usage.nodes,
            "usedCores": usage.used,
            "freeCores": usage.free,
        }
    return {
        "total_nodes": usage.nodes,
        "total_cores": usage.cores,
        "used_cores": usage.used,
        "free_cores": usage.free,
    }


def system_status(system: System, usage: Usage, registry: Registry, now: float) -> Answer:
    jobs, iterations = registry.statistics()
    return {
        "System": {
            "InstanceId": system.instance,
            "Started": date_text(system.started_at),
            "Generated": date_text(now),
            "Uptime": duration_text(now - system.started_at),
            "Zmqaddress": system.address,
            "Ifaces": list(system.interfaces),
            "StatusPublisher": system.publisher,
            "Host": system.host,
            "Account": system.account,
            "Wd": system.wd,
            "PythonVersion": system.python_version,
            "Python": system.python,
            "Platform": system.platform,
        },
        "Resources": {
            "TotalNodes": usage.nodes,
            "TotalCores": usage.cores,
            "UsedCores": usage.used,
            "FreeCores": usage.free,
        },
        "JobStats": {"TotalJobs": len(registry), **{f"{group}Jobs": count for group, count in jobs.items()}},
        "IterationStats": {
            "TotalIterations": sum(iterations.values()),
            **{f"{group}Iterations": count for group, count in iterations.items()},
        },
    }
