"""The order of the policy `random`: that of Python's Random, in C and in Python."""

from array import array
from random import Random

import pytest

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


def test_nonsense_is_refused() -> None:
    for state in (array("I", [1, 2]), b"12", None):
        with pytest.raises((TypeError, ValueError)):
            chance.draw(array("q", [1, 2]), 1, state)  # type: ignore[arg-type]
