"""The judge of Slurm trials finds what must not be, in lines as slurmctld logs them."""

from __future__ import annotations

from datetime import datetime

import pytest
from tests.interop.slurm_verdict import judge

DAY = "2026-01-01T00:00:"


def order(second: float, job: str, nodes: str) -> list[str]:
    at = f"[{DAY}{second:06.3f}]"
    return [
        f"{at} _update_job: setting partition to go for JobId={job}",
        f"{at} sched: _update_job: setting req_nodes to {nodes} for JobId={job}",
    ]


def start(second: float, job: str, nodes: str) -> str:
    return f"[{DAY}{second:06.3f}] sched: Allocate JobId={job} NodeList={nodes} #CPUs=4 Partition=go"


def end(second: float, job: str) -> str:
    return f"[{DAY}{second:06.3f}] _job_complete: JobId={job} done"


FINE = [
    *order(1, "1", "n1,n2"),
    start(2, "1", "n[1-2]"),
    end(4, "1"),
    *order(5, "7_3(9)", "n2"),
    start(6, "7_3(9)", "n2"),
]
REQUEUED = [*order(1, "1", "n1,n2"), start(2, "1", "n[1-2]"), *order(5, "2", "n2"), start(6, "2", "n2")]


def test_a_run_without_fault() -> None:
    assert judge(FINE, {"7_3": "1"}, {}) == {
        "starts": 2, "median wait of an order": 1.0, "longest wait of an order": 1.0,
    }  # fmt: skip


def test_the_nodes_of_a_requeued_job_are_free_one_by_one() -> None:
    asked_at = datetime.fromisoformat(f"{DAY}04").timestamp()
    assert judge(REQUEUED, {}, {"1": asked_at})["starts"] == 2
    with pytest.raises(AssertionError, match=r"ordered to {'n2'}, where job 1 was"):
        judge(REQUEUED, {}, {})


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        ([*order(1, "1", "n1"), *order(1.1, "2", "n1,n2")], "job 2 was ordered to {'n1'}, where job 1 was"),
        ([*order(1, "1", "n1"), start(2, "1", "n2")], "job 1 was ordered to {'n1'} and started on {'n2'}"),
        ([*order(1, "2", "n1"), start(2, "2", "n1")], "job 2 started before 1 had ended"),
        ([*order(1, "3", "n3"), *order(9, "4", "n4"), start(9.5, "4", "n4"), start(9.6, "3", "n3")], "job 3 was overtaken"),
    ],
)  # fmt: skip
def test_faults(log: list[str], problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        judge(log, {"2": "1"}, {})
