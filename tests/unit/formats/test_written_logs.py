"""Workloads written as logs, jobs as JSON lines, and small fields of Slurm's and Flux's answers."""

from __future__ import annotations

import gzip
import io
import json
from math import inf
from pathlib import Path

import pytest

from pilothouse.formats import jobspec, resource_set, slurm_fields, slurm_resources, swf
from pilothouse.formats.jobs_jsonl import JobsJsonl
from pilothouse.formats.text_input import read_bytes, read_text
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, HomogeneousTask, Profile
from pilothouse.model.record import JobRecord

DELAY = Profile("w!d", Delay(30.0))
WORK = Profile("w!c", HomogeneousTask(1.0, 1.0))


def test_a_workload_is_read_as_it_was_written(tmp_path: Path) -> None:
    jobs = [
        Job("w!1", 2, 100.0, 0.0, DELAY, user="ann"),
        Job("w!2", 1, inf, 5.0, WORK, user="17"),
        Job("w!3", 3, 50.0, 5.5, DELAY, user="bob", runtime=20.0, after=("w!1",)),
        Job("w!4", 4, inf, 9.0, None, shape=Shape(nodes=2)),
        Job("w!5", 1, 60.0, 9.0, DELAY, user="ann"),
    ]
    text, odd = swf.write_workload(Workload("w", "/some/where/log.json", 0, jobs, {}, {"left out: x": 1}), 8)
    header = [line for line in text.splitlines() if line.startswith(";")]
    rows = [line.split() for line in text.splitlines() if not line.startswith(";")]
    assert [(row[0], row[1], row[3], row[7], row[8], row[11]) for row in rows] == [
        ("1", "0", "30", "2", "100", "1"), ("2", "5", "-1", "1", "-1", "17"), ("3", "5.5", "20", "3", "50", "2"),
        ("4", "9", "-1", "8", "-1", "-1"), ("5", "9", "30", "1", "60", "1"),
    ]  # fmt: skip
    assert all(len(row) == 18 for row in rows)
    assert header[:4] == ["; Version: 2.2", "; MaxJobs: 5", "; MaxRecords: 5", "; MaxProcs: 8"]
    assert header[4] == "; Note: written by pilothouse from log.json"
    assert sorted(odd.values()) == [1, 1, 2, 2]
    assert "; Note: 1 job left out: x" in header and sum("2 jobs written without" in line for line in header) == 2
    assert "MaxProcs" not in swf.write_workload(Workload("w", "", 0, jobs, {}, {}), 0)[0]
    (tmp_path / "log.swf").write_text(text)
    again = swf.read(tmp_path / "log.swf")
    assert again.jobs[0].units == 2


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}), ("(null)", {}), ("matlab", {"matlab": 1}), ("matlab:2,ansys@server:3", {"matlab": 2, "ansys@server": 3}),
        ("a=2;a:1, ,b", {"a": 3, "b": 1}),
    ],
)  # fmt: skip
def test_licences(text: str, found: dict[str, int]) -> None:
    assert slurm_fields.amounts(text) == found


def test_reservations() -> None:
    text = (
        "ReservationName=one StartTime=2026-01-02T10:00:00 EndTime=2026-01-02T11:00:00 Nodes=n[1-2]\n"
        "ReservationName=two StartTime=2026-01-02T10:00:00 EndTime=Unknown Nodes=(null)\n"
        "ReservationName=none StartTime=Unknown EndTime=2026-01-02T11:00:00 Nodes=n1\n"
    )
    one, two = slurm_resources.read_reservations(text)
    assert one.ends_at - one.starts_at == 3600.0 and one.nodes == {"n1", "n2"}
    assert two.ends_at == inf and not two.nodes


def test_jobs_as_lines() -> None:
    stream = io.StringIO()
    lines = JobsJsonl(stream)
    ran = JobRecord(Job("w!1", 2, 100.0, 1.0, DELAY, user="ann"), JobState.SUCCEEDED, 2.0, 32.0, IdSet.of([0, 1]), 0, 7.5, "m")
    not_ran = JobRecord(Job("w!2", 1, inf, 1.0), JobState.REFUSED, None, 5.0, IdSet())
    lines.write_all([ran, not_ran])
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first == {
        "id": "w!1", "profile": "w!d", "units": 2, "walltime": 100.0, "user": "ann", "submitted_at": 1.0, "started_at": 2.0,
        "ended_at": 32.0, "state": "succeeded", "return_code": 0, "allocated": "0-1", "energy_j": 7.5, "metadata": "m",
    }  # fmt: skip
    assert (second["profile"], second["walltime"], second["started_at"], second["ended_at"]) == (None, None, None, None)
    lines.close()
    assert stream.closed


