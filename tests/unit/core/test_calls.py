"""Calls at dates and at the multiples of a period."""

from __future__ import annotations

from math import inf

from pilothouse.core.calls import Calls, next_multiple
from pilothouse.model.decisions import CallAt, CallEvery, StopCalls
from pilothouse.model.events import CallArrived


def test_calls_come_in_order_and_series_keep_to_their_multiples() -> None:
    calls = Calls()
    calls.ask(CallAt(0.0, 5.0, "once"), 0.0)
    calls.ask(CallEvery(0.5, 2.0, "thrice", 3), 0.5)
    calls.ask(CallEvery(0.5, 1.0, "stopped"), 0.5)
    calls.ask(StopCalls(0.6, "stopped"), 0.6)
    assert calls.due(2.0) == [CallArrived(2.0, "thrice", False)]
    assert calls.due(4.5) == [CallArrived(4.5, "thrice", False)]
    assert calls.due(6.0) == [CallArrived(6.0, "once"), CallArrived(6.0, "thrice", True)]
    assert calls.next_at == inf


def test_a_late_world_skips_what_it_missed() -> None:
    calls = Calls()
    calls.ask(CallEvery(0.0, 1.0, "tick"), 0.0)
    assert calls.due(10.5) == [CallArrived(10.5, "tick", False), CallArrived(10.5, "tick", False)]
    assert calls.next_at == 11.0


def test_an_id_may_be_used_again_after_its_series_was_stopped() -> None:
    calls = Calls()
    calls.ask(CallEvery(0.0, 5.0, "x"), 0.0)
    calls.ask(StopCalls(1.0, "x"), 1.0)
    calls.ask(CallEvery(1.0, 2.0, "x", 1), 1.0)
    assert calls.due(20.0) == [CallArrived(20.0, "x", True)]


def test_the_next_multiple_is_never_now() -> None:
    assert (next_multiple(0.0, 2.0), next_multiple(2.0, 2.0), next_multiple(3.9, 2.0)) == (2.0, 4.0, 4.0)


def test_calls_of_one_date_come_in_the_order_in_which_they_were_asked_for() -> None:
    calls = Calls()
    for call_id in ("b", "a", "c"):
        calls.ask(CallAt(0.0, 5.0, call_id), 0.0)
    assert [call.call_id for call in calls.due(5.0)] == ["b", "a", "c"]


def test_a_stopped_series_stays_stopped_when_its_id_is_used_again() -> None:
    calls = Calls()
    calls.ask(CallEvery(0.0, 5.0, "x"), 0.0)
    calls.ask(StopCalls(1.0, "x"), 1.0)
    calls.ask(CallEvery(1.0, 100.0, "x"), 1.0)
    assert (calls.due(50.0), calls.next_at) == ([], 100.0)
    assert calls.due(100.0) == [CallArrived(100.0, "x", False)]


def test_nothing_is_due_after_all_was_forgotten() -> None:
    calls = Calls()
    calls.ask(CallAt(0.0, 5.0, "once"), 0.0)
    calls.ask(CallEvery(0.0, 5.0, "x"), 0.0)
    assert calls.next_at == 5.0
    calls.clear()
    assert (calls.due(50.0), calls.next_at) == ([], inf)
