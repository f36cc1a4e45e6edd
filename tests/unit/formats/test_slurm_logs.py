"""Slurm's accounting as workloads: recorded logs are read, damaged ones are an error of ours, never a traceback."""

from __future__ import annotations

import gzip
import random
from math import inf
from pathlib import Path

import msgspec
import pytest

from pilothouse.formats import accounting_logs, slurm_fields, slurm_resources
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, PilothouseError
from pilothouse.worlds.simulated.physics.platform import Platform

SAMPLES = Path(__file__).parent / "slurm"


def read(path: Path, units: int = 0) -> Workload:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    reader = accounting_logs.reader(data)
    assert reader is not None
    return reader(path, "w0", units=units)


@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        *(("sacct-X-P-D.txt", 96), ("sacct-X-P-D-unit-separator.txt", 106), ("sacct-with-steps-P.txt", 58)),
        *(("sacct.json.gz", 37), ("jobcomp-filetxt.txt", 107)),
    ],
)
def test_recorded_logs(name: str, jobs: int) -> None:
    found = read(SAMPLES / name)
    assert len(found.jobs) == jobs
    assert len({job.id for job in found.jobs}) == jobs
    assert found.jobs[0].submitted_at == 0.0
    assert all(a.submitted_at <= b.submitted_at for a, b in zip(found.jobs, found.jobs[1:], strict=False))


def test_a_job_as_it_was() -> None:
    jobs = {job.local_id: job for job in read(SAMPLES / "sacct-X-P-D-unit-separator.txt").jobs}
    assert (jobs["3006"].units, jobs["3006"].walltime, jobs["3006"].runtime) == (3, 180.0, 2.0)
    assert "3036_5" in jobs
    twice = [name for name in jobs if "#" in name]
    assert twice == ["3047#2", "3051#2"] and "3047" in jobs


def test_what_could_not_be_known_is_said() -> None:
    found = read(SAMPLES / "sacct-X-P-D.txt").oddities
    for words in ("holds the delimiter", "never started", "would have run longer", "suspended", "requeued", "eligible"):
        assert any(words in what for what in found), words


def test_both_forms_of_json_are_the_same_log(tmp_path: Path) -> None:
    """Slurm 23.02 and later: numbers are objects, states are lists."""
    old = msgspec.json.decode(gzip.decompress((SAMPLES / "sacct.json.gz").read_bytes()))
    for job in old["jobs"]:
        job["time"]["limit"] = {"set": True, "infinite": False, "number": job["time"]["limit"]}
        job["state"]["current"] = [job["state"]["current"]]
        job["required"]["CPUs"] = {"set": True, "infinite": False, "number": job["required"]["CPUs"]}
        if job["array"]["task_id"] is not None:
            job["array"]["task_id"] = {"set": True, "infinite": False, "number": job["array"]["task_id"]}
        else:
            job["array"]["task_id"] = {"set": False, "infinite": False, "number": 0}
    path = tmp_path / "new.json"
    path.write_bytes(msgspec.json.encode(old))
    new, before = read(path), read(SAMPLES / "sacct.json.gz")
    assert [(j.id, j.units, j.walltime, j.submitted_at) for j in new.jobs] == [
        (j.id, j.units, j.walltime, j.submitted_at) for j in before.jobs
    ]


