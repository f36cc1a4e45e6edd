"""Every world answers to every decision: what it does not list is refused in words."""

from __future__ import annotations

import pytest

from pilothouse.core.decision_table import DECISIONS, WHAT, cannot, nothing, table
from pilothouse.model import decisions as d
from pilothouse.model.errors import DecisionError


def test_a_table_has_a_handler_for_each_decision_and_refuses_what_is_not_listed() -> None:
    done: list[d.Decision] = []
    made = table({d.KillJobs: lambda owner, decision: done.append(decision), d.Annotate: nothing}, "a shed")
    assert set(made) == set(DECISIONS) == set(WHAT)
    kill = d.KillJobs(1.0, ("a",))
    made[d.KillJobs](None, kill)
    made[d.Annotate](None, d.Annotate(1.0, "a", {}))
    assert done == [kill]
    with pytest.raises(DecisionError) as refused:
        made[d.MeasureEnergy](None, d.MeasureEnergy(1.0))
    error = refused.value
    assert (error.decider, error.index, error.rule) == ("decider", 0, "not in this world")
    assert error.detail == "MeasureEnergy: this world (a shed) cannot measure energy"


def test_the_decider_and_the_place_of_a_decision_may_be_named() -> None:
    error = cannot(d.StopWorld(1.0), "a shed", "mine", 3)
    assert (error.decider, error.index) == ("mine", 3)
    assert str(error).endswith("StopWorld: this world (a shed) cannot be stopped by the decider")


def test_only_decisions_are_listed() -> None:
    with pytest.raises(AssertionError, match="not decisions"):
        table({str: nothing}, "a shed")
