"""Components at the other end: a small one in C, well-behaved and not, as a library here, in a child, as a process."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import WorldJudges
from pilothouse.core.session import Session
from pilothouse.core.translate import CheckedTurn
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError, InputError, PeerError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.protocols.batprotocol.decider import EdcDecider, edc_decider
from pilothouse.worlds.simulated.world import SimulatedWorld

EDC = Path(__file__).resolve().parents[3] / "edc"
Schedule = list[tuple[str, float | None, str]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("edc") / "libfcfs.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", str(path), str(EDC / "fcfs.c")], check=True, timeout=60)
    return str(path)


def jobs() -> list[Job]:
    work = [(3, 10.0), (2, 5.0), (4, 7.0), (1, 1.0), (1, 20.0), (4, 2.0)]
    return [
        Job(f"w0!{i}", units, 1000.0, float(i), Profile(f"w0!p{i}", Delay(seconds)))
        for i, (units, seconds) in enumerate(work)
    ]


def begins(**changes: Any) -> e.Begins:
    return e.Begins(tuple(Node(f"h{i}", i, speeds=(1e9,)) for i in range(4)), **changes)


def schedule_of(decider: EdcDecider) -> Schedule:
    done: list[JobRecord] = []
    outcome = Session(SimulatedWorld(begins(), jobs(), record=done.append), decider).run()
    assert not outcome.deadlocked
    return [(record.job.id, record.started_at, str(record.units)) for record in done]


EXPECTED: Schedule = [
    ("w0!0", 0.0, "0-2"),
    ("w0!1", 10.0, "0-1"),
    ("w0!2", 15.0, "0-3"),
    ("w0!3", 22.0, "0"),
    ("w0!4", 22.0, "1"),
    ("w0!5", 42.0, "0-3"),
]


@pytest.mark.parametrize("form", ["", "json"])
@pytest.mark.parametrize("how", [{}, {"inprocess": "1"}, {"load": "dlmopen"}])
def test_a_library_schedules(library: str, form: str, how: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "lib.so"  # a library keeps its state for the life of a process: each test loads its own
    path.write_bytes(Path(library).read_bytes())
    assert schedule_of(edc_decider(str(path), {"init": form, **how})) == EXPECTED


def test_a_c_library_without_extensions_of_glibc(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """musl has neither RTLD_DEEPBIND nor dlmopen."""
    path = tmp_path / "lib.so"
    path.write_bytes(Path(library).read_bytes())
    monkeypatch.delattr(os, "RTLD_DEEPBIND", raising=False)
    assert schedule_of(edc_decider(str(path), {"inprocess": "1"})) == EXPECTED
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with pytest.raises(PeerError, match="no dlmopen: load the component by dlopen"):
        schedule_of(edc_decider(str(path), {"inprocess": "1", "load": "dlmopen"}))


@contextmanager
def served(library: str, endpoint: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, str(EDC / "serve.py"), endpoint, library])
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.parametrize("form", ["", "json"])
def test_a_process_schedules(library: str, form: str, free_port: Callable[[], int]) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with served(library, endpoint):
        assert schedule_of(edc_decider(endpoint, {"init": form}, timeout=30)) == EXPECTED


def test_init_data_from_a_file(library: str, tmp_path: Path) -> None:
    (tmp_path / "init").write_text("json\n")
    assert schedule_of(edc_decider(library, {"init_file": str(tmp_path / "init")})) == EXPECTED


@pytest.mark.parametrize("form", ["", "json"])
@pytest.mark.parametrize(
    ("mischief", "told"),
    [
        ("abort", "crashed \\(SIGABRT\\)"),
        ("segfault", "crashed \\(SIGSEGV\\)"),
        ("exit", "ended its process with code 5"),
        ("error", "batsim_edc_take_decisions returned 3"),
        ("nothing", "gave no buffer"),
        ("garbage", "invalid message"),
        ("truncated", "invalid message"),
        ("no-hello", "sends an EDCHello back to Batsim"),
        ("init-error", "batsim_edc_init returned 7"),
    ],
)
def test_a_component_that_misbehaves_is_survived(library: str, mischief: str, told: str, form: str) -> None:
    done: list[JobRecord] = []
    world = SimulatedWorld(begins(), jobs(), record=done.append)
    with pytest.raises(PeerError, match=told):
        Session(world, edc_decider(library, {"init": f"{form} {mischief}"})).run()


def test_a_component_that_hangs_is_given_up(library: str) -> None:
    with pytest.raises(PeerError, match=r"no answer within 0\.3 s"):
        schedule_of(edc_decider(library, {"init": "hang"}, timeout=0.3))


@pytest.mark.parametrize("mischief", ["error", "garbage", "nothing"])
def test_an_error_in_this_process_is_one_too(library: str, mischief: str, tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(Path(library).read_bytes())
    with pytest.raises(PeerError):
        schedule_of(edc_decider(str(path), {"init": mischief, "inprocess": "yes"}))


def test_nobody_there(free_port: Callable[[], int]) -> None:
    with pytest.raises(PeerError, match=r"could not be reached for 0\.2 s"):
        schedule_of(edc_decider(f"tcp://127.0.0.1:{free_port()}", timeout=0.2))


def test_wrong_names_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such library"):
        edc_decider(str(tmp_path / "nothing.so"))
    with pytest.raises(InputError, match="unknown option 'speed'"):
        edc_decider("tcp://x:1", {"speed": "1"})
    with pytest.raises(InputError, match="no component"):
        edc_decider("")
    with pytest.raises(InputError, match="expected tcp://HOST:PORT or ipc://PATH"):
        edc_decider("nonsense://")
    (tmp_path / "text.so").write_text("no library")
    for options in ({}, {"inprocess": "1"}, {"load": "dlmopen"}):
        with pytest.raises(PeerError, match="not a decision component"):
            schedule_of(edc_decider(str(tmp_path / "text.so"), options))
    with pytest.raises(InputError, match="no way to load"):
        edc_decider(str(tmp_path / "text.so"), {"load": "magic"})


class Scripted:
    """A peer that answers each message with the next of its scripted replies."""

    name = "scripted"

    def __init__(self, *replies: dict[str, Any], features: dict[str, Any] | None = None, **hello: Any) -> None:
        self.replies = iter(replies)
        self.heard: list[Any] = []
        self._hello = {
            "batprotocol_version": "1",
            "decision_component_name": "scripted",
            "decision_component_version": "1",
            "requested_simulation_features": features or {},
            **hello,
        }

    def hello(self, init: bytes) -> tuple[int, bytes]:
        event = {"timestamp": 0, "event_type": "EDCHelloEvent", "event": self._hello}
        return 2, json.dumps({"now": 0, "events": [event]}).encode()

    def exchange(self, message: bytes) -> bytes:
        heard = json.loads(message[:-1])
        self.heard.append(heard)
        return json.dumps(next(self.replies, {"now": heard["now"], "events": []})).encode()

    def close(self) -> None:
        pass


def started(at: float, job_id: str, hosts: str) -> dict[str, Any]:
    allocation = {
        "host_allocation": hosts,
        "executor_placement_type": "PredefinedExecutorPlacementStrategyWrapper",
        "executor_placement": {},
    }
    return {"timestamp": at, "event_type": "ExecuteJobEvent", "event": {"job_id": job_id, "allocation": allocation}}


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([started(5.0, "a", "0")], "no event may be later than `now`"),
        ([started(2.0, "a", "0"), started(1.0, "b", "0")], "must not decrease"),
        ([{"timestamp": 0.0, "event_type": "SimulationEndsEvent", "event": {}}], "is not a decision"),
        ([started(0.0, "a", "0-x")], "not a set of ids"),
    ],
)
def test_a_reply_that_breaks_the_protocol(events: list[Any], told: str) -> None:
    decider = EdcDecider(Scripted({"now": 3.0, "events": events}))
    decider.hello()
    decider.begin(begins(), Cluster(begins(), "scripted"))
    with pytest.raises(PeerError, match=told):
        decider.decide(e.Batch(0.0, [e.Began(0.0, begins())]))


def test_constraints_of_the_hello_are_enforced() -> None:
    two = [Job(f"w0!{i}", 2, 100.0, 0.0, Profile("w0!p", Delay(5.0))) for i in range(2)]

    def run(hosts: tuple[str, str], **constraints: Any) -> None:
        orders = [started(0.0, "w0!0", hosts[0]), started(0.0, "w0!1", hosts[1])]
        nothing: dict[str, Any] = {"now": 0.0, "events": []}
        peer = Scripted(nothing, {"now": 0.0, "events": orders}, scheduling_constraints=constraints)
        Session(SimulatedWorld(begins(), two), EdcDecider(peer)).run()

    run(("0-1", "2-3"))
    with pytest.raises(DecisionError, match="unit already in use"):
        run(("0-1", "1-2"))
    run(("0-1", "1-2"), compute_sharing=True)
    with pytest.raises(DecisionError, match="wrong count"):
        run(("0-2", "3"))
    with pytest.raises(DecisionError, match="wrong count"):
        run(("0-2", "3"), job_allocation_validation_strategy="MatchJobRequestBigEnough")
    run(("0-2", "3"), job_allocation_validation_strategy="None")


def joined(peer: Scripted, **changes: Any) -> tuple[CheckedTurn, Cluster]:
    """The component behind `peer` as a session asks it. The judge lets everything pass."""
    decider = EdcDecider(peer)
    decider.hello()
    cluster = Cluster(begins(**changes), "scripted")
    decider.begin(cluster.begins, cluster)
    return CheckedTurn(decider, cluster, WorldJudges()), cluster


def test_a_withdrawn_job_is_confirmed_and_its_late_start_is_told_as_its_end() -> None:
    peer = Scripted(
        {"now": 0.0, "events": []},
        {"now": 2.0, "events": [started(2.0, "w0!0", "0-2")]},
    )
    turn, _ = joined(peer)
    turn(e.Batch(0.0, [e.JobSubmitted(0.0, jobs()[0])]))
    confirmed = turn(e.Batch(1.0, [e.JobWithdrawn(1.0, "w0!0")]))
    assert confirmed.decisions == [d.ConfirmWithdrawal(1.0, "w0!0")]
    assert len(peer.heard) == 1, "there is no word for a withdrawal"
    late = turn(e.Batch(2.0, [e.JobSubmitted(2.0, jobs()[1])])).decisions
    assert [type(decision) for decision in late] == [d.CallAt]
    turn(e.Batch(2.0, [e.CallArrived(2.0, late[0].call_id)]))
    (told,) = peer.heard[-1]["events"]
    assert (told["event_type"], told["event"]["job_id"], told["event"]["state"]) == (
        "JobCompletedEvent",
        "w0!0",
        "COMPLETED_KILLED",
    )


class Away:
    """A decider whose component starts job w0!0 on hosts 0-2 while host 1 is away."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.peer = Scripted({"now": 0.0, "events": [started(0.0, "w0!0", "0-2")]}, *replies)
        self.turn, cluster = joined(self.peer, unavailable=IdSet.of((1,)))
        submitted = e.JobSubmitted(0.0, jobs()[0])
        cluster.observe(submitted)
        assert self.turn(e.Batch(0.0, [submitted])).decisions == []

    def decide(self, *events: e.Event) -> list[d.Decision]:
        return self.turn(e.Batch(5.0, list(events))).decisions

    def told(self) -> list[tuple[str, str]]:
        return [(item["event_type"], item["event"].get("job_id", "")) for item in self.peer.heard[-1]["events"]]


