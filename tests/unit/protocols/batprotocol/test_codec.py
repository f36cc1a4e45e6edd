"""The generated batprotocol codec against the official compiler, and against everything a broken peer can send."""

from __future__ import annotations

import contextlib
import random
import runpy
import shutil
import struct
import subprocess
import sys
import types
import typing
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilothouse.model.errors import InputError, PeerError
from pilothouse.protocols.batprotocol import codec
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.codec import Format

ROOT = Path(__file__).resolve().parents[4]
SCHEMA = ROOT / "src/pilothouse/protocols/batprotocol/schema.fbs"
EVENTS = typing.get_args(m.Event)

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
FLOATS = st.integers(-(10**9), 10**9).map(lambda n: n / 2**10)  # exact in twelve decimals


def values(kind: object, field: str, depth: int) -> st.SearchStrategy[object]:
    """Anything that the schema allows for a field of this type."""
    if kind is str:
        return TEXTS
    if kind is float:
        return FLOATS
    if kind is bool:
        return st.booleans()
    if kind is int:
        wide = field in ("time", "period", "offset")
        return st.integers(0, 2**64 - 1 if wide else 2**32 - 1)
    if kind is type(None):
        return st.none()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs(kind, depth + 1)
    if isinstance(kind, type):
        return st.sampled_from(list(kind))
    if typing.get_origin(kind) is list:
        return st.lists(values(typing.get_args(kind)[0], field, depth + 1), max_size=3)
    members = typing.get_args(kind)
    if depth > 6 and m.KillProgressAtomicProfile in members:
        members = (m.KillProgressAtomicProfile,)
    return st.one_of([values(member, field, depth) for member in members])


def structs(kind: type, depth: int = 0) -> st.SearchStrategy[typing.Any]:
    hints = typing.get_type_hints(kind, vars(m))
    fields = {name: values(hint, name, depth) for name, hint in hints.items()}
    return st.fixed_dictionaries(fields).map(lambda found: kind(**found))


def messages_of(kinds: tuple[type, ...]) -> st.SearchStrategy[m.Message]:
    events = st.one_of([structs(kind) for kind in kinds])
    stamped = st.builds(m.EventAndTimestamp, timestamp=FLOATS, event=events)
    return st.builds(m.Message, now=FLOATS, events=st.lists(stamped, min_size=1, max_size=4))


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_event_survives_both_formats(kind: type) -> None:
    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(messages_of((kind,)))
    def check(message: m.Message) -> None:
        for form in Format:
            assert codec.decode(codec.encode(message, form), form) == message

    check()


def samples(kind: type, count: int) -> list[m.EventAndTimestamp]:
    """A few made-up events of one kind, the same ones every time."""
    found: list[m.EventAndTimestamp] = []

    @settings(
        max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
    )
    @given(structs(kind), FLOATS)
    def collect(event: typing.Any, at: float) -> None:
        found.append(m.EventAndTimestamp(at, event))

    collect()
    return found


@pytest.fixture(scope="module")
def everything() -> m.Message:
    return m.Message(1.5, [event for kind in EVENTS for event in samples(kind, 15)])


@pytest.fixture(scope="module")
def flatc() -> str:
    path = shutil.which("flatc")
    if path is None:
        pytest.skip("real component missing: flatc (Debian package flatbuffers-compiler)")
    return path


