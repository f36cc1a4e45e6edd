"""A Flux instance as a world: node-shaped jobs, slots of several cores, GPUs, constraints, drains, priorities, notes."""

from __future__ import annotations

import msgspec
import pytest

from pilothouse.core.explain import explain
from pilothouse.formats import jobspec, resource_set
from pilothouse.model.decisions import Annotate, KillJobs, RejectJob, Reply, SwitchUnits
from pilothouse.model.events import Batch, JobEnded, JobSubmitted
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.rfc27 import broker, rpc
from pilothouse.protocols.rfc27.handshake import Phase
from pilothouse.protocols.rfc27.job_conversion import our_id, priority_of, to_jobspec
from pilothouse.protocols.rfc27.machine import Machine
from pilothouse.protocols.rfc27.manager_events import Denied, FeasibilityAnswered
from pilothouse.protocols.rfc27.pending_reasons import PendingReasons
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine
from unit.protocols.rfc27.eventlog import read_log
from unit.protocols.rfc27.pair import Pair, body, of_owner, spec


@pytest.fixture
def pair() -> Pair:
    made = Pair(nodes=3, cores=4, gpus=2)
    made.connect()
    return made


def held(pair: Pair, job_id: int) -> dict[int, tuple[str, str]]:
    found = resource_set.parse(pair.manager.jobs[job_id].resources)
    return {entry.rank: (entry.cores.to_text(","), entry.gpus.to_text(",")) for entry in found.ranks}


def test_slots_of_several_cores_stay_on_one_node(pair: Pair) -> None:
    pair.submit(1)
    job_id = pair.submit(3, cores_per_slot=3)
    other = pair.submit(2, cores_per_slot=3)
    pair.settle()
    assert held(pair, job_id) == {0: ("1-3", ""), 1: ("0-2", ""), 2: ("0-2", "")}
    assert other in pair.manager.pending


def test_slots_that_no_node_can_hold_are_denied(pair: Pair) -> None:
    job_id = pair.submit(1, cores_per_slot=5)
    pair.settle()
    exception = next(e for e in read_log(pair.manager.inactive[job_id].log) if e.name == "exception")
    assert "it needs 5 units" in str(exception.context["note"])


def test_an_exclusive_node_has_all_its_cores_and_gpus(pair: Pair) -> None:
    pair.submit(1)
    job_id = pair.submit(1, nodes=2, exclusive=True)
    pair.settle()
    assert held(pair, job_id) == {1: ("0-3", "0-1"), 2: ("0-3", "0-1")}


def test_gpus_are_counted_and_never_shared(pair: Pair) -> None:
    jobs = [pair.submit(1, gpus_per_slot=1) for _ in range(7)]
    pair.settle()
    got = [held(pair, job_id) for job_id in jobs[:6]]
    assert [(rank, gpus) for entry in got for rank, (_, gpus) in entry.items()] == [
        (0, "0"), (0, "1"), (1, "0"), (1, "1"), (2, "0"), (2, "1"),
    ]  # fmt: skip
    assert list(pair.manager.pending) == [jobs[6]]
    pair.finish(jobs[3])
    assert held(pair, jobs[6]) == {1: ("1", "1")}


def test_gpus_survive_a_crash_of_the_scheduler(pair: Pair) -> None:
    first = pair.submit(1, nodes=1, gpus_per_slot=2)
    pair.settle()
    pair.crash()
    pair.connect()
    second = pair.submit(1, gpus_per_slot=2)
    pair.settle()
    assert held(pair, first) == {0: ("0", "0-1")} and held(pair, second) == {1: ("0", "0-1")}


