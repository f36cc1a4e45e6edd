"""Habits of Flux's own schedulers that its users and its test suite rely on."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from pilothouse.formats import resource_set
from pilothouse.formats.resource_set import RankResources, ResourceSet
from pilothouse.model import events as e
from pilothouse.model.events import NodeOrder
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.protocols.rfc27 import frames, scheduler_adapter
from pilothouse.protocols.rfc27 import scheduler_events as s
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.job_conversion import our_id
from pilothouse.protocols.rfc27.payloads import HelloJob
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine
from pilothouse.protocols.rfc27.scheduler_adapter import SchedulerAdapter
from pilothouse.protocols.rfc27.world import ALLOC, flux_world
from unit.protocols.rfc27.pair import Pair, body, inventory, of_owner, spec
from unit.protocols.rfc27.reconnecting import ReconnectingPair


def adapter_of(nodes: int = 2, **more: Any) -> SchedulerAdapter:
    made = SchedulerAdapter()
    made.engine = SchedulerEngine()
    everything = msgspec.structs.replace(resource_set.parse(inventory(nodes)), **more)
    made.handle(0.0, [s.Inventory(everything, IdSet.span(0, nodes))])
    return made


def held(job_id: int, *ranks: int) -> s.JobHolds:
    parts = tuple(RankResources(rank, IdSet.span(0, 2)) for rank in ranks)
    return s.JobHolds(HelloJob(job_id, 16, 1000), ResourceSet(ranks=parts))


def raised(adapter: SchedulerAdapter) -> list[tuple[int, int, str]]:
    sent = [body(message) for message in adapter.engine.take() if message.topic == "job-manager.raise"]
    return [(sent["id"], sent["severity"], sent["type"]) for sent in sent]


@pytest.mark.parametrize("later", [False, True])
def test_a_running_job_on_ranks_that_are_not_there_gets_an_exception(later: bool) -> None:
    adapter = adapter_of()
    if later:
        adapter.handle(0.0, [s.Ready(False, 0)])
    adapter.handle(1.0, [held(5, 7), held(6, 1, 7), held(8, 0), s.Ready(False, 0)])
    assert raised(adapter) == [(5, 0, "scheduler-restart"), (6, 0, "scheduler-restart")]
    found = [event for event in adapter.take_events() if isinstance(event, e.JobHolds)] if later else adapter.begins(1.0).running
    # what it holds of ranks that are there is not given to others before it is free
    assert {run.job.id: run.units for run in found} == {our_id(6): IdSet.span(4, 2), our_id(8): IdSet.span(0, 2)}


def test_the_instances_own_scheduling_data_is_part_of_each_r() -> None:
    adapter = adapter_of(scheduling={"test": ["data"]})
    adapter.handle(0.0, [s.Ready(False, 0)])
    job = Job("flux!f1", 2)
    grant = adapter.machine.grant(job, IdSet.span(0, 2), 2, 1.0)
    assert json.loads(grant.resources)["scheduling"] == {"test": ["data"]}
    adapter.machine.scheduling = None
    assert "scheduling" not in json.loads(adapter.machine.grant(job, IdSet.span(0, 2), 2, 1.0).resources)


def test_a_free_request_without_final_is_a_part() -> None:
    pair = Pair(nodes=2, cores=4)
    pair.connect()
    job_id = pair.submit(1, nodes=2)
    pair.settle()
    part = resource_set.parse(pair.manager.jobs[job_id].resources).only(IdSet.of([1]))
    payload = msgspec.json.encode({"id": job_id, "R": resource_set.to_object(part)})
    pair.engine.receive(of_owner(Message(frames.REQUEST, "sched.free", payload + b"\0", 0, 0, 0, ())))
    pair._think(0.0)
    assert pair.cluster.running[our_id(job_id)].units == IdSet.of([0]) and pair.cluster.free == 7
    rest = resource_set.parse(pair.manager.jobs[job_id].resources).only(IdSet.of([0]))
    payload = msgspec.json.encode({"id": job_id, "R": resource_set.to_object(rest), "final": True})
    pair.engine.receive(of_owner(Message(frames.REQUEST, "sched.free", payload + b"\0", 0, 0, 0, ())))
    pair._think(0.0)
    assert not pair.cluster.running and pair.cluster.free == 8


def test_properties_and_the_end_of_the_instance_are_those_of_the_last_handshake() -> None:
    pair = ReconnectingPair(nodes=2)
    pair.connect()
    pair.take_told()
    pair.lose()
    everything = resource_set.parse(inventory(2))
    pair.broker._inventory = resource_set.encode(
        msgspec.structs.replace(everything, properties={"fast": IdSet.of([1])}, expiration_s=500.0)
    )
    pair.reconnect()
    joined = [node.name for event in pair.take_told() if isinstance(event, e.NodesJoined) for node in event.nodes]
    assert joined == ["n1"]
    job_id = pair.submit(1, constraints={"properties": ["fast"]}, duration_s=9000.0)
    pair.settle()
    granted = resource_set.parse(pair.manager.jobs[job_id].resources)
    assert [entry.rank for entry in granted.ranks] == [1] and granted.expiration_s == 500.0


def test_a_client_that_has_gone_is_no_line_in_the_log() -> None:
    pair = Pair(nodes=2, cores=4)
    pair.connect()
    for topic in ("sched.disconnect", "feasibility.disconnect"):
        for rolemask in (frames.ROLE_OWNER, 2):
            gone = Message(frames.REQUEST, topic, None, 0, 0, 0, ())
            gone.userid, gone.rolemask = 9999, rolemask
            pair.engine.receive(gone)
    assert pair.engine.take_warnings() == [] and pair.engine.take() == []


def test_memory_of_a_slot_is_no_obstacle() -> None:
    """Flux's inventories say nothing of memory; sched-simple does not count it either."""
    pair = Pair(nodes=1, cores=4)
    pair.connect()
    asked = json.loads(spec(1))
    asked["resources"][0]["with"].append({"type": "memory", "count": 4, "unit": "GB"})
    pair.manager.submit(0.0, 1 << 24, json.dumps(asked).encode())
    pair.settle()
    assert list(pair.manager.holding) == [1 << 24]