def test_a_start_on_hosts_that_are_away_waits_for_them() -> None:
    away = Away()
    assert away.decide(e.UnitsUnavailable(5.0, IdSet.of((2,)))) == []
    assert away.decide(e.UnitsAvailable(5.0, IdSet.of((1,)))) == []
    (order,) = away.decide(e.UnitsAvailable(5.0, IdSet.of((2,))))
    assert isinstance(order, d.StartJob)
    assert (order.job_id, order.at, order.units) == ("w0!0", 5.0, IdSet.of((0, 1, 2)))
    assert away.decide(e.UnitsAvailable(5.0, IdSet.of((1,)))) == [], "it starts once"


def test_hosts_that_are_gone_for_good_give_the_job_back() -> None:
    away = Away()
    assert away.decide(e.NodesLeft(5.0, ("h1",), IdSet.of((1,)))) == []
    assert away.told() == [("JobCompletedEvent", "w0!0"), ("JobSubmittedEvent", "w0!0")]


def test_a_held_job_can_be_killed() -> None:
    kill = {"timestamp": 5.0, "event_type": "KillJobsEvent", "event": {"job_ids": ["w0!0", "w0!7"]}}
    away = Away({"now": 5.0, "events": [kill]})
    orders = away.decide(e.NoMoreJobs(5.0))
    assert [type(order) for order in orders] == [d.RejectJob, d.CallAt, d.KillJobs]
    assert isinstance(orders[2], d.KillJobs) and orders[2].job_ids == ("w0!7",)
    assert isinstance(orders[1], d.CallAt)
    away.decide(e.CallArrived(5.0, orders[1].call_id))
    assert away.told() == [("JobCompletedEvent", "w0!0"), ("JobsKilledEvent", "")]


