"""Between a run and its key-value service: requests are recognised and never run, barriers and results are told."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable

import pytest

from pilothouse.dropins.disbatch.bridge import Bridge, KvsTasks, status_line
from pilothouse.dropins.disbatch.mail import Mailer
from pilothouse.formats.task_file import TaskReader
from pilothouse.model.lifecycle import JobState
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
