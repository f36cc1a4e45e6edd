"""The manager: requests come in, answers go out. No socket, process, file or clock.

    client ──request──► handle ──► Work: registry, dependencies, ready queue ──feed──► world
    client ◄──answer───┘             ▲  │                                                │
    subscribers, files ◄── outbox ◄──│──┘                                                │
                                     └─── allocated, launched, ended, refused ◄──────────┘

A request that is refused changes nothing, and its answer says why. The dialect of whoever spoke last in unmistakable
words decides how requests that fit both are answered.
"""

from __future__ import annotations

from collections.abc import Callable

from pilothouse.dropins.qcg import answers
from pilothouse.dropins.qcg.answers import Answer, System, date_text, ok, refused
from pilothouse.dropins.qcg.registry import Entry, split_name
from pilothouse.dropins.qcg.work import Work
from pilothouse.formats.qcg_description import Description, Dialect
from pilothouse.formats.qcg_requests import (
    Control,
    Foreign,
    NamedJobs,
    Plain,
    Planned,
    Request,
    RequestError,
    RequestVariables,
    Status,
    Submit,
    missing_names,
    parse_request,
)
from pilothouse.formats.qcg_workload import Sizing, Unfit, fits_ever
from pilothouse.model.job import Node
from pilothouse.model.lifecycle import FINAL

FINISH_DELAY_S = 2.0
"""How long a `finish` waits, so that its answer and those of others still get out."""


def request_variables(number: int, uniq: str, cluster: str, now: float) -> RequestVariables:
    """What the variables of the first phase stand for in a request that came now."""
    day, _, clock = date_text(now).partition(" ")
    clock = clock.partition(".")[0]
    return RequestVariables(str(number), uniq, cluster, day, clock, f"{day} {clock}")


