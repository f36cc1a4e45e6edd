"""What the job manager makes of our world: ids, jobspecs, ranks, time limits; and when it has more to ask or to wait for."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec
import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.formats import jobspec
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job, Node, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.rfc27 import manager_adapter, rpc
from pilothouse.protocols.rfc27.manager_adapter import ManagerAdapter
from unit.protocols.rfc27.pair import body
from unit.protocols.rfc27.test_manager_adapter import NODES, Scheduler, asked, core

MILLISECOND = 1 << 24


def adapter_of(*nodes: Node, **more: Any) -> ManagerAdapter:
    begins = e.Begins(nodes or NODES)
    return ManagerAdapter(begins, Cluster(begins, "rfc27"), **more)


def execution(adapter: ManagerAdapter) -> Any:
    adapter.broker.join(1, "scheduler")
    adapter.broker.receive(0.0, 1, rpc.request("resource.acquire", matchtag=1))
    return body(adapter.broker.take()[0][1])["resources"]["execution"]


def test_jobs_belong_to_the_user_and_the_scheduler_chooses_the_dialect() -> None:
    adapter = adapter_of()
    assert not adapter.manager.strict and adapter.now == 0.0 and adapter.quiet_until == 0 and adapter.answers == 0
    assert not adapter.says_quiet and adapter_of(strict=True).manager.strict
    for more, userid in (({}, 0), ({"userid": 5}, 5)):
        adapter = adapter_of(**more)
        adapter.handle(e.Batch(0.0, [e.JobSubmitted(0.0, Job("w!1", 1))]))
        (job,) = adapter.manager.jobs.values()
        assert job.userid == userid


@pytest.mark.parametrize("began", [0.0, 1000.0])
def test_ids_are_made_of_milliseconds_since_the_beginning(began: float) -> None:
    """The first millisecond is that of jobs that ran before."""
    run = e.Running(Job("w!0", 1), IdSet.of([0]), began - 50.0)
    scheduler = Scheduler(started_at=began, running=(run,))
    names = iter(range(1, 9))
    ids = [
        asked(scheduler.happen(at, *(e.JobSubmitted(at, Job(f"w!{next(names)}", 1)) for _ in range(count))))
        for at, count in ((began, 1), (began + 0.25, 2), (began + 2.5, 1))
    ]
    assert ids == [[MILLISECOND + 1], [251 * MILLISECOND, 251 * MILLISECOND + 1], [2501 * MILLISECOND]]
    assert list(scheduler.adapter.manager.holding) == [MILLISECOND]


def test_the_inventory_of_nodes_with_other_names_sizes_and_properties() -> None:
    nodes = (Node("a", 0, 2, properties={"fast": "", "disk": "ssd", "": ""}), Node("b", 4, 1, gpus=2, properties={"fast": ""}))
    found = execution(adapter_of(*nodes))
    assert found["R_lite"] == [{"rank": "0", "children": {"core": "0-1"}}, {"rank": "1", "children": {"core": "0", "gpu": "0-1"}}]
    assert found["nodelist"] == ["a,b"] and found["properties"] == {"fast": "0-1"}
    for name in ("a b", "a,b", "a[1]", "]", "a\tb", "a\nb", ""):
        assert execution(adapter_of(nodes[0], Node(name, 2, 1)))["nodelist"] == ["node[0-1]"]


def test_a_rank_is_up_while_all_of_its_units_are() -> None:
    scheduler = Scheduler(unavailable=IdSet.of([5]))
    assert scheduler.inventory["up"] == "0"

    def told(*events: e.Event) -> list[Any]:
        return [body(message) for message in scheduler.happen(1.0, *events)]

    assert told(e.UnitsUnavailable(1.0, IdSet.of([4]))) == []
    assert told(e.UnitsAvailable(1.0, IdSet.of([5]))) == [], "another unit of it is still away"
    assert told(e.UnitsAvailable(1.0, IdSet.of([4]))) == [{"up": "1"}]
    assert told(e.UnitsAvailable(1.0, IdSet.of([4]))) == []
    assert told(e.UnitsUnavailable(1.0, IdSet.of([3, 4]))) == [{"down": "0-1"}]
    assert told(e.UnitsUnavailable(1.0, IdSet.of([3]))) == []
    assert told(e.UnitsSwitched(1.0, IdSet.span(4, 4), 0)) == [{"up": "1"}]
    assert told(e.UnitsAvailable(1.0, IdSet.of([3]))) == [{"up": "0"}]
    assert told(e.NodesLeft(1.0, ("h1", "other"), IdSet.span(4, 4))) == [{"shrink": "1"}]
    scheduler.adapter.broker.leave(2.0, 1)
    scheduler.adapter.broker.join(1, "again")
    assert body(scheduler.say(rpc.request("resource.acquire", matchtag=2))[-1])["up"] == "0"


def test_new_nodes_are_a_warning_and_known_ones_are_not() -> None:
    scheduler = Scheduler()
    scheduler.happen(0.0, e.NodesJoined(0.0, (NODES[1],)))
    assert scheduler.adapter.manager.take_warnings() == []
    scheduler.happen(0.0, e.NodesJoined(0.0, (NODES[1], Node("new", 8, 4))))
    assert "cannot announce new nodes" in scheduler.adapter.manager.take_warnings()[-1]


def test_equal_requests_share_a_jobspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_adapter, "MOST_SPECS", 1)
    scheduler = Scheduler()
    jobs = [
        Job("w!1", 2, 60.0), Job("w!2", 2, 60.0), Job("w!3", 3, 60.0), Job("w!4", 2, inf), Job("w!5", 2, 60.0),
        Job("w!6", 2, 60.0, shape=Shape(nodes=1)), Job("w!7", 2, 60.0, command=Command(argv=("sleep", "1"))),
        Job("w!8", 2, 60.0),
    ]  # fmt: skip
    ids = asked(scheduler.happen(0.0, *(e.JobSubmitted(0.0, job) for job in jobs)))
    found = [jobspec.parse(scheduler.adapter.manager.jobs[flux_id].spec) for flux_id in sorted(ids)]
    assert [(one.slots, one.duration_s, one.nodes, one.command) for one in found] == [
        (2, 60.0, 0, ("1",)), (2, 60.0, 0, ("1",)), (3, 60.0, 0, ("3",)), (2, 0.0, 0, ("4",)), (2, 60.0, 0, ("5",)),
        (2, 60.0, 1, ("6",)), (2, 60.0, 0, ("sleep", "1")), (2, 60.0, 0, ("5",)),
    ]  # fmt: skip


def test_jobs_that_ran_before_have_their_units_and_their_time_limit() -> None:
    runs = (e.Running(Job("w!1", 2, 50.0), IdSet.of([1, 5]), 7.0), e.Running(Job("w!2", 1), IdSet.of([6]), 8.0))
    scheduler = Scheduler(running=runs, started_at=9.0)
    held = [msgspec.json.decode(job.resources)["execution"] for job in scheduler.adapter.manager.holding.values()]
    assert [(one["starttime"], one["expiration"]) for one in held] == [(7.0, 57.0), (8.0, 0.0)]
    assert held[1]["R_lite"] == [{"rank": "1", "children": {"core": "2"}}]
    assert {job.submitted_s for job in scheduler.adapter.manager.holding.values()} == {7.0, 8.0}


def test_a_new_time_limit_is_an_expiration() -> None:
    scheduler = Scheduler()
    scheduler.happen(3.0, e.JobSubmitted(3.0, Job("w!0", 1)))
    flux_id = scheduler.submit("w!1")
    scheduler.grant(flux_id, core(0, "0"))
    told = [scheduler.happen(5.0, e.WalltimeChanged(5.0, name, walltime))
            for name, walltime in (("w!1", 60.0), ("w!1", inf), ("w!0", 60.0), ("w!none", 60.0))]  # fmt: skip
    assert [[body(message) for message in heard] for heard in told] == [
        [{"id": flux_id, "expiration": 63.0}], [{"id": flux_id, "expiration": 0.0}], [], [],
    ]  # fmt: skip


def test_units_that_are_given_back_by_a_job_that_is_unknown_change_nothing() -> None:
    scheduler = Scheduler()
    assert scheduler.happen(0.0, e.UnitsFreed(0.0, "w!none", IdSet.of([1]))) == []
    flux_id = scheduler.submit("w!1", 3)
    assert scheduler.happen(0.0, e.UnitsFreed(0.0, "w!1", IdSet.of([1]))) == []
    scheduler.grant(flux_id, f"{core(0, '0')},{core(1, '0-1')}")
    assert scheduler.happen(0.0, e.UnitsFreed(0.0, "w!1", IdSet.of([4]))) == [], "it still has a core of this rank"
    (part,) = scheduler.happen(0.0, e.UnitsFreed(0.0, "w!1", IdSet.of([5])))
    assert body(part)["R"]["execution"]["R_lite"] == [{"rank": "1", "children": {"core": "0-1"}}]


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_there_is_more_to_ask_while_a_request_could_be_sent(limit: int) -> None:
    begins = e.Begins(NODES)
    adapter = ManagerAdapter(begins, Cluster(begins, "rfc27"))
    manager = adapter.manager
    assert not adapter.more_to_ask
    adapter.handle(e.Batch(0.0, [e.JobSubmitted(0.0, Job(f"w!{i}", 1)) for i in range(3)]))
    assert not adapter.more_to_ask, "there is no scheduler"
    adapter.broker.join(1, "scheduler")
    mode = {"mode": "limited", "limit": limit} if limit else {"mode": "unlimited"}
    said = {"service.add": {"service": "sched"}, "job-manager.sched-hello": {}, "job-manager.sched-ready": mode}
    for topic, payload in said.items():
        adapter.broker.receive(0.0, 1, rpc.request(topic, msgspec.json.encode(payload), matchtag=1))
    seen = []
    for _ in range(4):
        seen.append(adapter.more_to_ask)
        manager.stop_queue() if not manager.pending else None
        assert not manager.stopped or not adapter.more_to_ask
        manager.start_queue()
        adapter.broker.dispatch(0.0, 1)
    assert seen == [True, limit != 1, limit == 0, False]


def test_the_scheduler_asks_to_be_called_and_says_that_it_is_done() -> None:
    scheduler = Scheduler()
    adapter = scheduler.adapter
    scheduler.happen(5.0)
    made = []
    for question, call_at in enumerate((4.0, 5.0, 5.5, None), start=1):
        adapter.manager.ask_quiet(question, 5.0)
        adapter.broker.flush(5.0)
        (request,) = scheduler.heard()
        payload = {} if call_at is None else {"call_at": call_at}
        scheduler.say(rpc.respond(request, msgspec.json.encode(payload)))
        made += scheduler.decisions()
        assert adapter.quiet_until == question and adapter.says_quiet
    assert made == [d.CallAt(5.0, 5.5, "rfc27")]
    assert adapter.answers == 0, "it changed nothing"
    flux_id = scheduler.submit()
    scheduler.answer(flux_id, 1, annotations={"x": 1})
    adapter.process_answers()
    assert adapter.answers == 1


def test_units_may_be_given_again_in_the_next_turn_or_where_jobs_share_them() -> None:
    for sharing in (False, True):
        scheduler = Scheduler(compute_sharing=sharing)
        for name in ("w!1", "w!2"):
            flux_id = scheduler.submit(name)
            scheduler.give(flux_id, core(0, "0"))
        first, second = scheduler.decisions()
        assert isinstance(first, d.StartJob) and isinstance(second, d.StartJob if sharing else d.RejectJob)
        scheduler.happen(1.0, e.JobEnded(1.0, "w!1", JobState.SUCCEEDED, 0, IdSet.of([0])))
        (third,) = scheduler.grant(scheduler.submit("w!3"), core(0, "0"))
        assert isinstance(third, d.StartJob)


def test_the_memory_that_is_left_is_no_concern_of_a_flux_scheduler() -> None:
    """Jobspecs have no word for it: core/counted_units.py chooses the units of such jobs."""
    scheduler = Scheduler(nodes=(Node("h0", 0, 4, memory_mb=300),))
    for number in (0, 1):
        job = Job(f"w!{number}", 1, shape=Shape(nodes=1, memory_mb_per_node=200))
        (flux_id,) = asked(scheduler.happen(0.0, e.JobSubmitted(0.0, job)))
        scheduler.give(flux_id, core(0, str(number)))
        (decision,) = scheduler.decisions() if number == 0 else scheduler.adapter.take_decisions()
        assert decision == d.StartJob(0.0, job.id, IdSet.of([number]))


def test_a_start_on_a_node_that_may_come_back_is_left_to_the_session() -> None:
    scheduler = Scheduler()
    flux_id = scheduler.submit()
    scheduler.cluster.observe(e.NodesLeft(1.0, ("h1",), IdSet.span(4, 4), may_return=True))
    scheduler.give(flux_id, core(1, "0"))
    assert scheduler.adapter.take_decisions() == [d.StartJob(0.0, "w!1", IdSet.of([4]))]
    assert scheduler.adapter.manager.jobs[flux_id].started