def test_official_compiler_reads_our_binary(everything: m.Message, flatc: str, tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(codec.encode(everything, Format.BINARY))
    options = ["--json", "--strict-json", "--defaults-json", "--raw-binary", "-o", str(tmp_path)]
    subprocess.run([flatc, *options, str(SCHEMA), "--", str(tmp_path / "m.bin")], check=True, timeout=60)
    assert codec.decode((tmp_path / "m.json").read_bytes(), Format.JSON) == everything


def test_official_compiler_reads_our_json_and_we_its_binary(everything: m.Message, flatc: str, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(codec.encode(everything, Format.JSON)[:-1])
    for extra in ([], ["--force-defaults"]):
        subprocess.run(
            [flatc, "--binary", "--strict-json", *extra, "-o", str(tmp_path), str(SCHEMA), str(tmp_path / "m.json")],
            check=True,
            timeout=60,
        )
        assert codec.decode((tmp_path / "m.bin").read_bytes(), Format.BINARY) == everything


@pytest.fixture(scope="module")
def official(flatc: str, tmp_path_factory: pytest.TempPathFactory) -> types.ModuleType:
    """flatc's Python classes, which need the `flatbuffers` runtime."""
    pytest.importorskip("flatbuffers")
    place = tmp_path_factory.mktemp("official")
    subprocess.run([flatc, "--python", "--gen-object-api", "-o", str(place), str(SCHEMA)], check=True, timeout=60)
    sys.path.insert(0, str(place))
    try:
        import batprotocol.fb.Message as generated
    finally:
        sys.path.remove(str(place))
    return generated


def flatten(value: object, seen: list[object]) -> list[object]:
    """All leaf values of an official object or of ours, sorted by field name, unions without their type fields."""
    if isinstance(value, bytes):
        seen.append(value.decode())
    elif isinstance(value, str | bool | int | float) or value is None:
        seen.append(value)
    elif hasattr(value, "tolist"):
        flatten(value.tolist(), seen)
    elif isinstance(value, list):
        seen.append(len(value))
        for item in value:
            flatten(item, seen)
    else:
        fields = value.__struct_fields__ if isinstance(value, msgspec.Struct) else vars(value)
        named = {name.replace("_", "").lower(): name for name in fields}
        for name in sorted(named):
            if isinstance(value, msgspec.Struct) or not (name.endswith("type") and name[:-4] in named):
                flatten(getattr(value, named[name]), seen)
    return seen


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_official_runtime_reads_and_writes_every_event(kind: type, official: typing.Any) -> None:
    import flatbuffers

    for event in samples(kind, 10):
        if has_empty_list(event):
            continue  # the official object API cannot tell an empty vector from an absent one
        ours = m.Message(2.5, [event])
        theirs = official.MessageT.InitFromObj(official.Message.GetRootAs(codec.encode(ours, Format.BINARY), 0))
        assert flatten(theirs, []) == flatten(ours, [])
        builder = flatbuffers.Builder(64)
        builder.Finish(theirs.Pack(builder))
        assert codec.decode(bytes(builder.Output()), Format.BINARY) == ours


def has_empty_list(value: object) -> bool:
    if isinstance(value, list):
        return not value or any(map(has_empty_list, value))
    return isinstance(value, msgspec.Struct) and any(has_empty_list(getattr(value, f)) for f in value.__struct_fields__)


def test_generated_modules_are_up_to_date() -> None:
    for path, text in runpy.run_path(str(ROOT / "tools/gen_batprotocol.py"))["generated"]().items():
        assert path.read_text() == text, f"{path.name} is stale: run ./do setup"


# What a broken or hostile peer sends


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=300))
def test_noise_is_an_error_and_nothing_worse(noise: bytes) -> None:
    for form in Format:
        try:
            codec.decode(noise, form)
        except PeerError as problem:
            assert "\n" not in str(problem)


def test_damaged_buffers_are_an_error_or_another_message(everything: m.Message) -> None:
    dice = random.Random(11)
    for kind in EVENTS:
        whole = codec.encode(m.Message(0.0, samples(kind, 3)[:3]), Format.BINARY)
        for _ in range(150):
            data = bytearray(whole)
            for _ in range(dice.randint(1, 4)):
                data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0xFF, dice.randrange(256)))
            with contextlib.suppress(PeerError):
                codec.decode(bytes(data), Format.BINARY)


def test_every_truncation_is_an_error() -> None:
    event = m.JobCompletedEvent("w0!1", m.FinalJobState.COMPLETED_FAILED, 3)
    whole = codec.encode(m.Message(0.0, [m.EventAndTimestamp(0.0, event)]), Format.BINARY)
    text_end = whole.rindex(b"w0!1") + 4  # a terminating zero must follow
    for size in range(text_end + 1):
        with pytest.raises(PeerError):
            codec.decode(whole[:size], Format.BINARY)


def test_nested_and_shared_parts_have_limits() -> None:
    progress = m.KillProgressWrapper(m.KillProgressAtomicProfile("p", 0.5))
    for _ in range(80):
        progress = m.KillProgressWrapper(m.KillProgressForkJoinProfile("p", [progress]))
    deep = m.Message(0.0, [m.EventAndTimestamp(0.0, m.JobsKilledEvent(["a"], [m.JobAndProgress("a", progress)]))])
    with pytest.raises(PeerError, match="nested more than 64 deep"):
        codec.decode(codec.encode(deep, Format.BINARY), Format.BINARY)


def shared(event: m.Event, count: int) -> bytes:
    """A message whose vector of events refers to one event many times."""
    stamped = m.EventAndTimestamp(0.0, event)
    alone = len(codec.encode(m.Message(0.0, [stamped]), Format.BINARY))
    data = bytearray(codec.encode(m.Message(0.0, [stamped] * count), Format.BINARY))
    vector = data.index(struct.pack("<I", count))
    (first,) = struct.unpack_from("<I", data, vector + 4)
    for i in range(count):
        struct.pack_into("<I", data, vector + 4 + 4 * i, first - 4 * i)
    return bytes(data[: vector + 4 + first + alone])


