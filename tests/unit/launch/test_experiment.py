"""pilothouse.simulate and pilothouse.compare: inputs from code, tables and files; what a result shows."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import components
import pilothouse
from pilothouse import Cluster, Job, Node, Policy, compare, simulate
from pilothouse.campaign import frames
from pilothouse.model.errors import InputError

TINY = str(components.ROOT / "examples" / "tiny.json")
ROWS = [
    {"id": "a", "units": 2, "runtime": 100.0, "walltime": 120.0, "submitted_at": 0.0, "user": "ann"},
    {"id": "b", "units": 4, "runtime": 50.0, "walltime": 60.0, "submitted_at": 1.0, "user": "bob"},
    {"id": "c", "units": 2, "runtime": 10.0, "walltime": 20.0, "submitted_at": 2.0, "user": None},
]


class LongestFirst(Policy):
    def schedule(self, cluster: Cluster) -> None:
        for job in sorted(cluster.queue, key=lambda job: -job.walltime):
            cluster.start(job)


class HeadOnly(Policy):
    """Uses the queue as a sequence."""

    def schedule(self, cluster: Cluster) -> None:
        while len(cluster.queue) and cluster.start(cluster.queue[0]):
            pass
        if len(cluster.queue):
            assert cluster.queue[-1] is list(cluster.queue)[-1]
            assert cluster.queue[:2] == list(cluster.queue)[:2]
            with pytest.raises(IndexError):
                cluster.queue[len(cluster.queue)]


def starts(result: pilothouse.Result) -> dict[str, float]:
    return {row["id"]: row["started_at"] for row in frames.rows_of(result.jobs, "jobs")}


def table(kind: str, rows: list[dict[str, Any]]) -> Any:
    if kind == "rows":
        return rows
    return pytest.importorskip(kind).DataFrame(rows)


@pytest.mark.parametrize("kind", ["rows", "polars", "pandas"])
def test_tables_are_workloads_and_platforms(kind: str) -> None:
    result = simulate(workload=table(kind, ROWS), platform=table(kind, [{"cores": 1}, {"cores": 3, "name": "big"}]))
    assert starts(result) == {"w0!a": 0.0, "w0!b": 100.0, "w0!c": 2.0}
    assert [node.count for node in frames.nodes_of([{"cores": 1}, {"cores": 3}])] == [1, 3]


def test_jobs_of_a_result_are_a_workload_again() -> None:
    first = simulate(workload=ROWS, platform=4)
    again = simulate(workload=first.jobs, platform=4)
    assert starts(again) == starts(first)
    assert again.metrics == first.metrics


def test_jobs_and_nodes_in_code() -> None:
    jobs = [Job("a", 2, runtime=100.0), Job("b", 1, runtime=5.0, submitted_at=3.0)]
    result = simulate(workload=jobs, platform=[Node("n0", 0, 2), Node("n1", 0, 1)], policy=LongestFirst)
    assert starts(result) == {"w0!a": 0.0, "w0!b": 3.0}
    assert jobs[0].id == "a" and jobs[0].profile is None
    with pytest.raises(InputError, match="neither a profile nor a runtime"):
        simulate(workload=[Job("a", 2)], platform=2)


def test_files_as_on_the_command_line() -> None:
    assert simulate(workload=TINY, platform=4, policy="fcfs").metrics.jobs == simulate(
        workload=[Path(TINY)], platform="4", policy="fcfs").metrics.jobs  # fmt: skip
    assert simulate(workload=TINY, platform=[{"cores": 4}], policy=HeadOnly).metrics.makespan == simulate(
        workload=TINY, platform=4, policy="fcfs").metrics.makespan  # fmt: skip


def test_rows_that_say_too_little_are_counted() -> None:
    rows = [
        *ROWS,
        {"units": 1, "runtime": None},
        {"units": math.nan, "runtime": 3},
        {"units": 1, "runtime": 1, "walltime": None},
    ]
    result = simulate(workload=rows, platform=4)
    assert result.metrics.jobs == 4
    assert result.notes == (
        "workload: 1 job left out: run time unknown", "workload: 1 job left out: no number of units",
        "workload: 1 job submitted at 0 s: date of submission unknown", "workload: 1 job without a limit: walltime unknown",
    )  # fmt: skip
    assert "run time unknown" in repr(result)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"workload": [{"units": 1}]}, "no column 'runtime'"),
        (
            {"workload": [{"units": 1, "runtime": 1, "submitted": 5}]},
            "no column 'submitted_at'.*did you mean submitted",
        ),
        ({"workload": [{"units": 1, "runtime": 1, "wall_time": 5}]}, "no column 'walltime'.*did you mean wall_time"),
        ({"workload": [{"units": "many", "runtime": 1}]}, "row 1.*units is not a number"),
        ({"workload": 7}, "not a table"),
        ({"workload": []}, "no job"),
        ({"workload": [ROWS[0], ROWS[0]]}, "two jobs have one id"),
        ({"platform": [{"name": "n"}]}, "no number of cores"),
        ({"platform": [{"cores": 1, "name": "n"}] * 4}, "two nodes have one name"),
        ({"platform": 1}, "larger than the machine"),
        ({"policy": 3}, "not a policy"),
        ({"policy": "esay"}, "no such policy"),
    ],
)
def test_mistakes_are_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        simulate(**{"workload": ROWS, "platform": 4, **wrong})
    assert "\n" not in str(caught.value)


def test_compare_keeps_what_came_to_the_end() -> None:
    class Breaks(Policy):
        def schedule(self, cluster: Cluster) -> None:
            raise ValueError("no idea")

    found = compare(workload=ROWS, platform=4, policies=["fcfs", LongestFirst, Breaks, {"mine": LongestFirst()}])
    assert list(found) == ["fcfs", "LongestFirst", "mine"]
    assert "no idea" in found.failed["Breaks"]
    assert starts(found["fcfs"])["w0!c"] == 150.0
    assert len(frames.rows_of(found.jobs, "jobs")) == 9
    assert [row["policy"] for row in frames.rows_of(found.metrics, "metrics")] == list(found)
    assert "fcfs" in repr(found) and "Breaks" in repr(found)
    with pytest.raises(InputError, match="two are called fcfs"):
        compare(workload=ROWS, platform=4, policies=["fcfs", "fcfs"])


def test_explain_and_plot(tmp_path: Path) -> None:
    result = simulate(workload=ROWS, platform=4)
    assert "backfilled past job w0!b" in result.explain("c")
    with pytest.raises(InputError, match="no job 'zz'"):
        result.explain("zz")
    pytest.importorskip("matplotlib")
    result.plot(str(tmp_path / "one.png"), kinds="gantt")
    compare(workload=ROWS, platform=4).plot(str(tmp_path / "all.svg"))
    assert (tmp_path / "one.png").stat().st_size > 1000 and (tmp_path / "all.svg").stat().st_size > 1000


def test_reports(tmp_path: Path) -> None:
    one = simulate(workload=ROWS, platform=4).to_report(str(tmp_path / "one.html"))
    all_of_them = compare(workload=ROWS, platform=4).to_report(str(tmp_path / "all.html"))
    assert all(Path(path).read_bytes().lstrip().lower().startswith(b"<!doctype html") for path in (one, all_of_them))
    assert Path(one).stat().st_size != Path(all_of_them).stat().st_size


def test_a_decider_is_a_policy_too() -> None:
    from pilothouse import PolicyDecider

    result = simulate(workload=ROWS, platform=4, policy=PolicyDecider(LongestFirst()))
    assert starts(result) == starts(simulate(workload=ROWS, platform=4, policy=LongestFirst))


def test_without_a_library_of_frames_jobs_are_rows() -> None:
    code = (
        "import sys; sys.modules['polars'] = sys.modules['pandas'] = None\n"
        "import importlib.util as u, pilothouse.campaign.frames as f\n"
        "f.find_spec = lambda name: None\n"
        "f.sys = type('S', (), {'modules': {}})\n"
        "import pilothouse\n"
        "print(pilothouse.simulate(workload=[{'units': 1, 'runtime': 5}], platform=1).jobs[0]['ended_at'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "5.0"


def test_the_public_names_are_listed() -> None:
    assert {"simulate", "compare", "Result", "Job", "Policy"} <= set(dir(pilothouse))
    assert all(getattr(pilothouse, name) is not None for name in dir(pilothouse))
