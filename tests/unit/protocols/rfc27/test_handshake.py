"""The scheduler's end of RFC 27 message by message: every answer of a handshake, and every request after it."""

from __future__ import annotations

import errno
from typing import Any

import msgspec
import pytest

from pilothouse.formats.fluid import to_f58
from pilothouse.formats.resource_set import ResourceSet
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27 import payloads as p
from pilothouse.protocols.rfc27 import scheduler_events as s
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.handshake import Phase
from pilothouse.protocols.rfc27.scheduler import MOST_COMMITS, MOST_EARLY, SchedulerEngine
from unit.protocols.rfc27.pair import body, inventory, of_owner, spec

JOB = 7 << 24


def held(ranks: str = "0-1", **more: Any) -> bytes:
    execution = {"R_lite": [{"rank": ranks, "children": {"core": "0-1"}}], "starttime": 5, "expiration": 65, "nslots": 3}
    return msgspec.json.encode({"version": 1, "execution": {**execution, "nodelist": ["n[0-1]"], **more}})


class Engine:
    """An engine, and what it asks."""

    def __init__(self, **options: Any) -> None:
        self.engine = SchedulerEngine(**options)
        self.engine.begin()
        self.asked: list[Message] = []

    def answer(self, payload: bytes | None = None, *, errnum: int = 0, text: str = "") -> None:
        """Answers the first open request. A streaming one stays open."""
        self.asked += self.engine.take()
        request = self.asked[0] if self.asked[0].streaming and not errnum else self.asked.pop(0)
        self.engine.receive(rpc.respond_error(request, errnum, text) if errnum else rpc.respond(request, payload))

    def until(self, topic: str) -> Engine:
        """Goes on as with today's Flux up to this request."""
        first = b'{"resources":' + inventory(2) + b',"up":"0-1"}'
        while not self.asked or self.asked[0].topic != topic:
            self.asked += self.engine.take()
            if self.asked[0].topic == "resource.acquire" and topic != "resource.acquire":
                self.answer(first)
                self.acquire = self.asked.pop(0)
            elif self.asked[0].topic == "job-manager.sched-hello" and topic != "job-manager.sched-hello":
                self.answer(errnum=errno.ENODATA) if not self.engine.strict else self.answer(b'{"alloc":[]}')
            elif self.asked[0].topic != topic:
                self.answer()
        return self

    def online(self) -> Engine:
        self.until("job-manager.sched-ready").answer()
        self.engine.take_events()
        assert self.engine.phase is Phase.ONLINE
        return self

    def ask(self, topic: str, payload: object = None, *, flags: int = 0, guest: bool = False) -> list[Message]:
        """A request to the scheduler, and what it says then."""
        text = None if payload is None else payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
        request = rpc.request(topic, text, matchtag=9, flags=flags)
        request.routes = (b"r",)
        if guest:
            request.userid, request.rolemask = 1000, 2
        self.engine.receive(request if guest else of_owner(request))
        return self.engine.take()

    def failed(self) -> str:
        (failed,) = [event for event in self.engine.take_events() if isinstance(event, s.Failed)]
        assert self.engine.phase is Phase.FAILED
        return failed.problem


@pytest.mark.parametrize(
    ("topic", "errnum", "problem"),
    [
        ("service.add", errno.EEXIST, "another scheduler holds the service sched"),
        ("service.add", errno.EPERM, "service.add sched: EPERM: go"),
        ("resource.acquire", errno.ENOSYS, "connect to the broker of rank 0"),
        ("resource.acquire", errno.EBUSY, "resource.acquire: EBUSY: go"),
        ("job-manager.sched-hello", errno.EPERM, "job-manager.sched-hello: EPERM: go"),
        ("job-manager.sched-ready", errno.EPERM, "job-manager.sched-ready: EPERM: go"),
    ],
)
def test_an_error_ends_the_handshake(topic: str, errnum: int, problem: str) -> None:
    made = Engine().until(topic)
    made.answer(errnum=errnum, text="go")
    assert problem in made.failed() and not made.engine.was_online


def test_it_begins_with_its_services() -> None:
    engine = SchedulerEngine()
    assert engine.phase is Phase.NEW and engine.take() == [] and not engine.busy
    made = Engine()
    assert made.engine.phase is Phase.REGISTERING and not made.engine.was_online
    made.answer()
    (second,) = made.engine.take()
    assert second.topic == "service.add" and body(second) == {"service": "feasibility"}