class Manager:
    """One QCG PilotJob Manager."""

    def __init__(
        self,
        system: System,
        nodes: tuple[Node, ...],
        new_id: Callable[[], str],
        *,
        cluster: str = "local",
        reserved: int = 0,
    ) -> None:
        self.system = system
        self.work = Work(system.instance, nodes, reserved=reserved)
        self.dialect = Dialect.EITHER
        self.finish_when_done = False
        self.stop_at: float | None = None
        self._new_id = new_id
        self._cluster = cluster
        self._requests = 0
        self._now = system.started_at

    def status(self, now: float) -> Answer:
        return answers.system_status(self.system, self.work.usage, self.work.registry, now)

    # ---- requests

    def handle(self, text: bytes, now: float) -> Answer:
        """The answer to one request. A request that is refused changes nothing."""
        self._now = now
        try:
            request = parse_request(text, self._variables, self.dialect)
            return self._answer(request)
        except RequestError as error:
            return refused(str(error))

    def _variables(self) -> RequestVariables:
        self._requests += 1
        return request_variables(self._requests, self._new_id(), self._cluster, self._now)

    def _answer(self, request: Request) -> Answer:
        match request:
            case Foreign(kind="notify"):
                return refused("Operation not supported")
            case Foreign():
                return refused("Register manager request not supported in this kind of manager (direct)")
            case Submit():
                return self._submit(request)
            case Control():
                return self._control(request)
            case NamedJobs():
                return self._about_jobs(request)
            case Status(all_jobs_finished=True):
                self.dialect = Dialect.LATER
                return ok(data={"AllJobsFinished": self.work.all_finished})
            case Status():
                self.dialect = Dialect.LATER
                return ok(data=self.status(self._now))
            case Plain(kind="listJobs"):
                return ok(data=answers.job_list(self.work.registry, self.dialect))
            case Plain(kind="resourcesInfo"):
                return ok(data=answers.resources(self.work.usage, self.dialect))
            case Plain():
                return self._finish()

    def _submit(self, request: Submit) -> Answer:
        self._check_new(request.jobs)
        if request.dialect is not Dialect.EITHER:
            self.dialect = request.dialect
        names = [entry.name for entry in self.work.enter(request.jobs, self._now)]
        return ok(f"{len(names)} jobs submitted", {"submitted": len(names), "jobs": names})

    def _check_new(self, jobs: list[Planned]) -> None:
        names: set[str] = set()
        nodes = self.work.nodes
        fitting: set[int] = set()
        for planned in jobs:
            if planned.name in self.work.registry or planned.name in names:
                raise RequestError(f"Job {planned.name} already exist")
            names.add(planned.name)
            # The specification lets such a job fail on its own; 0.14.2 refuses the request.
            if planned.dialect is not Dialect.SPECIFICATION:
                resources = planned.description.resources
                if id(resources) not in fitting and not fits_ever(resources, nodes):
                    raise RequestError(f"Not enough resources for job {planned.name}")
                fitting.add(id(resources))
                if planned.description.iteration is not None and resources.scheduled:
                    self._check_parts(planned.description)

    def _check_parts(self, description: Description) -> None:
        try:
            Sizing(description, self.work.totals)
        except Unfit as error:
            raise RequestError(str(error)) from None

    def _control(self, request: Control) -> Answer:
        if self.finish_when_done or self.stop_at is not None:
            return refused("Finish request already requested")
        self.finish_when_done = True
        return ok(f"{request.command} command accepted")

    def _finish(self) -> Answer:
        if self.finish_when_done or self.stop_at is not None:
            return refused("Finish request already requested")
        # The specification: immediately. 0.14.2: after two seconds.
        delay = 0.0 if self.dialect is Dialect.SPECIFICATION else FINISH_DELAY_S
        self.stop_at = self._now + delay
        return ok(data={"when": f"{delay:.0f}s"})

    # ---- requests about jobs

    def _about_jobs(self, request: NamedJobs) -> Answer:
        if request.dialect is Dialect.SPECIFICATION:
            answer = self._about_one(request)
        else:
            answer = {
                "jobStatus": self._statuses,
                "jobInfo": self._infos,
                "cancelJob": self._cancel_all,
                "removeJob": self._remove_all,
            }[request.kind](request)
        if answer["code"] == 0:
            self.dialect = request.dialect
        return answer

    def _about_one(self, request: NamedJobs) -> Answer:
        """The specification's form: one job, named by `jobName`."""
        name = request.names[0]
        entry = self.work.registry.entries.get(name)
        if entry is None:
            return refused(f"Job '{name}' doesn't exist")
        if entry.dialect is Dialect.LATER:
            # A job that only 0.14.2 can describe is asked about in 0.14.2's words, too.
            return refused(f"Invalid request: {missing_names(request.kind)}")
        if request.kind in ("jobStatus", "jobInfo"):
            return ok(data=answers.specified_status(entry))
        problem = self._cancel(name) if request.kind == "cancelJob" else self._remove(name)
        if problem is not None:
            return refused(problem)
        return ok(data={"canceled" if request.kind == "cancelJob" else "removed": 1, "jobName": name})

    def _statuses(self, request: NamedJobs) -> Answer:
        return self._each(request, answers.one_status, lambda name: f"Job '{name}' doesn't exist")

    def _infos(self, request: NamedJobs) -> Answer:
        def info(entry: Entry, index: int | None) -> Answer:
            return answers.one_info(entry, index, with_childs=request.with_childs)

        return self._each(request, info, lambda _: f"Job {request.names} doesn't exist")

    def _each(
        self, request: NamedJobs, tell: Callable[[Entry, int | None], Answer], unknown: Callable[[str], str]
    ) -> Answer:
        """Nobody's name refuses the request; what is wrong with one index is told in its place."""
        found: dict[str, object] = {}
        for name in request.names:
            job, index = split_name(name)
            entry = self.work.registry.entries.get(job)
            if entry is None and ":" not in job:
                return refused(unknown(name))
            problem = _wrong_index(name, entry, index)
            if problem is None:
                assert entry is not None
                found[name] = {"status": 0, "data": tell(entry, index)}
            elif entry is not None and entry.parts is not None:
                return refused(problem)
            else:
                found[name] = {"status": 1, "message": problem}
        return ok(data={"jobs": found})

    def _cancel_all(self, request: NamedJobs) -> Answer:
        return self._count("canceled", request.names, self._cancel)

    def _remove_all(self, request: NamedJobs) -> Answer:
        return self._count("removed", request.names, self._remove)

    @staticmethod
    def _count(what: str, names: list[str], act: Callable[[str], str | None]) -> Answer:
        done, errors = 0, {}
        for name in names:
            problem = act(name)
            if problem is None:
                done += 1
            else:
                errors[name] = problem
        data: Answer = {what: done}
        if errors:
            data["errors"] = errors
        return ok(data=data)

    def _remove(self, name: str) -> str | None:
        entry = self.work.registry.entries.get(name)
        if entry is None:
            return f"Job '{name}' doesn't exist"
        if not entry.life.final:
            return f"Job '{name}' not finished - can not be removed"
        self.work.remove(entry)
        return None

    def _cancel(self, name: str) -> str | None:
        job, index = split_name(name)
        entry = self.work.registry.entries.get(job)
        if entry is None and ":" not in job:
            return f"Job/iteration {job} doesn't exist"
        problem = _wrong_index(name, entry, index)
        if problem is not None:
            return problem
        assert entry is not None
        if entry.state_of(index) in FINAL:
            return f"Job/iteration {name} already finished - can not be canceled"
        if index is None and entry.cancelled:
            return f"Job {job} already canceled"
        self.work.cancel(entry, index, self._now)
        return None


def _wrong_index(name: str, entry: Entry | None, index: int | None) -> str | None:
    """What is wrong with the iteration that a name speaks of.

    QUIRK: 0.14.2 shows its Python errors here, and clients match them (tests/golden/qcg, 04-errors).
    """
    if entry is None:
        return f"invalid literal for int() with base 10: {name.partition(':')[2]!r}"
    if index is not None and entry.parts is None:
        return "'NoneType' object has no attribute 'in_range'"
    if index is not None and entry.parts is not None and index not in entry.parts.iteration:
        return f"Unknown iteration {index} for job {entry.name}"
    return None
