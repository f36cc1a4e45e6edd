"""The order of the policy `random`: that of Python's Random, in C and in Python."""

from array import array
from random import Random

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.model import events as e
from pilothouse.model.job import Job, Node
from pilothouse.policies import chance


@pytest.mark.parametrize("draw", [chance.plain_draw, chance.draw], ids=["in Python", "as used"])
@pytest.mark.parametrize("free", [10, 3])
def test_it_is_the_shuffle_of_random(draw, free: int) -> None:  # type: ignore[no-untyped-def]
    state, theirs = chance.state_of(Random(5)), Random(5)
    for count in [0, 1, 2, 3, 4, 5, 7, 8, 9, 1000, 3000, 17, 4096, 2]:
        units = array("q", [place % 10 + 1 for place in range(count)])
        expected = list(range(count))
        theirs.shuffle(expected)
        assert draw(units, free, state) == [place for place in expected if units[place] <= free], count


def test_the_seed_is_0_unless_another_is_given() -> None:
    def order(policy: chance.Chance) -> list[str]:
        begins = e.Begins((Node("n", 0, 50),))
        decider = PolicyDecider(policy)
        decider.begin(begins, Cluster(begins, "random"))
        batch = e.Batch(0.0, [e.JobSubmitted(0.0, Job(str(number), 1)) for number in range(50)])
        return [decision.job_id for decision in decider.decide(batch).decisions]  # type: ignore[union-attr]

    expected = [str(number) for number in range(50)]
    Random(0).shuffle(expected)
    assert order(chance.Chance()) == order(chance.Chance(0)) == expected
    assert order(chance.Chance(1)) != expected


def test_nonsense_is_refused() -> None:
    for state in (array("I", [1, 2]), b"12", None):
        with pytest.raises((TypeError, ValueError)):
            chance.draw(array("q", [1, 2]), 1, state)  # type: ignore[arg-type]
