"""`pilothouse simulate` with physics: energy files, choice of solver, control latency, and input that cannot be."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.launch.simulation import load
from pilothouse.model.record import JobRecord

FIXTURES = Path(__file__).parents[1] / "golden/physics"
VARIOUS = FIXTURES / "inputs/v5/workloads/test_various_profile_types.json"
SMALL = FIXTURES / "inputs/v5/platforms/small_platform.xml"
ENERGY = FIXTURES / "inputs/v4/platforms/cluster_energy_128.xml"

Run = Callable[..., CompletedProcess[str]]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_control_latency_gives_the_dates_of_the_real_batsim(pilothouse: Run, tmp_path: Path) -> None:
    """The recorded decider runs one job after the other; on four hosts so does fcfs."""
    recorded = {row["job_id"]: row for row in rows(FIXTURES / "batsim5/custom_mapping/out/jobs.csv")}
    command = ["simulate", "-p", SMALL, "-w", VARIOUS, "--policy", "fcfs", "-q", "-e", f"{tmp_path}/"]
    assert pilothouse(*command, "--control-latency").returncode == 0
    for row in rows(tmp_path / "jobs.csv"):
        if row["job_id"] in ("delay", "simple", "simple_no_com", "simple_no_cpu", "homo"):
            assert row["starting_time"] == recorded[row["job_id"]]["starting_time"]
            assert row["finish_time"] == recorded[row["job_id"]]["finish_time"]
    assert pilothouse(*command).returncode == 0
    assert rows(tmp_path / "jobs.csv")[0]["starting_time"] == "0.000000"


def test_control_latency_of_scheduling_passes(pilothouse: Run, tmp_path: Path) -> None:
    command = ["simulate", "-p", "4", "-w", VARIOUS, "--policy", "fcfs", "-q", "-e", f"{tmp_path}/"]
    assert pilothouse(*command, "--control-latency", "20s").returncode == 0
    starts = [float(row["starting_time"]) for row in rows(tmp_path / "jobs.csv")]
    assert starts[0] == 20.0 and all(start % 20.0 == 0.0 for start in starts)
    for wrong in ("0", "often", "inf"):
        done = pilothouse(*command, "--control-latency", wrong)
        assert done.returncode == 2 and "--control-latency" in done.stderr


def test_files_of_machines_and_energy(pilothouse: Run, tmp_path: Path) -> None:
    command = ["simulate", "-p", ENERGY, "-w", VARIOUS, "--policy", "fcfs", "--energy", "-e", f"{tmp_path}/"]
    assert pilothouse(*command).returncode == 0
    jobs = {row["job_id"]: float(row["consumed_energy"]) for row in rows(tmp_path / "jobs.csv")}
    assert jobs["delay"] == pytest.approx(20.2 * 95.0)
    energy = rows(tmp_path / "consumed_energy.csv")
    assert {row["event_type"] for row in energy} == {"s", "e"}
    assert [float(row["energy"]) for row in energy] == sorted(float(row["energy"]) for row in energy)
    last = rows(tmp_path / "machine_states.csv")[-1]
    assert (last["nb_idle"], last["nb_computing"]) == ("128", "0"), "machines return to idle"
    assert rows(tmp_path / "pstate_changes.csv")[0] == {"time": "0", "machine_id": "0-127", "new_pstate": "0"}
    summary = json.loads((tmp_path / "schedule.json").read_text())
    assert summary["consumed_joules"] == pytest.approx(float(energy[-1]["energy"]), rel=1e-6)


def test_solvers_agree_where_nothing_is_shared(pilothouse: Run, tmp_path: Path) -> None:
    for solver in ("fair-bottleneck", "max-min"):
        out = f"{tmp_path}/{solver}-"
        command = ["simulate", "-p", SMALL, "-w", VARIOUS, "--policy", "fcfs", "--solver", solver, "-q", "-e", out]
        assert pilothouse(*command).returncode == 0
    first, second = (rows(tmp_path / f"{solver}-jobs.csv") for solver in ("fair-bottleneck", "max-min"))
    assert [row["execution_time"] for row in first] == [row["execution_time"] for row in second]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-p", str(SMALL), "--energy"], "has no property wattage_per_state"),
        (["-p", "nowhere.xml"], "nowhere.xml: no such file"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    pilothouse: Run, tmp_path: Path, options: list[str], message: str
) -> None:
    done = pilothouse("simulate", *options, "-w", VARIOUS, "--policy", "fcfs", "-e", f"{tmp_path}/out/")
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_control_latency_combines_with_energy_and_solvers(pilothouse: Run, tmp_path: Path) -> None:
    finished = []
    for solver in ("fair-bottleneck", "max-min"):
        command = ["simulate", "-p", ENERGY, "-w", VARIOUS, "--policy", "fcfs", "--energy", "-q", "-e", f"{tmp_path}/"]
        done = pilothouse(*command, "--control-latency", "--solver", solver)
        assert done.returncode == 0, done.stderr
        jobs = {row["job_id"]: row for row in rows(tmp_path / "jobs.csv")}
        finished.append(jobs["simple"]["finish_time"])
        assert float(jobs["delay"]["consumed_energy"]) == pytest.approx(20.2 * 95.0, rel=1e-3)
        last = rows(tmp_path / "machine_states.csv")[-1]
        assert (last["nb_idle"], last["nb_computing"]) == ("128", "0"), "machines return to idle"
        assert json.loads((tmp_path / "schedule.json").read_text())["consumed_joules"] > 0
    assert len(finished) == 2


GRAPHS = FIXTURES / "inputs/graphs"
PLATFORMS = ("4", "2x2", SMALL, ENERGY, GRAPHS / "graphene.xml", GRAPHS / "Floyd-6.xml", GRAPHS / "peer.xml")


@pytest.mark.parametrize("solver", ["fair-bottleneck", "max-min"])
@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: Path(platform).name)
def test_control_latency_combines_with_every_platform(platform: str | Path, solver: str, tmp_path: Path) -> None:
    """Also with those that have no master: its messages go to the first host, and cost nothing where a network does."""
    tasks = {
        "nb_res": 4,
        "jobs": [{"id": str(i), "subtime": i // 3, "res": 1 + i % 2, "profile": "dt"[i % 2]} for i in range(8)],
        "profiles": {
            "d": {"type": "DelayProfile", "delay": 2},
            "t": {"type": "ParallelTaskHomogeneousProfile", "cpu": 1e6, "com": 1e3},
        },
    }
    (tmp_path / "w.json").write_text(json.dumps(tasks))
    starts: list[dict[str, float]] = []
    for latency in (False, True):
        energy = platform == ENERGY
        setup = load(str(platform), [f"{tmp_path}/w.json"], energy=energy, solver=solver, control_latency=latency)
        found: list[JobRecord] = []
        Session(setup.world(found.append), naming.decider("fcfs")).run()
        starts.append({record.job.id: record.started_at for record in found if record.started_at is not None})
    assert len(starts[0]) == len(starts[1]) == 8
    if str(platform) in ("4", "2x2"):
        assert starts[0] == starts[1]
    else:
        assert all(starts[1][job] >= date - 1e-9 for job, date in starts[0].items())
        assert starts[1] != starts[0]
