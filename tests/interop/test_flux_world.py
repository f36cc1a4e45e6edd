"""`pilothouse steer --world flux` as a process: any decider schedules for a manager that speaks like Flux's."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.manager import Manager
from pilothouse.protocols.rfc27.manager_events import Allocated
from pilothouse.protocols.rfc27.server import BrokerServer
from unit.protocols.rfc27.eventlog import read_log
from unit.protocols.rfc27.pair import inventory, spec

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE.parent.parent / "src")}
LIMIT_S = 60.0


class FluxLike:
    """A manager in real time, whose jobs end when the test says so."""

    def __init__(self, path: Path) -> None:
        self.manager = Manager()
        self.broker = Broker(self.manager, inventory(2, 4), IdSet.span(0, 2), userid=os.geteuid())
        self.server = BrokerServer(self.broker, path)
        self.process: subprocess.Popen[bytes] | None = None
        self.decision: list[int] = []
        self.last = 0

    def steer(self, path: Path, *more: str) -> None:
        command = [sys.executable, "-m", "pilothouse", "steer", "--world", f"flux:local://{path}", *more]
        self.process = subprocess.Popen(command, env=ENVIRONMENT)
        self.until(lambda: self.manager.online, "the scheduler is ready")

    def submit(self, slots: int, **more: object) -> int:
        self.last += 1 << 24
        urgency = int(more.pop("urgency", 16))  # type: ignore[call-overload]
        self.manager.submit(time.time(), self.last, spec(slots, **more), urgency=urgency)
        return self.last

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"never happened: {what}"
            self.server.step(0.05)
            for event in self.manager.take_events():
                if type(event) is Allocated:
                    self.decision.append(event.id)
                    self.manager.start(time.time(), event.id)

    def finish(self, job_id: int) -> None:
        self.until(lambda: job_id in self.manager.holding, f"{job_id} runs")
        self.manager.finish(time.time(), job_id)

    def close(self) -> None:
        self.server.close()
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)


@pytest.fixture
def flux(tmp_path: Path) -> Iterator[FluxLike]:
    made = FluxLike(tmp_path / "s")
    yield made
    made.close()


def test_easy_schedules_and_users_are_told_why_and_when(flux: FluxLike, tmp_path: Path) -> None:
    flux.steer(tmp_path / "s", "--by", "easy")
    first = flux.submit(6, duration_s=100.0)
    head = flux.submit(8, duration_s=10.0)
    small, long = flux.submit(2, duration_s=50.0), flux.submit(2, duration_s=500.0)
    flux.until(lambda: small in flux.manager.holding and head in flux.manager.pending, "the small job was backfilled")
    wanted = {"reason_pending", "t_estimate"}
    flux.until(lambda: wanted <= set((flux.manager.jobs[head].annotations or {}).get("sched", {})), "the head is annotated")
    notes = flux.manager.jobs[head].annotations["sched"]  # type: ignore[index]
    assert "it needs 8 units" in notes["reason_pending"]
    assert abs(notes["t_estimate"] - (flux.manager.jobs[first].submitted_s + 100)) < 5
    flux.until(lambda: "t_estimate" in (flux.manager.jobs[long].annotations or {}).get("sched", {}), "so is the job behind it")
    assert flux.manager.jobs[long].annotations["sched"]["t_estimate"] == pytest.approx(notes["t_estimate"] + 10, abs=2)  # type: ignore[index]
    for job_id in (first, small, head, long):
        flux.finish(job_id)
    assert flux.decision == [first, small, head, long]
    too_large = flux.submit(9)
    flux.until(lambda: too_large in flux.manager.inactive, "what cannot run is denied")
    exception = next(e for e in read_log(flux.manager.inactive[too_large].log) if e.name == "exception")
    assert exception.context["note"] == "it needs 9 units, and there are 8"


def test_cancel_hold_expedite_drain(flux: FluxLike, tmp_path: Path) -> None:
    flux.steer(tmp_path / "s", "--by", "fcfs")
    running = flux.submit(8)
    canceled, held, last = flux.submit(8), flux.submit(8), flux.submit(8)
    flux.until(lambda: running in flux.manager.holding and len(flux.manager.pending) == 3, "one runs, three wait")
    flux.manager.cancel(time.time(), canceled)
    flux.manager.set_urgency(time.time(), held, 0)
    flux.until(lambda: list(flux.manager.pending) == [last], "one is canceled, one held")
    expedited = flux.submit(4, urgency=31)
    flux.broker.change_ranks(down=IdSet.of([1]))
    flux.finish(running)
    flux.until(lambda: expedited in flux.manager.holding, "the expedited job overtakes, on the node that is up")
    assert [entry.rank for entry in flux.manager.jobs[expedited].resource_set().ranks] == [0]
    flux.broker.change_ranks(up=IdSet.of([1]))
    flux.finish(expedited)
    flux.finish(last)
    flux.manager.set_urgency(time.time(), held, 16)
    flux.finish(held)
    flux.until(lambda: not flux.manager.jobs, "all is done")


def test_a_crash_is_followed_by_a_new_start(flux: FluxLike, tmp_path: Path) -> None:
    flux.steer(tmp_path / "s", "--by", "fcfs", "--restart")
    running, waiting = flux.submit(8), flux.submit(8)
    flux.until(lambda: running in flux.manager.holding and waiting in flux.manager.pending, "one runs, one waits")
    assert flux.process is not None
    children = Path(f"/proc/{flux.process.pid}/task/{flux.process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    flux.until(lambda: not flux.manager.online, "the crash was noticed")
    flux.until(lambda: flux.manager.online and waiting in flux.manager.pending, "a new scheduler took over")
    flux.finish(running)
    flux.finish(waiting)
    assert flux.decision == [running, waiting]


@pytest.mark.parametrize("scheduler", ["fillerSched", "easyBackfill"])
def test_a_scheduler_written_for_batsim_schedules_a_flux_instance(
    tmp_path: Path, client_env: Callable[[str], Path], scheduler: str
) -> None:
    """Three programs: the manager over a simulated machine, our bridge, and pybatsim."""
    source = random.Random(3)
    jobs = [{"id": str(n), "subtime": 3 * n, "walltime": 60, "res": source.choice([1, 2, 5, 8]), "profile": "d"}
            for n in range(30)]  # fmt: skip
    workload = {"nb_res": 8, "jobs": jobs, "profiles": {"d": {"type": "delay", "delay": 20}}}
    (tmp_path / "w.json").write_text(json.dumps(workload))
    python = client_env("pybatsim3")
    client = shlex.join([str(python), str(python.parent / "pybatsim"), scheduler, "-s", f"ipc://{tmp_path}/b", "-t", "60000"])
    bridge = subprocess.Popen(
        [sys.executable, "-m", "pilothouse", "steer", "--world", f"flux:local://{tmp_path}/s?once=1", "--by",
         f"batsim:ipc://{tmp_path}/b", "--decider-timeout", "30", "--decider-command", client],
        env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pilothouse", "simulate", "-p", "8", "-w", str(tmp_path / "w.json"), "--by",
             f"rfc27:{tmp_path}/s", "-e", f"{tmp_path}/out/"],
            env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
    finally:
        bridge.terminate()
        bridge.wait(30)
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "out/jobs.csv").read_text().splitlines()[1:]
    assert len(rows) == 30 and all("COMPLETED_SUCCESSFULLY" in row for row in rows)
