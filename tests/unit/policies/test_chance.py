"""The shuffle of the policy `random`: that of Python's Random, in C and in Python."""

from random import Random

import pytest

from pilothouse.policies import chance


@pytest.mark.parametrize("shuffle", [chance.plain_shuffle, chance.shuffle], ids=["in Python", "as used"])
def test_it_is_the_shuffle_of_random(shuffle) -> None:  # type: ignore[no-untyped-def]
    ours, theirs = chance.Chance(seed=5), Random(5)
    words, used = b"", 0
    for count in [0, 1, 2, 3, 4, 5, 7, 8, 9, 1000, 3000, 17, 4096, 2]:
        mine, expected = list(range(count)), list(range(count))
        words, used = shuffle(mine, words, used, ours._more_words)
        theirs.shuffle(expected)
        assert mine == expected, count


def test_nonsense_is_refused() -> None:
    with pytest.raises(TypeError):
        chance.shuffle([1, 2], b"", 0, lambda: "words")  # type: ignore[arg-type, list-item, return-value]
