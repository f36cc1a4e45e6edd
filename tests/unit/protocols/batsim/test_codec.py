"""Messages of the Batsim protocol: what is read, what is refused, how numbers are written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from pilothouse.model.errors import PeerError
from pilothouse.protocols.batsim import codec
from pilothouse.protocols.batsim import messages as wire


def answer(*events: dict[str, object], now: float = 10.0) -> bytes:
    return json.dumps({"now": now, "events": list(events)}).encode()


def test_every_event_of_a_scheduler_is_read() -> None:
    message = codec.decode_from_scheduler(
        answer(
            {"timestamp": 1, "type": "EXECUTE_JOB", "data": {"job_id": "w0!1", "alloc": "0-3", "mapping": {"0": "0"}}},
            {"timestamp": 1, "type": "REJECT_JOB", "data": {"job_id": "w0!2"}},
            {"timestamp": 2, "type": "KILL_JOB", "data": {"job_ids": ["w0!1"]}},
            {"timestamp": 2, "type": "CALL_ME_LATER", "data": {"timestamp": 25.5}},
            {"timestamp": 3, "type": "SUBMIT_JOB", "data": {"job_id": "d!1", "job": {"res": 1}}},
            {"timestamp": 3, "type": "REGISTER_JOB", "data": {"job_id": "d!1"}},
            {
                "timestamp": 3,
                "type": "SUBMIT_PROFILE",
                "data": {"workload_name": "d", "profile_name": "p", "profile": {"type": "delay"}},
            },
            {"timestamp": 4, "type": "SET_RESOURCE_STATE", "data": {"resources": "1 3-5", "state": "42"}},
            {"timestamp": 4, "type": "SET_JOB_METADATA", "data": {"job_id": "w0!1", "metadata": "x"}},
            {"timestamp": 4, "type": "CHANGE_JOB_STATE", "data": {"job_id": "w0!1", "job_state": "RUNNING"}},
            {"timestamp": 4, "type": "TO_JOB_MSG", "data": {"job_id": "w0!1", "msg": "go"}},
            {"timestamp": 5, "type": "NOTIFY", "data": {"type": "submission_finished"}},
            {"timestamp": 5, "type": "QUERY", "data": {"requests": {"consumed_energy": {}}}},
            {
                "timestamp": 5,
                "type": "ANSWER",
                "data": {"estimate_waiting_time": {"job_id": "w0!9", "estimated_waiting_time": 56}},
            },
        )
    )
    names = [wire.name_of(event) for event in message.events]
    assert names[:3] == ["EXECUTE_JOB", "REJECT_JOB", "KILL_JOB"] and len(names) == 14
    assert isinstance(message.events[3], wire.CallMeLater) and message.events[3].data.timestamp == 25.5


def test_nothing_is_a_nop() -> None:
    assert codec.decode_from_scheduler(b'{"now": 1024.24, "events": []}').events == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "invalid JSON message"),
        (b"Traceback (most recent call last):", "invalid JSON message: JSON is malformed"),
        (b"\xff\xfe\x00", "invalid JSON message"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"events": []}', "missing required field `now`"),
        (b'{"now": 1}', "missing required field `events`"),
        (b'{"now": "1", "events": []}', "Expected `float`, got `str` - at `$.now`"),
        (answer({"timestamp": 1, "type": "NOSUCH", "data": {}}), "NOSUCH: unknown type of event"),
        (answer({"timestamp": 1, "data": {}}), "missing required field `type`"),
        (
            answer({"timestamp": 1, "type": "KILL_JOB"}),
            "KILL_JOB: invalid message: Object missing required field `data`",
        ),
        (
            answer({"timestamp": 1, "type": "KILL_JOB", "data": {"job_ids": "w0!1"}}),
            "KILL_JOB: invalid message: Expected `array`, got `str` - at `$.events[0].data.job_ids`",
        ),
        (
            answer(
                {"timestamp": 1, "type": "REJECT_JOB", "data": {"job_id": "w0!2"}},
                {"timestamp": 1, "type": "KILL_JOB", "data": {"job_ids": 3}},
            ),
            "KILL_JOB: invalid message: Expected `array`, got `int` - at `$.events[1].data.job_ids`",
        ),
        (
            answer({"timestamp": 11, "type": "REJECT_JOB", "data": {"job_id": "w0!2"}}),
            "REJECT_JOB: timestamp 11 of event 0 should be lower than or equal to now=10",
        ),
    ],
)
def test_what_breaks_the_specification_is_named(data: bytes, problem: str) -> None:
    with pytest.raises(PeerError, match=re.escape(problem)) as caught:
        codec.decode_from_scheduler(data, "my scheduler")
    assert str(caught.value).startswith("my scheduler: ")
    assert "\n" not in str(caught.value)


def test_a_hundred_megabytes_are_too_many() -> None:
    with pytest.raises(PeerError, match="sent a message of 100000000 bytes, more than 33554432"):
        codec.decode_from_scheduler(b" " * 100_000_000)


def test_numbers_have_six_decimals_and_whole_numbers_stay_whole() -> None:
    data = {
        "speed": 5e6,
        "tiny": 1e-7,
        "count": 3,
        "deep": [0.5, {"x": -1.25}],
        "name": 'a"b\n',
        "yes": True,
        "no": None,
    }
    assert codec.text_of(data) == (
        '{"speed":5000000.000000,"tiny":0.000000,"count":3,"deep":[0.500000,{"x":-1.250000}],"name":"a\\"b\\n",'
        '"yes":true,"no":null}'
    )
    ended = wire.JobCompleted(26.0, wire.JobCompletedData("w0!1", "COMPLETED_FAILED", 2))
    assert codec.encode(26.0, ",".join(map(codec.text_of, [wire.RequestedCall(25.5), ended]))) == (
        b'{"now":26.000000,"events":[{"type":"REQUESTED_CALL","timestamp":25.500000,"data":{}},'
        b'{"type":"JOB_COMPLETED","timestamp":26.000000,"data":{"job_id":"w0!1","job_state":"COMPLETED_FAILED",'
        b'"return_code":2,"alloc":""}}]}'
    )


def test_what_the_user_wrote_is_passed_on_under_the_full_id() -> None:
    source = Raw(b'{"id": 1, "subtime": 0.1, "walltime": 100, "mine": {"a": [1.5]}}')
    assert codec.passed_on(source, id="w0!1") == (
        '{"id":"w0!1","subtime":0.100000,"walltime":100,"mine":{"a":[1.500000]}}'
    )
    assert json.loads(codec.passed_on(Raw(b'{"id": 1, "res": 4}'), id="w0!1")) == {"id": "w0!1", "res": 4}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_written_reads_back(value: object) -> None:
    assert close(json.loads(codec.text_of(value)), value)
    assert json.loads(codec.passed_on(json.dumps(value).encode())) == json.loads(codec.text_of(value))


def close(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-6
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize(("date", "later"), [(10.0, True), (9.0, False), (10.5, True)])
def test_dates_may_be_equal(date: float, later: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Dates ascend, none is later than `now`: equal ones are right, in messages of both sides. Earlier ones are told."""
    call = {"timestamp": date, "type": "CALL_ME_LATER", "data": {"timestamp": 99}}
    called = {"timestamp": date, "type": "REQUESTED_CALL", "data": {}}
    assert len(codec.decode_from_scheduler(answer(call, call, now=10.5)).events) == 2
    assert len(codec.decode_from_batsim(answer(called, called, now=10.5)).events) == 2
    first = {"timestamp": 10.0, "type": "CALL_ME_LATER", "data": {"timestamp": 99}}
    assert len(codec.decode_from_scheduler(answer(first, call, now=10.5)).events) == 2
    told = "CALL_ME_LATER: timestamp 9 of event 1 is before that of the event before it (10)"
    assert [told in record.getMessage() for record in caplog.records] == ([] if later else [True])