def test_a_held_job_can_be_withdrawn() -> None:
    away = Away()
    assert away.decide(e.JobWithdrawn(5.0, "w0!0")) == [d.ConfirmWithdrawal(5.0, "w0!0")]
    assert away.told() == [("JobCompletedEvent", "w0!0")]


def test_a_job_that_lost_its_node_comes_again() -> None:
    away = Away()
    assert away.decide(e.JobRequeued(5.0, "w0!0")) == []
    assert away.told() == [("JobCompletedEvent", "w0!0"), ("JobSubmittedEvent", "w0!0")]


def test_questions_are_answered_in_the_components_place() -> None:
    turn, _ = joined(Scripted())
    large = Job("w0!9", 5)
    questions: list[e.Event] = [e.FeasibilityAsked(1.0, "q1", large), e.FeasibilityAsked(1.0, "q2", jobs()[0])]
    answers = turn(e.Batch(1.0, questions)).decisions
    assert [bool(answer.refusal) for answer in answers if isinstance(answer, d.AnswerFeasibility)] == [True, False]


def test_a_call_for_the_past_comes_at_once() -> None:
    call = {"call_me_later_id": "c", "when_type": "OneShot", "when": {"time": 1}}
    event = {"timestamp": 5.0, "event_type": "CallMeLaterEvent", "event": call}
    decider = EdcDecider(Scripted({"now": 5.0, "events": [event]}))
    decider.hello()
    decider.begin(begins(), Cluster(begins(), "scripted"))
    reply = decider.decide(e.Batch(5.0, [e.NoMoreJobs(5.0)]))
    assert reply.decisions == [d.CallAt(5.0, 5.0, "c")]


