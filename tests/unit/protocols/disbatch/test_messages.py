"""disBatch's messages: read without running anything, written so that Python reads them."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
from math import inf
from pathlib import Path

import pytest
from msgspec import structs

from pilothouse.protocols.disbatch import messages as d
from pilothouse.protocols.disbatch import pickles
from pilothouse.protocols.disbatch.messages import StopRequest, read_controller
from pilothouse.protocols.disbatch.pickles import UnknownClass


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("rank", [0, 3, 255, 70_000, 3_000_000_000])
def test_a_monitors_wish_is_recognised(protocol: int, rank: int) -> None:
    data = pickle.dumps(("stop engine", rank), protocol)
    assert read_controller(data) == StopRequest("engine", rank)


class Evil:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (self.path,))


def test_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for message in (Evil(str(trap)), ("stop engine", Evil(str(trap))), (Evil(str(trap)), "stop engine", 3)):
            with pytest.raises(UnknownClass):
                read_controller(pickle.dumps(message, protocol))
    assert not trap.exists()


@pytest.mark.parametrize("data", [b"", b"\x80", b"garbage", b"\xff" * 100, pickle.dumps(("start engine", 3)), b"x" * 5000])
def test_everything_else_is_no_wish(data: bytes) -> None:
    assert read_controller(data) is None


TASK = d.TaskInfo(7, 3, -1, b"echo \xff", "P", ".per engine 0", 2, "a key")
REPORT = d.TaskReport(TASK, "n1", 99, -9, 1.5, 2.5, 4, "out\n", 0, "")
CONTEXT = d.Context(1, "L", "SSH", ("n1", "n2"), (2, 4), (3, 1), 5, ("A", "B"))
INFO = d.run_info("tasks", "/tmp/x", "/tmp", {"cpusPerTask": -1.0, "tasksPerNode": inf}, 2)


@pytest.mark.parametrize("edition", [2, 3])
@pytest.mark.parametrize(
    ("message", "means"),
    [
        (("register", ("engine", "123")), d.Register("engine", "123")),
        (("stop context", 4), d.StopRequest("context", 4)),
        (("engine started", (0, 1, "host", 9, 1.25)), d.EngineStarted(0, 1, "host", 9, 1.25)),
        (("engine stopped", ("OK", 3)), d.EngineStopped("OK", 3)),
        (("cylinder available", (0, 1, 2, ".cylinder 0 0")), d.CylinderAvailable(0, 1, 2, ".cylinder 0 0")),
        (("cylinder stopped", (0, ".cylinder 0 0")), d.CylinderStopped(0, ".cylinder 0 0")),
        (("task heart beat", 17), d.HeartBeat(None, (17,))),
        (("engine heart beats", (2, [(2, 17), (2, -1)])), d.HeartBeat(2, (17, -1))),
        *(((word, None), d.Internal(word)) for word in d.INTERNAL),
        (("hello", None), None),
        (("register", "engine"), None),
        (("task done", (1, 2, 3, "k")), None),
        (3, None),
    ],
)
def test_messages_to_the_driver(message: object, means: object, edition: int) -> None:
    assert d.read_controller(pickles.write(message)) == means
    assert d.read_controller(pickle.dumps(message)) == means


@pytest.mark.parametrize("edition", [2, 3])
def test_tasks_reports_and_contexts_come_back(edition: int) -> None:
    expected = REPORT if edition == 2 else structs.replace(REPORT, task=structs.replace(TASK, age=0))
    age = (2,) if edition == 2 else ()
    done = ("task done", (d.task_report(REPORT, edition), 0, 1, *age, ".cylinder 0 1"))
    assert d.read_controller(pickles.write(done)) == d.TaskDone(expected, 0, 1, ".cylinder 0 1")
    shown = d.context(CONTEXT, INFO, {"context_task_limit": 5}, edition)
    assert d.read_controller(pickles.write(("context info", shown))) == d.ContextInfo(CONTEXT)


@pytest.mark.parametrize(
    "value", [None, True, -1, 2**40, -(2**70), 1.5, inf, "é\udcff", b"\0\xff", [], [1, [2]], (), (1, (2,)), {"a": {}}]
)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read_and_written_as_python_does(value: object, protocol: int) -> None:
    assert pickle.loads(pickles.write(value)) == value
    if not (isinstance(value, bytes) and protocol < 3):  # Python calls a function for those
        assert pickles.read(pickle.dumps(value, protocol)) == value


def test_what_a_damaged_pickle_says_is_no_value() -> None:
    whole = pickles.write(("task done", (d.task_report(REPORT, 3), 0, 1, "k")))
    rng = random.Random(1)
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(pickles.Malformed):
            d.read_controller(bytes(data[: rng.randint(1, len(data))]))


@pytest.mark.parametrize(
    "data",
    [b"cos\nsystem\n(S'true'\ntR.", b"\x80\x04\x8c\x05posix\x8c\x06system\x93.", b"(i__main__\nTaskInfo\n.",
     b"\x80\x02c__main__\nTaskInfo\n.", b"\x80\x02c__main__\nTaskInfo\n(K\x01t\x81.", b"(((((", b"t.", b"0.", b"h\x05.",
     b"Vx\n."],
)  # fmt: skip
def test_nothing_is_called(data: bytes) -> None:
    with contextlib.suppress(pickles.Malformed):
        assert isinstance(pickles.read(data), str)