@pytest.mark.parametrize("decode", [codec.decode_from_scheduler, codec.decode_from_batsim])
def test_both_directions_have_the_same_limits(decode: Callable[[bytes, str], object]) -> None:
    with pytest.raises(PeerError, match="peer: sent a message of 33554433 bytes, more than 33554432"):
        decode(b" " * (codec.MOST_BYTES + 1), "peer")
    with pytest.raises(PeerError, match=r"peer: invalid JSON message.*it begins"):
        decode(b'{"now": 1, "events": [', "peer")
    unread = b'{"now": 1, "events": [{"timestamp": 1, "type": "NOTIFY", "data": {"type": "\xff"}}]}'
    with pytest.raises(PeerError, match="peer: invalid JSON message"):
        decode(unread, "peer")
    text = '{"now": 1, "events": [{"timestamp": 1, "type": "NOTIFY", "data": {"type": "é"}}]}'
    assert decode(text.encode(), "peer")


@pytest.mark.parametrize(
    ("data", "blamed"),
    [
        (b'{"now": 1, "events": [{"timestamp": 1, "type": 7}]}', "7: "),
        (b'{"now": 1, "events": [{"timestamp": 1, "type": "KILL_JOB", "data": {"job_ids": [3]}}]}', "KILL_JOB: "),
        (b'{"now": 1, "events": [3]}', "event 0: "),
        (b'{"now": 1, "events": [{"timestamp": 1, "type": "REQUESTED_CALL"}, 3]}', ""),
        (b'{"now": "x", "events": []}', "invalid message"),
        (b'{"now": 1, "events": [{"timestamp": 1, "type": "$.events[x]"}]}', "$.events[x]: unknown type of event"),
        (b'{"now": 1, "events": [{"timestamp": 1, "type": "$.events[9]"}]}', "$.events[9]: unknown type of event"),
        (b'{"now": 1, "events": [{"timestamp": 1, "type": "REJECT_JOB", "data": {"$.events[": 1}}]}', "REJECT_JOB: "),
    ],
)
def test_the_event_that_is_to_blame_is_named(data: bytes, blamed: str) -> None:
    with pytest.raises(PeerError) as caught:
        codec.decode_from_scheduler(data, "peer")
    assert str(caught.value).startswith(f"peer: {blamed}")


def test_values_of_every_kind_are_written() -> None:
    assert codec.text_of((1, "a", (2.5,), Raw(b"[3]"), False)) == '[1,"a",[2.500000],[3],false]'
    assert codec.text_of(wire.JobData("w0!1")) == '{"job_id":"w0!1"}'
    assert codec.text_of(wire.JobData("w0!1", Raw(b"{}"), Raw(b"[]"))) == '{"job_id":"w0!1","job":{},"profile":[]}'
    with pytest.raises(TypeError, match="set is not a JSON value"):
        codec.text_of({1})
    assert codec.passed_on(b"[1.5, 2]", id="x") == "[1.500000,2]"
    assert codec.passed_on(b'{"a": 1}') == '{"a":1}'
    assert codec.encode_plainly(1 / 3, []) == b'{"now":0.3333333333333333,"events":[]}'
