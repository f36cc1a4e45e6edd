"""The drop-in inside real Slurm jobs: salloc as disBatch's own tests use it, sbatch, several nodes, contexts added."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from pathlib import Path

import pytest

import components
from pilothouse.dropins.disbatch.status_file import StatusLine, parse_line
from pilothouse.worlds.live.services.kvs_client import KvsClient

DROP_IN = components.ROOT / "libexec" / "disbatch"


@pytest.fixture
def env(slurm_cluster: components.SlurmCluster) -> dict[str, str]:
    clean = {name: value for name, value in slurm_cluster.env.items() if not name.startswith("DISBATCH_")}
    return {**clean, "PATH": f"{DROP_IN}:{clean['PATH']}"}


def run(env: dict[str, str], folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120)


def results(folder: Path, pattern: str = "*_status.txt") -> list[StatusLine]:
    (path,) = folder.glob(pattern)
    return [parse_line(line) for line in path.read_text().splitlines()]


def test_the_way_disbatchs_own_test_goes(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "Tasks").write_text("touch A.txt\ntouch B.txt\ntouch C.txt\n")
    (tmp_path / "Tasks_failfast").write_text("sleep 1000\nexit 1\ntouch A.txt\n")
    made = [tmp_path / f"{letter}.txt" for letter in "ABCD"]
    first = run(env, tmp_path, "salloc", "-n", "2", "disBatch", "Tasks")
    assert first.returncode == 0, first.stderr
    assert all(path.exists() for path in made[:3])
    for path in made[:3]:
        path.unlink()
    with (tmp_path / "Tasks").open("a") as file:
        file.write("touch D.txt\n")
    (earlier,) = tmp_path.glob("Tasks*_status.txt")
    resumed = run(env, tmp_path, "salloc", "-n", "2", "disBatch", "Tasks", "-r", str(earlier))
    assert resumed.returncode == 0, resumed.stderr
    assert [path.exists() for path in made] == [False, False, False, True]
    assert run(env, tmp_path, "salloc", "-n", "2", "disBatch", "/dev/null").returncode == 0
    failed = run(env, tmp_path, "salloc", "-n", "2", "disBatch", "--fail-fast", "Tasks_failfast")
    assert failed.returncode != 0
    assert not made[0].exists()


def test_every_node_has_its_cylinders(env: dict[str, str], tmp_path: Path) -> None:
    names = "$SLURMD_NODENAME $SLURM_NTASKS $SLURM_LOCALID $SLURM_CPUS_PER_TASK $DISBATCH_CORES_PER_TASK"
    text = "#DISBATCH PERENGINE START echo $SLURMD_NODENAME > joined_$DISBATCH_ENGINE_RANK\nREPEATED"
    repeated = f"#DISBATCH REPEAT 12 echo {names} $DISBATCH_CYLINDER_RANK > out_$DISBATCH_TASKID; sleep 0.5\n"
    (tmp_path / "tasks").write_text(text.replace("REPEATED", repeated))
    ran = run(env, tmp_path, "salloc", "-N", "3", "--ntasks-per-node=2", "-c", "2", "disBatch", "tasks")
    assert ran.returncode == 0, ran.stderr
    said = [(tmp_path / f"out_{i}").read_text().split() for i in range(12)]
    assert len({words[0] for words in said}) == 3
    assert {words[1] for words in said} == {"2"}
    assert {words[2] for words in said} == {"0", "1"}
    assert all(words[2] == words[5] for words in said)
    assert {words[3] for words in said} == {words[4] for words in said} == {"2"}
    nodes = {words[0] for words in said}
    assert {(tmp_path / f"joined_{rank}").read_text().strip() for rank in range(3)} == nodes
    assert {line.node for line in results(tmp_path)} == nodes


def test_a_service_is_fed_by_jobs_and_job_arrays(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("#DISBATCH REPEAT 30 sleep 0.3\n")
    service = subprocess.Popen(
        ["disBatch", "-S", "-p", "serv", "tasks"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert service.stdout is not None
        service.stdout.readline()
        script = service.stdout.readline().strip()
        assert script.endswith("serv_dbUtil.sh") and os.access(script, os.X_OK)
        submitted = run(env, tmp_path, "sbatch", "-n", "2", "-a", "1-2", "-o", "array-%a.log", script)
        assert submitted.returncode == 0, submitted.stderr
        assert service.wait(90) == 0
    finally:
        service.kill()
        service.wait()
    lines = results(tmp_path)
    assert len(lines) == 30 and not any(line.return_code for line in lines)
    assert len(list(tmp_path.glob("serv_J*.context.log"))) >= 1


def test_nodes_without_work_are_given_back_while_others_work(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("while [ ! -e enough ]; do sleep 0.2; done\ntrue\ntrue\n")
    name = "given-back"
    command = ["salloc", "-J", name, "-N", "3", "--ntasks-per-node=1", "disBatch", "-p", "mine", "tasks"]
    running = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)

    def allocated() -> list[str]:
        return run(env, tmp_path, "squeue", "-h", "-n", name, "-t", "R", "-o", "%D").stdout.split()

    try:
        # One node is that of the task, another one may be that of the driver.
        components.wait_until(lambda: allocated() in (["1"], ["2"]), "nodes that are given back")
        (tmp_path / "enough").touch()
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.wait()
    assert len(results(tmp_path)) == 3 and not any(line.return_code for line in results(tmp_path))


def test_a_monitor_stops_an_engine_and_its_node_is_given_back(env: dict[str, str], tmp_path: Path) -> None:
    # As long as a task may come, idle engines stay.
    (tmp_path / "tasks").write_text("true\nsleep 17\n#DISBATCH BARRIER\ntrue\n")
    retire = 'echo "$NODES|$ACTIVE|$RETIRED|$RETCODES" > retired'
    command = ["salloc", "-N", "2", "--ntasks-per-node=1", "disBatch", "--retire-cmd", retire, "-p", "mine", "tasks"]
    running = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
    try:
        status_file = tmp_path / "mine_status.txt"
        components.wait_until(lambda: status_file.exists() and "true" in status_file.read_text(), "the first task")
        with KvsClient((tmp_path / "mine_kvsinfo.txt").read_text()) as kvs:

            def engines() -> dict[str, dict[str, object]]:
                said = kvs.view("DisBatch status").data
                if not said.startswith(b"{"):  # <Starting...>, as disBatch says before there is anything to tell
                    return {}
                found: dict[str, dict[str, object]] = json.loads(said)["engines"]
                return found

            components.wait_until(
                lambda: sorted(engine["assigned"] for engine in engines().values()) == [0, 1], "one idle engine"  # type: ignore[type-var]
            )
            (idle,) = (engine for engine in engines().values() if not engine["assigned"])
            (busy,) = (engine for engine in engines().values() if engine["assigned"])
            kvs.put(".controller", pickle.dumps(("stop engine", idle["rank"])), b"PYPK")
        assert running.wait(90) == 0
    finally:
        running.kill()
        running.wait()
    gone, left = idle["hostname"], busy["hostname"]
    assert (tmp_path / "retired").read_text() == f"{gone}|{left}|{gone}|0\n"


@pytest.mark.parametrize("named", ["by its name", "by its path"])
def test_it_is_itself_a_batch_script(env: dict[str, str], tmp_path: Path, named: str) -> None:
    (tmp_path / "tasks").write_text("#DISBATCH REPEAT 4 echo $SLURM_JOB_ID > o$DISBATCH_TASKID\n")
    if named == "by its path":
        env = {**env, "PATH": env["PATH"].replace(f"{DROP_IN}:", "")}
    program = "disBatch" if named == "by its name" else str(DROP_IN / "disBatch")
    ran = run(env, tmp_path, "sbatch", "--wait", "-n", "2", "-N", "2", "-o", "job.log", program, "tasks")
    assert ran.returncode == 0, (tmp_path / "job.log").read_text()
    job = ran.stdout.split()[-1]
    assert {(tmp_path / f"o{i}").read_text().strip() for i in range(4)} == {job}
    assert len(results(tmp_path)) == 4


def test_tasks_may_start_steps_of_their_own(env: dict[str, str], tmp_path: Path) -> None:
    # This cluster binds no CPUs, so what the outer step says about binding means nothing to an inner one.
    prefix = "#DISBATCH PREFIX unset ${!SLURM_CPU_BIND*}; srun -N1 -n1 hostname > "
    (tmp_path / "tasks").write_text(f"{prefix}\no1\no2\n")
    ran = run(env, tmp_path, "salloc", "-N", "1", "-n", "2", "disBatch", "-e", "tasks")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "o1").read_text() == (tmp_path / "o2").read_text() != ""
