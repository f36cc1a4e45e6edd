"""What is not said about a job, a node, an event or a decision is 0, false or empty; the exceptions are listed here."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec
import pytest

from pilothouse.core import contract, explain, session
from pilothouse.model import decisions, events, idset, job, profile, record, task_request

MODULES = (contract, decisions, events, explain, idset, job, profile, record, session, task_request)
NOT_ZERO: dict[str, object] = {
    "Traits.withdrawals": True,
    "Traits.requeues": True,
    "Traits.lost_nodes": True,
    "Traits.absent_units": True,
    "Traits.feasibility": True,
    "Traits.estimates": True,
    "Traits.shapes": True,
    "Traits.memory": True,
    "CreateProbe.quantile": 0.5,
    "TriggerProbe.force_emission": True,
    "Begins.time_waits": True,
    "Begins.storage_sharing": True,
    "Begins.exact_count": True,
    "Begins.acknowledge_registration": True,
    "CallArrived.last": True,
    "Job.walltime": inf,
    "Node.count": 1,
    "Node.cores": 1,
    "Sequence.repeat": 1,
    "SendMessage.seconds": 1e-7,
    "ReceiveMessage.poll_seconds": 0.005,
}


def defaults() -> Iterator[tuple[str, object]]:
    """Each number or truth value that a field has if it is left out."""
    for module in MODULES:
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__:
                for field in msgspec.structs.fields(kind):
                    if isinstance(field.default, bool | int | float):
                        yield f"{kind.__name__}.{field.name}", field.default


def test_what_is_left_out_is_nothing_but_for_these() -> None:
    found = dict(defaults())
    assert set(NOT_ZERO) < set(found)
    assert {name: value for name, value in found.items() if value} == NOT_ZERO
    # What follows from it.
    assert idset.IdSet().mask == 0 and events.Begins(nodes=()).units == 0 and contract.WORLD_JUDGES.take_decisions() == []
    assert not job.Shape().has_extras and job.Job("a", 1).least_units == 1 and job.Node("n", 0).mask == 1
    assert task_request.TaskRequest().can_be_bundled and not session.Outcome(0.0, 0).deadlocked
    assert profile.problem_of(profile.Sequence(())) == "" and profile.parts_of(profile.ReceiveMessage()) == ()
    assert explain.Explanation("a", "here", "", "why").sentence == "job a is here: why"


def test_a_world_has_the_units_of_its_nodes() -> None:
    assert events.Begins(nodes=()).units == 0
    assert events.Begins(nodes=(job.Node("a", 0), job.Node("b", 1, 3))).units == 4


@pytest.mark.parametrize(
    ("units", "shape", "least"),
    [
        (3, None, 3),
        (0, None, 0),
        (3, job.Shape(chunk=3), 3),
        (3, job.Shape(nodes=2), 6),
        (1, job.Shape(nodes=2), 2),
        (0, job.Shape(nodes=2), 2),
        (0, job.Shape(), 0),
    ],
)
def test_the_least_units_of_a_job(units: int, shape: job.Shape | None, least: int) -> None:
    assert job.Job("a", units, shape=shape).least_units == least


def test_the_parts_of_a_job_id() -> None:
    for job_id, workload, local in (("w0!7", "w0", "7"), ("7", "", "7"), ("w!a!b", "w", "a!b"), ("w!", "w", "w!")):
        made = job.Job(job_id, 1)
        assert (made.workload, made.local_id) == (workload, local)


def test_only_gpus_and_memory_are_counted_apart_from_units() -> None:
    for shape in (job.Shape(gpus_per_node=1), job.Shape(memory_mb_per_node=1), job.Shape(gpus_per_chunk=1)):
        assert shape.has_extras is True
    assert job.Shape(nodes=1, chunk=2, exclusive=True, parts=3).has_extras is False


def test_the_units_of_a_node() -> None:
    assert job.Node("a", 0).mask == 0b1 and job.Node("a", 2, 3).mask == 0b11100


Request = task_request.TaskRequest


def test_what_a_task_asks_for_where_the_run_says_otherwise() -> None:
    shape = job.Shape(nodes=2, gpus_per_node=1, memory_mb_per_node=500)
    run, plain = job.Job("run", 4, 60.0, shape=shape), job.Job("run", 1)
    assert task_request.asked(Request(), plain) == (1, 0, 0, 0, inf)
    assert task_request.asked(Request(), run) == (4, 2, 1, 500, 60.0)
    assert task_request.asked(Request(2, 0, 0, inf, 0), run) == (2, 0, 0, 0, inf)
    assert task_request.asked(Request(2, 100, 3, 5.0, 1), run) == (2, 1, 3, 100, 5.0)
    assert task_request.asked(Request(2, 100, 3, 5.0, 1), plain) == (2, 1, 3, 100, 5.0)


def test_only_what_is_more_than_a_core_has_a_shape() -> None:
    for cores, nodes in ((0, 0), (1, 0), (0, 1), (1, 1)):
        assert task_request.shape_for(cores, nodes, 0, 0) is None
    one = job.Shape(nodes=1, most_nodes=1)
    assert task_request.shape_for(2, 0, 0, 0) == task_request.shape_for(2, 1, 0, 0) == one
    assert task_request.shape_for(1, 2, 0, 0) == job.Shape(nodes=2, most_nodes=2)
    assert task_request.shape_for(1, 1, 1, 0) == job.Shape(nodes=1, most_nodes=1, gpus_per_node=1)
    assert task_request.shape_for(1, 0, 0, 7) == job.Shape(nodes=1, most_nodes=1, memory_mb_per_node=7)


def test_tasks_with_a_walltime_of_their_own_are_not_bundled() -> None:
    assert [Request(walltime=limit).can_be_bundled for limit in (None, inf, 5.0, 0.0)] == [True, True, False, False]
