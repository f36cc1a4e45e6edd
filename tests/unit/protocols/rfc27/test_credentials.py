"""Who may ask what: requests carry credentials, and only the owner of an instance may change anything.

Also: requests that come before the scheduler has finished its handshake.
"""

from __future__ import annotations

import errno

import msgspec
import pytest

from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.handshake import Phase
from pilothouse.protocols.rfc27.scheduler import _REQUESTS, MOST_EARLY
from unit.protocols.rfc27.pair import Pair, of_owner, spec

GUEST = 2
CLIENT = 77
OWNERS = sorted(_REQUESTS.keys() - {"feasibility.check", "sched.resource-status"})


def asked(topic: str, payload: bytes | None = None, *, rolemask: int = GUEST, flags: int = 0) -> Message:
    message = rpc.request(topic, payload, matchtag=9, flags=flags)
    message.userid, message.rolemask = 9999, rolemask
    return message


class Client:
    """Somebody who is connected to the broker beside the scheduler."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        pair.broker.join(CLIENT, "client")

    def ask(self, message: Message) -> list[Message]:
        """Sends a request; the answers to it."""
        answers: list[Message] = []
        pair = self.pair
        pair.broker.receive(pair.now, CLIENT, message)
        while True:
            passed = pair.broker.take()
            answers += [answer for peer, answer in passed if peer == CLIENT]
            for peer, request in passed:
                if peer != CLIENT:
                    pair.engine.receive(request)
            pair._think(pair.now)
            said = pair.engine.take()
            for answer in said:
                pair.broker.receive(pair.now, pair._peer, answer)
            if not passed and not said:
                return answers


@pytest.fixture
def pair() -> Pair:
    made = Pair(nodes=2, cores=4)
    made.connect()
    return made


def test_a_guest_cannot_free_somebody_elses_job(pair: Pair) -> None:
    running, waiting = pair.submit(8), pair.submit(8)
    pair.settle()
    (answer,) = Client(pair).ask(asked("sched.free", b'{"id":%d}' % running))
    assert (answer.errnum, answer.text()) == (errno.EPERM, "Request requires owner credentials")
    pair.settle()
    assert list(pair.manager.holding) == [running] and list(pair.manager.pending) == [waiting]
    assert any("refused sched.free of user 9999" in warning for warning in pair.engine.take_warnings())


@pytest.mark.parametrize("rolemask", [0, GUEST, 4])
@pytest.mark.parametrize("topic", OWNERS)
def test_what_changes_anything_is_for_the_owner_alone(pair: Pair, topic: str, rolemask: int) -> None:
    running = pair.submit(8)
    pair.settle()
    body = b'{"id":%d,"priority":1,"userid":9999,"t_submit":0.0,"jobspec":%s,"jobs":[[%d,1]],"expiration":5.0}' % (
        running, spec(1), running,
    )  # fmt: skip
    pair.engine.take()
    pair.engine.receive(asked(topic, body, rolemask=rolemask))
    (answer,) = pair.engine.take()
    assert (answer.errnum, answer.text()) == (errno.EPERM, rpc.OWNER_ONLY)
    pair.engine.receive(asked(topic, body, rolemask=rolemask, flags=frames.NORESPONSE))
    assert pair.engine.take() == [] and pair.engine.take_events() == []


def test_guests_may_ask_what_is_possible_and_what_there_is(pair: Pair) -> None:
    client = Client(pair)
    body = b'{"jobspec":%s,"userid":9999,"rolemask":2,"urgency":16,"flags":0}'
    assert client.ask(asked("feasibility.check", body % spec(8)))[0].errnum == 0
    refused = client.ask(asked("feasibility.check", body % spec(9)))[0]
    assert refused.errnum == errno.EOVERFLOW and "it needs 9 units" in refused.text()
    (status,) = client.ask(asked("sched.resource-status"))
    assert {"all", "allocated", "down"} == msgspec.json.decode(status.body()).keys()


def test_the_brokers_own_services_are_for_the_owner_as_well(pair: Pair) -> None:
    client = Client(pair)
    job_id = pair.submit(8)
    pair.settle()
    for topic, body in (
        ("job-manager.raise", b'{"id":%d,"severity":0,"type":"cancel","note":""}' % job_id),
        ("job-manager.sched-hello", None),
        ("job-manager.sched-ready", b'{"mode":"unlimited"}'),
        ("kvs.commit", b'{"namespace":"primary","flags":0,"ops":[]}'),
        ("service.add", b'{"service":"other"}'),
        ("resource.acquire", None),
    ):
        (answer,) = client.ask(asked(topic, body))
        assert answer.errnum == errno.EPERM, topic
    assert pair.manager.online and job_id in pair.manager.holding
    assert client.ask(asked("attr.get", b'{"name":"rank"}'))[0].errnum == 0
    without = rpc.request("service.add", b'{"service":"other"}', matchtag=3)
    assert client.ask(without)[0].errnum == 0, "the connection itself is the owner's"


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("topic", ["feasibility.check", "sched.resource-status"])
def test_questions_during_the_handshake_wait_for_its_end(topic: str, steps: int) -> None:
    pair = Pair()
    body = b'{"jobspec":%s,"userid":0,"rolemask":2,"urgency":16,"flags":0}' % spec(1)
    pair.begin_slowly()
    for _ in range(steps):
        pair.link.step()
    early = pair.engine.phase is not Phase.ONLINE
    pair.engine.receive(asked(topic, body))
    pair._think(pair.now)
    if early:
        assert not [m for m in pair.engine.out if m.topic == topic]
    pair.link.run()
    answers = [m for m in pair.said if m.topic == topic and m.type == frames.RESPONSE]
    assert [answer.errnum for answer in answers] == [0]
    assert pair.engine.phase is Phase.ONLINE


def test_not_all_questions_can_wait() -> None:
    pair = Pair()
    pair.begin_slowly()
    for _ in range(MOST_EARLY + 1):
        pair.engine.receive(of_owner(asked("sched.resource-status")))
    (refused,) = [m for m in pair.engine.out if m.topic == "sched.resource-status"]
    assert (refused.errnum, refused.text()) == (errno.EAGAIN, "the scheduler is not ready yet")
