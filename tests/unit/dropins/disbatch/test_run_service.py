"""The services of `pilothouse run`: address and secret outlive a driver, files are the owner's only."""

from __future__ import annotations

import socket
from pathlib import Path

from pilothouse.dropins.disbatch.run_service import KVS_FILE, RunService
from pilothouse.worlds.live.contexts import Launch
from pilothouse.worlds.live.services.kvs_client import KvsClient

LAUNCH = Launch(("tcp://127.0.0.1:1",), "public", "public", "very secret", "/", "/", "python")


def test_the_next_driver_has_the_same_address_and_secret(tmp_path: Path) -> None:
    first = RunService(tmp_path)
    env = first.env
    first.close()
    assert (tmp_path / KVS_FILE).stat().st_mode & 0o777 == 0o600
    second = RunService(tmp_path)
    assert second.env == env
    with KvsClient.from_environment(second.env) as client:
        client.put("k", b"v")
        assert client.get("k").data == b"v"
    second.close()


def test_a_port_that_is_taken_does_not_stop_the_run(tmp_path: Path) -> None:
    first = RunService(tmp_path)
    first.close()
    host, _, port = first.address.rpartition(":")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((host, int(port)))
        other.listen()
        second = RunService(tmp_path)
        assert second.address != first.address
        second.close()


def test_the_script_holds_no_secret_and_the_join_file_goes_with_the_run(tmp_path: Path) -> None:
    service = RunService(tmp_path)
    script = service.announce(LAUNCH)
    assert script.stat().st_mode & 0o777 == 0o700
    text = script.read_text()
    assert "very secret" not in text and service.env["PILOTHOUSE_KVS_SECRET"] not in text
    join = tmp_path / "join.json"
    assert join.stat().st_mode & 0o777 == 0o600
    service.close()
    assert not join.exists()
