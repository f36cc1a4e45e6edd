"""The compiled backfill queue gives what the one in Python gives, whatever happens to both."""

from math import inf, nan
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.model.job import Job, Shape
from pilothouse.policies.backfill_queue import PlainBackfillQueue
from pilothouse.policies.score import KNOWN, Expression, Program

compiled = pytest.importorskip("pilothouse.policies._backfill_queue", reason="not compiled here")

UNITS = 12
SHAPES = (None, None, None, Shape(nodes=1), Shape(nodes=3))
ESTIMATES = st.sampled_from([0.0, 1.0, 2.0, 2.5, 7.0, inf])
SCORES = st.sampled_from([0.0, -1.0, 3, 0.5, inf, nan])

ADD = st.tuples(st.just("add"), SCORES, ESTIMATES, st.integers(1, UNITS), st.sampled_from(SHAPES))
PASS = st.tuples(
    st.just("turn"), st.lists(st.booleans(), max_size=8), st.sampled_from([(inf, 0), (4.0, 0b110), (9.0, 1)])
)
END = st.tuples(st.just("end"), st.integers(0, 9), st.booleans())
GO = st.tuples(st.just("go"), st.sampled_from([0.0, 0.5, 1.0, 3.0]))
OTHER = st.sampled_from(
    [("remove", 0), ("remove", 3), ("look", 0), ("rescore", 2.0), ("rescore", -1.0), ("rescore", nan)]
)
STORY = st.lists(st.one_of(ADD, ADD, PASS, PASS, END, GO, OTHER), max_size=60)


class Stage:
    """A cluster that only counts, and a queue that is asked what to start on it."""

    def __init__(
        self, queue: type[PlainBackfillQueue], backfill: str, shortest_first: bool, program: Program | None = None
    ) -> None:
        self.reservations: dict[str, float] = {}
        self.reservation: tuple[float, int] = (inf, 0)
        self.program = program
        self.queue = queue(backfill, shortest_first, self.reservations, lambda head: self.reservation, program)
        self.queue.hold("before", 3.0, 2)
        self.free, self.now, self.jobs = UNITS - 2, 0.0, 0
        self.waiting: list[Job] = []
        self.running = {"before": 2}
        self.told: list[object] = []

    def play(self, story: list[tuple[Any, ...]]) -> list[object]:
        for what, *how in story:
            getattr(self, what)(*how)
            self.told.append((len(self.queue), self.queue.ends(), dict(self.reservations)))
        return self.told

    def add(self, score: float, estimate: float, units: int, shape: Shape | None) -> None:
        self.jobs += 1
        job = Job(str(self.jobs), units, shape=shape, walltime=estimate, submitted_at=self.now)
        self.waiting.append(job)
        if self.program is not None:
            score = self.program.value(job, self.now)
        self.queue.add(job, score, estimate, units)

    def go(self, seconds: float) -> None:
        self.now += seconds

    def look(self, _: int) -> None:
        self.queue.look_again()

    def remove(self, index: int) -> None:
        if index < len(self.waiting):
            job = self.waiting.pop(index)
            assert not self.queue.ended(job.id)
            self.queue.remove(job)

    def rescore(self, factor: float) -> None:
        self.queue.rescore(lambda job: factor * job.units)

    def end(self, index: int, announced: bool) -> None:
        if index < len(self.running):
            job_id = list(self.running)[index]
            self.free += self.running.pop(job_id)
            if announced:
                self.queue.announce_end(job_id, self.now)
                self.turn([], (inf, 0))
            self.told.append(self.queue.ended(job_id))

    def turn(self, refused: list[bool], reservation: tuple[float, int]) -> None:
        """A pass; a job of a certain shape may turn out not to fit after all."""
        self.reservation = reservation
        refusals = iter(refused)
        if self.program is not None and len(refused) != 1:
            self.queue.age(self.now)
        job = self.queue.first(self.now, self.free)
        while job is not None:
            self.told.append((job.id, self.queue.aside, self.queue.avoid if self.queue.aside else None))
            assert job in self.waiting and job.units <= self.free
            if job.shape is None or not next(refusals, False):
                self.waiting.remove(job)
                self.running[job.id] = job.units
                self.free -= job.units
            job = self.queue.next(self.free)


