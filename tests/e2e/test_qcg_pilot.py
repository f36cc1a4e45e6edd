"""The QCG drop-in as an executable: request files, real processes, files and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from components import qcg_address
from pilothouse.model.errors import PeerError
from pilothouse.protocols.qcg.client import QcgClient

Pilot = Callable[..., "subprocess.CompletedProcess[str]"]
BAC16 = Path(__file__).parent.parent / "golden" / "qcg" / "bac16.json"
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}"


@pytest.fixture
def pilot(repository: Path, tmp_path: Path) -> Pilot:
    executable = repository / "libexec" / "qcg" / "qcg-pm-service"

    def run(*arguments: str, program: Path = executable) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
        )

    return run


def requests(path: Path, *jobs: object, end: bool = True) -> str:
    found: list[object] = [{"request": "submit", "jobs": list(jobs)}]
    if end:
        found.append({"request": "control", "command": "finishAfterAllTasksDone"})
    path.write_text(json.dumps(found))
    return str(path)


def folder_of(path: Path) -> Path:
    (folder,) = path.glob(".qcgpjm-service-*")
    return folder


def report_of(path: Path) -> dict[str, dict[str, object]]:
    lines = [json.loads(line) for line in (folder_of(path) / "jobs.report").read_text().splitlines()]
    return {line["name"]: line for line in lines}


def test_bac16_of_the_specification_on_two_nodes_with_two_cores(pilot: Pilot, tmp_path: Path) -> None:
    names = "namd amber"
    for name in names.split():
        script = f"echo {name} $1 $QCG_PM_NNODES $QCG_PM_NPROCS $QCG_PM_TASKS_PER_NODE; echo {name} $1 >> order\n"
        (tmp_path / f"bac-{name}.sh").write_text(script)
    # The example asks for 4 cores: there are as many here as two nodes have.
    (tmp_path / "bac16.json").write_text(BAC16.read_text())
    done = pilot("bac16.json", "--nodes", "2,2", "--dialect", "2018")
    assert done.returncode == 0, done.stderr
    order = (tmp_path / "order").read_text().splitlines()
    assert len(order) == 32
    for index in range(1, 17):
        assert order.index(f"namd {index}") < order.index(f"amber {index}")
        namd = (tmp_path / "logs" / f"namd_bac16_{index}.stdout").read_text().split()
        assert namd[2:] in (["1", "2", "2"], ["2", "4", "2,2"]), "one or two whole nodes"
        amber = (tmp_path / "logs" / f"amber_bac16_{index}.stdout").read_text().split()
        assert amber[2:] == ["2", "4", "2,2"]
    # The specification: both files are in the working directory.
    report = (tmp_path / "jobs.report").read_text()
    assert (tmp_path / "service.log").stat().st_size > 0
    entry = (
        rf"amber_bac16_16 \(SUCCEED\)\n\t{DATE}: QUEUED\n\t{DATE}: EXECUTING\n\t{DATE}: SUCCEED\n"
        rf"\tallocation: n0:2,n1:2\n\twd: {re.escape(str(tmp_path))}\n\trtime: 0:00:\d\d\.\d{{6}}\n"
    )
    assert re.search(entry, report), report[-2000:]
    assert report.count("(SUCCEED)") == 32


def test_streams_directories_environment_and_failures(pilot: Pilot, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("read me\n")
    path = requests(
        tmp_path / "r.json",
        {"name": "cat", "execution": {"exec": "cat", "stdin": "../../in.txt", "stdout": "o/cat.out", "wd": "sand/box"}},
        {"name": "env", "execution": {"exec": "env", "env": {"MINE": "${nlist}"}, "stdout": "env.out"}},
        {"name": "both", "execution": {"script": "echo out; echo err >&2", "stdout": "x{1}", "stderr": "x{1}"}},
        {"name": "none", "execution": {"exec": "/no/such/program"}},
        {"name": "nowhere", "execution": {"exec": "true", "wd": "/proc/no/such"}},
        {"name": "slow", "execution": {"exec": "sleep", "args": ["60"]}, "resources": {"numCores": 1, "wt": "1s"}},
        {"name": "venv", "execution": {"script": "echo $VIRTUAL", "venv": "fake", "stdout": "venv.out"}},
    )
    (tmp_path / "fake" / "bin").mkdir(parents=True)
    (tmp_path / "fake" / "bin" / "activate").write_text("export VIRTUAL=yes\n")
    assert pilot("--file-path", path, "--nodes", "4", "--envschema", "slurm").returncode == 0
    assert (tmp_path / "sand/box/o/cat.out").read_text() == "read me\n"
    report = report_of(tmp_path)
    env = dict(line.split("=", 1) for line in (tmp_path / "env.out").read_text().splitlines() if "=" in line)
    assert env["MINE"] == "n0" and env["QCG_PM_NPROCS"] == env["SLURM_NTASKS"] == "1"
    assert env["SLURM_NODELIST"] == "n0" and len(env["QCG_PM_STEP_ID"]) == 32
    assert (tmp_path / "x{1}").read_text() == "out\nerr\n"
    assert (tmp_path / "venv.out").read_text() == "yes\n"
    assert report["none"]["messages"] == "[Errno 2] No such file or directory: '/no/such/program'"
    assert report["slow"]["messages"] == "Wall time limit reached"
    assert report["slow"]["runtime"]["exit_code"] == "-15"  # type: ignore[index]
    states = {name: entry["state"] for name, entry in report.items()}
    assert states == {
        "cat": "SUCCEED",
        "env": "SUCCEED",
        "both": "SUCCEED",
        "none": "FAILED",
        "nowhere": "FAILED",
        "slow": "FAILED",
        "venv": "SUCCEED",
    }


@pytest.mark.parametrize("cores", [1, 2])
def test_why_a_program_could_not_be_started(pilot: Pilot, tmp_path: Path, cores: int) -> None:
    """One core: in a bundle; two: by itself. Either way in the words of 0.14."""
    plain, unreadable = tmp_path / "plain", tmp_path / "unreadable"
    plain.write_text("true\n")
    unreadable.write_text("no program\n")
    unreadable.chmod(0o755)
    programs = {
        str(tmp_path): "[Errno 13] Permission denied",
        str(plain): "[Errno 13] Permission denied",
        str(unreadable): "[Errno 8] Exec format error",
        "no_such_program": "[Errno 2] No such file or directory",
    }
    jobs = [
        {"name": f"j{number}", "execution": {"exec": program}, "resources": {"numCores": cores}}
        for number, program in enumerate(programs)
    ]
    assert pilot("--file-path", requests(tmp_path / "r.json", *jobs), "--nodes", "2").returncode == 0
    found = [entry["messages"] for _, entry in sorted(report_of(tmp_path).items())]
    assert found == [f"{why}: '{program}'" for program, why in programs.items()]


def test_modules_and_virtual_environments_are_there_when_the_job_starts(pilot: Pilot, tmp_path: Path) -> None:
    """A stand-in `module`, as a login shell of a cluster has it, and an environment with an `activate`."""
    (tmp_path / ".bash_profile").write_text(
        'module() { echo "$@" >> "$HOME/modules"; export LOADED="$LOADED $2 $3"; }\n'
        "readonly -f module  # a real one, where it is installed, does not take its place\n"
    )
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "activate").write_text("export ACTIVE=$LOADED\n")
    execution = {
        "exec": "sh",
        "args": ["-c", 'echo "$LOADED|$ACTIVE|$1" > out', "x", "a b; c"],
        "env": {"HOME": str(tmp_path)},
        "modules": ["mpi/openmpi", "gcc"],
        "venv": str(tmp_path / "venv"),
    }
    path = requests(tmp_path / "r.json", {"name": "a", "execution": execution})
    assert pilot("--file-path", path, "--nodes", "1").returncode == 0
    assert report_of(tmp_path)["a"]["state"] == "SUCCEED"
    assert (tmp_path / "modules").read_text() == "load mpi/openmpi gcc\n"
    assert (tmp_path / "out").read_text() == " mpi/openmpi gcc| mpi/openmpi gcc|a b; c\n"


def test_the_links_of_the_specification_are_those_of_the_latest_manager(pilot: Pilot, tmp_path: Path) -> None:
    job = {"name": "a", "execution": {"exec": "true"}, "resources": {"numCores": {"exact": 1}}}
    path = requests(tmp_path / "r.json", job)
    common = ("--file-path", path, "--nodes", "1", "--id")
    for number, dialect in enumerate(("2018", "2018", "0.14")):
        assert pilot(*common, f"run{number}", "--dialect", dialect).returncode == 0
        for name in ("jobs.report", "service.log"):
            assert (tmp_path / name).resolve() == tmp_path / f".qcgpjm-service-run{number}" / name
    # A manager of 0.14's dialect makes no links of its own. The file of another program is kept under another name.
    for name in ("jobs.report", "service.log"):
        (tmp_path / name).unlink()
    (tmp_path / "jobs.report").write_text("mine")
    assert pilot(*common, "run3").returncode == 0
    assert (tmp_path / "jobs.report").read_text() == "mine" and not (tmp_path / "service.log").exists()
    assert pilot(*common, "run4", "--dialect", "2018").returncode == 0
    assert (tmp_path / "jobs.report").read_text().startswith("a (SUCCEED)") and (tmp_path / "service.log").is_symlink()
    assert (tmp_path / "jobs.report.before-run4").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "no interface enabled"),
        (("--file-path", "none.json"), "none.json: cannot be read"),
        (("--file-path", "no-list.json"), "Not an array of requests"),
        (("--net", "--nodes", "0"), "must not be less than 1"),
        (("--resume", "."), "is not valid QCG-PilotJob auxiliary directory"),
        (("--net", "--parent", "tcp://127.0.0.1:1"), "register: no answer"),
        (("--governor", "--parent", "tcp://x:1"), "a governor has no governor"),
        (("--governor", "--resume", "."), "a governor cannot be resumed"),
        (("--net", "--resources", "slurm"), "not inside a Slurm allocation"),
    ],
)
def test_a_wrong_beginning_is_one_line_and_code_1(
    pilot: Pilot, tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    (tmp_path / "no-list.json").write_text("{}")
    done = pilot(*arguments)
    assert done.returncode == 1
    assert text in done.stderr and len(done.stderr.splitlines()) == 1


def test_options_without_effect_say_so(pilot: Pilot, tmp_path: Path) -> None:
    options = ("--disable-nl", "--enable-proc-stats", "--wrapper-rt-stats", "w", "--nl-start-method", "ssh")
    done = pilot(requests(tmp_path / "r.json", {"name": "a", "execution": {"exec": "true"}}), "--nodes", "1", *options)
    assert done.returncode == 0 and report_of(tmp_path)["a"]["state"] == "SUCCEED"
    told = [line.partition(":")[0] for line in done.stderr.splitlines()]
    assert told == ["--disable-nl", "--enable-proc-stats", "--wrapper-rt-stats", "--nl-start-method"]
    (log,) = tmp_path.glob(".qcgpjm-service-*/service.log")
    assert all(line in log.read_text() for line in done.stderr.splitlines())


@pytest.mark.parametrize(("option", "code"), [("--report-format", 1), ("--envschema", 1), ("--log", 2)])
def test_wrong_words_end_as_they_end_the_peer(pilot: Pilot, option: str, code: int) -> None:
    done = pilot("--net", option, "bogus")
    assert done.returncode == code and f"Invalid value for '{option}'" in done.stderr


def test_a_refused_request_is_logged_and_the_exit_code_stays_0(pilot: Pilot, tmp_path: Path) -> None:
    path = requests(tmp_path / "r.json", {"name": "a", "execution": {"exec": "x"}, "resources": {"numCores": 99}})
    assert pilot("--file-path", path, "--nodes", "2").returncode == 0
    assert "Not enough resources for job a" in (folder_of(tmp_path) / "service.log").read_text()


def test_beyond_loopback_a_key_is_needed(pilot: Pilot, repository: Path, tmp_path: Path) -> None:
    manager = subprocess.Popen(
        [repository / "libexec/qcg/qcg-pm-service", "--net", "--net-address", "0.0.0.0", "--nodes", "1"], cwd=tmp_path
    )
    try:
        qcg_address(tmp_path, manager)
        folder = folder_of(tmp_path)
        key = folder / "network.key"
        assert key.stat().st_mode & 0o777 == 0o600
        port = (folder / "address").read_text().rpartition(":")[2]
        stranger = QcgClient(f"127.0.0.1:{port}", timeout_s=1)
        with pytest.raises(PeerError, match="no answer"):
            stranger.ask("status")
        stranger.close()
        friend = QcgClient(f"127.0.0.1:{port}", key=key.read_text(), timeout_s=20)
        assert friend.ask("resourcesInfo")
        friend.ask("finish")
        friend.close()
        assert manager.wait(20) == 0
    finally:
        manager.terminate()
        manager.wait(30)


def test_the_command_client(pilot: Pilot, repository: Path, tmp_path: Path) -> None:
    program = repository / "libexec" / "qcg" / "qcg-pm"
    manager = subprocess.Popen([repository / "libexec/qcg/qcg-pm-service", "--net", "--nodes", "3"], cwd=tmp_path)
    try:
        qcg_address(tmp_path, manager)
        shown = pilot("-p", str(tmp_path), "status", program=program).stdout
        assert "[Resources]" in shown and "TotalCores=3" in shown
        address = (folder_of(tmp_path) / "address").read_text()
        assert pilot("-a", address, "finish", program=program).returncode == 0
        assert manager.wait(20) == 0
    finally:
        manager.terminate()
        manager.wait(30)
    failed = pilot("-p", str(tmp_path / "none"), "status", program=program)
    assert failed.returncode == 1 and "unable to find" in failed.stderr


def test_another_policy_may_decide(pilot: Pilot, tmp_path: Path) -> None:
    """A wide job starves under QCG's rules; with walltimes, EASY gives it its turn."""

    def order(policy: str) -> list[str]:
        wd = tmp_path / policy
        wd.mkdir()
        narrow = [
            {"name": f"n{i}", "execution": {"exec": "sh", "args": ["-c", f"echo n{i} >> order; sleep 0.{3 + 2 * (i % 2)}"]},
             "resources": {"numCores": 1, "wt": "30s"}} for i in range(8)
        ]  # fmt: skip
        wide = {"name": "wide", "execution": {"script": "echo wide >> order"}, "resources": {"numCores": 2, "wt": "30s"}}
        path = requests(wd / "r.json", *narrow[:2], wide, *narrow[2:])
        assert pilot("--file-path", path, "--wd", str(wd), "--nodes", "2", "--policy", policy).returncode == 0
        return (wd / "order").read_text().split()

    assert order("easy").index("wide") == 2
    assert order("qcg").index("wide") > 4


