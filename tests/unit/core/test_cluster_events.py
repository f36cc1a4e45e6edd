"""What changes a decider's picture besides starts and ends; the queue as a sequence; wrong decisions that are survived."""

from __future__ import annotations

import pytest

from pilothouse.core.check import Refusal
from pilothouse.core.cluster import Cluster
from pilothouse.core.refused import MOST_REFUSALS, MOST_WARNINGS, Refused
from pilothouse.core.waiting_queue import Queue
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.answers import Never, NotNow, Placed
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState

SLEEPY = {"sleep_pstates": "1:2:3"}


def cluster(**more: object) -> Cluster:
    nodes = (Node("n0", 0, 2), Node("n1", 2, 3, properties=SLEEPY))
    return Cluster(e.Begins(nodes=nodes, **more), "tester")  # type: ignore[arg-type]


def submitted(c: Cluster, name: str, units: int = 1) -> Job:
    job = Job(name, units, 100.0)
    c.observe(e.JobSubmitted(0.0, job))
    return job


def test_a_job_that_a_decider_says_runs_holds_no_unit() -> None:
    c = cluster()
    submitted(c, "a")
    c.book(d.SetJobState(5.0, "a", JobState.RUNNING))
    assert c.state_of("a") is JobState.RUNNING and len(c.queue) == 0 and c.free == 5
    assert c.running["a"].started_at == 5.0
    c.book(d.SetJobState(6.0, "a", JobState.SUCCEEDED))
    assert c.state_of("a") is JobState.SUCCEEDED and not c.running


def test_a_job_that_a_decider_says_has_ended_gives_its_units_back() -> None:
    c = cluster()
    assert c.start(submitted(c, "a", 2))
    assert c.free == 3
    c.book(d.SetJobState(5.0, "a", JobState.FAILED))
    assert c.free == 5 and c.state_of("a") is JobState.FAILED and not c.running
    submitted(c, "b")
    c.book(d.SetJobState(5.0, "b", JobState.OMITTED))
    assert len(c.queue) == 0 and c.state_of("b") is JobState.OMITTED


def test_priorities_and_walltimes_change_for_jobs_that_are_there() -> None:
    c = cluster()
    waits, runs = submitted(c, "waits"), submitted(c, "runs")
    c.start(runs)
    c.observe(e.PrioritiesChanged(1.0, {"waits": 7.0, "runs": 8.0, "gone": 9.0}))
    assert (waits.priority, runs.priority) == (7.0, Job("x", 1).priority)
    for name in ("waits", "runs", "gone"):
        c.observe(e.WalltimeChanged(1.0, name, 55.0))
    assert (waits.walltime, runs.walltime, c.expected_end("runs")) == (55.0, 55.0, 55.0)


def test_units_that_a_job_frees_are_free_and_no_longer_its_own() -> None:
    c = cluster()
    assert c.start(submitted(c, "a", 3)) == Placed(IdSet.of([0, 1, 2]))
    c.observe(e.UnitsFreed(1.0, "a", IdSet.of([1])))
    assert c.running["a"].units == IdSet.of([0, 2]) and c.free_units == IdSet.of([1, 3, 4])
    c.observe(e.JobEnded(2.0, "a", JobState.SUCCEEDED, 0, IdSet.of([0, 2])))
    c.observe(e.UnitsFreed(2.0, "a", IdSet.of([0])))
    assert c.free == 5


def test_nodes_that_are_switched_compute_or_not() -> None:
    c = cluster()
    c.book(d.SwitchUnits(0.0, IdSet.of([2, 3, 4]), 1))
    assert c.free_units == IdSet.of([0, 1])
    c.observe(e.UnitsSwitched(1.0, IdSet.of([2, 3, 4]), 1))
    assert c.free_units == IdSet.of([0, 1]), "it sleeps"
    c.book(d.SwitchUnits(2.0, IdSet.of([2, 3, 4]), 0))
    assert c.free == 2
    c.observe(e.UnitsSwitched(3.0, IdSet.of([2, 3, 4]), 0))
    assert c.free == 5
    c.observe(e.UnitsSwitched(4.0, IdSet.of([0, 1]), 0))
    assert c.free == 5


def test_other_nodes_stay_as_they_are_when_some_are_switched() -> None:
    c = cluster(unavailable=IdSet.of([0, 1]))
    n1 = IdSet.of([2, 3, 4])
    c.observe(e.UnitsSwitched(1.0, n1, 1))
    assert (c.off_mask, c.free) == (0b11111, 0)
    c.observe(e.UnitsSwitched(2.0, n1, 0))
    assert (c.off_mask, c.free_units) == (0b11, n1)


def test_answers_are_true_only_for_starts() -> None:
    assert Placed(IdSet.of([1])) and not NotNow("later") and not Never("too large")


