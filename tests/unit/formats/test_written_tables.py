"""What is written and read again: tables of jobs, logs of our own, packs; and what is taken where nothing is said."""

from __future__ import annotations

import io
import json
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilothouse.formats import (
    dax,
    jobs_csv,
    jobspec,
    schedule_json,
    swf,
)
from pilothouse.formats import profile_json as pj
from pilothouse.formats.accounting import AccountedJob, Fate, workload
from pilothouse.formats.jobs_jsonl import JobsJsonl
from pilothouse.formats.output_pack import STDOUT, Chunk, encode, pack_path, read_backwards, scan
from pilothouse.formats.platform_xml import ClusterSpec, HostSpec, RouteSpec, parse_platform
from pilothouse.formats.qcg_description import ONE_CORE, Size
from pilothouse.formats.resource_set import ResourceSet
from pilothouse.formats.swf import write_workload
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, ParallelTask, Profile, SendMessage
from pilothouse.model.record import JobRecord


def record(start: float | None = 1.0, state: JobState = JobState.SUCCEEDED, **more: Any) -> JobRecord:
    job = Job("w!1", 2, inf, 0.5, Profile("w!p", Delay(1.0)), user="u")
    return JobRecord(job, state, start, 3.0, IdSet.parse("0-1") if start is not None else IdSet(), **more)


def test_jobs_as_json_lines() -> None:
    stream = io.StringIO()
    written = JobsJsonl(stream)
    written.write_all([record(energy_j=0.0, metadata="m", return_code=3), record(None, JobState.REFUSED)])
    one, other = (json.loads(line) for line in stream.getvalue().splitlines())
    assert one == {
        "id": "w!1", "profile": "w!p", "units": 2, "walltime": None, "user": "u", "submitted_at": 0.5, "started_at": 1.0,
        "ended_at": 3.0,
        "state": "succeeded", "return_code": 3, "allocated": "0-1", "energy_j": 0.0, "metadata": "m",
    }  # fmt: skip
    assert (other["started_at"], other["ended_at"], other["allocated"], other["energy_j"]) == (None, None, "", None)
    stream = io.StringIO()
    JobsJsonl(stream).write_all([JobRecord(Job("a", 1, 5.0, 0.0), JobState.FAILED, 0.0, 1.0, IdSet.parse("0"))])
    assert '"profile":null' in stream.getvalue() and '"walltime":5.0' in stream.getvalue()
    written.close()


def test_the_summary_of_a_schedule() -> None:
    assert schedule_json.encode({"b": 2, "a": 1.5, "c": 'x"'}) == '{\n  "a": 1.500000,\n  "b": 2,\n  "c": "x\\""\n}\n'


HEAD = jobs_csv.COLUMNS + "\n"
CELLS = [
    "a",
    "w",
    "w!p",
    "1",
    "2",
    "5",
    "1",
    "COMPLETED_SUCCESSFULLY",
    "2",
    "3",
    "5",
    "1",
    "4",
    "1",
    "0-1 7",
    "0.5",
    "m",
]


def rows(path: Path, text: str) -> list[jobs_csv.Row]:
    path.write_text(HEAD + text)
    return list(jobs_csv.read(path))


@pytest.mark.parametrize(
    ("column", "text", "field", "value"),
    [
        (14, "3-5 7", "width", 4), (14, "4-4", "width", 1), (14, "", "width", 0), (14, "7", "width", 1), (15, "0",
        "energy_j", 0.0),
        (15, "0.5", "energy_j", 0.5), (15, "-1", "energy_j", None), (15, "", "energy_j", None), (5, "0", "walltime", 0.0),
        (5, "0.5", "walltime", 0.5), (5, "-1", "walltime", inf), (4, "0", "units", 0), (8, "5", "started_at", 5.0), (1, "",
        "id", "a"),
        (3, "-5", "submitted_at", -5.0), (16, "", "metadata", ""), (8, "", "ended_at", None), (8, "", "started_at", None),
    ],
)  # fmt: skip
def test_cells_of_a_table_of_jobs(tmp_path: Path, column: int, text: str, field: str, value: object) -> None:
    cells = [*CELLS]
    cells[column] = text
    (found,) = rows(tmp_path / "f", ",".join(cells) + "\n")
    assert getattr(found, field) == value
    assert rows(tmp_path / "f", ",".join(CELLS) + "\n\n" + ",".join(cells))[1] == found, (
        "an empty line, and no end of the last"
    )


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (14, "5-4"),
        (14, "x"),
        (14, "-5"),
        (14, f"{2**62}"),
        (14, f"0-{2**62}"),
        (4, "-1"),
        (8, "6"),
        (3, "1e11"),
        (3, "-1e11"),
        (10, "1e11"),
    ],
)
def test_cells_that_cannot_be(tmp_path: Path, column: int, text: str) -> None:
    cells = [*CELLS]
    cells[column] = text
    with pytest.raises(InputError, match=r"f:2: not a row of a jobs.csv"):
        rows(tmp_path / "f", ",".join(cells) + "\n")


