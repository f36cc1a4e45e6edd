"""Every SHALL and MUST of RFC 27 version 1, each test named after its section. The manager speaks the specification's
dialect; what today's Flux shares with it is checked in both."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from pilothouse.formats import resource_set
from pilothouse.formats.fluid import kvs_key
from pilothouse.model.errors import RunError
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.handshake import Phase
from pilothouse.protocols.rfc27.job_states import State
from pilothouse.protocols.rfc27.managed_job import merged
from pilothouse.protocols.rfc27.manager import Manager
from pilothouse.protocols.rfc27.manager_events import Denied, Suspended
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine
from pilothouse.protocols.rfc27.scheduler_events import Failed, Inventory
from unit.protocols.rfc27.eventlog import read_log
from unit.protocols.rfc27.pair import JOB, Pair, body, inventory, of_owner, spec


@pytest.fixture(params=["specification", "today"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(strict=request.param == "specification")
    made.connect()
    yield made
    assert made.engine.take_warnings() == []


@pytest.fixture
def strict() -> Pair:
    made = Pair(strict=True)
    made.connect()
    return made


def answers(pair: Pair, job_id: int) -> list[dict[str, object]]:
    return [body(m) for m in pair.said if m.topic == "sched.alloc" and body(m)["id"] == job_id]


def online_manager(*, strict: bool = True, mode: str = "unlimited") -> Manager:
    manager = Manager(strict=strict)
    flags = 0 if strict else frames.STREAMING
    manager.receive(0.0, rpc.request("job-manager.sched-hello", matchtag=1, flags=flags))
    manager.receive(0.0, rpc.request("job-manager.sched-ready", b'{"mode":"%s"}' % mode.encode(), matchtag=1))
    manager.take()
    manager.take_events()
    return manager


def answer(manager: Manager, payload: bytes, topic: str = "sched.alloc", errnum: int = 0) -> None:
    manager.receive(5.0, Message(frames.RESPONSE, topic, payload + b"\0", 0, errnum))


# ---- Implementation


def test_implementation_the_job_id_is_in_every_alloc_and_free_payload(pair: Pair) -> None:
    job_id = pair.submit()
    pair.settle()
    pair.finish(job_id)
    exchanged = [m for m in pair.heard + pair.said if m.topic in ("sched.alloc", "sched.free")]
    assert len(exchanged) == (4 if pair.strict else 3)
    assert all(body(message)["id"] == job_id for message in exchanged)
    assert all(message.matchtag == 0 for message in exchanged)


def test_implementation_not_more_than_one_alloc_in_flight_for_each_job(pair: Pair) -> None:
    blocker, waiting = pair.submit(8), pair.submit(8)
    pair.settle()
    pair.manager.set_urgency(0.0, waiting, 20)
    pair.manager.set_urgency(0.0, waiting, 21)
    pair.settle()
    in_flight = 0
    for message in pair.log:
        if message.topic == "sched.alloc" and body(message)["id"] == waiting and body(message).get("type") != 1:
            in_flight += 1 if message.type == frames.REQUEST else -1
            assert in_flight in (0, 1)
    assert waiting in pair.manager.pending
    assert blocker in pair.manager.holding


def test_implementation_not_more_than_one_free_in_flight_for_each_job() -> None:
    manager = online_manager()
    _run_one(manager)
    manager.finish(2.0, JOB)
    manager.cancel(2.0, JOB)
    assert [m.topic for m in manager.take()] == ["sched.free"]


def test_implementation_errnum_is_zero_even_for_a_refusal(pair: Pair) -> None:
    job_id = pair.submit(1000)
    pair.settle()
    refusals = [m for m in pair.said if m.topic == "sched.alloc"]
    assert [m.errnum for m in refusals] == [0]
    assert body(refusals[0])["type"] == 2 and job_id in pair.manager.inactive


def test_implementation_an_error_response_is_a_fatality_until_the_next_ready() -> None:
    for topic in ("sched.alloc", "sched.free"):
        manager = online_manager()
        manager.submit(0.0, JOB, spec())
        manager.dispatch()
        manager.take()
        answer(manager, b"broken", topic, errnum=errno.EINVAL)
        manager.submit(1.0, 2 * JOB, spec())
        manager.dispatch()
        assert manager.take() == []
        assert any(isinstance(event, Suspended) for event in manager.take_events())
        manager.receive(2.0, rpc.request("job-manager.sched-ready", b'{"mode":"unlimited"}', matchtag=1))
        assert manager.dispatch() == 2


# ---- Hello


def test_hello_is_the_first_request_to_the_manager_and_empty_and_waited_for(strict: Pair) -> None:
    to_manager = [m for m in strict.said if m.topic.startswith("job-manager.")]
    assert [m.topic for m in to_manager] == ["job-manager.sched-hello", "job-manager.sched-ready"]
    assert to_manager[0].payload is None
    engine = SchedulerEngine(strict=True)
    engine.begin()
    for _ in range(2):
        engine.receive(rpc.respond(engine.take()[0]))
    acquire = engine.take()[0]
    engine.receive(rpc.respond(acquire, b'{"resources":{"version":1,"execution":{"R_lite":[]}},"up":""}', streaming=True))
    assert [m.topic for m in engine.take()] == ["job-manager.sched-hello"]


def test_an_inventory_that_cannot_be_read_makes_the_scheduler_stop() -> None:
    engine = SchedulerEngine()
    engine.begin()
    while (requests := engine.take()) and requests[0].topic != "resource.acquire":
        for request in requests:
            engine.receive(rpc.respond(request, b"{}"))
    engine.receive(rpc.respond(requests[0], b'{"resources":{"version":9},"up":""}', streaming=True))
    assert engine.phase is Phase.FAILED
    assert any(isinstance(event, Failed) for event in engine.take_events())


def test_hello_answer_is_one_object_with_the_key_alloc_and_the_required_keys(strict: Pair) -> None:
    job_id = strict.submit()
    strict.settle()
    strict.crash()
    strict.connect()
    hello = [body(m) for m in strict.heard if m.topic == "job-manager.sched-hello"][-1]
    assert list(hello) == ["alloc"]
    (entry,) = hello["alloc"]
    assert {"id", "priority", "userid"} <= entry.keys()
    assert (entry["id"], entry["priority"], entry["userid"]) == (job_id, 16, 0)


def test_hello_the_scheduler_marks_resources_of_these_jobs_allocated(pair: Pair) -> None:
    first = pair.submit(5)
    pair.settle()
    pair.crash()
    pair.connect()
    second, third = pair.submit(3), pair.submit(1)
    pair.settle()
    assert set(pair.manager.holding) == {first, second}
    pair.finish(first)
    assert set(pair.manager.holding) == {second, third}


def test_hello_an_error_makes_the_scheduler_log_and_stop() -> None:
    engine = _engine_at("job-manager.sched-hello")
    engine.receive(rpc.respond_error(engine.take()[0], errno.EPERM, "go away"))
    (failed,) = [event for event in engine.take_events() if isinstance(event, Failed)]
    assert failed.problem == "job-manager.sched-hello: EPERM: go away"
    assert engine.phase is Phase.FAILED and engine.take() == []


# ---- Ready


def test_ready_is_said_after_the_hello_with_a_mode(pair: Pair) -> None:
    (ready,) = [m for m in pair.said if m.topic == "job-manager.sched-ready"]
    assert body(ready) == {"mode": "unlimited"}


def test_ready_single_sends_a_request_only_when_none_is_outstanding() -> None:
    pair = Pair(strict=True, limit=1)
    pair.connect()
    assert body(next(m for m in pair.said if m.topic == "job-manager.sched-ready")) == {"mode": "single"}
    jobs = [pair.submit(8) for _ in range(3)]
    pair.settle()
    assert [len(answers(pair, job)) for job in jobs] == [1, 0, 0]
    assert list(pair.manager.pending) == [jobs[1]]
    pair.finish(jobs[0])
    assert list(pair.manager.pending) == [jobs[2]]


def test_ready_unlimited_sends_a_request_for_all_jobs_in_sched(pair: Pair) -> None:
    for _ in range(50):
        pair.submit(8)
    pair.settle()
    assert len(pair.manager.pending) == 49 and not pair.manager.queue


def test_ready_the_response_payload_is_empty(strict: Pair) -> None:
    (response,) = [m for m in strict.heard if m.topic == "job-manager.sched-ready"]
    assert response.payload is None and response.errnum == 0


@pytest.mark.parametrize("payload", [b'{"mode":"wild"}', b"{}", b'{"mode":7}', b'{"mode":"limited","limit":0}', b"]["])
def test_ready_any_other_mode_is_refused(payload: bytes) -> None:
    manager = Manager(strict=True)
    manager.receive(0.0, rpc.request("job-manager.sched-ready", payload, matchtag=1))
    assert [m.errnum for m in manager.take()] == [errno.EPROTO] and not manager.online


def test_ready_an_error_makes_the_scheduler_log_and_stop() -> None:
    engine = _engine_at("job-manager.sched-ready")
    engine.receive(rpc.respond_error(engine.take()[0], errno.EPROTO))
    assert any(isinstance(event, Failed) for event in engine.take_events())


# ---- Alloc


def test_alloc_is_sent_when_a_job_enters_sched_with_the_required_keys(strict: Pair) -> None:
    job_id = strict.submit(urgency=18)
    strict.settle()
    (request,) = [body(m) for m in strict.heard if m.topic == "sched.alloc"]
    assert {"id", "priority", "userid"} <= request.keys() and "jobspec" not in request
    assert (request["id"], request["priority"], request["userid"]) == (job_id, 18, 0)


def test_alloc_requests_come_in_priority_then_submit_time_order(pair: Pair) -> None:
    """Design criteria: send allocation requests in priority, submit time order."""
    manager = pair.manager
    pair.crash()
    submitted = []
    for number, urgency in enumerate((16, 20, 16, 31, 20), start=1):
        pair.now = float(number)
        submitted.append(pair.submit(urgency=urgency))
    pair.connect()
    asked = [body(m)["id"] for m in pair.heard if m.topic == "sched.alloc"]
    assert asked == [submitted[i] for i in (3, 1, 4, 0, 2)]
    assert manager.online


def test_alloc_a_held_job_is_not_asked_for(pair: Pair) -> None:
    job_id = pair.submit(urgency=0)
    pair.settle()
    assert answers(pair, job_id) == [] and pair.manager.jobs[job_id].state is State.SCHED
    pair.manager.set_urgency(0.0, job_id, 31)
    pair.settle()
    assert [body(m)["priority"] for m in pair.heard if m.topic == "sched.alloc"] == [4294967295]


def test_alloc_the_scheduler_looks_up_jobspec_in_the_kvs(strict: Pair) -> None:
    job_id = strict.submit()
    strict.settle()
    assert body(next(m for m in strict.said if m.topic == "kvs.lookup"))["key"] == kvs_key(job_id, "jobspec")


def test_alloc_success_r_is_committed_before_the_response(pair: Pair) -> None:
    job_id = pair.submit(3)
    pair.settle()
    said = [m.topic for m in pair.said if m.topic in ("kvs.commit", "sched.alloc")]
    assert said == ["kvs.commit", "sched.alloc"]
    assert pair.broker.read(kvs_key(job_id, "R")) == pair.manager.jobs[job_id].resources
    assert pair.manager.take_warnings() == []


def test_alloc_success_annotations_update_the_dictionary_and_are_in_the_alloc_event(pair: Pair) -> None:
    job_id = pair.submit(2)
    pair.settle()
    job = pair.manager.jobs[job_id]
    assert job.annotations == {"sched": {"resource_summary": "rank0/core[0-1]"}}
    alloc = [entry for entry in read_log(job.log) if entry.name == "alloc"]
    assert [entry.context for entry in alloc] == [{"annotations": job.annotations}]


def test_alloc_success_retires_the_request(pair: Pair) -> None:
    job_id = pair.submit()
    pair.settle()
    assert job_id not in pair.manager.pending and job_id not in pair.engine.pending


def test_alloc_annotate_rules_one_by_one() -> None:
    old = {"sched": {"a": 1, "b": {"c": 2}}, "user": "text"}
    assert merged(old, {"sched": {"b": {"d": 3}}})["sched"] == {"a": 1, "b": {"c": 2, "d": 3}}  # recursively
    assert merged(old, {"user": {"x": 1}})["user"] == {"x": 1}  # replaced
    assert merged(old, {"sched": 5})["sched"] == 5
    assert "a" not in merged(old, {"sched": {"a": None}})["sched"]  # null removes
    assert merged(old, {"new": [1]})["new"] == [1]  # added
    assert old == {"sched": {"a": 1, "b": {"c": 2}}, "user": "text"}


def test_alloc_annotate_the_dictionary_is_kept_and_dropped_when_the_allocation_fails() -> None:
    manager = online_manager()
    manager.submit(0.0, JOB, spec())
    manager.dispatch()
    job = manager.jobs[JOB]
    answer(manager, b'{"id":%d,"type":1,"annotations":{"sched":{"t_estimate":9.5,"reason_pending":"x"}}}' % JOB)
    answer(manager, b'{"id":%d,"type":1,"annotations":{"sched":{"reason_pending":null}}}' % JOB)
    assert job.annotations == {"sched": {"t_estimate": 9.5}}
    answer(manager, b'{"id":%d,"type":2}' % JOB)
    assert job.annotations is None and job.state is State.INACTIVE


def test_annotations_of_a_cancelled_request_are_dropped() -> None:
    manager = online_manager()
    manager.submit(0.0, JOB, spec())
    manager.dispatch()
    answer(manager, b'{"id":%d,"type":1,"annotations":{"sched":{"t_estimate":9.5}}}' % JOB)
    manager.prioritize(0.0, [(JOB, 0)])  # held: the request is cancelled
    answer(manager, b'{"id":%d,"type":3}' % JOB)
    assert manager.jobs[JOB].annotations is None
    assert manager.jobs[JOB].state is State.SCHED


def test_alloc_deny_for_a_request_that_can_never_be_fulfilled_with_its_note(pair: Pair) -> None:
    job_id = pair.submit(9)
    pair.settle()
    (refusal,) = answers(pair, job_id)
    assert refusal["type"] == 2 and set(refusal) == {"id", "type", "note"}
    exception = next(e for e in read_log(pair.manager.inactive[job_id].log) if e.name == "exception")
    assert exception.context["note"] == refusal["note"] == "it needs 9 units, and there are 8"
    assert Denied(job_id, str(refusal["note"])) in pair.events


def test_alloc_cancel_answers_the_alloc_request_with_the_required_keys_only(pair: Pair) -> None:
    pair.submit(8)
    waiting = pair.submit(8)
    pair.settle()
    pair.manager.cancel(0.0, waiting)
    pair.settle()
    assert answers(pair, waiting) == [{"id": waiting, "type": 3}]
    assert waiting in pair.manager.inactive and not pair.manager.pending


# ---- Cancel


def test_cancel_gets_no_direct_response(pair: Pair) -> None:
    pair.submit(8)
    waiting = pair.submit(8)
    pair.settle()
    pair.manager.cancel(0.0, waiting)
    pair.settle()
    assert "sched.cancel" in pair.topics(pair.heard)
    assert "sched.cancel" not in pair.topics(pair.said)


def test_cancel_of_a_job_without_a_pending_request_is_ignored(pair: Pair) -> None:
    running = pair.submit()
    pair.settle()
    before = len(pair.said)
    for job_id in (running, 77 * JOB):
        pair.engine.receive(of_owner(rpc.request("sched.cancel", b'{"id":%d}' % job_id, flags=frames.NORESPONSE)))
    pair.settle()
    assert len(pair.said) == before and running in pair.manager.holding


# ---- Prioritize


def test_prioritize_is_one_message_of_pairs_without_a_response(pair: Pair) -> None:
    pair.submit(8)
    waiting = [pair.submit(8) for _ in range(3)]
    pair.settle()
    pair.manager.prioritize(0.0, [(job_id, 1000 + i) for i, job_id in enumerate(waiting)])
    pair.settle()
    (request,) = [m for m in pair.heard if m.topic == "sched.prioritize"]
    assert body(request) == {"jobs": [[job_id, 1000 + i] for i, job_id in enumerate(waiting)]}
    assert "sched.prioritize" not in pair.topics(pair.said)
    assert [pair.cluster.waiting[job_id].priority for job_id in pair.cluster.waiting] == [1000, 1001, 1002]


def test_prioritize_of_unknown_jobs_is_ignored(pair: Pair) -> None:
    payload = b'{"jobs":[[99,1],[98,4294967295]]}'
    pair.engine.receive(of_owner(rpc.request("sched.prioritize", payload, flags=frames.NORESPONSE)))
    pair.settle()
    assert pair.engine.phase is Phase.ONLINE


# ---- Free


def test_free_is_sent_when_a_job_that_holds_resources_enters_cleanup(pair: Pair) -> None:
    job_id = pair.submit()
    pair.settle()
    pair.finish(job_id)
    (request,) = [m for m in pair.heard if m.topic == "sched.free"]
    assert body(request)["id"] == job_id
    assert list(body(request)) == (["id"] if pair.strict else ["id", "R", "final"])


def test_free_is_answered_with_the_id_when_processed(strict: Pair) -> None:
    job_id = strict.submit(8)
    strict.settle()
    job = strict.manager.jobs[job_id]
    strict.manager.finish(1.0, job_id)
    assert job.state is State.CLEANUP and job_id in strict.manager.holding
    strict.settle()
    assert [body(m) for m in strict.said if m.topic == "sched.free"] == [{"id": job_id}]
    assert job.state is State.INACTIVE and strict.cluster.free == 8


def test_free_of_today_is_not_answered() -> None:
    pair = Pair()
    pair.connect()
    job_id = pair.submit()
    pair.settle()
    pair.finish(job_id)
    assert "sched.free" not in pair.topics(pair.said)


# ---- Finalization


def test_finalization_enosys_of_the_broker_suspends_and_is_logged() -> None:
    pair = Pair(strict=True)
    pair.connect()
    job_id = pair.submit()
    pair.broker._services.clear()  # the scheduler's module is gone, its connection is not
    pair.broker.dispatch(0.0)
    assert not pair.manager.online
    assert any("ENOSYS" in warning for warning in pair.manager.take_warnings())
    assert pair.manager.jobs[job_id].state is State.SCHED


def test_finalization_a_disconnect_suspends_and_a_new_handshake_resumes(pair: Pair) -> None:
    running, waiting = pair.submit(8), pair.submit(8)
    pair.settle()
    pair.crash()
    assert not pair.manager.online and running in pair.manager.holding
    later = pair.submit(1)
    assert pair.manager.dispatch() == 0
    pair.connect()
    assert set(pair.manager.pending) == {waiting, later}
    pair.finish(running)
    assert waiting in pair.manager.holding


def test_a_job_that_ended_while_the_scheduler_was_away_is_freed_and_others_run_on(pair: Pair) -> None:
    """Its decider hears of the end; it is not told that those that run have ended."""
    ended, runs = pair.submit(4), pair.submit(2)
    pair.settle()
    pair.link.disconnect()
    pair.settle_manager()
    pair.manager.finish(pair.now, ended)
    pair.begin()
    pair.settle()
    assert pair.cluster.free == 6
    assert list(pair.manager.holding) == [runs]


def test_an_instance_that_comes_back_with_another_inventory_is_refused(pair: Pair) -> None:
    pair.adapter.handle(0.0, [Inventory(resource_set.parse(inventory(2, 4)), IdSet.span(0, 2), None)])
    with pytest.raises(RunError, match="came back with another inventory"):
        pair.adapter.handle(0.0, [Inventory(resource_set.parse(inventory(2, 5)), IdSet.span(0, 2), None)])


# ---- Exceptions


def test_exceptions_a_fatal_one_cancels_an_outstanding_request(pair: Pair) -> None:
    pair.submit(8)
    waiting = pair.submit(8)
    pair.settle()
    pair.manager.cancel(0.0, waiting, "no more", kind="timeout")
    pair.settle()
    assert pair.topics(pair.heard, waiting)[-1] == "sched.cancel"


def test_exceptions_a_fatal_one_frees_what_the_job_holds_when_its_tasks_are_gone(pair: Pair) -> None:
    running = pair.submit(8)
    pair.settle()
    pair.manager.cancel(0.0, running)
    pair.settle()
    assert pair.manager.jobs[running].state is State.CLEANUP
    assert "sched.free" not in pair.topics(pair.heard)
    pair.finish(running)
    assert pair.topics(pair.heard, running)[-1] == "sched.free"
    assert running in pair.manager.inactive


def _run_one(manager: Manager) -> None:
    manager.submit(0.0, JOB, spec())
    manager.dispatch()
    held = b'{"version":1,"execution":{"R_lite":[{"rank":"0","children":{"core":"0"}}],"starttime":0,"expiration":0}}'
    manager.jobs[JOB].committed = held
    answer(manager, b'{"id":%d,"type":0}' % JOB)
    manager.start(1.0, JOB)
    manager.take()


def _engine_at(topic: str) -> SchedulerEngine:
    """An engine of the specification's dialect that has just said this."""
    replies = {"resource.acquire": b'{"resources":{"version":1,"execution":{"R_lite":[]}},"up":""}',
               "job-manager.sched-hello": b'{"alloc":[]}'}  # fmt: skip
    engine = SchedulerEngine(strict=True)
    engine.begin()
    while engine.out[0].topic != topic:
        message = engine.take()[0]
        engine.receive(rpc.respond(message, replies.get(message.topic), streaming=message.streaming))
    return engine



