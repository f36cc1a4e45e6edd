"""One policy, four ways to it: called here, over JSON, over FlatBuffers, as a library. The schedule is the same."""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pilothouse.core.contract import Decider
from pilothouse.core.session import Session
from pilothouse.formats.jobs_csv import JobsCsv
from pilothouse.launch import naming
from pilothouse.launch.edc_build import build
from pilothouse.model.events import Begins
from pilothouse.model.job import Job, Node
from pilothouse.model.profile import Delay, Profile
from pilothouse.policies.base import Policy
from pilothouse.protocols.batprotocol.codec import Format
from pilothouse.protocols.batprotocol.decider import edc_decider
from pilothouse.protocols.batprotocol.world import BatprotocolWorld
from pilothouse.worlds.simulated.world import SimulatedWorld

POLICIES = ("fcfs", "easy")
EDC = Path(__file__).resolve().parents[1] / "edc"


def world(record: Callable[..., None]) -> SimulatedWorld:
    dice = random.Random(4)
    jobs, now = [], 0.0
    for i in range(300):
        now += dice.choice((0.0, 1.0, 5.0, 20.0))
        seconds = float(dice.randint(1, 200))
        walltime = seconds * dice.choice((0.8, 1.5, 3.0))
        jobs.append(Job(f"w0!{i}", dice.randint(1, 16), walltime, now, Profile(f"w0!p{i}", Delay(seconds))))
    nodes = tuple(Node(f"h{i}", i, speeds=(1e9,)) for i in range(32))
    return SimulatedWorld(Begins(nodes, workloads={"w0": "/w"}), jobs, record=record)


def jobs_csv(decider: Decider | Policy) -> str:
    text = io.StringIO()
    rows = JobsCsv(text)
    outcome = Session(world(rows.write), decider).run()
    assert not outcome.deadlocked
    rows.flush()
    return text.getvalue()


@pytest.fixture(scope="module")
def directly() -> dict[str, str]:
    return {name: jobs_csv(naming.decider(name)) for name in POLICIES}


@pytest.mark.parametrize("form", Format, ids=lambda form: form.name)
@pytest.mark.parametrize("name", POLICIES)
def test_over_a_socket(name: str, form: Format, directly: dict[str, str], free_port: Callable[[], int]) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    scheduler = Session(BatprotocolWorld(endpoint, form=form, silence_s=60), naming.decider(name))
    thread = threading.Thread(target=scheduler.run, daemon=True)
    thread.start()
    assert jobs_csv(edc_decider(endpoint, timeout=60)) == directly[name]
    thread.join(30)
    assert not thread.is_alive(), "the scheduler ends when it is told of the end"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("library") / "libfcfs.so"
    build("fcfs", str(path))
    return str(path)


@pytest.mark.parametrize("inprocess", ["0", "1"])
@pytest.mark.parametrize("name", POLICIES)
def test_as_a_library(name: str, inprocess: str, library: str, directly: dict[str, str]) -> None:
    # the init data choose another policy than the one built in
    init = {} if name == "fcfs" else {"init": name}
    assert jobs_csv(edc_decider(library, {"inprocess": inprocess, **init})) == directly[name]


@pytest.mark.parametrize("method", ["dlopen", "dlmopen"])
def test_the_library_runs_inside_a_program_that_is_no_python(method: str, library: str, tmp_path: Path) -> None:
    assert shutil.which("gcc"), "a C compiler is needed"
    program = tmp_path / "drive"
    subprocess.run(["gcc", "-O1", "-o", str(program), str(EDC / "drive.c"), "-ldl"], check=True, timeout=60)
    heard: list[bytes] = []

    class Listener:
        """Keeps what a component hears, so that it can be said again."""

        def __init__(self) -> None:
            self.inner = edc_decider(library)._channel
            self.name = self.inner.name
            self.replies: list[bytes] = []
            self.hello = self.inner.hello
            self.close = self.inner.close

        def exchange(self, message: bytes) -> bytes:
            heard.append(message)
            self.replies.append(self.inner.exchange(message))
            return self.replies[-1]

    from pilothouse.protocols.batprotocol.decider import EdcDecider

    listener = Listener()
    jobs_csv(EdcDecider(listener))
    requests = b"".join(len(message).to_bytes(4, "little") + message for message in heard)
    done = subprocess.run(
        [str(program), library, method, ""], input=requests, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    answers, rest = [], done.stdout
    while rest:
        size = int.from_bytes(rest[:4], "little")
        answers.append(rest[4 : 4 + size])
        rest = rest[4 + size :]
    assert answers[0] == (1).to_bytes(4, "little"), "the flags say FlatBuffers"
    assert answers[2:] == listener.replies
