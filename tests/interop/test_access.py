"""Who may enter: a second local user, hosts that do not belong to the run, and thousands of idle connections."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import zmq

import components
from disbatch_runs import clean_env
from pilothouse.access.zmq_door import MOST_STRANGERS
from pilothouse.protocols.qcg.client import QcgClient
from pilothouse.worlds.live.services.kvs_client import KvsClient
from pilothouse.worlds.live.services.kvs_server import KvsServer
from pilothouse.worlds.live.wire.sockets import Credentials, DriverSocket, EngineSocket, Keys
from pilothouse.worlds.slurm.lab import Lab
from pilothouse.worlds.slurm.lab_files import parse_shape
from second_user import as_second_user

REFUSED_MS = 1500


@contextlib.contextmanager
def manager(folder: Path, *options: str) -> Iterator[str]:
    executable = components.ROOT / "libexec" / "qcg" / "qcg-pm-service"
    process = subprocess.Popen(
        [executable, "--net", "--nodes", "2", "--wd", folder, *options], stderr=subprocess.DEVNULL
    )
    try:
        yield components.qcg_address(folder, process)
    finally:
        process.terminate()
        process.wait(30)


def request(address: str, wait_ms: int = REFUSED_MS, text: bytes = b'{"request": "status"}') -> bytes | None:
    """The answer to a request; None if none comes."""
    context = zmq.Context()
    client = context.socket(zmq.REQ)
    client.linger = 0
    client.connect(address)
    client.send(text)
    answer = client.recv() if client.poll(wait_ms) else None
    client.close()
    context.term()
    return answer


def hostile_submit(marker: Path) -> bytes:
    job = {"name": "theirs", "execution": {"exec": "touch", "args": [str(marker)]}}
    return json.dumps({"request": "submit", "jobs": [job]}).encode()


def raw_request(address: str, text: bytes, *, polite: bool = False) -> None:
    """A ZMTP conversation by hand: all at once, or the request only after the other end is ready."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ"
    hello = greeting + b"\x04" + bytes([len(ready)]) + ready
    frames = b"\x01\x00\x02" + len(text).to_bytes(8, "big") + text
    with socket.socket() as made, contextlib.suppress(OSError):  # it is cut off while it talks
        made.settimeout(1.0)
        made.connect((host, int(port)))
        if not polite:
            made.sendall(hello + frames)
            return
        made.sendall(hello)
        heard = b""
        while b"READY" not in heard:
            part = made.recv(4096)
            if not part:
                return
            heard += part
        made.sendall(frames)
        made.recv(4096)


def test_qcg_serves_its_own_user_and_no_other(tmp_path: Path) -> None:
    """A second user's request gets no answer and runs nothing, however it is sent; ours are answered meanwhile."""
    marker = tmp_path / "marker"
    with manager(tmp_path) as address:
        assert request(address, 10_000) is not None
        assert as_second_user(lambda: request(address, text=hostile_submit(marker))) is None
        for number in range(50):
            as_second_user(lambda polite=bool(number % 2): raw_request(address, hostile_submit(marker), polite=polite))  # type: ignore[misc]
        with contextlib.closing(QcgClient(address)) as client:
            assert client.ask("listJobs")["length"] == 0
    assert not marker.exists()


def test_a_client_of_ours_gets_in_while_strangers_keep_knocking(tmp_path: Path) -> None:
    with manager(tmp_path) as address:
        if os.getuid() != 0:
            pytest.skip("only root can act as a second user")
        child = os.fork()
        if child == 0:
            try:
                os.setgid(65534)
                os.setuid(65534)
                while True:
                    raw_request(address, b'{"request": "finish"}')
            finally:
                os._exit(0)
        try:
            answers = [request(address, 20_000) for _ in range(5)]
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
        assert all(answers)


def test_qcg_events_are_for_its_own_user(tmp_path: Path) -> None:
    def hears(publisher: str) -> bool:
        context = zmq.Context()
        subscriber = context.socket(zmq.SUB)
        subscriber.linger = 0
        subscriber.setsockopt(zmq.SUBSCRIBE, b"")
        monitor = subscriber.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        subscriber.connect(publisher)
        entered = bool(monitor.poll(REFUSED_MS))
        subscriber.disable_monitor()
        monitor.close(0)
        subscriber.close()
        context.term()
        return entered

    with manager(tmp_path) as address:
        with contextlib.closing(QcgClient(address)) as client:
            system = client.ask("status")["System"]
        assert isinstance(system, dict)
        publisher = str(system["StatusPublisher"])
        assert hears(publisher)
        assert not as_second_user(lambda: hears(publisher))


def test_open_to_all_opens_qcg_with_a_warning(tmp_path: Path) -> None:
    with manager(tmp_path, "--open-to-all") as address:
        assert as_second_user(lambda: request(address, 10_000)) is not None
        as_second_user(lambda: raw_request(address, hostile_submit(tmp_path / "marker"), polite=True))
        components.wait_until((tmp_path / "marker").exists, "the stranger's job")
        (log,) = tmp_path.glob(".qcgpjm-service-*/service.log")
        assert "can run commands as you" in log.read_text()


