"""The command as a user meets it: files, tables, errors of one line, policies of the user's own."""

import csv
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "examples/kth-sp2-5000.swf.gz"


def pilothouse(*arguments: object, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from pilothouse.cli.main import main; main()", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    return done


def workload(folder: Path, **changes: object) -> Path:
    content: dict[str, object] = {
        "nb_res": 4,
        "jobs": [
            {"id": 1, "subtime": 0, "res": 2, "walltime": 20, "profile": "ten"},
            {"id": "b", "subtime": 1.5, "res": 4, "profile": "ten"},
        ],
        "profiles": {"ten": {"type": "delay", "delay": 10}},
        **changes,
    }
    path = folder / "w.json"
    path.write_text(json.dumps(content))
    return path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_files_of_a_run(tmp_path: Path) -> None:
    pilothouse(
        "simulate",
        "-p",
        4,
        "-w",
        workload(tmp_path),
        "--policy",
        "fcfs",
        "-e",
        "out/",
        "--format",
        "jsonl",
        cwd=tmp_path,
    )
    assert (tmp_path / "out/jobs.csv").read_text() == (
        "job_id,workload_name,profile,submission_time,requested_number_of_resources,requested_time,success,final_state,"
        "starting_time,execution_time,finish_time,waiting_time,turnaround_time,stretch,allocated_resources,"
        "consumed_energy,metadata\n"
        "1,w0,w0!ten,0.000000,2,20.000000,1,COMPLETED_SUCCESSFULLY,0.000000,10.000000,10.000000,0.000000,10.000000,"
        "1.000000,0-1,-1.000000,\n"
        "b,w0,w0!ten,1.500000,4,-1.000000,1,COMPLETED_SUCCESSFULLY,10.000000,10.000000,20.000000,8.500000,18.500000,"
        "1.850000,0-3,-1.000000,\n"
    )
    schedule = json.loads((tmp_path / "out/schedule.json").read_text())
    assert (schedule["nb_jobs"], schedule["makespan"], schedule["mean_waiting_time"]) == (2, 20.0, 4.25)
    lines = [json.loads(line) for line in (tmp_path / "out/jobs.jsonl").read_text().splitlines()]
    assert [line["allocated"] for line in lines] == ["0-1", "0-3"]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pilothouse("simulate", "-q", "-p", 100, "-w", TRACE, "--policy", "easy", "-e", f"{name}/", cwd=tmp_path)
    assert (tmp_path / "a/jobs.csv").read_bytes() == (tmp_path / "b/jobs.csv").read_bytes()
    assert (tmp_path / "a/schedule.json").read_bytes() == (tmp_path / "b/schedule.json").read_bytes()


@pytest.mark.parametrize("policy", ["easy", "easy-sjbf:estimate=clairvoyant", "conservative"])
def test_what_was_not_compiled_gives_the_same_bytes(tmp_path: Path, policy: str) -> None:
    """A machine without a compiler has the Python twins only."""
    compiled = re.findall(r'"(pilothouse\.[\w.]+)"', (ROOT / "setup.py").read_text())
    assert "pilothouse.model._masks" in compiled
    without = f"import sys; sys.modules.update(dict.fromkeys({compiled})); "
    for folder, before in (("compiled", ""), ("plain", without)):
        command = [sys.executable, "-c", f"{before}from pilothouse.cli.main import main; main()", "simulate", "-q", "-p", "100"]
        subprocess.run([*command, "-w", TRACE, "--policy", policy, "-e", f"{folder}/"], cwd=tmp_path, check=True, timeout=120)
    for name in ("jobs.csv", "schedule.json"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "compiled" / name).read_bytes()


def test_an_exported_log_simulates_to_the_same_starts(tmp_path: Path) -> None:
    pilothouse(
        "simulate", "-q", "-p", 100, "-w", TRACE, "--policy", "fcfs", "-e", "a/", "--format", "swf", cwd=tmp_path
    )
    pilothouse("simulate", "-q", "-p", 100, "-w", "a/jobs.swf", "--policy", "fcfs", "-e", "b/", cwd=tmp_path)
    key = ("submission_time", "starting_time", "requested_number_of_resources")
    a, b = ({tuple(row[k] for k in key) for row in rows(tmp_path / f"{name}/jobs.csv")} for name in "ab")
    assert a == b


def test_comparison_as_table_and_as_json(tmp_path: Path) -> None:
    table = pilothouse(
        "compare", "-p", 100, "-w", TRACE, "--policy", "fcfs,easy", "--plot", "c.svg", cwd=tmp_path
    ).stdout
    assert "bounded slowdown" in table and "*" in table
    assert (tmp_path / "c.svg").read_text().lstrip().startswith("<?xml")
    found = json.loads(
        pilothouse("compare", "-p", 100, "-w", TRACE, "--policy", "fcfs,easy", "--json", cwd=tmp_path).stdout
    )
    data = {run["policy"]: run["metrics"] for run in found["runs"]}
    assert data["easy"]["wait"]["mean"] < data["fcfs"]["wait"]["mean"]
    assert data["easy"]["jobs"] == data["fcfs"]["jobs"] == 5000
    assert data["fcfs"]["backfilled"] == 0


def test_plots(tmp_path: Path) -> None:
    pilothouse("simulate", "-p", 4, "-w", workload(tmp_path), "-e", "out/", "--plot", cwd=tmp_path)
    assert (tmp_path / "out/plot.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out/plot.svg").stat().st_size > 1000


def test_explain_a_job(tmp_path: Path) -> None:
    pilothouse("simulate", "-q", "-p", 4, "-w", workload(tmp_path), "--policy", "fcfs", "-e", "out/", cwd=tmp_path)
    said = pilothouse("explain", "out/", "b", cwd=tmp_path).stdout
    assert "job w0!b waited 8.5 s" in said and "w0!1 ended" in said
    assert json.loads(pilothouse("explain", "out/", "w0!1", "--json", cwd=tmp_path).stdout)["waited"] == 0
    assert "no job 'x'" in pilothouse("explain", "out/", "x", cwd=tmp_path, code=2).stderr


NEWCOMER = """
from pilothouse import Policy

class ShortestFirst(Policy):
    def schedule(self, cluster):
        for job in sorted(cluster.queue, key=lambda job: job.walltime):
            if not cluster.start(job):
                break
"""


def test_a_policy_of_a_newcomer(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(NEWCOMER)
    pilothouse("simulate", "-p", 100, "-w", TRACE, "--policy", "mine.py:ShortestFirst", "-e", "out/", cwd=tmp_path)
    assert len(rows(tmp_path / "out/jobs.csv")) == 5000


@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("raise KeyError('oops')", 6, "KeyError: 'oops'"),
        ("job = list(cluster.queue)[0]; cluster.start(job); cluster.start(job)", 6, "is running and cannot be started"),
        ("[cluster.start(job, IdSet.parse('0-1')) for job in cluster.queue]", 6, "unit already in use"),
        ("cluster.call_at(cluster.now - 1)", 6, "call in the past"),
        ("cluster.nonsense()", 6, "AttributeError"),
        ("raise SystemExit(3)", 6, "SystemExit: 3"),
    ],
)
def test_a_policy_that_is_wrong_is_told_so_and_outputs_are_kept(
    tmp_path: Path, body: str, line: int, said: str
) -> None:
    (tmp_path / "bad.py").write_text(
        "from pilothouse import IdSet, Policy\n\nclass Bad(Policy):\n"
        "    def schedule(self, cluster):\n        if cluster.now > 11 and len(cluster.queue) > 0:\n"
        f"            {body}\n            return\n        for job in cluster.queue:\n            cluster.start(job)\n"
    )
    jobs = [{"id": i, "subtime": date, "res": 2, "profile": "ten"} for i, date in enumerate((0, 12, 12))]
    done = pilothouse(
        "simulate",
        "-p",
        4,
        "-w",
        workload(tmp_path, jobs=jobs),
        "--policy",
        "bad.py:Bad",
        "-e",
        "out/",
        cwd=tmp_path,
        code=1,
    )
    (message,) = done.stderr.splitlines()
    assert f"bad.py:{line}" in message and said in message
    assert len(rows(tmp_path / "out/jobs.csv")) == 1


