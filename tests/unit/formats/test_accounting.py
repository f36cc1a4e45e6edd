"""Rows of an accounting as jobs: what is left out, what is guessed, what is cut, and which dates count."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from pilothouse.formats.accounting import AccountedJob, Fate, workload
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError


def row(**changes: Any) -> AccountedJob:
    """One CPU for 100 s, of at most 200 s, submitted at 1000 and started at 1010."""
    fields: dict[str, Any] = {
        "id": "1", "fate": Fate.FINISHED, "cpus": 1, "submitted_at": 1000.0, "started_at": 1010.0, "ended_at": 1110.0,
        "limit_s": 200.0, **changes,
    }  # fmt: skip
    return AccountedJob(**fields)


def made(*rows: AccountedJob, units: int = 0, **more: Any) -> Workload:
    return workload(rows, "log", "w", units=units, **more)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fate": Fate.WAITING}, "still waiting"),
        ({"started_at": None}, "never started"),
        ({"fate": Fate.RUNNING}, "still running"),
        ({"ended_at": None}, "date of end unknown"),
        ({"submitted_at": None}, "date of submission unknown"),
        ({"cpus": None}, "no number of CPUs"),
        ({"cpus": 0}, "no number of CPUs"),
        ({"cpus": 5}, "larger than the machine"),
    ],
)
def test_rows_that_are_left_out(changes: dict[str, Any], words: str) -> None:
    found = made(row(), row(id="2", **changes), units=4, left_out={"a step": 3, "nothing": 0})
    assert [job.id for job in found.jobs] == ["w!1"]
    (what,) = [key for key in found.oddities if key != "left out: a step"]
    assert what.startswith("left out: ") and words in what and found.oddities[what] == 1
    assert found.oddities["left out: a step"] == 3
    with pytest.raises(InputError, match="no job in it that ran"):
        made(row(**changes), units=4)


@pytest.mark.parametrize(("cpus", "units"), [(4, 4), (5, 0)])
def test_a_job_as_large_as_the_machine_is_kept(cpus: int, units: int) -> None:
    (job,) = made(row(cpus=cpus), units=units).jobs
    assert job.units == cpus


@pytest.mark.parametrize(
    ("changes", "run_s", "walltime", "odd"),
    [
        ({}, 100.0, 200.0, None),
        ({"run_s": 60.0}, 60.0, 200.0, None),
        ({"run_s": 60.0, "ended_at": None}, 60.0, 200.0, None),
        ({"run_s": -5.0}, 0.0, 200.0, None),
        ({"limit_s": 100.0}, 100.0, 100.0, None),
        ({"limit_s": None}, 100.0, 101.0, "walltime guessed"),
        ({"limit_s": 0.0}, 100.0, 101.0, "walltime guessed"),
        ({"limit_s": inf}, 100.0, inf, "without a time limit"),
        ({"limit_s": 99.0}, 100.0, 99.0, "ran longer"),
        ({"limit_s": 99.0, "fate": Fate.TIME_LIMIT}, 99.0, 99.0, "ended by the time limit"),
        ({"fate": Fate.CUT_SHORT}, 100.0, 200.0, "cancelled, preempted or lost"),
        ({"fate": Fate.REQUEUED}, 100.0, 200.0, "an earlier run"),
        ({"suspended_s": 0.5}, 100.0, 200.0, "suspended"),
        ({"part": True}, 100.0, 200.0, "heterogeneous"),
    ],
)
def test_how_long_jobs_run(changes: dict[str, Any], run_s: float, walltime: float, odd: str | None) -> None:
    found = made(row(user="eve", **changes))
    (job,) = found.jobs
    assert (job.runtime, job.walltime, job.user, job.submitted_at) == (run_s, walltime, "eve", 0.0)
    assert job.profile is not None and job.profile.name in found.profiles
    assert [odd in what and count for what, count in found.oddities.items() if odd] == ([1] if odd else [])
    assert bool(found.oddities) is (odd is not None)


@pytest.mark.parametrize(
    ("eligible", "submitted", "odd"), [(None, 0, 0), (1000.0, 0, 0), (1005.0, 5, 1), (1010.0, 10, 1), (1011.0, 0, 0)]
)
def test_a_job_is_submitted_when_it_became_eligible(eligible: float | None, submitted: float, odd: int) -> None:
    first = row(id="0", ended_at=1012.0)
    found = made(row(eligible_at=eligible), first)
    assert {job.id: job.submitted_at for job in found.jobs} == {"w!0": 0.0, "w!1": submitted}
    assert sum(count for what, count in found.oddities.items() if "eligible" in what) == odd


def test_order_runs_of_one_job_and_shared_profiles() -> None:
    found = made(row(id="b"), row(id="a"), row(id="b", submitted_at=1500.0, started_at=1500.0, ended_at=1600.0))
    assert [(job.id, job.submitted_at) for job in found.jobs] == [("w!a", 0.0), ("w!b", 0.0), ("w!b#2", 500.0)]
    assert len(found.profiles) == 1 and found.path.endswith("/log")


@pytest.mark.parametrize(("later", "early"), [(0, 0), (1, 0), (2, 2)])
def test_jobs_that_were_there_when_the_log_begins_are_counted(later: int, early: int) -> None:
    """They are those that were submitted before the first of all ends, if there are several, and others after them."""
    before = [row(id=f"early{number}") for number in range(later)]
    after = row(id="late", submitted_at=2000.0, started_at=2000.0, ended_at=2001.0)
    found = made(*before, after)
    assert [count for what, count in found.oddities.items() if "when the log begins" in what] == ([early] if early else [])
