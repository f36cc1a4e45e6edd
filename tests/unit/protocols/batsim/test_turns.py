"""Turns with a Batsim scheduler behind a socket: what it is sent, how its answers are dated, and job data in Redis."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
from msgspec import Raw

from pilothouse.core.cluster import Cluster
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import PeerError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.protocols.batsim import codec
from pilothouse.protocols.batsim.decider import BatsimDecider
from pilothouse.protocols.batsim.decision_reader import DecisionReader
from pilothouse.protocols.batsim.event_reader import EventReader, RequestedCalls
from pilothouse.protocols.batsim.event_writer import EventWriter
from pilothouse.protocols.batsim.redis_store import RedisStore
from pilothouse.protocols.batsim.settings import Dialect, RedisSettings, Settings

Answer = Callable[[dict[str, Any]], tuple[float, list[tuple[float, str, dict[str, Any]]]] | None]
NODES = (Node("a", 0, speeds=(4.0, 3.0, 2.0, 1.0), properties={"sleep_pstates": "1:2:3"}), Node("b", 1))
BEGAN = e.Began(0.0, e.Begins(NODES, dynamic_registration=True))
DELAY = Profile("w!d", Delay(10.0), source=Raw(b'{"type":"delay","delay":10}'))


class Scheduler(threading.Thread):
    """Answers each message with the date and the events that `answer` gives; it leaves if there is None."""

    def __init__(self, endpoint: str, answer: Answer) -> None:
        super().__init__(daemon=True)
        self.heard: list[dict[str, Any]] = []
        self._endpoint, self._answer = endpoint, answer
        self._bound = threading.Event()
        self.start()
        assert self._bound.wait(5)

    def run(self) -> None:
        with zmq.Context() as context, context.socket(zmq.REP) as rep:
            rep.linger = 2000
            rep.bind(self._endpoint)
            self._bound.set()
            while True:
                message = json.loads(rep.recv())
                if message.get("over"):
                    rep.send(b"{}")
                    return
                self.heard.append(message)
                said = self._answer(message)
                if said is None:
                    return
                events = [{"timestamp": at, "type": kind, "data": data} for at, kind, data in said[1]]
                rep.send(json.dumps({"now": said[0], "events": events}).encode())

    def end(self) -> None:
        """Ends it if it still listens."""
        with zmq.Context() as context, context.socket(zmq.REQ) as req:
            req.linger = 0
            if self.is_alive():
                req.connect(self._endpoint)
                req.send(b'{"over": 1}')
                self.join(10)


@contextmanager
def spoken(tmp_path: Path, answer: Answer, **more: Any) -> Iterator[tuple[BatsimDecider, Scheduler]]:
    endpoint = f"ipc://{tmp_path}/s"
    scheduler = Scheduler(endpoint, answer)
    decider = BatsimDecider(endpoint, timeout=20, name="peer", **more)
    try:
        decider.hello()
        decider.begin(BEGAN.begins, Cluster(BEGAN.begins, "peer"))
        yield decider, scheduler
    finally:
        decider.close()
        scheduler.end()


def nothing(message: dict[str, Any]) -> tuple[float, list[Any]]:
    return message["now"], []


def kinds(message: dict[str, Any]) -> list[str]:
    return [event["type"] for event in message["events"]]


@pytest.mark.parametrize("keeps", [False, True])
def test_the_date_of_a_message_comes_back_exactly(tmp_path: Path, keeps: bool) -> None:
    def answer(message: dict[str, Any]) -> tuple[float, list[Any]]:
        now = message["now"]
        dates = (now - 1, now - 2e-6, now, now + 1)
        return now + 1, [(at, "REJECT_JOB", {"job_id": "w!1"}) for at in dates]

    now = 100 / 3
    with spoken(tmp_path, answer, dialect="4", keeps_rounding=keeps) as (decider, _):
        reply = decider.decide(e.Batch(now, [e.CallArrived(now)]))
        assert decider.event_name(3) == "REJECT_JOB" and decider.event_name(4) == ""
    exact = 33.333333 if keeps else now
    assert [decision.at for decision in reply.decisions] == [32.333333, 33.333333 - 2e-6, exact, 34.333333]
    assert reply.now == 34.333333
    with spoken(tmp_path, nothing, dialect="4", keeps_rounding=keeps) as (decider, _):
        assert decider.decide(e.Batch(now, [e.CallArrived(now)])).now == exact


def test_the_beginning_is_alone_in_its_message(tmp_path: Path) -> None:
    def answer(message: dict[str, Any]) -> tuple[float, list[Any]]:
        return message["now"] + 2, [(1.0, "CALL_ME_LATER", {"timestamp": 9 + message["now"]})]

    with spoken(tmp_path, answer, dialect="4") as (decider, scheduler):
        reply = decider.decide(e.Batch(1.0, [BEGAN, e.CallArrived(1.0), e.CallArrived(1.0)]))
    assert [(message["now"], kinds(message)) for message in scheduler.heard] == [
        (1.0, ["SIMULATION_BEGINS"]), (3.0, ["REQUESTED_CALL", "REQUESTED_CALL"]),
    ]  # fmt: skip
    assert reply == d.Reply(5.0, [d.CallAt(1.0, 10.0), d.CallAt(1.0, 12.0)])


def test_a_batch_without_words_is_not_sent(tmp_path: Path) -> None:
    with spoken(tmp_path, nothing, dialect="4") as (decider, scheduler):
        assert decider.decide(e.Batch(1.0, [e.PrioritiesChanged(1.0, {})])) == d.Reply(1.0, [])
        assert decider.decide(e.Batch(2.0, [])) == d.Reply(2.0, [])
        decider.decide(e.Batch(3.0, [e.CallArrived(3.0)]))
    assert [message["now"] for message in scheduler.heard] == [3.0]


@pytest.mark.parametrize(("dialect", "hint"), [("4", "Batsim 4"), ("2", "Batsim 2"), ("any", "")])
def test_a_scheduler_that_leaves_on_the_first_message_may_be_of_another_generation(
    tmp_path: Path, dialect: str, hint: str
) -> None:
    with spoken(tmp_path, lambda message: None, dialect=dialect) as (decider, _), pytest.raises(PeerError) as caught:
        decider.decide(e.Batch(0.0, [BEGAN]))
    assert ("it was told SIMULATION_BEGINS of" in str(caught.value)) is bool(hint)
    assert hint in str(caught.value) and ("?dialect=any" in str(caught.value)) is bool(hint)


def test_one_that_leaves_later_or_cannot_be_reached_is_no_matter_of_generations(tmp_path: Path) -> None:
    with spoken(tmp_path, lambda m: None if m["now"] else nothing(m), dialect="4") as (decider, _):
        decider.decide(e.Batch(0.0, [BEGAN]))
        with pytest.raises(PeerError) as caught:
            decider.decide(e.Batch(1.0, [e.CallArrived(1.0)]))
    assert "SIMULATION_BEGINS" not in str(caught.value)
    absent = BatsimDecider(f"ipc://{tmp_path}/nobody", timeout=0.2, dialect="4")
    absent.hello()
    with pytest.raises(PeerError) as caught:
        absent.decide(e.Batch(0.0, [BEGAN]))
    absent.close()
    assert "could not be reached" in str(caught.value) and "SIMULATION_BEGINS" not in str(caught.value)
    assert str(caught.value).startswith(f"scheduler at ipc://{tmp_path}/nobody")


def test_the_last_message_need_not_be_answered(tmp_path: Path) -> None:
    with spoken(tmp_path, lambda m: None if "SIMULATION_ENDS" in kinds(m) else nothing(m), dialect="4") as (decider, _):
        decider.decide(e.Batch(0.0, [BEGAN]))
        assert decider.decide(e.Batch(7.0, [e.CallArrived(7.0), e.Ended(7.0)])) == d.Reply(7.0, [])
        assert decider.parting == ""


def test_what_waited_for_the_generation_is_sent_in_the_same_turn(tmp_path: Path) -> None:
    def answer(message: dict[str, Any]) -> tuple[float, list[Any]]:
        if kinds(message) == ["JOB_COMPLETED"]:
            return 3.0, [(3.0, "NOTIFY", {"type": "registration_finished"})]
        return (8.0, [(3.0, "CALL_ME_LATER", {"timestamp": 20})]) if "NOTIFY" in kinds(message) else nothing(message)

    with spoken(tmp_path, answer) as (decider, scheduler):
        decider.decide(e.Batch(0.0, [BEGAN]))
        assert decider.decide(e.Batch(1.0, [e.JobSubmitted(1.0, Job("w!1", 1)), e.NoMoreJobs(1.0)])) == d.Reply(1.0, [])
        reply = decider.decide(e.Batch(3.0, [e.JobEnded(3.0, "w!1", JobState.SUCCEEDED, 0, IdSet())]))
        assert decider.decide(e.Batch(9.0, [])) == d.Reply(9.0, [])
    assert reply == d.Reply(8.0, [d.FinishRegistration(3.0), d.CallAt(3.0, 20.0)])
    assert [kinds(message) for message in scheduler.heard[2:]] == [["JOB_COMPLETED"], ["NOTIFY"]]


@pytest.mark.parametrize("owner", ["decider", "nobody", "owner"])
def test_registered_profiles_are_kept_here_or_by_their_owner(tmp_path: Path, owner: str) -> None:
    def answer(message: dict[str, Any]) -> tuple[float, list[Any]]:
        if message["now"] < 2:
            profile = {"workload_name": "w", "profile_name": "n", "profile": {"type": "delay", "delay": 3}}
            return 1.0, [(1.0, "REGISTER_PROFILE", profile)]
        job = {"id": "9", "res": 1, "subtime": 0, "profile": "n"}
        return 2.0, [(2.0, "REGISTER_JOB", {"job_id": "w!9", "job": job})]

    profiles: dict[str, Profile] = {}
    more: dict[str, Any] = {} if owner == "decider" else {"profiles": profiles}
    with spoken(tmp_path, answer, dialect="4", **more) as (decider, _):
        decider.decide(e.Batch(1.0, [e.CallArrived(1.0)]))
        if owner == "owner":
            profiles["w!n"] = DELAY
        (decision,) = decider.decide(e.Batch(2.0, [e.CallArrived(2.0)])).decisions
    assert isinstance(decision, d.RegisterJob)
    found = decision.job.profile
    assert (found and found.spec) == {"decider": Delay(3.0), "nobody": None, "owner": Delay(10.0)}[owner]


def test_sleep_states_are_those_of_the_platform(tmp_path: Path) -> None:
    def answer(message: dict[str, Any]) -> tuple[float, list[Any]]:
        changes = (("0", "2"), ("0", "1"), ("1", "1"), ("0", "0"), ("0", "3"))
        return 1.0, [(1.0, "SET_RESOURCE_STATE", {"resources": unit, "state": state}) for unit, state in changes]

    with spoken(tmp_path, answer) as (decider, _):
        said = decider.decide(e.Batch(1.0, [e.CallArrived(1.0)])).decisions
    switched, set_to = d.SwitchUnits, d.SetPowerState
    assert [type(decision) for decision in said] == [set_to, switched, set_to, switched, set_to]


@pytest.mark.parametrize(
    ("config", "wants"),
    [
        (b"{}", d.Wants()),
        (b'{"job_submission": {"forward_profiles": true}}', d.Wants(forward_profiles=True)),
        (b'{"job_submission": {"from_scheduler": {"enabled": true}}}',
         d.Wants(dynamic_registration=True, acknowledge_registration=True)),
        (b'{"job_submission": {"from_scheduler": {"enabled": true, "acknowledge": false}}}',
         d.Wants(dynamic_registration=True, acknowledge_registration=False)),
        (b'{"job_submission": {"from_scheduler": {"acknowledge": true}}}', d.Wants()),
    ],
)  # fmt: skip
def test_the_configuration_says_what_the_scheduler_wants(tmp_path: Path, config: bytes, wants: d.Wants) -> None:
    decider = BatsimDecider(f"ipc://{tmp_path}/s", settings=Settings.parse(config))
    assert decider.hello() == wants
    decider.close()


def test_before_the_beginning_nothing_is_forwarded_or_withheld() -> None:
    job = e.JobSubmitted(1.0, Job("w!1", 1, 5.0, 1.0, DELAY))
    assert '"profile":{' not in EventWriter(Settings(), Dialect.FOUR).events(e.Batch(1.0, [job]))
    writer = EventWriter(Settings(), Dialect.ANY)
    assert writer.events(e.Batch(1.0, [e.NoMoreJobs(1.0)])) == "" and writer.withheld(said=False) == ""


def test_what_the_protocol_has_words_for() -> None:
    found = BatsimDecider.traits
    missing = ("withdrawals", "requeues", "lost_nodes", "feasibility", "shapes", "decides_on_cluster")
    assert found.full_names and found.estimates and not any(getattr(found, name) for name in missing)


# ---- job data in Redis


class SmallRedis(threading.Thread):
    """As much of a Redis server as a client needs that sets and gets keys."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.values: dict[bytes, bytes] = {}
        self._null = b"$-1\r\n"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.start()

    def run(self) -> None:
        link, _ = self._listener.accept()
        with self._listener, link, link.makefile("rwb") as stream:
            while head := stream.readline():
                words = []
                for _ in range(int(head[1:])):
                    size = int(stream.readline()[1:])
                    words.append(stream.read(size + 2)[:-2])
                stream.write(self._answer(words))
                stream.flush()

    def _answer(self, words: list[bytes]) -> bytes:
        if words[0].upper() == b"SET":
            self.values[words[1]] = words[2]
        elif words[0].upper() == b"GET":
            found = self.values.get(words[1])
            return self._null if found is None else b"$%d\r\n%b\r\n" % (len(found), found)
        elif words[0].upper() == b"HELLO":
            self._null = b"_\r\n"  # of RESP3
            return b"%1\r\n+proto\r\n:3\r\n"
        return b"+PONG\r\n" if words[0].upper() == b"PING" else b"+OK\r\n"


