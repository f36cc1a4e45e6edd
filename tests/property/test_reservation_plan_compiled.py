"""The compiled reservation plan makes the plan that the one in Python makes, whatever happens to both."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.model.job import Job
from pilothouse.policies.reservation_plan import PlainReservationPlan

compiled = pytest.importorskip("pilothouse.policies._reservation_plan", reason="not compiled here")

UNITS = 12
DURATIONS = st.sampled_from([0.0, 1.0, 2.0, 2.0, 7.0, 7.5, 30.0, inf])
ADD = st.tuples(st.just("add"), st.integers(1, UNITS), DURATIONS, st.integers(1, 4))
TURN = st.tuples(st.just("turn"), st.booleans(), st.booleans())
END = st.tuples(st.just("end"), st.integers(0, 9))
GO = st.tuples(st.just("go"), st.sampled_from([0.5, 1.0, 3.0]))
LAST = st.tuples(st.just("last"), st.booleans())
STORY = st.lists(st.one_of(ADD, ADD, TURN, TURN, END, GO, LAST, LAST), max_size=80)


class Stage:
    """A cluster that only counts. Jobs may end before their estimate, or after it."""

    def __init__(self, plan: PlainReservationPlan) -> None:
        self.plan = plan
        self.free, self.now, self.jobs = UNITS, 0.0, 0
        self.running: dict[str, int] = {}
        self.durations: dict[str, float] = {}
        self.expected: dict[str, float] = {}
        self.told: list[object] = []

    def add(self, units: int, duration: float, copies: int) -> None:
        for _ in range(copies):
            self.jobs += 1
            job = Job(str(self.jobs), units)
            self.durations[job.id] = duration
            self.plan.add(job, units, duration)

    def go(self, seconds: float) -> None:
        self.now += seconds

    def end(self, index: int) -> None:
        if index < len(self.running):
            job_id = list(self.running)[index]
            self.free += self.running.pop(job_id)
            self.told.append(self.plan.release(job_id, self.now))

    def last(self, asks: bool) -> None:
        """All that are expected to end next do so, at that date."""
        ends = [self.expected[job_id] for job_id in self.running]
        if ends and self.now <= min(ends) < inf:
            self.now = min(ends)
            for job_id in [job_id for job_id in self.running if self.expected[job_id] == self.now]:
                self.free += self.running.pop(job_id)
                self.told.append(self.plan.release(job_id, self.now))
            self.turn(asks, False)

    def turn(self, asks: bool, refuses: bool) -> None:
        for job in self.plan.due(self.now, self.free):
            self.told.append(job.id)
            if refuses or job.units > self.free:
                refuses = False
                continue
            self.free -= job.units
            self.running[job.id] = job.units
            assert self.plan.remove(job)
            self.expected[job.id] = self.now + self.durations[job.id]
            self.plan.hold(job.id, self.expected[job.id], job.units)
        if asks:
            self.told.append(sorted(self.plan.starts().items()))
        self.told.append((len(self.plan), self.plan.running, [job.id for job in self.plan.jobs()]))


def play(plan: PlainReservationPlan, story: list[tuple[object, ...]]) -> list[object]:
    stage = Stage(plan)
    for what, *how in story:
        getattr(stage, str(what))(*how)
    return stage.told


@given(STORY)
def test_both_plan_alike(story: list[tuple[object, ...]]) -> None:
    assert play(compiled.ReservationPlan(), story) == play(PlainReservationPlan(), story)


@pytest.mark.parametrize("asks", [False, True], ids=["as far as needed", "the whole plan"])
def test_a_long_queue(asks: bool) -> None:
    """Thousands of jobs of many classes: longer than a block of steps, and than the classes that are kept."""
    random = Random(7)
    story: list[tuple[object, ...]] = []
    for _ in range(400):
        story += [
            ("add", random.randint(1, UNITS), random.choice([1.0, 5.0, 9.0, random.random()]), random.randint(1, 6)),
            ("turn", asks and random.random() < 0.1, False),
            ("go", random.random()),
            ("end", random.randrange(4)),
            ("turn", False, random.random() < 0.1),
        ]
    assert play(compiled.ReservationPlan(), story) == play(PlainReservationPlan(), story)


@pytest.mark.parametrize("early", [0.0, 0.1], ids=["all ends are expected", "some ends are early"])
def test_ends_that_are_expected(early: float) -> None:
    """The plan is kept after these, so it must be the one that would be made again."""
    random = Random(3)
    story: list[tuple[object, ...]] = [("add", 3, 5.0, 4), ("turn", False, False)]
    for _ in range(600):
        if random.random() < 0.4:
            story += [("add", random.randint(1, UNITS), random.uniform(0.1, 9.0), random.randint(1, 3)), ("turn", False, False)]
        if random.random() < early:
            story += [("end", random.randrange(3)), ("turn", random.random() < 0.2, False)]
        story.append(("last", random.random() < 0.2))
    assert play(compiled.ReservationPlan(), story) == play(PlainReservationPlan(), story)


@pytest.mark.parametrize("kind", [compiled.ReservationPlan, PlainReservationPlan], ids=["compiled", "in Python"])
def test_a_job_that_will_never_fit_has_no_start_from_an_earlier_plan(kind: type[PlainReservationPlan]) -> None:
    plan, large, small = kind(), Job("large", 10), Job("small", 8)
    plan.hold("endless", inf, 1)
    plan.add(large, 10, inf)
    plan.add(small, 8, inf)
    assert plan.due(16.0, 9) == [small]
    assert plan.starts() == {"small": 16.0}
    assert plan.release("endless", 18.0)
    assert plan.due(18.0, 10) == [large]
    assert plan.remove(large)
    plan.hold("large", inf, 10)
    assert plan.due(18.5, 0) == []
    assert plan.starts() == {}


@pytest.mark.parametrize(
    ("method", "nonsense"), [("add", (1, 2)), ("hold", ("j", "x", 1)), ("due", (1.0,)), ("due", ("x", 1))]
)
def test_nonsense_is_refused(method: str, nonsense: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        getattr(compiled.ReservationPlan(), method)(*nonsense)
    with pytest.raises(TypeError):
        compiled.ReservationPlan(1)
