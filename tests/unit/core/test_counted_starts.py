"""Where the starts of a decider go that only counts units, or knows all but memory: moved, held, kept apart, rejected."""

from __future__ import annotations

import msgspec
import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Traits
from pilothouse.core.translate import CheckedTurn
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState

ONLY_COUNTS, ALL_BUT_MEMORY = Traits(shapes=False), Traits(memory=False)
NODES = (
    Node("n0", 0, 2, memory_mb=1000, properties={"p": ""}), Node("n1", 2, 2, memory_mb=1000), Node("n2", 4, 2, memory_mb=100),
)  # fmt: skip
ON_N0 = Shape(nodes=1, constraint=msgspec.Raw(b'{"properties": ["p"]}'))
ANY = Shape(nodes=1)


class Said:
    """A decider that answers what it was given to say."""

    name = "said"

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.told: list[e.Event] = []
        self.says: list[d.Decision] = []

    def hello(self) -> d.Wants:
        return d.Wants()

    def begin(self, begins: e.Begins, cluster: Cluster) -> None: ...

    def decide(self, batch: e.Batch) -> d.Reply:
        self.told = batch.events
        return d.Reply(batch.now, self.says)

    def fileno(self) -> int:
        raise AssertionError("it speaks in turn")

    def close(self) -> None: ...


class Stage:
    """Three nodes of two units; n0 has the property p, n2 little memory."""

    def __init__(self, traits: Traits = ONLY_COUNTS, **more: object) -> None:
        self.cluster = Cluster(e.Begins(NODES, **more), "said")  # type: ignore[arg-type]
        self.decider = Said(traits)
        self.turn = CheckedTurn(self.decider, self.cluster, self.cluster)

    def hears(self, now: float, *events: e.Event, says: list[d.Decision] | None = None) -> list[d.Decision]:
        self.decider.says = says or []
        return self.turn(e.Batch(now, list(events))).decisions

    def begins(self, now: float, job: Job, units: str) -> list[d.Decision]:
        """The job is submitted, and the decider starts it at once on these units."""
        return self.hears(now, e.JobSubmitted(now, job), says=[start(now, job.id, units)])

    def ends(self, now: float, job_id: str) -> list[d.Decision]:
        return self.hears(now, ended(now, job_id, self.cluster.running[job_id].units))


def start(at: float, job_id: str, units: str) -> d.StartJob:
    return d.StartJob(at, job_id, IdSet.parse(units))


def ended(at: float, job_id: str, units: IdSet) -> e.JobEnded:
    return e.JobEnded(at, job_id, JobState.SUCCEEDED, 0, units)


def test_a_job_with_a_shape_is_told_as_a_number_and_placed_here() -> None:
    stage = Stage()
    assert stage.begins(1.0, Job("a", 1, most_units=2, shape=Shape(nodes=2, gpus_per_node=0)), "4-5") == [start(1.0, "a", "0 2")]
    [told] = stage.decider.told
    assert isinstance(told, e.JobSubmitted)
    assert (told.at, told.job.units, told.job.most_units, told.job.shape) == (1.0, 2, 0, None)
    assert told.job.extra_data == '{"nodes":2}'
    stage.hears(2.0, e.JobSubmitted(2.0, Job("b", 0, shape=Shape(nodes=1), extra_data="its own")))
    [told] = stage.decider.told
    assert isinstance(told, e.JobSubmitted)
    assert (told.job.units, told.job.extra_data) == (2, "its own"), "a whole node counts with all its units"
    assert stage.ends(3.0, "a") == []
    assert stage.decider.told == [ended(3.0, "a", IdSet.parse("4-5"))], "the units that the decider chose"


def test_a_job_that_can_never_run_is_rejected_and_not_told() -> None:
    stage = Stage()
    assert stage.hears(1.0, e.JobSubmitted(1.0, Job("a", 3, shape=ANY))) == [
        d.RejectJob(1.0, "a", "it needs 1 nodes that have 3 units free, and there are 0")
    ]
    assert stage.decider.told == []