def test_without_the_service_feasibility_it_goes_on() -> None:
    made = Engine()
    made.answer()
    made.answer(errnum=errno.EEXIST)
    assert made.engine.phase is Phase.ACQUIRING
    assert made.engine.take_warnings() == ["service.add feasibility: EEXIST; continuing without it"]
    assert Engine().until("job-manager.sched-ready").engine.take_warnings() == []


@pytest.mark.parametrize("payload", [b"x", b"{}", b'{"resources":{}}', b'{"resources":' + inventory(2) + b',"up":"x"}'])
def test_an_inventory_that_cannot_be_read_ends_the_handshake(payload: bytes) -> None:
    made = Engine().until("resource.acquire")
    made.answer(payload)
    assert made.failed().startswith("resource.acquire: ")


def test_the_first_answer_is_the_inventory_and_later_ones_are_changes() -> None:
    made = Engine().until("resource.acquire")
    made.answer(b'{"resources":' + inventory(2) + b',"now":4.5}')
    (first,) = made.engine.take_events()
    assert isinstance(first, s.Inventory) and (first.up, first.now, len(first.resources.ranks)) == (IdSet(), 4.5, 2)
    (hello,) = made.engine.take()
    assert hello.topic == "job-manager.sched-hello" and hello.streaming and body(hello) == {"partial-ok": True}
    changes: list[tuple[dict[str, Any], list[s.Event]]] = [
        ({"up": "0", "down": "1"}, [s.RanksChanged(IdSet.of([0]), IdSet.of([1]))]),
        ({"down": "1"}, [s.RanksChanged(IdSet(), IdSet.of([1]))]),
        ({"shrink": "0-1"}, [s.RanksChanged(gone=IdSet.of([0, 1]))]),
        ({"property-add": {"a": "0"}}, [s.PropertiesChanged({"a": IdSet.of([0])}, {})]),
        ({"property-remove": {"a": "1"}}, [s.PropertiesChanged({}, {"a": IdSet.of([1])})]),
        ({"expiration": 0.0}, [s.InstanceExpires(0.0)]),
        ({"up": "", "expiration": 7.0}, [s.InstanceExpires(7.0)]),
        ({}, []),
    ]
    for change, events in changes:
        made.answer(msgspec.json.encode(change))
        assert made.engine.take_events() == events
    for wrong in (b"x", b'{"up":"x"}', b'{"property-add":{"a":"x"}}'):
        made.answer(wrong)
        (warning,) = made.engine.take_warnings()
        assert warning.startswith("resource.acquire: ") and made.engine.phase is Phase.GREETING


@pytest.mark.parametrize(("errnum", "again"), [(errno.EPROTO, True), (errno.EINVAL, True), (errno.EPERM, False)])
def test_a_manager_of_the_specification_is_greeted_again_in_its_dialect(errnum: int, again: bool) -> None:
    made = Engine().until("job-manager.sched-hello")
    made.answer(errnum=errnum)
    assert made.engine.strict is again
    if again:
        (hello,) = made.engine.out
        assert hello.topic == "job-manager.sched-hello" and hello.payload is None and not hello.streaming
        made.answer(errnum=errnum)
    assert "sched-hello" in made.failed()


def test_jobs_of_a_stream_are_looked_up_and_then_it_is_ready() -> None:
    made = Engine().until("job-manager.sched-hello")
    jobs: list[dict[str, object]] = [{"id": JOB + number, "priority": 16, "userid": 7, "t_submit": 2.5} for number in range(4)]
    jobs[1]["free"] = "1"
    for job in jobs:
        made.answer(msgspec.json.encode(job))
    made.answer(errnum=errno.ENODATA)
    made.asked += made.engine.take()
    assert [m.topic for m in made.asked] == ["kvs.lookup"] * 4 and not made.engine.was_online
    values = [held(), held(), b"{}", None]
    for value in values:
        if value is None:
            made.answer(errnum=errno.ENOENT)
        else:
            made.answer(msgspec.json.encode(p.LookupAnswer(p.Dirent(1, "val", p.encoded_value(value)))))
    found = [event for event in made.engine.take_events() if isinstance(event, s.JobHolds)]
    assert [(event.job.id - JOB, event.job.t_submit, str(event.resources.rank_ids())) for event in found] == [
        (0, 2.5, "0-1"), (1, 2.5, "0"),
    ]  # fmt: skip
    for event in found:
        assert (event.resources.slots, event.resources.expiration_s, event.resources.start_s) == (3, 65.0, 5.0)
    made.asked += made.engine.take()
    assert [body(m) for m in made.asked if m.topic == "job-manager.sched-ready"] == [{"mode": "unlimited"}]
    ended = [body(m) for m in made.asked if m.topic == "job-manager.raise"]
    assert [(x["id"] - JOB, x["severity"], x["type"]) for x in ended] == [
        (2, 0, "scheduler-restart"), (3, 0, "scheduler-restart"),
    ]  # fmt: skip
    assert [warning.split(":")[0] for warning in made.engine.take_warnings()] == [f"job {to_f58(JOB + n)}" for n in (2, 3)]
    assert sorted(made.engine.held) == [JOB, JOB + 1]
    assert made.engine.phase is Phase.READYING


