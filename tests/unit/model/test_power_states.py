"""The property that says which power states of a node are sleep."""

from __future__ import annotations

import pytest

from pilothouse.model.errors import InputError
from pilothouse.model.job import Node
from pilothouse.model.power_states import SleepState, computes, sleep_states


def node(text: str, states: int = 9) -> Node:
    return Node("a", 0, properties={"sleep_pstates": text}, speeds=(1.0,) * states)


def test_sleep_states_are_triplets() -> None:
    found = node(", 3:4:5, ,6:7:8,")
    assert sleep_states(found) == {3: SleepState(3, 4, 5), 6: SleepState(6, 7, 8)}
    assert [state for state in range(9) if computes(found, state)] == [0, 1, 2]


def test_a_node_without_the_property_computes_in_all_states() -> None:
    assert not sleep_states(Node("a", 0)) and computes(Node("a", 0), 7)


def test_any_number_will_do_where_the_speeds_are_unknown() -> None:
    assert list(sleep_states(node("3:4:5", 0))) == [3]


@pytest.mark.parametrize("text", ["3:4", "a:b:c", "0:1:9", "0:1:-2"])
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match=r"host a: sleep_pstates.*not a sleep state.*expected triplets like 3:4:5"):
        sleep_states(node(text))


def test_how_many_states_there_are_is_said_where_it_is_known() -> None:
    with pytest.raises(InputError, match="not a sleep state: there are 9 pstates"):
        sleep_states(node("0:1:9"))
    with pytest.raises(InputError) as problem:
        sleep_states(node("a:b:c", 0))
    assert "there are" not in str(problem.value)
