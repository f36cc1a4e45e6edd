"""A log of one's own cluster goes from file to report in one command; `convert` writes it as SWF and reads it back."""

from __future__ import annotations

import gzip
from math import inf
from pathlib import Path

import pytest
from click.testing import CliRunner

import components
from pilothouse.cli.main import cli
from pilothouse.views.read_run import add_users, read_run
from pilothouse.worlds.simulated.inputs import read_workloads

SAMPLES = components.ROOT / "tests" / "unit" / "formats" / "slurm"
NODES = str(SAMPLES / "scontrol-show-node.txt")
KTH = str(components.ROOT / "examples" / "kth-sp2-5000.swf.gz")


def run(*argv: str) -> str:
    found = CliRunner().invoke(cli, argv, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


@pytest.mark.parametrize("name", ["sacct-X-P-D.txt", "sacct-X-P-D-unit-separator.txt", "sacct.json.gz", "jobcomp-filetxt.txt"])
def test_a_recorded_log_becomes_a_report(name: str, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    told = run("compare", "-p", NODES, "-w", str(SAMPLES / name), "--policy", "fcfs,easy", "--report", str(report))
    assert "note: " in told and "left out" in told and f"report: {report}" in told
    assert report.read_bytes().lstrip().lower().startswith(b"<!doctype html")
    one = tmp_path / "one.html"
    run("simulate", "-p", NODES, "-w", str(SAMPLES / name), "-e", f"{tmp_path}/out/", "--report", str(one))
    assert one.stat().st_size > 10_000
    again = read_run(f"{tmp_path}/out/")
    add_users(again)
    assert any(again.users), "a report of the files finds them in the log"


def test_a_log_is_converted_and_read_back(tmp_path: Path) -> None:
    log = str(SAMPLES / "sacct-X-P-D.txt")
    target = tmp_path / "log.swf.gz"
    told = run("convert", "-w", log, "-o", str(target))
    assert "left out: never started" in told and f"{target}: 96 jobs" in told
    (before,) = read_workloads([log], 0)
    (after,) = read_workloads([str(target)], 0)
    assert [(job.units, job.submitted_at, job.runtime, job.walltime) for job in after.jobs] == [
        (job.units, job.submitted_at, job.runtime, job.walltime if job.walltime < inf else job.runtime or 1.0)
        for job in before.jobs
    ]
    assert "written without a walltime" in told
    assert "; Note: 1 job an earlier run of a requeued job" in gzip.decompress(target.read_bytes()).decode()
    again = target.read_bytes()
    run("convert", "-w", log, "-o", str(target))
    assert target.read_bytes() == again


def test_weeks_and_loads_and_generators_are_converted(tmp_path: Path) -> None:
    run("convert", "-w", KTH, "--weeks", "0,3", "--load", "2", "-o", str(tmp_path / "kth-{week}.swf"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kth-0.swf", "kth-3.swf"]
    (week,) = read_workloads([str(tmp_path / "kth-3.swf")], 0)
    assert week.units == 100 and max(job.submitted_at for job in week.jobs) < 7 * 86400 / 2
    text = run("convert", "-p", "64", "-w", "lublin:jobs=20,seed=1", "-o", "-")
    assert "; MaxProcs: 64" in text and "walltime invented" in text
    assert len([line for line in text.splitlines() if line[:1].isdigit()]) == 20


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["-w", KTH, "-o", "kth.json"], "not a kind of log"), (["-w", "lublin", "-o", "x.swf"], "size of the machine"),
        (["-w", KTH, "--weeks", "all", "-o", "x.swf"], "put {week} into the name"),
        (["-w", KTH, "--weeks", "one", "-o", "x.swf"], "not weeks"), (["-w", KTH, "--load", "0", "-o", "x.swf"], "not a factor"),
        (["-w", KTH, "-w", KTH, "-o", "x.swf"], "one workload at a time"),
    ],
)  # fmt: skip
def test_mistakes_of_convert(argv: list[str], says: str) -> None:
    found = CliRunner().invoke(cli, ["convert", *argv])
    assert says in str(found.exception)