def test_a_core_for_the_manager_counts_as_used(repository: Path, tmp_path: Path) -> None:
    executable = repository / "libexec" / "qcg" / "qcg-pm-service"
    manager = subprocess.Popen([executable, "--net", "--nodes", "3", "--system-core", "--wd", tmp_path])
    qcg_address(tmp_path, manager)
    client = QcgClient.of_folder(tmp_path, timeout_s=20)
    try:
        client.ask("status")
        found = client.ask("resourcesInfo")
        assert found == {"total_nodes": 1, "total_cores": 3, "used_cores": 1, "free_cores": 2}
        with pytest.raises(PeerError, match="Not enough resources"):
            client.ask("submit", jobs=[{"name": "a", "execution": {"exec": "true"}, "resources": {"numCores": 3}}])
    finally:
        client.ask("finish")
        client.close()
        assert manager.wait(20) == 0


def test_the_log_begins_with_who_is_at_work(pilot: Pilot, tmp_path: Path) -> None:
    path = requests(tmp_path / "r.json", {"name": "a", "execution": {"exec": "true"}})
    assert pilot("--file-path", path, "--nodes", "1", "--id", "mine", "--tags", "x,y").returncode == 0
    first = (tmp_path / ".qcgpjm-service-mine" / "service.log").read_text().splitlines()[0]
    assert "service mine version " in first and first.endswith("(with tags mine,x,y)")