@given(st.sampled_from(["none", "fill", "easy"]), st.booleans(), STORY)
def test_the_queue(backfill: str, shortest_first: bool, story: list[tuple[Any, ...]]) -> None:
    told = Stage(compiled.BackfillQueue, backfill, shortest_first).play(story)
    assert told == Stage(PlainBackfillQueue, backfill, shortest_first).play(story)


AGEING = [text for text, _ in KNOWN.values() if "w" in text] + [
    "-w",
    "r - w*n",
    "w/r",
    "(w - 2)**0.5",
    "r/w**2",
    "(w/r)**-3",
    "exp(w*400) - n",
    "log10(w) + p",
    "log(w/n)*sqrt(r)",
    "log2(w + 1)**3/(r - 2)",
    "(n - 3)**0.5*w",
]


@given(st.sampled_from(AGEING), st.sampled_from(["none", "fill", "easy"]), st.booleans(), STORY)
def test_scores_that_age(text: str, backfill: str, shortest_first: bool, story: list[tuple[Any, ...]]) -> None:
    program = Expression(text).program
    assert program is not None
    told = Stage(compiled.BackfillQueue, backfill, shortest_first, program).play(story)
    assert told == Stage(PlainBackfillQueue, backfill, shortest_first, program).play(story)


@pytest.mark.parametrize("text", AGEING)
@pytest.mark.parametrize("backfill", ["none", "easy"])
def test_scores_that_nearly_tie(text: str, backfill: str) -> None:
    """Long queues, more than are evaluated at a time, with requests whose scores differ in the last digits or not at all."""

    def told(queue: type[PlainBackfillQueue]) -> list[object]:
        random = Random(11)
        stage = Stage(queue, backfill, False, Expression(text).program)
        for _ in range(60):
            for _ in range(12):
                stage.go(random.choice([0.0, 0.1, 0.3, 7.0]))
                stage.add(0.0, random.choice([0.0, 0.1, 0.3, 3.0, 0.9, inf]), random.choice([1, 1, 2, 3, 9, UNITS]), None)
            stage.turn([], (inf, 0))
            for _ in range(4):
                stage.end(0, announced=False)
            stage.turn([], (inf, 0))
        return stage.told

    assert told(compiled.BackfillQueue) == told(PlainBackfillQueue)


@pytest.mark.parametrize("shortest_first", [False, True])
@pytest.mark.parametrize("score", [0.0, 1.0])
def test_long_queues_at_late_dates(score: float, shortest_first: bool) -> None:
    """More jobs wait than are looked at one by one, ends are over in any order, and estimates end just before a reservation or
    just behind it, by less than a short float tells apart."""

    def told(queue: type[PlainBackfillQueue]) -> list[object]:
        random = Random(12)
        stage = Stage(queue, "easy", shortest_first)
        stage.go(1e8 + 0.1)
        for _ in range(60):
            for _ in range(9):
                seconds = random.choice([3.0, 1e7]) + random.choice([-0.1, 0.0, 1e-9, 0.1, 0.2])
                units = random.choice([1, 1, 2, 3, 5, 9, UNITS, 2**24 + 1])
                stage.add(score * random.random(), seconds, units, random.choice(SHAPES))
            stage.turn([True, False], (stage.now + 3.0, 0b110))
            for _ in range(random.choice([1, 2, 3])):
                stage.end(random.randrange(len(stage.running) or 1), announced=random.random() < 0.3)
                stage.turn([], (inf, 0))
                stage.told.append(stage.queue.ends())
            stage.go(random.choice([0.1, 1.0, 3.0]))
        assert len(stage.queue) > 300
        return stage.told

    assert told(compiled.BackfillQueue) == told(PlainBackfillQueue)


