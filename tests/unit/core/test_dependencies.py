"""Jobs that wait for other jobs."""

from __future__ import annotations

from pilothouse.core.dependencies import Dependencies, Verdict


def test_an_item_is_ready_held_or_hopeless() -> None:
    known = {"good": True, "bad": False}
    waiting: Dependencies[str] = Dependencies()
    assert waiting.enter(1, "a", (), known.get) is Verdict.READY
    assert waiting.enter(1, "a", ("good",), known.get) is Verdict.READY
    assert waiting.enter(1, "a", ("later", "bad"), known.get) is Verdict.NEVER
    assert waiting.held == {}
    assert waiting.enter(1, "a", ("later", "good"), known.get) is Verdict.WAITS
    assert waiting.held == {1: "a"}


def test_ends_set_free_in_the_order_of_entry() -> None:
    waiting: Dependencies[str] = Dependencies()
    for key, names in ((1, ("x", "y")), (2, ("x",)), (3, ("y",))):
        waiting.enter(key, f"item {key}", names, {}.get)
    assert waiting.ended("x", succeeded=True) == (["item 2"], [])
    assert waiting.ended("y", succeeded=True) == (["item 1", "item 3"], [])
    assert waiting.ended("y", succeeded=True) == ([], [])


def test_a_failure_makes_hopeless_once() -> None:
    waiting: Dependencies[str] = Dependencies()
    waiting.enter(1, "a", ("x", "y"), {}.get)
    assert waiting.ended("x", succeeded=False) == ([], ["a"])
    assert waiting.ended("y", succeeded=True) == ([], []) and waiting.held == {}


def test_what_was_taken_out_is_forgotten() -> None:
    waiting: Dependencies[str] = Dependencies()
    waiting.enter(1, "a", ("x",), {}.get)
    assert waiting.remove(1) == "a" and waiting.remove(1) is None
    assert waiting.ended("x", succeeded=True) == ([], [])


def test_those_behind_one_that_was_taken_out_go_on() -> None:
    waiting: Dependencies[str] = Dependencies()
    for key in (1, 2, 3):
        waiting.enter(key, f"item {key}", ("x",), lambda name: None)
    waiting.remove(1)
    assert waiting.ended("x", succeeded=True) == (["item 2", "item 3"], [])
