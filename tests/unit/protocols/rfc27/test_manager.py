"""The job manager beyond the rules of the specification: limits, replaced requests, late answers, partial frees, questions."""

from __future__ import annotations

import errno
from typing import Any

import msgspec
import pytest

from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27 import alloc_requests, frames, rpc
from pilothouse.protocols.rfc27 import manager_events as m
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.job_states import State
from pilothouse.protocols.rfc27.managed_job import Alloc
from pilothouse.protocols.rfc27.manager import Manager
from unit.protocols.rfc27.eventlog import read_log
from unit.protocols.rfc27.pair import JOB, body, spec

DIALECTS = pytest.mark.parametrize("strict", [False, True], ids=["today", "specification"])


def resources(*ranks: int, cores: str = "0-1", gpus: str = "") -> bytes:
    children = {"core": cores, **({"gpu": gpus} if gpus else {})}
    lite = [{"rank": str(rank), "children": children} for rank in ranks]
    return msgspec.json.encode({"version": 1, "execution": {"R_lite": lite, "starttime": 0, "expiration": 0}})


def greet(manager: Manager, *, hello: bytes | None = None, **ready: object) -> list[Message]:
    """A scheduler joins; the answers to its hello and to its ready."""
    flags = 0 if manager.strict else frames.STREAMING
    manager.receive(0.0, rpc.request("job-manager.sched-hello", hello, matchtag=1, flags=flags))
    manager.receive(0.0, rpc.request("job-manager.sched-ready", msgspec.json.encode({"mode": "unlimited", **ready}), matchtag=2))
    return manager.take()


def online(*, strict: bool = False, **ready: object) -> Manager:
    manager = Manager(strict=strict)
    greet(manager, **ready)
    manager.take_events()
    return manager


def answer(manager: Manager, number: int, kind: int, **more: Any) -> None:
    given = {**more, "R": msgspec.Raw(more["R"])} if "R" in more else more
    payload = msgspec.json.encode({"id": number * JOB, "type": kind, **given}) + b"\0"
    manager.receive(5.0, Message(frames.RESPONSE, "sched.alloc", payload, 0, 0))


def submit(manager: Manager, *priorities: int) -> None:
    """Jobs 1, 2, ... of these priorities; their requests are sent as far as the limit allows it."""
    for number, priority in enumerate(priorities, start=1):
        manager.submit(float(number), number * JOB, spec(), priority=priority)
    manager.dispatch()


def run(manager: Manager, number: int, granted: bytes) -> None:
    """A job that runs on these resources."""
    manager.submit(0.0, number * JOB, spec())
    manager.dispatch()
    manager.jobs[number * JOB].committed = granted
    answer(manager, number, 0, R=granted)
    manager.start(1.0, number * JOB)
    manager.take()
    manager.take_events()


