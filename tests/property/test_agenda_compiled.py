"""The compiled agenda runs what the one in Python runs, in the same order, whatever is entered or taken back meanwhile."""

import gc
import weakref
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.worlds.simulated.physics.agenda import Agenda

compiled = pytest.importorskip("pilothouse.worlds.simulated.physics._agenda", reason="not compiled here")

SECONDS = st.sampled_from([0.0, 0.1, 0.25, 1.0, 1.0, 3.5, 1e9])
ENTER = st.tuples(st.sampled_from(["at", "after", "work"]), SECONDS, st.integers(0, 3))
RUN = st.tuples(st.sampled_from(["run_next", "run_until", "pop", "next_date"]), SECONDS, st.just(0))
CANCEL = st.tuples(st.just("cancel"), st.just(0.0), st.integers(0, 20))
FIRST = st.tuples(st.just("first_at"), SECONDS, st.just(0))
STORY = st.lists(st.one_of(ENTER, ENTER, RUN, CANCEL, FIRST), max_size=50)


class Stage:
    """Plays a story on an agenda and keeps what it said. A callback may enter another, or take one back."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self.entered: list[int] = []
        self.first: float | None = None
        self.said: list[object] = []

    def play(self, story: list[tuple[str, float, int]]) -> list[object]:
        for what, seconds, number in story:
            self.said.append((what, self.do(what, seconds, number), self.agenda.now))
        self.agenda.run_until(1e15)
        return self.said

    def do(self, what: str, seconds: float, number: int) -> object:
        agenda = self.agenda
        if what == "cancel":
            return self.cancel(number)
        if what == "first_at":
            if self.first is None:  # one at a time
                self.first = agenda.now + seconds
                agenda.first_at(self.first, self.first_called)
        elif what == "pop":
            if agenda.next_date() < inf:
                date, number, _, argument = agenda.pop()
                if number in self.entered:
                    self.entered.remove(number)
                self.first = None if argument is None else self.first
                return date, number, argument
        elif what == "next_date":
            return agenda.next_date()
        elif what in ("run_next", "run_until"):
            return getattr(agenda, what)(agenda.now + seconds)
        else:
            date = agenda.now + seconds if what == "at" else seconds
            arguments = (seconds, 2.0) if what == "work" else (date,)
            self.entered.append(getattr(agenda, what)(*arguments, self.called, (number, seconds, agenda.place())))
        return None

    def cancel(self, index: int) -> object:
        if index >= len(self.entered):
            return None
        number = self.entered.pop(index)
        self.agenda.cancel(number)
        return number

    def first_called(self, nothing: Any) -> None:
        self.first = None
        self.said.append(("first", nothing, self.agenda.now))

    def called(self, argument: tuple[int, float, int]) -> None:
        number, seconds, place = argument
        self.said.append((argument, self.agenda.now))
        self.entered = [entry for entry in self.entered if entry != place - 1]
        if number == 1:
            self.entered.append(self.agenda.after(seconds, self.called, (0, seconds, self.agenda.place())))
        elif number == 2:
            self.cancel(0)


@given(STORY)
def test_the_agenda(story: list[tuple[str, float, int]]) -> None:
    assert Stage(compiled.Agenda()).play(story) == Stage(Agenda()).play(story)


def test_stories_told_by_chance() -> None:
    """Many entries of few dates, of which many are taken back."""
    kinds = ("at", "after", "work", "first_at", "cancel", "run_next", "run_until", "pop", "next_date")
    for seed in range(150):
        random = Random(seed)
        story = [
            (what, random.choice((0.0, 0.25, 1.0, 1.0, 3.5)), random.randrange(4))
            for what in random.choices(kinds, (4, 4, 1, 1, 5, 3, 1, 1, 1), k=40)
        ]
        assert Stage(compiled.Agenda()).play(story) == Stage(Agenda()).play(story), seed


@pytest.mark.parametrize("agenda", [compiled.Agenda, Agenda])
def test_a_date_is_run_without_what_was_taken_back(agenda: type[Agenda]) -> None:
    run, seen = agenda(), list[str]()
    for name in ("a", "b", "c", "d", "e"):
        number = run.at(1.0 if name < "e" else 2.0, seen.append, name)
        if name in "ac":
            run.cancel(number)
    assert run.run_next(0.5) == 1.0 and seen == ["b", "d"]
    last = run.at(2.0, seen.append, "f")
    run.cancel(last)
    assert run.run_next(2.5) == 2.5 and seen == ["b", "d", "e"] and run.now == 2.5
    assert run.run_next(3.0) == inf and run.now == 2.5


@pytest.mark.parametrize("agenda", [compiled.Agenda, Agenda])
def test_what_a_callback_raises_is_raised(agenda: type[Agenda]) -> None:
    def fail(argument: object) -> None:
        raise ValueError(argument)

    run = agenda()
    run.at(1.0, fail, "this")
    with pytest.raises(ValueError, match="this"):
        run.run_next(0.0)
    assert run.now == 1.0
    assert run.run_next(0.0) == inf


def test_a_world_and_its_agenda_can_be_forgotten() -> None:
    stage = Stage(compiled.Agenda())
    stage.do("after", 1.0, 0)
    watch = weakref.ref(stage)
    del stage
    gc.collect()
    assert watch() is None


@pytest.mark.parametrize("agenda", [compiled.Agenda, Agenda])
def test_nothing_comes_out_of_an_empty_agenda(agenda: type[Agenda]) -> None:
    with pytest.raises(IndexError):
        agenda().pop()


@pytest.mark.parametrize("agenda", [compiled.Agenda, Agenda])
def test_entries_that_were_taken_back_do_not_come_out(agenda: type[Agenda]) -> None:
    run = agenda()
    taken_back = [run.at(1.0, print, "first"), run.after(1.5, print, "second")]
    kept = run.at(2.0, print, "third")
    for number in taken_back:
        run.cancel(number)
    assert run.pop()[0::3] == (2.0, "third") and run.now == 2.0
    assert not any(map(run.was_cancelled, (*taken_back, kept)))
    run.at(1.0, print, "late")
    assert run.pop()[0] == 1.0 and run.now == 2.0, "dates never go back"


@pytest.mark.parametrize("agenda", [compiled.Agenda, Agenda])
def test_work_is_done_at_its_rate(agenda: type[Agenda]) -> None:
    run, seen = agenda(), list[str]()
    run.run_until(2.0)
    number = run.work(12.0, 4.0, seen.append, "done")
    assert run.next_date() == 5.0
    run.run_until(3.5)
    assert run.work_left(number, 12.0, 4.0, 2.0) == 6.0 and not seen
    run.run_until(5.0)
    assert run.work_left(number, 12.0, 4.0, 2.0) == 0.0 and seen == ["done"]