@pytest.mark.parametrize("payload", [b"x", b'{"alloc":3}', b'{"id":1}'])
def test_a_greeting_that_cannot_be_read_ends_the_handshake(payload: bytes) -> None:
    made = Engine().until("job-manager.sched-hello")
    made.answer(payload)
    assert "job-manager.sched-hello: " in made.failed()


@pytest.mark.parametrize(
    ("options", "ready"),
    [
        ({}, {"mode": "unlimited"}), ({"limit": 1}, {"mode": "limited", "limit": 1}),
        ({"limit": 5}, {"mode": "limited", "limit": 5}),
        ({"strict": True}, {"mode": "unlimited"}), ({"strict": True, "limit": 1}, {"mode": "single"}),
        ({"strict": True, "limit": 2}, {"mode": "unlimited"}),
    ],
)  # fmt: skip
def test_how_many_requests_it_asks_for(options: dict[str, Any], ready: dict[str, Any]) -> None:
    made = Engine(**options).until("job-manager.sched-ready")
    assert body(made.asked[0]) == ready
    made.answer(b'{"count":4}')
    (last,) = [event for event in made.engine.take_events() if isinstance(event, s.Ready)]
    assert last == s.Ready(bool(options.get("strict")), 4) and made.engine.was_online


def test_an_answer_to_ready_may_be_empty_or_odd() -> None:
    for payload, warnings in ((None, 0), (b'{"count":"x"}', 1)):
        made = Engine().until("job-manager.sched-ready")
        made.answer(payload)
        assert [event.waiting for event in made.engine.take_events() if isinstance(event, s.Ready)] == [0]
        assert len(made.engine.take_warnings()) == warnings and made.engine.phase is Phase.ONLINE


# ---- requests of the manager


def asked(job_id: int = JOB, **more: Any) -> dict[str, Any]:
    return {"id": job_id, "priority": 20, "userid": 5, "t_submit": 1.5, "jobspec": msgspec.Raw(spec()), **more}


def granted(made: Engine, job_id: int, notes: dict[str, Any] | None = None, *, errnum: int = 0) -> list[Message]:
    made.engine.grant(job_id, held(), notes)
    made.asked += made.engine.take()
    assert made.asked[0].topic == "kvs.commit"
    made.answer(b"{}", errnum=errnum)
    return made.engine.take()


def test_a_request_is_granted_after_its_commit() -> None:
    made = Engine().online()
    assert made.ask("sched.alloc", asked()) == [] and not made.engine.busy
    assert made.engine.take_events() == [s.AllocAsked(JOB, 20, 5, 1.5, spec())]
    made.engine.grant(JOB, held())
    assert made.engine.busy
    for _ in range(2):
        with pytest.raises(ValueError, match="no open alloc request"):
            made.engine.grant(JOB, held())
    (commit,) = made.asked = made.engine.take()
    assert made.engine.busy and JOB not in made.engine.held and commit.topic == "kvs.commit"
    made.engine.annotate(JOB, {"x": 1})
    assert made.ask("sched.cancel", {"id": JOB}, flags=frames.NORESPONSE) == [], "the success is on its way"
    made.answer(b"{}")
    (success,) = made.engine.take()
    assert body(success) == {"id": JOB, "type": 0, "R": msgspec.json.decode(held())}
    assert (success.matchtag, success.errnum, success.routes) == (0, 0, (b"r",))
    assert not made.engine.busy and list(made.engine.held) == [JOB] and not made.engine.pending


def test_a_commit_that_fails_ends_the_connection_without_an_answer() -> None:
    made = Engine().online()
    made.ask("sched.alloc", asked())
    assert granted(made, JOB, errnum=errno.EOVERFLOW) == [] and "R could not be committed: EOVERFLOW" in made.failed()


