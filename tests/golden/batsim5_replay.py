"""Recorded runs of the real Batsim 5, and components to run them again: the recorded one, and a few simple ones.

A component here is a peer at the other end of a channel: it gets bytes and gives bytes.
"""

from __future__ import annotations

import gzip
import json
import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pilothouse.dropins.batsim5.inputs import Batsim5Inputs
from pilothouse.dropins.batsim5.options import parse
from pilothouse.dropins.batsim5.outputs import Batsim5Outputs
from pilothouse.dropins.batsim5.run import Log, run
from pilothouse.protocols.batprotocol.channel import Channel
from pilothouse.protocols.batprotocol.decider import EdcDecider

HERE = Path(__file__).parent / "batsim5"
NOT_COMPARED = {  # what depends on where the recording was made
    "batprotocol_version",
    "batsim_arguments",
    "batsim_commit",
    "batsim_execution_context_json",
    "batsim_version",
    "external_event_lists",
    "workloads",
}
HELLO = {
    "batprotocol_version": "1.0.0",
    "decision_component_name": "test",
    "decision_component_version": "1",
    "decision_component_commit": "",
    "requested_simulation_features": {},
}


class Recording:
    """One folder of recordings."""

    def __init__(self, folder: Path, inputs: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self._inputs = inputs
        self.replacing: dict[str, str] = {}
        """Files to use instead of recorded ones."""

    def text(self, name: str) -> str | None:
        plain, packed = self.folder / name, self.folder / f"{name}.gz"
        if plain.exists():
            return plain.read_text()
        return gzip.decompress(packed.read_bytes()).decode() if packed.exists() else None

    @property
    def exit_code(self) -> int:
        return int((self.text("exit_code") or "0").strip())

    def messages(self) -> tuple[list[Any], list[Any]]:
        """What Batsim sent, and what the component answered (the hello first)."""
        sent: list[Any] = []
        answered: list[Any] = []
        if (lines := self.text("transcript.jsonl")) is not None:
            for line in map(json.loads, lines.splitlines()):
                if line["dir"] == "batsim->edc":
                    sent.append(line["msg"])
                elif line["dir"].startswith("edc->batsim"):
                    answered.append(line["msg"])
        elif (lines := self.text("transcript.jsonl.txt")) is not None:
            for text in lines.splitlines():
                who, _, message = text.partition(" ")
                if who in ("Sending", "Received"):
                    (sent if who == "Sending" else answered).append(json.loads(message))
        return sent, answered

    def arguments(self, prefix: str) -> list[str]:
        """The recorded command line, with files found here and a component that is replaced later."""
        words = shlex.split((self.text("command.txt") or "").rpartition("&")[2])[1:]
        fixed: list[str] = []
        todo = iter(words)
        for word in todo:
            if word in ("-s", "-L"):
                fixed += ["-s", "inproc://recorded", "init"]
                next(todo)
                next(todo)
            elif word == "-e":
                fixed += ["-e", prefix]
                next(todo)
            elif word in self.replacing:
                fixed.append(self.replacing[word])
            elif word.startswith("in/"):
                own = self.folder / word
                found = own if own.exists() else next(self._inputs.rglob(word[3:]))
                fixed.append(str(found))
            else:
                fixed.append(word)
        return fixed

    def run(self, channel: Channel, prefix: str) -> tuple[int, float]:
        """Runs the drop-in with this component; the exit code, and the date of the end."""
        arguments = self.arguments(prefix)
        options = parse([*arguments, "-q"])
        outputs = Batsim5Outputs(
            options.export,
            energy=options.energy_host,
            machine_states=options.trace_machine_state,
            pstate_changes=options.trace_pstate_changes,
        )
        server = Batsim5Inputs(options, arguments).server(outputs)
        return run(server, outputs, EdcDecider(channel), Log("quiet")), server.agenda.now


class RecordedComponent:
    """Answers as recorded, whatever it hears; keeps what it heard."""

    name = "recorded"

    def __init__(self, answers: list[Any]) -> None:
        self._answers: Iterator[Any] = iter(answers)
        self.heard: list[Any] = []

    def hello(self, init: bytes) -> tuple[int, bytes]:
        return 2, json.dumps(next(self._answers)).encode()

    def exchange(self, message: bytes) -> bytes:
        assert message.endswith(b"\0"), "JSON is sent with a trailing zero"
        self.heard.append(json.loads(message[:-1]))
        return json.dumps(next(self._answers)).encode()

    def close(self) -> None:
        """Nothing is held open."""


class SimpleComponent:
    """The base of components that decide: `on` gets each event and appends orders with `say`."""

    name = "simple"

    def __init__(self) -> None:
        self.features: dict[str, bool] = {}
        self.now = 0.0
        self.heard: list[Any] = []
        self._orders: list[Any] = []

    def say(self, kind: str, **event: object) -> None:
        self._orders.append({"timestamp": self.now, "event_type": kind, "event": event})

    def execute(self, job_id: str, hosts: str) -> None:
        allocation = {
            "host_allocation": hosts,
            "executor_placement_type": "PredefinedExecutorPlacementStrategyWrapper",
            "executor_placement": {},
        }
        self.say("ExecuteJobEvent", job_id=job_id, allocation=allocation)

    def on(self, kind: str, event: Any) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Called after all events of a message."""

    def hello(self, init: bytes) -> tuple[int, bytes]:
        event = {**HELLO, "requested_simulation_features": self.features}
        message = {"now": 0, "events": [{"timestamp": 0, "event_type": "EDCHelloEvent", "event": event}]}
        return 2, json.dumps(message).encode()

    def exchange(self, message: bytes) -> bytes:
        heard = json.loads(message.rstrip(b"\0"))
        self.heard.append(heard)
        self.now = heard["now"]
        self._orders = []
        for item in heard["events"]:
            self.on(item["event_type"], item["event"])
        self.finish()
        return json.dumps({"now": self.now, "events": self._orders}).encode()

    def close(self) -> None:
        """Nothing is held open."""


class OneByOne(SimpleComponent):
    """Runs one job at a time, on the first hosts."""

    def __init__(self) -> None:
        super().__init__()
        self._hosts = 0
        self._queue: list[tuple[str, int]] = []
        self._busy = False

    def on(self, kind: str, event: Any) -> None:
        if kind == "SimulationBeginsEvent":
            self._hosts = event["computation_host_number"]
        elif kind == "JobSubmittedEvent":
            wanted = event["job"]["resource_request"]
            if wanted > self._hosts:
                self.say("RejectJobEvent", job_id=event["job_id"])
            else:
                self._queue.append((event["job_id"], wanted))
        elif kind == "JobCompletedEvent":
            self._busy = False

    def finish(self) -> None:
        if self._queue and not self._busy:
            job_id, count = self._queue.pop(0)
            self.execute(job_id, "0" if count == 1 else f"0-{count - 1}")
            self._busy = True


class Rejecter(SimpleComponent):
    """Rejects every job; `calls` are asked for at the beginning."""

    def __init__(self, calls: tuple[dict[str, object], ...] = ()) -> None:
        super().__init__()
        self._calls = calls
        self.called: list[tuple[float, str, bool]] = []

    def on(self, kind: str, event: Any) -> None:
        if kind == "SimulationBeginsEvent":
            for call in self._calls:
                self.say("CallMeLaterEvent", **call)
        elif kind == "JobSubmittedEvent":
            self.say("RejectJobEvent", job_id=event["job_id"])
        elif kind == "RequestedCallEvent":
            self.called.append((self.now, event["call_me_later_id"], event["last_periodic_call"]))


def same(a: Any, b: Any) -> bool:
    """Equal but for places, and for dates closer than two microseconds."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=2e-6)
    if isinstance(a, dict) and isinstance(b, dict):
        return all(same(a.get(key), b.get(key)) for key in (a.keys() | b.keys()) - NOT_COMPARED)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def difference(name: str, want: str, got: str) -> str:
    """Where two output files differ; "" if nowhere. Numbers may differ in their last digit."""
    theirs, ours = want.splitlines(), got.splitlines()
    if len(theirs) != len(ours):
        return f"{name}: {len(ours)} lines, {len(theirs)} expected"
    for number, (a, b) in enumerate(zip(theirs, ours, strict=True), 1):
        for x, y in zip(a.replace('"', ",").split(","), b.replace('"', ",").split(","), strict=True):
            try:
                equal = x == y or same(float(x.strip(": ")), float(y.strip(": ")))
            except ValueError:
                equal = x == y
            if not equal:
                return f"{name}:{number}: {b!r}, expected {a!r}"
    return ""
