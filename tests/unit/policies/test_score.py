"""Priority functions: the known ones, expressions of the user, and what is not arithmetic."""

import math

import pytest

from pilothouse.launch.comparison import split_policies
from pilothouse.model.errors import InputError
from pilothouse.model.job import Job
from pilothouse.policies import catalog
from pilothouse.policies.score import KNOWN, Expression

JOB = Job("j", 16, walltime=100.0, submitted_at=1000.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spt", 100.0),
        ("saf", 1600.0),
        ("f1", 2 * 16 + 870 * 3),
        ("f2", 10 * 16 + 25600 * 3),
        ("f3", 1600 + 6.86e6 * 3),
        ("f4", 100 * 4 + 5.3e5 * 3),
        ("wfp3", -(0.5**3) * 16),
        ("unicep", -50 / (4 * 100)),
    ],
)
def test_the_functions_of_the_literature(name: str, value: float) -> None:
    assert Expression(KNOWN[name][0])(JOB, 1050.0) == pytest.approx(value)


def test_only_functions_of_the_wait_age() -> None:
    assert {name for name, (text, _) in KNOWN.items() if Expression(text).ages} == {"wfp3", "unicep"}


def test_what_cannot_be_computed_comes_first() -> None:
    assert Expression("w/(log2(n)*r)")(Job("j", 1, 10.0), 5.0) == -math.inf
    assert Expression("log10(w)")(JOB, 1000.0) == -math.inf
    assert Expression("9**9**9**n")(JOB, 1000.0) == -math.inf
    assert Expression("(-r)**0.5")(JOB, 1000.0) == -math.inf


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "r.real",
        "__import__('os')",
        "(lambda: 1)()",
        "r if n else w",
        "[r]",
        "r; n",
        "'a'",
        "min(r, key=n)",
        "r" * 600,
        "print(r)",
        "min(r)",
        "log10()",
        "9" * 400,
    ],
)
def test_nothing_but_arithmetic_gets_through(text: str) -> None:
    with pytest.raises(InputError):
        Expression(text)


def test_an_expression_has_at_most_500_characters() -> None:
    assert Expression("-r" + "+r" * 249)(JOB, 1050.0) == 248 * JOB.walltime
    with pytest.raises(InputError, match="longer than 500"):
        Expression("r" + "+r" * 250)


def test_options_of_policies() -> None:
    assert catalog.parse_options("score=max(r,n),backfill=easy", "x") == {"score": "max(r,n)", "backfill": "easy"}
    for name, options in [
        ("nope", {}),
        ("easy", {"estimate": "3x"}),
        ("easy", {"seed": "1"}),
        ("priority", {}),
        ("random", {"seed": "x"}),
    ]:
        with pytest.raises(InputError):
            catalog.make(name, options)


def test_a_list_of_policies_with_options() -> None:
    assert split_policies("fcfs,easy:estimate=2x,priority:score=max(r,n),backfill=easy,f1") == [
        "fcfs",
        "easy:estimate=2x",
        "priority:score=max(r,n),backfill=easy",
        "f1",
    ]


@pytest.mark.parametrize("text", ["max(n, key=r)", "max(n, r, default=1)", "(n)(r)", "max(n, r)(w)", "n.real", "min(*n)"])
def test_only_plain_calls_are_taken(text: str) -> None:
    with pytest.raises(InputError):
        Expression(text)
    assert Expression("max(n, 3)")(JOB, 1050.0) == 16.0