@pytest.mark.parametrize(
    ("constraints", "rank"),
    [
        ({"ranks": ["1-2"]}, 1),
        ({"hostlist": ["n[2-9]"]}, 2),
        ({"not": [{"hostlist": ["n0"]}]}, 1),
        ({"and": [{"ranks": ["1"]}, {"hostlist": ["n[0-1]"]}]}, 1),
        ({"or": [{"ranks": ["2"]}, {"hostlist": ["n2"]}]}, 2),
        ({"properties": ["fast"]}, 2),
        ({"properties": ["^slow"]}, 2),
    ],
)
def test_constraints_choose_the_node(pair: Pair, constraints: dict[str, object], rank: int) -> None:
    change = b'{"property-add":{"fast":"2","slow":"0-1"}}'
    if "properties" in constraints:
        acquire = pair.broker._acquirer
        assert acquire is not None
        pair.broker._send_back(rpc.respond(acquire[1], change, streaming=True))
    pair.settle()
    job_id = pair.submit(1, constraints=constraints)
    pair.settle()
    assert list(held(pair, job_id)) == [rank]


def test_a_constraint_that_is_none_is_denied_with_its_place(pair: Pair) -> None:
    job_id = pair.submit(1, constraints={"wish": ["x"]})
    impossible = pair.submit(1, constraints={"ranks": ["9"]})
    pair.settle()
    notes = [
        str(entry.context.get("note"))
        for job in (job_id, impossible)
        for entry in read_log(pair.manager.inactive[job].log)
        if entry.name == "exception"
    ]
    assert notes[0].startswith("constraints.wish: unknown constraint operator")
    assert "the wanted properties" in notes[1]


def test_durations_become_expirations_and_the_instance_ends_first(pair: Pair) -> None:
    pair.now = 100.0
    limited, free = pair.submit(1, duration_s=60.0), pair.submit(1)
    pair.settle()
    ends = [resource_set.parse(pair.manager.jobs[job].resources).expiration_s for job in (limited, free)]
    assert ends == [160.0, 0.0]
    acquire = pair.broker._acquirer
    assert acquire is not None
    pair.broker._send_back(rpc.respond(acquire[1], b'{"expiration":130.0}', streaming=True))
    late = [pair.submit(1, duration_s=60.0), pair.submit(1)]
    pair.settle()
    assert [resource_set.parse(pair.manager.jobs[job].resources).expiration_s for job in late] == [130.0, 130.0]


def test_a_drained_node_gets_no_job(pair: Pair) -> None:
    pair.broker.change_ranks(down=IdSet.of([0, 1]))
    jobs = [pair.submit(4), pair.submit(4)]
    pair.settle()
    assert held(pair, jobs[0]) == {2: ("0-3", "")} and jobs[1] in pair.manager.pending
    pair.broker.change_ranks(up=IdSet.of([0]))
    pair.settle()
    assert held(pair, jobs[1]) == {0: ("0-3", "")}


def test_priorities_decide_who_is_next(pair: Pair) -> None:
    running = pair.submit(12)
    first, second, third = (pair.submit(12) for _ in range(3))
    pair.settle()
    pair.manager.prioritize(0.0, [(third, 500)])
    pair.manager.set_urgency(0.0, second, 25)
    pair.settle()
    decision = []
    for _ in range(3):
        pair.finish(running)
        (running,) = pair.manager.holding
        decision.append(running)
    assert decision == [third, second, first]


def test_the_queue_is_named_in_the_annotations(pair: Pair) -> None:
    job_id = pair.submit(1, queue="debug")
    pair.settle()
    assert pair.manager.jobs[job_id].annotations == {"sched": {"resource_summary": "rank0/core0", "queue": "debug"}}


def test_a_partial_free_is_used_at_once_and_known_after_a_crash(pair: Pair) -> None:
    job_id = pair.submit(4, nodes=3)
    waiting = pair.submit(4)
    pair.settle()
    pair.manager.release(0.0, job_id, IdSet.of([1]))
    pair.settle()
    assert held(pair, waiting) == {1: ("0-3", "")}
    pair.crash()
    pair.connect()
    hello = [body(m) for m in pair.heard if m.topic == "job-manager.sched-hello" and not m.errnum]
    assert {"free": "1", "id": job_id} == {key: hello[-2][key] for key in ("free", "id")}
    assert pair.cluster.free == 0
    pair.finish(job_id)
    assert pair.cluster.free == 8


