"""A governor over virtual managers: real governor, real managers; only processes, time and sockets are made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pilothouse.dropins.qcg.governor import Governor, Member
from pilothouse.dropins.qcg.manager import System
from pilothouse.model.errors import PeerError
from pilothouse.protocols.qcg.client import Registration
from unit.dropins.qcg.virtual import Outcome, VirtualPilot


class Fleet:
    """A governor, and managers on virtual nodes that report to it."""

    def __init__(
        self, *sizes: int, partitions: tuple[str, ...] = (), outcome: Callable[[str], Outcome] = lambda name: (1.0, 0, "")
    ) -> None:
        self.pilots: dict[str, VirtualPilot] = {}
        self.silent: set[str] = set()
        self.now = 0.0
        self._outcome = outcome
        self._told: set[int] = set()
        self._ended: list[object] = []
        self.governor = Governor(System("gov", 0.0), self._ask, lambda: "u", partitions=partitions)
        for size in sizes:
            self.join(size)

    def join(self, *cores: int, reserved: int = 0) -> dict[str, Any]:
        """Another manager, with nodes of so many cores."""
        name = f"m{len(self.pilots)}"
        self.pilots[name] = VirtualPilot(*cores, outcome=self._outcome)
        nodes = [(f"{name}n{number or ''}", count) for number, count in enumerate(cores)]
        registration = Registration(name, f"tcp://{name}", nodes, reserved)
        return self.ask({"request": "register", "entity": "manager", "params": registration.params()})

    def _ask(self, member: Member, request: dict[str, object]) -> dict[str, object]:
        if member.id in self.silent:
            raise PeerError(member.address, "no answer")
        return self.pilots[member.id].ask(request)

    def ask(self, request: object) -> dict[str, Any]:
        answer = self.governor.handle(msgspec.json.encode(request), self.now)
        self.governor.settle(self.now)
        return answer

    def lose(self, name: str) -> None:
        self.governor.lost(name, self.now)
        self.governor.settle(self.now)

    def submit(self, *jobs: object) -> dict[str, Any]:
        return self.ask({"request": "submit", "jobs": list(jobs)})

    def about(self, kind: str, name: str, **params: object) -> Any:
        answer = self.ask({"request": kind, "jobNames": [name], "params": params})
        return answer["data"]["jobs"][name]["data"] if kind in ("jobStatus", "jobInfo") else answer["data"]

    def state(self, name: str) -> str:
        return str(self.about("jobStatus", name)["status"])

    def run(self) -> None:
        """Managers run what they have, and tell of whole jobs that ended, until nothing is left."""
        while answers := self.advance(float("inf")):
            assert all(answer["code"] == 0 for answer in answers), answers

    def advance(self, seconds: float) -> list[dict[str, Any]]:
        """Managers run for so long, one after the other, and tell of whole jobs that ended. The governor's answers."""
        answers = []
        for pilot in self.pilots.values():
            pilot.run(pilot.now + seconds)
            for entry in list(pilot.manager.queue.registry.entries.values()):
                if entry.status.final and id(entry) not in self._told:
                    self._told.add(id(entry))
                    self._ended.append(entry)  # its id is not given to another
                    state = pilot.ask({"request": "jobStatus", "jobNames": [entry.name]})
                    params = {
                        "name": entry.name,
                        "state": state["data"]["jobs"][entry.name]["data"]["status"],  # type: ignore[index]
                        "attributes": entry.description.attributes,
                    }
                    answers.append(self.ask({"request": "notify", "entity": "job", "params": params}))
        return answers

    def held(self, job: str) -> dict[str, Any]:
        """Manager -> the range of indexes of a job that it has."""
        return {
            name: entry.description.iteration and (entry.description.iteration.start, entry.description.iteration.stop)
            for name, pilot in self.pilots.items()
            for entry in pilot.manager.queue.registry.entries.values()
            if entry.name == job
        }


def job(name: str, cores: int = 1, **more: object) -> dict[str, object]:
    return {"name": name, "execution": {"exec": "/bin/true"}, "resources": {"numCores": {"exact": cores}}, **more}
