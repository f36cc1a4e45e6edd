"""`pilothouse qcg FILE` and `qcg-pm FILE` mean the specification of 2018, whose examples are run; `qcg-pm-service` means 0.14."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from components import qcg_address
from pilothouse.protocols.qcg.client import QcgClient

DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}"
BAC16 = Path(__file__).parent.parent / "golden" / "qcg" / "bac16.json"
SLEEP = """
{
    "request": "submit",
    "jobs": [
    {
        "name": "msleep2",
        "execution": {
          "exec": "/bin/sleep",
          "args": [
            "5s"
          ],
          "env": {},
          "wd": "sleep.sandbox",
          "stdout": "sleep2.${ncores}.${nnodes}.stdout",
          "stderr": "sleep2.${ncores}.${nnodes}.stderr"
        },
        "resources": {
          "numCores": {
            "exact": 2
          }
        }
      }
   ]
}
"""
"""The submit example, without the brace that it has too many."""
CONTROL = '{ "request": "control", "command": "finishAfterAllTasksDone" }'
STATUS = '{ "request": "jobStatus", "jobName": "msleep2" }'
CANCEL = '{ "request": "cancelJob", "jobName": "msleep2" }'
REMOVE = '{ "request": "removeJob", "jobName": "msleep2" }'
LIST = '{ "request": "listJobs" }'
RESOURCES = '{ "request": "resourcesInfo" }'
FINISH = '{ "request": "finish" }'
WAIT = {"request": "control", "command": "finishAfterAllTasksDone"}


@pytest.fixture
def run(repository: Path, tmp_path: Path) -> Any:
    programs = {
        "pilothouse": [repository / ".venv/bin/pilothouse", "qcg"],
        "qcg-pm": [repository / "libexec/qcg/qcg-pm"],
        "service": [repository / "libexec/qcg/qcg-pm-service"],
    }

    def started(*arguments: object, program: str = "pilothouse", **more: Any) -> subprocess.CompletedProcess[str]:
        command = [*programs[program], *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False, **more)

    return started


def write(path: Path, *requests: object) -> None:
    texts = [request if isinstance(request, str) else json.dumps(request) for request in requests]
    path.write_text(f"[{','.join(texts)}]")


def job(name: str, script: str = "true", **more: object) -> dict[str, object]:
    resources = {"numCores": {"exact": 1}}
    return {"name": name, "execution": {"exec": "bash", "args": ["-c", script]}, "resources": resources, **more}


def submit(*jobs: object) -> dict[str, object]:
    return {"request": "submit", "jobs": list(jobs)}


def replies(folder: Path) -> list[dict[str, Any]]:
    log, decoder = (folder / "service.log").read_text(), json.JSONDecoder()
    return [decoder.raw_decode(log, mark.end())[0] for mark in re.finditer("FileInterface reply message: ", log)]


def states(folder: Path) -> dict[str, str]:
    return dict(re.findall(r"^(\S+) \((\w+)\)$", (folder / "jobs.report").read_text(), re.M))


# ---- printed examples


def test_the_printed_requests_about_one_job_and_their_printed_answers(run: Any, tmp_path: Path) -> None:
    """submit, jobStatus, listJobs, resourcesInfo, cancelJob, removeJob, finish on one node of eight cores, as printed."""
    write(tmp_path / "r.json", SLEEP, STATUS, submit(job("echo", "sleep 9")), LIST, RESOURCES, CANCEL, REMOVE, FINISH)
    done = run("r.json", "--nodes", "e0145:8")
    assert (done.returncode, done.stderr) == (0, "")
    submitted, status, _, listed, resources, cancelled, removed, finished = replies(tmp_path)
    assert submitted["code"] == 0
    assert set(status) == {"data", "code"} and status["code"] == 0
    history = status["data"].pop("history")
    assert re.fullmatch(rf"\n{DATE}: QUEUED\n{DATE}: EXECUTING", history)
    assert status["data"] == {"status": "EXECUTING", "runtime": {"allocation": "e0145:2"}, "jobName": "msleep2"}
    assert listed == {"data": {"length": 2, "names": ["msleep2", "echo"]}, "code": 0}
    assert resources == {"data": {"totalCores": 8, "totalNodes": 1, "usedCores": 3, "freeCores": 5}, "code": 0}
    assert cancelled["code"] == 0, "the text: not supported yet"
    assert removed["code"] == 1, "it has not ended yet"
    assert finished["code"] == 0


def test_the_printed_submit_example_leaves_the_printed_report(run: Any, tmp_path: Path) -> None:
    write(tmp_path / "r.json", SLEEP, CONTROL)
    assert run("r.json", "--nodes", "e0003:4").returncode == 0
    report = (tmp_path / "jobs.report").read_text()
    wd = tmp_path / "sleep.sandbox"
    assert re.fullmatch(
        rf"msleep2 \(SUCCEED\)\n\t{DATE}: QUEUED\n\t{DATE}: EXECUTING\n\t{DATE}: SUCCEED\n\tallocation: e0003:2\n"
        rf"\twd: {re.escape(str(wd))}\n\trtime: 0:00:0[5-9]\.\d{{6}}\n",
        report,
    ), report
    assert {path.name for path in wd.iterdir() if path.name[0] != "."} == {"sleep2.2.1.stdout", "sleep2.2.1.stderr"}


def test_bac16_as_printed_with_qcg_pm_and_one_argument(run: Any, tmp_path: Path) -> None:
    """On four nodes of 28 cores as the printed script asks for; then on this host alone, where four cores may be too many."""
    printed = BAC16.read_text()
    here = printed.replace('"exact": 4', f'"exact": {min(4, len(os.sched_getaffinity(0)))}')
    nodes = ",".join(f"e{number}:28" for number in range(4))
    for text, program, options in ((printed, "pilothouse", ("--nodes", nodes)), (here, "qcg-pm", ())):
        (tmp_path / "order").unlink(missing_ok=True)
        for name in ("namd", "amber"):
            (tmp_path / f"bac-{name}.sh").write_text(f"echo {name} $1 $QCG_PM_NNODES $QCG_PM_NPROCS >> order\n")
        (tmp_path / "bac16.json").write_text(text)
        done = run("bac16.json", *options, program=program)
        assert (done.returncode, done.stderr) == (0, "")
        assert set(states(tmp_path).values()) == {"SUCCEED"} and len(states(tmp_path)) == 32
        order = [line.split() for line in (tmp_path / "order").read_text().splitlines()]
        assert len(order) == 32
        began = [line[:2] for line in order]
        for index in map(str, range(1, 17)):
            assert began.index(["namd", index]) < began.index(["amber", index])
        assert not options or {(name, *size) for name, _, *size in order} <= {
            ("namd", "2", "56"), ("namd", "1", "28"), ("amber", "1", "4"),
        }  # fmt: skip
        assert len(list((tmp_path / "logs").glob("*_bac16_*.std*"))) == 64


# ---- the end of a request file


def test_without_a_control_request_the_end_of_the_file_is_the_end(run: Any, tmp_path: Path) -> None:
    big = job("big", resources={"numCores": {"exact": 9}})
    write(tmp_path / "r.json", submit(job("slow", "sleep 60; echo > done"), job("next", "echo > next"), big))
    done = run("r.json", "--nodes", "n1:1")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("2 of 3 jobs did not run to their end")
    assert '{"request": "control", "command": "finishAfterAllTasksDone"}' in line
    assert not (tmp_path / "done").exists() and states(tmp_path) == {"big": "FAILED"}
    # What is left is not lost: with --resume it runs, on the same nodes.
    (folder,) = tmp_path.glob(".qcgpjm-service-*")
    assert str(folder) in line
    (folder / "track.reqs").write_text((folder / "track.reqs").read_text().replace("sleep 60", "sleep 00"))
    resumed = run("--resume", folder)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert states(tmp_path) == {"big": "FAILED", "slow": "SUCCEED", "next": "SUCCEED"}
    assert "allocation: n1:1\n" in (tmp_path / "jobs.report").read_text()


def test_a_file_whose_jobs_have_ended_or_that_has_none_ends_well(run: Any, tmp_path: Path) -> None:
    write(tmp_path / "r.json", LIST, submit(job("big", resources={"numNodes": {"exact": 3}})))
    done = run("r.json", "--nodes", "1")
    assert (done.returncode, done.stderr) == (0, "")
    write(tmp_path / "later.json", submit({"name": "a", "execution": {"script": "sleep 0.1; echo > done"}}))
    assert run("later.json", "--nodes", "1", program="service").returncode == 0, "0.14 waits for its jobs"
    assert (tmp_path / "done").exists()


def test_after_finish_nothing_is_accepted_and_what_runs_is_killed(run: Any, tmp_path: Path) -> None:
    slow, late = submit(job("slow", "echo $BASHPID > pid; sleep 60")), submit(job("late", "echo > late"))
    write(tmp_path / "r.json", slow, FINISH, late, LIST)
    begun = time.monotonic()
    done = run("r.json", "--nodes", "2")
    assert (done.returncode, done.stderr) == (0, "") and time.monotonic() - begun < 30
    assert [reply["code"] for reply in replies(tmp_path)[:3]] == [0, 0, 1]
    assert not (tmp_path / "late").exists()
    pid = (tmp_path / "pid").read_text().strip() if (tmp_path / "pid").exists() else ""
    assert not pid or not Path(f"/proc/{pid}").exists()


def test_control_may_come_first(run: Any, tmp_path: Path) -> None:
    write(tmp_path / "r.json", WAIT, submit(job("a")), STATUS.replace("msleep2", "a"))
    assert run("r.json", "--nodes", "1").returncode == 0
    assert states(tmp_path) == {"a": "SUCCEED"}
    assert replies(tmp_path)[2]["data"]["status"] == "EXECUTING", "a request sees what became of those before it"


# ---- which dialect


def test_the_dialect_is_chosen_and_not_guessed(run: Any, tmp_path: Path) -> None:
    """The same file; the name of the program or --dialect chooses."""
    later = {"name": "l", "iteration": {"stop": 2}, "execution": {"exec": "true"}}
    write(tmp_path / "r.json", submit(job("l_${it}", iterate=[0, 2])), submit(later), WAIT)
    for program, more, codes in (
        ("pilothouse", (), [0, 1, 0]), ("service", (), [1, 0, 0]), ("pilothouse", ("--dialect", "0.14"), [1, 0, 0]),
        ("service", ("--dialect", "2018"), [0, 1, 0]),
    ):  # fmt: skip
        instance = "-".join((program, *more))
        assert run("r.json", *more, "--nodes", "1", "--id", instance, program=program).returncode == 0
        assert [reply["code"] for reply in replies(tmp_path / f".qcgpjm-service-{instance}")] == codes


@pytest.mark.parametrize(("dialect", "named"), [("2018", "jobName"), ("0.14", "jobNames")])
def test_the_client_command_knows_both(run: Any, repository: Path, tmp_path: Path, dialect: str, named: str) -> None:
    manager = subprocess.Popen(
        [repository / ".venv/bin/pilothouse", "qcg", "--net", "--nodes", "1", "--dialect", dialect], cwd=tmp_path
    )
    try:
        qcg_address(tmp_path, manager)
        client = QcgClient.of_folder(tmp_path)
        client.ask("submit", jobs=[job("a", "sleep 60")])
        names: object = "a" if named == "jobName" else ["a"]
        assert client.answer({"request": "jobStatus", named: names})["code"] == 0
        while run("-p", tmp_path, "list", program="qcg-pm").stdout != "a EXECUTING\n":
            assert manager.poll() is None
        assert run("-p", tmp_path, "cancel", "a", program="qcg-pm").stdout == "1 canceled\n"
        assert run("-p", tmp_path, "finish", program="qcg-pm").returncode == 0
        client.close()
        assert manager.wait(30) == 0
    finally:
        manager.terminate()
        manager.wait(30)


# ---- what jobs see


def test_shell_variables_work_and_jobs_see_nothing_of_disbatch(run: Any, tmp_path: Path) -> None:
    script = "echo ${HOME} $HOME $BASHPID ${ncores} ${ nnodes }; env"
    execution = {"exec": "bash", "args": ["-c", script], "stdout": "${ jname }.out"}
    write(tmp_path / "r.json", submit(job("a", execution=execution)), WAIT)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DISBATCH")}
    assert run("r.json", "--nodes", "1", env={**environment, "HOME": "/somewhere"}).returncode == 0
    first, *rest = (tmp_path / "a.out").read_text().splitlines()
    assert re.fullmatch(r"/somewhere /somewhere \d+ 1 1", first)
    assert [line for line in rest if "DISBATCH" in line] == []


def test_a_parallel_job_finds_its_machine_file_outside_slurm(run: Any, tmp_path: Path) -> None:
    two = {"numCores": {"exact": 3}}
    write(tmp_path / "r.json", submit(job("p", "cat .p.hostfile .p.runconfig > seen", resources=two)), WAIT)
    assert run("r.json", "--nodes", "a:2,b:2").returncode == 0
    assert (tmp_path / "seen").read_text() == "a\na\nb\n0\tbash -c 'cat .p.hostfile .p.runconfig > seen'\n1-2 /bin/true\n"


# ---- a manager that was killed


def test_requests_that_a_killed_manager_had_not_taken_are_taken_when_it_is_resumed(run: Any, tmp_path: Path) -> None:
    """Killed before any request, between two, and while one was being tracked; after a power loss. Nothing is lost."""
    each = (submit(job(f"j{number}", f"echo {number} $QCG_PM_NODELIST >> ran")) for number in range(3))
    write(tmp_path / "r.json", *each, WAIT)
    assert run("r.json", "--nodes", "left:1,right:1", "--id", "x").returncode == 0
    folder = tmp_path / ".qcgpjm-service-x"
    sizes = [line.split() for line in (folder / "track.taken").read_text().splitlines()]
    assert [count for count, _ in sizes] == ["1", "2", "3", "4"]
    tracked = (folder / "track.reqs").read_bytes()
    for taken in (0, 1, 3, 4):
        again = tmp_path / f"again{taken}"
        there = again / ".qcgpjm-service-x"
        there.mkdir(parents=True, mode=0o700)
        (there / "start.json").write_bytes((folder / "start.json").read_bytes())
        size = int(sizes[taken - 1][1]) if taken else 0
        (there / "track.taken").write_text("".join(f"{count} {at}\n" for count, at in sizes[:taken]) + "\0\0\n" * (taken == 4))
        # A request was being tracked; or the power was lost, and with it what was not on the disk yet.
        (there / "track.reqs").write_bytes(tracked[: size + 40] if taken < 4 else tracked[:100])
        done = run("--resume", again)
        assert (done.returncode, done.stderr) == (0, "")
        assert states(again) == dict.fromkeys(("j0", "j1", "j2"), "SUCCEED")
        ran = [line.split() for line in (again / "ran").read_text().splitlines()]
        assert sorted(number for number, _ in ran) == ["0", "1", "2"]
        assert {node for _, node in ran} <= {"left", "right"}, "--nodes are those of the first start"


def test_a_manager_that_is_killed_at_any_moment_of_its_start_is_resumed(run: Any, repository: Path, tmp_path: Path) -> None:
    """kill -9 as soon as a file is there: the first one comes before any request is taken."""
    write(tmp_path / "r.json", submit(job("a", "echo $QCG_PM_NODELIST >> ran"), job("b", "echo $QCG_PM_NODELIST >> ran")), WAIT)
    for sign in ("start.json", "track.reqs"):
        (tmp_path / "ran").unlink(missing_ok=True)
        folder = tmp_path / f".qcgpjm-service-{sign}"
        command = [repository / ".venv/bin/pilothouse", "qcg", "r.json", "--nodes", "here:1", "--id", sign]
        manager = subprocess.Popen(command, cwd=tmp_path)
        while not (folder / sign).exists():
            assert manager.poll() is None
        manager.kill()
        manager.wait()
        done = run("--resume", folder)
        assert (done.returncode, done.stderr) == (0, ""), sign
        assert states(tmp_path) == {"a": "SUCCEED", "b": "SUCCEED"}, sign
        assert (tmp_path / "ran").read_text() == "here\nhere\n", sign


def test_a_manager_that_had_kept_nothing_cannot_be_resumed(run: Any, tmp_path: Path) -> None:
    (tmp_path / ".qcgpjm-service-x").mkdir(mode=0o700)
    done = run("--resume", tmp_path)
    assert done.returncode == 1 and "killed before it had kept its requests" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_a_resumed_manager_refuses(run: Any, tmp_path: Path) -> None:
    write(tmp_path / "r.json", submit(job("a")), WAIT)
    write(tmp_path / "other.json", submit(job("b", "echo > b")), WAIT)
    assert run("r.json", "--nodes", "1", "--id", "x").returncode == 0
    folder = tmp_path / ".qcgpjm-service-x"
    refused = run("--resume", folder, "--dialect", "0.14")
    assert refused.returncode == 1 and "the manager that is resumed speaks 2018" in refused.stderr
    assert run("r.json", "--resume", folder).returncode == 0, "the same file: it is taken already"
    taken = (folder / "track.taken").read_text()
    (folder / "track.taken").write_text(taken.splitlines(keepends=True)[0])
    refused = run("other.json", "--resume", folder)
    assert refused.returncode == 1 and "1 requests of its file are not taken yet" in refused.stderr
    (folder / "track.taken").write_text(taken)
    assert run("other.json", "--resume", folder).returncode == 0
    assert states(tmp_path) == {"a": "SUCCEED", "b": "SUCCEED"} and (tmp_path / "b").exists()
    write(tmp_path / "third.json", submit(job("c")), WAIT)
    assert run("third.json", "--nodes", "1", "--id", "x").returncode == 0, "the same name again, and another file"
    assert states(tmp_path) == {"a": "SUCCEED", "b": "SUCCEED", "c": "SUCCEED"}


# ---- the end of a manager


def marked(mark: str) -> list[str]:
    """The commands of processes with this text in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
    return found


