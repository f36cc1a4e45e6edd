"""Deciders that only count units, in a world that outlives wrong decisions: absent units, unknown jobs, withdrawals."""

from __future__ import annotations

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Traits
from pilothouse.core.translate import CheckedTurn
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState


class Recorder:
    """Answers what it is told to answer, and keeps what it heard."""

    name = "recorder"
    traits = Traits(withdrawals=False, requeues=False, lost_nodes=False, absent_units=False, shapes=False)

    def __init__(self) -> None:
        self.heard: list[e.Event] = []
        self.answers: list[d.Decision] = []

    def decide(self, batch: e.Batch) -> d.Reply:
        self.heard += batch.events
        answers, self.answers = self.answers, []
        return d.Reply(batch.now, answers)


def turn(running: tuple[e.Running, ...] = (), unavailable: IdSet | None = None) -> tuple[CheckedTurn, Recorder, Cluster]:
    begins = e.Begins(
        nodes=tuple(Node(f"n{number}", number) for number in range(4)),
        time_waits=False,
        unavailable=unavailable or IdSet(),
        running=running,
        survives_refusals=True,
    )
    cluster = Cluster(begins, "recorder")
    decider = Recorder()
    return CheckedTurn(decider, cluster, cluster), decider, cluster  # type: ignore[arg-type]


def test_a_start_on_a_unit_that_is_unavailable_goes_elsewhere() -> None:
    ask, decider, _ = turn()
    ask(e.Batch(1.0, [e.JobSubmitted(1.0, Job("1", 1, 60.0)), e.UnitsUnavailable(1.0, IdSet.of([0]))]))
    assert [type(event) for event in decider.heard] == [e.JobSubmitted]
    decider.answers = [d.StartJob(2.0, "1", IdSet.of([0]))]
    (start,) = ask(e.Batch(2.0, [])).decisions
    assert isinstance(start, d.StartJob) and start.units == IdSet.of([1])


def test_units_that_were_unavailable_from_the_beginning() -> None:
    ask, decider, _ = turn(unavailable=IdSet.of([0, 1]))
    decider.answers = [d.StartJob(1.0, "1", IdSet.of([0]))]
    (start,) = ask(e.Batch(1.0, [e.JobSubmitted(1.0, Job("1", 1, 60.0))])).decisions
    assert isinstance(start, d.StartJob) and start.units == IdSet.of([2])


def test_jobs_that_ran_before_are_not_told() -> None:
    run = e.Running(Job("9", 2, 60.0), IdSet.of([0, 1]), 0.0)
    ask, decider, cluster = turn((run,))
    decider.answers = [d.StartJob(1.0, "1", IdSet.of([0, 1, 2]))]
    assert not ask(e.Batch(1.0, [e.JobSubmitted(1.0, Job("1", 3, 60.0))])).decisions
    ended = e.JobEnded(2.0, "9", cluster.state_of("9"), 0, run.units)  # type: ignore[arg-type]
    (start,) = ask(e.Batch(2.0, [ended])).decisions
    assert isinstance(start, d.StartJob) and len(start.units) == 3
    assert [type(event) for event in decider.heard] == [e.JobSubmitted]


def test_one_of_them_that_waits_again_is_told_as_submitted() -> None:
    for withdrawn in (False, True):
        run = e.Running(Job("9", 2, 60.0), IdSet.of([0, 1]), 0.0)
        ask, decider, cluster = turn((run,))
        back: list[e.Event] = [e.JobRequeued(1.0, "9")]
        ask(e.Batch(1.0, [*back, e.JobWithdrawn(1.0, "9")] if withdrawn else back))
        if withdrawn:
            assert not decider.heard and not cluster.withdrawn
            ask(e.Batch(2.0, [e.JobSubmitted(2.0, run.job)]))
        assert [type(event) for event in decider.heard] == [e.JobSubmitted]


def test_a_job_that_is_withdrawn_and_submitted_again_still_waits_in_the_deciders_queue() -> None:
    ask, decider, _ = turn()
    job = Job("1", 1, 60.0)
    for event in (e.JobSubmitted(1.0, job), e.JobWithdrawn(2.0, "1"), e.JobSubmitted(3.0, job)):
        ask(e.Batch(event.at, [event]))
    assert [type(event) for event in decider.heard] == [e.JobSubmitted]
    decider.answers = [d.StartJob(4.0, "1", IdSet.of([0]))]
    assert len(ask(e.Batch(4.0, [])).decisions) == 1


def test_a_job_that_comes_back_and_is_withdrawn_at_once_is_told_when_it_is_submitted_again() -> None:
    ask, decider, _ = turn()
    job = Job("1", 1, 60.0)
    decider.answers = [d.StartJob(1.0, "1", IdSet.of([0]))]
    ask(e.Batch(1.0, [e.JobSubmitted(1.0, job)]))
    ask(e.Batch(2.0, [e.JobRequeued(2.0, "1"), e.JobWithdrawn(2.0, "1")]))
    ask(e.Batch(3.0, [e.JobSubmitted(3.0, job)]))
    assert [type(event) for event in decider.heard] == [e.JobSubmitted, e.JobEnded, e.JobSubmitted]


def test_jobs_that_another_scheduler_started_are_not_told() -> None:
    ask, decider, cluster = turn()
    ask(e.Batch(1.0, [e.JobHolds(1.0, Job("9", 2, 60.0), IdSet.of([0, 1]), 0.0)]))
    decider.answers = [d.StartJob(2.0, "1", IdSet.of([0]))]
    (start,) = ask(e.Batch(2.0, [e.JobSubmitted(2.0, Job("1", 1, 60.0))])).decisions
    assert isinstance(start, d.StartJob) and start.units == IdSet.of([2])
    ask(e.Batch(3.0, [e.JobHolds(3.0, Job("1", 1, 60.0), IdSet.of([3]), 2.0)]))
    ask(e.Batch(4.0, [e.JobEnded(4.0, "9", JobState.SUCCEEDED, 0, IdSet.of([0, 1]))]))
    ask(e.Batch(5.0, [e.JobEnded(5.0, "1", JobState.SUCCEEDED, 0, IdSet.of([3]))]))
    assert cluster.free == 4
    assert [(type(event), getattr(event, "units", None)) for event in decider.heard] == [
        (e.JobSubmitted, None),
        (e.JobEnded, IdSet.of([0])),
    ]