def test_environment_is_private(pilot: Pilot, tmp_path: Path) -> None:
    path = requests(tmp_path / "r.json", {"name": "a", "execution": {"exec": "true"}})
    assert pilot("--file-path", path, "--nodes", "1").returncode == 0
    assert (folder_of(tmp_path) / "env.log").stat().st_mode & 0o077 == 0
    assert os.environ["PATH"] in (folder_of(tmp_path) / "env.log").read_text()


def test_tiny_jobs_each_run_once_over_a_crash(repository: Path, tmp_path: Path) -> None:
    """Tiny jobs go in bundles; kill -9 of the manager in the middle loses nothing and repeats nothing."""
    executable = repository / "libexec" / "qcg" / "qcg-pm-service"
    count = 600
    requests(
        tmp_path / "r.json",
        {"name": "it", "iteration": {"stop": count}, "execution": {"exec": "sh", "args": ["-c", "echo ${it} >> ran"]}},
        {
            "name": "last",
            "execution": {"exec": "sh", "args": ["-c", "echo last >> ran"]},
            "dependencies": {"after": ["it"]},
        },
    )
    manager = subprocess.Popen([executable, "r.json", "--nodes", "2"], cwd=tmp_path)
    ran = tmp_path / "ran"
    while not ran.exists() or len(ran.read_text().splitlines()) < count // 4:
        assert manager.poll() is None
        time.sleep(0.01)
    manager.kill()
    manager.wait()
    done = subprocess.run(
        [executable, "--resume", tmp_path, "--nodes", "2"], cwd=tmp_path, capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(ran.read_text().split()) == sorted([*map(str, range(count)), "last"])
    report = report_of(tmp_path)
    assert len(report) == count + 2 and {entry["state"] for entry in report.values()} == {"SUCCEED"}
    lines = (folder_of(tmp_path) / "jobs.report").read_text().splitlines()
    assert len(lines) == count + 2, "reported once each"


def test_cancelling_among_tiny_jobs(repository: Path, tmp_path: Path) -> None:
    executable = repository / "libexec" / "qcg" / "qcg-pm-service"
    manager = subprocess.Popen([executable, "--net", "--nodes", "1"], cwd=tmp_path)
    try:
        qcg_address(tmp_path, manager)
        client = QcgClient.of_folder(tmp_path)
        client.ask("submit", jobs=[{"name": "warm", "iteration": {"stop": 30}, "execution": {"exec": "true"}}])
        script = "test ${it} = 40 && exec sleep 60; echo ${it} >> ran"
        slow = {"name": "it", "iteration": {"stop": 200}, "execution": {"exec": "sh", "args": ["-c", script]}}
        client.ask("submit", jobs=[slow])
        ran = tmp_path / "ran"
        while not ran.exists() or len(ran.read_text().split()) < 40:
            assert manager.poll() is None
            time.sleep(0.02)
        # One that runs and holds up the others, one that waits behind it.
        assert client.ask("cancelJob", jobNames=["it:40", "it:199"]) == {"canceled": 2}
        while not client.ask("status", options={"allJobsFinished": True})["AllJobsFinished"]:
            time.sleep(0.05)
        jobs = client.ask("jobInfo", jobNames=["it"], params={"withChilds": True})["jobs"]
        assert isinstance(jobs, dict)
        states = [child["state"] for child in jobs["it"]["data"]["childs"]]
        assert [index for index, state in enumerate(states) if state == "CANCELED"] == [40, 199]
        assert set(states) == {"SUCCEED", "CANCELED"}
        assert sorted(map(int, ran.read_text().split())) == [index for index in range(199) if index != 40]
        client.ask("finish")
        client.close()
        assert manager.wait(30) == 0
    finally:
        manager.terminate()
        manager.wait(30)


def test_gpus_are_given_out_and_hidden_from_others(repository: Path, tmp_path: Path) -> None:
    def job(name: str, gpus: int) -> dict[str, object]:
        resources: dict[str, object] = {"numNodes": 1, "numCores": 1}
        if gpus:
            resources["nodeCrs"] = {"gpu": gpus}
        script = "echo [$CUDA_VISIBLE_DEVICES]; sleep 0.2"
        return {
            "name": name,
            "execution": {"exec": "sh", "args": ["-c", script], "stdout": name},
            "resources": resources,
        }

    requests(tmp_path / "r.json", job("a", 1), job("b", 1), job("both", 2), job("none", 0))
    done = subprocess.run(
        [repository / "libexec" / "qcg" / "qcg-pm-service", "r.json", "--nodes", "4"],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "4,7"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    seen = {name: (tmp_path / name).read_text().strip() for name in ("a", "b", "both", "none")}
    assert sorted((seen["a"], seen["b"])) == ["[4]", "[7]"]
    assert seen["both"] in ("[4,7]", "[7,4]") and seen["none"] == "[]"


def test_a_list_of_100_000_jobs_is_accepted_quickly(repository: Path, tmp_path: Path) -> None:
    manager = subprocess.Popen(
        [repository / "libexec/qcg/qcg-pm-service", "--net", "--nodes", "1", "--log", "warning"], cwd=tmp_path
    )
    try:
        qcg_address(tmp_path, manager)
        client = QcgClient.of_folder(tmp_path, timeout_s=100)
        client.ask("submit", jobs=[{"name": "first", "execution": {"exec": "sleep", "args": ["1000"]}}])
        before = _cpu_s(manager.pid)
        answer = client.ask(
            "submit",
            jobs=[
                {"name": f"j{i}", "execution": {"exec": "true"}, "resources": {"numCores": {"exact": 1}}}
                for i in range(100_000)
            ],
        )
        assert answer["submitted"] == 100_000
        # CPU time: what the machine does besides does not count. The peer took 21.7 s.
        assert _cpu_s(manager.pid) - before < 5.0
        lines = Path(f"/proc/{manager.pid}/status").read_text().splitlines()
        most_kb = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        assert most_kb < 300 * 1024
        client.ask("finish")
        client.close()
        assert manager.wait(60) == 0
    finally:
        manager.terminate()
        manager.wait(30)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_terminated_manager_resumes_at_the_same_address(repository: Path, tmp_path: Path) -> None:
    """TERM ends what runs; a resumed manager runs it again, where its clients look for it."""
    executable = repository / "libexec" / "qcg" / "qcg-pm-service"
    manager = subprocess.Popen([executable, "--net", "--nodes", "1", "--wd", tmp_path])
    qcg_address(tmp_path, manager)
    client = QcgClient.of_folder(tmp_path)
    script = "echo began >> ran; test -e go || sleep 60; echo ended >> ran"
    client.ask("submit", jobs=[{"name": "a", "execution": {"exec": "sh", "args": ["-c", script]}}])
    while not (tmp_path / "ran").exists():
        time.sleep(0.02)
    client.ask("submit", jobs=[{"name": "b", "execution": {"exec": "true"}, "dependencies": {"after": ["a"]}}])
    manager.terminate()
    (tmp_path / "go").touch()
    resumed = subprocess.Popen([executable, "--net", "--nodes", "1", "--wd", tmp_path, "--resume", tmp_path])
    try:
        assert manager.wait(30) == 0
        while not client.ask("status", options={"allJobsFinished": True})["AllJobsFinished"]:
            time.sleep(0.05)
        listed = client.ask("listJobs")["jobs"]
        assert isinstance(listed, dict)
        assert {name: job["status"] for name, job in listed.items()} == {"a": "SUCCEED", "b": "SUCCEED"}
        assert (tmp_path / "ran").read_text().split() == ["began", "began", "ended"]
        client.ask("finish")
        client.close()
        assert resumed.wait(30) == 0
    finally:
        resumed.terminate()
        resumed.wait(30)
