"""Plays the scheduler of a recorded run of Batsim 2.0.0 against `pilothouse batsim2`, and says what differs.

In: a recording (one JSON file), the folder of platforms, and a Redis server where the recording used one. Out: the
differences, in words. Names of workloads are digests of paths: the recorded ones are replaced by those of this run.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any

import redis

import components
from golden.batsim4_player import FILES, Player, run, same
from pilothouse.cli.batsim2 import command

UNTOLD = "(a text that says so)"
NOT_HELD = ("scheduling_time", "simulation_time", "wattmin")
"""Columns that depend on the machine, or on the version of SimGrid alone."""


def read(path: Path) -> dict[str, Any]:
    recording: dict[str, Any] = json.loads(path.read_text())
    return recording


class Batsim2Player(Player):
    """Puts into Redis what the recorded scheduler put there, before each answer."""

    def __init__(self, endpoint: str, talk: list[dict[str, Any]], client: redis.Redis | None) -> None:
        self._talk = iter(talk)
        self._client = client
        self.seen_first: dict[str, str] = {}
        texts = (turn["answer"] for turn in talk)
        super().__init__(endpoint, [(text if isinstance(text, str) else json.dumps(text)).encode() for text in texts])

    def answer(self, prepared: bytes, heard: bytes) -> bytes:
        turn = next(self._talk)
        if self._client is not None:
            self.seen_first = self.seen_first or stored(self._client)
            for key, value in (turn.get("put_into_redis") or {}).items():
                self._client.set(key, value)
        return prepared


Event = dict[str, Any]
Decide = Callable[[float, list[Event], str], list[Event]]
"""Date, events and the name of the workload -> decisions."""


def event(now: float, kind: str, **data: object) -> Event:
    return {"timestamp": now, "type": kind, "data": data}


class Conversation:
    """One run under a scheduler that is a function: `code`, `stderr`, `heard` (messages), `rows` (of jobs.csv)."""

    def __init__(
        self,
        folder: Path,
        jobs: list[dict[str, Any]],
        decide: Decide,
        *more: str,
        profiles: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
        platform: Path,
    ) -> None:
        path = folder / "w0.json"
        path.write_text(json.dumps({"nb_res": 4, "jobs": jobs, "profiles": PROFILES | (profiles or {})}))
        self.workload = sha1(str(path.resolve()).encode()).hexdigest()[:6]
        arguments = ["-p", str(platform), "-w", str(path), "-s", f"ipc://{folder}/s", "-e", str(folder / "out"), *more]
        if config is not None:
            (folder / "conf.json").write_text(json.dumps(config))
            arguments += ["--config-file", str(folder / "conf.json")]
        talk = self

        class Scheduler(Player):
            def answer(self, prepared: bytes, heard: bytes) -> bytes:
                message = json.loads(heard)
                talk.heard.append(message)
                events = decide(message["now"], message["events"], talk.workload)
                now = max([message["now"], *(event["timestamp"] for event in events)])
                return json.dumps({"now": now, "events": events}).encode()

        self.heard: list[dict[str, Any]] = []
        scheduler = Scheduler(f"ipc://{folder}/s", [b""] * 1000)
        try:
            self.code, self.stderr = run(arguments, command)
        finally:
            scheduler.close()
        self.rows = list(csv.DictReader((folder / "out_jobs.csv").open()))

    @property
    def kinds(self) -> list[list[str]]:
        """The types of events of each message."""
        return [[event["type"] for event in message["events"]] for message in self.heard]

    def events(self, kind: str) -> list[Event]:
        return [event for message in self.heard for event in message["events"] if event["type"] == kind]


PROFILES = {f"d{seconds}": {"type": "delay", "delay": seconds} for seconds in (2, 5, 10)}


def job(name: str, at: float = 0, profile: str = "d2", **more: object) -> dict[str, Any]:
    return {"id": name, "subtime": at, "res": 1, "walltime": 100, "profile": profile} | more


def stored(client: redis.Redis) -> dict[str, str]:
    return {key.decode(): (client.get(key) or b"").decode() for key in client.scan_iter()}


def differences(
    recording: dict[str, Any], platforms: Path, folder: Path, server: components.RedisServer | None
) -> list[str]:
    """Plays a recording in an empty folder. `server`: needed by recordings with Redis, which is emptied."""
    recording, arguments = _prepared(recording, platforms, folder, server)
    client = None
    if recording["redis"]:
        assert server is not None
        client = redis.Redis(host=server.host, port=server.port)
        client.flushall()
    player = Batsim2Player(arguments[arguments.index("-s") + 1], recording["talk"], client)
    try:
        code, stderr = run(arguments, command)
    finally:
        player.close()
    found = []
    if bool(recording["exit_code"]) != bool(code):
        found.append(f"exit code {code} instead of {recording['exit_code']}: {stderr.strip()}")
    wanted = [turn["from_batsim"] for turn in recording["talk"]]
    heard = [json.loads(message) for message in player.heard]
    found += [f"message {i}: {b} instead of {a}" for i, (a, b) in enumerate(zip(wanted, heard, strict=False)) if not alike(a, b)]
    if len(wanted) != len(heard):
        found.append(f"{len(heard)} messages instead of {len(wanted)}: {heard[len(wanted):]}")
    if client is not None:
        with client:
            for name, now in (("redis_at_begin", player.seen_first), ("redis_at_end", stored(client))):
                if now != recording[name]:
                    found.append(f"{name}: {now} instead of {recording[name]}")
    if recording["exit_code"] == 0:
        found += _files(recording["files"], folder)
    return found


def _prepared(
    recording: dict[str, Any], platforms: Path, folder: Path, server: components.RedisServer | None
) -> tuple[dict[str, Any], list[str]]:
    """The recording in the words of this run, and the arguments."""
    port = server.port if server is not None else 0
    for number, workload in enumerate(recording["workloads"]):
        (folder / f"w{number}.json").write_text(json.dumps(workload))
    if recording["config"] is not None:
        config = dict(recording["config"])
        if recording["redis"]:
            config["redis"] = {"enabled": True, "hostname": "127.0.0.1", "port": port, "prefix": "seed"}
        (folder / "conf.json").write_text(json.dumps(config))
    text = json.dumps(recording)
    opening = recording["talk"][0]["from_batsim"]["events"][0]["data"]
    for name, path in opening["workloads"].items():
        here = str(folder.resolve() / Path(path).name)
        text = text.replace(name, sha1(here.encode()).hexdigest()[:6])
    recording = json.loads(text.replace("$WD", str(folder.resolve())).replace('"PORT"', str(port)))
    given = {"platform.xml": str(platforms / f"batsim2-platform-{recording['platform']}.xml")}
    given |= {"tcp://127.0.0.1:PORT": f"ipc://{folder}/s", "out": str(folder / "out")}
    arguments = [
        str(folder / argument) if argument.endswith(".json") else given.get(argument, argument)
        for argument in recording["args"]
    ]
    return recording, arguments


def alike(want: object, got: object) -> bool:
    """The same, where a recorded text stands for any."""
    if isinstance(want, dict) and isinstance(got, dict):
        return want.keys() == got.keys() and all(alike(want[key], got[key]) for key in want)
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(map(alike, want, got))
    return (want == UNTOLD and bool(got)) or same(want, got)


def _files(recorded: dict[str, list[list[str]]], folder: Path) -> Iterator[str]:
    for name in FILES:
        file = f"out_{name}.csv"
        path = folder / file
        want = recorded.get(file)
        if want is None or not path.exists():
            if (want is None) == path.exists():
                yield f"{file}: written here: {path.exists()}"
            continue
        got = list(csv.reader(path.read_text().splitlines()))
        if name == "jobs":
            # Rows are by workload, whose names differ from run to run.
            want, got = ([table[0], *sorted(table[1:], key=lambda row: (row[-1], row[4]))] for table in (want, got))
        if len(want) != len(got) or want[0] != got[0]:
            yield f"{file}: {got} instead of {want}"
            continue
        for number, (row, other) in enumerate(zip(want, got, strict=True)):
            for column, a, b in zip(want[0], row, other, strict=True):
                if a != b and column not in NOT_HELD:
                    yield f"{file}, row {number}, {column}: {b} instead of {a}"
