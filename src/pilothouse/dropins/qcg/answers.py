"""What a manager answers, in both dialects: plain data that is sent as JSON.

An answer is `{"code": 0 | 1, "message"?: text, "data"?: ...}`. Where the dialects differ, the later one nests answers
per job, and gives history and place in jobInfo only; the specification answers about one job at once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from pilothouse.dropins.qcg.registry import Entry, JobStatus, Registry, state_name
from pilothouse.formats.qcg_description import Dialect
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.qcg.network import Answer


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

    def shown(self, *keys: str) -> Answer:
        """Under these names: nodes, cores, used, free."""
        return dict(zip(keys, (self.nodes, self.cores, self.used, self.free), strict=True))


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
    """(name, date) of each state; the specification has no SCHEDULED."""
    return [
        (state_name(state, dialect), when)
        for state, when in status.history
        if dialect is not Dialect.SPECIFICATION or state is not JobState.STARTING
    ]


def one_status(entry: Entry, index: int | None) -> Answer:
    """jobStatus of 0.14.2."""
    return {"jobName": entry.full_name(index), "status": state_name(entry.state_of(index))}


def one_info(entry: Entry, index: int | None, *, with_childs: bool) -> Answer:
    """jobInfo of 0.14.2."""
    data = one_status(entry, index)
    status, iterations = entry.status, entry.iterations
    if index is not None and iterations is not None:
        status = iterations.shown(index)
    elif iterations is not None:
        loop = iterations.loop
        data["iterations"] = {
            "start": loop.start,
            "stop": loop.stop,
            "total": len(loop),
            "finished": len(loop) - iterations.unfinished,
            "failed": iterations.unsuccessful,
        }
        if with_childs:
            data["childs"] = [_child(child, iterations.shown(child)) for child in range(loop.start, loop.stop)]
    return data | _details(status, Dialect.LATER)


def _child(index: int, status: JobStatus) -> Answer:
    child: Answer = {"iteration": index, "state": state_name(status.state)}
    if status.runtime is not None:
        child["runtime"] = status.runtime.shown(Dialect.LATER)
    return child


def specified_status(entry: Entry) -> Answer:
    """jobStatus of the specification: everything about one job."""
    data: Answer = {"jobName": entry.name, "status": state_name(entry.status.state, Dialect.SPECIFICATION)}
    return data | _details(entry.status, Dialect.SPECIFICATION)


def _details(status: JobStatus, dialect: Dialect) -> Answer:
    data: Answer = {}
    if status.messages is not None:
        data["messages"] = status.messages
    if status.runtime is not None:
        data["runtime"] = status.runtime.shown(dialect)
    if status.history:
        data["history"] = "".join(f"\n{date_text(when)}: {name}" for name, when in visible_history(status, dialect))
    return data


def job_list(registry: Registry, dialect: Dialect) -> Answer:
    entries = registry.entries
    if dialect is Dialect.SPECIFICATION:
        return {"length": len(entries), "names": list(entries)}
    jobs: dict[str, object] = {}
    for name, entry in entries.items():
        item: Answer = {"status": state_name(entry.status.state, dialect)}
        if entry.status.messages is not None:
            item["messages"] = entry.status.messages
        if entry.queue_position is not None:
            item["inQueue"] = entry.queue_position
        jobs[name] = item
    return {"length": len(entries), "jobs": jobs}


def resources(usage: Usage, dialect: Dialect) -> Answer:
    if dialect is Dialect.SPECIFICATION:
        shown = usage.shown("totalNodes", "totalCores", "usedCores", "freeCores")
        return {"totalCores": shown.pop("totalCores"), **shown}
    return usage.shown("total_nodes", "total_cores", "used_cores", "free_cores")


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
        "Resources": usage.shown("TotalNodes", "TotalCores", "UsedCores", "FreeCores"),
        "JobStats": {
            "TotalJobs": len(registry.entries),
            **{f"{group}Jobs": count for group, count in jobs.items()},
        },
        "IterationStats": {
            "TotalIterations": sum(iterations.values()),
            **{f"{group}Iterations": count for group, count in iterations.items()},
        },
    }
