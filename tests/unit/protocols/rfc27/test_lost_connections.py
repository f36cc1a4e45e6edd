"""A scheduler of Flux whose connection is lost: after the next handshake its decider knows what happened meanwhile."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

from pilothouse.formats import resource_set
from pilothouse.formats.resource_set import RankResources, ResourceSet
from pilothouse.model import events as e
from pilothouse.model.decisions import Annotate, CallAt, KillJobs, RejectJob, SetMetadata, StartJob, StopWorld
from pilothouse.model.errors import RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.rfc27 import scheduler_events as s
from pilothouse.protocols.rfc27.job_conversion import our_id
from pilothouse.protocols.rfc27.manager_events import FeasibilityAnswered, Quiet
from pilothouse.protocols.rfc27.payloads import HelloJob
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine
from pilothouse.protocols.rfc27.scheduler_adapter import SchedulerAdapter
from unit.protocols.rfc27.pair import body, inventory, spec
from unit.protocols.rfc27.reconnecting import ReconnectingPair


@pytest.fixture
def pair() -> ReconnectingPair:
    """3 nodes of 4 cores and 2 GPUs."""
    made = ReconnectingPair(nodes=3, gpus=2)
    made.connect()
    return made


def gpus(pair: ReconnectingPair, job_id: int) -> dict[int, str]:
    found = resource_set.parse(pair.manager.jobs[job_id].resources)
    return {entry.rank: entry.gpus.to_text(",") for entry in found.ranks}


def span(first: int, count: int) -> IdSet:
    return IdSet.span(first, count)


def test_what_a_job_gave_back_meanwhile_is_free_with_its_gpus(pair: ReconnectingPair) -> None:
    wide = pair.submit(1, nodes=3, gpus_per_slot=2)
    pair.settle()
    pair.lose()
    pair.manager.release(0.0, wide, IdSet.of([1]))
    pair.take_told()
    pair.now = 7.0
    pair.reconnect()
    assert pair.take_told() == [e.UnitsFreed(7.0, our_id(wide), IdSet.of([4]))]
    assert pair.cluster.running[our_id(wide)].units == IdSet.of([0, 8])
    next_one, last = (pair.submit(1, nodes=1, gpus_per_slot=2) for _ in range(2))
    pair.settle()
    assert gpus(pair, next_one) == {1: "0-1"} and last in pair.manager.pending
    pair.finish(wide)
    assert gpus(pair, last) == {0: "0-1"}
    assert [(x.job_id, x.units) for x in pair.take_told() if isinstance(x, e.JobEnded)] == [(our_id(wide), IdSet.of([0, 8]))]


def test_gpus_of_a_freed_part_come_back_once(pair: ReconnectingPair) -> None:
    wide = pair.submit(1, nodes=3, gpus_per_slot=2)
    pair.settle()
    pair.manager.release(0.0, wide, IdSet.of([1]))
    on_rank_1 = {"nodes": 1, "gpus_per_slot": 1, "constraints": {"ranks": ["1"]}}
    first = pair.submit(1, **on_rank_1)
    pair.settle()
    pair.finish(wide)
    second, third = pair.submit(1, **on_rank_1), pair.submit(1, nodes=2, gpus_per_slot=2)
    pair.settle()
    assert [gpus(pair, job_id) for job_id in (first, second, third)] == [{1: "0"}, {1: "1"}, {0: "0-1", 2: "0-1"}]


def test_a_job_that_holds_all_that_it_held_is_not_mentioned(pair: ReconnectingPair) -> None:
    pair.submit(1, nodes=2, gpus_per_slot=2)
    pair.settle()
    pair.lose()
    pair.take_told()
    pair.reconnect()
    assert pair.take_told() == []
    third, fourth = (pair.submit(1, nodes=1, gpus_per_slot=1) for _ in range(2))
    pair.settle()
    assert [gpus(pair, job_id) for job_id in (third, fourth)] == [{2: "0"}, {2: "1"}]


def test_a_job_that_ended_meanwhile_ends_for_the_decider(pair: ReconnectingPair) -> None:
    ended, runs, waits = pair.submit(1, nodes=1, gpus_per_slot=2), pair.submit(2), pair.submit(10)
    pair.settle()
    pair.lose("a broken wire")
    assert pair.take_told()[-1] == e.JobWithdrawn(0.0, our_id(waits))
    pair.manager.finish(0.0, ended)
    pair.now = 3.0
    pair.reconnect()
    told = pair.take_told()
    reason = "it ended while the connection was lost"
    assert told[0] == e.JobEnded(3.0, our_id(ended), JobState.SUCCEEDED, 0, IdSet.of([0]), reason)
    assert [type(event) for event in told[1:]] == [e.JobSubmitted]
    assert sorted(pair.cluster.running) == sorted(map(our_id, (runs, waits)))
    pair.finish(waits)
    again = pair.submit(1, nodes=1, gpus_per_slot=2, constraints={"ranks": ["0"]})
    pair.settle()
    assert gpus(pair, again) == {0: "0-1"}


def holding(events: list[e.Event]) -> list[tuple[str, IdSet]]:
    assert all(isinstance(event, e.JobHolds) for event in events)
    return [(event.job_id, event.units) for event in events if isinstance(event, e.JobHolds)]


def test_jobs_of_another_scheduler_hold_their_units_until_they_end(pair: ReconnectingPair) -> None:
    foreign: list[int] = []
    pair.while_another_schedules(lambda: foreign.extend([pair.submit(1, nodes=1, gpus_per_slot=2), pair.submit(3)]))
    assert holding(pair.take_told()) == [(our_id(foreign[0]), span(0, 1)), (our_id(foreign[1]), span(1, 3))]
    assert pair.cluster.free == 8
    ours = pair.submit(1, nodes=1, gpus_per_slot=1)
    pair.settle()
    assert gpus(pair, ours) == {1: "0"}
    pair.lose()  # and they are known after another handshake
    pair.take_told()
    pair.reconnect()
    assert pair.take_told() == []
    pair.now = 5.0
    pair.finish(foreign[0])
    assert pair.take_told() == [e.JobEnded(5.0, our_id(foreign[0]), JobState.SUCCEEDED, 0, span(0, 1), "")]
    later = pair.submit(1, nodes=1, gpus_per_slot=2)
    pair.settle()
    assert gpus(pair, later) == {0: "0-1"}
    pair.lose()
    pair.manager.finish(5.0, foreign[1])
    pair.take_told()
    pair.reconnect()
    assert [event.job_id for event in pair.take_told() if isinstance(event, e.JobEnded)] == [our_id(foreign[1])]
    assert pair.cluster.free == 10


def test_jobs_of_another_scheduler_free_parts_and_get_other_ends(pair: ReconnectingPair) -> None:
    foreign: list[int] = []
    pair.while_another_schedules(lambda: foreign.append(pair.submit(1, nodes=2)))
    pair.take_told()
    pair.manager.release(0.0, foreign[0], IdSet.of([1]))
    pair.settle()
    assert pair.take_told() == [e.UnitsFreed(0.0, our_id(foreign[0]), span(4, 1))] and pair.cluster.free == 11
    pair.manager.expire(0.0, foreign[0], 70.0)
    pair.settle()
    assert pair.take_told() == [e.WalltimeChanged(0.0, our_id(foreign[0]), 70.0)]
    pair.finish(foreign[0])
    assert pair.cluster.free == 12


def test_resource_status_counts_jobs_of_another_scheduler(pair: ReconnectingPair) -> None:
    foreign: list[int] = []
    pair.submit(1)
    pair.settle()
    pair.while_another_schedules(lambda: foreign.append(pair.submit(2)))
    pair.broker.change_ranks(down=IdSet.of([2]))
    pair.settle()
    answers: list[object] = []
    asked = pair.manager._caller.call("sched.resource-status", None, lambda answer: answers.append(body(answer)))
    pair.manager.out.append(asked)
    pair.settle()
    (status,) = answers
    cores = {key: resource_set.from_object(value).core_count() for key, value in status.items()}  # type: ignore[attr-defined]
    assert cores == {"all": 12, "allocated": 3, "down": 4}


def test_only_actual_changes_of_ranks_are_told(pair: ReconnectingPair) -> None:
    pair.broker.change_ranks(down=IdSet.of([1]))
    pair.settle()
    assert pair.take_told() == [e.UnitsUnavailable(0.0, span(4, 4))]
    pair.lose()
    pair.broker.change_ranks(up=IdSet.of([1]), down=IdSet.of([0]))
    pair.reconnect()
    assert pair.take_told() == [e.UnitsAvailable(0.0, span(4, 4)), e.UnitsUnavailable(0.0, span(0, 4))]
    pair.broker.change_ranks(up=IdSet.of([2]), down=IdSet.of([0]))
    pair.settle()
    assert pair.take_told() == []
    assert pair.adapter.begins(0.0).unavailable == span(0, 4)


def test_a_rank_that_is_gone_leaves_and_is_no_more_counted_as_up(pair: ReconnectingPair) -> None:
    pair.broker.change_ranks(gone=IdSet.of([1]))
    pair.settle()
    assert pair.take_told() == [e.NodesLeft(0.0, ("n1",), span(4, 4))]
    pair.broker.change_ranks(down=IdSet.of([1]))
    pair.settle()
    assert pair.take_told() == []
    assert pair.adapter.begins(0.0).unavailable == span(4, 4)


def test_an_instance_with_another_inventory_ends_the_run(pair: ReconnectingPair) -> None:
    others = (inventory(nodes=2, gpus=2), inventory(nodes=3, cores=5, gpus=2), inventory(nodes=3, gpus=1))
    for other in others:
        with pytest.raises(RunError, match="another inventory"):
            pair.adapter.handle(0.0, [s.Inventory(resource_set.parse(other), IdSet())])
    pair.adapter.handle(0.0, [s.Inventory(resource_set.parse(inventory(nodes=3, gpus=2)), span(0, 3))])
    assert pair.adapter.events == []


def test_annotations_of_an_earlier_request_are_forgotten(pair: ReconnectingPair) -> None:
    """Only what was annotated in this request is deleted by its grant."""
    running, noted = pair.submit(12), pair.submit(12)
    pair.settle()
    pair.apply(Annotate(0.0, our_id(noted), {"sched": {"reason_pending": "so"}}))
    pair.lose()
    pair.reconnect()
    pair.finish(running)
    answers = [body(m) for m in pair.said if m.topic == "sched.alloc" and body(m)["id"] == noted and body(m)["type"] == 0]
    assert [answer["annotations"]["sched"] for answer in answers] == [{"resource_summary": "rank[0-2]/core[0-3]"}]


def test_a_grant_deletes_the_notes_that_say_why_it_waited(pair: ReconnectingPair) -> None:
    running, waiting = pair.submit(12), pair.submit(12)
    pair.settle()
    pair.apply(SetMetadata(0.0, our_id(waiting), "mine"))
    assert pair.manager.jobs[waiting].annotations == {"user": {"metadata": "mine"}}
    pair.finish(running)
    grant = [body(m) for m in pair.said if m.topic == "sched.alloc" and body(m)["id"] == waiting][-1]
    notes = {"resource_summary": "rank[0-2]/core[0-3]", "reason_pending": None, "t_estimate": None}
    assert grant["annotations"] == {"sched": notes}


def test_a_kill_is_confirmed_when_the_last_of_its_jobs_has_ended(pair: ReconnectingPair) -> None:
    first, second = pair.submit(1), pair.submit(1)
    pair.settle()
    pair.take_told()
    names = (our_id(first), "flux!f9", our_id(second))
    pair.apply(KillJobs(0.0, names))
    for job_id in (first, second):
        assert not [event for event in pair.take_told() if isinstance(event, e.JobsKilled)]
        pair.finish(job_id)
    assert [event for event in pair.take_told() if isinstance(event, e.JobsKilled)] == [e.JobsKilled(0.0, names, {})]


def test_decisions_about_jobs_that_do_not_wait_or_run_are_left_alone(pair: ReconnectingPair) -> None:
    running = pair.submit(1)
    pair.settle()
    said, told = len(pair.said), pair.take_told()
    assert told
    pair.apply(
        RejectJob(0.0, our_id(running)), RejectJob(0.0, "flux!f9"), Annotate(0.0, our_id(running), {"user": {}}),
        KillJobs(0.0, ("flux!f9",)), CallAt(0.0, 5.0, "c"),
    )  # fmt: skip
    assert pair.said[said:] == [] and pair.take_told() == [e.JobsKilled(0.0, ("flux!f9",), {})]
    assert pair.adapter.calls.next_at == 5.0 and not pair.adapter.stopped
    pair.apply(StopWorld(0.0))
    assert pair.adapter.stopped


def test_a_start_of_a_job_that_is_withdrawn_ends_it_before_anything_else(pair: ReconnectingPair) -> None:
    adapter = pair.adapter
    adapter.events.append(e.UnitsAvailable(1.0, span(0, 1)))
    adapter.apply(2.0, [StartJob(2.0, "flux!f9", span(0, 2))])
    ended = e.JobEnded(2.0, "flux!f9", JobState.KILLED, 0, span(0, 2), "withdrawn before it could start")
    assert adapter.take_events() == [ended, e.UnitsAvailable(1.0, span(0, 1))]


def test_a_second_request_for_a_job_waits_for_the_batch_after_its_withdrawal(pair: ReconnectingPair) -> None:
    full, waiting = pair.submit(12), pair.submit(12)
    pair.settle()
    adapter, number = pair.adapter, waiting
    request = next(m for m in pair.heard if m.topic == "sched.alloc" and body(m)["id"] == waiting)
    asked = s.AllocAsked(number, 16, 1000, 3.0, jobspec_in(request.body()))
    adapter.handle(4.0, [s.AllocCanceled(number), asked, s.Freed(full, None, True)])
    first = adapter.take_events()
    assert first == [e.JobWithdrawn(4.0, our_id(number))]
    # a decision about the first request does not reach the second
    adapter.apply(4.0, [RejectJob(4.0, our_id(number)), StartJob(4.0, our_id(number), span(0, 12))])
    ended, again, freed = adapter.take_events()
    assert isinstance(ended, e.JobEnded) and ended.reason == "withdrawn before it could start"
    assert isinstance(again, e.JobSubmitted) and isinstance(freed, e.JobEnded)
    assert (again.job.submitted_at, again.job.user, again.job.priority) == (3.0, "1000", 16)
    adapter.handle(5.0, [s.AllocAsked(7, 16, 1000, 0.0, jobspec_in(request.body()))])
    (undated,) = adapter.take_events()
    assert isinstance(undated, e.JobSubmitted) and undated.job.submitted_at == 5.0


def test_a_request_that_the_decider_has_not_been_told_of_cannot_be_decided(pair: ReconnectingPair) -> None:
    """Asked for, withdrawn, asked for again: until the batch of the second request, decisions are about the first."""
    adapter = pair.adapter
    asked = [s.AllocAsked(number, 16, 1000, 3.0, spec(1)) for number in (7, 8)]
    adapter.handle(1.0, [asked[0], s.AllocCanceled(7), asked[0], asked[1]])
    assert [type(event) for event in adapter.take_events()] == [e.JobSubmitted, e.JobWithdrawn]
    for number in (7, 8):
        adapter.apply(1.0, [StartJob(1.0, our_id(number), span(0, 1))])
    *ended, again, other = adapter.take_events()
    assert [type(event) for event in ended] == [e.JobEnded, e.JobEnded]
    assert [event.job.id for event in (again, other) if isinstance(event, e.JobSubmitted)] == [our_id(7), our_id(8)]
    adapter.handle(2.0, [s.AllocAsked(9, 16, 1000, 3.0, spec(1)), s.AllocCanceled(9)])
    assert [type(event) for event in adapter.take_events()] == [e.JobSubmitted, e.JobWithdrawn]
    adapter.handle(2.0, [s.AllocCanceled(9)])
    assert adapter.take_events() == []


def test_feasibility_follows_the_inventory(pair: ReconnectingPair) -> None:
    def refusal(**more: object) -> str:
        pair.events.clear()
        pair.manager.ask_feasibility(1, spec(**{"slots": 1, **more}))  # type: ignore[arg-type]
        pair.settle()
        return next(event.refusal for event in pair.events if isinstance(event, FeasibilityAnswered))

    fast: dict[str, object] = {"constraints": {"properties": ["fast"]}}
    assert refusal(slots=12) == "" and refusal(**fast) != ""
    pair.change_inventory(property_add={"fast": "1", "slow": "0"})
    (joined,) = pair.take_told()
    assert isinstance(joined, e.NodesJoined)
    assert [(node.name, node.properties) for node in joined.nodes] == [
        ("n0", {"slow": "", "rank": "0", "host": "n0"}), ("n1", {"fast": "", "rank": "1", "host": "n1"}),
    ]  # fmt: skip
    assert refusal(**fast) == "" and refusal(slots=5, **fast) != ""
    pair.change_inventory(property_add={"fast": "2"}, property_remove={"slow": "0", "none": "1"})
    (joined,) = pair.take_told()
    assert isinstance(joined, e.NodesJoined) and [node.name for node in joined.nodes] == ["n0", "n1", "n2"]
    assert joined.nodes[0].properties == {"rank": "0", "host": "n0"}
    assert refusal(slots=8, **fast) == ""
    pair.change_inventory(property_remove={"fast": "1-2"})
    assert refusal(**fast) != ""
    pair.broker.change_ranks(gone=IdSet.of([1]))
    pair.settle()
    assert refusal(slots=8) == "" and refusal(slots=9) == "it needs 9 units, and there are 8"


def test_the_date_of_a_simulated_manager_comes_with_its_inventory(pair: ReconnectingPair) -> None:
    everything = resource_set.parse(inventory(nodes=3, gpus=2))
    pair.adapter.handle(9.0, [s.Inventory(everything, span(0, 3), 4.5)])
    assert pair.adapter.simulated_now == 4.5
    pair.adapter.handle(9.0, [s.Inventory(everything, span(0, 3))])
    assert pair.adapter.simulated_now is None


def jobspec_in(request: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(request)["jobspec"])


def holds(job_id: int, ranks: tuple[RankResources, ...], start_s: float, expiration_s: float) -> s.JobHolds:
    resources = ResourceSet(ranks=ranks, hosts=("n0", "n1", "n2")[: len(ranks)], start_s=start_s, expiration_s=expiration_s)
    return s.JobHolds(HelloJob(job_id, 20, 1000, 4.0), resources)


def test_running_jobs_of_the_first_handshake_are_known_with_what_is_left_of_their_time() -> None:
    adapter = SchedulerAdapter()
    adapter.engine = SchedulerEngine()
    everything = resource_set.parse(inventory(nodes=3, gpus=2))
    plain = holds(7, (RankResources(0, span(0, 2)),), 10.0, 0.0)
    two = (RankResources(1, span(0, 1), span(0, 1)), RankResources(2, span(0, 1), span(0, 2)))
    with_gpus = holds(8, two, 10.0, 70.0)
    adapter.handle(50.0, [s.Inventory(everything, span(0, 2)), plain, with_gpus, s.Ready(False, 0)])
    begins = adapter.begins(50.0)
    assert begins.started_at == 50.0 and begins.unavailable == span(8, 4)
    assert not begins.time_waits and begins.survives_refusals
    first, second = begins.running
    assert (first.job.id, first.units, first.started_at) == (our_id(7), span(0, 2), 10.0)
    assert (first.job.walltime, first.job.shape, first.job.units) == (inf, None, 2)
    assert (first.job.submitted_at, first.job.priority, first.job.user) == (4.0, 20, "1000")
    assert (second.job.walltime, second.units) == (60.0, IdSet.of([4, 8]))
    assert second.job.shape == Shape(nodes=2, gpus_per_node=2)
    assert adapter.events == []
    # both end as others do, and what they hold is known
    adapter.handle(55.0, [s.ExpirationChanged(8, 90.0), s.ExpirationChanged(7, 0.0), s.ExpirationChanged(9, 9.0)])
    assert adapter.take_events() == [e.WalltimeChanged(55.0, our_id(8), 80.0), e.WalltimeChanged(55.0, our_id(7), inf)]
    adapter.handle(60.0, [s.Freed(8, None, True), s.Freed(9, None, True), s.Freed(7, None, False)])
    assert adapter.take_events() == [e.JobEnded(60.0, our_id(8), JobState.SUCCEEDED, 0, IdSet.of([4, 8]), "")]
    adapter.handle(70.0, [s.Inventory(everything, span(0, 2)), s.Ready(False, 0)])
    (last,) = adapter.take_events()
    assert isinstance(last, e.JobEnded) and (last.job_id, last.units) == (our_id(7), span(0, 2))
    adapter.handle(80.0, [plain, s.Ready(False, 0)])
    assert holding(adapter.take_events()) == [(our_id(7), span(0, 2))]
    adapter.handle(90.0, [s.Ready(False, 0)])
    (ended,) = adapter.take_events()
    assert isinstance(ended, e.JobEnded) and (ended.job_id, ended.units) == (our_id(7), span(0, 2))


def test_a_handshake_that_breaks_off_leaves_no_running_jobs_behind() -> None:
    adapter = SchedulerAdapter()
    adapter.engine = SchedulerEngine()
    everything = resource_set.parse(inventory(nodes=3, gpus=2))
    adapter.handle(0.0, [s.Inventory(everything, span(0, 3)), holds(7, (RankResources(0, span(0, 2)),), 1.0, 0.0)])
    adapter.lost(1.0, "broken off")
    adapter.handle(2.0, [s.Inventory(everything, span(0, 3)), s.Ready(False, 0)])
    assert adapter.begins(2.0).running == ()
    adapter.handle(3.0, [s.Inventory(everything, span(0, 3)), holds(7, (RankResources(0, span(0, 2)),), 1.0, 0.0)])
    adapter.lost(4.0, "broken off")
    adapter.handle(5.0, [s.Inventory(everything, span(0, 3)), s.Ready(False, 0)])
    assert adapter.take_events() == []


def test_a_manager_in_simulated_time_dates_the_events_of_its_turn(pair: ReconnectingPair) -> None:
    adapter = pair.adapter
    assert adapter.simulated_now is None
    request = pair.heard[0]
    adapter.events = [e.UnitsAvailable(1.0, span(0, 1)), e.UnitsAvailable(2.0, span(0, 1))]
    adapter.handle(2.0, [s.QuiesceAsked(request)])
    assert adapter.simulated_now is None and [event.at for event in adapter.events] == [1.0, 2.0]
    adapter.handle(2.0, [s.QuiesceAsked(request, 0.0)])
    assert adapter.simulated_now == 0.0 and [event.at for event in adapter.events] == [0.0, 0.0]
    adapter.handle(2.0, [s.QuiesceAsked(request, 30.0)])
    assert adapter.simulated_now == 30.0 and [event.at for event in adapter.events] == [30.0, 30.0]
    assert adapter.asked_quiet == [request] * 3
    adapter.lost(31.0, "gone")
    assert adapter.asked_quiet == []


def test_a_quiesce_request_is_answered_after_the_decision(pair: ReconnectingPair) -> None:
    pair.manager.ask_quiet(5)
    pair.submit(12)
    pair.settle()
    assert Quiet(5, True, 1e9) in pair.events