@pytest.mark.parametrize("delimiter", ["|", ",", "\t", "\x1f", ";", "^@^"])
def test_any_delimiter_and_any_order_of_columns(delimiter: str, tmp_path: Path) -> None:
    rows = [
        ["JobID", "State", "End", "Start", "Submit", "ReqCPUS", "Timelimit"],
        ["1", "COMPLETED", "2026-01-01T00:01:00", "2026-01-01T00:00:30", "2026-01-01T00:00:00", "4", "1-00:00:00"],
        ["2", "FAILED", "2026-01-01T00:02:00", "2026-01-01T00:01:00", "2026-01-01T00:00:10", "1K", "UNLIMITED"],
        ["3", "CANCELLED by 7", "2026-01-01T00:02:00", "None", "2026-01-01T00:00:10", "1", "Partition_Limit"],
        ["4", "PENDING", "Unknown", "Unknown", "2026-01-01T00:00:10", "1", "5:00"],
        ["5", "RUNNING", "Unknown", "2026-01-01T00:00:20", "2026-01-01T00:00:10", "1", "5:00"],
    ]
    path = tmp_path / "log"
    path.write_text("\n".join(delimiter.join(row) + delimiter for row in rows))
    found = read(path)
    assert [(job.local_id, job.units, job.walltime, job.runtime) for job in found.jobs] == [
        ("1", 4, 86400.0, 30.0),
        ("2", 1000, inf, 60.0),
    ]
    assert sum(found.oddities.values()) >= 3
    assert len(read(path, units=100).jobs) == 1


def test_aligned_columns_are_refused_with_the_command(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("JobID           State     Submit\n------------ ---------- ------\n")
    with pytest.raises(InputError, match="sacct -a -X -P"):
        read(path)


def test_damaged_logs_are_an_error_of_ours(tmp_path: Path) -> None:
    rng = random.Random(17)
    path = tmp_path / "log"
    alphabet = ["|", "\n", "=", "\x1f", "9" * 25, "Unknown", "", "é", "[", "JobId=", "{", "null", "-"]
    for name in ("sacct-X-P-D.txt", "jobcomp-filetxt.txt", "sacct.json.gz"):
        whole = (SAMPLES / name).read_bytes()
        text = (gzip.decompress(whole) if name.endswith("gz") else whole).decode()[:6000]
        for _ in range(150):
            damaged = text
            for _ in range(rng.randint(1, 8)):
                cut = rng.randrange(len(damaged))
                damaged = damaged[:cut] + rng.choice(alphabet) + damaged[cut + rng.randint(0, 9) :]
            path.write_text(damaged)
            reader = accounting_logs.reader(damaged.encode())
            try:
                if reader is not None:
                    reader(path, "w0", units=0)
            except PilothouseError as problem:
                assert "\n" not in str(problem)


def test_nodes_are_a_platform(tmp_path: Path) -> None:
    text = (SAMPLES / "scontrol-show-node.txt").read_text()
    nodes = slurm_resources.read_nodes(text)
    assert [node.name for node in nodes] == [f"n{number}" for number in range(1, 9)] and nodes[0].cpus == 4
    assert nodes[0].partitions == ("free", "queue", "go", "core", "pdown") and nodes[0].memory_mb == 2000
    assert Platform.load(SAMPLES / "scontrol-show-node.txt").compute_count == 32
    path = tmp_path / "nodes"
    path.write_text(text.replace("CPUTot=4", "CPUTot=6", 1))
    uneven = Platform.named(str(path))
    assert uneven.compute_count == 34
    assert [(node.name, node.first, node.count) for node in uneven.nodes()][:3] == [("n1", 0, 6), ("n2", 6, 4), ("n3", 10, 4)]
    assert uneven.nodes()[0].memory_mb == 2000
    path.write_text("NodeName=n1 State=IDLE\n")
    with pytest.raises(InputError, match="has no CPUs"):
        Platform.named(str(path))


def test_partitions() -> None:
    samples = Path(__file__).parents[1] / "worlds/slurm/samples"
    found = {p.name: p for p in slurm_resources.read_partitions((samples / "scontrol-show-partition.txt").read_text())}
    assert found["queue"].state == "DOWN" and found["queue"].whole_nodes and not found["core"].whole_nodes
    assert len(found["go"].nodes) == 8 and found["go"].most_time_s == inf and found["go"].default_time_s == 3600.0


@pytest.mark.parametrize(
    ("text", "found"),
    [("gpu:2", {"gpu": 2}), ("gres:gpu:a100:2,fpga", {"gpu": 2, "fpga": 1}), ("gpu:4(S:0-1)", {"gpu": 4}), ("(null)", {})],
)
def test_gres(text: str, found: dict[str, int]) -> None:
    assert slurm_fields.gres(text) == found
