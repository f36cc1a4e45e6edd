"""Everything that goes through the key-value service in a run of the dialect 2021: the messages of disBatch's design notes.

Driver, context and engine are ours; that the real ones understand them is held in test_disbatch_messages.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from disbatch_runs import clean_env
from interop.test_disbatch_messages import OURS
from pilothouse.protocols.disbatch import messages as d
from pilothouse.protocols.disbatch import pickles
from pilothouse.worlds.live.services.kvs import PICKLE, KeyValueStore, Value
from pilothouse.worlds.live.services.kvs_server import KvsServer

TASKS = """#DISBATCH PERENGINE echo begin
echo one
exit 3
#DISBATCH BARRIER first key
#DISBATCH BARRIER second key
echo two
"""
EARLIER = "    \t1\t2\t-1\told\t7\t0\t1.500\t100.000\t101.500\t0\t''\t0\t''\t'echo one'\n"
"""Task 1 of an earlier run."""


class Put(NamedTuple):
    key: str
    value: Any
    """The object that was pickled, or the bytes of what was not."""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Put]]:
    """All that was put, in its order."""
    folder = tmp_path_factory.mktemp("conversation")
    (folder / "tasks").write_text(TASKS)
    (folder / "old").write_text(EARLIER)
    puts: list[Put] = []

    class Listening(KeyValueStore):
        def put(self, key: bytes, value: Value) -> None:
            puts.append(Put(key.decode(), pickles.read(value.data) if value.coding == PICKLE else value.data))
            super().put(key, value)

    with KvsServer() as server:
        server._store.__class__ = Listening
        command = [*OURS, "--dialect", "2021", "-S", "-p", "serv", "--kvsserver", server.address, "-r", "old", "tasks"]
        driver = subprocess.Popen(command, cwd=folder, env=clean_env(), stdout=subprocess.DEVNULL)
        try:
            env = {**clean_env(), "DISBATCH_KVSSTCP_HOST": server.address}
            context = [*OURS, "--dialect", "2021", "--context", "util.sh", "-s", "localhost:2"]
            ran = subprocess.run(context, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
            assert ran.returncode == 0, ran.stderr
            assert driver.wait(30) == 0
        finally:
            driver.kill()
            driver.wait()
    yield puts


def told(said: list[Put], word: str) -> list[Any]:
    """What the controller was told under a word."""
    return [put.value[1] for put in said if put.key == ".controller" and put.value[0] == word]


def under(said: list[Put], key: str) -> list[Any]:
    return [put.value for put in said if put.key == key]


def test_the_driver_shows_the_run_first(said: list[Put]) -> None:
    assert said[0].key == ".db info"
    assert under(said, ".db info")[0].state["name"] == "tasks"
    assert under(said, "DisBatch status")[0] == b"<Starting...>"
    assert under(said, ".common env") == [{"DISBATCH_JOBID": "serv", "DISBATCH_NAMETASKS": "tasks"}]


def test_a_context_registers_and_tells_of_itself(said: list[Put]) -> None:
    (which, key), *_ = told(said, "register")
    assert which == "context" and under(said, key) == [0]
    (shown,) = under(said, ".context_0")
    assert d.read_context(shown) == d.read_context(told(said, "context info")[0])


def test_an_engine_registers_starts_and_stops(said: list[Put]) -> None:
    _, (which, key) = told(said, "register")
    assert which == "engine" and under(said, key) == [0]
    ((rank, context, host, pid, date),) = told(said, "engine started")
    assert (rank, context) == (0, 0) and host and pid > 0 and date > 0
    assert told(said, "engine stopped") == [("OK", 0)]
    assert under(said, "engine 0") == ["running", "engine stopped"]


def test_cylinders_are_available_get_tasks_and_stop(said: list[Put]) -> None:
    keys = [f".cylinder 0 {number}" for number in (0, 1)]
    available = told(said, "cylinder available")
    assert sorted((rank, key) for rank, _, _, key in available) == [(0, key) for key in keys]
    orders = [put.value for put in said if put.key in keys]
    tasks = [d.read_task_info(value) for word, value in orders if word == "task"]
    assert sorted((task.task_id, task.command) for task in tasks) == [(2, b"exit 3"), (5, b"echo two")]
    assert [word for word, _ in orders].count("stop") == 2
    assert sorted(told(said, "cylinder stopped")) == [(0, key) for key in keys]


def test_the_feeder_hands_tasks_over(said: list[Put]) -> None:
    tasks = [d.read_task_info(value) for value in told(said, "task")]
    assert [(task.task_id, task.kind) for task in tasks if task.kind == "N"] == [(1, "N"), (2, "N"), (5, "N")]
    assert [task.task_id for task in tasks if task.kind == "P"] == [0]
    special = [d.read_task_info(value) for value in told(said, "special task")]
    assert [(task.task_id, task.kind, task.barrier_key) for task in special] == [(3, "B", "first key"), (4, "B", "second key")]
    assert told(said, "no more tasks") == [6]


def test_a_task_of_an_earlier_run_is_skipped(said: list[Put]) -> None:
    (skipped,) = (d.read_task_info(value) for value in told(said, "task skipped"))
    assert (skipped.task_id, skipped.kind) == (1, "S")


def test_cylinders_report_their_tasks(said: list[Put]) -> None:
    reports = [d.read_controller(pickles.write(("task done", value))) for value in told(said, "task done")]
    found = {done.report.task.task_id: done.report for done in reports if isinstance(done, d.TaskDone)}
    assert {task_id: report.return_code for task_id, report in found.items()} == {0: 0, 2: 3, 5: 0}
    assert found[5].out_text == "two\n"


def test_per_engine_tasks_and_passed_barriers_are_posted_for_engines(said: list[Put]) -> None:
    posted = [(put.key, put.value[0], d.read_task_info(put.value[1])) for put in said if put.key.startswith(".per engine ")]
    assert [(key, word, task.task_id) for key, word, task in posted] == [
        (".per engine 0", "task", 0),
        (".per engine 1", "barrier notification", 3),
        (".per engine 2", "barrier notification", 4),
    ]


def test_barriers_have_their_ids_under_their_keys_and_are_cleared_together(said: list[Put]) -> None:
    assert (under(said, "first key"), under(said, "second key")) == ([b"3"], [b"4"])
    assert told(said, "clearing barriers") == [None]
