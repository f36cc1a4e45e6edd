"""EASY and its variants give the published start time of every job of real logs."""

import csv
import gzip
from pathlib import Path

import pytest

from pilothouse.core.session import Session
from pilothouse.formats import swf
from pilothouse.launch import naming
from pilothouse.model.events import Begins
from pilothouse.model.job import Node
from pilothouse.model.record import JobRecord
from pilothouse.views.metrics import Collector
from pilothouse.worlds.simulated.world import SimulatedWorld

HERE = Path(__file__).parent / "schedules"
KTH = HERE / "sc15-KTH-SP2-filtered.swf.gz"


def run(trace: Path, units: int, policy: str) -> tuple[dict[str, float], float]:
    """Start times by job number, and the mean bounded slowdown."""
    starts: dict[str, float] = {}
    collector = Collector()

    def record(job: JobRecord) -> None:
        collector.add(job)
        assert job.started_at is not None
        starts[job.job.local_id] = job.started_at

    nodes = tuple(Node(f"h{i}", i) for i in range(units))
    world = SimulatedWorld(Begins(nodes=nodes), swf.read(trace, units=units).jobs, record=record)
    Session(world, naming.decider(policy)).run()
    return starts, collector.metrics(units).bounded_slowdown.mean


def published(path: Path) -> dict[str, float]:
    with gzip.open(path, "rt") as file:
        return {row["job_id"]: float(row["start"]) for row in csv.DictReader(file)}


@pytest.mark.parametrize(
    ("policy", "schedule", "slowdown"),
    [
        ("easy", "sc15-KTH-SP2-easy.csv.gz", "92.5765"),
        ("easy-sjbf:estimate=clairvoyant", "sc15-KTH-SP2-easy-sjbf-clairvoyant.csv.gz", "49.8477"),
        ("easy:estimate=clairvoyant", None, "71.7224"),
        ("easy-sjbf", None, "69.4054"),
        ("easy:estimate=2x", None, "79.9303"),
        ("fcfs", None, "6814.9733"),
    ],
)
def test_kth_sp2(policy: str, schedule: str | None, slowdown: str) -> None:
    starts, mean = run(KTH, 100, policy)
    if schedule is not None:
        assert starts == published(HERE / schedule)
    assert f"{mean:.4f}" == slowdown


@pytest.mark.parametrize(("policy", "slowdown"), [("easy", "87.8703"), ("easy:estimate=clairvoyant", "70.4779")])
def test_sdsc_sp2(policy: str, slowdown: str, shared_dir: Path) -> None:
    starts, mean = run(shared_dir / "traces/sc15-SDSC-SP2-filtered.swf.gz", 128, policy)
    assert f"{mean:.4f}" == slowdown
    if policy == "easy":
        assert starts == published(shared_dir / "reference/schedules/sc15-SDSC-SP2-easy.csv.gz")
