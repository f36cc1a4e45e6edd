"""disBatch's messages through the key-value service: its contexts and engines work for our driver, and ours for its driver."""

from __future__ import annotations

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
from pilothouse.dropins.disbatch.status_file import parse_line
from pilothouse.protocols.disbatch import messages as d
from pilothouse.protocols.disbatch import pickles
from pilothouse.worlds.live.services.kvs import PICKLE
from pilothouse.worlds.live.services.kvs_client import KvsClient
from pilothouse.worlds.live.services.kvs_server import KvsServer

OURS = [sys.executable, "-m", "pilothouse", "disbatch"]
TASKS = """#DISBATCH PERENGINE START echo begin
#DISBATCH PERENGINE STOP echo end
echo one
exit 3
#DISBATCH BARRIER a key
printf %050d 7
#DISBATCH REPEAT 5 echo $DISBATCH_REPEAT_INDEX >&2
"""
TASKS_2021 = """#DISBATCH PERENGINE echo begin
echo one
#DISBATCH BARRIER a key
#DISBATCH PERNODE echo second
exit 4
"""


def rows(folder: Path, edition: int = 3) -> list[tuple[object, ...]]:
    (path,) = folder.glob("*_status.txt")
    lines = [parse_line(line, edition) for line in path.read_text().splitlines()]
    return sorted(
        (line.task_id, line.line_number, line.repeat_index, line.flags, line.return_code, line.out_snippet, line.err_snippet)
        for line in lines
    )


def our_rows(folder: Path, tasks: str, *options: str) -> list[tuple[object, ...]]:
    folder.mkdir()
    (folder / "tasks").write_text(tasks)
    command = [*OURS, *options, "-s", "localhost:2", "-p", "own", "tasks"]
    subprocess.run(command, cwd=folder, env=clean_env(), check=True, capture_output=True, timeout=60)
    return rows(folder, 2 if "2021" in options else 3)


@pytest.mark.peer("disbatch", "its contexts and engines, and our driver")
def test_a_real_context_and_engine_join_our_driver(client_env: Callable[[str], Path], tmp_path: Path) -> None:
    python = client_env("disbatch")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    with service(theirs, TASKS) as (_, running):
        script = theirs / "util.sh"
        address = (theirs / "serv_kvsinfo.txt").read_text()
        script.write_text(
            f'#!/bin/bash\nexport DISBATCH_KVSSTCP_HOST={address}\n[[ $1 == --engine ]] || set -- --context $0 "$@"\n'
            f'exec {python} -m disbatch "$@"\n'
        )
        script.chmod(0o700)
        context = subprocess.run(
            [script, "-s", "localhost:2", "-l", "real"], env=clean_env(), capture_output=True, text=True, timeout=90, check=False
        )
        assert context.returncode == 0, context.stderr
        assert running.wait(30) == 0
    assert rows(theirs) == our_rows(tmp_path / "ours", TASKS)
    assert all((theirs / f"serv_real{name}").exists() for name in (".context.log", f"_{os.uname().nodename}_engine_0.log"))


