"""The manager: requests come in, answers go out. No socket, process, file or clock.

    client ──request──► handle ──► JobQueue: registry, dependencies, ready jobs ──take_ready──► world
    client ◄──answer───┘              ▲  │                                                        │
    subscribers, files ◄── outbox ◄───│──┘                                                        │
                                      └─── allocated, launched, ended, refused ◄──────────────────┘

An answer is `{"code": 0 | 1, "message"?: text, "data"?: ...}`. A refused request changes nothing (but see `_submit`), and its
answer says why. All answers are in the dialect of the manager. 0.14 nests answers per job (`jobNames`), and gives history and
place in jobInfo only; the specification answers about one job (`jobName`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest

import msgspec

from pilothouse.dropins.qcg.job_queue import JobQueue
from pilothouse.dropins.qcg.registry import (
    Entry,
    JobStatus,
    Registry,
    Usage,
    date_text,
    duration_text,
    split_name,
    state_name,
    visible_history,
)
from pilothouse.formats import qcg_requests as r
from pilothouse.formats.qcg_dialect import LATER, Dialect
from pilothouse.formats.qcg_workload import Sizing, Unfit, fits_ever
from pilothouse.formats.text_input import JSON_PROBLEMS
from pilothouse.model.job import Node
from pilothouse.model.lifecycle import FINAL
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


def ok(message: str | None = None, data: object = None) -> Answer:
    answer: Answer = {"code": 0}
    if message is not None:
        answer["message"] = message
    if data is not None:
        answer["data"] = data
    return answer


def refused(message: str) -> Answer:
    return {"code": 1, "message": message}


class RequestHandler:
    """What managers and governors have in common: every request gets an answer."""

    def __init__(
        self, system: System, registry: Registry, new_id: Callable[[], str], *, cluster: str = "local", dialect: Dialect
    ) -> None:
        self.system = system
        self.registry = registry
        self.dialect = dialect
        self.finish_when_done = False
        self.stop_at: float | None = None
        self._new_id = new_id
        self._cluster = cluster
        self._submits = 0
        self._now = system.started_at

    def handle(self, text: bytes, now: float) -> Answer:
        """The answer to one request."""
        self._now = now
        try:
            return self._answer(r.parse_request(text, self._variables, self.dialect), text)
        except r.RequestError as error:
            return refused(str(error))
        except JSON_PROBLEMS as error:
            return refused(f"Invalid request: not JSON ({error})")

    def _variables(self) -> dict[str, str]:
        self._submits += 1
        day, _, clock = date_text(self._now).partition(" ")
        return r.request_variables(self._submits, self._new_id(), self._cluster, day, clock.partition(".")[0])

    def _answer(self, request: r.Request, text: bytes) -> Answer:
        match request:
            case r.Submit():
                if self.stop_at is not None and not self.dialect.finish_delay_s:
                    return refused("finish was requested: no more jobs are accepted")
                names = self._submit(request, text)
                if self.dialect.plain_answers:
                    # QUIRK: the spelling of 2018 (tests/golden/test_qcg_2018.py).
                    return ok(f"{len(names)} jobs submited")
                return ok(f"{len(names)} jobs submitted", {"submitted": len(names), "jobs": names})
            case r.ManagerReport():
                return self._reported(request)
            case r.NamedJobs():
                return self._about_jobs(request)
            case r.Plain(kind="allJobsFinished"):
                return ok(data={"AllJobsFinished": self.registry.unfinished == 0})
            case r.Plain(kind="status"):
                return ok(data=self.status(self._now, self.usage()))
            case r.Plain(kind="listJobs"):
                return ok(data=job_list(self.registry, self.dialect))
            case r.Plain(kind="resourcesInfo"):
                return ok(data=resources(self.usage(), self.dialect))
        if self.finish_when_done or self.stop_at is not None:
            return refused("Finish request already requested")
        if request.kind == "control":
            self.finish_when_done = True
            return ok(f"{r.FINISH_WHEN_DONE} command accepted")
        delay = self.dialect.finish_delay_s
        self.stop_at = self._now + delay
        return ok(data={"when": f"{delay:.0f}s"})

    def status(self, now: float, usage: Usage) -> Answer:
        return system_status(self.system, usage, self.registry, now)

    def usage(self) -> Usage:
        raise NotImplementedError

    def _submit(self, request: r.Submit, text: bytes) -> list[str]:
        """Accepts jobs, and returns their names. Raises RequestError."""
        raise NotImplementedError

    def _reported(self, report: r.ManagerReport) -> Answer:
        raise NotImplementedError

    def _about_jobs(self, request: r.NamedJobs) -> Answer:
        raise NotImplementedError

    def _cancel(self, name: str) -> str | None:
        """Cancels a job or iteration; returns what is wrong with the name, if anything."""
        raise NotImplementedError

    def _forget(self, entry: Entry) -> None:
        """Removes a job that has ended."""
        raise NotImplementedError

    def _new(self, jobs: list[r.SubmittedJob]) -> Iterator[r.SubmittedJob]:
        """The first job of each name. Raises RequestError at a name that is taken."""
        names: set[str] = set()
        for job in jobs:
            if job.name in self.registry.entries or (job.name in names and not self.dialect.first_name_stays):
                raise r.RequestError(f"Job {job.name} already exist")
            if job.name not in names:
                names.add(job.name)
                yield job

    def _quoted(self, name: str) -> str:
        """A name in a message, as clients of the dialect know it."""
        return name if self.dialect.plain_answers else f"'{name}'"

    def _remove(self, name: str) -> str | None:
        """Removes a job that has ended; returns what is wrong with the name, if anything."""
        entry = self.registry.entries.get(name)
        if entry is None:
            return f"Job {self._quoted(name)} doesn't exist"
        if not entry.status.final:
            return f"Job {self._quoted(name)} not finished - can not be removed"
        self._forget(entry)
        return None

    def _change_each(self, request: r.NamedJobs) -> Answer:
        """cancelJob and removeJob of 0.14.2: how many succeeded, and what was wrong with the others."""
        act, word = (self._cancel, "canceled") if request.kind == "cancelJob" else (self._remove, "removed")
        problems = [(name, act(name)) for name in request.names]
        errors = {name: problem for name, problem in problems if problem is not None}
        done = sum(problem is None for _, problem in problems)
        return ok(data={word: done, "errors": errors} if errors else {word: done})


class Manager(RequestHandler):
    """One QCG PilotJob Manager."""

    def __init__(
        self,
        system: System,
        nodes: tuple[Node, ...],
        new_id: Callable[[], str],
        *,
        cluster: str = "local",
        reserved: int = 0,
        dialect: Dialect = LATER,
    ) -> None:
        self.queue = JobQueue(system.instance, nodes, reserved=reserved)
        super().__init__(system, self.queue.registry, new_id, cluster=cluster, dialect=dialect)

    def usage(self) -> Usage:
        return self.queue.usage

    def _reported(self, report: r.ManagerReport) -> Answer:
        if report.kind == "notify":
            return refused("Operation not supported")
        return refused("Register manager request not supported in this kind of manager (direct)")

    def _submit(self, request: r.Submit, text: bytes) -> list[str]:
        try:
            jobs = list(self._checked(request.jobs))
        except Unfit as error:
            raise r.RequestError(str(error)) from None
        names = [entry.name for entry in self.queue.accept(jobs, self._now)]
        if len(jobs) < len(request.jobs):
            twice = next(job.name for job, first in zip_longest(request.jobs, jobs) if job is not first)
            raise r.RequestError(f"Job {twice} already exist (the first job of each name was accepted)")
        return names

    def _checked(self, jobs: list[r.SubmittedJob]) -> Iterator[r.SubmittedJob]:
        """The new jobs. Refuses those that can never run, unless they fail on their own in this dialect."""
        nodes, fail_later = self.queue.nodes, self.dialect.too_large_fails
        fitting: set[int] = set()
        for job in self._new(jobs):
            if fail_later:
                if job.is_first and job.description.resources.scheduled:
                    Sizing(job.description, self.queue.totals).request(0)
                yield job
                continue
            resources = job.description.resources
            if id(resources) not in fitting and not fits_ever(resources, nodes):
                raise r.RequestError(f"Not enough resources for job {job.name}")
            fitting.add(id(resources))
            if job.description.iteration is not None and resources.scheduled:
                Sizing(job.description, self.queue.totals)
            yield job

    # ---- requests about jobs

    def _about_jobs(self, request: r.NamedJobs) -> Answer:
        if request.one:
            return self._about_one(request)
        return self._about_each(request) if request.kind in ("jobStatus", "jobInfo") else self._change_each(request)

    def _about_one(self, request: r.NamedJobs) -> Answer:
        """The specification's form: one job, named by `jobName`."""
        name = request.names[0]
        entry = self.registry.entries.get(name)
        if entry is None:
            return refused(f"Job {self._quoted(name)} doesn't exist")
        if request.kind in ("jobStatus", "jobInfo"):
            return ok(data=specified_status(entry))
        problem = self._cancel(name) if request.kind == "cancelJob" else self._remove(name)
        if problem is not None:
            return refused(problem)
        return ok(data={"messages": f"Job {name} {'canceled' if request.kind == 'cancelJob' else 'removed'}"})

    def _about_each(self, request: r.NamedJobs) -> Answer:
        """jobStatus and jobInfo of 0.14.2. An unknown job refuses the request; a wrong index of a plain job does not."""
        found: dict[str, object] = {}
        for name in request.names:
            job, index = split_name(name)
            entry = self.registry.entries.get(job)
            if entry is None and ":" not in job:
                unknown = f"'{name}'" if request.kind == "jobStatus" else str(request.names)
                return refused(f"Job {unknown} doesn't exist")
            if entry is not None and entry.has(index):
                if request.kind == "jobStatus":
                    data = one_status(entry, index)
                else:
                    data = one_info(entry, index, with_childs=request.with_childs)
                found[name] = {"status": 0, "data": data}
            elif entry is not None and entry.iterations is not None:
                return refused(_wrong_index(name, entry, index))
            else:
                found[name] = {"status": 1, "message": _wrong_index(name, entry, index)}
        return ok(data={"jobs": found})

    def _forget(self, entry: Entry) -> None:
        self.queue.remove(entry)

    def _cancel(self, name: str) -> str | None:
        job, index = split_name(name)
        entry = self.registry.entries.get(job)
        if entry is None and ":" not in job:
            return f"Job/iteration {job} doesn't exist"
        if entry is None or not entry.has(index):
            return _wrong_index(name, entry, index)
        if entry.state_of(index) in FINAL:
            return f"Job/iteration {name} already finished - can not be canceled"
        if index is None and entry.cancelled:
            return f"Job {job} already canceled"
        self.queue.cancel(entry, index, self._now)
        return None