def test_a_table_of_jobs_that_is_being_written(tmp_path: Path) -> None:
    line = ",".join(CELLS)
    for cut in range(len(line)):
        assert len(rows(tmp_path / "f", f"{line}\n{line[:cut]}")) in (1, 2)
    assert len(rows(tmp_path / "f", f"{line}\n{line[:-1]}")) == 2
    for text in (f"{line}\n{line[:20]}\n", f"{line[:20]}\n{line}"):
        with pytest.raises(InputError, match="not a row"):
            rows(tmp_path / "f", text)


def test_rows_are_written_once_and_streams_are_closed(tmp_path: Path) -> None:
    stream = (tmp_path / "f").open("w")
    table = jobs_csv.JobsCsv(stream)
    table.write(record())
    table.flush()
    table.write(record())
    assert (tmp_path / "f").read_text().count("\n") == 2
    table.close()
    assert stream.closed and (tmp_path / "f").read_text().count("\n") == 3
    lines = io.StringIO()
    JobsJsonl(lines).close()
    assert lines.closed


def test_columns_that_earlier_versions_lack(tmp_path: Path) -> None:
    path = tmp_path / "f"
    names = jobs_csv.COLUMNS.split(",")
    path.write_text(f"{','.join(names[:15])}\n{','.join(CELLS[:15])}\n")
    (found,) = jobs_csv.read(path)
    assert (found.id, found.energy_j, found.metadata, found.allocated) == ("w!a", None, "", "0-1 7")
    path.write_text(f"{','.join(names[:14])}\n{','.join(CELLS[:14])}\n")
    with pytest.raises(InputError, match=r"f:1: not a jobs.csv; expected a column allocated_resources"):
        list(jobs_csv.read(path))


def test_workloads_as_logs() -> None:
    jobs = [
        Job("w!1", 2, 9.0, 0.0, Profile("w!p", Delay(2.5)), user="ann"), Job("w!2", 1, inf, 1.0, user="7", after=("w!1",)),
        Job("w!3", 1, 5.0, 1.0, Profile("w!q", ParallelTask((1.0,), ())), user="bob"), Job("w!4", 3, 5.0, 2.0, shape=Shape(),
        runtime=0.0),
        Job("w!5", 3, 5.0, 2.0, user="ann", runtime=4.0),
    ]  # fmt: skip
    text, odd = write_workload(Workload("w", "/x/w.json", 4, jobs, oddities={"left out: x": 1}), 8)
    lines = [line.split() for line in text.splitlines() if not line.startswith(";")]
    assert [[line[i] for i in (0, 1, 3, 7, 8, 11)] for line in lines] == [
        ["1", "0", "2.5", "2", "9", "1"], ["2", "1", "-1", "1", "-1", "7"], ["3", "1", "-1", "1", "5", "2"],
        ["4", "2", "0", "3", "5", "-1"], ["5", "2", "4", "3", "5", "1"],
    ]  # fmt: skip
    assert list(odd.values()) == [2, 1, 1, 1]
    head = [line for line in text.splitlines() if line.startswith(";")]
    assert {
        "; MaxProcs: 8",
        "; MaxJobs: 5",
        "; Note: 1 job left out: x",
        "; Note: written by pilothouse from w.json",
    } <= set(head)
    assert any(line.startswith("; Note: 2 jobs written without a run time") for line in head)
    assert "MaxProcs" not in write_workload(Workload("w", "", 0, jobs[:1]), 0)[0]


def test_logs_of_our_own_are_in_order_of_submission() -> None:
    jobs = [
        Job("w!x", 1, 5.0, 1.0),
        Job("w!1", 2, 5.0, 1.0),
        Job("w!y", 3, 5.0, 0.5),
        Job("w!10", 4, 5.0, 1.0),
        Job("w!9", 5, 5.0, 1.0),
    ]
    records = [JobRecord(job, JobState.TIMED_OUT, 2.0, 3.0, IdSet.parse("0")) for job in jobs]
    lines = [line.split() for line in swf.write(records, 4).splitlines() if not line.startswith(";")]
    assert [(line[0], line[7], line[10]) for line in lines] == [
        ("1", "3", "0"),
        ("2", "1", "0"),
        ("3", "2", "0"),
        ("4", "5", "0"),
        ("5", "4", "0"),
    ]


