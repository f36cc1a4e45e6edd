"""The key-value store and its bytes, without sockets."""

from __future__ import annotations

from pickle import loads

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.worlds.live.services.kvs import KeyValueStore, MemoryShelf, Reader, StoreFull, Value
from pilothouse.worlds.live.services.kvs_wire import (
    MOST_KEY_BYTES,
    MOST_SECRET_BYTES,
    MOST_VALUE_BYTES,
    Request,
    RequestReader,
    WireError,
    request_bytes,
    value_reply,
)


def value(text: str) -> Value:
    return Value(b"ASTR", text.encode())


def read(store: KeyValueStore, key: bytes, *, take: bool) -> tuple[list[str], Reader]:
    got: list[str] = []
    reader = Reader(key, take, lambda v: got.append(v.data.decode()))
    store.read(reader)
    return got, reader


def test_get_takes_the_oldest_and_view_sees_the_newest() -> None:
    store = KeyValueStore()
    store.put(b"k", value("1"))
    store.put(b"k", value("2"))
    assert read(store, b"k", take=False)[0] == ["2"]
    assert read(store, b"k", take=True)[0] == ["1"]
    assert read(store, b"k", take=True)[0] == ["2"]
    assert read(store, b"k", take=True)[0] == []


def test_a_put_answers_those_who_wait_up_to_the_first_that_takes_it() -> None:
    store = KeyValueStore()
    readers = [read(store, b"k", take=take)[0] for take in (False, True, False, True)]
    store.put(b"k", value("1"))
    assert readers == [["1"], ["1"], [], []]
    store.put(b"k", value("2"))
    assert readers == [["1"], ["1"], ["2"], ["2"]]
    assert read(store, b"k", take=False)[0] == []


def test_a_cancelled_reader_gets_nothing() -> None:
    store = KeyValueStore()
    got, reader = read(store, b"k", take=True)
    store.cancel(reader)
    store.put(b"k", value("1"))
    assert got == []
    assert read(store, b"k", take=True)[0] == ["1"]


def test_replace_leaves_one_value() -> None:
    store = KeyValueStore()
    for text in "abc":
        store.replace(b"k", value(text))
    assert list(store.shelf.lengths()) == [(b"k", 1)]
    assert read(store, b"k", take=False)[0] == ["c"]


def test_watching_keys_hear_of_events() -> None:
    store = KeyValueStore()
    store.watch(b"w", b"k:pw")
    store.watch(b"all", b":g")
    store.put(b"k", value("1"))
    store.put(b"other", value("1"))
    read(store, b"k", take=True)
    read(store, b"k", take=True)
    assert [read(store, b"w", take=True)[0] for _ in range(3)] == [["put k"], ["wait k"], []]
    assert read(store, b"all", take=True)[0] == ["get k"]
    store.watch(b"w", b"k:")
    store.put(b"k", value("2"))
    assert read(store, b"w", take=True)[0] == []


def test_dump_tells_counts_waiting_readers_and_values() -> None:
    store = KeyValueStore()
    store.put(b"k", Value(b"PYPK", b"secret"))
    store.put(b"long", value("x" * 60))
    read(store, b"none", take=True)
    counts, waiting, kept = loads(store.dump())
    assert counts == [0, 2, 0, 1, 1, 0]
    assert waiting == [(b"none", 1)]
    assert kept == [(b"k", 1, (b"PYPK", None, 6)), (b"long", 1, (b"ASTR", b"x" * 24 + b"..." + b"x" * 23, 60))]


class EmptiedShelf(MemoryShelf):
    """Another client takes the value of a key while it is being listed, as with Redis."""

    def newest(self, key: bytes) -> Value | None:
        self.clear(key)
        return super().newest(key)


def test_dump_tells_of_a_value_that_was_taken_meanwhile() -> None:
    store = KeyValueStore(EmptiedShelf())
    store.put(b"k", value("1"))
    assert loads(store.dump())[2] == [(b"k", 1, (b"ASTR", b""))]


def test_a_full_store_refuses_and_frees_again() -> None:
    store = KeyValueStore(MemoryShelf(most_bytes=10))
    store.put(b"k", value("x" * 10))
    with pytest.raises(StoreFull):
        store.put(b"k", value("y"))
    read(store, b"k", take=True)
    store.put(b"k", value("y"))


