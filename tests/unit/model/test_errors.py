"""Error lines: one line each, cut to what a terminal can show."""

from __future__ import annotations

from pilothouse.model.errors import DecisionError, InputError, PeerError, PilothouseError, RunError, one_line, quoted
from pilothouse.model.numerals import whole_number


def test_an_input_error_says_where_what_and_what_to_do() -> None:
    error = InputError("a.json:3", "not a number", expected="1 or more", found="'x'", hint="look again")
    assert str(error) == "a.json:3: not a number; expected 1 or more, found 'x' (look again)"
    assert str(InputError("", "wrong", found="'x'")) == "wrong; found 'x'"
    assert [kind.exit_code for kind in (InputError, PeerError, DecisionError, RunError, PilothouseError)] == [2, 1, 1, 1, 1]


def test_other_errors_name_who_is_to_blame() -> None:
    assert str(PeerError("peer", "went", event="E", hint="h")) == "peer: E: went (h)"
    error = DecisionError("easy", 2, "busy units", "unit 3", where="f.py:1")
    assert str(error) == "easy at f.py:1: decision 2 refused (busy units): unit 3"


def test_long_texts_are_cut() -> None:
    assert one_line("a\n b\t c") == "a b c"
    assert one_line("x" * 10, 10) == "x" * 10 and one_line("x" * 11, 10) == "x" * 9 + "…"
    assert quoted("x" * 8, 10) == repr("x" * 8) and quoted("x" * 9, 10) == repr("x" * 9)[:9] + "…"


def test_whole_numbers_are_plain_digits() -> None:
    assert [whole_number(text) for text in ("0", "07", "12", "9" * 18)] == [0, 7, 12, 10**18 - 1]
    assert [whole_number(text) for text in ("", "-1", "+1", "1.0", "²", "٣", " 1", "9" * 19)] == [None] * 8
