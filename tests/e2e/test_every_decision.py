"""Every world answers to every decision: it carries the decision out, or says in words that it cannot.

Worlds: simulated, simulated with message latency, live, a Batsim 4 and a Batsim 5 at the other end of their protocols, a
Flux-style job manager, a Slurm. Our own drop-ins play the foreign ends, in processes of their own; the Slurm is one on
virtual time.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.simtest.virtual_slurm import START, VirtualJob, VirtualSlurm

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import World
from pilothouse.core.decision_table import DECISIONS, WHAT, table
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.journal.store import Journal
from pilothouse.model import decisions as d
from pilothouse.model.errors import DecisionError, PeerError, PilothouseError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.policies.base import Policy
from pilothouse.protocols.batprotocol.world import BatprotocolWorld
from pilothouse.protocols.batsim.world import BatsimWorld
from pilothouse.protocols.rfc27.world import FluxWorld
from pilothouse.worlds.live.contexts.local import LocalContext
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.world import LiveWorld
from pilothouse.worlds.simulated.inputs import load
from pilothouse.worlds.slurm.book import Pair
from pilothouse.worlds.slurm.world import SlurmWorld

ROOT = Path(__file__).parents[2]
TINY = ROOT / "examples/tiny.json"
PLATFORM_4 = ROOT / "tests/golden/batsim4/inputs/platforms/energy_platform_homogeneous.xml"
PLATFORM_5 = ROOT / "tests/golden/batsim5/inputs/small_platform.xml"
UNIT = IdSet.of([0])

Example = Callable[[float, str, str], d.Decision]
"""A decision at a date, about a job that runs and one that waits."""

EXAMPLES: dict[type, Example] = {
    d.StartJob: lambda at, runs, waits: d.StartJob(at, waits, UNIT),
    d.RejectJob: lambda at, runs, waits: d.RejectJob(at, waits, "because"),
    d.ConfirmWithdrawal: lambda at, runs, waits: d.ConfirmWithdrawal(at, waits),
    d.KillJobs: lambda at, runs, waits: d.KillJobs(at, (runs,)),
    d.CallAt: lambda at, runs, waits: d.CallAt(at, at + 1.0, "once"),
    d.CallEvery: lambda at, runs, waits: d.CallEvery(at, 1.0, "thrice", 3),
    d.StopCalls: lambda at, runs, waits: d.StopCalls(at, "thrice"),
    d.RegisterJob: lambda at, runs, waits: d.RegisterJob(at, Job("w0!new", 1, 9.0, at, Profile("w0!p", Delay(1.0)))),
    d.RegisterProfile: lambda at, runs, waits: d.RegisterProfile(at, Profile("w0!p", Delay(1.0))),
    d.FinishRegistration: lambda at, runs, waits: d.FinishRegistration(at),
    d.ResumeRegistration: lambda at, runs, waits: d.ResumeRegistration(at),
    d.SetPowerState: lambda at, runs, waits: d.SetPowerState(at, UNIT, 0),
    d.SwitchUnits: lambda at, runs, waits: d.SwitchUnits(at, IdSet.of([1]), 0),
    d.Annotate: lambda at, runs, waits: d.Annotate(at, waits, {"user": {"note": "x"}}),
    d.SetMetadata: lambda at, runs, waits: d.SetMetadata(at, waits, "x"),
    d.SetJobState: lambda at, runs, waits: d.SetJobState(at, runs, JobState.SUCCEEDED),
    d.CreateProbe: lambda at, runs, waits: d.CreateProbe(at, "probe", d.Metric.POWER, UNIT, when=at + 1.0),
    d.TriggerProbe: lambda at, runs, waits: d.TriggerProbe(at, "probe"),
    d.ResetProbe: lambda at, runs, waits: d.ResetProbe(at, "probe"),
    d.StopProbe: lambda at, runs, waits: d.StopProbe(at, "probe"),
    d.MeasureEnergy: lambda at, runs, waits: d.MeasureEnergy(at),
    d.AnswerEstimate: lambda at, runs, waits: d.AnswerEstimate(at, waits, 5.0),
    d.AnswerFeasibility: lambda at, runs, waits: d.AnswerFeasibility(at, "question"),
    d.SendToJob: lambda at, runs, waits: d.SendToJob(at, runs, "message"),
    d.StopWorld: lambda at, runs, waits: d.StopWorld(at),
}


class OneJobAtATime(Policy):
    """Starts one job at a time, and makes the example decision as soon as a job runs and another waits."""

    def __init__(self, example: Example) -> None:
        self._example: Example | None = example

    def schedule(self, cluster: Cluster) -> None:
        if not cluster.running:
            for job in cluster.queue:
                if cluster.start(job):
                    break
        if self._example is not None and cluster.running and cluster.waiting:
            runs, waits = next(iter(cluster.running)), next(iter(cluster.waiting))
            example, self._example = self._example, None
            cluster.book(example(cluster.now, runs, waits))


# ---- worlds, each with some jobs to run


@contextlib.contextmanager
def peer(folder: Path, *arguments: object) -> Iterator[None]:
    """Our own command as the foreign end."""
    command = [sys.executable, "-m", "pilothouse", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def simulated(folder: Path) -> Iterator[World]:
    yield load("4", [str(TINY)]).world(lambda record: None)


@contextlib.contextmanager
def with_latency(folder: Path) -> Iterator[World]:
    yield load(str(PLATFORM_4), [str(TINY)], control_latency=True).world(lambda record: None)


@contextlib.contextmanager
def in_passes(folder: Path) -> Iterator[World]:
    setup = load("4", [str(TINY)])
    setup.pass_every_s = 1.0
    yield setup.world(lambda record: None)


@contextlib.contextmanager
def live(folder: Path) -> Iterator[World]:
    world = LiveWorld(LiveOptions(grace_s=0.5), folder=folder, recorder=Journal(folder), contexts=[LocalContext(2)])
    for number in range(3):
        world.submit(Job(f"w0!{number}", 1, 60.0, command=Command(line="sleep 0.05")))
    world.no_more()
    yield world


@contextlib.contextmanager
def batsim_4(folder: Path) -> Iterator[World]:
    endpoint = f"ipc://{folder}/socket"
    with peer(folder, "batsim4", "-E", "-p", PLATFORM_4, "-w", TINY, "-e", "out", "-s", endpoint):
        yield BatsimWorld(endpoint, timeout=20)


@contextlib.contextmanager
def batsim_5(folder: Path) -> Iterator[World]:
    endpoint = f"ipc://{folder}/socket"
    workload = folder / "tiny5.json"
    workload.write_text(TINY.read_text().replace('"type": "delay"', '"type": "DelayProfile"'))
    with peer(folder, "batsim", "-p", PLATFORM_5, "-w", workload, "-e", "out/", "-s", endpoint, ""):
        yield BatprotocolWorld(endpoint, silence_s=8)


@contextlib.contextmanager
def flux(folder: Path) -> Iterator[World]:
    socket = folder / "socket"
    with peer(folder, "simulate", "-p", 4, "-w", TINY, "--by", f"rfc27:{socket}", "-e", "out/"):
        yield FluxWorld(f"local://{socket}", reconnect=False)


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[World]:
    cluster = VirtualSlurm(4)
    for number in range(1, 4):
        cluster.submit(VirtualJob(str(number), 1, 1.0, 60.0, 100 - number, START))
    cluster.latest = START + 600.0
    # A job that was rejected stays in Slurm's queue: its user cancels it.
    cluster.at(START + 60.0, lambda: [cluster.cancel(job_id) for job_id in cluster.jobs] and None)
    yield SlurmWorld(Pair(), slurm=cluster, once=True)


WORLDS = [simulated, with_latency, in_passes, live, batsim_4, batsim_5, flux, slurm]


def test_the_examples_and_the_table_are_total() -> None:
    assert set(EXAMPLES) == set(WHAT) == set(DECISIONS)
    refused = table({}, "empty")
    for kind, example in EXAMPLES.items():
        with pytest.raises(DecisionError, match=rf"{kind.__name__}: this world \(empty\) cannot {WHAT[kind]}"):
            refused[kind](None, example(0.0, "a", "b"))


@pytest.mark.parametrize("kind", DECISIONS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("world", WORLDS, ids=lambda function: function.__name__)
def test_a_world_carries_it_out_or_says_that_it_cannot(
    world: Callable[[Path], contextlib.AbstractContextManager[World]], kind: type, tmp_path: Path
) -> None:
    with world(tmp_path) as made:
        session = Session(made, PolicyDecider(OneJobAtATime(EXAMPLES[kind])))
        try:
            session.run()
        except PeerError as problem:
            # The foreign end refused it in its own words, or has ended.
            assert world in (batsim_4, batsim_5, flux), problem
        except PilothouseError as problem:
            # One line in our own words: it is illegal here, or this world cannot do it.
            assert "\n" not in str(problem)


def test_what_the_simulated_world_can_do_it_can_do_with_latency(tmp_path: Path) -> None:
    """A policy that runs without --control-latency runs with it."""
    for kind in (d.CallEvery, d.Annotate, d.StopWorld, d.SetMetadata, d.KillJobs, d.RejectJob):
        for world in (simulated, with_latency, in_passes):
            with world(tmp_path) as made:
                Session(made, PolicyDecider(OneJobAtATime(EXAMPLES[kind]))).run()