def chance_story(random: Random) -> list[tuple[Any, ...]]:
    """Short queues in which many jobs have a shape, and in which most ends are early and announced."""
    reservations = [(inf, 0), (inf, 0), (4.0, 0b110), (9.0, 1)]
    kinds = ("add", "turn", "end", "go", "remove", "look", "rescore")
    story: list[tuple[Any, ...]] = []
    for kind in random.choices(kinds, (8, 6, 6, 3, 1, 1, 1), k=70):
        match kind:
            case "add":
                score, estimate = random.choice([0.0, 0.0, 0.0, -1.0, 1.0, nan]), random.choice([0.0, 1.0, 2.0, 2.5, 7.0, inf])
                story.append(("add", score, estimate, random.randint(1, 6), random.choice(SHAPES)))
            case "turn":
                story.append(("turn", [random.random() < 0.3 for _ in range(4)], random.choice(reservations)))
            case "end":
                story.append(("end", random.randrange(5), random.random() < 0.7))
            case "go":
                story.append(("go", random.choice([0.5, 1.0, 3.0])))
            case "rescore":
                story.append(("rescore", random.choice([2.0, -1.0, nan])))
            case _:
                story.append((kind, random.randrange(4)))
    return story


@pytest.mark.parametrize("backfill", ["none", "fill", "easy"])
@pytest.mark.parametrize("shortest_first", [False, True])
def test_stories_told_by_chance(backfill: str, shortest_first: bool) -> None:
    for seed in range(100 if backfill == "easy" else 30):
        story = chance_story(Random(seed))
        told = Stage(compiled.BackfillQueue, backfill, shortest_first).play(story)
        assert told == Stage(PlainBackfillQueue, backfill, shortest_first).play(story), seed


def test_what_cannot_be_evaluated_at_once() -> None:
    assert Expression("r*n").program is None
    long = "+".join(f"{n}*r*w" for n in range(9))
    for text in ("abs(w)", "w**r", "w**(-1)**0.5", "w**(1/0)", "max(w, r)", "log(w, 2)", "sqrt(w**0.5)", long):
        assert Expression(text).ages and Expression(text).program is None, text


def test_a_long_queue_that_empties_and_fills() -> None:
    def told(queue: type[PlainBackfillQueue]) -> list[object]:
        stage = Stage(queue, "none", False)
        for batch in range(3):
            stage.play([("add", 0.0, 1.0, 1, None)] * 7000)
            while stage.waiting:
                stage.play([("turn", [], (inf, 0)), *[("end", 0, False)] * len(stage.running)])
            assert len(stage.queue) == 0, batch
        return stage.told

    assert told(compiled.BackfillQueue) == told(PlainBackfillQueue)


@pytest.mark.parametrize(
    ("method", "nonsense"),
    [
        ("add", (1, 2)),
        ("add", (None, "x", 1.0, 1)),
        ("hold", ("j", "x", 1)),
        ("announce_end", ("j",)),
        ("first", (1.0,)),
        ("next", ("x",)),
    ],
)
def test_nonsense_is_refused(method: str, nonsense: tuple[object, ...]) -> None:
    queue = compiled.BackfillQueue("easy", False, {}, lambda head: (inf, 0))
    with pytest.raises(TypeError):
        getattr(queue, method)(*nonsense)
    with pytest.raises(TypeError):
        compiled.BackfillQueue("easy", False, None, None)
    with pytest.raises(TypeError):
        queue.age(1.0)


@pytest.mark.parametrize(
    "operations", [(), (("w", 0.0), ("+", 0.0)), (("k", 5.0),), (("?", 0.0),), (("w", 0.0),) * 2, (("w", 0.0),) * 99]
)
def test_operations_that_make_no_sense_are_refused(operations: tuple[tuple[str, float], ...]) -> None:
    program = Expression("w/r").program
    assert program is not None
    program.operations = operations
    with pytest.raises(TypeError):
        compiled.BackfillQueue("easy", False, {}, lambda head: (inf, 0), program)