def test_stop_drops_the_orders_after_it() -> None:
    stop = {"timestamp": 0.0, "event_type": "ForceSimulationStopEvent", "event": {}}
    decider = EdcDecider(Scripted({"now": 0.0, "events": [stop, started(0.0, "w0!0", "0")]}))
    decider.hello()
    decider.begin(begins(), Cluster(begins(), "scripted"))
    assert decider.decide(e.Batch(0.0, [e.NoMoreJobs(0.0)])).decisions == [d.StopWorld(0.0)]


def test_idset_text_of_an_allocation() -> None:
    decider = EdcDecider(Scripted({"now": 0.0, "events": [started(0.0, "w0!0", "3 0-1")]}))
    decider.hello()
    decider.begin(begins(), Cluster(begins(), "scripted"))
    (order,) = decider.decide(e.Batch(0.0, [e.NoMoreJobs(0.0)])).decisions
    assert isinstance(order, d.StartJob) and order.units == IdSet.of((0, 1, 3))


@pytest.mark.parametrize(("wants", "told"), [(1, "it was given {}"), (2, "it was given {}"), (3, "edc:LIBRARY")])
def test_a_component_that_wants_an_init_string(
    wants: int, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "libwants.so")
    source = Path(__file__).resolve().parents[3] / "edc/fcfs.c"
    command = ["gcc", "-O1", f"-DWANTS_INIT={wants}", "-shared", "-fPIC", "-o", path, str(source)]
    subprocess.run(command, check=True, timeout=60)
    if wants < 3:
        assert schedule_of(edc_decider(path)) == schedule_of(edc_decider(path, {"init": "json"}))
        assert told in capfd.readouterr().err
        return
    with pytest.raises(PeerError, match=rf"batsim_edc_init returned 7.*{told}\?init="):
        schedule_of(edc_decider(path))
    with pytest.raises(PeerError, match=rf"returned 7.*{told}\?init="):
        schedule_of(edc_decider(path, {"inprocess": "1"}))
    with pytest.raises(PeerError, match=r"returned 7$"):  # the user has given one
        schedule_of(edc_decider(path, {"init": "{}"}))
    assert schedule_of(edc_decider(path, {"init": "json"}))


@pytest.mark.parametrize(("wanted", "starts"), [("{", True), ("kill_delay", False)])
def test_a_component_that_throws_at_its_init_string(
    wanted: str, starts: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As the libraries of Batsim 5's own tests: 12 of the 17 throw at an empty string, some want a member of their own."""
    if shutil.which("g++") is None:
        pytest.skip("real component missing: g++")
    sources = Path(__file__).resolve().parents[3] / "edc"
    path, inner = str(tmp_path / "libthrows.so"), str(tmp_path / "fcfs.o")
    plain = ["gcc", "-O1", "-Dbatsim_edc_init=inner_init", "-c", "-fPIC", "-o", inner, str(sources / "fcfs.c")]
    whole = ["g++", "-O1", f'-DWANTED="{wanted}"', "-shared", "-fPIC", "-o", path, str(sources / "throws.cpp"), inner]
    for command in (plain, whole):
        subprocess.run(command, check=True, timeout=60)
    if starts:
        assert schedule_of(edc_decider(path))
        assert "it was given {}" in capfd.readouterr().err
        return
    with pytest.raises(PeerError, match=r"crashed \(SIGABRT\).*edc:LIBRARY\?init=STRING"):
        schedule_of(edc_decider(path))
    assert schedule_of(edc_decider(path, {"init": '{"kill_delay": 1}'}))
