"""Service mode: contexts added by the utility script, limits, ssh hosts, task sources, stop requests, monitors."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import components
from disbatch_runs import clean_env, processes_in, results, service
from pilothouse.journal.run_reader import RunReader
from pilothouse.worlds.live.requests import StopContext, ask
from pilothouse.worlds.live.services.kvs_client import KvsClient


def test_contexts_come_while_it_runs_and_one_leaves_at_its_limit(tmp_path: Path) -> None:
    with service(tmp_path, "#DISBATCH REPEAT 30 sleep 0.1\n") as (script, running):
        env = clean_env()
        limited = subprocess.Popen([script, "-s", "localhost:2", "-C", "4", "-l", "extra"], env=env)
        assert limited.wait(60) == 0
        assert len(results(tmp_path)) == 4, "the context had four tasks and left"
        other = subprocess.Popen([script, "-s", "localhost:4"], env=env)
        assert running.wait(60) == 0
        assert other.wait(60) == 0
    lines = results(tmp_path)
    assert sorted(line.task_id for line in lines) == list(range(30))
    names = {path.name for path in tmp_path.glob("serv_*.context.log")}
    assert names == {"serv_extra.context.log", "serv_SSH1.context.log"}
    assert subprocess.run([script, "-s", "localhost:1"], capture_output=True, check=False).returncode == 1


def test_ssh_hosts(sshd_hosts: components.SshHosts, tmp_path: Path) -> None:
    all_work = "touch here_$DISBATCH_ENGINE_RANK; until [ $(ls here_* | wc -l) = 3 ]; do sleep 0.05; done"
    line = f"echo $DISBATCH_ENGINE_RANK $SSH_CONNECTION > o$DISBATCH_TASKID; {all_work}"
    (tmp_path / "tasks").write_text(f"#DISBATCH REPEAT 12 {line}\n")
    ran = subprocess.run(
        ["disBatch", "-s", "h1:2,localhost:2", "-s", "h2:2", "tasks"], cwd=tmp_path, env=clean_env(sshd_hosts.env),
        capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    lines = results(tmp_path)
    assert {line.node for line in lines} == {"h1", "h2", os.uname().nodename}
    for line in lines:
        words = (tmp_path / f"o{line.task_id}").read_text().split()
        address = {"h1": "127.0.0.2", "h2": "127.0.0.3"}.get(line.node)
        assert (words[3] if len(words) > 3 else None) == address


SOURCE = """
import sys, time
from disbatch.disBatch import DisBatcher
db = DisBatcher(tasksname='mine', kvsserver=sys.argv[1])
for i in range(3):
    db.submit(f'echo {i} > out{i}; exit {i}')