def test_a_start_without_a_shape_moves_only_where_it_must() -> None:
    """To a block, if there is one, and else to the lowest units that are free."""
    stage = Stage()
    assert stage.begins(1.0, Job("a", 1, shape=ON_N0), "5") == [start(1.0, "a", "0")]
    assert stage.begins(2.0, Job("b", 1), "3") == [start(2.0, "b", "3")], "its units are free"
    assert stage.begins(3.0, Job("c", 2), "0-1") == [start(3.0, "c", "1-2")]
    stage.hears(4.0, e.UnitsFreed(4.0, "c", IdSet.parse("2")))
    assert stage.decider.told == [], "they are not the units that the decider knows"
    stage.hears(4.0, freed := e.UnitsFreed(4.0, "b", IdSet.parse("3")))
    assert stage.decider.told == [freed]
    assert stage.begins(5.0, Job("d", 3), "0-2") == [start(5.0, "d", "2-4")]
    stage.ends(6.0, "c")
    assert stage.decider.told == [ended(6.0, "c", IdSet.parse("0-1"))]
    assert stage.begins(7.0, Job("e", 2), "0 3") == [start(7.0, "e", "1 5")]
    stage.hears(8.0, e.JobRequeued(8.0, "e", "why"))
    assert stage.decider.told == [e.JobRequeued(8.0, "e", "why")]
    assert stage.hears(9.0, says=[start(9.0, "e", "1 5")]) == [start(9.0, "e", "1 5")]
    stage.ends(10.0, "e")
    assert stage.decider.told == [ended(10.0, "e", IdSet.parse("1 5"))]


def test_a_start_takes_effect_when_it_was_decided_but_not_before_now() -> None:
    stage = Stage()
    jobs = [Job("a", 2, shape=ON_N0), Job("b", 2, shape=ON_N0), Job("c", 1)]
    submitted = [e.JobSubmitted(1.0, job) for job in jobs]
    says: list[d.Decision] = [start(3.5, "a", "0-1"), start(3.5, "b", "2-3"), start(3.5, "c", "0")]
    assert stage.hears(1.0, *submitted, says=says) == [start(3.5, "a", "0-1"), start(3.5, "c", "2")]
    assert stage.ends(9.0, "a") == [start(9.0, "b", "0-1")]


@pytest.mark.parametrize(
    ("units", "most", "given", "right"),
    [
        (2, 0, "0", False), (2, 0, "0-1", True), (2, 0, "0-2", False),
        (2, 3, "0", False), (2, 3, "0-1", True), (2, 3, "0-2", True), (2, 3, "0-3", False),
    ],
)  # fmt: skip
def test_a_wrong_number_of_units_is_the_deciders_mistake(units: int, most: int, given: str, right: bool) -> None:
    stage = Stage()
    stage.begins(1.0, Job("a", 1, shape=ON_N0), "0")
    job = Job("b", units, most_units=most)
    if right:
        count = len(IdSet.parse(given))
        assert stage.begins(2.0, job, given) == [d.StartJob(2.0, "b", IdSet.span(1, count))]
    else:
        with pytest.raises(DecisionError, match="unit already in use"):  # it is not moved
            stage.begins(2.0, job, given)


def test_starts_of_jobs_that_do_not_wait_are_the_deciders_mistake() -> None:
    stage = Stage()
    stage.begins(1.0, Job("a", 1, shape=ON_N0), "0")
    with pytest.raises(DecisionError, match="unknown job"):
        stage.hears(2.0, says=[start(2.0, "nobody", "1")])
    with pytest.raises(DecisionError, match="job in the wrong state"):
        stage.hears(3.0, says=[start(3.0, "a", "1")])


def test_the_units_of_the_first_held_job_are_kept_free_for_it() -> None:
    stage = Stage()
    stage.begins(1.0, Job("a", 1, shape=ON_N0), "0")
    assert stage.begins(2.0, Job("whole", 0, shape=ON_N0), "2-3") == []
    assert stage.begins(3.0, Job("c", 1, shape=ON_N0), "4") == [], "unit 1 is free, but not for it"
    assert stage.begins(4.0, Job("d", 1, shape=ANY), "0") == [start(4.0, "d", "2")]
    assert stage.begins(5.0, Job("e", 1), "1") == [start(5.0, "e", "3")], "nor for a job without a shape"
    assert stage.begins(6.0, Job("f", 4), "0-3") == []
    assert stage.ends(7.0, "d") == [], "f needs 4 units, and 4 are free with the one that is kept"
    assert stage.begins(8.0, Job("g", 2), "0-1") == [start(8.0, "g", "4-5")]
    assert stage.ends(9.0, "a") == [start(9.0, "whole", "0-1")]
    assert stage.ends(10.0, "whole") == [start(10.0, "c", "0")]
    assert stage.ends(11.0, "g") == [start(11.0, "f", "1-2 4-5")]


def test_held_jobs_behind_the_first_go_where_there_is_room() -> None:
    stage = Stage()
    stage.begins(1.0, Job("a", 2, shape=ON_N0), "0-1")
    stage.begins(1.0, Job("b", 2, shape=ANY), "2-3")
    stage.begins(1.0, Job("c", 2, shape=ANY), "4-5")
    assert stage.begins(2.0, Job("d", 2, shape=ON_N0), "0-1") == []
    assert stage.begins(2.0, Job("e", 1, shape=ANY), "0") == []
    assert stage.begins(2.0, Job("f", 1, shape=ANY), "0") == []
    assert stage.ends(3.0, "c") == [start(3.0, "e", "4"), start(3.0, "f", "5")]
    assert stage.ends(4.0, "b") == []
    assert stage.ends(5.0, "a") == [start(5.0, "d", "0-1")]


