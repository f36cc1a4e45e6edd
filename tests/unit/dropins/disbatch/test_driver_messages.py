"""Messages of disBatch's design notes that a short run does not have: heart beats, and a feeder that fails."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pilothouse.dropins.disbatch import bridge as bridge_module
from pilothouse.dropins.disbatch.bridge import Bridge
from pilothouse.dropins.disbatch.foreign_engines import fed
from pilothouse.dropins.disbatch.kvs_engine import KvsEngine, Service
from pilothouse.formats.task_file import TaskLine, TaskReader
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.disbatch import messages as d
from pilothouse.protocols.disbatch import pickles
from pilothouse.worlds.live.services.kvs import PICKLE
from pilothouse.worlds.live.services.kvs_client import ADDRESS_VARIABLE, KvsClient
from pilothouse.worlds.live.services.kvs_server import KvsServer
from unit.dropins.disbatch.test_bridge import InProcess, ended


class Heard(InProcess):
    """Keeps what the driver is told; nothing takes it away."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def put(self, key: str, data: bytes, coding: bytes = b"") -> None:
        if key == ".controller":
            self.told.append(pickles.read(data))


def test_a_feeder_that_fails_says_so() -> None:
    told: list[tuple[str, object]] = []

    def lines() -> Iterator[TaskLine]:
        yield from TaskReader("t").read([b"true\n"])
        raise OSError("the disk is gone")

    fed_lines = iter(fed(lines(), lambda word, value: told.append((word, value)), 2))
    assert next(fed_lines) is not None
    with pytest.raises(OSError, match="the disk is gone"):
        next(fed_lines)
    assert [word for word, _ in told] == ["task", "feeder exception"] and told[-1][1] is None


def test_a_driver_looks_for_heart_beats_every_thirty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(bridge_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    kvs = Heard()
    bridge = Bridge(kvs, edition=2)
    for now in (100.0, 129.0, 130.0, 131.0, 160.5):
        clock.now = now
        bridge.update()
    assert kvs.told == [("driver heart beat", None)] * 2


def test_a_task_that_is_lost_is_told_as_one_without_a_heart_beat() -> None:
    kvs = Heard()
    lost = msgspec.structs.replace(ended(7, -100, command=b"sleep 9"), state=JobState.LOST)
    Bridge(kvs, edition=2).write([lost])
    ((word, (info, cylinder, began, seen)),) = kvs.told
    assert (word, cylinder, began, seen) == ("task hb fail", ".cylinder 0 0", 1.0, 2.5)
    assert (d.read_task_info(info).task_id, d.read_task_info(info).command) == (7, b"sleep 9")


@pytest.mark.parametrize(
    ("edition", "said"),
    [(2, [("task heart beat", 4), ("task heart beat", 9)]), (3, [("engine heart beats", (1, [(1, 4), (1, 9)]))])],
)
def test_an_engine_tells_that_its_tasks_run(edition: int, said: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with KvsServer() as server, KvsClient(server.address) as client:
        monkeypatch.setenv(ADDRESS_VARIABLE, server.address)
        server.put(".common env", pickles.write({}), PICKLE)
        service = Service()
        engine = KvsEngine(service, d.Context(0, "c", "SSH", ("n",), (2,), (1,)), "n", 1, edition)
        engine._running = {9: None, 4: None}  # type: ignore[dict-item]
        engine._beat()
        service.close()
        told = [pickles.read(client.get(".controller").data) for _ in range(1 + len(said))]
    assert told[0][0] == "engine started" and told[1:] == said
