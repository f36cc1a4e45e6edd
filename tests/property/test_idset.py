"""IdSet against set[int], in every operation and every text form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.model.masks import first_block

ids = st.sets(st.integers(0, 700))


@given(ids, ids)
def test_operations_are_those_of_sets(a: set[int], b: set[int]) -> None:
    x, y = IdSet.of(a), IdSet.of(b)
    assert set(x | y) == a | b
    assert set(x & y) == a & b
    assert set(x - y) == a - b
    assert set(x ^ y) == a ^ b
    assert x.isdisjoint(y) == a.isdisjoint(b)
    assert x.issubset(y) == a.issubset(b)
    assert (x == y) == (a == b)
    assert len(x) == len(a)
    assert bool(x) == bool(a)
    assert list(x) == sorted(a)
    assert all((i in x) == (i in a) for i in range(0, 702, 7))
    if a == b:
        assert hash(x) == hash(y)


@given(ids, ids, st.integers(0, 90))
def test_a_set_without_the_bits_below_is_the_same_set(a: set[int], b: set[int], shift: int) -> None:
    whole, other = IdSet.of(i + shift for i in a), IdSet.of(b)
    cut = IdSet(IdSet.of(a).mask, shift)
    assert cut == whole and hash(cut) == hash(whole) and cut.mask == whole.mask
    assert (list(cut), len(cut), bool(cut), str(cut)) == (list(whole), len(whole), bool(whole), str(whole))
    assert [i in cut for i in range(0, 800, 3)] == [i in whole for i in range(0, 800, 3)]
    assert (cut | other, cut & other, cut - other, cut ^ other) == (whole | other, whole & other, whole - other, whole ^ other)
    assert (cut.isdisjoint(other), cut.issubset(other), cut.lowest(5)) == (
        whole.isdisjoint(other),
        whole.issubset(other),
        whole.lowest(5),
    )
    assert not a or cut.first() == whole.first()


@given(ids, st.integers(-1, 750))
def test_lowest_takes_the_smallest(a: set[int], count: int) -> None:
    assert list(IdSet.of(a).lowest(count)) == sorted(a)[: max(0, count)]


@given(ids, st.integers(1, 80))
def test_the_first_block_of_neighbours(a: set[int], count: int) -> None:
    starts = [i for i in sorted(a) if all(i + k in a for k in range(count))]
    expected = set(range(starts[0], starts[0] + count)) if starts else set()
    assert set(IdSet(first_block(IdSet.of(a).mask, count))) == expected


@given(ids)
def test_text_forms_round_trip(a: set[int]) -> None:
    x = IdSet.of(a)
    assert IdSet.parse(str(x)) == x
    assert IdSet.parse(x.to_text(",")) == x
    assert IdSet.parse_strict(x.to_text(",")) == x
    assert IdSet.parse_strict(f"[{x.to_text(',')}]") == x
    assert [i for first, last in x.intervals() for i in range(first, last + 1)] == sorted(a)
    if a:
        assert x.first() == min(a)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 20)), max_size=8))
def test_reading_takes_ranges_in_any_order(ranges: list[tuple[int, int]]) -> None:
    text = " ".join(f"{first}-{first + length}" for first, length in ranges)
    assert set(IdSet.parse(text)) == {i for first, length in ranges for i in range(first, first + length + 1)}


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "1.5", "1-2-3", "99999999999"])
def test_rubbish_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        IdSet.parse(text)


@pytest.mark.parametrize("text", ["1 2", "2,1", "1,1", "01", "1-1", "0-3,2", "1,", ",1", " 1"])
def test_rfc_22_is_read_by_its_letter(text: str) -> None:
    with pytest.raises(InputError):
        IdSet.parse_strict(text)
