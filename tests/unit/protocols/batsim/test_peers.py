"""Schedulers that die, hang, answer twice, or answer nonsense: each is named, and nothing is left behind."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

import components
from e2e.live_runs import alive, lines, until
from pilothouse.model.decisions import FinishRegistration, Reply, Wants
from pilothouse.model.errors import InputError, PeerError
from pilothouse.model.events import Batch, Began, Begins, CallArrived, Ended, JobEnded, JobSubmitted, NoMoreJobs
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols import request_socket as waiting
from pilothouse.protocols.batsim.decider import BatsimDecider, batsim_decider
from pilothouse.protocols.batsim.world import DEFAULT_ENDPOINT, BatsimWorld
from pilothouse.protocols.process import PeerProcess
from pilothouse.protocols.request_socket import RequestChannel

BEGIN = Batch(0.0, [Began(0.0, Begins((Node("a", 0),)))])


class Misbehaving(threading.Thread):
    """A peer that hears one message and then does what it likes with its socket."""

    def __init__(self, endpoint: str, kind: int, behaviour: Callable[[zmq.Socket[bytes]], None]) -> None:
        super().__init__(daemon=True)
        self._bound = threading.Event()
        self._endpoint, self._kind, self._behaviour = endpoint, kind, behaviour
        self.start()
        assert self._bound.wait(5)

    def run(self) -> None:
        with zmq.Context() as context, context.socket(self._kind) as socket:
            socket.linger = 2000
            socket.bind(self._endpoint)
            self._bound.set()
            self._behaviour(socket)


def asked(tmp_path: Path, kind: int, behaviour: Callable[[zmq.Socket[bytes]], None], *, timeout: float = 20.0) -> str:
    """What our end says of a peer after at most two messages."""
    endpoint = f"ipc://{tmp_path}/s"
    peer = Misbehaving(endpoint, kind, behaviour)
    decider = BatsimDecider(endpoint, timeout=timeout, name="peer")
    try:
        decider.hello()
        with pytest.raises(PeerError) as caught:
            decider.decide(BEGIN)
            decider.decide(Batch(1.0, [CallArrived(1.0)]))
        return str(caught.value)
    finally:
        decider.close()
        peer.join(10)


def test_a_scheduler_that_dies(tmp_path: Path) -> None:
    assert asked(tmp_path, zmq.REP, lambda socket: socket.recv() and None) == (
        "peer: closed the connection while an answer was expected"
    )


def test_a_scheduler_that_hangs(tmp_path: Path) -> None:
    leave = threading.Event()

    def hang(socket: zmq.Socket[bytes]) -> None:
        socket.recv()
        leave.wait(10)

    endpoint = f"ipc://{tmp_path}/s"
    peer = Misbehaving(endpoint, zmq.REP, hang)
    channel = RequestChannel(endpoint, "peer", timeout_s=0.3)
    try:
        with pytest.raises(PeerError, match=re.escape("peer: did not answer for 0.3 s")):
            channel.exchange(b"{}")
    finally:
        channel.close()
        leave.set()
        peer.join(10)


def test_a_scheduler_that_is_not_there(tmp_path: Path) -> None:
    channel = RequestChannel(f"ipc://{tmp_path}/nobody", "peer", timeout_s=0.3)
    with pytest.raises(PeerError, match=re.escape("peer: could not be reached for 0.3 s")):
        channel.exchange(b"{}")
    channel.close()


def test_a_wait_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.2)
    channel = RequestChannel(f"ipc://{tmp_path}/nobody", "peer", timeout_s=0.6)
    with pytest.raises(PeerError):
        channel.exchange(b"{}")
    channel.close()
    assert capsys.readouterr().err == f"pilothouse: waiting for a scheduler that listens at ipc://{tmp_path}/nobody\n"
    world = BatsimWorld(f"ipc://{tmp_path}/s", timeout=0.6)
    with pytest.raises(PeerError):
        world.begin(Wants())
    world.close()
    assert capsys.readouterr().err == f"pilothouse: waiting for a Batsim that connects to ipc://{tmp_path}/s\n"


def test_a_batsim_that_dies_is_noticed(tmp_path: Path) -> None:
    """A real one aborts whenever it does not like a decision."""
    endpoint = f"ipc://{tmp_path}/s"
    world = BatsimWorld(endpoint)
    channel = RequestChannel(endpoint, "us", timeout_s=20)
    data = b'{"nb_resources": 1, "resources_data": [{"id": 0, "name": "a"}]}'
    begin = b'{"now": 0, "events": [{"timestamp": 0, "type": "SIMULATION_BEGINS", "data": %b}]}' % data
    asking = threading.Thread(target=channel.exchange, args=(begin,))
    asking.start()
    try:
        world.begin(Wants())
        world.advance()
        world.apply(Reply(0.0, []))
        asking.join(10)
        channel.close()
        with pytest.raises(PeerError, match="left before the end of its simulation"):
            world.advance()
    finally:
        world.close()


def test_a_scheduler_that_answers_twice(tmp_path: Path) -> None:
    answered = threading.Event()

    def twice(socket: zmq.Socket[bytes]) -> None:
        sender, empty, _ = socket.recv_multipart()
        for _ in range(2):
            socket.send_multipart((sender, empty, b'{"now": 0, "events": []}'))
        answered.wait(10)

    endpoint = f"ipc://{tmp_path}/s"
    peer = Misbehaving(endpoint, zmq.ROUTER, twice)
    channel = RequestChannel(endpoint, "peer", timeout_s=20)
    try:
        assert channel.exchange(b"{}") == b'{"now": 0, "events": []}'
        link = channel._socket
        assert not link._is_clean or components.readable(link.fileno(), 5), "the second answer arrives"
        with pytest.raises(PeerError, match="peer: answered more than once to one message"):
            channel.exchange(b"{}")
    finally:
        answered.set()
        channel.close()
        peer.join(10)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"Segmentation fault", "peer: invalid JSON message"),
        (b" " * 100_000_000, "peer: sent a message of 100000000 bytes, more than 33554432"),
        (b"", "peer: sent something that is no answer"),
    ],
)
def test_a_scheduler_that_answers_nonsense(tmp_path: Path, answer: bytes, problem: str) -> None:
    def behave(socket: zmq.Socket[bytes]) -> None:
        socket.recv()
        socket.send(answer)

    assert asked(tmp_path, zmq.REP, behave).startswith(problem)


def test_leaving_on_the_last_message_is_no_mistake(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/s"
    peer = Misbehaving(endpoint, zmq.REP, lambda socket: socket.recv() and None)
    decider = BatsimDecider(endpoint, timeout=20)
    decider.hello()
    assert decider.decide(Batch(5.0, [Ended(5.0)])).decisions == []
    decider.close()
    peer.join(10)


def test_a_wrong_endpoint_is_the_users_mistake() -> None:
    with pytest.raises(InputError, match=re.escape("e.g. tcp://localhost:28000")):
        RequestChannel("nonsense", "peer")


def test_a_command_that_ends_early_is_noticed(tmp_path: Path) -> None:
    decider = BatsimDecider(f"ipc://{tmp_path}/s", timeout=20, command=f"{sys.executable} -c 'raise SystemExit(3)'")
    decider.hello()
    with pytest.raises(PeerError, match=re.escape("its process ended (exit code 3) while an answer was expected")):
        decider.decide(BEGIN)
    decider.close()


def test_the_last_line_of_a_command_that_ends_early_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = "import sys; sys.exit('Traceback\\nAssertionError: too early\\n\\n')"
    decider = BatsimDecider(f"ipc://{tmp_path}/s", timeout=20, command=shlex.join([sys.executable, "-c", script]))
    decider.hello()
    with pytest.raises(PeerError, match=re.escape("(exit code 1) while an answer was expected: AssertionError: too early")):
        decider.decide(BEGIN)
    decider.close()
    assert "Traceback\nAssertionError: too early\n" in capfd.readouterr().err


def test_how_a_command_ended_is_told(tmp_path: Path) -> None:
    script = "import sys, zmq; s = zmq.Context().socket(zmq.REP); s.bind(sys.argv[1]); s.recv(); sys.exit(7)"
    endpoint = f"ipc://{tmp_path}/s"
    decider = BatsimDecider(endpoint, timeout=20, command=f"{sys.executable} -c '{script}' {endpoint}")
    decider.hello()
    with pytest.raises(PeerError, match=re.escape("its process ended (exit code 7) while an answer was expected")):
        decider.decide(BEGIN)
    decider.close()


def test_a_command_leaves_no_process_behind(tmp_path: Path) -> None:
    """Neither itself nor what it started, even if it does not listen to SIGTERM."""
    note = tmp_path / "pids"
    script = (
        "import os, signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"child = subprocess.Popen(['sleep', '600']); open({str(note)!r}, 'w').write(str(child.pid)); "
        "sys.stdout.write('ready'); sys.stdout.flush(); os.close(1); time.sleep(600)"
    )
    process = PeerProcess(f"{sys.executable} -c \"{script}\"")
    while not note.exists() or not note.read_text():
        process.check("peer")
    child = os.pidfd_open(int(note.read_text()))
    try:
        assert not components.readable(child, 0), "it runs"
        process.close(orderly=False)
        assert components.readable(child, 20), "it has ended"
    finally:
        os.close(child)


def test_commands_that_cannot_start() -> None:
    with pytest.raises(InputError, match="cannot start '/no/such/scheduler'"):
        PeerProcess("/no/such/scheduler -x")
    with pytest.raises(InputError, match="is empty"):
        PeerProcess("  ")
    with pytest.raises(InputError, match="cannot be split into words"):
        PeerProcess("'unclosed")


def test_a_scheduler_that_waits_for_the_end_of_submissions_hears_of_it(tmp_path: Path) -> None:
    """Nobody knows which generation it is of: it gets a turn of its own for that, after the last job."""

    def young(socket: zmq.Socket[bytes]) -> None:
        for _ in range(4):
            waits = b"no_more_static_job_to_submit" not in socket.recv()
            finished = b'{"timestamp": 0, "type": "NOTIFY", "data": {"type": "registration_finished"}}'
            socket.send(b'{"now": 3, "events": [%b]}' % (b"" if waits else finished))

    endpoint = f"ipc://{tmp_path}/s"
    peer = Misbehaving(endpoint, zmq.REP, young)
    decider = BatsimDecider(endpoint, timeout=20)
    job = Job("w0!1", 1, 10.0, 0.0)
    try:
        decider.hello()
        decider.decide(Batch(0.0, [Began(0.0, Begins((Node("a", 0),), dynamic_registration=True))]))
        decider.decide(Batch(1.0, [JobSubmitted(1.0, job)]))
        assert decider.decide(Batch(2.0, [NoMoreJobs(2.0)])).decisions == []
        ended = JobEnded(3.0, job.id, JobState.SUCCEEDED, 0, IdSet.span(0, 1))
        assert decider.decide(Batch(3.0, [ended])).decisions == [FinishRegistration(0.0)]
    finally:
        decider.close()
        peer.join(10)


def test_a_turn_without_events_sends_what_was_withheld(tmp_path: Path) -> None:
    """core/translate.py may leave nothing of a batch."""
    heard: list[bytes] = []

    def busy(socket: zmq.Socket[bytes]) -> None:
        for _ in range(4):
            heard.append(socket.recv())
            call = b'{"timestamp": 3, "type": "CALL_ME_LATER", "data": {"timestamp": 9}}'
            socket.send(b'{"now": 3, "events": [%b]}' % (call if b"JOB_COMPLETED" in heard[-1] else b""))

    endpoint = f"ipc://{tmp_path}/s"
    peer = Misbehaving(endpoint, zmq.REP, busy)
    decider = BatsimDecider(endpoint, timeout=20)
    try:
        decider.hello()
        decider.decide(Batch(0.0, [Began(0.0, Begins((Node("a", 0),), dynamic_registration=True))]))
        decider.decide(Batch(1.0, [JobSubmitted(1.0, Job("w0!1", 1, 10.0, 0.0)), NoMoreJobs(1.0)]))
        decider.decide(Batch(3.0, [JobEnded(3.0, "w0!1", JobState.SUCCEEDED, 0, IdSet.span(0, 1))]))
        assert decider.decide(Batch(4.0, [])).decisions == []
    finally:
        decider.close()
        peer.join(10)
    assert b"no_more_static_job_to_submit" in heard[-1]


def test_deciders_by_name(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"job_submission": {"from_scheduler": {"enabled": true, "acknowledge": false}}}')
    decider = batsim_decider(f"ipc://{tmp_path}/s", {"dialect": "2", "config": str(config)})
    wants = decider.hello()
    decider.close()
    assert wants.dynamic_registration is True and wants.acknowledge_registration is False
    with pytest.raises(InputError, match="unknown option; expected dialect or config, found colour"):
        batsim_decider("ipc://x", {"colour": "red"})
    with pytest.raises(InputError, match="expected 2, 3, 4 or any"):
        batsim_decider("ipc://x", {"dialect": "9"})


def test_a_world_of_batsim_listens_on_loopback() -> None:
    """Unless an address is named: whoever reaches the socket can pose as the Batsim."""
    assert DEFAULT_ENDPOINT.startswith("tcp://127.0.0.1:")


ESCAPING = "trap '' TERM; sleep 300 & echo $! >> pids; (setsid sh -c 'echo $$ >> pids; sleep 300' &); echo $$ >> pids; wait"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_that_a_scheduler_started_outlives_a_killed_program(tmp_path: Path, number: signal.Signals) -> None:
    """The scheduler does not heed SIGTERM, has a child, and one in a session of its own."""
    command = f"sh -c {shlex.quote(ESCAPING)}"
    code = f"import time; from pilothouse.protocols.process import PeerProcess as P; p = P({command!r}); time.sleep(300)"
    program = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    until(lambda: len(lines(tmp_path / "pids")) == 3, "the scheduler and its children run")
    program.send_signal(number)
    program.wait()
    until(lambda: not any(alive(int(pid)) for pid in lines(tmp_path / "pids")), "all of them are gone")


def test_a_scheduler_takes_what_it_started_along(tmp_path: Path) -> None:
    process = PeerProcess(f"sh -c {shlex.quote(f'cd {tmp_path}; (setsid sleep 300 & echo $! > pids); exit 3')}")
    with pytest.raises(PeerError, match="exit code 3"):
        process.check("lab", 10)
    assert process.close(orderly=True) == "exit code 3"
    assert not alive(int(lines(tmp_path / "pids")[0]))
