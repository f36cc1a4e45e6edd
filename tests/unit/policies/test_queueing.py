"""EASY where counts of units do not decide: requests for whole nodes, jobs without an estimate, moldable jobs."""

from __future__ import annotations

from math import inf

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.model.decisions import StartJob
from pilothouse.model.events import Batch, Begins, JobHolds, JobSubmitted, UnitsUnavailable
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.profile import Delay, Profile
from pilothouse.policies.queueing import ESTIMATES
from pilothouse.worlds.simulated.world import SimulatedWorld

NODES = (Node("n0", 0, 4), Node("n1", 4, 4))


def job(
    name: str,
    units: int,
    seconds: float,
    *,
    at: float,
    walltime: float | None = None,
    shape: Shape | None = None,
    most: int = 0,
) -> Job:
    limit = seconds + 1 if walltime is None else walltime
    return Job(name, units, limit, at, Profile(name, Delay(seconds)), shape=shape, most_units=most)


def starts(
    jobs: list[Job], policy: str = "easy", *, off: IdSet | None = None, off_at: float = 0.0, nodes: tuple[Node, ...] = NODES
) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    external = [UnitsUnavailable(off_at, off)] if off else []
    world = SimulatedWorld(
        Begins(nodes=nodes), jobs, external_events=external, record=lambda r: found.update({r.job.id: r.started_at})
    )
    Session(world, naming.decider(policy)).run()
    return found


def test_a_whole_node_is_reserved_as_a_node() -> None:
    whole = Shape(nodes=1)
    found = starts(
        [
            job("left", 3, 100, at=0),
            job("right", 2, 50, at=1, shape=whole),
            job("node", 0, 10, at=2, shape=whole),
            job("long", 1, 500, at=3),
            job("later", 2, 500, at=4),
        ]
    )
    assert found["node"] == 51.0  # when n1 is free, not when four units are
    assert found["long"] == 3.0  # on n0, beside the reservation
    assert found["later"] == 61.0


@pytest.mark.parametrize("gap", [0, 2])
def test_a_node_shaped_reservation_leaves_units_that_are_free_now_to_others(gap: int) -> None:
    """Whichever units of the node are free: two of its four cores will do, and two are busy until then."""
    node = Shape(nodes=1)
    found = starts(
        [
            job("other", 4, 900, at=0, shape=node),
            *(job(f"core {unit}", 1, 5 if unit // 2 * 2 == gap else 100, at=0, shape=node) for unit in range(4)),
            job("head", 3, 10, at=6, shape=node),
            job("long", 1, 500, at=7, shape=node),
        ]
    )
    assert found["long"] == 7.0
    assert found["head"] == 100.0


def test_jobs_without_an_estimate_never_pass_a_reservation() -> None:
    found = starts(
        [
            job("running", 5, 100, at=0, walltime=inf),
            job("head", 8, 10, at=1),
            job("endless", 2, 30, at=2, walltime=inf),
            job("short", 2, 30, at=3),
        ]
    )
    assert found["head"] == 100.0
    assert found["endless"] == 110.0
    assert found["short"] == 3.0


def test_a_head_that_waits_for_units_that_are_down_blocks_nobody() -> None:
    found = starts([job("head", 8, 10, at=1), job("endless", 2, 30, at=2, walltime=inf)], off=IdSet.parse("7"))
    assert found == {"endless": 2.0}


def test_a_moldable_job_takes_no_more_than_the_reservation_leaves() -> None:
    found = starts(
        [
            job("running", 4, 100, at=0),
            job("head", 6, 10, at=1),
            job("moldable", 1, 500, at=2, most=4),
        ]
    )
    assert found["head"] == 100.0
    assert found["moldable"] == 2.0


def test_estimates_of_running_times() -> None:
    job = Job("a", 1, walltime=300.0)
    assert {name: estimate(job) for name, estimate in ESTIMATES.items()} == {
        "requested": 300.0, "2x": 600.0, "clairvoyant": 300.0,
    }  # fmt: skip
    job.runtime = 20.0
    assert ESTIMATES["clairvoyant"](job) == 20.0
    job.runtime = 900.0
    assert ESTIMATES["clairvoyant"](job) == 300.0


@pytest.mark.parametrize("policy", ["easy", "easy-sjbf", "conservative"])
def test_the_end_of_a_job_that_another_scheduler_started_counts_for_reservations(policy: str) -> None:
    begins = Begins(nodes=NODES, time_waits=False)
    decider = naming.decider(policy)
    assert isinstance(decider, PolicyDecider)
    decider.begin(begins, Cluster(begins, policy))
    foreign = JobHolds(0.0, Job("foreign", 4, 100.0), IdSet.span(0, 4), 0.0)
    wide, short, long = job("wide", 8, 10, at=0), job("short", 2, 50, at=0), job("long", 2, 200, at=0)
    reply = decider.decide(Batch(0.0, [foreign, *(JobSubmitted(0.0, one) for one in (wide, long, short))]))
    assert [one.job_id for one in reply.decisions if isinstance(one, StartJob)] == ["short"]


@pytest.mark.parametrize("policy", ["easy", "easy-sjbf", "conservative", "saf:backfill=easy"])
def test_units_that_will_not_come_back_are_not_reserved(policy: str) -> None:
    """Two units go off while a job holds them: the head waits for other ones."""
    found = starts(
        [
            job("a", 4, 10, at=0, walltime=10),
            job("b", 3, 20, at=1, walltime=20),
            job("head", 4, 5, at=3, walltime=5),
            job("long", 1, 100, at=4, walltime=100),
        ],
        policy,
        off=IdSet.parse("0-3"),
        off_at=2.0,
    )
    assert found["head"] == 21.0 and found["long"] == 26.0


@pytest.mark.parametrize("policy", ["easy", "easy-sjbf", "saf:backfill=easy", "conservative"])
@pytest.mark.parametrize("extra", [{"gpus_per_node": 2}, {"memory_mb_per_node": 900}, {"chunk": 1, "gpus_per_chunk": 1}])
def test_gpus_and_memory_of_the_head_are_reserved(policy: str, extra: dict[str, int]) -> None:
    nodes = (Node("n0", 0, 4, gpus=2, memory_mb=1000),)
    half = Shape(**{name: value // 2 or 1 for name, value in extra.items()})  # type: ignore[arg-type]
    units = 2 if "chunk" in extra else 1
    found = starts(
        [
            job("half", 1, 10, at=0, walltime=10, shape=half),
            job("head", units, 5, at=1, walltime=5, shape=Shape(**extra)),  # type: ignore[arg-type]
            job("late", 1, 100, at=2, walltime=100, shape=half),
            job("short", 1, 8, at=2, walltime=8, shape=half),
            job("other", 1, 100, at=2, walltime=100),
        ],
        policy,
        nodes=nodes,
    )
    assert found["head"] == 10.0 and found["short"] == 2.0 and found["late"] == 15.0
    assert found["other"] == 2.0  # it asks for nothing that the head needs


def test_a_whole_node_does_not_take_more_than_is_left_beside_a_counted_reservation() -> None:
    nodes = (Node("n0", 0, 4), Node("n1", 4, 6))
    found = starts(
        [
            job("a", 4, 10, at=0, walltime=10),
            job("head", 8, 5, at=1, walltime=5),
            job("node", 1, 100, at=2, walltime=100, shape=Shape(nodes=1, exclusive=True)),
        ],
        nodes=nodes,
    )
    assert found["head"] == 10.0 and found["node"] == 15.0
