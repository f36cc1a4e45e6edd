"""The shells: sockets that only their owner may use, schedulers that come and go, peers that talk nonsense, ZeroMQ."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.model.errors import InputError, PeerError, RunError
from pilothouse.model.idset import IdSet
from pilothouse.policies.catalog import make
from pilothouse.protocols.rfc27 import frames, rpc, unix_socket
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.manager import Manager
from pilothouse.protocols.rfc27.manager_events import Allocated
from pilothouse.protocols.rfc27.server import BrokerServer, Server
from pilothouse.protocols.rfc27.world import FluxWorld, default_uri, flux_world
from unit.protocols.rfc27.pair import inventory, spec

LIMIT_S = 30.0


class Instance:
    """A manager at a socket, driven by the test."""

    def __init__(self, manager: Manager, make_server: Callable[[Broker], Server], *, nodes: int = 2) -> None:
        self.manager = manager
        self.broker = Broker(manager, inventory(nodes, 4), IdSet.span(0, nodes))
        self.server = make_server(self.broker)
        self.runs = True
        self.allocated: list[int] = []
        self.next_id = 1 << 24

    def submit(self, slots: int = 1) -> int:
        job_id, self.next_id = self.next_id, self.next_id + (1 << 24)
        self.manager.submit(time.time(), job_id, spec(slots))
        return job_id

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"never happened: {what}"
            self.server.step(0.05)
            for event in self.manager.take_events():
                if type(event) is Allocated and event.id in self.manager.holding:
                    self.check_cores()
                    self.allocated.append(event.id)
                    self.manager.start(time.time(), event.id)
                    if self.runs:
                        self.manager.finish(time.time(), event.id)

    def check_cores(self) -> None:
        taken: set[tuple[int, int]] = set()
        for job in self.manager.holding.values():
            cores = {(entry.rank, core) for entry in job.resource_set().ranks for core in entry.cores}
            assert not cores & taken, "a core was given to two jobs"
            taken |= cores


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def instance(path: Path) -> Iterator[Instance]:
    made = Instance(Manager(), lambda broker: BrokerServer(broker, path))
    yield made
    made.server.close()


@pytest.fixture
def steered() -> Iterator[Callable[[FluxWorld], threading.Thread]]:
    """Runs fcfs over a world in a thread; the world ends with its connection."""
    threads: list[threading.Thread] = []

    def start(world: FluxWorld) -> threading.Thread:
        thread = threading.Thread(target=lambda: Session(world, PolicyDecider(make("fcfs", {})), name="fcfs").run(), daemon=True)
        thread.start()
        threads.append(thread)
        return thread

    yield start
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def serve(uri: str, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pilothouse", "steer", "--world", f"flux:{uri}", "--by", "fcfs", *more]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


# ---- the socket


def test_the_socket_is_for_its_owner_alone(instance: Instance, path: Path) -> None:
    mode = path.stat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o700


def test_a_file_in_the_way_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match="exists and is not a socket"):
        unix_socket.Listener(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"


def test_a_stale_socket_is_replaced_and_a_long_path_refused(tmp_path: Path) -> None:
    unix_socket.Listener(tmp_path / "s")._socket.close()
    unix_socket.Listener(tmp_path / "s").close()
    assert not (tmp_path / "s").exists()
    with pytest.raises(InputError, match="too long"):
        unix_socket.Listener(tmp_path / ("x" * 120))


def test_nobody_there_is_one_clear_line(path: Path) -> None:
    with pytest.raises(PeerError, match="cannot connect: No such file"):
        FluxWorld(f"local://{path}", patience_s=0.0)._connect_patiently()


def test_a_server_that_refuses_us_says_why(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=lambda: listener.accept()[0].send(b"\x01"))
        thread.start()
        with pytest.raises(PeerError, match="refuses us: Operation not permitted"):
            unix_socket.connect(str(path))
        thread.join()


def test_names_of_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUX_URI", raising=False)
    with pytest.raises(InputError, match="FLUX_URI"):
        default_uri("")
    monkeypatch.setenv("FLUX_URI", "local:///run/flux/local")
    assert flux_world("", {"limit": "8"}).uri == "local:///run/flux/local"
    with pytest.raises(InputError, match="unknown option 'x'"):
        flux_world("", {"x": "1"})
    with pytest.raises(InputError, match="whole number"):
        flux_world("", {"limit": "many"})


# ---- schedulers that come and go


@pytest.mark.parametrize("strict", [False, True])
def test_jobs_run_over_a_socket(instance: Instance, path: Path, steered: Callable[..., object], strict: bool) -> None:
    steered(FluxWorld(f"local://{path}", reconnect=False, strict=strict))
    jobs = [instance.submit(1 + i % 8) for i in range(60)]
    instance.until(lambda: len(instance.manager.inactive) == 60, "60 jobs ended")
    assert sorted(instance.allocated) == jobs and instance.manager.strict is strict
    instance.server.close()


def test_a_killed_scheduler_loses_nothing(instance: Instance, path: Path) -> None:
    """SIGKILL while jobs run and wait, three times; no core is given twice, every job runs once."""
    instance.runs = False
    jobs = [instance.submit(3) for _ in range(12)]
    for _ in range(3):
        process = serve(f"local://{path}")
        instance.until(lambda: instance.manager.online and len(instance.manager.holding) == 2, "the machine is full")
        process.send_signal(signal.SIGKILL)
        process.wait()
        instance.until(lambda: not instance.manager.online, "the loss was noticed")
        for job_id in list(instance.manager.holding):
            instance.manager.finish(time.time(), job_id)
    instance.runs = True
    process = serve(f"local://{path}?once=1")
    instance.until(lambda: len(instance.manager.inactive) == 12, "all jobs ended")
    assert sorted(instance.allocated) == jobs
    instance.server.close()
    assert process.wait(LIMIT_S) == 0


def test_a_broker_that_restarts_finds_its_scheduler_again(path: Path, steered: Callable[..., object]) -> None:
    first = Instance(Manager(), lambda broker: BrokerServer(broker, path))
    first.runs = False
    world = FluxWorld(f"local://{path}")
    steered(world)
    running, waiting = first.submit(8), first.submit(8)
    first.until(lambda: running in first.manager.holding and waiting in first.manager.pending, "one runs, one waits")
    first.server.close()
    # the same manager behind a new socket: its state survived on disk, so to say
    first.manager.lost(time.time())
    second = Instance(first.manager, lambda broker: BrokerServer(broker, path))
    second.until(lambda: second.manager.online and waiting in second.manager.pending, "the scheduler came back")
    assert running in second.manager.holding
    second.manager.finish(time.time(), running)
    second.until(lambda: waiting in second.allocated, "the waiting job got the freed cores")
    second.until(lambda: waiting in second.manager.inactive, "and ended")
    world._reconnect = False
    second.server.close()


def test_what_somebody_else_started_meanwhile_is_respected(path: Path, steered: Callable[..., object]) -> None:
    """While we were away another scheduler gave four cores to a job, one of ours ended, one gave a node back."""
    first = Instance(Manager(), lambda broker: BrokerServer(broker, path))
    first.runs = False
    world = FluxWorld(f"local://{path}")
    steered(world)
    wide, ours = first.submit(6), first.submit(2)
    first.until(lambda: set(first.manager.holding) == {wide, ours}, "our jobs run")
    first.server.close()
    first.manager.lost(time.time())
    first.manager.finish(time.time(), ours)
    first.manager.release(time.time(), wide, IdSet.of([1]))
    half = b'{"version":1,"execution":{"R_lite":[{"rank":"1","children":{"core":"0-3"}}],"starttime":1.0,"expiration":0.0}}'
    stranger = 99 << 24
    first.manager.adopt(time.time(), stranger, spec(4), half)
    second = Instance(first.manager, lambda broker: BrokerServer(broker, path))
    second.runs, second.next_id = False, 100 << 24
    large = second.submit(8)
    second.until(lambda: large in second.manager.pending, "the machine is full")
    assert set(second.manager.holding) == {wide, stranger}
    for job_id in (stranger, wide):
        second.manager.finish(time.time(), job_id)
    second.until(lambda: large in second.manager.holding, "all of it is free again")
    second.manager.finish(time.time(), large)
    world._reconnect = False
    second.until(lambda: not second.manager.jobs, "the end")
    second.server.close()


def test_an_instance_with_another_machine_is_another_instance(path: Path) -> None:
    first = Instance(Manager(), lambda broker: BrokerServer(broker, path))
    failed: list[RunError] = []

    def run() -> None:
        try:
            Session(FluxWorld(f"local://{path}"), PolicyDecider(make("fcfs", {})), name="fcfs").run()
        except RunError as problem:
            failed.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    first.until(lambda: first.manager.online, "the scheduler is ready")
    first.server.close()
    larger = Instance(Manager(), lambda broker: BrokerServer(broker, path), nodes=3)
    larger.until(lambda: bool(failed), "the scheduler gave up")
    assert "another inventory" in str(failed[0])
    thread.join(LIMIT_S)
    larger.server.close()


def test_a_second_scheduler_is_turned_away(instance: Instance, path: Path, steered: Callable[..., object]) -> None:
    steered(FluxWorld(f"local://{path}", reconnect=False))
    instance.until(lambda: instance.manager.online, "a scheduler is ready")
    second = FluxWorld(f"local://{path}", reconnect=False)
    failed: list[PeerError] = []

    def try_it() -> None:
        try:
            second._open()
        except PeerError as problem:
            failed.append(problem)

    thread = threading.Thread(target=try_it)
    thread.start()
    instance.until(lambda: bool(failed), "the second one was refused")
    thread.join()
    assert "another scheduler holds the service sched" in str(failed[0])
    assert instance.manager.online
    second.close()
    instance.server.close()


# ---- peers that talk nonsense


def test_a_malformed_frame_is_logged_with_the_peers_name_and_hurts_nobody(
    instance: Instance, path: Path, steered: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    steered(FluxWorld(f"local://{path}", reconnect=False))
    instance.until(lambda: instance.manager.online, "a scheduler is ready")
    caplog.set_level(logging.WARNING, "pilothouse.rfc27")
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(path))
        bad = b"\x05topic"
        stream.send(struct.pack("=I", 0xFFEE0012) + struct.pack(">I", len(bad)) + bad)
        stream.send(frames.encode(rpc.request("no.such.thing", b"{}", matchtag=4)))
        instance.until(lambda: "unknown service method no.such.thing" in caplog.text, "the request was seen")
        stream.recv(1)
        (answer,) = frames.StreamReader().feed(stream.recv(1000))
        assert isinstance(answer, frames.Message) and answer.errnum == errno.ENOSYS
        assert (answer.userid, answer.rolemask) == (0, frames.ROLE_OWNER)
        # an oversize message ends this connection, and only this one
        stream.send(struct.pack("=I", 0xFFEE0012) + struct.pack(">I", 2**31))
        instance.until(lambda: "2147483648 bytes" in caplog.text, "the oversize message was refused")
    assert "scheduler 2 (pid" in caplog.text and "no header of 20 bytes" in caplog.text
    instance.submit(2)
    instance.until(lambda: len(instance.manager.inactive) == 1, "the good scheduler goes on")
    instance.server.close()


# ---- ZeroMQ between hosts


def test_the_same_conversation_over_zeromq_with_curve(tmp_path: Path, steered: Callable[..., object]) -> None:
    from pilothouse.protocols.rfc27.zmq_link import ZmqServer

    key = tmp_path / "key"
    made = Instance(Manager(), lambda broker: ZmqServer(broker, "tcp://127.0.0.1:*", key))
    assert isinstance(made.server, ZmqServer)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    world = FluxWorld(f"{made.server.address}?key={key}", reconnect=False)
    steered(world)
    jobs = [made.submit(1 + i % 8) for i in range(40)]
    made.until(lambda: len(made.manager.inactive) == 40, "40 jobs ended")
    assert sorted(made.allocated) == jobs
    world.adapter.stopped = True
    made.submit(1)
    made.until(lambda: len(made.manager.inactive) == 41 or not made.manager.online, "one more turn")
    made.until(lambda: not made.manager.online, "the server noticed that its scheduler left")
    made.server.close()


def test_a_stranger_without_the_key_gets_nowhere(tmp_path: Path) -> None:
    import zmq

    from pilothouse.protocols.rfc27.zmq_link import ZmqServer, read_keys

    made = Instance(Manager(), lambda broker: ZmqServer(broker, "tcp://127.0.0.1:*", tmp_path / "key"))
    assert isinstance(made.server, ZmqServer)
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.setsockopt(zmq.LINGER, 0)
    public, secret = zmq.curve_keypair()
    stranger.setsockopt(zmq.CURVE_PUBLICKEY, public)
    stranger.setsockopt(zmq.CURVE_SECRETKEY, secret)
    stranger.setsockopt(zmq.CURVE_SERVERKEY, read_keys(tmp_path / "key").server_public.encode())
    monitor = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_SUCCEEDED)
    stranger.connect(made.server.address)
    made.until(lambda: bool(monitor.poll(10)), "the handshake was decided")
    assert int.from_bytes(monitor.recv_multipart()[0][:2], "little") == zmq.EVENT_HANDSHAKE_FAILED_AUTH
    stranger.disable_monitor()
    monitor.close()
    stranger.close()
    context.term()
    made.server.close()


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    from pilothouse.protocols.rfc27.zmq_link import read_keys, write_keys

    write_keys(tmp_path / "key")
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(InputError, match="others can read"):
        read_keys(tmp_path / "key")
