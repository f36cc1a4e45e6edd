"""Requests as a real Slurm 22.05 shows them, on nodes of several sizes: what the decider is told, and what is ordered."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Shape
from pilothouse.worlds.slurm import records
from pilothouse.worlds.slurm.inventory import Inventory
from pilothouse.worlds.slurm.look import JobRow, NodeRow
from pilothouse.worlds.slurm.records import Part, Request
from pilothouse.worlds.slurm.requests import Requests, Wish

SAMPLES = Path(__file__).parent / "samples/scontrol-show-job-requests.txt"
NODES = [
    NodeRow("n1", ("go",), True, "idle", 2, 1000, {}, ()),
    NodeRow("n2", ("go",), True, "idle", 4, 2000, {"gpu": 2}, (), 1, 100),
    NodeRow("n3", ("go",), True, "idle", 8, 4000, {"gpu:a": 2, "gpu:b": 2}, ()),
    NodeRow("n4", ("go",), True, "idle", 16, 8000, {}, (), 1, 5000),
    NodeRow("n5", ("go",), True, "idle", 4, 4000, {}, ()),
]


def recorded() -> dict[str, str]:
    lines = SAMPLES.read_text().splitlines()
    return {options[2:]: line for options, line in zip(lines[::2], lines[1::2], strict=True)}


def row(**more: object) -> JobRow:
    values: dict[str, object] = dict.fromkeys(("node_names", "wanted_nodes", "excluded_nodes"), ())
    values |= dict.fromkeys(("reservation", "gres", "licences", "features"), "")
    values |= {"id": "1", "partitions": ("queue",), "state": "PENDING", "reason": "", "priority": 1.0, "nodes": 1, "cpus": 1}
    values |= {"limit_s": 60.0, "submitted_at": 0.0, "begins_at": None, "depends": False, "user": "u", "whole_nodes": False}
    return JobRow(**{**values, "memory_mb": 0, "cpus_per_node": 1, **more})  # type: ignore[arg-type]


def told(
    request: Request, nodes: list[NodeRow] = NODES, *, memory: bool = False, own: tuple[str, ...] = (), by_cpu: bool = True,
    whole_cores: bool = False, evenly: bool = False,
) -> tuple[Job, Wish]:  # fmt: skip
    inventory = Inventory("go", by_cpu=by_cpu, counts_memory=memory, whole_cores=whole_cores)
    inventory.update(nodes)
    requests = Requests(inventory)
    wish = requests.wish(row(wanted_nodes=own), request, own, (), lambda name: True, evenly)
    return requests.job(row(), request, wish, 0.0), wish


def hosts(*names: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"hostlist": names}))


@pytest.mark.parametrize(
    ("options", "units", "shape"),
    [
        ("-N2 -n5", 3, Shape(nodes=2, constraint=hosts("n2", "n3", "n4", "n5"))),
        ("-n4 -c3", 12, Shape(chunk=3, constraint=hosts("n2", "n3", "n4", "n5"))),
        ("-n10 --mem-per-cpu=100", 10, Shape(chunk=1)),
        ("-N2-4 -n4", 2, Shape(nodes=2, most_nodes=4)),
        ("--gpus=3 -N2", 1, Shape(nodes=2, gpus_per_node=2, constraint=hosts("n2", "n3"))),
        ("-n3 --gpus-per-task=1 --mem=100", 3, Shape(chunk=1, gpus_per_chunk=1, constraint=hosts("n2", "n3"))),
        ("--gpus=2 --cpus-per-gpu=3 --mem-per-gpu=100", 6, Shape(nodes=1, gpus_per_node=2, constraint=hosts("n3"))),
        ("--gres=gpu:a:2", 1, Shape(chunk=1, gpus_per_node=2, constraint=hosts("n3"))),
        ("--tmp=1000 --mem=3000", 1, Shape(chunk=1, constraint=hosts("n4"))),
        ("-n6 --ntasks-per-node=2", 2, Shape(nodes=3)),
        ("--mincpus=5", 5, Shape(nodes=1, constraint=hosts("n3", "n4"))),
        ("-n12 -O -N1", 1, Shape(nodes=1)),
        ("-c8", 8, Shape(chunk=8, constraint=hosts("n3", "n4"))),
        ("--array=1-4%2 -n2", 2, Shape(chunk=1)),
        ("-n4 --ntasks-per-gpu=2", 4, Shape(nodes=1, gpus_per_node=2, constraint=hosts("n2", "n3"))),
    ],
)
def test_recorded_requests(options: str, units: int, shape: Shape) -> None:
    job, _ = told(records.read_request(recorded()[options]))
    assert (job.units, job.shape) == (units, shape)


def test_every_recorded_request_is_read() -> None:
    assert records.read_request(recorded()["--array=1-4%2 -n2"]).most_elements == 2
    assert records.read_request(recorded()["-n12 -O -N1"]).overcommits
    assert records.read_request(recorded()["-N2-4 -n4"]).nodes == 2


def test_what_a_running_job_was_given() -> None:
    given = records.read_given(recorded()["runs"])
    assert given == {"n2": Part(1, 100, {"gpu": 1}), "n3": Part(2, 100, {"gpu:a": 2})}


def test_memory_is_counted_where_slurm_counts_it() -> None:
    job, _ = told(Request(tasks=10, cpus=10, memory_mb_per_cpu=100), memory=True)
    assert job.shape == Shape(chunk=1, memory_mb_per_chunk=100)
    job, _ = told(Request(nodes=2, most_nodes=2, tasks=5, cpus=5, memory_mb_per_cpu=600), memory=True)
    assert job.shape == Shape(nodes=2, memory_mb_per_node=1800, constraint=hosts("n2", "n3", "n4", "n5"))


def test_a_job_without_an_amount_gets_all_memory_of_its_nodes() -> None:
    job, wish = told(Request(tasks=2, cpus=2), memory=True)
    assert wish.whole and job.shape == Shape(chunk=1, exclusive=True)


def test_what_cannot_be_spread_evenly_gets_nodes_that_hold_it_together() -> None:
    job, wish = told(Request(nodes=2, most_nodes=2, tasks=20, cpus=20))
    assert wish.whole and job.shape is not None and job.shape.constraint == hosts("n4", "n3")


def test_tasks_of_several_cpus_are_spread_evenly_and_slurm_is_told_so() -> None:
    """It would place three tasks of 3 CPUs on a node of 8."""
    request = Request(tasks=4, cpus=12, cpus_per_task=3, cpus_per_node=3)
    nodes = [node for node in NODES if node.name != "n4"]
    nodes.append(msgspec.structs.replace(NODES[2], name="n6"))
    job, wish = told(request, nodes)
    assert job.units == 12 and job.shape == Shape(chunk=3, constraint=hosts("n2", "n3", "n5", "n6"))
    assert wish.exact_cpus(request, [12]) == 0 and wish.exact_cpus(request, [6, 6]) == 6
    assert wish.exact_cpus(request, [6, 3, 3]) is None
    job, wish = told(request, nodes, evenly=True)
    assert job.units == 6 and job.shape == Shape(nodes=2, constraint=hosts("n3", "n6"))
    assert wish.exact_cpus(request, [6, 6]) == 6


def test_a_part_of_the_nodes_is_named() -> None:
    _, wish = told(Request(nodes=2, most_nodes=2, tasks=2, cpus=2), own=("n4",))
    assert wish.nodes == 2 and wish.allowed is not None and "n4" in wish.allowed and len(wish.allowed) == 2


def test_whole_nodes_are_chosen_by_what_they_have() -> None:
    job, _ = told(Request(tasks=10, cpus=10), by_cpu=False)
    assert job.units == 1 and job.shape == Shape(nodes=1, constraint=hosts("n4"))
    job, _ = told(Request(nodes=3, most_nodes=3, tasks=3, cpus=3), by_cpu=False)
    assert job.units == 3 and job.shape is None


def test_cores_are_given_out_whole() -> None:
    nodes = [NodeRow(f"n{number}", ("go",), True, "idle", 8, 4000, {}, (), 2) for number in range(2)]
    job, _ = told(Request(tasks=3, cpus=3), nodes, whole_cores=True)
    assert job.units == 4 and job.shape == Shape(chunk=2)


def test_what_is_left_of_a_node_is_counted_by_kind() -> None:
    inventory = Inventory("go", by_cpu=True, counts_memory=True)
    inventory.update(NODES)
    inventory.take("1", IdSet.of([6]), {"n3": Part(1, 3500, {"gpu:a": 1})})
    assert not inventory.shortage({"n3": Part(7, 500, {"gpu": 3})})
    assert "CPUs left" in inventory.shortage({"n3": Part(8, 500)})
    assert "memory" in inventory.shortage({"n3": Part(1, 600)})
    assert "GRES" in inventory.shortage({"n3": Part(1, 0, {"gpu:a": 2})})
    assert "GRES" in inventory.shortage({"n3": Part(1, 0, {"gpu": 4})})
    assert not inventory.shortage({"n3": Part(8, 4000, {"gpu": 4})}, without=("1",))
    assert "is gone" in inventory.shortage({"n9": Part(1)})
