"""The broker as its peers see it: routes, credentials, services, the inventory, keys and their limits, jobs of job-info."""

from __future__ import annotations

import errno
from typing import Any

import msgspec
import pytest

from pilothouse.formats.fluid import kvs_key
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27 import broker as broker_module
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27 import payloads as p
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.manager import Manager
from unit.protocols.rfc27.eventlog import read_log
from unit.protocols.rfc27.pair import JOB, body, inventory, spec

SCHEDULER, CLIENT = 1, 2


class Instance:
    """A broker whose peers are the test. `owner` is its user id."""

    def __init__(self, **more: Any) -> None:
        self.manager = Manager()
        self.broker = Broker(self.manager, inventory(3, 2), IdSet.of([0, 2]), **more)
        self.broker.join(SCHEDULER, "scheduler")
        self.broker.join(CLIENT, "client")

    def ask(self, topic: str, payload: object = None, *, peer: int = CLIENT, **more: Any) -> list[tuple[int, Message]]:
        """A request, and all messages that follow."""
        text = payload if payload is None or isinstance(payload, bytes) else msgspec.json.encode(payload)
        message = rpc.request(topic, text, matchtag=9, flags=more.pop("flags", 0))
        for name, value in more.items():
            setattr(message, name, value)
        self.broker.receive(4.5, peer, message)
        return self.broker.take()

    def asked(self, topic: str, payload: object = None, **more: Any) -> Message:
        """The one answer to a request."""
        ((peer, answer),) = self.ask(topic, payload, **more)
        assert peer == more.get("peer", CLIENT) and answer.type == frames.RESPONSE and answer.matchtag == 9
        return answer

    def commit(self, *values: tuple[str, bytes | None]) -> Message:
        ops: list[dict[str, object]] = []
        for key, value in values:
            entry = None if value is None else {"ver": 1, "type": "val", "data": p.encoded_value(value)}
            ops.append({"key": key, "flags": 0, "dirent": entry})
        return self.asked("kvs.commit", {"namespace": "primary", "flags": 0, "ops": ops})

    def schedule(self) -> None:
        """The scheduler registers and says that it is ready."""
        self.ask("service.add", {"service": "sched"}, peer=SCHEDULER)
        self.ask("job-manager.sched-hello", peer=SCHEDULER, flags=frames.STREAMING)
        self.ask("job-manager.sched-ready", {"mode": "unlimited"}, peer=SCHEDULER)
        self.manager.take_events()


def test_messages_carry_the_owner_of_the_instance() -> None:
    for owner in (0, 77):
        instance = Instance(**({"userid": owner} if owner else {}))
        answer = instance.asked("attr.get", {"name": "size"})
        assert (answer.userid, answer.rolemask, answer.routes) == (owner, frames.ROLE_OWNER, ())
        assert body(answer) == {"value": "1", "flags": 1}
        pinged = body(instance.asked("broker.ping", {"seq": 4}))
        assert pinged == {"seq": 4, "userid": owner, "rolemask": 1, "route": "pilothouse"}
        as_guest = instance.asked("broker.ping", userid=9, rolemask=2)
        assert body(as_guest) == {"userid": 9, "rolemask": 2, "route": "pilothouse"}
    refused = instance.asked("kvs.lookup", {"key": "x"}, userid=9, rolemask=2)
    assert refused.errnum == errno.EPERM and "user 9" in instance.manager.take_warnings()[-1]
    # a user without a role, and a role without a user, are not the owner
    assert instance.asked("kvs.lookup", {"key": "x"}, userid=9).errnum == errno.EPERM
    assert instance.asked("kvs.lookup", {"key": "x"}, rolemask=2).errnum == errno.EPERM


def test_requests_of_other_ranks_and_of_unknown_services_are_refused() -> None:
    instance = Instance()
    assert instance.asked("attr.get", {"name": "rank"}, aux1=0).errnum == 0
    assert instance.asked("attr.get", {"name": "rank"}, aux1=1).errnum == errno.EHOSTUNREACH
    assert instance.manager.take_warnings() == []
    unknown = instance.asked("nothing.at-all")
    assert unknown.errnum == errno.ENOSYS and "nothing.at-all" in unknown.text()
    assert "client: unknown service method nothing.at-all" in instance.manager.take_warnings()
    assert instance.ask("nothing.at-all", flags=frames.NORESPONSE) == []
    assert "unknown service method" in instance.manager.take_warnings()[-1]
    assert instance.ask("nothing.disconnect") == [] and instance.manager.take_warnings() == []
    assert instance.ask("nothing.disconnect", userid=9, rolemask=2) == [] and instance.manager.take_warnings() == []


@pytest.mark.parametrize("topic", ["event.subscribe", "event.unsubscribe", "broker.module-status", "module.status", "log.append"])
def test_services_that_are_only_answered(topic: str) -> None:
    instance = Instance()
    answer = instance.asked(topic, {"x": 1})
    assert answer.errnum == 0 and answer.payload is None
    assert instance.ask(topic, {"x": 1}, flags=frames.NORESPONSE) == []
    assert instance.broker.take_logged() == (['client logs: {"x":1}'] * 2 if topic == "log.append" else [])
    assert body(instance.asked("config.get")) == {}
    assert instance.asked("attr.get", {"name": "nothing"}).errnum == errno.ENOENT