@pytest.mark.parametrize("count", [0, 1, 4])
def test_the_queue_is_a_sequence(count: int) -> None:
    jobs = [Job(f"j{number}", 1) for number in range(count)]
    queue = Queue({job.id: job for job in jobs})
    assert list(queue) == jobs and len(queue) == count
    for place in range(-count - 2, count + 2):
        if -count <= place < count:
            assert queue[place] is jobs[place] and jobs[place] in queue
        else:
            with pytest.raises(IndexError, match=f"{count} jobs wait; there is no place {place}"):
                queue[place]
        assert queue[place:] == jobs[place:] and queue[:place] == jobs[:place]
    assert Job("stranger", 1) not in queue and "j0" not in queue


def refused(c: Cluster, job_id: str, found: Refused) -> list[d.Decision]:
    found.add(c, d.StartJob(c.now, job_id, IdSet.of([9])), Refusal("unknown resource", "there is no resource 9"))
    return c.take_decisions()


def test_a_job_is_tried_again_until_its_start_was_refused_too_often() -> None:
    c, found = cluster(survives_refusals=True), Refused()
    submitted(c, "a")
    submitted(c, "b")
    for _ in range(MOST_REFUSALS - 1):
        (note,) = refused(c, "a", found)
        assert isinstance(note, d.Annotate) and "it is tried again" in str(note)
        refused(c, "b", found)
    (last,) = refused(c, "a", found)
    assert isinstance(last, d.RejectJob) and last.job_id == "a" and f"refused {MOST_REFUSALS} times" in last.reason
    assert [job.id for job in c.queue] == ["b"]
    assert [job.id for _, job in found.take_starts()].count("a") == MOST_REFUSALS and not found.take_starts()
    warnings = found.take_warnings()
    assert len(warnings) == 2 * MOST_REFUSALS - 1 and warnings[0].startswith("refused a StartJob: tester: unknown resource: ")
    assert not found.take_warnings()


def test_other_wrong_decisions_are_only_warned_of() -> None:
    c, found = cluster(survives_refusals=True), Refused()
    submitted(c, "a")
    for decision in (d.RejectJob(0.0, "a"), d.StartJob(0.0, "stranger", IdSet.of([0]))):
        found.add(c, decision, Refusal("rule", "detail"))
    assert len(found.warnings) == 2 and not found.starts and not c.take_decisions()
    for _ in range(MOST_WARNINGS):
        found.add(c, d.RejectJob(0.0, "a"), Refusal("rule", "detail"))
    assert len(found.warnings) == MOST_WARNINGS


def test_a_freed_part_of_a_node_keeps_the_memory_and_gpus_of_the_rest() -> None:
    node = Node("n0", 0, 4, gpus=2, memory_mb=1000)
    cluster = Cluster(e.Begins((node,)), "test")
    job = Job("1", 4, shape=Shape(nodes=1, gpus_per_node=2, memory_mb_per_node=800))
    cluster.observe(e.JobSubmitted(0.0, job))
    assert cluster.start(job)
    cluster.observe(e.UnitsFreed(1.0, "1", IdSet.span(2, 2)))
    assert cluster.free == 2 and cluster.node_table.extras_left(0) == (0, 200)
    cluster.observe(e.UnitsFreed(2.0, "1", IdSet.span(0, 2)))
    assert cluster.free == 4 and cluster.node_table.extras_left(0) == (2, 1000)


@pytest.mark.parametrize("known", [False, True])
def test_what_a_job_holds_is_booked_as_the_world_sees_it(known: bool) -> None:
    nodes = (Node("n0", 0, 4, gpus=2, memory_mb=1000), Node("n1", 4, 4, gpus=2, memory_mb=1000))
    cluster = Cluster(e.Begins(nodes), "test")
    asked = Job("1", 4, shape=Shape(nodes=1))
    if known:
        cluster.observe(e.JobSubmitted(0.0, asked))
        assert cluster.start(asked)
    assert cluster.node_table.extras_left(1) == (2, 1000)
    holds = Job("1", 3, 60.0, shape=Shape(chunk=1, gpus_per_node=1, memory_mb_per_chunk=100))
    cluster.observe(e.JobHolds(2.0, holds, IdSet.span(3, 3), 1.0))
    assert cluster.free == 5 and cluster.expected_end("1") == 61.0
    assert [cluster.node_table.extras_left(position) for position in (0, 1)] == [(1, 900), (1, 800)]
    cluster.observe(e.JobEnded(3.0, "1", JobState.SUCCEEDED, 0, IdSet.span(3, 3)))
    assert cluster.free == 8 and cluster.node_table.extras_left(1) == (2, 1000)
