"""The compiled twins give what the Python ones give: bitmasks, rows of jobs.csv."""

import random
from math import inf, nan, nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.formats.jobs_csv import plain_row
from pilothouse.model import masks

compiled_masks = pytest.importorskip("pilothouse.model._masks", reason="not compiled here")
compiled_rows = pytest.importorskip("pilothouse.formats._rows", reason="not compiled here")

MASKS = st.one_of(
    st.integers(0, 2**70),
    st.integers(0, 2**600),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 70)), max_size=12).map(
        lambda runs: sum({1 << (i * 80 + first % 10 + k) for i, (first, size) in enumerate(runs) for k in range(size)})
    ),
)
COUNTS = st.integers(-2, 90)


@given(MASKS, COUNTS)
def test_the_first_block(mask: int, count: int) -> None:
    expected = masks.plain_first_block(mask, count) if count > 0 else 0
    assert compiled_masks.first_block(mask, count) == expected


@given(MASKS, COUNTS)
def test_the_lowest_bits(mask: int, count: int) -> None:
    assert compiled_masks.lowest_bits(mask, count) == masks.plain_lowest_bits(mask, count)


@given(MASKS)
def test_the_number_of_bits(mask: int) -> None:
    assert compiled_masks.bit_count(mask) == mask.bit_count()


@given(MASKS, st.sampled_from([" ", ",", "", " and ", "é"]))
def test_the_text_of_a_mask(mask: int, separator: str) -> None:
    assert compiled_masks.mask_text(mask, separator) == masks.plain_mask_text(mask, separator)
    assert compiled_masks.mask_text(mask, separator, 7) == masks.plain_mask_text(mask << 7, separator)
    assert masks.plain_mask_text(mask, separator, 7) == masks.plain_mask_text(mask << 7, separator)


def test_a_text_longer_than_any_buffer() -> None:
    mask = sum(1 << i for i in range(0, 60_000, 2))
    assert compiled_masks.mask_text(mask, " ") == " ".join(str(i) for i in range(0, 60_000, 2))
    assert compiled_masks.mask_text(mask, "=" * 500) == ("=" * 500).join(str(i) for i in range(0, 60_000, 2))


CHANGES = st.one_of(
    st.tuples(st.sampled_from(["take_block", "take_lowest"]), st.integers(0, 400)),
    st.tuples(st.sampled_from(["take", "give", "give back"]), MASKS),
)


@given(MASKS, st.integers(0, 3000), st.lists(CHANGES, max_size=30))
def test_free_units(mask: int, shift: int, changes: list[tuple[str, int]]) -> None:
    compiled, plain, taken = compiled_masks.FreeUnits(mask << shift), masks.PlainFreeUnits(mask << shift), []
    for what, value in changes:
        if what == "give back" and taken:
            bits = taken.pop()
            assert compiled.give(*bits) == plain.give(*bits) == bits[0].bit_count()
        elif what.startswith("take_"):
            bits, up = getattr(compiled, what)(value)
            assert (bits << up, 0) == getattr(plain, what)(value)
            taken.append((bits, up))
        else:
            method = "take" if what == "take" else "give"
            assert getattr(compiled, method)(value, shift) == getattr(plain, method)(value, shift)
            taken.clear()  # some of these may be free again
        if value % 3:
            assert compiled.mask == plain.mask
    assert compiled.mask == plain.mask
    compiled.mask = plain.mask = mask
    bits, up = compiled.take_block(3)
    assert (bits << up, 0) == plain.take_block(3) and compiled.mask == plain.mask


def test_free_units_on_a_wide_machine() -> None:
    """Blocks of every width are found where they lie, over all borders of the tree."""
    rng = random.Random(3)
    compiled, plain, held = compiled_masks.FreeUnits(2**20_000 - 1), masks.PlainFreeUnits(2**20_000 - 1), []
    for _ in range(3000):
        if held and rng.random() < 0.48:
            bits, shift = held.pop(rng.randrange(len(held)))
            assert compiled.give(bits, shift) == plain.give(bits, shift) == bits.bit_count()
        else:
            count = int(700 ** rng.random())
            held.append(compiled.take_block(count))
            assert plain.take_block(count) == (held[-1][0] << held[-1][1], 0)
    assert compiled.mask == plain.mask
    assert max(bits.bit_length() for bits, _ in held) < 6000, "bits below the first unit are not kept"


@pytest.mark.parametrize("nonsense", [-1, "1", 1.5, None])
def test_free_units_refuse_nonsense(nonsense: object) -> None:
    free = compiled_masks.FreeUnits(2**100 - 1)
    for function in (compiled_masks.FreeUnits, free.give, free.take):
        with pytest.raises((ValueError, TypeError)):
            function(nonsense)
    with pytest.raises((ValueError, TypeError)):
        free.mask = nonsense
    assert free.mask == 2**100 - 1


@pytest.mark.parametrize("nonsense", [(-1, 2), ("1", 2), (3,), (1, "x")])
def test_masks_refuse_nonsense(nonsense: tuple[object, ...]) -> None:
    for function in (compiled_masks.first_block, compiled_masks.lowest_bits):
        with pytest.raises((ValueError, TypeError)):
            function(*nonsense)
    with pytest.raises((ValueError, TypeError)):
        compiled_masks.bit_count(-1 if nonsense[0] == 1 else str(nonsense[0]))


NUMBERS = st.one_of(
    st.floats(-1e12, 1e12),
    st.integers(-(10**9), 10**9).map(lambda n: n / 1000),
    st.integers(-(10**12), 10**12).map(lambda n: n / 2_000_000),
    st.sampled_from([0.0, -0.0, 5e-7, 1.5e-6, -1e-9, 9007199254.740992, 1e22, 1.7e308, -1.7e308, 5e-324, inf, -inf, nan]),
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)


@given(TEXTS, NUMBERS, st.integers(-(2**62), 2**62), NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans())
def test_a_row(
    text: str, submitted: float, units: int, walltime: float, start: float, run: float, end: float, energy: float, ok: bool
) -> None:
    row = (text, "w", text, submitted, units, walltime, ok, "S", start, run, end, "0-3 " + text, energy, text)
    assert compiled_rows.row(*row) == plain_row(*row)


@given(st.floats(0, 1e10), st.integers(-3, 3))
def test_numbers_next_to_a_tie(value: float, steps: int) -> None:
    tie = (int(value * 1e6) + 0.5) / 1e6
    for _ in range(abs(steps)):
        tie = nextafter(tie, inf if steps > 0 else -inf)
    row = ("1", "w", "p", tie, 1, tie, True, "S", tie, 1.0, tie, "0", tie, "")
    assert compiled_rows.row(*row) == plain_row(*row)


def test_a_long_row() -> None:
    row = ("x" * 5000, "w", "p", 1.0, 1, 1.0, True, "S", 1.0, 1.0, 2.0, "0 " * 4000, 1.0, "é" * 3000)
    assert compiled_rows.row(*row) == plain_row(*row)