@pytest.mark.parametrize(
    ("name", "errnum"),
    [("other", 0), ("sched", errno.EEXIST), ("kvs", errno.EEXIST), ("groups", errno.EEXIST), ("", errno.EINVAL),
     ("a.b", errno.EINVAL)],
)  # fmt: skip
def test_a_service_has_one_owner_and_a_plain_name(name: str, errnum: int) -> None:
    instance = Instance()
    assert instance.broker.scheduler is None
    instance.asked("service.add", {"service": "sched"}, peer=SCHEDULER)
    assert instance.broker.scheduler == SCHEDULER
    assert instance.asked("service.add", {"service": name}).errnum == errnum
    assert instance.asked("service.remove", {"service": "sched"}).errnum == errno.ENOENT, "it is another peer's"
    assert instance.asked("service.remove", {"service": "sched"}, peer=SCHEDULER).errnum == 0
    assert instance.broker.scheduler is None
    assert instance.asked("service.remove", {"service": "sched"}, peer=SCHEDULER).errnum == errno.ENOENT


def test_a_request_to_a_service_of_a_peer_and_the_way_back() -> None:
    instance = Instance(userid=77)
    instance.schedule()
    ((peer, request),) = instance.ask("sched.question", {"x": 1}, userid=9, rolemask=2, routes=(b"further",))
    assert (peer, request.routes, request.userid, request.rolemask) == (SCHEDULER, (b"2", b"further"), 9, 2)
    instance.broker.receive(5.0, SCHEDULER, rpc.respond(request, b'{"y":2}'))
    ((peer, response),) = instance.broker.take()
    assert (peer, response.routes, body(response)) == (CLIENT, (b"further",), {"y": 2})
    for routes in ((b"3",), (b"x", b"2")):
        # a peer that is not there, or not one at all
        instance.broker.receive(5.0, SCHEDULER, Message(frames.RESPONSE, "sched.question", None, 9, 0, 0, routes))
        assert instance.broker.take() == []
    instance.broker.receive(5.0, SCHEDULER, Message(frames.EVENT, "sched.question", None))
    assert instance.broker.take() == [] and instance.manager.take_warnings() == []


def test_only_the_scheduler_answers_the_manager() -> None:
    for routes in ((b"job-manager",), (), None):
        instance = Instance()
        instance.schedule()
        instance.manager.submit(0.0, JOB, spec())
        instance.broker.dispatch(1.0)
        ((peer, request),) = instance.broker.take()
        assert (peer, request.topic, request.routes) == (SCHEDULER, "sched.alloc", (b"job-manager",))
        denied = Message(frames.RESPONSE, "sched.alloc", b'{"id":%d,"type":2}\0' % JOB, 0, 0, 0, routes)
        instance.broker.receive(2.0, CLIENT, msgspec.structs.replace(denied))
        assert JOB in instance.manager.pending
        assert "client: answers sched.alloc without being the scheduler" in instance.manager.take_warnings()
        instance.broker.receive(2.0, SCHEDULER, denied)
        assert JOB in instance.manager.inactive
        assert read_log(instance.manager.inactive[JOB].log)[-1].timestamp == 2.0


@pytest.mark.parametrize("how", ["leaves", "says goodbye"])
def test_only_the_loss_of_the_scheduler_suspends_scheduling(how: str) -> None:
    instance = Instance()
    instance.schedule()
    instance.ask("service.add", {"service": "other"})
    for peer in (CLIENT, SCHEDULER):
        assert instance.manager.online
        if how == "leaves":
            instance.broker.leave(3.0, peer)
        else:
            assert instance.ask("job-manager.disconnect", peer=peer) == []
    assert not instance.manager.online
    instance.broker.join(CLIENT, "again")
    # the services of a peer that left can be had again
    answer = instance.asked("service.add", {"service": "other"})
    assert answer.errnum == (0 if how == "leaves" else errno.EEXIST)


def test_a_question_of_the_manager_without_a_service_is_refused_at_once() -> None:
    instance = Instance()
    instance.manager.ask_feasibility(3, spec())
    instance.broker.flush(1.0)
    assert len(instance.manager.take_events()) == 1 and instance.broker.take() == []


@pytest.mark.parametrize("simulated", [False, True])
def test_the_inventory_and_its_changes(simulated: bool) -> None:
    instance = Instance(**({"simulated": True} if simulated else {}))
    instance.broker.change_ranks(up=IdSet.of([1]))
    first = instance.asked("resource.acquire", flags=frames.STREAMING)
    told = {"resources": msgspec.json.decode(inventory(3, 2)), "up": "0-2", **({"now": 4.5} if simulated else {})}
    assert body(first) == told and first.streaming
    assert instance.asked("resource.acquire", peer=SCHEDULER).errnum == errno.EBUSY
    instance.broker.change_ranks(down=IdSet.of([0, 1]), up=IdSet())
    instance.broker.change_ranks(up=IdSet.of([1]), gone=IdSet.of([2]))
    instance.broker.change_ranks()
    changes = instance.broker.take()
    assert [(peer, body(message), message.streaming) for peer, message in changes] == [
        (CLIENT, {"down": "0-1"}, True), (CLIENT, {"up": "1", "shrink": "2"}, True),
    ]  # fmt: skip
    instance.broker.leave(5.0, SCHEDULER)
    assert instance.ask("resource.acquire")[0][1].errnum == errno.EBUSY, "the client still has it"
    instance.broker.leave(5.0, CLIENT)
    instance.broker.join(CLIENT, "again")
    again = instance.asked("resource.acquire")
    # as in Flux, without the streaming flag as well
    assert body(again)["up"] == "1" and not again.streaming