def _wrong_index(name: str, entry: Entry | None, index: int | None) -> str:
    """Why a name is not that of an iteration.

    QUIRK: 0.14.2 shows its Python errors here, and clients match them (tests/golden/qcg, 04-errors).
    """
    if entry is None:
        return f"invalid literal for int() with base 10: {name.partition(':')[2]!r}"
    if entry.iterations is None:
        return "'NoneType' object has no attribute 'in_range'"
    return f"Unknown iteration {index} for job {entry.name}"


# ---- answers, as plain data that is sent as JSON


def one_status(entry: Entry, index: int | None) -> Answer:
    """jobStatus of 0.14.2."""
    return {"jobName": entry.full_name(index), "status": state_name(entry.state_of(index), entry.dialect)}


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
    return data | _details(status, entry.dialect)


def _child(index: int, status: JobStatus) -> Answer:
    child: Answer = {"iteration": index, "state": state_name(status.state)}
    if status.runtime is not None:
        child["runtime"] = status.runtime.shown(LATER)  # the specification has no iterations
    return child


def specified_status(entry: Entry) -> Answer:
    """jobStatus of the specification: everything about one job."""
    return one_status(entry, None) | _details(entry.status, entry.dialect)


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
    if dialect.plain_answers:
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
    if dialect.plain_answers:
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
