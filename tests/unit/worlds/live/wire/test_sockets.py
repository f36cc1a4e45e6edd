"""The wire: only the run's own key gets through; secrets are private from their first byte on."""

from __future__ import annotations

import stat
from pathlib import Path

import zmq

from pilothouse.access.files import write_whole
from pilothouse.worlds.live.wire.sockets import Credentials, DriverSocket, EngineSocket, Keys

WAIT_MS = 5000
REFUSED_MS = 400


def credentials(driver: DriverSocket, keys: Keys) -> Credentials:
    address = f"tcp://127.0.0.1:{driver.port}"
    return Credentials((address,), keys.server_public, keys.client_public, keys.client_secret)


def received(driver: DriverSocket, wait_ms: int) -> list[tuple[bytes, bytes]]:
    """What arrives at the driver."""
    return driver.receive() if driver.socket.poll(wait_ms) else []


def test_an_engine_with_the_runs_key_is_heard_and_answered() -> None:
    keys = Keys.make()
    driver = DriverSocket(keys, "127.0.0.1")
    engine = EngineSocket(credentials(driver, keys), "me")
    engine.send(b"hello")
    assert received(driver, WAIT_MS) == [(b"me", b"hello")]
    driver.send(b"me", b"welcome")
    assert engine.socket.poll(WAIT_MS)
    assert engine.receive() == [b"welcome"]
    engine.close()
    driver.close()


def test_another_runs_key_is_refused() -> None:
    keys, others = Keys.make(), Keys.make()
    driver = DriverSocket(keys, "127.0.0.1")
    mixed = Credentials(
        (f"tcp://127.0.0.1:{driver.port}",), keys.server_public, others.client_public, others.client_secret
    )
    stranger = EngineSocket(mixed, "stranger")
    stranger.send(b"let me in")
    assert received(driver, REFUSED_MS) == []
    stranger.close()
    driver.close()


def test_no_key_at_all_is_refused() -> None:
    driver = DriverSocket(Keys.make(), "127.0.0.1")
    context = zmq.Context()
    plain = context.socket(zmq.DEALER)
    plain.linger = 0
    plain.connect(f"tcp://127.0.0.1:{driver.port}")
    plain.send(b"let me in")
    assert received(driver, REFUSED_MS) == []
    plain.close()
    context.term()
    driver.close()


def test_keys_are_kept_and_private(tmp_path: Path) -> None:
    keys = Keys.load_or_make(tmp_path)
    assert Keys.load_or_make(tmp_path) == keys
    write_whole(tmp_path / "other", b"x")
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