def test_commits_are_counted_and_their_limits_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "MOST_KEYS", 2)
    monkeypatch.setattr(broker_module, "MOST_VALUE_BYTES", 5)
    instance = Instance()
    assert body(instance.commit(("a", b"12345"))) == {"rootref": f"sha1-{1:040x}", "rootseq": 1}
    too_large = instance.commit(("b", b"1"), ("c", b"123456"))
    assert too_large.errnum == errno.EMSGSIZE and instance.broker.read("b") is None
    assert instance.commit(("b", b"1"), ("c", b"2")).errnum == errno.EOVERFLOW and instance.broker.read("b") is None
    assert body(instance.commit(("b", b"1")))["rootseq"] == 2
    assert instance.commit(("c", b"2")).errnum == errno.EOVERFLOW
    looked_up = body(instance.asked("kvs.lookup", {"key": "a"}))
    assert looked_up == {"val": {"ver": 1, "type": "val", "data": p.encoded_value(b"12345")}}


@pytest.mark.parametrize("key", ["job.x", "job.0000.0000.0000.zzzz.R", "a.0000.0000.0100.0000.R", "job.0000.0000.0100.R"])
def test_keys_that_are_not_of_a_job_are_plain_ones(key: str) -> None:
    instance = Instance()
    job = instance.manager.submit(0.0, 1 << 24, spec())
    instance.commit((key, b"value"))
    assert instance.broker.read(key) == b"value" and job.committed == b""


def test_the_keys_of_a_job() -> None:
    instance = Instance()
    job = instance.manager.submit(0.0, JOB, spec())
    assert instance.broker.read(kvs_key(JOB, "R")) is None
    for name in ("jobspec", "eventlog"):
        before = instance.broker.read(kvs_key(JOB, name))
        instance.commit((kvs_key(JOB, name), b"mine"))
        assert instance.broker.read(kvs_key(JOB, name)) == before
        assert f"may not write {kvs_key(JOB, name)}" in instance.manager.take_warnings()[-1]
    instance.commit((kvs_key(JOB, "R"), b'{"a":1}\0'), (kvs_key(JOB, "guest.x"), b"\xff"), (kvs_key(2 * JOB, "R"), b"{}"))
    assert job.committed == b'{"a":1}' and instance.broker.read(kvs_key(2 * JOB, "R")) is None
    assert instance.manager.take_warnings() == []
    instance.commit((kvs_key(JOB, "R"), None))
    assert job.committed == b""


@pytest.mark.parametrize("flags", [0, 1, 2, 3])
def test_job_info_gives_values_as_text_or_decoded(flags: int) -> None:
    instance = Instance()
    job = instance.manager.submit(0.0, JOB, spec())
    instance.commit((kvs_key(JOB, "R"), b'{"a":1}'), (kvs_key(JOB, "guest.x"), b"\xffa"))
    found = body(instance.asked("job-info.lookup", {"id": JOB, "keys": ["jobspec", "R", "eventlog"], "flags": flags}))
    decoded = flags & 1
    assert found == {
        "id": JOB,
        "jobspec": msgspec.json.decode(spec()) if decoded else spec().decode(),
        "R": {"a": 1} if decoded else '{"a":1}',
        "eventlog": job.log.decode(),
    }
    damaged = instance.asked("job-info.lookup", {"id": JOB, "keys": ["guest.x"], "flags": flags})
    if decoded:
        assert damaged.errnum == errno.EPROTO
    else:
        assert body(damaged)["guest.x"] == "\N{REPLACEMENT CHARACTER}a"
    for keys in (["jobspec", "nothing"], ["nothing"]):
        assert instance.asked("job-info.lookup", {"id": JOB, "keys": keys, "flags": flags}).errnum == errno.ENOENT
    assert instance.asked("job-info.lookup", {"id": 5, "keys": ["R"]}).errnum == errno.ENOENT
    # jobs that are over can still be asked for
    instance.manager.cancel(1.0, JOB)
    assert body(instance.asked("job-info.lookup", {"id": JOB, "keys": []})) == {"id": JOB}
    assert b"exception" in (instance.broker.read(kvs_key(JOB, "eventlog")) or b"")


def test_a_peer_without_a_name_is_named_by_its_number() -> None:
    instance = Instance()
    assert instance.ask("kvs.nothing", peer=5) == []
    assert instance.manager.take_warnings() == ["peer 5: unknown service method kvs.nothing"]