def said(manager: Manager) -> list[tuple[str, int]]:
    """Topic and job of what was sent since."""
    return [(message.topic, body(message)["id"] // JOB) for message in manager.take()]


# ---- before and after a scheduler


def test_a_manager_without_a_scheduler_asks_nothing() -> None:
    manager = Manager()
    assert (manager.online, manager.strict, manager.limit, manager.stopped) == (False, False, 0, False)
    submit(manager, 16, 16)
    assert manager.dispatch() == 0 and manager.take() == [] and len(manager.queue) == 2
    assert Manager(strict=True).strict


def test_a_job_has_the_urgency_and_owner_that_it_was_given() -> None:
    manager = Manager()
    plain = manager.submit(3.0, JOB, spec())
    urgent = manager.submit(3.0, 2 * JOB, spec(), userid=7, urgency=31)
    assert (plain.userid, plain.urgency, plain.priority, plain.submitted_s) == (0, 16, 16, 3.0)
    assert (urgent.userid, urgent.urgency, urgent.priority) == (7, 31, 2**32 - 1)
    log = read_log(urgent.log)
    assert [entry.name for entry in log] == ["submit", "validate", "depend", "priority"]
    assert log[0].context == {"userid": 7, "urgency": 31, "flags": 0, "version": 1} and log[0].timestamp == 3.0
    assert manager.adopt(4.0, 3 * JOB, spec(), resources(0)).userid == 0
    with pytest.raises(ValueError, match="exists"):
        manager.submit(5.0, JOB, spec())


def test_requests_are_sent_up_to_the_number_that_is_asked_for() -> None:
    manager = online()
    for number in range(1, 8):
        manager.submit(0.0, number * JOB, spec())
    assert [manager.dispatch(most) for most in (2, 1, 0)] == [2, 1, 0]
    assert [manager.dispatch(), manager.dispatch()] == [4, 0]
    assert said(manager) == [("sched.alloc", number) for number in range(1, 8)]


@DIALECTS
def test_what_is_left_of_a_scheduler_that_is_gone(strict: bool) -> None:
    manager = online(strict=strict)
    submit(manager, 16, 16, 16)
    answer(manager, 1, 1, annotations={"sched": {"t_estimate": 9.0}})
    manager.cancel(2.0, 2 * JOB)
    manager.ask_feasibility(4, spec())
    manager.ask_quiet(5, 2.0)
    manager.take(), manager.take_events()
    manager.lost(3.0)
    first = manager.jobs[JOB]
    assert first.annotations is None and first.alloc is Alloc.QUEUED and not manager.pending and len(manager.queue) == 2
    told = [m.Suspended("the scheduler disconnected"), m.FeasibilityAnswered(4, ""), m.Quiet(5, False)]
    assert manager.take_events() == ([*told, m.CancelConfirmed(2 * JOB)] if strict else told)
    assert manager.take_warnings() == ["scheduling is suspended: the scheduler disconnected"]
    assert manager.jobs.keys() == {JOB, 3 * JOB} and manager.inactive.keys() == {2 * JOB}
    manager.lost(4.0)
    assert manager.take_events() == [] and manager.take_warnings() == []
    greet(manager)
    assert manager.dispatch() == 2
    # the answer for the canceled one was for another connection
    answer(manager, 2, 0, R=resources(0))
    assert "not pending" in manager.take_warnings()[-1]


def test_a_scheduler_that_is_ready_again_gets_all_requests_again() -> None:
    manager = online()
    submit(manager, 16, 17)
    manager.take()
    manager.receive(2.0, rpc.request("job-manager.sched-ready", b'{"mode":"single"}', matchtag=2))
    assert manager.take_events() == [m.Suspended("a scheduler says that it is ready"), m.WentOnline(False, 1)]
    assert not manager.pending and manager.online and body(manager.take()[0]) == {"count": 2}
    assert manager.dispatch() == 1 and said(manager) == [("sched.alloc", 2)]


def test_ended_jobs_and_equal_jobspecs_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alloc_requests, "MOST_INACTIVE", 2)
    monkeypatch.setattr(alloc_requests, "MOST_SPECS", 1)
    manager = Manager()
    texts = [b'{"x":%d}' % number for number in (1, 1, 2, 3, 1)]
    jobs = [manager.submit(0.0, number * JOB, text) for number, text in enumerate(texts, start=1)]
    assert [job.spec for job in jobs] == texts
    assert jobs[0].spec is jobs[1].spec
    assert jobs[0].spec is not jobs[4].spec, "the cache was emptied"
    for number in (1, 2, 3, 4):
        manager.cancel(0.0, number * JOB)
    assert list(manager.inactive) == [3 * JOB, 4 * JOB]
    assert manager.find(JOB) is None and manager.find(4 * JOB) is jobs[3] and manager.find(5 * JOB) is jobs[4]


# ---- limited mode


def test_a_more_urgent_job_replaces_the_lowest_pending_one() -> None:
    manager = online(mode="limited", limit=3)
    submit(manager, 20, 18, 18)
    assert len(said(manager)) == 3
    manager.submit(9.0, 4 * JOB, spec(), priority=18)
    assert manager.dispatch() == 0 and said(manager) == [], "it is not more urgent"
    manager.submit(9.0, 5 * JOB, spec(), priority=19)
    manager.submit(9.0, 6 * JOB, spec(), priority=19)
    assert manager.dispatch() == 0
    # of equals the one that came last; and only one at a time
    assert said(manager) == [("sched.cancel", 3)]
    assert manager.dispatch() == 0 and said(manager) == []
    answer(manager, 3, 3)
    assert manager.dispatch() == 1
    assert said(manager) == [("sched.alloc", 5), ("sched.cancel", 2)]
    answer(manager, 2, 3)
    manager.dispatch()
    assert said(manager) == [("sched.alloc", 6)]
    assert manager.pending.keys() == {JOB, 5 * JOB, 6 * JOB} and len(manager.queue) == 3


def test_another_answer_than_the_cancel_ends_a_replacement_too() -> None:
    for kind, more in ((0, {"R": resources(0)}), (2, {})):
        manager = online(mode="single")
        submit(manager, 10, 20)
        assert said(manager) == [("sched.alloc", 2)]
        manager.submit(3.0, 3 * JOB, spec(), priority=30)
        manager.dispatch()
        assert said(manager) == [("sched.cancel", 2)]
        answer(manager, 2, kind, **more)
        manager.submit(4.0, 4 * JOB, spec(), priority=40)
        assert manager.dispatch() == 1 and said(manager) == [("sched.alloc", 4)]
        manager.submit(5.0, 5 * JOB, spec(), priority=50)
        manager.dispatch()
        assert said(manager) == [("sched.cancel", 4)]


def test_a_job_whose_priority_changed_is_replaced_by_its_new_one() -> None:
    manager = online(mode="limited", limit=2)
    submit(manager, 10, 20)
    manager.prioritize(3.0, [(JOB, 40)])
    manager.submit(4.0, 3 * JOB, spec(), priority=30)
    manager.take()
    manager.dispatch()
    assert said(manager) == [("sched.cancel", 2)]


def test_a_canceled_job_makes_room_for_the_next_replacement() -> None:
    manager = online(mode="single")
    submit(manager, 10, 5)
    manager.submit(3.0, 3 * JOB, spec(), priority=30)
    manager.dispatch()
    assert said(manager) == [("sched.alloc", 1), ("sched.cancel", 1)]
    manager.cancel(4.0, JOB)
    assert manager.dispatch() == 1
    manager.submit(5.0, 4 * JOB, spec(), priority=40)
    manager.dispatch()
    assert said(manager) == [("sched.alloc", 3), ("sched.cancel", 3)]


def test_a_new_scheduler_may_replace_requests_at_once() -> None:
    manager = online(mode="single")
    submit(manager, 10)
    manager.submit(3.0, 2 * JOB, spec(), priority=20)
    manager.dispatch()
    manager.lost(4.0)
    greet(manager, mode="single")
    manager.dispatch()
    manager.submit(5.0, 3 * JOB, spec(), priority=30)
    manager.dispatch()
    assert said(manager) == [("sched.alloc", 2), ("sched.cancel", 2)]


# ---- answers that come late, or are wrong


def test_late_answers_of_canceled_requests() -> None:
    """Today's dialect: the job is over at once, and the answer comes later."""
    manager = online()
    submit(manager, 16, 16, 16)
    for number in (1, 2, 3):
        manager.cancel(1.0, number * JOB)
    manager.take()
    answer(manager, 1, 1, annotations={"x": 1})
    assert manager.take() == [] and manager.take_events() == [] and manager.take_warnings() == []
    answer(manager, 1, 0, R=resources(1))
    (freed,) = manager.take()
    assert freed.topic == "sched.free" and freed.flags == 0 and freed.matchtag == 0
    assert body(freed) == {"id": JOB, "R": msgspec.json.decode(resources(1)), "final": True}
    answer(manager, 2, 0)
    answer(manager, 3, 3)
    assert manager.take() == [] and manager.take_warnings() == []
    for number in (1, 2, 3, 9):
        answer(manager, number, 3)
    warnings = manager.take_warnings()
    assert len(warnings) == 4 and all("answer of type 3" in text and "not pending" in text for text in warnings)
    assert manager.online


@DIALECTS
def test_a_free_that_nobody_asked_for_is_a_warning(strict: bool) -> None:
    manager = online(strict=strict)
    run(manager, 1, resources(0))
    for number in (1, 2):
        manager.receive(2.0, Message(frames.RESPONSE, "sched.free", b'{"id":%d}\0' % (number * JOB), 0, 0))
    assert sum("not being freed" in text for text in manager.take_warnings()) == 2
    assert manager.holding.keys() == {JOB} and manager.jobs[JOB].state is State.RUN


def test_a_grant_without_resources_suspends_scheduling() -> None:
    for granted, words in (({}, "neither here nor in the KVS"), ({"R": b'{"version":9}'}, "malformed payload")):
        manager = online()
        submit(manager, 16)
        answer(manager, 1, 0, **granted)
        assert not manager.online and words in manager.take_warnings()[-1]
        assert manager.jobs[JOB].alloc is Alloc.QUEUED


def test_resources_that_are_not_in_the_kvs_are_taken_with_a_warning() -> None:
    manager = online()
    submit(manager, 16, 16)
    answer(manager, 1, 0, R=resources(0))
    assert "before its R was in the KVS" in manager.take_warnings()[-1]
    manager.jobs[2 * JOB].committed = resources(1)
    answer(manager, 2, 0)
    assert manager.take_warnings() == []
    assert manager.take_events() == [m.Allocated(JOB, resources(0)), m.Allocated(2 * JOB, resources(1))]
    assert [entry.context for entry in read_log(manager.jobs[JOB].log) if entry.name == "alloc"] == [{}]


def test_a_denial_is_logged_with_its_note_if_it_has_one() -> None:
    manager = online()
    submit(manager, 16, 16)
    answer(manager, 1, 2, note="too large")
    answer(manager, 2, 2)
    contexts = [read_log(manager.inactive[number * JOB].log)[-2].context for number in (1, 2)]
    assert contexts == [{"type": "alloc", "severity": 0, "userid": 0, "note": "too large"},
                        {"type": "alloc", "severity": 0, "userid": 0}]  # fmt: skip
    assert manager.take_events() == [m.Denied(JOB, "too large"), m.Denied(2 * JOB, "")]


# ---- resources


def test_ranks_are_given_back_before_the_end_and_only_once() -> None:
    manager = online()
    run(manager, 1, resources(0, 1, 2))
    job = manager.jobs[JOB]
    manager.release(2.0, JOB, IdSet.of([1, 7]))
    (part,) = manager.take()
    assert body(part)["final"] is False and body(part)["id"] == JOB
    assert [entry["rank"] for entry in body(part)["R"]["execution"]["R_lite"]] == ["1"]
    released = read_log(job.log)[-1]
    assert (released.name, released.context) == ("release", {"ranks": "1", "final": False})
    manager.release(3.0, JOB, IdSet.of([1]))
    manager.release(3.0, JOB, IdSet.of([0, 2]))
    assert manager.take() == [], "given back already; and the last ones go with the end"
    manager.finish(4.0, JOB, 256)
    (rest,) = manager.take()
    assert body(rest)["final"] is True
    assert [entry["rank"] for entry in body(rest)["R"]["execution"]["R_lite"]] == ["0,2"]
    names = [(entry.name, entry.context) for entry in read_log(job.log)[-4:]]
    assert names == [("finish", {"status": 256}), ("release", {"ranks": "all", "final": True}), ("free", {}), ("clean", {})]
    assert not manager.holding and job.resources == b""


@DIALECTS
def test_ranks_that_are_given_back_without_a_scheduler(strict: bool) -> None:
    manager = online(strict=strict)
    run(manager, 1, resources(0, 1))
    manager.lost(2.0)
    manager.release(2.0, JOB, IdSet.of([1]))
    assert manager.take() == [] and manager.jobs[JOB].freed_ranks == (0 if strict else 2)
    for hello, free in ((b'{"partial-ok":true}', "1"), (b'{"partial-ok":false}', None), (b"{}", None), (None, None)):
        first = greet(manager, hello=hello)[0]
        (known,) = body(first)["alloc"] if strict else [body(first)]
        assert known.get("free") == (None if strict else free)
        assert known.keys() >= {"id", "priority", "userid", "t_submit"}
        manager.lost(3.0)


def test_the_status_of_resources_is_the_union_of_what_jobs_hold() -> None:
    manager = online()
    run(manager, 1, resources(0, 1, cores="0", gpus="0"))
    run(manager, 2, resources(1, 2, cores="2-3", gpus="1"))
    run(manager, 3, resources(3, 4))
    manager.release(2.0, 3 * JOB, IdSet.of([4]))
    manager.take()
    manager.receive(2.0, rpc.request("job-manager.resource-status", matchtag=4))
    (status,) = manager.take()
    held = body(status)["allocated"]["execution"]["R_lite"]
    assert {entry["rank"]: entry["children"] for entry in held} == {
        "0": {"core": "0", "gpu": "0"},
        "1": {"core": "0,2-3", "gpu": "0-1"},
        "2": {"core": "2-3", "gpu": "1"},
        "3": {"core": "0-1"},
    }


def test_a_job_that_ended_while_no_scheduler_was_there_is_freed_when_one_is_ready() -> None:
    """The specification's dialect: it is in the hello until a scheduler has answered its free request."""
    manager = online(strict=True)
    for number in (1, 2):
        run(manager, number, resources(number))
    manager.finish(2.0, JOB)
    assert said(manager) == [("sched.free", 1)]
    manager.lost(3.0)
    hello, ready, again = greet(manager)
    assert [entry["id"] for entry in body(hello)["alloc"]] == [JOB, 2 * JOB]
    assert ready.payload is None and (again.topic, body(again)) == ("sched.free", {"id": JOB})
    manager.receive(4.0, Message(frames.RESPONSE, "sched.free", b'{"id":%d}\0' % JOB, 0, 0))
    assert manager.holding.keys() == {2 * JOB} and JOB in manager.inactive


# ---- questions, time limits, the queue


@pytest.mark.parametrize(
    ("errnum", "text", "refusal"),
    [(0, "", ""), (errno.EOVERFLOW, "too large", "too large"), (errno.EINVAL, "", "EINVAL"), (errno.ENOSYS, "x", ""),
     (errno.ECANCELED, "", "")],
)  # fmt: skip
def test_a_question_of_feasibility_and_its_answers(errnum: int, text: str, refusal: str) -> None:
    manager = online()
    manager.ask_feasibility(7, spec(3))
    (asked,) = manager.take()
    assert body(asked) == {"jobspec": msgspec.json.decode(spec(3)), "userid": 0, "rolemask": 1, "urgency": 16, "flags": 0}
    manager.receive(1.0, rpc.respond_error(asked, errnum, text) if errnum else rpc.respond(asked))
    assert manager.take_events() == [m.FeasibilityAnswered(7, refusal)]


def test_a_scheduler_is_asked_whether_it_has_finished() -> None:
    manager = online()
    answers = ((None, 0), (b'{"id":1,"call_at":8.5}', 0), (b'{"id":1}', 0), (None, errno.ENOSYS))
    for payload, errnum in answers:
        manager.ask_quiet(6, 2.5)
        (asked,) = manager.take()
        assert asked.topic == "sched.quiesce" and body(asked) == {"id": 6, "now": 2.5}
        manager.receive(1.0, rpc.respond_error(asked, errnum) if errnum else rpc.respond(asked, payload))
    assert manager.take_events() == [m.Quiet(6, True), m.Quiet(6, True, 8.5), m.Quiet(6, True), m.Quiet(6, False)]
    manager.ask_quiet(9)
    assert body(manager.take()[0]) == {"id": 9}


@DIALECTS
def test_a_new_time_limit_is_told_and_a_refusal_is_a_warning(strict: bool) -> None:
    manager = online(strict=strict)
    run(manager, 1, resources(0))
    for errnum in (0, errno.ENOSYS, errno.ECANCELED, errno.EINVAL):
        manager.expire(2.0, JOB, 90.0)
        assert read_log(manager.jobs[JOB].log)[-1].context == {"expiration": 90.0}
        for asked in manager.take():
            assert not strict and (asked.topic, body(asked)) == ("sched.expiration", {"id": JOB, "expiration": 90.0})
            manager.receive(2.0, rpc.respond_error(asked, errnum) if errnum else rpc.respond(asked))
    assert manager.take_warnings() == ([] if strict else ["sched.expiration: EINVAL"])
    manager.lost(3.0)
    manager.expire(3.0, JOB, 95.0)
    assert manager.take() == []


def test_a_stopped_queue_takes_its_requests_back_and_sends_them_again() -> None:
    manager = online()
    submit(manager, 16, 17)
    manager.take()
    manager.stop_queue()
    assert said(manager) == [("sched.cancel", 2), ("sched.cancel", 1)]
    for number in (1, 2):
        answer(manager, number, 3)
    assert manager.dispatch() == 0 and len(manager.queue) == 2
    assert manager.take_events() == [m.CancelConfirmed(JOB), m.CancelConfirmed(2 * JOB)]
    manager.start_queue()
    assert manager.dispatch() == 2


@DIALECTS
def test_a_changed_urgency(strict: bool) -> None:
    manager = online(strict=strict)
    submit(manager, 16, 16)
    manager.take()
    manager.set_urgency(2.0, JOB, 20)
    told = [(message.topic, body(message)) for message in manager.take()]
    assert told[0] == ("sched.prioritize", {"jobs": [[JOB, 20]]})
    # today's Flux sends the request again as well
    assert told[1:] == ([] if strict else [("sched.cancel", {"id": JOB})])
    manager.set_urgency(2.0, 2 * JOB, 0)
    assert said(manager) == [("sched.cancel", 2)]
    answer(manager, 2, 3)
    assert manager.dispatch() == 0 and manager.jobs[2 * JOB].alloc is Alloc.NONE
    manager.set_urgency(3.0, 2 * JOB, 31)
    assert manager.dispatch() == 1
    log = [(entry.name, entry.context) for entry in read_log(manager.jobs[2 * JOB].log)[-2:]]
    assert log == [("urgency", {"urgency": 31, "userid": 0}), ("priority", {"priority": 2**32 - 1})]


def test_the_urgency_of_a_running_job_does_not_change() -> None:
    manager = online()
    run(manager, 1, resources(0))
    log = manager.jobs[JOB].log
    manager.set_urgency(2.0, JOB, 31)
    assert manager.take() == [] and manager.jobs[JOB].log == log and manager.jobs[JOB].urgency == 16
    manager.cancel(2.0, JOB)
    manager.set_urgency(2.0, JOB, 31)
    assert manager.jobs[JOB].urgency == 16
