"""Free units that jobs take and give back, compiled and plain; and the searches in masks against plain loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pilothouse.model import masks
from pilothouse.model.idset import IdSet

MASKS = [*range(130), 0b1111 << 60, (1 << 200) - 1, sum(1 << bit for bit in range(0, 300, 3)), 0b1011 << 150 | 0b1101]
"""All of seven bits, and some wide ones."""


@pytest.mark.parametrize("kind", [masks.FreeUnits, masks.PlainFreeUnits])
def test_units_are_taken_and_given_back_as_far_as_they_are_there(kind: Callable[[int], masks.PlainFreeUnits]) -> None:
    units = kind(0b110111)
    assert (units.take(0b1001), units.mask) == (1, 0b110110)
    assert (units.take(0b1001), units.mask) == (0, 0b110110)
    assert (units.take(0b11, 4), units.mask) == (2, 0b000110)
    assert (units.give(0b11), units.mask) == (1, 0b000111)
    assert (units.give(0b11), units.mask) == (0, 0b000111)
    assert (units.give(0b111, 3), units.mask) == (3, 0b111111)

    def given(bits: int, shift: int) -> int:
        return bits << shift

    assert units.take(0b100) == 1
    assert (given(*units.take_block(3)), units.mask) == (0b111000, 0b000011)
    assert (units.give(0b110, 3), given(*units.take_block(4)), units.mask) == (2, 0b110011, 0)
    units.mask = 0b110110
    assert (given(*units.take_lowest(3)), units.mask) == (0b010110, 0b100000)
    assert (given(*units.take_lowest(3)), units.mask) == (0b100000, 0)


@pytest.mark.parametrize("name", ["lowest_bits", "plain_lowest_bits"])
def test_the_lowest_bits_of_a_mask(name: str) -> None:
    found = getattr(masks, name)
    for mask in MASKS:
        ids = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
        for count in (-1, 0, 1, 2, 3, 5, 8, 64, 99, 250):
            assert found(mask, count) == IdSet.of(ids[: max(0, count)]).mask


@pytest.mark.parametrize("name", ["first_block", "plain_first_block"])
def test_the_first_block_of_a_mask(name: str) -> None:
    found = getattr(masks, name)
    for mask in MASKS:
        for count in (1, 2, 3, 4, 5, 7, 8, 100):
            block = (1 << count) - 1
            starts = [bit for bit in range(mask.bit_length()) if mask >> bit & block == block]
            assert found(mask, count) == (block << starts[0] if starts else 0)


@pytest.mark.parametrize("name", ["mask_text", "plain_mask_text"])
def test_the_text_of_a_mask(name: str) -> None:
    text = getattr(masks, name)
    assert [text(mask, " ") for mask in (0, 1, 0b11, 0b1011, 0b11011 << 3)] == ["", "0", "0-1", "0-1 3", "3-4 6-7"]
    assert text(0b1011, ",", 10) == "10-11,13"


def test_the_number_of_bits() -> None:
    for count in (masks.bit_count, masks.plain_bit_count):
        assert [count(mask) for mask in (0, 1, 0b1011, 1 << 99)] == [0, 1, 3, 1]