def test_many_grants_are_committed_together() -> None:
    made = Engine().online()
    for number in range(MOST_COMMITS + 2):
        made.ask("sched.alloc", asked(number + 1))
    for number in range(MOST_COMMITS + 2):
        made.engine.grant(number + 1, held(), {"n": number})
    commits = [len(body(m)["ops"]) for m in made.engine.take()]
    assert commits == [MOST_COMMITS, 2] and made.engine.take() == []


def test_the_strict_dialect_reads_the_jobspec_and_answers_without_resources() -> None:
    made = Engine(strict=True).online()
    made.asked = made.ask("sched.alloc", {"id": JOB, "priority": 1, "userid": 2})
    assert made.engine.reading == 1 and made.engine.busy
    made.answer(msgspec.json.encode(p.LookupAnswer(p.Dirent(1, "val", p.encoded_value(spec())))))
    assert made.engine.take_events() == [s.AllocAsked(JOB, 1, 2, 0.0, spec())] and not made.engine.busy
    (success,) = granted(made, JOB, {"sched": {"a": 1}})
    assert body(success) == {"id": JOB, "type": 0, "annotations": {"sched": {"a": 1}}}
    (freed,) = made.ask("sched.free", {"id": JOB})
    assert body(freed) == {"id": JOB} and freed.matchtag == 9
    assert made.engine.take_events() == [s.Freed(JOB, None, True)]


def test_a_jobspec_that_cannot_be_read_is_denied_and_one_that_is_canceled_is_forgotten() -> None:
    made = Engine(strict=True).online()
    request = {"id": JOB, "priority": 1, "userid": 2}
    made.asked = made.ask("sched.alloc", request)
    made.answer(errnum=errno.ENOENT)
    (denied,) = made.engine.take()
    assert body(denied)["type"] == 2 and "jobspec could not be read: ENOENT" in body(denied)["note"]
    assert len(made.engine.take_warnings()) == 1 and not made.engine.pending
    made.asked = made.ask("sched.alloc", request)
    (canceled,) = made.ask("sched.cancel", {"id": JOB}, flags=frames.NORESPONSE)
    assert body(canceled) == {"id": JOB, "type": 3}
    made.engine.take_events()
    made.answer(errnum=errno.ENOENT)
    assert made.engine.take() == [] and made.engine.take_events() == [] and not made.engine.busy


def test_requests_for_jobs_that_wait_or_hold_resources() -> None:
    made = Engine().online()
    made.ask("sched.alloc", asked())
    assert made.ask("sched.alloc", asked()) == []
    made.engine.take_events()
    assert "second sched.alloc" in made.engine.take_warnings()[0]
    (first,) = granted(made, JOB)
    (again,) = made.ask("sched.alloc", asked())
    assert body(again) == body(first) and made.engine.take_events() == [] and not made.engine.pending
    assert "which holds resources" in made.engine.take_warnings()[0]
    made.engine.held[5] = b""  # it was running before the handshake: its R is not known
    assert made.ask("sched.alloc", asked(5)) == [] and not made.engine.pending


def test_a_malformed_request_is_denied_if_its_job_can_be_read() -> None:
    made = Engine().online()
    (denied,) = made.ask("sched.alloc", {"id": JOB, "priority": "x"})
    assert body(denied)["type"] == 2 and "malformed alloc request" in body(denied)["note"] and not made.engine.pending
    assert made.ask("sched.alloc", b"x") == [] and len(made.engine.take_warnings()) == 2
    made.ask("sched.alloc", asked())
    made.engine.take_events()
    assert made.ask("sched.alloc", {"id": JOB}) == [] and list(made.engine.pending) == [JOB], "the first one waits on"
    assert made.ask("sched.free", b"x") == [] and len(made.engine.take_warnings()) == 2
    (refused,) = made.ask("sched.expiration", b"x")
    assert refused.errnum == errno.EPROTO
    (unknown,) = made.ask("sched.nothing")
    assert unknown.errnum == errno.ENOSYS and made.ask("sched.disconnect") == []
    assert made.ask("sched.nothing", flags=frames.NORESPONSE) == []


