"""Flux job ids: every form is read, and new ones ascend."""

from __future__ import annotations

import itertools

import pytest

from pilothouse.formats import fluid
from pilothouse.model.errors import InputError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("f1", 0), ("1234", 1234), ("0x1F", 31), ("0000.0000.0000.00ff", 255), ("ƒ2", 1), (" f21 ", 58),
        (str(2**64 - 1), 2**64 - 1), ("0xffffffffffffffff", 2**64 - 1),
    ],
)  # fmt: skip
def test_forms(text: str, number: int) -> None:
    assert fluid.parse(text) == number
    assert fluid.parse(fluid.to_f58(number)) == number == fluid.parse(fluid.to_dothex(number))


@pytest.mark.parametrize("text", ["", "f", "f0", "-1", "x", str(2**64), "0x", "0x1ffffffffffffffff", "00.00", "²"])
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(InputError):
        fluid.parse(text)


def test_ids_ascend_when_a_millisecond_is_full_and_when_the_clock_goes_back() -> None:
    source = fluid.FluidSource(3)
    made = [source.make(5) for _ in range(3000)] + [source.make(4), source.make(9), source.make(9)]
    assert all(one < other for one, other in itertools.pairwise(made))
    assert made[0] == 5 << 24 | 3 << 10 and made[1] == made[0] + 1 and made[-2] == 9 << 24 | 3 << 10
    assert all(number >> 10 & 0x3FFF == 3 for number in made)


def test_a_full_millisecond_is_followed_by_the_first_id_of_the_next() -> None:
    source = fluid.FluidSource(3)
    made = [source.make(5) for _ in range(2048)]
    over = next(number for number in made if number >> 24 == 6)
    assert over == 6 << 24 | 3 << 10
