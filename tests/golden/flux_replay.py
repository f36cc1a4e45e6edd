"""Replays recorded conversations between Flux's job manager and a scheduler against our engines, in either role.

A recording is a list of JSON lines of three origins: messages seen inside real Flux's job-manager and resource modules
(01-16), on the wire of a scheduler (11, 22), and between two earlier programs (20, 21). `load` brings them to one form.
"""

from __future__ import annotations

import errno
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.formats import fluid, jobspec, resource_set
from pilothouse.model.events import Batch
from pilothouse.model.idset import IdSet
from pilothouse.policies.catalog import make
from pilothouse.protocols.rfc27 import frames, payloads, rpc
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.handshake import Phase
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine
from pilothouse.protocols.rfc27.scheduler_adapter import SchedulerAdapter

FOLDER = Path(__file__).parent / "flux"

NODES = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-3", "children": {"gpu": "0-1", "core": "0-15"}}],
        "starttime": 0.0, "expiration": 0.0, "nodelist": ["node[0-3]"],
    },
}  # fmt: skip
"""The machine of the recordings that begin after the handshake."""

WHOLE = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-3", "children": {"core": "0-15", "gpu": "0-1"}}],
        "nslots": 4, "starttime": 1.0, "expiration": 0.0, "nodelist": ["node[0-3]"],
    },
}  # fmt: skip


class Line(msgspec.Struct):
    """One message. `to_manager`: said by the scheduler."""

    to_manager: bool
    request: bool
    topic: str
    errnum: int
    payload: Any


def names() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir())


def load(name: str) -> list[Line]:
    path = FOLDER / name
    data = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    return [line for text in data.splitlines() if (line := _line(json.loads(text))) is not None]


def _line(raw: dict[str, Any]) -> Line | None:
    if "case" in raw:
        return None
    to_manager = raw["dir"] in ("rx", "sched>flux", "sched>mgr")
    if raw.get("module") == "resource" and raw["topic"].startswith("job-manager."):
        return None
    errnum = raw.get("errnum") or (raw.get("aux1", 0) if raw["type"] == "response" else 0)
    return Line(to_manager, raw["type"] == "request", raw["topic"], errnum, raw.get("payload"))


def encoded(payload: Any) -> bytes | None:
    return None if payload is None else msgspec.json.encode(payload)


def essence(resources: dict[str, Any]) -> Any:
    """What counts of an R: who gets what, and for how long."""
    found = resource_set.from_object(resources)
    duration = round(found.expiration_s - found.start_s, 3) if found.expiration_s else None
    return found.ranks, found.hosts, found.slots, duration


