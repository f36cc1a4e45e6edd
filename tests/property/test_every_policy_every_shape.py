"""Every policy places every shape of job: all jobs run, no unit, GPU or megabyte is given twice."""

from __future__ import annotations

import json
from math import inf
from random import Random

import msgspec
import pytest

from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.model.events import Begins
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.policies.catalog import CATALOG
from pilothouse.worlds.simulated.world import SimulatedWorld

NODES = tuple(
    Node(f"n{i}", 4 * i, 4, gpus=2, memory_mb=1000, properties={"fast": ""} if i % 2 else {}) for i in range(4)
)
FAST = msgspec.Raw(json.dumps({"properties": ["fast"]}).encode())

POLICIES = ["priority:score=r*n,backfill=easy" if name == "priority" else name for name in CATALOG]

SHAPES: dict[str, tuple[int, int, Shape | None]] = {
    "plain": (3, 0, None),
    "moldable": (2, 9, None),
    "nodes x cores": (2, 0, Shape(nodes=2)),
    "nodes, at most": (1, 3, Shape(nodes=1, most_nodes=3)),
    "whole nodes": (0, 0, Shape(nodes=2)),
    "exclusive": (1, 0, Shape(nodes=1, exclusive=True)),
    "gpus": (1, 0, Shape(nodes=1, most_nodes=1, gpus_per_node=2)),
    "memory": (1, 0, Shape(nodes=1, memory_mb_per_node=700)),
    "memory anywhere": (2, 0, Shape(memory_mb_per_node=400)),
    "slots of two cores": (4, 0, Shape(chunk=2)),
    "slots with a GPU": (4, 0, Shape(chunk=2, gpus_per_chunk=1)),
    "constraint": (1, 0, Shape(nodes=2, constraint=FAST)),
    "parts": (1, 0, Shape(parts=2)),
}


def job(number: int, kind: str, seconds: float, at: float) -> Job:
    units, most, shape = SHAPES[kind]
    profile = Profile(f"p{number}", Delay(seconds))
    return Job(f"w0!{number}", units, 3 * seconds, at, profile, most_units=most, shape=shape, runtime=seconds)


def run(policy: str, jobs: list[Job]) -> list[JobRecord]:
    records: list[JobRecord] = []
    outcome = Session(SimulatedWorld(Begins(nodes=NODES), jobs, record=records.append), naming.decider(policy)).run()
    assert not outcome.deadlocked, outcome
    return records


def assert_never_overbooked(records: list[JobRecord]) -> None:
    for record in records:
        assert record.started_at is not None
        beside = [
            other for other in records
            if other.started_at is not None and other.started_at <= record.started_at < (other.ended_at or inf)
        ]  # fmt: skip
        taken = 0
        for other in beside:
            assert not taken & other.units.mask, f"{record.job.id} and {other.job.id} share units"
            taken |= other.units.mask
        for node in NODES:
            here = [(other, other.job.shape) for other in beside if other.units.mask & node.mask]
            memory = sum(shape.memory_mb_per_node for _, shape in here if shape is not None)
            gpus = sum(
                shape.gpus_per_node + shape.gpus_per_chunk * ((other.units.mask & node.mask).bit_count() // max(1, shape.chunk))
                for other, shape in here if shape is not None
            )  # fmt: skip
            assert memory <= node.memory_mb and gpus <= node.gpus, f"{node.name} is overbooked"


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("policy", POLICIES)
def test_one_shape(policy: str, kind: str) -> None:
    records = run(policy, [job(number, kind, 10.0 + number, at=2.0 * number) for number in range(12)])
    assert len(records) == 12 and {record.state for record in records} == {JobState.SUCCEEDED}
    assert_never_overbooked(records)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("policy", POLICIES)
def test_all_shapes_mixed(policy: str, seed: int) -> None:
    random = Random(seed)
    jobs = [
        job(number, random.choice(list(SHAPES)), random.uniform(1, 50), random.uniform(0, 200)) for number in range(60)
    ]
    records = run(policy, jobs)
    assert len(records) == 60 and {record.state for record in records} == {JobState.SUCCEEDED}
    assert_never_overbooked(records)
