"""A manager of managers: it has no nodes of its own, and hands jobs to the managers that registered with it.

    client ──request──► Governor ──ask──► managers        each with nodes and a working directory of its own
    client ◄──answer───┘   ▲
                           └── register, notify ◄── managers

A loop is cut into one range of indexes for each manager, a single job goes to the manager that got the fewest so far;
both only to managers that are large enough. A job that waits for others stays here until those have ended, wherever
they run; one that waits for iterations (`after: ["a:${it}"]`) goes where those are. No socket, process or clock: `ask`
puts one request to one manager and returns its answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import msgspec

from pilothouse.dropins.qcg import answers
from pilothouse.dropins.qcg.answers import Answer, System, Usage, ok, refused
from pilothouse.dropins.qcg.manager import FINISH_DELAY_S
from pilothouse.dropins.qcg.registry import Entry, Registry, split_name, state_name
from pilothouse.formats.qcg_description import Dialect
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
from pilothouse.formats.qcg_workload import fits_ever
from pilothouse.model.errors import PeerError
from pilothouse.model.job import Node
from pilothouse.model.lifecycle import QCG, JobState, Stimulus

log = logging.getLogger("pilothouse.qcg")

_ENDS = {
    QCG[JobState.SUCCEEDED]: Stimulus.SUCCEEDED,
    QCG[JobState.FAILED]: Stimulus.FAILED,
    QCG[JobState.KILLED]: Stimulus.KILLED,
    QCG[JobState.OMITTED]: Stimulus.OMITTED,
}
Ask = Callable[["Member", dict[str, object]], Answer]
"""Puts a request to a manager. Raises PeerError where there is no answer."""


class Member(msgspec.Struct):
    """A manager that registered."""

    id: str
    address: str
    nodes: tuple[Node, ...]
    used: int = 0
    """Cores that were taken already when it registered (a core for the manager itself)."""
    jobs: int = 0
    key: str = ""
    """Of its network interface, where that is not on loopback."""


class Part(msgspec.Struct):
    """What one manager has of a job: all of it, or the indexes start .. stop-1."""

    member: str
    start: int | None = None
    stop: int | None = None
    end: str = ""
    """The name of its final state."""


class Governor:
    """Requests in, answers out; jobs go to managers."""

    def __init__(
        self,
        system: System,
        ask: Ask,
        variables: Callable[[float], RequestVariables],
        *,
        partitions: tuple[str, ...] = (),
    ) -> None:
        """`partitions` are the managers that it starts itself; without any, others register as they like."""
        self.system = system
        self.members: dict[str, Member] = {}
        """Its own partitions in their order, then others as they came: the first gets the first share of a loop."""
        self.registry = Registry()
        self.finish_when_done = False
        self.stop_at: float | None = None
        self.publications: list[tuple[str, dict[str, object]]] = []
        self._ask = ask
        self._variables = variables
        self._order = {name: number for number, name in enumerate(partitions)}
        self._awaited = set(partitions)
        """They must have registered before the first job is handed out."""
        self._descriptions: dict[str, dict[str, object]] = {}
        self._parts: dict[str, dict[str, Part]] = {}
        self._waiting: list[Entry] = []
        self._usage = Usage(0, 0, 0)
        self._now = system.started_at

    def status(self, now: float) -> Answer:
        """As far as it is known without asking the managers again."""
        return answers.system_status(self.system, self._usage, self.registry, now)

    def _usage_now(self) -> Usage:
        """As the managers tell; one that does not answer counts with what it registered."""
        nodes = cores = used = 0
        for member in self.members.values():
            answer = self._asked(member, {"request": "resourcesInfo"}).get("data")
            data = answer if isinstance(answer, dict) else {}
            nodes += int(data.get("total_nodes", len(member.nodes)))
            cores += int(data.get("total_cores", sum(node.count for node in member.nodes)))
            used += int(data.get("used_cores", member.used))
        self._usage = Usage(nodes, cores, used)
        return self._usage

    # ---- requests

    def handle(self, text: bytes, now: float) -> Answer:
        self._now = now
        try:
            request = parse_request(text, lambda: self._variables(now), Dialect.LATER)
            if isinstance(request, Submit):
                return self._submit(request, msgspec.json.decode(text)["jobs"])
            return self._answer(request)
        except RequestError as error:
            return refused(str(error))

    def _answer(self, request: Request) -> Answer:
        match request:
            case Foreign(kind="register"):
                return self._register(request.params)
            case Foreign():
                return self._notified(request.params)
            case Control():
                if self.finish_when_done or self.stop_at is not None:
                    return refused("Finish request already requested")
                self.finish_when_done = True
                return ok(f"{request.command} command accepted")
            case NamedJobs():
                return self._about_jobs(request)
            case Status(all_jobs_finished=True):
                return ok(data={"AllJobsFinished": self.registry.unfinished == 0})
            case Status():
                self._usage_now()
                return ok(data=self.status(self._now))
            case Plain(kind="listJobs"):
                return ok(data=answers.job_list(self.registry, Dialect.LATER))
            case Plain(kind="resourcesInfo"):
                return ok(data=answers.resources(self._usage_now(), Dialect.LATER))
        if self.finish_when_done or self.stop_at is not None:
            return refused("Finish request already requested")
        self.stop_at = self._now + FINISH_DELAY_S
        return ok(data={"when": f"{FINISH_DELAY_S:.0f}s"})

    # ---- managers

    def _register(self, params: dict[str, object]) -> Answer:
        name, address = str(params["id"]), params["address"]
        if name in self.members:
            return refused(f'Manager with id "{name}" already registered')
        if not isinstance(address, str) or not address:
            return refused("Missing registry entity address")
        try:
            nodes, used = _nodes_of(params["resources"])
        except (KeyError, TypeError, ValueError) as error:
            return refused(f"Failed to register manager: {error!r}")
        self.members[name] = Member(name, address, nodes, used, key=str(params.get("key", "")))
        self._awaited.discard(name)
        others = len(self._order)
        self.members = dict(sorted(self.members.items(), key=lambda item: self._order.get(item[0], others)))
        cores = sum(node.count for node in nodes)
        log.info("manager %s @ %s registered: %d cores on %d nodes", name, address, cores, len(nodes))
        return ok(data={"id": name})

    def lost(self, name: str, now: float) -> None:
        """A manager is gone; what it had fails, and if it was the last, what waits does, too."""
        self._now = now
        self.members.pop(name, None)
        self._awaited.discard(name)
        for job, parts in list(self._parts.items()):
            for part in parts.values():
                if part.member == name and not part.end:
                    self.registry.entries[job].life.say(f"manager {name} is gone")
                    part.end = QCG[JobState.FAILED]
            self._look_whether_ended(job)
        if not self._awaited and not self.members:
            waiting, self._waiting = self._waiting, []
            for entry in waiting:
                entry.life.say("no manager is left")
                self._end(entry, Stimulus.FAILED)

    def _notified(self, params: dict[str, object]) -> Answer:
        attributes = params["attributes"] if isinstance(params["attributes"], dict) else {}
        name, number = attributes.get("parent_job_id"), attributes.get("parent_job_part_id")
        if name is None or number is None:
            return refused(f"Unknown job notify data {params}")
        part = self._parts.get(str(name), {}).get(str(number))
        if part is None:
            return refused(f"Job {name} unknown")
        state = str(params["state"])
        if state not in QCG.values():
            return refused(f"Job's {name} state {state} unknown")
        if state in _ENDS and not part.end:
            part.end = state
            self._look_whether_ended(str(name))
        return ok(f"job {name} updated")

    def _asked(self, member: Member, request: dict[str, object]) -> Answer:
        try:
            return self._ask(member, request)
        except PeerError as error:
            log.warning("%s", error)
            return refused(str(error))

    # ---- jobs come in

    def _submit(self, request: Submit, described: list[dict[str, object]]) -> Answer:
        if any(planned.dialect is Dialect.SPECIFICATION for planned in request.jobs):
            raise RequestError(
                "Wrong submit request: a governor takes jobs as 0.14 describes them (iteration, scheduler)"
            )
        names: set[str] = set()
        for planned in request.jobs:
            if planned.name in self.registry or planned.name in names:
                raise RequestError(f"Job {planned.name} already exist")
            names.add(planned.name)
            if self._ready and not self._fitting(planned):
                raise RequestError(f"Not enough resources for job {planned.name}")
        for planned, description in zip(request.jobs, described, strict=True):
            entry = self.registry.add(planned, self._now)
            entry.life.step(Stimulus.QUEUED, self._now)
            self._descriptions[planned.name] = description
            self._waiting.append(entry)
        accepted = [planned.name for planned in request.jobs]
        return ok(f"{len(accepted)} jobs submitted", {"submitted": len(accepted), "jobs": accepted})

    @property
    def _ready(self) -> bool:
        return bool(self.members) and not self._awaited

    def _fitting(self, planned: Planned) -> list[Member]:
        return [member for member in self.members.values() if fits_ever(planned.description.resources, member.nodes)]

    def settle(self, now: float) -> None:
        """Everything that waits for nothing any more goes to managers; what waits in vain is omitted.

        To be called when all answers are out: a manager that waits for one cannot be asked anything.
        """
        self._now = now
        again = self._ready
        while again:
            again = False
            for entry in list(self._waiting):
                after = [name for name in entry.planned.after if ":" not in name]
                states = [self._state_of(name) for name in after]
                if any(state in _ENDS and state != QCG[JobState.SUCCEEDED] for state in states):
                    self._waiting.remove(entry)
                    self._end(entry, Stimulus.OMITTED)
                    again = True
                elif all(state in _ENDS for state in states):
                    self._waiting.remove(entry)
                    self._hand_over(entry)

    def _state_of(self, name: str) -> str:
        entry = self.registry.entries.get(name)
        # A job that nobody knows will never end well.
        return state_name(entry.life.state, Dialect.LATER) if entry is not None else QCG[JobState.OMITTED]

    def _hand_over(self, entry: Entry) -> None:
        try:
            parts = self._cut(entry)
        except RequestError as error:
            entry.life.say(str(error))
            self._end(entry, Stimulus.FAILED)
            return
        self._parts[entry.name] = {str(number): part for number, part in enumerate(parts)}
        for number, part in self._parts[entry.name].items():
            member = self.members[part.member]
            job = self._part_of(entry, number, part)
            answer = self._asked(member, {"request": "submit", "jobs": [job]})
            member.jobs += 1
            if answer.get("code") != 0:
                entry.life.say(str(answer.get("message", "")))
                part.end = QCG[JobState.FAILED]
        self._look_whether_ended(entry.name)

    def _cut(self, entry: Entry) -> list[Part]:
        """Which manager gets what of a job."""
        fitting = self._fitting(entry.planned)
        if not fitting:
            raise RequestError(f"Not enough resources for job {entry.name}")
        loop = entry.description.iteration
        elsewhere = [split_name(name.replace("${it}", "0"))[0] for name in entry.planned.after if ":" in name]
        if elsewhere:
            return self._cut_like(entry, elsewhere)
        if loop is None or loop.values is not None:
            # Words of a loop are numbered from 0 by whoever runs it: they stay together.
            return [Part(min(fitting, key=lambda member: member.jobs).id)]
        size = -(-len(loop) // len(fitting))
        starts = range(loop.start, loop.stop, size)
        return [
            Part(member.id, start, min(start + size, loop.stop)) for member, start in zip(fitting, starts, strict=False)
        ]

    def _cut_like(self, entry: Entry, others: list[str]) -> list[Part]:
        """A job that waits for iterations of others goes where those are: they must have been cut alike."""
        cuts = [
            [(part.member, part.start, part.stop) for part in self._parts.get(name, {}).values()] for name in others
        ]
        loop = entry.description.iteration
        first = cuts[0]
        alike = all(cut == first for cut in cuts)
        if (
            loop is not None
            and alike
            and first
            and (first[0][1], first[-1][2]) in ((loop.start, loop.stop), (None, None))
        ):
            return [Part(*cut) for cut in first]
        if len({member for cut in cuts for member, _, _ in cut}) == 1:
            return [Part(first[0][0], loop.start if loop else None, loop.stop if loop else None)]
        raise RequestError(f"Job {entry.name} waits for iterations that other managers run than would run it")

    def _part_of(self, entry: Entry, number: str, part: Part) -> dict[str, object]:
        """The description that a manager gets."""
        job = dict(self._descriptions[entry.name])
        job["name"] = entry.name
        given = job.get("attributes")
        job["attributes"] = {
            **(given if isinstance(given, dict) else {}),
            "parent_job_id": entry.name,
            "parent_job_part_id": number,
        }
        if part.start is not None:
            job["iteration"] = {"start": part.start, "stop": part.stop}
        after = [name for name in entry.planned.after if ":" in name]
        job.pop("dependencies", None)
        if after:
            job["dependencies"] = {"after": after}
        return job

    # ---- jobs end

    def _look_whether_ended(self, name: str) -> None:
        entry = self.registry.entries.get(name)
        ends = {part.end for part in self._parts[name].values()}
        if entry is None or entry.life.final or "" in ends:
            return
        # Parts that ended alike say it all; otherwise some iterations did not succeed.
        self._end(entry, _ENDS[ends.pop()] if len(ends) == 1 else Stimulus.FAILED)

    def _end(self, entry: Entry, stimulus: Stimulus) -> None:
        entry.life.step(stimulus, self._now)
        self.registry.unfinished -= 1
        state = state_name(entry.life.state, Dialect.LATER)
        event: dict[str, object] = {"manager": self.system.instance, "job": entry.name, "state": state}
        self.publications += [("JST", event), ("JFI", event)]
        if self.registry.unfinished == 0:
            self.publications.append(("NOJ", {"manager": self.system.instance}))

    # ---- questions about jobs

    def _about_jobs(self, request: NamedJobs) -> Answer:
        if request.dialect is not Dialect.LATER:
            return refused(f"Invalid request: {missing_names(request.kind)}")
        if request.kind in ("jobStatus", "jobInfo"):
            found: dict[str, object] = {}
            for name in request.names:
                if split_name(name)[0] not in self.registry:
                    return refused(f"Job '{name}' doesn't exist")
                found[name] = self._told(name, request)
            return ok(data={"jobs": found})
        act, word = (self._cancel, "canceled") if request.kind == "cancelJob" else (self._remove, "removed")
        problems = {name: act(name) for name in request.names}
        errors = {name: problem for name, problem in problems.items() if problem is not None}
        data: Answer = {word: len(problems) - len(errors)}
        if errors:
            data["errors"] = errors
        return ok(data=data)

    def _told(self, name: str, request: NamedJobs) -> Answer:
        job, index = split_name(name)
        entry = self.registry.entries[job]
        if index is None and request.kind == "jobStatus":
            return {"status": 0, "data": answers.one_status(entry, None)}
        params = {"withChilds": request.with_childs}
        question: dict[str, object] = {"request": request.kind, "jobNames": [name], "params": params}
        replies = []
        for part in self._holders(job, index):
            answer = self._asked(self.members[part.member], question)
            data = answer.get("data")
            if not isinstance(data, dict):
                return {"status": 1, "message": answer.get("message", "")}
            replies.append(data["jobs"][name])
        if not replies:
            return {"status": 0, "data": answers.one_info(entry, None, with_childs=False)}
        if len(replies) == 1 or any(reply["status"] for reply in replies):
            return dict(next((reply for reply in replies if reply["status"]), replies[0]))
        return {"status": 0, "data": _merged(answers.one_info(entry, None, with_childs=False), replies)}

    def _holders(self, job: str, index: int | None) -> Iterator[Part]:
        for part in self._parts.get(job, {}).values():
            inside = part.start is None or part.stop is None or index is None or part.start <= index < part.stop
            if inside and part.member in self.members:
                yield part

    def _cancel(self, name: str) -> str | None:
        job, index = split_name(name)
        entry = self.registry.entries.get(job)
        if entry is None:
            return f"Job/iteration {job} doesn't exist"
        if entry.life.final:
            return f"Job/iteration {name} already finished - can not be canceled"
        if entry in self._waiting:
            self._waiting.remove(entry)
            self._end(entry, Stimulus.KILLED)
            return None
        errors = []
        for part in self._holders(job, index):
            question: dict[str, object] = {"request": "cancelJob", "jobNames": [name]}
            data = self._asked(self.members[part.member], question).get("data")
            problems = data.get("errors", {}) if isinstance(data, dict) else {name: "no answer"}
            errors += [str(problem) for problem in problems.values()]
        holders = sum(1 for _ in self._holders(job, index))
        return errors[0] if errors and len(errors) == holders else None

    def _remove(self, name: str) -> str | None:
        entry = self.registry.entries.get(name)
        if entry is None:
            return f"Job '{name}' doesn't exist"
        if not entry.life.final:
            return f"Job '{name}' not finished - can not be removed"
        for part in self._holders(name, None):
            self._asked(self.members[part.member], {"request": "removeJob", "jobNames": [name]})
        self.registry.remove(name)
        self._parts.pop(name, None)
        del self._descriptions[name]
        return None


def _nodes_of(resources: object) -> tuple[tuple[Node, ...], int]:
    """The nodes that a manager registers with, and how many of their cores are taken."""
    if not isinstance(resources, dict):
        raise TypeError("resources must be a dictionary")
    nodes: list[Node] = []
    first = used = 0
    for raw in resources["nodes"]:
        count = int(raw["total_cores"])
        nodes.append(Node(str(raw["name"]), first, count))
        first += count
        used += count - len(raw["free_cores"])
    return tuple(nodes), used


def _merged(whole: Answer, replies: list[Answer]) -> Answer:
    """jobInfo of a loop whose parts several managers have."""
    parts = [reply["data"] for reply in replies]
    loops = [part["iterations"] for part in parts if isinstance(part, dict) and "iterations" in part]
    whole["iterations"] = {
        "start": min(loop["start"] for loop in loops),
        "stop": max(loop["stop"] for loop in loops),
        **{key: sum(loop[key] for loop in loops) for key in ("total", "finished", "failed")},
    }
    children = [child for part in parts if isinstance(part, dict) for child in part.get("childs", ())]
    if children:
        whole["childs"] = sorted(children, key=lambda child: int(child["iteration"]))
    return whole