requests = st.lists(
    st.one_of(
        st.sampled_from([Request(b"dump"), Request(b"clos")]),
        st.builds(Request, st.sampled_from([b"get_", b"view"]), st.binary(max_size=20)),
        st.builds(
            lambda key, coding, data: Request(b"put_", key, Value(coding, data)),
            st.binary(max_size=20), st.binary(min_size=4, max_size=4), st.binary(max_size=50),
        ),
        st.builds(lambda key, spec: Request(b"mkey", key, Value(b"", spec)), st.binary(max_size=9), st.binary()),
    ),
    max_size=8,
)  # fmt: skip


@given(requests, st.integers(1, 40))
def test_requests_survive_any_cut_of_the_stream(sent: list[Request], piece: int) -> None:
    stream = b"".join(request_bytes(request) for request in sent)
    reader = RequestReader()
    got = [request for at in range(0, len(stream), piece) for request in reader.feed(stream[at : at + piece])]
    assert got == sent


@pytest.mark.parametrize("stream", [b"hello", b"get_abcdefghij", b"get_9999999999", b"put_        -1", b"down"])
def test_nonsense_is_refused(stream: bytes) -> None:
    with pytest.raises(WireError):
        list(RequestReader().feed(stream))


def test_the_secret_comes_first() -> None:
    with pytest.raises(WireError, match="secret"):
        list(RequestReader(secret_first=True).feed(b"dump"))
    (request,) = RequestReader(secret_first=True).feed(b"auth         3abc")
    assert (request.op, request.key) == (b"auth", b"abc")


def test_a_secret_is_shorter_than_a_key_may_be() -> None:
    long = b"s" * (MOST_SECRET_BYTES + 1)
    assert list(RequestReader().feed(request_bytes(Request(b"get_", long)))) == [Request(b"get_", long)]
    assert list(RequestReader().feed(request_bytes(Request(b"auth", long[1:])))) == [Request(b"auth", long[1:])]
    with pytest.raises(WireError):
        list(RequestReader().feed(request_bytes(Request(b"auth", long))))


@pytest.mark.parametrize(
    ("begin", "most"),
    [
        (b"get_", MOST_KEY_BYTES),
        (b"view", MOST_KEY_BYTES),
        (b"put_", MOST_KEY_BYTES),
        (b"mkey", MOST_KEY_BYTES),
        (b"auth", MOST_SECRET_BYTES),
        (b"put_         1kASTR", MOST_VALUE_BYTES),
        (b"mkey         1k", MOST_VALUE_BYTES),
    ],
)
def test_each_size_has_a_limit_of_its_own(begin: bytes, most: int) -> None:
    """What is announced is judged before it comes."""
    assert list(RequestReader().feed(begin + b"%10d" % most)) == []
    with pytest.raises(WireError, match=f"{most + 1} bytes where {most} is the most"):
        list(RequestReader().feed(begin + b"%10d" % (most + 1)))


def test_requests_are_read_byte_by_byte_and_none_before_its_end() -> None:
    sent = [
        Request(b"auth", b"s"), Request(b"put_", b"key", Value(b"JSON", b"[1]")), Request(b"dump"), Request(b"view", b""),
        Request(b"mkey", b"w", Value(b"", b"key:gp")), Request(b"get_", b"key"), Request(b"clos"),
    ]  # fmt: skip
    reader = RequestReader()
    for request in sent:
        data = request_bytes(request)
        for byte in data[:-1]:
            assert list(reader.feed(bytes([byte]))) == []
        assert list(reader.feed(data[-1:])) == [request]


def test_the_bytes_of_requests_and_replies() -> None:
    """As disBatch's client writes and reads them."""
    assert request_bytes(Request(b"put_", b"key", Value(b"JSON", b"[1]"))) == b"put_         3keyJSON         3[1]"
    assert request_bytes(Request(b"mkey", b"w", Value(b"ASTR", b"key:g"))) == b"mkey         1w         5key:g"
    assert request_bytes(Request(b"get_", b"key")) == b"get_         3key"
    assert (request_bytes(Request(b"dump")), request_bytes(Request(b"clos"))) == (b"dump", b"clos")
    assert value_reply(Value(b"PYPK", b"0123456789")) == b"PYPK        100123456789"


def test_a_reader_that_asks_for_a_secret_is_unlocked_by_its_owner() -> None:
    assert RequestReader().unlocked
    reader = RequestReader(secret_first=True)
    assert not reader.unlocked
    assert list(reader.feed(b"auth         1s")) == [Request(b"auth", b"s")]
    reader.unlocked = True
    assert list(reader.feed(b"dump")) == [Request(b"dump")]