def test_the_gpus_of_a_freed_part_are_used_at_once(pair: Pair) -> None:
    wide, waiting = pair.submit(1, nodes=3, gpus_per_slot=2), pair.submit(1, gpus_per_slot=2)
    pair.settle()
    assert waiting in pair.manager.pending
    pair.manager.release(0.0, wide, IdSet.of([1]))
    pair.settle()
    assert held(pair, waiting) == {1: ("1", "0-1")} or held(pair, waiting) == {1: ("0", "0-1")}


def test_expiration_reaches_the_decider(pair: Pair) -> None:
    pair.now = 10.0
    job_id = pair.submit(1, duration_s=100.0)
    pair.settle()
    pair.manager.expire(20.0, job_id, 210.0)
    pair.settle()
    assert pair.cluster.expected_end(our_id(job_id)) == 210.0
    pair.manager.expire(20.0, job_id, 0.0)
    pair.settle()
    assert pair.cluster.expected_end(our_id(job_id)) == float("inf")
    assert pair.manager.take_warnings() == []


def test_feasibility_is_answered_without_a_decider(pair: Pair) -> None:
    for question, slots in enumerate((12, 13)):
        pair.manager.ask_feasibility(question, spec(slots))
    pair.manager.ask_feasibility(2, b'{"version":9}')
    pair.settle()
    answered = sorted((f for f in pair.events if isinstance(f, FeasibilityAnswered)), key=lambda event: event.question)
    refusals = [event.refusal for event in answered]
    assert refusals[0] == "" and refusals[1] == "it needs 13 units, and there are 12"
    assert "not a V1 jobspec" in refusals[2]


def test_resource_status_tells_what_is_allocated_and_down(pair: Pair) -> None:
    pair.submit(2)
    pair.broker.change_ranks(down=IdSet.of([2]))
    pair.settle()
    answered: list[bytes] = []
    call = pair.manager._caller.call("sched.resource-status", None, lambda answer: answered.append(answer.body()))
    pair.manager.out.append(call)
    pair.settle()
    status = msgspec.json.decode(answered[0])
    assert [resource_set.from_object(status[key]).core_count() for key in ("all", "allocated", "down")] == [12, 2, 4]


def test_a_decider_may_kill(pair: Pair) -> None:
    job_id = pair.submit(1)
    pair.settle()
    pair.adapter.apply(0.0, [KillJobs(0.0, (our_id(job_id),))])
    pair.settle()
    assert Denied(job_id, "killed by the scheduler") in pair.events


def test_a_decision_that_flux_cannot_carry_out_is_dropped_with_a_warning(pair: Pair) -> None:
    job_id = pair.submit(12)
    waiting = pair.submit(1)
    pair.settle()
    pair.adapter.apply(0.0, [SwitchUnits(0.0, IdSet.of([0]), 1), KillJobs(0.0, (our_id(job_id),))])
    assert any("this world (flux) cannot switch units on or off" in warning for warning in pair.engine.take_warnings())
    pair.settle()
    assert any(isinstance(event, Denied) and event.id == job_id for event in pair.events) and waiting in pair.manager.pending


def test_a_second_alloc_for_a_pending_job_is_logged_and_the_first_one_answered(pair: Pair) -> None:
    pair.submit(12)
    waiting = pair.submit(12)
    pair.settle()
    again = next(m for m in pair.heard if m.topic == "sched.alloc" and body(m)["id"] == waiting)
    pair.engine.receive(of_owner(rpc.request("sched.alloc", again.body())))
    assert any("second sched.alloc" in warning for warning in pair.engine.take_warnings())
    pair.settle()
    assert len(pair.cluster.waiting) == 1


def test_a_commit_that_fails_ends_the_connection_and_the_job_is_asked_for_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "MOST_KEYS", -1)
    job_id = pair.submit(12)
    pair.settle()
    assert pair.engine.phase is Phase.FAILED and job_id in pair.manager.pending
    monkeypatch.undo()
    pair.crash()
    pair.connect()
    assert job_id in pair.manager.holding


