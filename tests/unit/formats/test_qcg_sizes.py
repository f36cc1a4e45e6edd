"""What QCG jobs ask of nodes, in both dialects and in loops, and how long they take in simulation."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilothouse.formats.qcg_description import Resources, Size, describe
from pilothouse.formats.qcg_dialect import LATER, Dialect
from pilothouse.formats.qcg_dialect import SPECIFICATION as SPECIFIED
from pilothouse.formats.qcg_workload import Durations, Sizing, Totals, Unfit, fits_ever, iteration_sizes, load_workload
from pilothouse.model.errors import InputError
from pilothouse.model.job import Node, Shape

JOB = {"name": "a", "execution": {"exec": "x"}}
NODES = (Node("a", 0, 4, gpus=1, memory_mb=100), Node("b", 4, 6, memory_mb=200))


def test_how_large_an_allocation_is() -> None:
    assert Totals.of(NODES) == Totals(10, 2, 4, 1, 200)
    assert Totals.of(()) == Totals(0, 0, 0) == Totals(0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("cores", "nodes", "fits"),
    [(Size(exact=10), None, True), (Size(exact=11), None, False), (Size(least=10, most=20), None, True),
     (None, Size(exact=2), True),
     (None, Size(exact=3), False), (Size(exact=4), Size(exact=2), True), (Size(exact=5), Size(exact=2), False),
     (Size(exact=6), Size(exact=1), True), (Size(exact=7), Size(exact=1), False), (Size(exact=0), Size(exact=2), True)],
)  # fmt: skip
def test_what_fits_ever(cores: Size | None, nodes: Size | None, fits: bool) -> None:
    assert fits_ever(Resources(cores, nodes), NODES) is fits


@pytest.mark.parametrize(
    ("dialect", "resources", "asked"),
    [
        (LATER, {"numCores": 3}, (3, 0, None)),
        (LATER, {"numCores": {"min": 0, "max": 3}}, (1, 3, None)),
        (LATER, {"numCores": {"min": 3, "max": 3}}, (3, 0, None)),
        (LATER, {"numCores": 0, "numNodes": 2}, (0, 0, Shape(2, 2))),
        (
            LATER,
            {"numCores": 3, "numNodes": {"min": 1, "max": 2}, "nodeCrs": {"gpu": 1, "mem": 200}},
            (3, 0, Shape(1, 2, gpus_per_node=1, memory_mb_per_node=200)),
        ),
        (LATER, {"numNodes": 1, "nodeCrs": {"gpu": 2}}, r"CR GPU exceeds maximum available resources on node \(1\)"),
        (
            LATER,
            {"numNodes": 1, "nodeCrs": {"mem": 201}},
            r"CR MEM exceeds maximum available resources on node \(200\)",
        ),
        (LATER, {"numCores": 1, "nodeCrs": {"gpu": 1}}, "Number of nodes is required when CR are used"),
        (LATER, {"numCores": 0}, "Missing node and cores specification"),
        (LATER, {"numCores": {"min": 2}}, r"Both core's range boundaries \(min, max\) must be defined"),
        (LATER, {"numNodes": {"max": 2}}, r"Both node's range boundaries"),
        (SPECIFIED, {"numCores": {"min": 2}}, (2, 10, None)),
        (SPECIFIED, {"numCores": {"min": 12}}, (12, 0, None)),
        (SPECIFIED, {"numCores": {"max": 7}}, (1, 7, None)),
        (SPECIFIED, {"numNodes": {"min": 0}}, (0, 0, Shape(1, 2))),
        (SPECIFIED, {"numCores": {"min": 2, "split-into": 3}}, (2, 3, None)),
        (SPECIFIED, {"numCores": {"min": 3, "split-into": 3}}, (3, 0, None)),
        (SPECIFIED, {"numCores": {"split-into": 5}}, (1, 2, None)),
        (SPECIFIED, {"numNodes": {"min": 1, "split-into": 1}}, (0, 0, Shape(1, 2))),
        (SPECIFIED, {"numCores": {"min": 4, "split-into": 3}}, "split-into leaves 3 cores of 10 for a job that needs 4"),
        (SPECIFIED, {"numCores": {"min": 0, "split-into": 20}}, "split-into leaves 0 cores of 10 for a job that needs 1"),
        (SPECIFIED, {"numNodes": {"split-into": 3}}, "split-into leaves 0 nodes of 2 for a job that needs 1"),
        (SPECIFIED, {"numCores": {"max": 0}}, "a job with no cores cannot run"),
        (SPECIFIED, {"numCores": {"exact": 0}}, "Missing node and cores specification"),
        (SPECIFIED, {"numCores": {"exact": 0}, "numNodes": {"exact": 2}}, (0, 0, Shape(2, 2))),
        (LATER, {"numCores": {"min": 2, "scheduler": {"name": "split-into", "params": {"parts": 3}}}}, (3, 0, None)),
        (LATER, {"numCores": {"min": 2, "scheduler": "split-into"}}, (10, 0, None)),
        (LATER, {"numCores": {"min": 2, "max": 3, "scheduler": "split-into"}}, (2, 3, None)),
        (
            LATER,
            {"numNodes": {"min": 1, "scheduler": "split-into"}, "numCores": {"min": 1, "scheduler": "maximum-iters"}},
            (4, 0, Shape(2, 2)),
        ),
    ],
)
def test_what_a_job_asks_for(dialect: Dialect, resources: object, asked: tuple[int, int, Shape | None] | str) -> None:
    description = describe({**JOB, "resources": resources}, dialect)
    if isinstance(asked, str):
        with pytest.raises(Unfit, match=asked):
            Sizing(description, Totals.of(NODES)).request(0)
        return
    sizing = Sizing(description, Totals.of(NODES))
    for _ in range(2):
        found = sizing.request(0)
        assert (found.units, found.most_units, found.shape) == asked


@pytest.mark.parametrize(
    ("size", "iterations", "total", "sizes"),
    [
        (Size(least=1, scheduler="split-into"), 3, 10, [3, 3, 3]),
        (Size(least=1, scheduler="split-into", parts=2), 3, 10, [5, 5, 5]),
        (Size(least=1, scheduler="split-into"), 10, 10, [1] * 10),
        (Size(least=1, scheduler="split-into"), 11, 10, "split-into resolved to zero"),
        (Size(least=1, most=2, scheduler="split-into"), 1, 10, "split-into directive mixed with max directive"),
        (Size(least=3, scheduler="maximum-iters"), 5, 10, [3, 3, 4, 5, 5]),
        (Size(scheduler="maximum-iters"), 4, 10, [2, 2, 3, 3]),
        (Size(least=0, scheduler="maximum-iters"), 2, 1, [1, 1]),
        (Size(least=10, scheduler="maximum-iters"), 2, 10, [10, 10]),
        (Size(least=11, scheduler="maximum-iters"), 2, 10, "maximum-iters resolved to zero"),
    ],
)
def test_sizes_of_iterations(size: Size, iterations: int, total: int, sizes: list[int] | str) -> None:
    if isinstance(sizes, str):
        with pytest.raises(Unfit, match=sizes):
            list(iteration_sizes(size, iterations, total))
    else:
        assert list(iteration_sizes(size, iterations, total)) == sizes


def test_jobs_of_a_request_file(tmp_path: Path) -> None:
    path = tmp_path / "f.json"

    def load(*jobs: object) -> list[tuple[object, ...]]:
        path.write_bytes(msgspec.json.encode([{"request": "submit", "jobs": jobs}]))
        workload = load_workload(path, Durations(5.0, {"b": 7.0}), NODES, name="w", dialect=LATER)
        assert all(
            job.profile is workload.profiles[job.profile.name] for job in workload.jobs if job.profile is not None
        )
        return [(job.id, job.units, job.walltime, job.profile and job.profile.name, job.shape) for job in workload.jobs]

    loop = {
        "iteration": {"start": 1, "stop": 3},
        "resources": {"numCores": {"min": 3, "scheduler": "maximum-iters"}, "wt": "2m"},
    }
    assert load({**JOB, **loop}, {**JOB, "name": "b", "resources": {"numCores": 11}}, {**JOB, "name": "c"}) == [
        ("w!a:1", 5, 120.0, "w!5.0s", None), ("w!a:2", 5, 120.0, "w!5.0s", None), ("w!b", 11, float("inf"), "w!7.0s", Shape()),
        ("w!c", 1, float("inf"), "w!5.0s", None),
    ]  # fmt: skip
    ((_, units, *_),) = load({**JOB, "resources": {"numCores": {"min": 2, "scheduler": "split-into"}}})
    assert units == 10
    with pytest.raises(InputError, match=r"f.json: job a: Number of nodes is required when CR are used"):
        load({**JOB, "resources": {"numCores": 1, "nodeCrs": {"gpu": 1}}})
    with pytest.raises(InputError, match=r"f.json: Invalid request: Missing name"):
        load({})


def test_durations(tmp_path: Path) -> None:
    path = tmp_path / "d"
    path.write_text("name,seconds\n# x\n\na,1.5\n{}\n")
    assert Durations.named(str(path)).known == {"a": 1.5}
    assert (Durations.named("0").of("a"), Durations().of("a")) == (0.0, 60.0)
    for text, problem in (
        ("inf", "not a number of seconds"),
        ("-0.5", "not a number of seconds"),
        (str(tmp_path / "none"), "cannot be read"),
    ):
        with pytest.raises(InputError, match=problem):
            Durations.named(text)
    for text in ("a,1\nb\n", "a,1\nb,x\n"):
        path.write_text(text)
        with pytest.raises(InputError, match=r"d:2: not a duration; expected name,seconds"):
            Durations.named(str(path))