@pytest.mark.parametrize(
    ("alloc", "summaries"),
    [
        (None, ["rank[0-1]/core0", "rank0/core[1-2]", "rank0/core3", "rank1/core[1-2]"]),
        ("first-fit", ["rank[0-1]/core0", "rank0/core[1-2]", "rank0/core3", "rank1/core[1-2]"]),
        ("worst-fit", ["rank[0-1]/core0", "rank2/core[0-1]", "rank0/core1", "rank1/core[1-2]"]),
        ("best-fit", ["rank[0-1]/core0", "rank0/core[1-2]", "rank0/core3", "rank1/core[1-2]"]),
    ],
)
def test_the_order_of_cores_is_a_choice(alloc: str | None, summaries: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    order = None if alloc is None else ALLOC[alloc]
    # The pair makes its adapter without options.
    monkeypatch.setattr(scheduler_adapter.SchedulerAdapter.__init__, "__defaults__", (order,))
    pair = Pair(nodes=3, cores=4)
    pair.connect()
    jobs = [pair.submit(1, nodes=2)]
    pair.settle()
    for cores in (2, 1, 2):
        jobs.append(pair.submit(cores))
        pair.settle()
    found = [pair.manager.jobs[job_id].annotations["sched"]["resource_summary"] for job_id in jobs]  # type: ignore[index]
    assert found == summaries


def test_an_unknown_order_is_one_line() -> None:
    with pytest.raises(Exception, match="unknown way to allocate; expected one of worst-fit, first-fit, best-fit"):
        flux_world("local:///x", {"alloc": "random"})
    assert flux_world("local:///x", {"alloc": "best-fit"}).adapter._alloc is NodeOrder.FEWEST_FREE


def test_a_job_that_overtook_another_says_which() -> None:
    pair = Pair(nodes=2, cores=4, policy="easy")
    pair.connect()
    first = pair.submit(6, duration_s=100.0)
    pair.settle()
    pair.now = 1.0
    head = pair.submit(8, duration_s=10.0)
    pair.settle()
    pair.now = 2.0
    short = pair.submit(2, duration_s=5.0)
    pair.settle()
    notes = {job_id: pair.manager.jobs[job_id].annotations["sched"] for job_id in (first, short)}  # type: ignore[index]
    assert notes[short]["selection_type"] == "backfill" and notes[short]["backfill"][1:] == our_id(head)[len("flux!f") :]
    assert "selection_type" not in notes[first]
