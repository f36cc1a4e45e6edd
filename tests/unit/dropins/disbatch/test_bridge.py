"""Between a run and its key-value service: requests are recognised and never run, barriers and results are told."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator

import pytest
from msgspec import structs

from pilothouse.dropins.disbatch.bridge import Bridge, KvsTasks, status_line
from pilothouse.dropins.disbatch.foreign_engines import PerEngine, fed
from pilothouse.dropins.disbatch.mail import Mailer
from pilothouse.formats.task_file import LineKind, TaskLine, TaskReader
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.disbatch import pickles
from pilothouse.protocols.disbatch.messages import read_task_info
from pilothouse.protocols.disbatch.pickles import Instance
from pilothouse.worlds.live.records import Assigned, EngineJoined, EngineLeft, TaskEnded
from pilothouse.worlds.live.services.kvs import JSON, TEXT, KeyValueStore, Reader, Value


class InProcess:
    """A service without sockets: the store itself."""

    address = "nowhere:0"

    def __init__(self) -> None:
        self.store = KeyValueStore()

    def put(self, key: str, data: bytes, coding: bytes = TEXT) -> None:
        self.store.put(key.encode(), Value(coding, data))

    def replace(self, key: str, data: bytes, coding: bytes = TEXT) -> None:
        self.store.replace(key.encode(), Value(coding, data))

    def listen(self, key: str, receive: Callable[[Value], None]) -> None:
        def deliver(value: Value) -> None:
            receive(value)
            self.store.read(Reader(key.encode(), True, deliver))

        self.store.read(Reader(key.encode(), True, deliver))

    def close(self) -> None:
        pass

    def get(self, key: str) -> Value | None:
        return self.store.shelf.pop_oldest(key.encode())


def ended(task_id: int, code: int = 0, kind: str = "N", command: bytes = b"true", rank: int = 0) -> TaskEnded:
    state = JobState.FAILED if code else JobState.SUCCEEDED
    return TaskEnded(
        task_id, task_id + 1, -1, 1, kind, state, code, rank, "n1#2", 7, 1.0, 2.5, 3, b"out", 0, b"", command
    )


def test_passed_barriers_are_told_under_their_keys() -> None:
    kvs = InProcess()
    bridge = Bridge(kvs)
    bridge.write([ended(4, kind="B", command=b"#DISBATCH BARRIER my key")])
    bridge.write([ended(5, kind="C", command=b"#DISBATCH BARRIER CHECK")])
    told = kvs.get("my key")
    assert told is not None and told.data == b"4"
    assert json.loads(_status(kvs, bridge))["barriers"] == 2


def _status(kvs: InProcess, bridge: Bridge) -> bytes:
    bridge.update(at_once=True)
    value = kvs.get("DisBatch status")
    assert value is not None and value.coding == JSON
    return value.data


def test_the_status_counts_what_happens() -> None:
    kvs = InProcess()
    bridge = Bridge(kvs)
    joined = EngineJoined("e", 0, "J7", "n1#2", 4, 0, 99, 10.0)
    bridge.write([joined, Assigned(1, "0", "e", "0", 11.0, [None, None, None])])  # type: ignore[list-item]
    bridge.write([ended(0), ended(1, 2)])
    shown = json.loads(_status(kvs, bridge))
    (engine,) = shown["engines"].values()
    assert (engine["hostname"], engine["assigned"], engine["finished"], engine["failed"]) == ("n1", 1, 2, 1)
    assert shown["contexts"]["0"]["label"] == "J7" and shown["currentReturnCode"] == 2
    stopped: list[str] = []

    def stop(name: str) -> bool:
        stopped.append(name)
        return True

    kvs.put(".controller", pickle.dumps(("stop context", 0)), b"PYPK")
    kvs.put(".controller", pickle.dumps(("stop engine", 5)), b"PYPK")
    bridge.answer_requests(stop, stop)
    assert stopped == ["J7"], "an engine that is not there cannot be stopped"
    assert next(iter(json.loads(_status(kvs, bridge))["engines"].values()))["status"] == "stopping"
    bridge.write([EngineLeft("e", 20.0, "done")])
    assert next(iter(json.loads(_status(kvs, bridge))["engines"].values()))["status"] == "stopped"


def test_tasks_and_results_of_a_source() -> None:
    kvs = InProcess()
    rung: list[bool] = []
    tasks = KvsTasks(kvs, lambda: rung.append(True), TaskReader("source", lenient=True))
    bridge = Bridge(kvs, tasks=tasks)
    lines = iter(tasks)
    assert next(lines) is None
    for key, value in (("name", b"me"), ("done task", b"END"), ("result key", b"res"), ("task key", b"in")):
        kvs.put(f"task source {key}", value)
    assert tasks.signed_in.is_set() and tasks.name == "me"
    kvs.put("in", b"a\nb")
    kvs.put("in", b"c")
    got = [next(lines) for _ in range(3)]
    assert [(line.task_id, line.line_number, line.command) for line in got if line] == [(0, 1, "a"), (1, 1, "b"), (2, 2, "c")]
    assert next(lines) is None and rung
    bridge.write([ended(1, 3)])
    done, result = kvs.get("res done tasks"), kvs.get("res 1")
    assert done is not None and done.data == b"1"
    assert result is not None and json.loads(result.data)["ReturnCode"] == 3
    kvs.put("in", b"END")
    assert next(lines, "over") == "over"


def test_a_record_becomes_a_status_line() -> None:
    line = status_line(ended(3, -9, command=b"echo \xff"))
    assert (line.node, line.flags, line.out_snippet) == ("n1", "RO  ", "out")
    assert line.command == "echo \udcff"


def test_mail_that_cannot_be_sent_is_logged_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    import smtplib

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr(smtplib, "SMTP", refuse)
    mailer = Mailer("me@example.org", 2, "run")
    for task_id in range(6):
        mailer.note([status_line(ended(task_id))])
    assert [record.getMessage() for record in caplog.records].count(caplog.records[0].getMessage()) == 1
    assert "nobody there" in caplog.text


class Watched(InProcess):
    """Also keeps what is said under `.controller`."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, object]] = []

    def put(self, key: str, data: bytes, coding: bytes = TEXT) -> None:
        if key == ".controller":
            self.said.append(pickles.read(data))
        super().put(key, data, coding)