class SchedulerReplay:
    """Our scheduler (engine, instance and fcfs) hears what the recorded manager said."""

    def __init__(self, lines: list[Line], running: dict[int, dict[str, Any]], *, strict: bool = False) -> None:
        self.lines = lines
        self.answers: dict[int, list[tuple[Any, ...]]] = {}
        self.frees: list[int] = []
        self.others: list[tuple[str, int, Any]] = []
        self.values: dict[str, bytes] = {}
        """What was in the KVS already."""
        self.committed: dict[str, bytes] = {}
        """What we put there."""
        self._strict = strict
        self._hello: list[Line] = []
        self._inventory: Any = {"resources": NODES, "up": "0-3"}
        self._ready: Line | None = None
        self.hold(running)

    def hold(self, running: dict[int, dict[str, Any]]) -> None:
        for job_id, held in running.items():
            self.values[fluid.kvs_key(job_id, "R")] = msgspec.json.encode(held)
            known = {"id": job_id, "priority": 16, "userid": 0, "t_submit": 1.0}
            self._hello.append(Line(False, False, "job-manager.sched-hello", 0, known))

    def run(self) -> None:
        self._learn_values()
        spoken = (line for line in self.lines if line.topic == "resource.acquire" or line.topic.startswith("sched."))
        first = next(spoken, None)
        if first is None or first.topic != "resource.acquire" or not first.to_manager:
            self._start()
        for number, line in enumerate(self.lines):
            if line.topic == "resource.acquire" and line.to_manager:
                self._handshake_of(number)
                self._start()
            elif not line.to_manager and line.request:
                asked = rpc.request(line.topic, encoded(line.payload), matchtag=9 if "check" in line.topic else 0)
                asked.rolemask = frames.ROLE_OWNER
                self.hear(asked)
            elif line.topic == "resource.acquire" and not line.to_manager and "resources" not in line.payload:
                self.hear(Message(frames.RESPONSE, line.topic, encoded(line.payload) + b"\0", self.acquire_tag, 0,
                                   frames.STREAMING))  # fmt: skip

    def _learn_values(self) -> None:
        """What the KVS held, where the recording shows it."""
        key = ""
        for line in self.lines:
            if line.topic == "kvs.lookup" and line.request:
                key = line.payload["key"]
            elif line.topic == "kvs.lookup" and line.payload is not None:
                self.values[key] = payloads.value_of(msgspec.convert(line.payload["val"], payloads.Dirent))
            elif line.topic == "sched.alloc" and line.to_manager and line.payload.get("type") == 0:
                self.values[fluid.kvs_key(line.payload["id"], "R")] = msgspec.json.encode(line.payload["R"])

    def _handshake_of(self, number: int) -> None:
        answers = [line for line in self.lines[number:] if not line.to_manager and not line.request]
        self._inventory = next(line.payload for line in answers if line.topic == "resource.acquire")
        hello = [line for line in answers if line.topic == "job-manager.sched-hello"]
        end = next(i for i, line in enumerate(hello) if line.errnum or "alloc" in line.payload)
        self._hello = hello[: end + 1] if not hello[end].errnum else hello[:end]
        self._ready = next(line for line in answers if line.topic == "job-manager.sched-ready")

    def _start(self) -> None:
        self.engine = SchedulerEngine(strict=self._strict)
        self.adapter = SchedulerAdapter()
        self.adapter.engine = self.engine
        self.decider: PolicyDecider | None = None
        self.acquire_tag = 0
        self.engine.begin()
        self._settle()
        assert self.engine.phase is Phase.ONLINE

    def hear(self, message: Message) -> None:
        self.engine.receive(message)
        self._settle()

    def _settle(self) -> None:
        while messages := self.engine.take():
            for message in messages:
                for answer in self._answered(message):
                    self.engine.receive(answer)
            self._think()
        self._think()
        if self.engine.out or self.engine.busy:
            self._settle()

    def _think(self) -> None:
        self.adapter.handle(0.0, self.engine.take_events())
        if self.decider is None and self.engine.phase is Phase.ONLINE:
            self.cluster = Cluster(self.adapter.begins(0.0), "fcfs")
            self.decider = PolicyDecider(make("fcfs", {}))
            self.decider.begin(self.cluster.begins, self.cluster)
        while self.decider is not None and self.adapter.events:
            self.adapter.apply(1000.0, self.decider.decide(Batch(0.0, self.adapter.take_events())).decisions)

    def _answered(self, message: Message) -> list[Message]:
        """The broker's part: everything but the recorded requests to us."""
        body = json.loads(message.body()) if message.payload is not None and not message.errnum else None
        if message.type == frames.RESPONSE:
            self._note(message, body)
            return []
        if message.topic == "resource.acquire":
            self.acquire_tag = message.matchtag
            return [rpc.respond(message, encoded(self._inventory), streaming=True)]
        if message.topic == "job-manager.sched-hello":
            return self._hello_jobs(message)
        if message.topic == "job-manager.sched-ready":
            return [rpc.respond(message, encoded(self._ready.payload if self._ready else {"count": 0}))]
        if message.topic == "kvs.commit":
            for operation in body["ops"]:
                dirent = msgspec.convert(operation["dirent"], payloads.Dirent)
                self.committed[operation["key"]] = payloads.value_of(dirent)
        if message.topic == "kvs.lookup":
            value = self.values.get(body["key"])
            if value is None:
                return [rpc.respond_error(message, errno.ENOENT)]
            found = payloads.LookupAnswer(payloads.Dirent(1, "val", payloads.encoded_value(value)))
            return [rpc.respond(message, payloads.encode(found))]
        return [rpc.respond(message)]

    def _hello_jobs(self, message: Message) -> list[Message]:
        if self._strict and not message.streaming:
            found = [line.payload for line in self._hello if "alloc" not in line.payload]
            array = next((line.payload for line in self._hello if "alloc" in line.payload), {"alloc": found})
            return [rpc.respond(message, encoded(array))]
        answers = [rpc.respond(message, encoded(line.payload), streaming=True) for line in self._hello]
        if not any("alloc" in line.payload for line in self._hello):
            answers.append(rpc.respond_error(message, errno.ENODATA))
        return answers

    def _note(self, message: Message, body: Any) -> None:
        if message.topic == "sched.alloc":
            # RFC 27, Implementation: errnum and matchtag are zero
            assert message.errnum == 0 and message.matchtag == 0
            if body["type"] == 0:
                # Alloc Success: R is in the KVS before the answer; the specification's answer does not repeat it
                committed = json.loads(self.committed[fluid.kvs_key(body["id"], "R")])
                assert body.get("R", committed) == committed
                assert self._strict or "R" in body
                body["R"] = committed
            if body["type"] != payloads.AllocType.ANNOTATE:
                self.answers.setdefault(body["id"], []).append(_answer(body))
        elif message.topic == "sched.free":
            self.frees.append(body["id"])
        else:
            self.others.append((message.topic, message.errnum, body))

    def recorded(self) -> dict[int, list[tuple[Any, ...]]]:
        found: dict[int, list[tuple[Any, ...]]] = {}
        for line in self.lines:
            if line.topic == "sched.alloc" and line.to_manager and line.payload["type"] != payloads.AllocType.ANNOTATE:
                found.setdefault(line.payload["id"], []).append(_answer(line.payload))
        return found


def in_the_specifications_words(replay: SchedulerReplay) -> None:
    """Turns what a manager of today said into what the specification's says: bare alloc and free requests."""
    for line in replay.lines:
        if line.request and not line.to_manager and line.topic == "sched.alloc":
            found = line.payload.pop("jobspec", None)
            if found is not None:
                replay.values[fluid.kvs_key(line.payload["id"], "jobspec")] = msgspec.json.encode(found)
        elif line.request and not line.to_manager and line.topic == "sched.free":
            line.payload = {"id": line.payload["id"]}


def _answer(body: dict[str, Any]) -> tuple[Any, ...]:
    return (body["type"], essence(body["R"])) if body["type"] == payloads.AllocType.SUCCESS else (body["type"],)


def ranks(text: str) -> IdSet:
    return IdSet.parse_strict(text)


def spec_of(payload: Any) -> bytes:
    """The jobspec of an alloc request; a stand-in where the recording left it out."""
    found = payload.get("jobspec")
    if isinstance(found, dict):
        return msgspec.json.encode(found)
    return jobspec.encode(jobspec.Jobspec(slots=1, cores_per_slot=1, command=("true",)))