def test_a_deadlock_is_reported_with_its_jobs_and_outputs_are_complete(tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text(
        "from pilothouse import Policy\n\nclass Lazy(Policy):\n    def schedule(self, cluster):\n        pass\n"
    )
    done = pilothouse(
        "simulate", "-p", 4, "-w", workload(tmp_path), "--policy", "lazy.py:Lazy", "-e", "out/", cwd=tmp_path, code=1
    )
    assert "deadlock" in done.stderr and "w0!1, w0!b" in done.stderr
    assert (tmp_path / "out/schedule.json").exists()


GOOD_PROFILES = {"ten": {"type": "delay", "delay": 10}}
BAD_WORKLOADS = {
    "truncated": '{"nb_res": 4, "jobs": [',
    "not json": "{]",
    "unknown profile": {"jobs": [{"id": 1, "subtime": 0, "res": 1, "profile": "x"}]},
    "unknown type": {"profiles": {"ten": {"type": "nope"}}},
    "duplicate id": {
        "jobs": [
            {"id": 1, "subtime": 0, "res": 1, "profile": "ten"},
            {"id": "1", "subtime": 0, "res": 1, "profile": "ten"},
        ]
    },
    "negative size": {"jobs": [{"id": 1, "subtime": 0, "res": -1, "profile": "ten"}]},
    "zero walltime": {"jobs": [{"id": 1, "subtime": 0, "res": 1, "walltime": 0, "profile": "ten"}]},
    "negative delay": {"profiles": {"ten": {"type": "delay", "delay": -1}}},
    "profile of no job": {"profiles": {**GOOD_PROFILES, "other": {"type": "delay", "delay": -1}}},
    "missing field": {"jobs": [{"id": 1, "res": 1, "profile": "ten"}]},
    "wrong type": {"jobs": [{"id": 1, "subtime": "0", "res": 1, "profile": "ten"}]},
    "larger than the machine": {"jobs": [{"id": 1, "subtime": 0, "res": 5, "profile": "ten"}]},
    "no resources": {"nb_res": 0},
    "recursion": {"profiles": {"ten": {"type": "composed", "seq": ["ten"]}}},
    "matrix": {"profiles": {"ten": {"type": "parallel", "cpu": [1, 2], "com": [1]}}},
    "not swf": "hello world\n",
    "few columns": "1 2 3 4\n",
    "swf without dates": "1 nan -1 10 2 -1 -1 2 20 -1 1 1 1 1 1 1 -1 -1\n",
    "swf that never ends": "1 0 -1 inf 2 -1 -1 2 20 -1 1 1 1 1 1 1 -1 -1\n",
    "swf of words": "a b c d e f g h i j k l m n o p q r\n",
    "empty": "",
    "binary": b"\x00\xff\xfe" * 100,
    "not UTF-8": b'{"nb_res":4,"jobs":[],"profiles":{"\xff":{}}}',
    "requests that are not UTF-8": b'[{"request":"submit","jobs":[{"name":"\xff"}]}]',
    "nested too deep": b"[" * 100_000,
    "damaged gzip": b"\x1f\x8b\x08\x00rubbish",
    "cut gzip": gzip.compress(b"; a comment\n" * 1000)[:40],
}


@pytest.mark.parametrize("name", BAD_WORKLOADS)
def test_bad_input_is_one_line_and_overwrites_nothing(tmp_path: Path, name: str) -> None:
    content = BAD_WORKLOADS[name]
    if isinstance(content, dict):
        path = workload(tmp_path, **content)
    else:
        path = tmp_path / "w.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "out").mkdir()
    (tmp_path / "out/jobs.csv").write_text("precious")
    done = pilothouse("simulate", "-p", 4, "-w", path, "--policy", "easy", "-e", "out/", cwd=tmp_path, code=2)
    (message,) = done.stderr.splitlines()
    assert message.startswith("pilothouse: ") and "w.json" in message
    assert (tmp_path / "out/jobs.csv").read_text() == "precious"


UNMADE = """from pilothouse import Policy
class Unmade(Policy):
    def __init__(self):
        raise ValueError("no luck")
class Empty(Policy):
    pass
class Other(Policy):
    def schedule(self):
        pass
"""


@pytest.mark.parametrize(("name", "said"), [("Empty", "must define schedule"), ("Other", "takes 1 positional argument")])
def test_a_policy_without_the_method_is_told_so(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "unmade.py").write_text(UNMADE)
    policy = f"unmade.py:{name}"
    done = pilothouse("simulate", "-p", 4, "-w", workload(tmp_path), "--policy", policy, cwd=tmp_path, code=1)
    (message,) = done.stderr.splitlines()
    assert policy in message and said in message


@pytest.mark.parametrize(
    "arguments",
    [
        ("-p", "4", "-w", "missing.json"),
        ("-p", "4", "-w", "."),
        ("-p", "0", "-w", "w.json"),
        ("-p", "missing.xml", "-w", "w.json"),
        ("-p", "4", "-w", "w.json", "--policy", "nope"),
        ("-p", "4", "-w", "w.json", "--policy", "easy:estimate=7x"),
        ("-p", "4", "-w", "w.json", "--policy", "missing.py:Class"),
        ("-p", "4", "-w", "w.json", "--policy", "no.such.module:Class"),
        ("-p", "4", "-w", "w.json", "--events", "w.json"),
        ("-p", "4", "-w", "w.json", "--policy", "unmade.py:Unmade"),
        ("-p", "4x", "-w", "w.json"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    workload(tmp_path)
    (tmp_path / "unmade.py").write_text(UNMADE)
    done = pilothouse("simulate", *arguments, cwd=tmp_path, code=2)
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_oddities_of_a_log_are_counted_and_said(tmp_path: Path) -> None:
    lines = ["; MaxProcs: 4"]
    for number, fields in {
        1: "0 -1 10 2 -1 -1 2 20",
        2: "5 -1 30 2 -1 -1 2 20",
        3: "3 -1 10 2 -1 -1 2 -1",
        4: "6 -1 -1 2 -1 -1 2 20",
        5: "7 -1 10 9 -1 -1 9 20",
        6: "8 -1 10 -1 -1 -1 -1 20",
        7: "9 -1 0 2 -1 -1 2 20",
    }.items():
        lines.append(f"{number} {fields} -1 1 1 1 1 1 1 -1 -1")
    (tmp_path / "log.swf").write_text("\n".join(lines) + "\n")
    said = pilothouse("simulate", "-p", 4, "-w", "log.swf", "--policy", "fcfs", "-e", "out/", cwd=tmp_path).stdout
    for what in (
        "ran longer",
        "none was requested",
        "run time unknown",
        "larger than the machine",
        "no number of processors",
        "ran 0 s",
        "not in order",
    ):
        assert what in said
    assert sorted(row["job_id"] for row in rows(tmp_path / "out/jobs.csv")) == ["1", "2", "3", "7"]


def test_machines_that_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "events").write_text(
        '{"type": "machine_unavailable", "resources": "0-1", "timestamp": 0.5}\n'
        '{"type": "machine_available", "resources": "0-1", "timestamp": 30}\n'
    )
    pilothouse("simulate", "-q", "-p", 4, "-w", workload(tmp_path), "--events", "events", "-e", "out/", cwd=tmp_path)
    assert [row["starting_time"] for row in rows(tmp_path / "out/jobs.csv")] == ["0.000000", "30.000000"]