@pytest.mark.peer("disbatch", "its driver, and our context and engine")
def test_our_context_and_engine_work_for_a_real_driver(client_env: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "tasks").write_text(TASKS)
    driver = subprocess.Popen(
        [client_env("disbatch"), "-m", "disbatch", "-S", "--use-address", "localhost:0", "-p", "real", "tasks"],
        cwd=folder, env=clean_env(), stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        info = folder / "real_kvsinfo.txt"
        components.wait_until(lambda: info.exists() and info.stat().st_size > 0, "the driver's service")
        env = {**clean_env(), "DISBATCH_KVSSTCP_HOST": info.read_text()}
        command = [*OURS, "--context", "util.sh", "-s", "localhost:2", "-l", "ours"]
        ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        assert driver.wait(60) == 0
    finally:
        driver.kill()
        driver.wait()
    assert rows(folder) == our_rows(tmp_path / "ours", TASKS)


@pytest.mark.parametrize("dialect", ["3", "2021"])
def test_messages_of_both_versions_between_our_own_programs(dialect: str, tmp_path: Path) -> None:
    tasks = TASKS if dialect == "3" else TASKS_2021
    folder = tmp_path / "messages"
    folder.mkdir()
    (folder / "tasks").write_text(tasks)
    command = [*OURS, "--dialect", dialect, "-S", "-p", "serv", "tasks"]
    driver = subprocess.Popen(command, cwd=folder, env=clean_env(), stdout=subprocess.DEVNULL)
    try:
        info = folder / "serv_kvsinfo.txt"
        components.wait_until(info.exists, "the driver's service")
        env = {**clean_env(), "DISBATCH_KVSSTCP_HOST": info.read_text()}
        context = [*OURS, "--dialect", dialect, "--context", "util.sh", "-s", "localhost:2"]
        context += ["-k", "echo $NODE $RETCODE > retired"]
        ran = subprocess.run(context, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        assert driver.wait(30) == 0
    finally:
        driver.kill()
        driver.wait()
    assert rows(folder, 2 if dialect == "2021" else 3) == our_rows(tmp_path / "ours", tasks, "--dialect", dialect)
    assert (folder / "retired").read_text() == f"{os.uname().nodename} 0\n"


THEIR_VIEW = """
import sys
import disbatch.disBatch as module
from disbatch.kvsstcp import KVSClient
kvs = KVSClient(sys.argv[1])
info = kvs.view('.db info')
assert type(info) is module.DisBatchInfo
print(info.name, info.args.loglevel, kvs.view('.context_0').label)
"""


def test_what_the_driver_shows_under_its_keys(client_env: Callable[[str], Path], tmp_path: Path) -> None:
    with service(tmp_path, "#DISBATCH REPEAT 100 sleep 0.1\n") as (script, running):
        context = subprocess.Popen([script, "-s", "localhost:1", "-l", "mine"], env=clean_env())
        with KvsClient((tmp_path / "serv_kvsinfo.txt").read_text()) as client:
            shown = pickles.read(client.view(".context_0").data)
            assert d.read_context(shown) == d.Context(0, "mine", "SSH", (os.uname().nodename,), (1,), (1,))
            info = pickles.read(client.view(".db info").data)
            assert (info.state["wd"], info.state["args"].state["startup_only"]) == (str(tmp_path), True)
            assert pickles.read(client.view(".common env").data) == {"DISBATCH_JOBID": "serv", "DISBATCH_NAMETASKS": "tasks"}
            assert client.view("engine 0").data == b"running"
            client.put(".controller", pickles.write(("register", ("context", "k"))), PICKLE)
            assert pickles.read(client.get("k").data) == 1
            client.put(".controller", pickles.write(("stop engine", 0)), PICKLE)
            assert context.wait(30) == 0
            components.wait_until(lambda: client.view("engine 0").data == b"engine stopped", "the engine's end")
        command = [client_env("disbatch"), "-c", THEIR_VIEW, (tmp_path / "serv_kvsinfo.txt").read_text()]
        seen = subprocess.run(command, capture_output=True, text=True, check=False)
        assert seen.stdout == "tasks INFO mine\n", seen.stderr
        running.terminate()
        running.wait(30)


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, ("trap",))


def test_a_client_that_sends_an_unknown_class_loses_its_connection(tmp_path: Path) -> None:
    with service(tmp_path, "sleep 0.1\n") as (script, running):
        address = (tmp_path / "serv_kvsinfo.txt").read_text()
        with KvsClient(address) as evil, KvsClient(address) as good:
            evil.put(".controller", pickle.dumps(("register", Trap())), PICKLE)
            with pytest.raises(Exception, match=r"closed the connection|reset"):
                evil.get("anything")
            good.put(".controller", pickle.dumps(("hello", None)), PICKLE)
            good.put(".controller", pickle.dumps(("register", ("engine", "mine"))), PICKLE)
            assert pickles.read(good.get("mine").data) == 0
        subprocess.run([script, "-s", "localhost:1"], env=clean_env(), check=True, timeout=60)
        assert running.wait(30) == 0
    assert not (tmp_path / "trap").exists()
    assert [line.task_id for line in results(tmp_path)] == [0]
    log = (tmp_path / "serv_driver.log").read_text()
    assert "posix.mkdir" in log and "none of disBatch's" in log


@pytest.mark.parametrize("victim", ["driver", "engine"])
def test_tasks_of_our_engine_end_with_its_driver_and_with_itself(victim: str, tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("touch begun; exec sleep 300\n")
    command = [*OURS, "-S", "-p", "serv", "tasks"]
    driver = subprocess.Popen(command, cwd=tmp_path, env=clean_env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    info = tmp_path / "serv_kvsinfo.txt"
    components.wait_until(info.exists, "the driver's service")
    env = {**clean_env(), "DISBATCH_KVSSTCP_HOST": info.read_text()}
    context = subprocess.Popen([*OURS, "--context", "x", "-s", "localhost:1", "-l", "ours"], cwd=tmp_path, env=env)
    try:
        components.wait_until((tmp_path / "begun").exists, "the task to begin")
        if victim == "driver":
            driver.kill()
        else:
            (log,) = tmp_path.glob("serv_ours_*_engine_0.log")
            os.kill(int(log.read_text().split("(")[1].split(")")[0]), signal.SIGTERM)
        assert context.wait(30) == 1
    finally:
        driver.kill()
        driver.wait()
        context.kill()
        context.wait()
    components.wait_until(lambda: processes_in(tmp_path) == [], "the task to end")


ENGINE = """
import sys
from pilothouse.dropins.disbatch import kvs_engine
kvs_engine.HEART_BEAT_S = 0.1
sys.exit(kvs_engine.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("edition", [2, 3])
def test_what_our_engine_says_to_a_driver(edition: int, tmp_path: Path) -> None:
    """The driver is the test: it puts what disBatch's would, and reads what comes."""
    info = d.run_info("tasks", str(tmp_path / "x"), str(tmp_path), {}, edition)
    context = d.context(d.Context(0, "L", "SSH", ("here",), (1,), (4,)), info, {"context_task_limit": 0}, edition)
    with KvsServer() as server:
        for key, value in ((".db info", info), (".common env", {"DISBATCH_JOBID": "x"}), (".context_0", context)):
            server.put(key, pickles.write(value), PICKLE)
        for word in ("START", "STOP"):
            server.put(f".per engine {word} 0", d.STOP, PICKLE)
        dialect = "2021" if edition == 2 else "3"
        command = [sys.executable, "-c", ENGINE, "--dialect", dialect, "--engine", "-n", "here", ".context_0"]
        engine = subprocess.Popen(command, cwd=tmp_path, env={**clean_env(), "DISBATCH_KVSSTCP_HOST": server.address})
        with KvsClient(server.address) as client:

            def told() -> d.ControllerMessage | None:
                return d.read_controller(client.get(".controller").data)

            registered = told()
            assert isinstance(registered, d.Register) and registered.which == "engine"
            client.put(registered.key, pickles.write(5), PICKLE)
            started, available = told(), told()
            assert isinstance(started, d.EngineStarted) and (started.rank, started.context) == (5, 0)
            assert isinstance(available, d.CylinderAvailable) and available.key == ".cylinder 5 0"
            task = d.TaskInfo(17, 3, -1, b"sleep 0.5; echo $DISBATCH_JOBID $DISBATCH_TASKID $DISBATCH_CORES_PER_TASK; exit 9")
            client.put(available.key, pickles.write(("task", d.task_info(task, edition))), PICKLE)
            beats = []
            while not isinstance(heard := told(), d.TaskDone):
                beats.append(heard)
            assert d.HeartBeat(5 if edition == 3 else None, (17,)) in beats
            assert (heard.report.return_code, heard.report.out_text, heard.report.node) == (9, "x 17 4\n", "here")
            client.put(available.key, d.STOP, PICKLE)
            last: list[object] = []
            while len(last) < 2:
                if not isinstance(heard := told(), d.HeartBeat):
                    last.append(heard)
            assert last == [d.CylinderStopped(5, available.key), d.EngineStopped("OK", 5)]
        assert engine.wait(30) == 0
