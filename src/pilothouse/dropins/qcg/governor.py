"""A governor: a manager without nodes, which hands jobs to the managers that registered with it.

    client ──request──► Governor ──ask──► managers        each with nodes and a working directory of its own
    client ◄──answer───┘   ▲
                           └── register, notify ◄── managers

A loop is cut into one range of indexes for each manager; a single job goes to the manager that got the fewest so far.
Only managers that are large enough are considered. A job that depends on others stays here until those have ended; one
that depends on iterations (`after: ["a:${it}"]`) goes where those are. No socket, process or clock: `ask` sends one
request to one manager and returns its answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from pilothouse.dropins.qcg.manager import RequestHandler, System, ok, one_info, one_status, refused
from pilothouse.dropins.qcg.registry import Entry, Registry, Usage, split_name, state_name
from pilothouse.formats.qcg_dialect import LATER
from pilothouse.formats.qcg_requests import ManagerReport, NamedJobs, RequestError, Submit, SubmittedJob
from pilothouse.formats.qcg_workload import fits_ever
from pilothouse.model.errors import PeerError
from pilothouse.model.job import Node
from pilothouse.model.lifecycle import ENDS, QCG, JobState, Stimulus
from pilothouse.protocols.qcg.network import Answer

log = logging.getLogger("pilothouse.qcg")

_FINAL = (JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED, JobState.OMITTED)
_ENDS = {QCG[state]: ENDS[state] for state in _FINAL}
Ask = Callable[["Member", dict[str, object]], Answer]
"""Sends a request to a manager and returns its answer. Raises PeerError if there is none."""


class Member(msgspec.Struct):
    """A manager that has registered."""

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


class Governor(RequestHandler):
    """Requests in, answers out; jobs go to managers."""

    def __init__(self, system: System, ask: Ask, new_id: Callable[[], str], *, partitions: tuple[str, ...] = ()) -> None:
        """`partitions` names the managers that the governor starts itself; without any, managers register on their own."""
        super().__init__(system, Registry(), new_id, dialect=LATER)
        self.members: dict[str, Member] = {}
        """Its own partitions in their order, then others as they came: the first gets the first share of a loop."""
        self.publications: list[tuple[str, dict[str, object]]] = []
        self.last_usage = Usage(0, 0, 0)
        self._ask = ask
        self._order = {name: number for number, name in enumerate(partitions)}
        self._awaited = set(partitions)
        """They must have registered before the first job is handed out."""
        self._descriptions: dict[str, dict[str, Any]] = {}
        self._parts: dict[str, dict[str, Part]] = {}
        self._waiting: list[Entry] = []

    def usage(self) -> Usage:
        """Asks all managers. One that does not answer counts with what it registered."""
        nodes = cores = used = 0
        for member in self.members.values():
            answer = self._asked(member, {"request": "resourcesInfo"}).get("data")
            data = answer if isinstance(answer, dict) else {}
            nodes += int(data.get("total_nodes", len(member.nodes)))
            cores += int(data.get("total_cores", sum(node.count for node in member.nodes)))
            used += int(data.get("used_cores", member.used))
        self.last_usage = Usage(nodes, cores, used)
        return self.last_usage

    # ---- managers

    def _reported(self, report: ManagerReport) -> Answer:
        return self._register(report.params) if report.kind == "register" else self._notified(report.params)

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
        """A manager is gone. Its jobs fail; if it was the last, the waiting ones fail as well."""
        self._now = now
        self.members.pop(name, None)
        self._awaited.discard(name)
        for job, parts in list(self._parts.items()):
            for part in parts.values():
                if part.member == name and not part.end:
                    self.registry.entries[job].status.say(f"manager {name} is gone")
                    part.end = QCG[JobState.FAILED]
            self._end_if_all_parts_did(job)
        if not self._awaited and not self.members:
            waiting, self._waiting = self._waiting, []
            for entry in waiting:
                entry.status.say("no manager is left")
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
            self._end_if_all_parts_did(str(name))
        return ok(f"job {name} updated")

    def _asked(self, member: Member, request: dict[str, object]) -> Answer:
        try:
            return self._ask(member, request)
        except PeerError as error:
            log.warning("%s", error)
            return refused(str(error))

    # ---- jobs come in

    def _submit(self, request: Submit, text: bytes) -> list[str]:
        for job in self._new(request.jobs):
            if self._ready and not self._fitting(job):
                raise RequestError(f"Not enough resources for job {job.name}")
        for job, description in zip(request.jobs, msgspec.json.decode(text)["jobs"], strict=True):
            self._descriptions[job.name] = description
            self._waiting.append(self.registry.add(job, self._now))
        return [job.name for job in request.jobs]

    @property
    def _ready(self) -> bool:
        return bool(self.members) and not self._awaited

    def _fitting(self, job: SubmittedJob) -> list[Member]:
        return [member for member in self.members.values() if fits_ever(job.description.resources, member.nodes)]

    def settle(self, now: float) -> None:
        """Hands jobs whose dependencies are met to managers; omits jobs whose dependencies can never be met.

        Call it when all answers are out: a manager that waits for an answer cannot answer a question.
        """
        self._now = now
        again = self._ready
        while again:
            again = False
            for entry in list(self._waiting):
                after = [name for name in entry.submitted.after if ":" not in name]
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
        # A dependency on an unknown job is never met.
        return state_name(entry.status.state) if entry is not None else QCG[JobState.OMITTED]

    def _hand_over(self, entry: Entry) -> None:
        try:
            parts = self._cut(entry)
        except RequestError as error:
            entry.status.say(str(error))
            self._end(entry, Stimulus.FAILED)
            return
        self._parts[entry.name] = {str(number): part for number, part in enumerate(parts)}
        for number, part in self._parts[entry.name].items():
            member = self.members[part.member]
            job = self._part_of(entry, number, part)
            answer = self._asked(member, {"request": "submit", "jobs": [job]})
            member.jobs += 1
            if answer.get("code") != 0:
                entry.status.say(str(answer.get("message", "")))
                part.end = QCG[JobState.FAILED]
        self._end_if_all_parts_did(entry.name)

    def _cut(self, entry: Entry) -> list[Part]:
        """Which manager gets what of a job."""
        fitting = self._fitting(entry.submitted)
        if not fitting:
            raise RequestError(f"Not enough resources for job {entry.name}")
        loop = entry.description.iteration
        elsewhere = [split_name(name.replace("${it}", "0"))[0] for name in entry.submitted.after if ":" in name]
        if elsewhere:
            return self._cut_like(entry, elsewhere)
        if loop is None or loop.values is not None:
            # A manager numbers the values of a loop from 0, so they cannot be split.
            return [Part(min(fitting, key=lambda member: member.jobs).id)]
        size = -(-len(loop) // len(fitting))
        starts = range(loop.start, loop.stop, size)
        return [
            Part(member.id, start, min(start + size, loop.stop)) for member, start in zip(fitting, starts, strict=False)
        ]

    def _cut_like(self, entry: Entry, others: list[str]) -> list[Part]:
        """A job that depends on iterations of others goes where those are: they must have been cut alike."""
        cuts = [
            [(part.member, part.start, part.stop) for part in self._parts.get(name, {}).values()] for name in others
        ]
        holders = {member for cut in cuts for member, _, _ in cut}
        if gone := sorted(holders - self.members.keys()):
            raise RequestError(f"Job {entry.name} waits for iterations of manager {gone[0]}, which is gone")
        loop, first = entry.description.iteration, cuts[0]
        alike = bool(first) and all(cut == first for cut in cuts)
        if loop is not None and alike and (first[0][1], first[-1][2]) in ((loop.start, loop.stop), (None, None)):
            return [Part(*cut) for cut in first]
        if len(holders) == 1:
            return [Part(holders.pop(), loop.start if loop else None, loop.stop if loop else None)]
        raise RequestError(f"Job {entry.name} waits for iterations that other managers run than would run it")

    def _part_of(self, entry: Entry, number: str, part: Part) -> dict[str, object]:
        """The description that a manager gets."""
        described = self._descriptions[entry.name]
        given = described["attributes"] if isinstance(described.get("attributes"), dict) else {}
        attributes = {**given, "parent_job_id": entry.name, "parent_job_part_id": number}
        job = {**described, "name": entry.name, "attributes": attributes}
        if part.start is not None:
            job["iteration"] = {"start": part.start, "stop": part.stop}
        job.pop("dependencies", None)
        if after := [name for name in entry.submitted.after if ":" in name]:
            job["dependencies"] = {"after": after}
        return job

    # ---- jobs end

    def _end_if_all_parts_did(self, name: str) -> None:
        entry = self.registry.entries.get(name)
        ends = {part.end for part in self._parts[name].values()}
        if entry is None or entry.status.final or "" in ends:
            return
        # If the parts ended differently, some iterations did not succeed.
        self._end(entry, _ENDS[ends.pop()] if len(ends) == 1 else Stimulus.FAILED)

    def _end(self, entry: Entry, stimulus: Stimulus) -> None:
        entry.status.step(stimulus, self._now)
        self.registry.unfinished -= 1
        state = state_name(entry.status.state)
        event: dict[str, object] = {"manager": self.system.instance, "job": entry.name, "state": state}
        self.publications += [("JST", event), ("JFI", event)]
        if self.registry.unfinished == 0:
            self.publications.append(("NOJ", {"manager": self.system.instance}))

    # ---- questions about jobs

    def _about_jobs(self, request: NamedJobs) -> Answer:
        if request.kind not in ("jobStatus", "jobInfo"):
            return self._change_each(request)
        found: dict[str, object] = {}
        for name in request.names:
            if split_name(name)[0] not in self.registry.entries:
                return refused(f"Job '{name}' doesn't exist")
            found[name] = self._about_one(name, request)
        return ok(data={"jobs": found})

    def _about_one(self, name: str, request: NamedJobs) -> Answer:
        job, index = split_name(name)
        entry = self.registry.entries[job]
        if index is None and request.kind == "jobStatus":
            return {"status": 0, "data": one_status(entry, None)}
        replies = []
        for answer in self._ask_holders(name, request.kind, params={"withChilds": request.with_childs}):
            data = answer.get("data")
            if not isinstance(data, dict):
                return {"status": 1, "message": answer.get("message", "")}
            replies.append(data["jobs"][name])
        if not replies:
            return {"status": 0, "data": one_info(entry, None, with_childs=False)}
        if len(replies) == 1 or any(reply["status"] for reply in replies):
            return dict(next((reply for reply in replies if reply["status"]), replies[0]))
        return {"status": 0, "data": _merged(one_info(entry, None, with_childs=False), replies)}

    def _ask_holders(self, name: str, kind: str, **more: object) -> list[Answer]:
        """The answers of all managers that have the job or iteration."""
        request = {"request": kind, "jobNames": [name], **more}
        job, index = split_name(name)
        found = []
        for part in self._parts.get(job, {}).values():
            inside = part.start is None or part.stop is None or index is None or part.start <= index < part.stop
            if inside and part.member in self.members:
                found.append(self._asked(self.members[part.member], request))
        return found

    def _cancel(self, name: str) -> str | None:
        job, _ = split_name(name)
        entry = self.registry.entries.get(job)
        if entry is None:
            return f"Job/iteration {job} doesn't exist"
        if entry.status.final:
            return f"Job/iteration {name} already finished - can not be canceled"
        if entry in self._waiting:
            self._waiting.remove(entry)
            self._end(entry, Stimulus.KILLED)
            return None
        errors: list[str] = []
        replies = self._ask_holders(name, "cancelJob")
        for reply in replies:
            data = reply.get("data")
            problems = data.get("errors", {}) if isinstance(data, dict) else {name: "no answer"}
            errors += [str(problem) for problem in problems.values()]
        return errors[0] if errors and len(errors) == len(replies) else None

    def _forget(self, entry: Entry) -> None:
        self._ask_holders(entry.name, "removeJob")
        del self.registry.entries[entry.name]
        self._parts.pop(entry.name, None)
        del self._descriptions[entry.name]


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


def _merged(whole: Answer, replies: list[dict[str, Any]]) -> Answer:
    """jobInfo of a loop whose parts several managers have."""
    parts = [reply["data"] for reply in replies]
    loops = [part["iterations"] for part in parts]
    whole["iterations"] = {
        "start": min(loop["start"] for loop in loops),
        "stop": max(loop["stop"] for loop in loops),
        **{key: sum(loop[key] for loop in loops) for key in ("total", "finished", "failed")},
    }
    children = [child for part in parts for child in part.get("childs", ())]
    if children:
        whole["childs"] = sorted(children, key=lambda child: int(child["iteration"]))
    return whole