def test_files_that_cannot_be_read_are_errors_in_one_line(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(b"hello"))
    assert read_bytes(packed) == b"hello"
    packed.write_bytes(gzip.compress(b"hello" * 1000)[:-9])
    (tmp_path / "latin").write_bytes(b"a\nb\xff\n")
    for path, problem in (
        (tmp_path / "none", "no such file"), (tmp_path, "is a directory"), (packed, "a damaged gzip file"),
        (Path("/dev/zero"), "is a device"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=problem):
            read_bytes(path)
    assert read_bytes("/dev/null") == b""
    with pytest.raises(InputError, match=r"latin:2: not UTF-8.*0xff"):
        read_text(tmp_path / "latin")


def spec(*resources: object) -> dict[str, object]:
    tasks = [{"command": ["x"], "slot": "s", "count": {"per_slot": 1}}]
    return {"version": 1, "resources": list(resources), "tasks": tasks, "attributes": {"system": {"duration": 0}}}


def slot(count: int, *content: object, **more: object) -> dict[str, object]:
    return {"type": "slot", "count": count, "label": "s", "with": list(content), **more}


def node(count: int, *content: object, **more: object) -> dict[str, object]:
    return {"type": "node", "count": count, "with": list(content), **more}


CORES = {"type": "core", "count": 3}


@pytest.mark.parametrize(
    ("resources", "slots", "cores", "nodes", "exclusive"),
    [
        (slot(4, CORES), 4, 12, 0, False),
        (node(2, slot(4, CORES)), 8, 24, 2, False),
        (node(2, slot(4, CORES), exclusive=True), 8, 24, 2, True),
        (node(2, slot(4, CORES, exclusive=True)), 8, 24, 2, True),
        (slot(2, node(3, CORES)), 2, 18, 6, False),
        (slot(2, node(3, CORES, exclusive=True)), 2, 18, 6, True),
    ],
)
def test_slots_and_nodes_of_a_jobspec(
    resources: dict[str, object], slots: int, cores: int, nodes: int, exclusive: bool
) -> None:
    found = jobspec.from_object(spec(resources))
    assert (found.total_slots, found.total_cores, found.nodes, found.exclusive) == (slots, cores, nodes, exclusive)
    assert found.walltime_s == inf


@pytest.mark.parametrize(
    ("resources", "where"),
    [
        (CORES, r"resources\[0\].type"), (node(1, CORES), r"with\[0\].type"), (slot(1, node(1, slot(1, CORES))), "with"),
        (slot(0, CORES), "count"), (slot(1, CORES, label=""), "label"),
    ],
)  # fmt: skip
def test_wrong_resources_of_a_jobspec_are_named(resources: dict[str, object], where: str) -> None:
    with pytest.raises(InputError, match=where):
        jobspec.from_object(spec(resources))


def test_the_part_of_a_resource_set_on_some_ranks() -> None:
    entries = [{"rank": "0-1", "children": {"core": "0-3"}}, {"rank": "2", "children": {"core": "0-1"}}]
    document = {
        "version": 1, "execution": {"R_lite": entries, "nodelist": ["h[0-2]"], "starttime": 0, "expiration": 0},
    }  # fmt: skip
    whole = resource_set.from_object(document)
    part = whole.only(IdSet.of([1, 2]))
    assert part.rank_ids() == IdSet.of([1, 2]) and part.core_count() == 6 and tuple(part.hosts) == ("h1", "h2")
    assert whole.core_count() == 10


def test_lines_without_a_field_are_skipped(tmp_path: Path) -> None:
    row = " 5 -1 10 1 -1 -1 1 20 -1 1 7 -1 -1 -1 -1 -1 -1\n"
    (tmp_path / "log.swf").write_text(f"1{row}\n  \n; a comment\n2{row}")
    assert [job.id for job in swf.read(tmp_path / "log.swf").jobs] == ["w0!1", "w0!2"]


@pytest.mark.parametrize("ranks", [["0"], 0, None])
def test_ranks_of_a_resource_set_are_texts(ranks: object) -> None:
    entries = [{"rank": ranks, "children": {"core": "0"}}]
    document = {"version": 1, "execution": {"R_lite": entries, "starttime": 0, "expiration": 0}}
    with pytest.raises(InputError, match="rank"):
        resource_set.from_object(document)


@pytest.mark.parametrize(
    ("active", "available", "found"), [("a,b", "a,b,c", {"a", "b"}), ("(null)", "c", set()), ("", "c", {"c"}), ("a", "", {"a"})]
)
def test_features_of_a_node_are_those_that_are_active(active: str, available: str, found: set[str]) -> None:
    text = f"NodeName=n1 CPUTot=4 RealMemory=10 AvailableFeatures={available} ActiveFeatures={active} Partitions=p,q State=IDLE\n"
    (node_,) = slurm_resources.read_nodes(text, "here")
    assert set(node_.features) == found and set(node_.partitions) == {"p", "q"}