def test_what_waits_for_nodes_that_are_not_there_keeps_nothing_free() -> None:
    stage = Stage()
    stage.begins(1.0, Job("a", 1, shape=ON_N0), "0")
    stage.hears(2.0, e.UnitsUnavailable(2.0, IdSet.parse("1")))
    assert stage.begins(3.0, Job("b", 2, shape=ON_N0), "0-1") == []
    assert stage.ends(4.0, "a") == []
    assert stage.begins(5.0, Job("c", 1, shape=ON_N0), "0") == [start(5.0, "c", "0")]
    assert stage.ends(6.0, "c") == []
    assert stage.hears(7.0, back := e.UnitsAvailable(7.0, IdSet.parse("1"))) == [start(7.0, "b", "0-1")]
    assert stage.decider.told == [back]


def test_a_held_job_whose_nodes_have_gone_is_rejected_and_told_as_killed() -> None:
    stage = Stage()
    stage.begins(1.0, Job("a", 1, shape=ANY), "0")
    assert stage.begins(2.0, Job("b", 0, shape=Shape(nodes=3)), "0-5") == []
    left = e.NodesLeft(3.0, ("n2",), IdSet.parse("4-5"))
    assert stage.hears(3.0, left) == [d.RejectJob(3.0, "b", "it needs 3 nodes that have all units free, and there are 2")]
    assert stage.decider.told == [left]
    stage.hears(4.0, e.CallArrived(4.0, "its own"))
    killed = e.JobEnded(3.0, "b", JobState.KILLED, -1, IdSet.parse("0-5"))
    assert stage.decider.told == [killed, e.CallArrived(4.0, "its own")]


@pytest.mark.parametrize("traits", [ONLY_COUNTS, ALL_BUT_MEMORY])
def test_nothing_is_moved_before_a_job_with_a_shape_comes(traits: Traits) -> None:
    """Unless the world survives wrong decisions, and units were off or jobs ran before."""
    run = e.Running(Job("old", 1), IdSet.parse("0"), 0.0)
    begins: tuple[dict[str, object], ...] = ({}, {"running": (run,)}, {"unavailable": IdSet.parse("0")})
    for survives in (False, True):
        for number, more in enumerate(begins):
            stage = Stage(traits, survives_refusals=survives, **more)
            stage.hears(0.0, e.NoMoreJobs(0.0) if survives else e.UnitsUnavailable(0.0, IdSet.parse("5")))
            if not number:
                stage.begins(1.0, run.job, "0")
            moved = survives and number > 0 and traits == ONLY_COUNTS
            if survives:
                made = stage.begins(2.0, Job("b", 1), "0")
                assert isinstance(made[0], d.StartJob) is moved and (made[0] == start(2.0, "b", "1")) is moved
            else:
                with pytest.raises(DecisionError, match=r"unit already in use|unit not available"):
                    stage.begins(2.0, Job("b", 1), "0")


def test_who_is_told_of_units_that_are_off() -> None:
    off, last = e.UnitsUnavailable(0.0, IdSet.parse("5")), e.NoMoreJobs(0.0)
    for traits, survives, told in (
        (ONLY_COUNTS, True, [last]), (ONLY_COUNTS, False, [off, last]), (ALL_BUT_MEMORY, True, [off, last]),
    ):  # fmt: skip
        stage = Stage(traits, survives_refusals=survives)
        for _ in range(2):
            stage.hears(0.0, off, last)
            assert stage.decider.told == told
        stage.hears(0.0, e.JobSubmitted(0.0, Job("a", 1, shape=ANY)))
        stage.hears(0.0, off, last)
        assert stage.decider.told == told


def test_a_held_job_without_a_shape_keeps_nothing_free() -> None:
    stage = Stage()
    stage.begins(1.0, Job("a", 1, shape=ON_N0), "5")
    stage.begins(1.0, Job("b", 4), "2-5")
    assert stage.ends(2.0, "a") == []
    assert stage.begins(3.0, Job("c", 3), "0-2") == []
    assert stage.begins(4.0, Job("d", 1), "0") == [start(4.0, "d", "0")]


MEMORY = Shape(nodes=1, memory_mb_per_node=600)