def test_free_in_parts_and_as_a_whole() -> None:
    made = Engine().online()
    made.ask("sched.alloc", asked())
    granted(made, JOB)
    made.engine.take_events()
    part = {"id": JOB, "R": msgspec.Raw(held("1", nodelist=["n1"])), "final": False}
    assert made.ask("sched.free", part) == []
    (freed,) = made.engine.take_events()
    assert isinstance(freed, s.Freed) and not freed.final and isinstance(freed.resources, ResourceSet)
    assert JOB in made.engine.held
    assert made.ask("sched.free", {**part, "R": msgspec.Raw(b"{}")}) == [] and made.engine.take_events() == []
    assert "malformed payload" in made.engine.take_warnings()[0] and JOB in made.engine.held
    assert made.ask("sched.expiration", {"id": JOB, "expiration": 9.5})[0].errnum == 0
    assert made.engine.take_events() == [s.ExpirationChanged(JOB, 9.5)]
    assert made.ask("sched.free", {**part, "final": True}) == []
    assert made.engine.take_events() == [s.Freed(JOB, None, True)] and not made.engine.held
    assert made.ask("sched.free", {**part, "final": True}) == [] and made.engine.take_events() == []
    assert "which holds nothing" in made.engine.take_warnings()[0]
    (late,) = made.ask("sched.expiration", {"id": JOB, "expiration": 9.5})
    assert late.errnum == errno.ENOENT and made.engine.take_events() == []


def test_questions_during_the_handshake_wait_for_its_end() -> None:
    made = Engine().until("job-manager.sched-ready")
    made.engine.take_events()
    question = {"jobspec": msgspec.Raw(spec())}
    assert made.ask("feasibility.check", question) == [] and made.ask("sched.resource-status", guest=True) == []
    (refused,) = made.ask("sched.expiration", {"id": JOB, "expiration": 1.0}, guest=True)
    assert refused.errnum == errno.EPERM and "user 1000" in made.engine.take_warnings()[0]
    assert made.ask("sched.expiration", {"id": JOB, "expiration": 1.0}) == [] and made.engine.take_events() == []
    made.answer()
    events = made.engine.take_events()
    assert [type(event) for event in events] == [s.Ready, s.FeasibilityAsked, s.StatusAsked]
    assert [m.errnum for m in made.engine.take()] == [errno.ENOENT]
    assert isinstance(events[1], s.FeasibilityAsked) and events[1].spec == spec()


def test_too_many_questions_during_the_handshake_are_refused() -> None:
    made = Engine().until("job-manager.sched-ready")
    answers = [made.ask("sched.resource-status") for _ in range(MOST_EARLY + 1)]
    assert answers[:-1] == [[]] * MOST_EARLY and [m.errnum for m in answers[-1]] == [errno.EAGAIN]


def test_answers_to_questions() -> None:
    made = Engine().online()
    made.ask("feasibility.check", {"jobspec": msgspec.Raw(spec())}, guest=True)
    made.ask("sched.resource-status", guest=True)
    made.ask("sched.quiesce", {"id": 4, "now": 2.5})
    made.ask("sched.quiesce")
    feasible, status, quiet, plain = made.engine.take_events()
    assert isinstance(feasible, s.FeasibilityAsked) and isinstance(status, s.StatusAsked)
    assert isinstance(quiet, s.QuiesceAsked) and isinstance(plain, s.QuiesceAsked)
    assert (quiet.now, plain.now) == (2.5, None)
    engine = made.engine
    engine.answer_feasibility(feasible.request)
    engine.answer_feasibility(feasible.request, "too large")
    engine.answer_feasibility(feasible.request, "odd", errno.EINVAL)
    engine.answer_status(status.request, b"1", b"2", b"3")
    engine.answer_quiesce(quiet.request, 7.5)
    engine.answer_quiesce(plain.request)
    said = engine.take()
    assert [(m.errnum, m.text()) for m in said[:3]] == [(0, ""), (errno.EOVERFLOW, "too large"), (errno.EINVAL, "odd")]
    assert [body(m) for m in said[3:]] == [{"all": 1, "allocated": 2, "down": 3}, {"id": 4, "call_at": 7.5}, {}]
    assert all(m.matchtag == 9 and m.routes == (b"r",) for m in said)


def test_priorities_only_of_jobs_that_wait() -> None:
    made = Engine().online()
    made.ask("sched.alloc", asked())
    made.engine.take_events()
    made.ask("sched.prioritize", {"jobs": [[JOB, 5], [3, 7]]}, flags=frames.NORESPONSE)
    assert made.engine.take_events() == [s.Prioritized([(JOB, 5)])]
    made.engine.annotate(JOB, {"x": None})
    made.engine.annotate(3, {"x": None})
    assert [body(m) for m in made.engine.take()] == [{"id": JOB, "type": 1, "annotations": {"x": None}}]
