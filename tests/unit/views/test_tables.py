"""Tables of a comparison: who gets the star, and what fits into 80 columns."""

from __future__ import annotations

from math import inf, nan

import msgspec

from pilothouse.views.metrics import Metrics, Spread
from pilothouse.views.tables import comparison

NOTHING = Spread(nan, nan, nan, nan)
IDLE = Metrics(0, 0, 0, 0, 0, 0, NOTHING, NOTHING, NOTHING, NOTHING, 0.0, 0.0, 0.0)


def metrics(mean: float, *, jobs: int = 10, rejected: int = 0, makespan: float = 100.0) -> Metrics:
    spread = Spread(mean, mean, mean, mean)
    return msgspec.structs.replace(
        IDLE, jobs=jobs, succeeded=jobs - rejected, rejected=rejected, wait=spread, turnaround=spread, slowdown=spread,
        bounded_slowdown=spread, utilisation=0.5, makespan=makespan,
    )  # fmt: skip


def stars(text: str, policy: str) -> int:
    """Marks in the column of a policy."""
    lines = text.splitlines()
    end = lines[0].index(policy) + len(policy)
    return sum(line[end : end + 1] == "*" or line[end - 1 : end] == "*" for line in lines[1:])


def test_a_policy_that_ran_nothing_gets_no_star() -> None:
    text = comparison({"busy": metrics(5.0), "slow": metrics(7.0, makespan=200.0), "idle": IDLE})
    assert " 0*" not in text
    assert stars(text, "idle") == 0
    assert "100*" in text
    idle = comparison({"idle": IDLE, "as idle": IDLE})
    assert "*" not in idle


def test_a_policy_that_left_jobs_out_gets_no_star() -> None:
    text = comparison({"all": metrics(5.0), "some": metrics(1.0, rejected=4)})
    assert stars(text, "some") == 0


def test_policies_are_rows_where_the_terminal_is_narrow() -> None:
    runs = {name: metrics(float(place)) for place, name in enumerate(("easy", "fcfs", "conservative", "easy-sjbf", "f1"), 1)}
    wide = comparison(runs)
    assert max(map(len, wide.splitlines())) > 80
    narrow = comparison(runs, width=80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.count("*") == wide.count("*")
    assert narrow.splitlines()[1].split() == ["easy", "1*", "1*", "1*", "1*"]
    assert comparison(runs, width=200) == wide


def test_infinite_slowdowns_are_shown() -> None:
    """Jobs that ran 0 s and waited have them (CEA-Curie has many)."""
    text = comparison({"some": metrics(inf), "none": metrics(1.0)})
    assert "inf" in text


def test_long_names_are_cut() -> None:
    runs = {f"priority:score=r*n,backfill=easy,estimate={name}": metrics(1.0) for name in ("requested", "clairvoyant")}
    assert max(map(len, comparison(runs, width=80).splitlines())) <= 80
