"""Jobs with a shape under a decider that only knows numbers of units: starts that are held, and their ends."""

from __future__ import annotations

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Traits
from pilothouse.core.held_starts import CALL
from pilothouse.core.translate import CheckedTurn
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState

BOTH = IdSet(0b11)


class Numbers:
    """A decider that answers what it was given to say."""

    name = "numbers"
    traits = Traits(shapes=False)

    def __init__(self) -> None:
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
    """One node of two units. Job a runs on it, and the start of job b is held."""

    def __init__(self) -> None:
        self.decider = Numbers()
        cluster = Cluster(e.Begins((Node("n", 0, 2),)), "numbers")
        self.turn = CheckedTurn(self.decider, cluster, cluster)
        whole = Shape(nodes=1)
        jobs = [Job("a", 2, shape=whole), Job("b", 2, shape=whole)]
        starts = [d.StartJob(0.0, "a", BOTH), d.StartJob(0.0, "b", BOTH)]
        assert self.hears(0.0, *(e.JobSubmitted(0.0, job) for job in jobs), says=starts) == starts[:1]

    def hears(self, now: float, *events: e.Event, says: list[d.Decision] | None = None) -> list[d.Decision]:
        self.decider.says = says or []
        return self.turn(e.Batch(now, list(events))).decisions


def test_a_held_start_follows_when_there_is_room() -> None:
    stage = Stage()
    ended = e.JobEnded(5.0, "a", JobState.SUCCEEDED, 0, BOTH)
    assert stage.hears(5.0, ended) == [d.StartJob(5.0, "b", BOTH)]
    assert stage.decider.told == [ended]


def test_a_job_that_is_killed_while_it_is_held_is_told_at_once() -> None:
    stage = Stage()
    made = stage.hears(3.0, e.CallArrived(3.0, "its own"), says=[d.KillJobs(3.0, ("b",))])
    assert made == [d.RejectJob(3.0, "b", "killed by the scheduler before it could start"), d.CallAt(3.0, 3.0, CALL)]
    assert stage.hears(3.0, e.CallArrived(3.0, CALL)) == []
    assert stage.decider.told == [e.JobEnded(3.0, "b", JobState.KILLED, -1, BOTH), e.JobsKilled(3.0, ("b",), {})]


def test_a_job_that_is_withdrawn_while_it_is_held() -> None:
    stage = Stage()
    assert stage.hears(3.0, e.JobWithdrawn(3.0, "b")) == [d.ConfirmWithdrawal(3.0, "b")]
    assert stage.decider.told == [e.JobEnded(3.0, "b", JobState.KILLED, -1, BOTH)]


def test_a_decider_that_knows_shapes_is_not_told_of_memory() -> None:
    class Shapes(Numbers):
        traits = Traits(memory=False)

    decider = Shapes()
    cluster = Cluster(e.Begins((Node("n", 0, 2, memory_mb=1000),)), "numbers")
    job = Job("a", 1, shape=Shape(nodes=1, memory_mb_per_node=100))
    CheckedTurn(decider, cluster, cluster)(e.Batch(0.0, [e.JobSubmitted(0.0, job)]))
    [told] = decider.told
    assert isinstance(told, e.JobSubmitted)
    assert told.job.shape == Shape(nodes=1)


def test_a_held_job_that_the_decider_rejects_holds_no_other() -> None:
    stage = Stage()
    submitted = e.JobSubmitted(3.0, Job("c", 1, shape=Shape(nodes=1)))
    made = stage.hears(3.0, submitted, says=[d.RejectJob(3.0, "b"), d.StartJob(3.0, "c", IdSet(0b1))])
    assert made == [d.RejectJob(3.0, "b")], "c is held: its node is full"
    assert stage.hears(5.0, e.JobEnded(5.0, "a", JobState.SUCCEEDED, 0, BOTH)) == [d.StartJob(5.0, "c", IdSet(0b1))]