@pytest.mark.parametrize(
    ("line", "units", "walltime", "odd"),
    [
        ("1 0 -1 0.5 4 -1 -1 0 1 -1 1 7", 4, 1.0, 0), ("1 0 -1 0.5 9 -1 -1 1 0.5 -1 1 7", 1, 0.5, 0),
        ("1 0 -1 1 9 -1 -1 2 0.5 -1 1 7", 2, 0.5, 1),
        ("1 0.5 -1 0.5 -1 -1 -1 2 -1 -1 1 7", 2, 0.5, 1),
    ],
)  # fmt: skip
def test_small_numbers_of_logs(tmp_path: Path, line: str, units: int, walltime: float, odd: int) -> None:
    path = tmp_path / "log.swf"
    path.write_text(f"{line} -1 -1 -1 -1 -1 -1\n")
    found = swf.read(path)
    assert ([(job.units, job.walltime) for job in found.jobs], sum(found.oddities.values())) == (
        [(units, walltime)],
        odd,
    )


@pytest.mark.parametrize("data", [b"", b"x", b"x" * 511, b"x" * 512, b"x" * 5000, bytes(range(256)) * 2])
def test_chunks_of_a_pack(tmp_path: Path, data: bytes) -> None:
    path = pack_path(tmp_path, "k")
    assert path == tmp_path / "engine-k.output"
    first, second = Chunk(STDOUT, 1, 7, 0, data), Chunk(STDOUT, 2, 7, len(data), b"end")
    written = encode(first, 0)
    assert len(written) < 600 or len(data) == 512 != len(set(data)) > 200
    path.write_bytes(written + encode(second, 1))
    with path.open("rb") as pack:
        assert list(read_backwards(pack, len(written) + 1, "p")) == [second, first]
        assert [chunk for _, chunk in scan(pack, 0, "p")] == [first, second]
        assert [at for at, _ in scan(pack, 0, "p")] == [len(written), path.stat().st_size]
    for before in (1, 2):
        path.write_bytes(encode(first, before))
        with path.open("rb") as pack, pytest.raises(InputError, match=rf"damaged at byte 0; .* at byte {before - 1}"):
            list(read_backwards(pack, 1, "p"))


# ---- what is not said


def test_what_a_specification_of_flux_does_not_say() -> None:
    spec = jobspec.Jobspec(slots=1, cores_per_slot=1)
    assert (spec.gpus_per_slot, spec.nodes, spec.nodes_per_slot, spec.exclusive, spec.duration_s) == (0, 0, 0, False, 0.0)
    assert (spec.total_slots, spec.total_cores, spec.walltime_s) == (1, 1, inf)
    resources = ResourceSet()
    assert (resources.slots, resources.start_s, resources.expiration_s, resources.core_count()) == (0, 0.0, 0.0, 0)


def test_what_a_platform_does_not_say() -> None:
    zone = parse_platform(b'<platform><zone id="z"/></platform>').root
    assert (zone.routing, zone.hosts, zone.backbone) == ("None", [], None)
    host, route = HostSpec("w", "h", (1.0,)), RouteSpec("w", "a", "b", [])
    assert (host.pstate, host.cores, host.bandwidth_in, host.bandwidth_out) == (0, 1, 0.0, 0.0)
    assert (route.symmetrical, route.bypass) == (True, False)
    cluster = ClusterSpec("w", "c", "", "", [], (1.0,), 1.0, 1.0)
    assert (cluster.cores, cluster.cabinet, cluster.limiter_bandwidth) == (1, False, 0.0)
    assert (cluster.loopback_bandwidth, cluster.loopback_latency) == (0.0, 0.0)


def test_what_jobs_do_not_say(tmp_path: Path) -> None:
    assert ONE_CORE.cores == Size(exact=1)
    assert (ONE_CORE.gpus, ONE_CORE.memory, ONE_CORE.scheduled) == (0, 0, False)
    assert (Size().parts, Size().inside, Size().minimum) == (0, False, 0)
    job = AccountedJob("1", Fate.FINISHED, 1, 1.0, started_at=1.0, ended_at=2.0, limit_s=5.0)
    assert (job.suspended_s, job.part, job.run_s) == (0.0, False, None)
    assert workload([job], "log", "w", units=0).oddities == {}
    path = tmp_path / "w.xml"
    path.write_text('<adag><job id="a" runtime="1"/></adag>')
    assert [task.parents for task in (*dax.read(path).tasks, dax.Task("b", 1.0))] == [0, 0]
    sent = pj.parse(msgspec.Raw(b'{"type": "send", "msg": "x"}'), "p", pj.Place("f", "w", tmp_path))
    assert isinstance(sent.spec, SendMessage)
    assert (sent.return_code, sent.spec.seconds, pj.Written("x").polltime) == (0, 1e-7, 0.005)