done = db.syncTasks(range(3))
print([(t, done[t]['ReturnCode'], done[t]['TaskCmd'][:6]) for t in range(3)])
db.submit('#DISBATCH REPEAT 2 true')
print(sorted(db.syncTasks(range(3, 5))))
db.done()
"""


def test_a_program_of_disbatchs_users_gives_the_tasks(client_env: Callable[[str], Path], tmp_path: Path) -> None:
    """With the real one, syncTasks on the last task submitted waits for ever: it reads one task ahead."""
    (tmp_path / "source.py").write_text(SOURCE)
    python = client_env("disbatch")
    command = f"{python} source.py $KVSSTCP_HOST:$KVSSTCP_PORT > said"
    ran = subprocess.run(
        ["disBatch", "-s", "localhost:2", "-p", "mine", "--taskcommand", command], cwd=tmp_path, env=clean_env(),
        capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    said = (tmp_path / "said").read_text().splitlines()
    assert said == ["[(0, 0, 'echo 0'), (1, 1, 'echo 1'), (2, 2, 'echo 2')]", "[3, 4]"]
    assert len(results(tmp_path)) == 5


def test_tasks_and_barriers_meet_in_the_kvs(tmp_path: Path) -> None:
    put = f"{sys.executable} put.py"
    (tmp_path / "put.py").write_text(
        "from pilothouse.worlds.live.services.kvs_client import KvsClient\n"
        "import os\n"
        "with KvsClient.from_environment() as kvs:\n"
        "    kvs.put('from tasks', os.environ['DISBATCH_TASKID'].encode())\n"
        "    print(kvs.get('to tasks').data.decode())\n"
    )
    tasks = f"{put}\n#DISBATCH BARRIER passed it\nsleep 0.1\n"
    with service(tmp_path, tasks) as (script, running):
        env = {**clean_env(), "PYTHONPATH": str(components.ROOT / "src")}
        context = subprocess.Popen([script, "-s", "localhost:1"], env=env)
        with KvsClient((tmp_path / "serv_kvsinfo.txt").read_text()) as kvs:
            assert kvs.get("from tasks").data == b"0"
            kvs.put("to tasks", b"hello")
            assert kvs.get("passed it").data == b"1"
        assert running.wait(60) == 0
        assert context.wait(60) == 0
    assert results(tmp_path)[0].out_snippet == "hello\n"


def test_an_engine_is_asked_to_stop_through_the_runs_folder(tmp_path: Path) -> None:
    with service(tmp_path, "#DISBATCH REPEAT 60 sleep 0.2\n") as (script, running):
        env = clean_env()
        contexts = [subprocess.Popen([script, "-s", "localhost:2", "-l", name], env=env) for name in ("one", "two")]
        folder = tmp_path / "serv_run"
        reader = RunReader(folder)
        components.wait_until(lambda: len(reader.read().engines) == 2, "two engines")
        ask(folder, StopContext("one"))
        assert contexts[0].wait(60) == 0
        assert running.poll() is None
        state = reader.read()
        assert {engine.context: engine.state for engine in state.engines} == {"one": "gone", "two": "running"}
        assert running.wait(60) == 0
        assert contexts[1].wait(60) == 0
        after = reader.read()
        reader.close()
    assert after.finished == 60 and after.failed == 0 and after.ended_at is not None
    assert sum(engine.finished for engine in after.engines) == 60


def test_the_status_that_monitors_read(tmp_path: Path) -> None:
    with service(tmp_path, "false\nsleep 600\n") as (script, running):
        context = subprocess.Popen([script, "-s", "localhost:2"], env=clean_env())
        with KvsClient((tmp_path / "serv_kvsinfo.txt").read_text()) as kvs:
            assert kvs.view("DisBatch status").data == b"<Starting...>" or kvs.view("DisBatch status").coding == b"JSON"

            def status() -> dict[str, object]:
                value = kvs.view("DisBatch status")
                return json.loads(value.data) if value.coding == b"JSON" else {}

            def failed() -> bool:
                engines = status().get("engines")
                return isinstance(engines, dict) and any(engine["failed"] for engine in engines.values())

            components.wait_until(failed, "a failure to be shown")
            shown = status()
            assert kvs.view("engine 0").data == b"running"
            assert pickle.loads(kvs.view(".common env").data) == {"DISBATCH_JOBID": "serv", "DISBATCH_NAMETASKS": "tasks"}
        assert shown["more"] == "No more tasks." and shown["activeCylinders"] == 2
        (engine,) = shown["engines"].values()  # type: ignore[attr-defined]
        for name, expected in {"cRank": 0, "active": 2, "assigned": 1, "finished": 1, "status": "running"}.items():
            assert engine[name] == expected
        running.terminate()
        assert running.wait(60) != 0
        assert context.wait(60) == 0
    assert [line.task_id for line in results(tmp_path)] == [0], "what was cut short has no result"


def test_a_killed_engine_loses_nothing(tmp_path: Path) -> None:
    """Where disBatch books running tasks as failed after two minutes and then waits for ever."""
    (tmp_path / "tasks").write_text("#DISBATCH REPEAT 8 sleep 0.5; echo $DISBATCH_TASKID >> done.txt\n")
    running = subprocess.Popen(["disBatch", "-s", "localhost:2", "-p", "run", "tasks"], cwd=tmp_path, env=clean_env())
    components.wait_until((tmp_path / "done.txt").exists, "the first task to end")
    reader = RunReader(tmp_path / "run_run")
    (engine,) = reader.read().engines
    (log,) = tmp_path.glob("run_SSH0_*_engine_0.log")
    os.kill(int(log.read_text().split("pid ")[1].split(",")[0]), signal.SIGKILL)
    assert running.wait(90) == 0
    after = reader.read()
    reader.close()
    assert after.finished == 8 and after.failed == 0
    assert [row.state for row in after.engines if row.engine == engine.engine] == ["lost"]
    assert sorted(line.task_id for line in results(tmp_path)) == list(range(8))
    assert set((tmp_path / "done.txt").read_text().split()) == {str(i) for i in range(8)}


def test_resources_are_dealt_out_to_the_cylinders(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("#DISBATCH REPEAT 8 echo $MY_GPUS $DISBATCH_CYLINDER_RANK > o$DISBATCH_TASKID; sleep 0.1\n")
    env = {**clean_env(), "MY_GPUS": "a,b"}
    command = ["disBatch", "-s", "localhost:3", "-E", "MY_GPUS", "tasks"]
    assert subprocess.run(command, cwd=tmp_path, env=env, check=False, timeout=60).returncode == 0
    said = {(tmp_path / f"o{i}").read_text().strip() for i in range(8)}
    assert said == {"a 0", "b 1"}, "the third cylinder has no resource, so it is not there"


@pytest.mark.parametrize("victim", ["none", "all but the driver"])
def test_nothing_of_a_run_is_alive_when_it_returns(victim: str, tmp_path: Path) -> None:
    """Neither wardens nor cylinders, whatever was killed."""
    (tmp_path / "tasks").write_text("#DISBATCH REPEAT 12 sleep 0.2\n")
    running = subprocess.Popen(["disBatch", "-s", "localhost:6", "-p", "x", "tasks"], cwd=tmp_path, env=clean_env())
    status = tmp_path / "x_status.txt"
    components.wait_until(lambda: status.exists() and status.stat().st_size > 0, "a result")
    (log,) = tmp_path.glob("x_SSH0_*_engine_0.log")
    engine = int(log.read_text().split("pid ")[1].split(",")[0])
    everyone = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    group = [pid for pid in everyone if group_of(pid) == group_of(engine)]
    for pid in group if victim != "none" else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert running.wait(60) == 0
    assert processes_in(tmp_path) == []
    assert sorted(line.task_id for line in results(tmp_path)) == list(range(12))


def group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0
