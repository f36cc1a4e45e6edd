"""Error lines: one line each, cut to what a terminal can show."""

from __future__ import annotations

from pilothouse.model.errors import (
    DecisionError,
    InputError,
    PeerError,
    PilothouseError,
    RunError,
    one_line,
    quoted,
    suggestion,
)
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


def test_only_what_is_known_is_said() -> None:
    assert str(InputError("a.json", "wrong")) == "a.json: wrong"
    assert str(InputError("a.json", "wrong", expected="1")) == "a.json: wrong; expected 1"
    assert str(InputError("a.json", "wrong", found="2")) == "a.json: wrong; found 2"
    assert str(InputError("", "wrong", hint="do")) == "wrong (do)"
    assert str(PeerError("peer", "went")) == "peer: went"
    assert str(DecisionError("easy", 0, "rule", "why")) == "easy: decision 0 refused (rule): why"
    error = InputError("a.json", "wrong")
    assert (error.where, error.problem) == ("a.json", "wrong")
    peer, decision = PeerError("peer", "went"), DecisionError("easy", 4, "rule", "why")
    assert (peer.peer, peer.problem) == ("peer", "went")
    assert (decision.decider, decision.index, decision.rule, decision.detail) == ("easy", 4, "rule", "why")


def test_how_long_a_line_and_a_value_may_be() -> None:
    assert one_line("x" * 1000) == "x" * 1000 and one_line("x" * 1001) == "x" * 999 + "…"
    assert quoted("x" * 58) == repr("x" * 58) and quoted("x" * 59) == repr("x" * 58)[:59] + "…"


def test_a_near_name_is_suggested() -> None:
    assert suggestion("esay", ["fcfs", "easy", "easier"]) == "did you mean easy?"
    assert suggestion("qqq", ["fcfs", "easy"]) == suggestion("easy", []) == ""
