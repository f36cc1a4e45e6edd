"""The manager inside a real Slurm allocation of two nodes: single-core, multi-core, multi-node, srun and MPI jobs."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import components
from components import SlurmCluster

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
WHERE = ["-c", "echo $SLURMD_NODENAME"]


def job(name: str, program: str, cores: int, nodes: int = 0, **execution: object) -> dict[str, object]:
    resources: dict[str, object] = {"numCores": {"exact": cores}}
    if nodes:
        resources["numNodes"] = {"exact": nodes}
    streams = {"stdout": f"{name}.out", "stderr": f"{name}.err"}
    return {"name": name, "execution": {"exec": program, **streams, **execution}, "resources": resources}


def manage(
    cluster: SlurmCluster, executable: Path, wd: Path, *jobs: object, options: tuple[str, ...] = ()
) -> dict[str, dict[str, object]]:
    """Runs the jobs in an allocation of 2 nodes with 4 cores; the report by name."""
    requests = [{"request": "submit", "jobs": list(jobs)}, {"request": "control", "command": "finishAfterAllTasksDone"}]
    (wd / "r.json").write_text(json.dumps(requests))
    done = cluster.run(
        "salloc", "-N2", "--ntasks-per-node=1", "--cpus-per-task=4", f"--chdir={wd}",
        "timeout", "100", str(executable), "--file-path", str(wd / "r.json"), "--wd", str(wd),
        "--report-format", "json", *options, timeout_s=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder,) = wd.glob(".qcgpjm-service-*")
    report = [json.loads(line) for line in (folder / "jobs.report").read_text().splitlines()]
    return {entry["name"]: entry for entry in report}


def environment(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)


def test_jobs_of_all_shapes_in_an_allocation(slurm_cluster: SlurmCluster, repository: Path, tmp_path: Path) -> None:
    executable = repository / "libexec" / "qcg" / "qcg-pm-service"
    report = manage(
        slurm_cluster,
        executable,
        tmp_path,
        job("one", "env", 1),
        job("three", "env", 3),
        job("span", "env", 2, 2),
        job("five", "env", 5),
        job("srun", "sh", 2, 2, args=WHERE, model="srunmpi"),
        job("threads", "sh", 3, args=["-c", "echo $SLURM_NTASKS_PER_NODE; nproc"], model="threads"),
        job("own", "sh", 2, 2, args=["-c", "srun -n 4 sh -c 'echo $SLURMD_NODENAME'"]),
    )
    problems = {path.name: path.read_text() for path in tmp_path.glob("*.err") if path.stat().st_size}
    assert {entry["state"] for entry in report.values()} == {"SUCCEED"}, problems
    first, second = sorted({name for entry in report.values() for name in _nodes(entry)})
    assert _nodes(report["one"]) == {first: 1}
    assert _nodes(report["span"]) == {first: 2, second: 2}
    assert sorted(_nodes(report["five"]).values()) == [1, 4]
    one = environment(tmp_path / "one.out")
    assert one["SLURM_NODELIST"] == one["QCG_PM_NODELIST"] == first
    assert one["SLURM_NTASKS"] == one["QCG_PM_NPROCS"] == one["SLURM_NNODES"] == "1"
    span = environment(tmp_path / "span.out")
    assert span["SLURM_JOB_NODELIST"] == span["SLURM_STEP_NODELIST"] == f"{first},{second}"
    assert span["SLURM_NPROCS"] == span["SLURM_STEP_NUM_TASKS"] == "4"
    assert span["SLURM_TASKS_PER_NODE"] == span["SLURM_JOB_CPUS_PER_NODE"] == "2(x2)"
    assert span["SLURM_NTASKS_PER_NODE"] == "2" and span["QCG_PM_TASKS_PER_NODE"] == "2,2"
    assert Path(span["SLURM_HOSTFILE"]).read_text().split() == [first, first, second, second]
    five = environment(tmp_path / "five.out")
    assert five["SLURM_TASKS_PER_NODE"] in ("4,1", "1,4")
    for name in ("srun", "own"):
        spread = Counter((tmp_path / f"{name}.out").read_text().split())
        assert spread == {first: 2, second: 2}


def test_environment_of_the_specification(slurm_cluster: SlurmCluster, repository: Path, tmp_path: Path) -> None:
    loop = {
        "name": "old_${it}",
        "iterate": [0, 1],
        "execution": {"exec": "env", "stdout": "${jname}.out"},
        "resources": {"numCores": {"exact": 5}},
    }
    options = ("--dialect", "2018", "--report-format", "json")
    # The list that the text prescribes is no value that a present srun takes.
    args = ["-c", "unset SLURM_NTASKS_PER_NODE; srun -n 4 sh -c 'echo $SLURMD_NODENAME'"]
    resources = {"numCores": {"exact": 2}, "numNodes": {"exact": 2}}
    own = {"name": "own", "execution": {"exec": "sh", "args": args, "stdout": "own.out"}, "resources": resources}
    report = manage(slurm_cluster, repository / "libexec" / "qcg" / "qcg-pm-service", tmp_path, loop, own, options=options)
    assert report["old_0"]["state"] == report["own"]["state"] == "SUCCEED"
    assert sorted(Counter((tmp_path / "own.out").read_text().split()).values()) == [2, 2], "a job starts steps of its own"
    old = environment(tmp_path / "old_0.out")
    for name in ("SLURM_NTASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "QCG_PM_TASKS_PER_NODE"):
        assert old[name] in ("4,1", "1,4"), "one number per node"
    assert old["SLURM_NNODES"] == "2" and old["SLURM_NPROCS"] == "5"
    assert Counter(Path(old["SLURM_HOSTFILE"]).read_text().split()) == _nodes(report["old_0"])
    assert (tmp_path / ".old_0.runconfig").read_text() == "0\tenv\n1-4 /bin/true\n"


def test_a_part_of_the_allocation(slurm_cluster: SlurmCluster, repository: Path, tmp_path: Path) -> None:
    whole = {"name": "whole", "execution": {"exec": "true"}, "resources": {"numNodes": 1}}
    options = ("--slurm-limit-nodes-range-begin", "1", "--slurm-limit-nodes-range-end", "2", "--system-core")
    executable = repository / "libexec" / "qcg" / "qcg-pm-service"
    report = manage(slurm_cluster, executable, tmp_path, whole, options=options)
    assert list(_nodes(report["whole"]).values()) == [3]


def test_openmpi_within_and_across_nodes(slurm_cluster: SlurmCluster, repository: Path, tmp_path: Path) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("real component missing: mpirun (openmpi-bin)")
    script = str(Path(__file__).with_name("qcg_mpi.py"))
    # Emulated nodes share one /dev/shm, which OpenMPI's shared memory transport cannot know.
    options = {"mpirun_args": ["--mca", "btl", "tcp,self"]}
    mpi = {"args": [script], "model": "openmpi", "env": AS_ROOT, "model_opts": options}
    report = manage(
        slurm_cluster,
        repository / "libexec" / "qcg" / "qcg-pm-service",
        tmp_path,
        job("within", sys.executable, 3, 1, **mpi),
        job("across", sys.executable, 2, 2, **mpi),
    )
    problems = {path.name: path.read_text() for path in tmp_path.glob("*.err")}
    assert {entry["state"] for entry in report.values()} == {"SUCCEED"}, problems
    within = [line.split() for line in (tmp_path / "within.out").read_text().splitlines()]
    assert sorted(row[0] for row in within) == ["0", "1", "2"]
    assert {(row[1], row[2]) for row in within} == {("3", "3")} and len({row[3] for row in within}) == 1
    across = [line.split() for line in (tmp_path / "across.out").read_text().splitlines()]
    assert {(row[1], row[2]) for row in across} == {("4", "6")}
    assert sorted(Counter(row[3] for row in across).values()) == [2, 2]


def test_intelmpi_is_told_how_many_tasks_and_how_to_reach_them(
    slurm_cluster: SlurmCluster, repository: Path, tmp_path: Path
) -> None:
    stand_in = tmp_path / "mpirun"
    stand_in.write_text('#!/bin/sh\nprintf "%s " "$@" > mpirun.args\nshift 3\nexec srun -n 4 --overlap "$@"\n')
    stand_in.chmod(0o755)
    options = {"mpirun": str(stand_in), "mpirun_args": ["-v"]}
    words = ["-c", "echo $I_MPI_PIN $I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS $SLURMD_NODENAME"]
    executable = repository / "libexec" / "qcg" / "qcg-pm-service"
    report = manage(
        slurm_cluster, executable, tmp_path, job("impi", "sh", 2, 2, args=words, model="intelmpi", model_opts=options)
    )
    assert report["impi"]["state"] == "SUCCEED", (tmp_path / "impi.err").read_text()
    assert (tmp_path / "mpirun.args").read_text().startswith("-n 4 -v sh -c echo")
    lines = (tmp_path / "impi.out").read_text().splitlines()
    assert len(lines) == 4 and all(line.startswith("1 -v --overcommit --oversubscribe") for line in lines)
    assert len({line.split()[-1] for line in lines}) == 2, "on both nodes"


def test_a_manager_goes_on_in_another_allocation(slurm_cluster: SlurmCluster, repository: Path, tmp_path: Path) -> None:
    """The first allocation ends in the middle: what had ended does not run again, what ran does, and nothing is lost."""
    executable = repository / "libexec" / "qcg" / "qcg-pm-service"
    script = "echo $0 >> ran; [ $0 -lt 3 ] && exit; sh -c 'echo $PPID >> begun'; until [ -e go ]; do sleep 0.1; done"
    loop = {
        "name": "loop",
        "iteration": {"stop": 10},
        "execution": {"exec": "sh", "args": ["-c", script, "${it}"]},
        "resources": {"numCores": {"exact": 1}},
    }
    requests = [{"request": "submit", "jobs": [loop]}, {"request": "control", "command": "finishAfterAllTasksDone"}]
    (tmp_path / "r.json").write_text(json.dumps(requests))
    (tmp_path / "first.sh").write_text(
        f"{executable} --id m --file-path r.json & manager=$!\n"
        "for second in $(seq 300); do grep -qs 'loop:2.*SUCCEED' .qcgpjm-service-m/track.states && "
        "[ $(grep -c . begun) = 2 ] && break; sleep 0.1; done\nkill -9 $manager\n"
    )
    allocation = ("salloc", "-N1", "--ntasks=1", "--cpus-per-task=2", f"--chdir={tmp_path}", "timeout", "60")
    slurm_cluster.run(*allocation, "sh", "first.sh", timeout_s=90)
    folder = tmp_path / ".qcgpjm-service-m"
    assert sorted((tmp_path / "ran").read_text().split()) == ["0", "1", "2", "3", "4"]
    # Slurm takes a moment to end them; one that saw `go` before would have ended by itself.
    begun = [int(pid) for pid in (tmp_path / "begun").read_text().split()]
    components.wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in begun), "the end of the first tasks")
    (tmp_path / "go").touch()
    done = slurm_cluster.run(*allocation, str(executable), "--resume", str(folder), timeout_s=90)
    assert done.returncode == 0, done.stderr
    states = [json.loads(line) for line in (folder / "jobs.report").read_text().splitlines()]
    assert Counter(entry["name"] for entry in states) == {"loop": 1, **{f"loop:{index}": 1 for index in range(10)}}
    assert {entry["state"] for entry in states} == {"SUCCEED"}
    ran = Counter((tmp_path / "ran").read_text().split())
    assert {index: count for index, count in ran.items() if count > 1} == {"3": 2, "4": 2}
    assert len(ran) == 10


def test_the_real_client_inside_an_allocation(
    slurm_cluster: SlurmCluster, client_env: Callable[[str], Path], repository: Path, tmp_path: Path
) -> None:
    done = slurm_cluster.run(
        "salloc", "-N2", "--ntasks-per-node=1", "--cpus-per-task=4", "timeout", "100", str(client_env("qcg")),
        str(Path(__file__).with_name("qcg_session.py")), "slurm", str(tmp_path),
        str(repository / "libexec" / "qcg" / "qcg-pm-service"), timeout_s=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["resources"] == {"total_nodes": 2, "total_cores": 8, "used_cores": 0, "free_cores": 8}
    assert found["states"].pop("open") == "FAILED"
    assert found["message"] == "Both core's range boundaries (min, max) must be defined"
    assert set(found["states"].values()) == {"SUCCEED"}
    assert found["cores"].pop("spread") in (5, 6)
    assert found["cores"] == {"all": 8, "node": 4}
    assert found["on"] == {"all": 2, "node": 1, "spread": 2}
    assert found["childs"] == {"halves": [4, 4], "quarter": [2, 2], "most": [2, 3, 3], "nodes": [4, 4]}
    assert all("Not enough resources" in text for text in found["too_many"])
    assert found["cancelled"] == {"sleeps": "CANCELED"}


def _nodes(entry: dict[str, object]) -> dict[str, int]:
    """`n1[0:1],n2[0]` -> cores by node."""
    runtime = entry["runtime"]
    assert isinstance(runtime, dict)
    found = {}
    for part in str(runtime["allocation"]).split(","):
        name, _, cores = part.rstrip("]").partition("[")
        found[name] = len(cores.split(":"))
    return found


@pytest.mark.parametrize("size", [1, 2])
def test_partitions_are_managed_from_their_first_node(
    slurm_cluster: SlurmCluster, repository: Path, tmp_path: Path, size: int
) -> None:
    """If the governor may be reached from there; a job goes over both nodes where the partition has both."""
    both = [job("span", "sh", 2, 2, args=WHERE, model="srunmpi")] if size == 2 else []
    loop = {"name": "loop", "iteration": {"stop": 4}, "execution": {"exec": "sh", "args": WHERE, "stdout": "${it}.out"}}
    requests = [
        {"request": "submit", "jobs": [loop, *both]},
        {"request": "control", "command": "finishAfterAllTasksDone"},
    ]
    (tmp_path / "r.json").write_text(json.dumps(requests))
    done = slurm_cluster.run(
        "salloc", "-N2", "--ntasks-per-node=1", "--cpus-per-task=4", f"--chdir={tmp_path}",
        "timeout", "100", str(repository / "libexec" / "qcg" / "qcg-pm-service"), str(tmp_path / "r.json"),
        "--wd", str(tmp_path), "--slurm-partition-nodes", str(size), "--net-address", "0.0.0.0", timeout_s=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folders = sorted(tmp_path.glob(".qcgpjm-service-partition-*"))
    reports = [json.loads(line) for folder in folders for line in (folder / "jobs.report").read_text().splitlines()]
    assert {entry["state"] for entry in reports} == {"SUCCEED"}, reports
    managers = [environment(folder / "env.log")["SLURMD_NODENAME"] for folder in folders]
    used = [(tmp_path / f"{index}.out").read_text().strip() for index in range(4)]
    if size == 1:
        assert len(set(managers)) == 2 and used == [managers[0]] * 2 + [managers[1]] * 2
    else:
        assert len(managers) == 1 and len(set((tmp_path / "span.out").read_text().split())) == 2