def test_what_the_driver_of_2021_says_to_itself() -> None:
    kvs = Watched()
    bridge = Bridge(kvs, edition=2)
    text = b"#DISBATCH PERENGINE echo E\none\n#DISBATCH BARRIER\n#DISBATCH BARRIER CHECK\n"
    lines = list(fed(TaskReader("", lenient=True, edition=2).read(text.splitlines()), bridge.say, 2))
    assert [line.task_id for line in lines if line] == [0, 1, 2, 3]
    assert [word for word, _ in kvs.said] == ["task", "task", "special task", "special task", "no more tasks"]
    assert kvs.said[-1] == ("no more tasks", 4)
    infos = [read_task_info(value) for _, value in kvs.said[:-1] if isinstance(value, Instance)]
    assert [(info.task_id, info.kind, info.age) for info in infos] == [(0, "P", 0), (1, "N", 1), (2, "B", 1), (3, "C", 2)]
    kvs.said.clear()
    lost = structs.replace(ended(1, -100), state=JobState.LOST, final=False)
    bridge.write([lost, ended(2, kind="B", command=b"#DISBATCH BARRIER"), ended(3, kind="C", command=b"#DISBATCH BARRIER CHECK")])
    assert [word for word, _ in kvs.said] == ["task hb fail", "clearing barriers"]
    bridge._beat_at = 0.0
    bridge.update()
    assert kvs.said[-1] == ("driver heart beat", None)

    def broken() -> Iterator[TaskLine | None]:
        yield None
        raise ValueError("the source")

    with pytest.raises(ValueError, match="the source"):
        list(fed(broken(), bridge.say, 2))
    assert kvs.said[-1] == ("feeder exception", None)


def test_engines_are_told_of_barriers_and_commands_in_order() -> None:
    kvs = Watched()
    told = PerEngine(kvs.put, 2)
    first, second = (TaskLine(number, number + 1, -1, f"echo {number}", LineKind.PER_ENGINE) for number in (0, 3))
    told.post_lists([first], [], complete=True)
    told.barrier_passed(ended(2, kind="B", command=b"#DISBATCH BARRIER"))
    told.post_lists([first, second], [], complete=True)
    found = [pickles.read(value.data) for age in range(3) if (value := kvs.get(f".per engine {age}")) is not None]
    assert [(word, read_task_info(info).task_id) for word, info in found] == [
        ("task", 0), ("barrier notification", 2), ("task", 3),
    ]  # fmt: skip
    later = PerEngine(kvs.put, 3)
    later.post_lists([first], [], complete=False)
    assert kvs.get(".per engine START 0") is None
    later.post_lists([first], [second], complete=True)
    keys = [f".per engine {word} {number}" for word in ("START", "STOP") for number in (0, 1)]
    posted = [pickles.read(value.data)[0] for key in keys if (value := kvs.get(key)) is not None]
    assert posted == ["task", "stop"] * 2