def test_nothing_is_alive_when_a_manager_returns_and_its_folder_can_go(run: Any, repository: Path, tmp_path: Path) -> None:
    """After an ordinary end, after one that kills jobs, and after a resumed manager whose engine another one had started."""
    environment = {**os.environ, "MARK_OF_THIS_TEST": str(tmp_path)}
    jobs = submit(*(job(f"j{number}") for number in range(20)), job("last", "sleep 0.5"))
    for requests, code in (((jobs, WAIT), 0), ((jobs,), 3)):
        write(tmp_path / "r.json", *requests)
        assert run("r.json", "--nodes", "2,2", "--id", "x", env=environment).returncode == code
        assert marked(f"MARK_OF_THIS_TEST={tmp_path}") == []
        shutil.rmtree(tmp_path / ".qcgpjm-service-x")
    write(tmp_path / "r.json", submit(job("slow", "echo > began; sleep 0.5")), WAIT)
    command = [repository / ".venv/bin/pilothouse", "qcg", "r.json", "--nodes", "1", "--id", "x"]
    manager = subprocess.Popen(command, cwd=tmp_path, env=environment)
    while not (tmp_path / "began").exists():
        assert manager.poll() is None
    manager.kill()
    manager.wait()
    assert run("--resume", tmp_path, env=environment).returncode == 0
    assert marked(f"MARK_OF_THIS_TEST={tmp_path}") == []
    shutil.rmtree(tmp_path / ".qcgpjm-service-x")


def test_a_manager_whose_folder_is_removed_says_so_in_one_line(repository: Path, tmp_path: Path) -> None:
    write(tmp_path / "r.json", submit(job("a", "echo > began; while [ ! -e go ]; do sleep 0.05; done")), WAIT)
    command = [repository / ".venv/bin/pilothouse", "qcg", "r.json", "--nodes", "1", "--id", "x"]
    manager = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "began").exists():
        assert manager.poll() is None
    (tmp_path / ".qcgpjm-service-x").rename(tmp_path / "elsewhere")
    (tmp_path / "go").touch()
    _, said = manager.communicate(timeout=60)
    assert manager.returncode == 1
    assert said == f"Error: {tmp_path}/.qcgpjm-service-x was removed while the manager was at work\n"