def test_starts_wait_for_memory_and_keep_the_units_that_the_decider_chose() -> None:
    stage = Stage(ALL_BUT_MEMORY)
    assert stage.begins(1.0, Job("a", 1, shape=MEMORY), "0") == [start(1.0, "a", "0")]
    assert stage.begins(2.0, Job("b", 1, shape=MEMORY), "1") == [], "600 of 1000 MB are taken"
    assert stage.begins(3.0, Job("c", 1, shape=MEMORY), "2") == [], "it is behind b"
    assert stage.begins(4.0, Job("d", 1, shape=ANY), "4") == [start(4.0, "d", "4")], "it asks for no memory"
    assert stage.begins(5.0, Job("e", 1), "5") == [start(5.0, "e", "5")]
    assert stage.ends(6.0, "e") == []
    assert stage.ends(7.0, "a") == [start(7.0, "b", "1"), start(7.0, "c", "2")]
    assert stage.decider.told == [ended(7.0, "a", IdSet.parse("0"))]
    assert stage.begins(8.0, Job("f", 1, shape=Shape(nodes=1, memory_mb_per_node=400)), "3") == [start(8.0, "f", "3")]


def test_memory_comes_back_for_the_first_that_waits_for_it() -> None:
    stage = Stage(ALL_BUT_MEMORY)
    for number, units in enumerate(("0", "2")):
        stage.begins(1.0, Job(f"r{number}", 1, shape=MEMORY), units)
    stage.begins(2.0, Job("first", 1, shape=MEMORY), "1")
    stage.begins(2.0, Job("second", 1, shape=MEMORY), "3")
    assert stage.ends(3.0, "r1") == [], "the second could start, but is behind the first"
    assert stage.ends(4.0, "r0") == [start(4.0, "first", "1"), start(4.0, "second", "3")]


def test_a_start_on_a_node_that_never_had_so_much_memory_is_a_mistake() -> None:
    stage = Stage(ALL_BUT_MEMORY)
    stage.hears(1.0, e.JobSubmitted(1.0, Job("a", 1, shape=MEMORY)))
    [told] = stage.decider.told
    assert isinstance(told, e.JobSubmitted)
    assert told.job.shape == ANY
    with pytest.raises(DecisionError, match="wrong shape"):
        stage.hears(2.0, says=[start(2.0, "a", "4")])
    assert stage.hears(3.0, e.JobSubmitted(3.0, Job("b", 1, shape=Shape(nodes=1, memory_mb_per_node=1001)))) == [
        d.RejectJob(3.0, "b", "it needs 1 nodes that have 1 unit free and 1001 MB, and there are 0")
    ]
    assert stage.decider.told == []


def test_what_is_told_of_jobs_that_ran_before() -> None:
    """Nothing, until they wait again. In a world that ends with a wrong decision everything is told."""
    run = e.Running(Job("old", 2, shape=ANY), IdSet.parse("0-1"), 0.0)
    changed = e.WalltimeChanged(1.0, "old", 50.0)
    for survives, told in ((True, []), (False, [changed])):
        stage = Stage(running=(run,), survives_refusals=survives)
        stage.hears(1.0, changed)
        assert stage.decider.told == told
    stage = Stage(running=(run,), survives_refusals=True)
    stage.hears(2.0, ended(2.0, "old", run.units))
    assert stage.decider.told == []
    stage.hears(3.0, again := e.JobSubmitted(3.0, Job("old", 1)))
    assert stage.decider.told == [again]
    stage.hears(4.0, gone := e.JobWithdrawn(4.0, "old"))
    assert stage.decider.told == [gone], "it is a job like any other"


def test_one_that_was_withdrawn_and_comes_again_is_a_job_like_any_other() -> None:
    for shape in (None, ANY):
        run = e.Running(Job("old", 2, shape=shape), IdSet.parse("0-1"), 0.0)
        stage = Stage(running=(run,), survives_refusals=True)
        assert stage.hears(1.0, e.JobRequeued(1.0, "old"), e.JobWithdrawn(1.0, "old")) == [d.ConfirmWithdrawal(1.0, "old")]
        assert stage.decider.told == []
        stage.hears(2.0, e.JobSubmitted(2.0, run.job))
        assert [type(event) for event in stage.decider.told] == [e.JobSubmitted]
        stage.hears(3.0, changed := e.WalltimeChanged(3.0, "old", 9.0))
        assert stage.decider.told == [changed]


def test_one_that_waits_again_is_told_as_a_number_or_rejected() -> None:
    for units, told in ((2, [2]), (3, [])):
        run = e.Running(Job("old", units, shape=ANY), IdSet.parse("0-1"), 0.0)
        stage = Stage(running=(run,), survives_refusals=True)
        made = stage.hears(1.0, e.JobRequeued(1.0, "old"))
        assert [event.job.units for event in stage.decider.told if isinstance(event, e.JobSubmitted)] == told
        assert [type(decision) for decision in made] == ([] if told else [d.RejectJob])
        assert len(stage.decider.told) == len(told)
