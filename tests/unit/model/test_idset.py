"""Sets of ids: the edges of their text forms, and sets that are kept without the bits below."""

from __future__ import annotations

import pytest

from pilothouse.model.errors import InputError
from pilothouse.model.idset import MOST_ID, IdSet


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []), ("  ", []), ("[]", []), ("3", [3]), ("0-3", [0, 1, 2, 3]), ("2-2", [2]), ("7 0-1", [0, 1, 7]),
        ("[4,1]", [1, 4]), (" [1-2 5] ", [1, 2, 5]), ("1,,2", [1, 2]), ("1-3 2-4", [1, 2, 3, 4]), ("007", [7]),
        (f"{MOST_ID}", [MOST_ID]),
    ],
)  # fmt: skip
def test_any_text_form_is_read(text: str, ids: list[int]) -> None:
    assert list(IdSet.parse(text)) == ids


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1", "not a set of ids"), ("1]", "not a set of ids"), ("x", "not a set of ids"), ("1-2-3", "not a set of ids"),
        ("3-2", "runs backwards"), (f"{MOST_ID + 1}", "an id above"), (f"0-{MOST_ID + 1}", "an id above"),
    ],
)  # fmt: skip
def test_what_is_no_set_is_refused_in_words(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"id set: .*{problem}"):
        IdSet.parse(text)
    with pytest.raises(InputError, match=f"here: .*{problem}"):
        IdSet.parse(text, where="here")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []), ("[]", []), ("0", [0]), ("0-1", [0, 1]), ("[1-2,4]", [1, 2, 4]), ("0-3,4", [0, 1, 2, 3, 4]),
        (f"{MOST_ID}", [MOST_ID]),
    ],
)  # fmt: skip
def test_rfc_22_is_read(text: str, ids: list[int]) -> None:
    assert list(IdSet.parse_strict(text)) == ids


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1", "not an RFC 22"), ("1]", "not an RFC 22"), ("1-", "not an RFC 22"), ("-1", "not an RFC 22"),
        ("1-02", "not an RFC 22"), ("02-3", "not an RFC 22"), ("3-2", "ascends"), ("2-2", "ascends"),
        ("0-3,3", "ascends"), ("4,0-3", "ascends"), (f"{MOST_ID + 1}", "an id above"), (f"0-{MOST_ID + 1}", "an id above"),
    ],
)  # fmt: skip
def test_what_is_not_rfc_22_is_refused_in_words(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"idset: .*{problem}"):
        IdSet.parse_strict(text)


def test_the_ids_of_a_set_that_is_kept_without_the_bits_below() -> None:
    cut = IdSet(0b1101, 5)
    assert cut.mask == 0b1101 << 5 and list(cut) == [5, 7, 8] and list(cut.intervals()) == [(5, 5), (7, 8)]
    assert [item for item in range(-2, 12) if item in cut] == [5, 7, 8]
    assert "5" not in cut and None not in cut and 5.0 not in cut
    assert (cut.first(), len(cut), str(cut), cut.to_text(",")) == (5, 3, "5 7-8", "5,7-8")
    assert cut.lowest(2) == IdSet.parse("5 7") and cut == IdSet.of([5, 7, 8]) and cut != {5, 7, 8}


def test_an_empty_set_has_no_first_id() -> None:
    with pytest.raises(ValueError, match="empty"):
        IdSet().first()
    assert IdSet().mask == IdSet(0, 9).mask == 0 and not IdSet(0, 9)
    assert IdSet.span(3, 0) == IdSet() and IdSet.span(3, 2) == IdSet.of([3, 4])
