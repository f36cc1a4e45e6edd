"""Who is at the other end: told by the kernel, for our own user, for another one, and for a client that has gone."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from pilothouse.access import peer
from pilothouse.access.peer import Whose, peer_of
from second_user import as_second_user

LOOPBACKS = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]


@pytest.fixture(params=LOOPBACKS, ids=["IPv4", "IPv6"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family, host = request.param
    with socket.socket(family, socket.SOCK_STREAM) as made:
        try:
            made.bind((host, 0))
        except OSError:
            pytest.skip(f"this host has no {host}")
        made.listen()
        yield made


def connected(listener: socket.socket) -> socket.socket:
    client = socket.socket(listener.family, socket.SOCK_STREAM)
    client.connect(listener.getsockname())
    return client


@pytest.mark.parametrize("lookup", [peer._ask_kernel, peer._read_table])
def test_both_tables_know_our_own_socket(listener: socket.socket, lookup: object) -> None:
    with connected(listener) as client, listener.accept()[0] as server:
        ours, theirs = peer._address(server.getsockname()), peer._address(server.getpeername())
        found = lookup(listener.family, theirs, ours)  # type: ignore[operator]
        assert found is not None
        uid, inode, _state = found
        assert (uid, inode) == (os.getuid(), os.fstat(client.fileno()).st_ino)
        assert peer_of(server).whose is Whose.OURS


def test_a_client_that_has_closed_is_not_taken_for_root(listener: socket.socket) -> None:
    """Neither while its end is on its way nor when that has arrived."""
    for held in (False, True):
        if held:
            peer.hold_ends(listener)
        as_second_user(lambda: connected(listener).close())
        with listener.accept()[0] as server:
            if not held:
                assert server.recv(1) == b""
            assert peer_of(server).whose in (Whose.UNKNOWN, Whose.ANOTHER_USER)


@pytest.mark.skipif(not peer.keeps_owners(), reason="needs Linux 6.17: earlier ones forget the owner of a closed socket")
def test_the_owner_of_a_client_that_has_closed_is_known_where_ends_are_held(listener: socket.socket) -> None:
    peer.hold_ends(listener)

    def put_and_close() -> None:
        client = connected(listener)
        client.sendall(b"a value")
        client.shutdown(socket.SHUT_RDWR)
        client.close()

    put_and_close()
    with listener.accept()[0] as server:
        assert peer_of(server).whose is Whose.OURS
        assert server.recv(100) == b"a value"
        peer.release_end(server)
        assert server.recv(100) == b""
    as_second_user(put_and_close)
    with listener.accept()[0] as server:
        assert peer_of(server).whose is Whose.ANOTHER_USER


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a second user")
def test_another_user_is_told_from_us(listener: socket.socket) -> None:
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            client = connected(listener)
            os.read(ready, 1)
            client.close()
        finally:
            os._exit(0)
    with listener.accept()[0] as server:
        found = peer_of(server)
    os.write(go, b"!")
    os.waitpid(child, 0)
    os.close(ready)
    os.close(go)
    assert (found.whose, found.uid) == (Whose.ANOTHER_USER, 65534)


def test_root_counts_as_the_same_user(listener: socket.socket) -> None:
    """A service of a plain user, and a client of root."""
    with connected(listener):

        def act() -> tuple[str, int | None]:
            with listener.accept()[0] as server:
                found = peer_of(server)
                return found.whose.value, found.uid

        assert as_second_user(act) == (Whose.OURS.value, 0)


def test_addresses_of_this_host_are_known() -> None:
    assert peer.is_own_address("127.0.0.1")
    assert not peer.is_own_address("192.0.2.1")