# ---- what Flux's own schedulers rely on beyond the text


def test_a_submit_time_of_zero_is_told_as_a_real_number(pair: Pair) -> None:
    """Simulated work begins at 0; Flux's schedulers demand the key, and C ones a JSON real."""
    job_id = pair.submit()
    pair.settle()
    pair.crash()
    pair.connect()
    told = [m.body() for m in pair.heard if m.topic in ("sched.alloc", "job-manager.sched-hello") and not m.errnum]
    assert len(told) == (3 if pair.strict else 2)
    assert all(b'"t_submit":0.0' in payload for payload in told if b"%d" % job_id in payload)
    assert not any(b'"free"' in payload for payload in told)


def test_a_waiting_job_costs_little_on_both_sides() -> None:
    """Design criteria: no obstacle to a million jobs in SCHED state (bench/rfc27.py --scale runs the million)."""
    import tracemalloc

    count = 5000
    pair = Pair()
    pair.connect()
    pair.submit(8)
    pair.settle()
    pair.heard.clear()
    one_spec = spec(8)
    tracemalloc.start()
    for number in range(2, count + 2):
        pair.manager.submit(float(number), number << 24, one_spec)
    pair.settle()
    for log in (pair.heard, pair.said, pair.log, pair.events):
        log.clear()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(pair.cluster.waiting) == len(pair.manager.pending) == count
    assert used / count < 1500
