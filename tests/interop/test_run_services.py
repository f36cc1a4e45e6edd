"""What `pilothouse run` offers while it runs: the key-value service with its secret, Redis, added engines, Slurm jobs that
come and go with the work, and a screen to watch it all."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import components
from disbatch_runs import drain, read_until
from pilothouse.journal.run_reader import RunReader
from pilothouse.model.errors import PeerError
from pilothouse.worlds.live.services.kvs_client import KvsClient

PILOTHOUSE = [sys.executable, "-c", "from pilothouse.cli.main import main; main()"]
CLIENT = """
import os, sys
from pilothouse.worlds.live.services.kvs_client import KvsClient
with KvsClient.from_environment() as kvs:
    kvs.put('from task', os.environ['DISBATCH_TASKID'].encode())
    print(kvs.get('to task').data.decode())
"""


def environment(base: dict[str, str] | None = None) -> dict[str, str]:
    env = dict(os.environ) if base is None else base
    return {**env, "PYTHONPATH": str(components.ROOT / "src")}


@pytest.mark.parametrize("shelf", ["memory", "redis"])
def test_tasks_talk_through_the_service_and_strangers_do_not(
    shelf: str, redis_server: components.RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "client.py").write_text(CLIENT)
    (tmp_path / "tasks").write_text(
        f"echo $DISBATCH_KVSSTCP_HOST $PILOTHOUSE_KVS_SECRET > address; {sys.executable} client.py > said\n"
        "#DISBATCH BARRIER passed\ntrue\n"
    )
    more = ["--redis", redis_server.url] if shelf == "redis" else []
    running = subprocess.Popen([*PILOTHOUSE, "run", "-q", "tasks", *more], cwd=tmp_path, env=environment())
    components.wait_until(lambda: (tmp_path / "address").exists() and (tmp_path / "address").read_text(), "the task")  # type: ignore[arg-type,return-value]
    address, secret = (tmp_path / "address").read_text().split()
    assert address.startswith("127.0.0.1:")
    with KvsClient(address) as stranger, pytest.raises((PeerError, ConnectionError)):
        stranger.view("DisBatch status")
    with KvsClient(address, secret=secret) as kvs:
        assert kvs.get("from task").data == b"0"
        kvs.put("to task", b"hello")
        assert running.wait(60) == 0
    assert (tmp_path / "said").read_text() == "hello\n"
    assert (tmp_path / "tasks.run1" / "kvs.json").stat().st_mode & 0o777 == 0o600


def test_engines_are_added_by_the_script(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("#DISBATCH REPEAT 20 sleep 0.1\n")
    running = subprocess.Popen([*PILOTHOUSE, "run", "-q", "--service", "tasks"], cwd=tmp_path, env=environment())
    folder = tmp_path / "tasks.run1"
    components.wait_until((folder / "add-engines.sh").exists, "the script")
    added = subprocess.Popen([folder / "add-engines.sh", "-s", "localhost:4", "-l", "more"])
    assert running.wait(60) == 0
    assert added.wait(60) == 0
    reader = RunReader(folder)
    state = reader.read()
    reader.close()
    assert (state.finished, state.total, [engine.context for engine in state.engines]) == (20, 20, ["more"])


def test_slurm_jobs_come_with_the_work_and_go_without_it(slurm_cluster: components.SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("#DISBATCH REPEAT 24 echo $SLURM_JOB_ID > job_$DISBATCH_TASKID; sleep 0.5\n")
    command = [*PILOTHOUSE, "run", "-q", "tasks", "--auto", "slurm", "--auto-jobs", "2", "--auto-slots", "3"]
    command += ["--auto-options", "-n3 -N1"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment(slurm_cluster.env), capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    jobs = {(tmp_path / f"job_{i}").read_text().strip() for i in range(24)}
    assert 1 <= len(jobs) <= 2 and "" not in jobs

    def gone() -> bool:
        listed = slurm_cluster.run("squeue", "-h", "-o", "%A").stdout.split()
        return not jobs & set(listed)

    components.wait_until(gone, "the allocations to be given back")


def test_an_idle_allocation_is_let_go_while_another_works(slurm_cluster: components.SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("while [ ! -e enough ]; do sleep 0.1; done\ntrue\n")
    command = [*PILOTHOUSE, "run", "-q", "tasks", "--auto-slurm", "2", "--auto-slots", "1", "--auto-idle", "1"]
    env = environment(slurm_cluster.env)
    running = subprocess.Popen([*command, "--sbatch-options", "-n1"], cwd=tmp_path, env=env)
    folder = tmp_path / "tasks.run1"
    components.wait_until((folder / "add-engines.sh").exists, "the run")
    reader = RunReader(folder)
    components.wait_until(lambda: [row.state for row in reader.read().engines].count("gone") == 1, "one to be let go")
    assert [row.state for row in reader.read().engines].count("running") == 1
    (tmp_path / "enough").touch()
    assert running.wait(60) == 0
    assert [row.state for row in reader.read().engines] == ["gone", "gone"]
    reader.close()


def test_nothing_is_started_that_its_allocation_would_cut_off(slurm_cluster: components.SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("#DISBATCH REPEAT 4 sleep 0.1\n")
    env = environment(slurm_cluster.env)
    command = [*PILOTHOUSE, "run", "-q", "--service", "--walltime", "90", "tasks"]
    running = subprocess.Popen(command, cwd=tmp_path, env=env)
    folder = tmp_path / "tasks.run1"
    components.wait_until((folder / "add-engines.sh").exists, "the script")
    script = str(folder / "add-engines.sh")
    assert subprocess.run(["sbatch", "--time=1", "-n2", script], env=env, cwd=tmp_path, check=False).returncode == 0
    reader = RunReader(folder)
    components.wait_until(lambda: bool(reader.read().engines), "the engine whose allocation ends in a minute")
    enough = subprocess.Popen([script, "-s", "localhost:2", "-l", "enough"], env=env)
    assert running.wait(60) == 0
    assert enough.wait(60) == 0
    state = reader.read()
    reader.close()
    assert {engine.context == "enough": engine.finished for engine in state.engines} == {False: 0, True: 4}


def test_allocations_that_fail_end_the_run_with_the_reason(
    slurm_cluster: components.SlurmCluster, tmp_path: Path
) -> None:
    (tmp_path / "tasks").write_text("true\n")
    command = [*PILOTHOUSE, "run", "-q", "tasks", "--auto-slurm", "1", "--auto-slots", "1"]
    command += ["--sbatch-options", "--partition=nowhere"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment(slurm_cluster.env), capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 1
    assert "3 allocations failed in a row" in ran.stderr and "partition" in ran.stderr


def test_watch_shows_a_run_and_stops_an_engine(
    tmp_path: Path, pilothouse: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "tasks").write_text("false\n#DISBATCH REPEAT 400 sleep 0.2\n")
    running = subprocess.Popen(
        [*PILOTHOUSE, "run", "-q", "--service", "tasks"], cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL
    )
    folder = tmp_path / "tasks.run1"
    components.wait_until((folder / "add-engines.sh").exists, "the script")
    contexts = [
        subprocess.Popen([folder / "add-engines.sh", "-s", "localhost:1", "-l", name]) for name in ("one", "two")
    ]
    reader = RunReader(folder)
    components.wait_until(lambda: len(reader.read().engines) == 2 and reader.read().failed == 1, "two engines")
    pid, screen = pty.fork()
    if pid == 0:
        os.environ.update(environment(), TERM="xterm", COLUMNS="80", LINES="24")
        os.execv(folder / "add-engines.sh", ["add-engines.sh", "--mon"])
    read_until(screen, b"q quit", b"tasks.run1", b"one", b"two", b"failed 1", b"false")
    os.write(screen, b"e")
    read_until(screen, b"(y/n)")
    os.write(screen, b"y")
    read_until(screen, b"to stop")
    components.wait_until(lambda: any(c.poll() is not None for c in contexts), "the engine to leave")
    os.write(screen, b"q")
    drain(screen)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    running.terminate()
    assert running.wait(60) == 1
    for context in contexts:
        context.wait(60)
    reader.close()
    shown = pilothouse("watch", "--once", str(folder))
    assert shown.returncode == 0 and "ended" in shown.stdout and "failed 1" in shown.stdout


def test_watch_of_nothing_is_an_error(pilothouse: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    shown = pilothouse("watch", str(tmp_path))
    assert shown.returncode == 2 and "no run was recorded here" in shown.stderr