def put_tasks(address: str, marker: Path) -> str:
    """What a task source of disBatch says; how it ended."""
    try:
        with KvsClient(address, timeout_s=5) as client:
            for key, value in (("name", "x"), ("done task", "x done"), ("result key", "r"), ("task key", "t")):
                client.put(f"task source {key}", value.encode())
            client.put("t", f"touch {marker}".encode())
            client.put("t", b"x done")
            client.dump()
    except Exception as problem:
        return type(problem).__name__
    return ""


@contextlib.contextmanager
def task_server(
    folder: Path, *options: str, stderr: IO[bytes] | int = subprocess.DEVNULL
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    command = ["disBatch", "-s", "localhost:1", "-p", "serv", *options, "--taskserver"]
    running = subprocess.Popen(command, cwd=folder, env=clean_env(), stderr=stderr)
    info = folder / "serv_kvsinfo.txt"
    try:
        components.wait_until(info.exists, "the address of the key-value service")
        yield info.read_text(), running
    finally:
        running.kill()
        running.wait()


def test_disbatch_takes_tasks_from_its_own_user_and_no_other(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    with task_server(tmp_path) as (address, running):
        assert as_second_user(lambda: put_tasks(address, theirs)) != ""
        assert put_tasks(address, ours) == ""
        assert running.wait(60) == 0
    assert ours.exists()
    assert not theirs.exists()


def test_open_to_all_opens_disbatch_with_a_warning(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    tmp_path.chmod(0o777)
    with (tmp_path / "said").open("wb") as said, task_server(tmp_path, "--open-to-all", stderr=said) as (address, running):
        "localhost".encode("idna")  # the second user may not be able to read Python's own modules
        assert as_second_user(lambda: put_tasks(address, theirs)) == ""
        assert running.wait(60) == 0
    assert theirs.exists()
    assert "everyone who reaches the key-value service may use it" in (tmp_path / "said").read_text()


def test_another_user_neither_reads_nor_puts_values() -> None:
    with KvsServer() as server:
        server.put("k", b"v")

        def attempt() -> str:
            try:
                with KvsClient(server.address, timeout_s=5) as client:
                    client.put("k", b"theirs")
                    return client.view("k").data.decode()
            except Exception as problem:
                return type(problem).__name__

        assert as_second_user(attempt) in ("PeerError", "ConnectionResetError", "BrokenPipeError")
        with KvsClient(server.address) as ours:
            assert ours.view("k").data == b"v"


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """As many as the hard limit allows."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def idle_connections(address: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    made = []
    try:
        for _ in range(count):
            connection = socket.socket()
            connection.settimeout(5)
            with contextlib.suppress(OSError):  # the backlog may be full
                connection.connect(address)
            made.append(connection)
        yield made
    finally:
        for connection in made:
            connection.close()


@pytest.mark.usefixtures("many_descriptors")
def test_idle_connections_to_the_driver_are_limited_and_engines_still_join() -> None:
    keys = Keys.make()
    driver = DriverSocket(keys, "127.0.0.1")
    before = len(os.listdir("/proc/self/fd"))
    with idle_connections(("127.0.0.1", driver.port), 1000) as made:
        theirs = Credentials((f"tcp://127.0.0.1:{driver.port}",), keys.server_public, keys.client_public, keys.client_secret)
        engine = EngineSocket(theirs, "me")
        engine.send(b"hello")
        assert driver.socket.poll(20_000)
        assert driver.receive() == [(b"me", b"hello")]
        components.wait_until(
            lambda: len(os.listdir("/proc/self/fd")) - before - len(made) < MOST_STRANGERS + 100, "strangers to be cut off"
        )
        engine.close()
    driver.close()


@pytest.mark.usefixtures("many_descriptors")
def test_connections_that_owe_the_secret_are_limited() -> None:
    with KvsServer(secret="s3cret") as server:
        server.put("k", b"v")
        with idle_connections(("127.0.0.1", server.port), 2000), KvsClient(server.address, secret="s3cret") as client:
            assert client.view("k").data == b"v"
            components.wait_until(lambda: len(server._connections) < 600, "strangers to be cut off")


def test_a_service_without_descriptors_waits_and_goes_on() -> None:
    """EMFILE at accept: neither a busy loop nor the end; the service goes on when there are descriptors again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with KvsServer() as server:
        server.put("k", b"v")
        client = socket.socket()
        held: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    held.append(os.dup(0))
            client.connect(("127.0.0.1", server.port))
            client.sendall(b"view         1k")
            busy = time.process_time()
            time.sleep(1.0)  # what is measured is that nothing happens
            assert time.process_time() - busy < 0.5
        finally:
            for fd in held:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client.settimeout(20)
        assert client.recv(4) == b"ASTR"
        client.close()


@pytest.mark.usefixtures("slurm_programs")
def test_a_slurm_of_slurm_lab_is_for_its_own_user_alone() -> None:
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)  # as /tmp is: others can look for the folder of the lab
        lab = Lab(Path(made) / "lab", parse_shape("1x2"))
        before = os.umask(0)
        try:
            lab.start()
        finally:
            os.umask(before)
        try:

            def knock() -> str:
                with socket.socket(socket.AF_UNIX) as client:
                    try:
                        client.connect(str(lab.folder / "munge.socket"))
                    except PermissionError:
                        return "refused"
                    return "connected"

            assert knock() == "connected"
            assert as_second_user(knock) == "refused"
            assert not lab.folder.stat().st_mode & 0o077
        finally:
            lab.stop()