def test_the_machine_numbers_cores_that_have_gaps() -> None:
    inventory = resource_set.from_object(
        {"version": 1, "execution": {"R_lite": [{"rank": "3", "children": {"core": "2,4,6-7"}},
                                                {"rank": "5", "children": {"core": "8-9"}}], "nodelist": ["a", "a"]}}
    )  # fmt: skip
    machine = Machine(inventory)
    assert [(node.name, node.first, node.count) for node in machine.nodes()] == [("a@3", 0, 4), ("a@5", 4, 2)]
    part = resource_set.parse(machine.resources(IdSet.of([1, 2, 4])))
    assert [(entry.rank, str(entry.cores)) for entry in part.ranks] == [(3, "4 6"), (5, "8")]
    assert machine.units_in(part) == IdSet.of([1, 2, 4])


def test_users_are_told_why_and_when() -> None:
    pair = Pair(policy="easy")
    pair.connect()
    notes = PendingReasons(lambda batch: Reply(batch.now, []), pair.cluster)
    pair.submit(8, duration_s=100.0)
    waiting = pair.submit(8, duration_s=50.0)
    pair.settle()
    job = pair.cluster.waiting[our_id(waiting)]
    told = notes(Batch(0.0, [JobSubmitted(0.0, job)])).decisions
    assert [decision.notes for decision in told if isinstance(decision, Annotate)] == [
        {"sched": {"reason_pending": "it needs 8 units, and 0 are free", "t_estimate": 100.0}}
    ]
    assert notes(Batch(1.0, [])).decisions == []
    pair.adapter.apply(0.0, [Annotate(0.0, job.id, {"sched": {"t_estimate": 100.0}})])
    pair.settle()
    assert pair.manager.jobs[waiting].annotations == {"sched": {"t_estimate": 100.0}}
    pair.finish(next(iter(pair.manager.holding)))
    assert pair.manager.jobs[waiting].annotations == {"sched": {"resource_summary": "rank[0-1]/core[0-3]"}}


def test_our_jobs_become_jobspecs_and_back(pair: Pair) -> None:
    from pilothouse.model.job import Job, Shape

    assert to_jobspec(Job("w0!1", 4, 60.0)).total_cores == 4
    shaped = to_jobspec(Job("w0!2", 3, shape=Shape(nodes=2, gpus_per_node=1)))
    assert (shaped.nodes, shaped.total_cores, shaped.gpus_per_slot) == (2, 6, 1)
    chunked = to_jobspec(Job("w0!3", 6, shape=Shape(chunk=2, gpus_per_chunk=1)))
    assert (chunked.total_slots, chunked.total_cores, chunked.gpus_per_slot) == (3, 6, 1)
    whole = to_jobspec(Job("w0!4", 0, shape=Shape(nodes=1)))
    assert whole.exclusive


@pytest.mark.parametrize(("ours", "theirs"), [(0, 16), (-3, 13), (-99, 1), (25, 25), (1e12, 2**32 - 1), (0.2, 1)])
def test_priorities_of_ours_never_hold_a_job(ours: float, theirs: int) -> None:
    assert priority_of(ours) == theirs


def test_a_second_loss_before_the_hello_ends_nobodys_job(pair: Pair) -> None:
    running, waiting = pair.submit(12), pair.submit(12)
    pair.settle()
    pair.adapter.lost(1.0, "the broker restarts")
    assert [type(event).__name__ for event in pair.adapter.take_events()] == ["JobWithdrawn"]
    pair.adapter.engine = SchedulerEngine()
    pair.adapter.lost(2.0, "it restarts again")
    assert pair.adapter.take_events() == []
    assert waiting in pair.manager.pending and running in pair.manager.holding


def test_a_grant_whose_answer_never_left_ends_with_its_connection(pair: Pair) -> None:
    pair.submit(1)
    pair.broker.flush(0.0)
    pair.link.step()
    # the commit was sent, and nothing came back
    assert pair.engine.busy
    pair.adapter.lost(1.0, "gone")
    (ended,) = pair.adapter.take_events()
    assert isinstance(ended, JobEnded) and ended.state is JobState.KILLED and ended.reason == "gone"