@pytest.fixture
def redis() -> Iterator[tuple[SmallRedis, RedisStore]]:
    pytest.importorskip("redis")
    server = SmallRedis()
    store = RedisStore(RedisSettings(True, "127.0.0.1", server.port, "p"), "peer")
    yield server, store
    store.close()
    server.join(10)


@pytest.mark.parametrize("forward", [False, True])
def test_with_redis_only_the_id_of_a_job_is_sent(redis: tuple[SmallRedis, RedisStore], forward: bool) -> None:
    server, store = redis
    begins = e.Begins((Node("a", 0, 3),), storage=(Node("s", 3),), profiles={"w!d": DELAY}, forward_profiles=forward)
    writer = EventWriter(Settings(), Dialect.FOUR, store)
    writer.events(e.Batch(0.0, [e.Began(0.0, begins)]))
    text = codec.encode(1.0, writer.events(e.Batch(1.0, [e.JobSubmitted(1.0, Job("w!1", 2, 5.0, 1.0, DELAY))])))
    assert json.loads(text)["events"] == [{"timestamp": 1.0, "type": "JOB_SUBMITTED", "data": {"job_id": "w!1"}}]
    profile = {b"p:profile_w!d": b'{"type":"delay","delay":10}'} if forward else {}
    job = b'{"id":"w!1","subtime":1.000000,"res":2,"walltime":5.000000,"profile":"d"}'
    assert server.values == {b"p:nb_res": b"4", b"p:job_w!1": job, **profile}
    reader = EventReader("peer", begins, store, RequestedCalls())
    (heard,) = reader.batch(codec.decode_from_batsim(text)).events
    assert isinstance(heard, e.JobSubmitted)
    assert (heard.job.units, heard.job.walltime, heard.job.profile) == (2, 5.0, DELAY)


@pytest.mark.parametrize("dialect", Dialect)
def test_registered_jobs_are_read_from_redis(redis: tuple[SmallRedis, RedisStore], dialect: Dialect) -> None:
    server, store = redis
    reader = DecisionReader("peer", {"w!d": DELAY}, store, dialect)

    def registered(**more: Any) -> d.Decision:
        event = {"timestamp": 1, "type": "REGISTER_JOB", "data": {"job_id": "w!9", **more}}
        return reader.reply(codec.decode_from_scheduler(json.dumps({"now": 1, "events": [event]}).encode())).decisions[0]

    with pytest.raises(PeerError, match="there is no key p:job_w!9"):
        registered()
    description = {"id": "9", "res": 3, "subtime": 0, "profile": "d"}
    server.values[b"p:job_w!9"] = json.dumps(description).encode()
    decision = registered()
    assert isinstance(decision, d.RegisterJob) and decision.job.units == 3
    if dialect.since_three:
        with pytest.raises(PeerError, match="should be in Redis instead"):
            registered(job=description)
    else:
        decision = registered(job={**description, "res": 4})
        assert isinstance(decision, d.RegisterJob) and decision.job.units == 4
