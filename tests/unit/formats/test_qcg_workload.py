"""QCG requests in the simulated world: sizes, dependencies, durations; the specification's bac16 on 4 nodes x 28 cores."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilothouse.campaign.grid import Cell
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.formats.qcg_dialect import LATER, SPECIFICATION, Dialect
from pilothouse.formats.qcg_workload import Durations, load_workload, parse_rtime
from pilothouse.launch.cell import make_task
from pilothouse.launch.simulation import read_all
from pilothouse.model.errors import InputError
from pilothouse.model.events import Begins
from pilothouse.model.job import Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.record import JobRecord
from pilothouse.policies.qcg import Qcg
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.world import SimulatedWorld

BAC16 = Path(__file__).parents[2] / "golden" / "qcg" / "bac16.json"
FOUR_BY_28 = tuple(Node(f"e{number}", 28 * number, 28) for number in range(4))


def simulate(
    path: Path, durations: Durations, nodes: tuple[Node, ...], dialect: Dialect = SPECIFICATION
) -> dict[str, JobRecord]:
    workload = load_workload(path, durations, nodes, dialect=dialect)
    records: dict[str, JobRecord] = {}
    begins = Begins(nodes, profiles=workload.profiles)
    world = SimulatedWorld(begins, workload.jobs, record=lambda record: records.update({record.job.local_id: record}))
    outcome = Session(world, PolicyDecider(Qcg())).run()
    assert not outcome.deadlocked
    return records


def write(path: Path, *jobs: object) -> Path:
    requests = [{"request": "submit", "jobs": list(jobs)}, {"request": "control", "command": "finishAfterAllTasksDone"}]
    path.write_bytes(msgspec.json.encode(requests))
    return path


def test_bac16_of_the_specification(tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.csv"
    names = [f"namd_bac16_{i},{300 + i}" for i in range(1, 17)] + [f"amber_bac16_{i},60" for i in range(1, 17)]
    lengths.write_text("name,seconds\n" + "\n".join(names) + "\n")
    records = simulate(BAC16, Durations.named(str(lengths)), FOUR_BY_28)
    assert len(records) == 32
    assert {record.state for record in records.values()} == {JobState.SUCCEEDED}
    for index in range(1, 17):
        namd, amber = records[f"namd_bac16_{index}"], records[f"amber_bac16_{index}"]
        assert len(namd.units) in (28, 56), "one or two whole nodes"
        assert len(amber.units) == 4
        assert namd.ended_at - namd.started_at == 300 + index
        assert amber.started_at >= namd.ended_at, "each amber job follows its own namd job"
    # Two at a time on two nodes each: the most that all of them may have.
    assert len(records["namd_bac16_1"].units) == 56 and records["namd_bac16_2"].started_at == 0


def test_iterations_become_jobs_and_whole_jobs_are_waited_for(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r.json",
        {"name": "it", "iteration": {"stop": 3}, "execution": {"exec": "x"}},
        {"name": "each", "iteration": {"stop": 3}, "execution": {"exec": "x"}, "dependencies": {"after": ["it:${it}"]}},
        {"name": "all", "execution": {"exec": "x"}, "dependencies": {"after": ["it", "each:2"]}},
    )
    jobs = {job.local_id: job for job in load_workload(path, Durations(), FOUR_BY_28, dialect=LATER).jobs}
    assert jobs["each:1"].after == ("w0!it:1",)
    assert set(jobs["all"].after) == {"w0!it:0", "w0!it:1", "w0!it:2", "w0!each:2"}
    records = simulate(path, Durations(10), FOUR_BY_28[:1], LATER)
    assert records["all"].started_at == 20


def test_the_dialect_of_a_workload_is_named(tmp_path: Path) -> None:
    loop = {"name": "it", "iteration": {"stop": 3}, "execution": {"exec": "x"}}
    path = write(tmp_path / "r.json", loop)
    machine = Platform.named("4")
    (workload,) = read_all([f"{path}?dialect=0.14"], machine)
    assert [job.local_id for job in workload.jobs] == ["it:0", "it:1", "it:2"]
    cell = Cell("w", "4", 1.0, None, None, "fcfs")
    files = [make_task(cell, f"{path}{dialect}", "4", "fcfs").digests[1] for dialect in ("", "?dialect=0.14")]
    assert files[0] == files[1] != "", "a sweep notices when the file has changed"
    for named, problem in (
        (str(path), "iteration: unknown in this dialect"),
        (f"{path}?dialect=3", "dialect: unknown; expected 2018 or 0.14, found '3'"),
    ):
        with pytest.raises(InputError, match=problem):
            read_all([named], machine)
    (tmp_path / "w.json").write_text('{"nb_res": 4, "jobs": [], "profiles": {}}')
    with pytest.raises(InputError, match="has no dialects"):
        read_all([f"{tmp_path}/w.json?dialect=0.14"], machine)


def test_too_large_jobs_are_refused_by_the_policy_and_the_rest_runs(tmp_path: Path) -> None:
    big = {"name": "big", "execution": {"exec": "x"}, "resources": {"numCores": {"exact": 113}}}
    small = {"name": "small", "execution": {"exec": "x"}, "resources": {"numCores": {"exact": 112}}}
    records = simulate(write(tmp_path / "r.json", big, small), Durations(1), FOUR_BY_28)
    assert records["big"].state is JobState.REFUSED
    assert records["small"].state is JobState.SUCCEEDED


def test_durations_of_an_earlier_run(tmp_path: Path) -> None:
    report = tmp_path / "jobs.report"
    lines = [
        {"name": "a", "state": "SUCCEED", "runtime": {"rtime": "0:00:06.082136"}},
        {"name": "it:1", "state": "SUCCEED", "runtime": {"rtime": "1 day, 0:00:01.5"}},
        {"name": "it", "state": "SUCCEED", "runtime": {}},
    ]
    report.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
    durations = Durations.named(str(report))
    assert durations.of("a") == pytest.approx(6.082136)
    assert durations.of("it:1") == 86401.5
    assert durations.of("it:2") == durations.default_s
    assert Durations.named("30").of("anything") == 30
    assert Durations.named("").of("anything") == 60


def test_durations_of_a_report_in_text(tmp_path: Path) -> None:
    report = tmp_path / "jobs.report"
    report.write_text(
        "old (SUCCEED)\n    2018-01-11 16:02:27.740711: QUEUED\n    allocation: e0003:2\n    rtime: 0:00:06.500000\n"
        "gone (OMITTED)\n    2018-01-11 16:02:27.740711: QUEUED\n"
        "new:1 (FAILED) no such program\n\twd: /x\n\trtime: 1:00:00.250000\n"
    )
    assert Durations.named(str(report)).known == {"old": 6.5, "new:1": 3600.25}


def test_a_name_stands_for_its_iterations(tmp_path: Path) -> None:
    lengths = tmp_path / "l.csv"
    lengths.write_text("it,5\nit:2,7\n")
    durations = Durations.named(str(lengths))
    assert (durations.of("it:1"), durations.of("it:2")) == (5, 7)


@pytest.mark.parametrize("text", ["a", "1:2", "x:0:1"])
def test_wrong_run_times_name_the_line(text: str) -> None:
    with pytest.raises(InputError, match=r"f:3.*not a run time"):
        parse_rtime(text, "f:3")


def test_wrong_inputs_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_workload(tmp_path / "none.json", Durations(), FOUR_BY_28)
    twice = {"name": "a", "execution": {"exec": "x"}}
    with pytest.raises(InputError, match="already exist"):
        load_workload(write(tmp_path / "r.json", twice, twice), Durations(), FOUR_BY_28, dialect=LATER)
    with pytest.raises(InputError, match="job a: resources: missing"):
        load_workload(write(tmp_path / "r.json", twice), Durations(), FOUR_BY_28)
    odd = {"name": "a", "execution": {}}
    with pytest.raises(InputError, match=r"exec or script"):
        load_workload(write(tmp_path / "r.json", odd), Durations(), FOUR_BY_28)
    with pytest.raises(InputError, match=r":1: not a duration|:2: not a duration"):
        (tmp_path / "d").write_text("a,1\nb,c\n")
        Durations.named(str(tmp_path / "d"))
    with pytest.raises(InputError, match="not a number of seconds"):
        Durations.named("-1")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:00:06.082136", 6.082136), ("0:01:00.5", 60.5), ("2:03:04.0", 7384.0), ("1 day, 2:00:00.5", 93600.5),
        ("3 days, 0:02:00", 259320.0),
    ],
)  # fmt: skip
def test_run_times_of_reports(text: str, seconds: float) -> None:
    assert parse_rtime(text, "here") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "1:2", "a:b:c", "x day, 1:00:00"])
def test_what_is_no_run_time(text: str) -> None:
    with pytest.raises(InputError, match="not a run time"):
        parse_rtime(text, "here")