def test_the_granted_resources_keep_the_properties_of_their_nodes(pair: Pair) -> None:
    """A sub-instance matches `--requires` against the R that it was given."""
    acquire = pair.broker._acquirer
    assert acquire is not None
    change = b'{"property-add":{"fast":"1-2","slow":"0","+local":"0-2","a\\"b":"2"}}'
    pair.broker._send_back(rpc.respond(acquire[1], change, streaming=True))
    pair.settle()
    job_id = pair.submit(2, nodes=2, constraints={"properties": ["fast"]})
    plain = pair.submit(1)
    pair.settle()
    properties = [resource_set.parse(pair.manager.jobs[job].resources).properties for job in (job_id, plain)]
    assert properties == [{"fast": IdSet.of([1, 2]), 'a"b': IdSet.of([2])}, {"slow": IdSet.of([0])}]
    pair.broker._send_back(rpc.respond(acquire[1], b'{"property-remove":{"slow":"0"}}', streaming=True))
    pair.settle()
    later = pair.submit(1)
    pair.settle()
    assert resource_set.parse(pair.manager.jobs[later].resources).properties == {}


def raw_spec(resources: list[object]) -> bytes:
    return msgspec.json.encode(
        {"version": 1, "resources": resources, "attributes": {"system": {"duration": 0}},
         "tasks": [{"command": ["a"], "slot": "task", "count": {"per_slot": 1}}]}
    )  # fmt: skip


def test_exclusive_slots_get_whole_nodes(pair: Pair) -> None:
    slots = {"type": "slot", "count": 2, "label": "task", "exclusive": True, "with": [{"type": "core", "count": 3}]}
    pair.submit(1)
    job_id = pair._ids = 9 << 24
    pair.manager.submit(0.0, job_id, raw_spec([slots]))
    pair.settle()
    assert held(pair, job_id) == {1: ("0-3", "0-1"), 2: ("0-3", "0-1")}
    other = pair.submit(4)
    pair.settle()
    assert other in pair.manager.pending


def test_a_slot_may_hold_nodes(pair: Pair) -> None:
    node = {"type": "node", "count": 1, "with": [{"type": "core", "count": 2}, {"type": "gpu", "count": 1}]}
    job_id = 9 << 24
    pair.manager.submit(0.0, job_id, raw_spec([{"type": "slot", "count": 3, "label": "task", "with": [node]}]))
    pair.settle()
    assert held(pair, job_id) == {0: ("0-1", "0"), 1: ("0-1", "0"), 2: ("0-1", "0")}
    assert resource_set.parse(pair.manager.jobs[job_id].resources).slots == 3
    found = jobspec.parse(raw_spec([{"type": "slot", "count": 1, "label": "task", "with": [{**node, "count": 2}]}]))
    assert (found.nodes, found.total_slots, found.total_cores) == (2, 1, 4)
    assert jobspec.from_object(jobspec.to_object(found)) == found


def test_messages_name_the_gpus_that_are_missing(pair: Pair) -> None:
    pair.submit(6, gpus_per_slot=1)
    slots, nodes = pair.submit(2, gpus_per_slot=1), pair.submit(1, nodes=2, gpus_per_slot=2)
    never = pair.submit(7, gpus_per_slot=1)
    pair.settle()
    reasons = [explain(pair.cluster, our_id(job_id)).detail for job_id in (slots, nodes)]
    assert reasons == [
        "it needs 2 units with 1 GPU each, and 0 that suit it are free (0 GPUs free in all)",
        "it needs 2 nodes that have 1 unit free and 2 GPUs, and 0 are free (0 GPUs free in all)",
    ]
    note = next(e for e in read_log(pair.manager.inactive[never].log) if e.name == "exception").context["note"]
    assert note == "it needs 7 units with 1 GPU each on nodes that have 1 unit free and 1 GPU, and there are 6"


def test_a_rejection_without_a_reason_says_what_we_know(pair: Pair) -> None:
    pair.submit(12)
    job_id = pair.submit(1)
    pair.settle()
    pair.adapter.apply(0.0, [RejectJob(0.0, our_id(job_id))])
    pair.settle()
    note = next(e for e in read_log(pair.manager.inactive[job_id].log) if e.name == "exception").context["note"]
    assert note == "the scheduler rejected it and gave no reason"
