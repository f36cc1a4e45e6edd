"""The executable `batsim`: exit codes, signals, files and words of the real Batsim 5, with a component in C."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BATSIM = ROOT / "libexec/batsim5/batsim"
EDC = ROOT / "tests/edc"
INPUTS = ROOT / "tests/golden/batsim5/inputs"
SMALL = str(INPUTS / "small_platform.xml")
CLUSTER = str(INPUTS / "cluster512.xml")
DELAYS = str(INPUTS / "test_delays.json")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("edc") / "libfcfs.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", str(path), str(EDC / "fcfs.c")], check=True, timeout=60)
    return str(path)


def batsim(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(BATSIM), *arguments], capture_output=True, text=True, timeout=120, check=False, cwd=cwd)


def rows(prefix: Path) -> list[list[str]]:
    return [line.split(",") for line in (prefix / "jobs.csv").read_text().splitlines()[1:]]


def test_library_in_both_formats_and_all_ways_to_load_it(library: str, tmp_path: Path) -> None:
    seen = set()
    for number, (init, extra) in enumerate(
        [("", []), ("json", []), ("", ["--edc-library-load-method", "dlmopen"]), ("json", ["--in-process"])]
    ):
        done = batsim("-p", SMALL, "-w", DELAYS, "-l", library, init, "-e", f"{tmp_path}/{number}/", *extra)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert "Simulation is finished!" in done.stderr
        seen.add((tmp_path / str(number) / "jobs.csv").read_text())
    assert len(seen) == 1
    summary = json.loads((tmp_path / "0/schedule.json").read_text())
    assert (summary["nb_jobs"], summary["nb_jobs_success"], summary["makespan"]) == (10, 10, 37.00006)
    assert json.loads((tmp_path / "0/real_exec_info.json").read_text()).keys() == {
        "memory_VmHWM_kB",
        "memory_VmPeak_kB",
        "time_in_edc_seconds",
        "time_in_simu_seconds",
    }


def test_process(library: str, free_port: Callable[[], int], tmp_path: Path) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with subprocess.Popen([sys.executable, str(EDC / "serve.py"), endpoint, library]) as server:
        try:
            done = batsim("-p", SMALL, "-w", DELAYS, "-s", endpoint, "json", "-e", f"{tmp_path}/")
        finally:
            server.kill()
    assert done.returncode == 0, done.stderr
    assert len(rows(tmp_path)) == 10


@pytest.mark.parametrize(
    ("mischief", "told"),
    [
        ("abort", "the component crashed (SIGABRT)"),
        ("segfault", "the component crashed (SIGSEGV)"),
        ("exit", "the component ended its process with code 5"),
        ("error", "batsim_edc_take_decisions returned 3"),
        ("nothing", "batsim_edc_take_decisions gave no buffer"),
        ("garbage", "invalid message"),
        ("truncated", "invalid message"),
        ("no-hello", "Please fix your EDC"),
        ("init-error", "batsim_edc_init returned 7"),
    ],
)
def test_a_component_that_misbehaves_ends_it_with_sigabrt(
    mischief: str, told: str, library: str, tmp_path: Path
) -> None:
    done = batsim("-p", SMALL, "-w", DELAYS, "-l", library, mischief, "-e", f"{tmp_path}/")
    assert done.returncode == -signal.SIGABRT
    assert told in done.stderr and "CRITICAL" in done.stderr and "Traceback" not in done.stderr
    assert (tmp_path / "jobs.csv").read_text().startswith("job_id,"), "what is known is written"
    assert not (tmp_path / "schedule.json").exists()


def test_a_crash_loses_no_line(library: str, tmp_path: Path) -> None:
    extra = ["--trace-machine-state", "--trace-pstate-changes"]
    assert batsim("-p", SMALL, "-w", DELAYS, "-l", library, "", "-e", f"{tmp_path}/all/", *extra).returncode == 0
    done = batsim("-p", SMALL, "-w", DELAYS, "-l", library, "late", "-e", f"{tmp_path}/", *extra)
    assert done.returncode == -signal.SIGABRT
    assert len(rows(tmp_path)) == 3
    for name in ("jobs.csv", "machine_states.csv", "pstate_changes.csv"):
        assert (tmp_path / "all" / name).read_text().startswith((tmp_path / name).read_text()), name


def test_what_a_component_prints_is_seen(library: str, tmp_path: Path) -> None:
    for extra in ([], ["--in-process"], ["--edc-library-load-method", "dlmopen"]):
        done = batsim("-p", SMALL, "-w", DELAYS, "-l", library, "chatty", "-q", "-e", f"{tmp_path}/", *extra)
        assert done.stdout.startswith("call 1\ncall 2\n"), done.stdout


def test_messages_that_are_text_are_logged(library: str, tmp_path: Path) -> None:
    done = batsim("-p", SMALL, "-w", DELAYS, "-l", library, "json", "-e", f"{tmp_path}/")
    said = []
    for line in done.stderr.splitlines():
        who, bracket, text = line.partition("] [server/INFO] ")
        if bracket and text.startswith(("Sending '", "Received '")):
            assert who.startswith("[master_host:server:(1) ") and text.endswith("'")
            what, _, message = text[:-1].partition(" '")
            said.append((what, json.loads(message)))
    assert [what for what, _ in said] == ["Received"] + ["Sending", "Received"] * (len(said) // 2)
    assert said[0][1]["events"][0]["event_type"] == "EDCHelloEvent"
    assert said[1][1]["events"][0]["event_type"] == "SimulationBeginsEvent"
    assert said[-2][1]["events"][0]["event_type"] == "SimulationEndsEvent"
    for init, extra in (("json", ["-q"]), ("", [])):
        done = batsim("-p", SMALL, "-w", DELAYS, "-l", library, init, "-e", f"{tmp_path}/", *extra)
        assert done.returncode == 0 and "Sending" not in done.stderr


def test_what_a_component_leaves_in_the_buffers_of_its_streams_is_seen(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("real component missing: g++")
    path = str(tmp_path / "libstreams.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, str(EDC / "streams.cpp")], check=True, timeout=120)
    for method in ("dlopen", "dlmopen"):
        load = ["--edc-library-load-method", method]
        done = batsim("-p", SMALL, "-l", path, "", "-q", "-e", f"{tmp_path}/", *load)
        assert (done.returncode, done.stdout) == (0, "init\ncall\ncall\ndeinit\n"), done.stderr
    unused = ["-Wl,--no-as-needed", "-lstdc++"]  # loaded, but its streams are not set up
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, str(EDC / "fcfs.c"), *unused], check=True, timeout=120)
    done = batsim("-p", SMALL, "-w", DELAYS, "-l", path, "", "-q", "-e", f"{tmp_path}/")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_silent_component_is_given_up_on_request(library: str, tmp_path: Path) -> None:
    done = batsim("-p", SMALL, "-w", DELAYS, "-l", library, "hang", "-e", f"{tmp_path}/", "--edc-timeout", "0.3")
    assert done.returncode == -signal.SIGABRT
    assert "no answer within 0.3 s" in done.stderr


def test_a_job_that_never_starts_is_a_deadlock(library: str, tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.write_text(
        '{"nb_res": 9, "jobs": [{"id": 1, "subtime": 0, "res": 9, "profile": "d"}],'
        ' "profiles": {"d": {"type": "DelayProfile", "delay": 1}}}'
    )
    done = batsim("-p", SMALL, "-w", str(large), "-l", library, "", "-e", f"{tmp_path}/o/")
    assert done.returncode == 1
    assert "The simulation could NOT finish because a deadlock was detected in SimGrid" in done.stderr
    assert not (tmp_path / "o/schedule.json").exists()


def workload(**changes: Any) -> str:
    file: dict[str, Any] = {
        "nb_res": 4,
        "jobs": [{"id": "1", "subtime": 0, "res": 1, "profile": "d", "walltime": 10}],
        "profiles": {"d": {"type": "DelayProfile", "delay": 1}},
    }
    for key, value in changes.items():
        if key in ("nb_res", "profiles", "jobs"):
            file[key] = value
        else:
            file["jobs"][0][key] = value
    return json.dumps(file)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "JSON"),
        (workload(nb_res=0), "nb_res"),
        (workload(walltime=-1), "walltime"),
        (workload(walltime=0), "walltime"),
        (workload(walltime=None), "walltime"),
        (workload(res="two"), "non-number 'res'"),
        (workload(id="a!b"), "'w0!a!b'"),
        (workload(extra_data=None), "extra_data"),
        (workload(profile="e"), "unknown profile"),
        (workload(extra_data=3), "extra_data"),
        (workload(profiles={"d": {"type": "delay", "delay": 1}}), "unknown profile type"),
        (workload(profiles={"d": {"type": "DelayProfile", "delay": 0}}), "delay"),
        (workload(profiles={"d": {"type": "DelayProfile", "delay": 1}, "e": {"type": "Magic"}}), "Magic"),
        (workload(profiles={"d": {"type": "ForkJoinCompositionProfile", "seq": ["d"]}}), "not implemented"),
        (workload(profiles={"d": {"type": "ParallelTaskProfile", "cpu": [1, 2]}}), "2 hosts"),
    ],
)
def test_wrong_workloads_end_it_with_sigabrt(text: str, told: str, library: str, tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(text)
    done = batsim("-p", SMALL, "-w", str(tmp_path / "w.json"), "-l", library, "", "-e", f"{tmp_path}/o/")
    assert done.returncode == -signal.SIGABRT, done.stderr
    assert told in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (["-m", "nobody"], 'Cannot find the "master" role'),
        (["-r", "Jupiter", "master"], "There are two master hosts"),
        (["-r", "master_host", "compute_node"], 'Cannot find the "master" role'),
        (["-p", CLUSTER, "-r", "m0", "storage"], "unknown role"),
        (["-r", "Jupiter", "king"], "unknown role"),
    ],
)
def test_wrong_roles_end_it_with_sigabrt(extra: list[str], told: str, library: str, tmp_path: Path) -> None:
    platform = [] if "-p" in extra else ["-p", SMALL]
    done = batsim(*platform, "-w", DELAYS, "-l", library, "", "-e", f"{tmp_path}/", *extra)
    assert done.returncode == -signal.SIGABRT
    assert told in done.stderr


def test_an_init_file_that_is_not_there_ends_it_with_sigabrt(library: str, tmp_path: Path) -> None:
    done = batsim("-p", SMALL, "-w", DELAYS, "-L", library, f"{tmp_path}/nowhere", "-e", f"{tmp_path}/")
    assert (done.returncode, done.stdout) == (-signal.SIGABRT, "")
    assert f"{tmp_path}/nowhere" in done.stderr


def test_usage_errors_say_nothing_on_stdout(tmp_path: Path) -> None:
    for arguments, code in (([], 1), (["--nope"], 109), (["-p", "/nope.xml", "-l", "x", ""], 105)):
        done = batsim(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr


def test_the_callers_own_python_is_left_alone(tmp_path: Path) -> None:
    for name in ("msgspec.py", "signal.py"):
        (tmp_path / name).write_text("raise ImportError('for another Python')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere"}
    command = [str(BATSIM), "--version"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "v5.0.0-rc2\n", "")


def test_the_default_prefix_is_a_folder_called_out(library: str, tmp_path: Path) -> None:
    done = batsim("-p", SMALL, "-w", DELAYS, "-l", library, "", "-q", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"jobs.csv", "schedule.json", "real_exec_info.json"}


def test_fewer_hosts(library: str, tmp_path: Path) -> None:
    assert batsim("-p", SMALL, "-w", DELAYS, "-l", library, "", "-e", f"{tmp_path}/", "--mmax", "1").returncode == 0
    assert {row[14] for row in rows(tmp_path)} == {"0"}


@pytest.mark.parametrize(("count", "told"), [("5", "there are only 4"), ("-1", "0 or more")])
def test_a_wrong_number_of_hosts_ends_it_with_sigabrt(count: str, told: str, library: str, tmp_path: Path) -> None:
    done = batsim("-p", SMALL, "-w", DELAYS, "-l", library, "", "-e", f"{tmp_path}/", "--mmax", count)
    assert done.returncode == -signal.SIGABRT and told in done.stderr


def test_no_foreign_runtime_is_loaded_before_the_component() -> None:
    """A component that was built with a newer C++ runtime brings it along; one that is loaded already would win."""
    code = (
        "import pilothouse.dropins.batsim5.run, sys\n"
        "maps = open('/proc/self/maps').read()\n"
        "sys.exit('libstdc++' in maps or 'zmq' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_simulate_says_that_messages_took_no_time(library: str, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "pilothouse", "simulate", "-p", SMALL, "-w", DELAYS, "--by", f"edc:{library}"]
    for more, told in (((), True), (("--control-latency",), False), (("-q",), False)):
        command = [*program, "-e", f"{tmp_path}/", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert ("may differ from a real Batsim's; see --control-latency" in done.stdout) is told