def test_a_buffer_that_refers_to_one_vector_many_times_is_refused() -> None:
    with pytest.raises(PeerError, match="beyond measure"):
        codec.decode(shared(m.KillJobsEvent(["x"] * 1000), 2000), Format.BINARY)


def test_a_long_text_may_be_referred_to_many_times() -> None:
    event = m.RegisterJobEvent("w0!1", m.Job(extra_data="x" * 10_000))
    data = shared(event, 1000)
    assert len(data) < 20_000
    found = codec.decode(data, Format.BINARY).events or []
    assert len(found) == 1000 and all(item.event == event for item in found)


def test_unknown_union_member_and_enum_value() -> None:
    event = m.JobCompletedEvent("w0!1", m.FinalJobState.COMPLETED_KILLED, 77)
    data = codec.encode(m.Message(0.0, [m.EventAndTimestamp(0.0, event)]), Format.BINARY)
    state = data.index(struct.pack("<I", 77)) + 4
    assert data[state] == m.FinalJobState.COMPLETED_KILLED
    with pytest.raises(PeerError, match="9 is no value of enum FinalJobState"):
        codec.decode(data[:state] + b"\x09" + data[state + 1 :], Format.BINARY)
    with pytest.raises(PeerError, match="is no member of union Event"):
        codec.decode(b'{"now": 0, "events": [{"timestamp": 0, "event_type": "Nonsense", "event": {}}]}', Format.JSON)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"now": 1, "wrong": 2}', "unknown field 'wrong'"),
        (b'{"now": 1, ', "not JSON"),
        (b"[]", "expected a JSON object"),
        (b'{"now": "x"}', "expected a number"),
        (b'{"events": [{"event_type": "RejectJobEvent", "event": {}}]}', "no job_id"),
        (b'{"events": [{"event": {"job_id": "a"}, "event_type": "RejectJobEvent"}]}', "must stand before"),
        (b'{"events": [{"event_type": "RejectJobEvent"}]}', "a type without a value"),
        (b'{"events": [{"event_type": "OneShot", "event": {}}]}', "no member of union"),
        (b'{"events": [{"event_type": "TurnOnOffHostsEvent", "event": {"host_ids": "0", "state": -1}}]}', "between 0"),
        (b'{"events": [{"event_type": "JobCompletedEvent", "event": {"job_id": "a", "state": {}}}]}', "no value of enum"),
        (b"[" * 100_000, "invalid message"),
        (b'{"now": 1e999}', "invalid message"),
        (b'{"now": \xff}', "invalid message"),
    ],
)
def test_json_is_read_as_strictly_as_by_the_peer(text: bytes, problem: str) -> None:
    with pytest.raises(PeerError, match=problem):
        codec.decode(text, Format.JSON, "my EDC")


def test_json_enums_by_name_or_number_and_trailing_zero() -> None:
    for state in ('"COMPLETED_FAILED"', "1"):
        text = f'{{"events": [{{"event_type": "JobCompletedEvent", "event": {{"job_id": "a", "state": {state}}}}}]}}'
        message = codec.decode(text.encode() + b"\0", Format.JSON)
        assert message.events is not None
        assert message.events[0].event == m.JobCompletedEvent("a", m.FinalJobState.COMPLETED_FAILED)


def test_json_is_printed_as_the_peer_prints_it() -> None:
    job = m.Job(resource_request=4, walltime=None, extra_data='{"a": "ü\n"}', profile_id="w0!p")
    event = m.JobSubmittedEvent("w0!1", job, 3.0)
    text = codec.encode(m.Message(0.000015002008, [m.EventAndTimestamp(1e-13, event)]), Format.JSON)
    assert text.decode() == (
        '{"now": 0.000015002008,"events": [{"timestamp": 0.0,"event_type": "JobSubmittedEvent","event": '
        '{"job_id": "w0!1","job": {"resource_request": 4,"walltime": null,'
        '"extra_data": "{\\"a\\": \\"\\u00FC\\n\\"}","rigid": true,'
        '"profile_id": "w0!p"},"submission_time": 3.0}}]}\0'
    )


def test_a_message_that_cannot_be_written_says_so() -> None:
    event = m.JobCompletedEvent("a", m.FinalJobState.COMPLETED_FAILED, -1)
    with pytest.raises(InputError, match="cannot be written"):
        codec.encode(m.Message(0.0, [m.EventAndTimestamp(0.0, event)]), Format.BINARY)


def test_flags_choose_the_format() -> None:
    assert [Format.of_flags(flags).name for flags in (0, 1, 2, 3)] == ["BINARY", "BINARY", "JSON", "JSON"]
