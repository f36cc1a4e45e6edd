"""The key-value service of a run: address and secret outlive a driver, the file is the owner's only."""

from __future__ import annotations

import socket
from pathlib import Path

from pilothouse.worlds.live.services.key_values import KVS_FILE, KeyValueService
from pilothouse.worlds.live.services.kvs_client import KvsClient


def test_the_next_driver_has_the_same_address_and_secret(tmp_path: Path) -> None:
    first = KeyValueService(tmp_path)
    env = first.env
    first.close()
    assert (tmp_path / KVS_FILE).stat().st_mode & 0o777 == 0o600
    second = KeyValueService(tmp_path)
    assert second.env == env
    with KvsClient.from_environment(second.env) as client:
        client.put("k", b"v")
        assert client.get("k").data == b"v"
    second.close()


def test_a_port_that_is_taken_does_not_stop_the_run(tmp_path: Path) -> None:
    first = KeyValueService(tmp_path)
    first.close()
    host, _, port = first.address.rpartition(":")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((host, int(port)))
        other.listen()
        second = KeyValueService(tmp_path)
        assert second.address != first.address
        second.close()
