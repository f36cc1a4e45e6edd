"""What a policy asks of the Cluster and decides on it, and what becomes of the queue, the units and the expected starts."""

from __future__ import annotations

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.answers import Never, NotNow, Placed
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState


def cluster(**more: object) -> Cluster:
    """Two nodes of 4 units; a job holds unit 2 since date 3, at date 5."""
    nodes = (Node("n0", 0, 4), Node("n1", 4, 4))
    running = (e.Running(Job("first", 1, 100.0), IdSet.parse("2"), 3.0),)
    return Cluster(e.Begins(nodes=nodes, running=running, started_at=5.0, **more), "tester")  # type: ignore[arg-type]


def submitted(c: Cluster, name: str, units: int = 1, **more: object) -> Job:
    job = Job(name, units, **more)  # type: ignore[arg-type]
    c.observe(e.JobSubmitted(c.now, job))
    return job


@pytest.mark.parametrize(
    ("units", "most", "how", "expected"),
    [
        (1, 0, {}, "0"),
        (2, 0, {}, "0-1"),
        (3, 0, {}, "3-5"),
        (3, 0, {"lowest": True}, "0-1 3"),
        (3, 0, {"least": True}, "3-5"),
        (6, 0, {}, "0-1 3-6"),
        (7, 0, {}, "0-1 3-7"),
        (2, 5, {}, "3-7"),
        (2, 5, {"least": True}, "0-1"),
        (2, 5, {"lowest": True}, "0-1 3-5"),
        (1, 5, {"lowest": True}, "0-1 3-5"),
        (2, 9, {}, "0-1 3-7"),
        (2, 9, {"lowest": True}, "0-1 3-7"),
        (2, 0, {"avoid": 0b10}, "3-4"),
        (3, 0, {"avoid": 0b110001}, "1 3 6"),
        (2, 4, {"avoid": 0b11}, "3-6"),
        (2, 4, {"avoid": 0b11, "least": True}, "3-4"),
        (2, 4, {"avoid": 0b11110011}, ""),
        (1, 4, {"avoid": 0b11110011}, "3"),
        (7, 0, {"avoid": 0b100}, "0-1 3-7"),
        (7, 0, {"avoid": 0b1}, ""),
    ],
)
def test_where_a_job_starts(units: int, most: int, how: dict[str, int], expected: str) -> None:
    c = cluster()
    job = submitted(c, "a", units, most_units=most)
    answer = c.start(job, **how)  # type: ignore[arg-type]
    if not expected:
        assert isinstance(answer, NotNow)
        assert (c.free, c.decisions, list(c.queue)) == (7, [], [job])
        return
    placed = IdSet.parse(expected)
    assert answer == Placed(placed)
    assert c.take_decisions() == [d.StartJob(5.0, "a", placed)] and c.take_decisions() == []
    assert (c.running["a"].job, c.running["a"].units, c.running["a"].started_at) == (job, placed, 5.0)
    assert (c.free_units, c.free) == (IdSet.parse("0-1 3-7") - placed, 7 - len(placed))
    assert list(c.queue) == [] and c.state_of("a") is JobState.RUNNING


def test_a_job_that_does_not_fit_is_answered_why() -> None:
    c = cluster()
    assert c.start(submitted(c, "a", 8)) == NotNow("it needs 8 units, and 7 are free")
    assert c.start(submitted(c, "b", 9)) == Never("it needs 9 units, and there are 8")
    assert c.start(submitted(c, "c", 0)) == Never("it asks for no unit")
    assert c.decisions == [] and [job.id for job in c.queue] == ["a", "b", "c"]


@pytest.mark.parametrize("shape", [None, Shape(), Shape(nodes=1)])
def test_a_job_that_avoids_units_is_tried_again_when_something_is_free(shape: Shape | None) -> None:
    c = cluster()
    job, avoid = submitted(c, "a", 4, shape=shape), IdSet.parse("4-7").mask
    assert list(c.job_ids) == ["a"]
    assert isinstance(c.start(job, avoid=avoid), NotNow) and isinstance(c.start(job, avoid=avoid), NotNow)
    c.observe(e.JobEnded(6.0, "first", JobState.SUCCEEDED, 0, IdSet.parse("2")))
    assert c.start(job, avoid=avoid) == Placed(IdSet.parse("0-3")) and not c.job_ids


def test_a_job_starts_on_units_that_were_chosen_for_it() -> None:
    c = cluster()
    units, placement = IdSet.parse("5-6"), d.Placement(d.Strategy.FILL)
    assert c.start(submitted(c, "a", 2), units, placement=placement) == Placed(units)
    assert c.decisions == [d.StartJob(5.0, "a", units, placement)] and c.free_units == IdSet.parse("0-1 3-4 7")
    assert c.start(submitted(c, "b"), placement=placement) == Placed(IdSet.parse("0"))
    assert c.decisions[-1] == d.StartJob(5.0, "b", IdSet.parse("0"), placement)
    with pytest.raises(DecisionError, match="unit already in use"):
        c.start(submitted(c, "c"), IdSet.parse("2"))


def test_a_wrong_start_is_answered_where_wrong_decisions_are_survived() -> None:
    c = cluster(survives_refusals=True)
    job = submitted(c, "a")
    assert c.start(job, IdSet.parse("2")) == NotNow("the decision was refused")
    assert c.state_of("a") is JobState.WAITING
    assert c.start(Job("stranger", 1)) == NotNow("it does not wait")
    assert c.start(job, IdSet.parse("3")) == Placed(IdSet.parse("3"))
    assert c.start(job, IdSet.parse("4")) == NotNow("the decision was refused"), "it runs"
    assert c.start(job) == NotNow("it does not wait")


def test_an_expected_start_is_forgotten_when_the_job_leaves_the_queue() -> None:
    c = cluster()
    for leave in (
        c.start,
        lambda job: c.start(job, IdSet.parse("7")),
        lambda job: c.start(job, avoid=1),
        lambda job: c.reject(job, "why"),
        lambda job: c.observe(e.JobWithdrawn(6.0, job.id)),
    ):
        job, other = submitted(c, f"a{len(c.final)}{c.free}"), Job("other", 1)
        c.expect(job, 50.0)
        c.expect(other, 60.0)
        assert c.expected_starts() == {job.id: 50.0, "other": 60.0}
        leave(job)
        assert c.expected_starts() == {"other": 60.0}
    c.plan_ahead = lambda: {"b": 9.0}
    assert c.expected_starts() == {"b": 9.0}


def test_a_job_that_leaves_the_queue_has_its_last_state() -> None:
    c = cluster()
    c.reject(submitted(c, "refused"), "why")
    assert c.decisions == [d.RejectJob(5.0, "refused", "why")] and c.state_of("refused") is JobState.REFUSED
    submitted(c, "omitted")
    c.book(d.RejectJob(5.0, "omitted", omitted=True))
    assert c.state_of("omitted") is JobState.OMITTED
    submitted(c, "withdrawn")
    c.observe(e.JobWithdrawn(6.0, "withdrawn"))
    assert c.state_of("withdrawn") is None and c.withdrawn == {"withdrawn"}
    c.book(d.ConfirmWithdrawal(6.0, "withdrawn"))
    assert c.state_of("withdrawn") is JobState.KILLED and c.withdrawn == set()
    c.observe(e.JobWithdrawn(7.0, "first"))
    assert c.state_of("first") is JobState.RUNNING and c.withdrawn == set(), "it does not wait"
    assert list(c.queue) == [] and c.state_of("nobody") is None


def test_ends_and_returns() -> None:
    c = cluster()
    waits = submitted(c, "waits")
    assert c.note_ended(e.JobEnded(6.0, "waits", JobState.KILLED, 0, IdSet())) is None
    assert c.state_of("waits") is JobState.KILLED and waits not in c.queue
    ended = c.note_ended(e.JobEnded(6.0, "first", JobState.FAILED, 1, IdSet.parse("2")))
    assert ended is not None and ended.id == "first"
    assert (c.free, c.state_of("first"), list(c.running)) == (8, JobState.FAILED, [])
    again, last = submitted(c, "again", 2), submitted(c, "last")
    c.start(again)
    c.observe(e.JobRequeued(7.0, "again"))
    assert list(c.queue) == [last, again] and c.free == 8 and not c.running
    c.observe(e.JobRequeued(7.0, "again"))
    assert list(c.queue) == [last, again]


def test_what_a_policy_asks_for_is_decided_now() -> None:
    c = cluster()
    c.start(submitted(c, "a"))
    c.take_decisions()
    c.kill(c.running["a"].job, c.running["first"].job)
    c.call_at(9.0)
    c.call_at(9.5, "mine")
    assert c.take_decisions() == [d.KillJobs(5.0, ("a", "first")), d.CallAt(5.0, 9.0, ""), d.CallAt(5.0, 9.5, "mine")]
    assert list(c.running) == ["first", "a"], "they run until the world says that they ended"


def test_a_series_of_calls_is_alive_until_its_last_call_or_its_end() -> None:
    c = cluster()
    for call_id in ("x", "y"):
        c.book(d.CallEvery(5.0, 1.0, call_id))
    c.observe(e.CallArrived(6.0, "x", last=False))
    assert c.calls == {"x", "y"}
    c.observe(e.CallArrived(6.0, "x", last=True))
    c.observe(e.CallArrived(6.0, "x", last=True))
    assert c.calls == {"y"}
    c.book(d.StopCalls(6.0, "y"))
    c.book(d.StopCalls(6.0, "y"))
    assert c.calls == set()


def test_a_node_that_is_lost_may_come_back() -> None:
    c = cluster(unavailable=IdSet.parse("4 1"))
    lost = e.NodesLeft(6.0, ("n1",), IdSet.parse("4-7"), may_return=True)
    c.observe(lost)
    assert (c.total, c.units, list(c.nodes), c.away_mask) == (4, IdSet.parse("0-3"), ["n0"], lost.units.mask)
    assert c.off_mask == 0b10 and c.free_units == IdSet.parse("0 3")
    c.observe(e.NodesJoined(7.0, (Node("n2", 4, 2),)))
    assert (c.total, c.away_mask, c.free_units) == (6, IdSet.parse("6-7").mask, IdSet.parse("0 3-5"))
    assert c.nodes["n2"] == Node("n2", 4, 2)
    c.observe(e.NodesLeft(8.0, ("n2", "n9"), IdSet.parse("4-5")))
    assert (c.total, c.away_mask, list(c.nodes)) == (4, IdSet.parse("6-7").mask, ["n0"])


def test_jobs_with_a_shape_see_nodes_that_came_and_went() -> None:
    c = cluster()
    shape = Shape(nodes=1)
    assert c.start(submitted(c, "a", 0, shape=shape)) == Placed(IdSet.parse("4-7"))
    waits = submitted(c, "b", 0, shape=shape)
    assert isinstance(c.start(waits), NotNow)
    c.observe(e.NodesJoined(6.0, (Node("n2", 8, 2),)))
    assert c.start(waits) == Placed(IdSet.parse("8-9"))
    c.observe(e.NodesLeft(7.0, ("n2",), IdSet.parse("8-9")))
    c.observe(e.JobRequeued(7.0, "b"))
    assert isinstance(c.start(waits), NotNow)
    assert isinstance(c.start(submitted(c, "c", 0, shape=Shape(nodes=3))), Never)


def test_units_of_no_node_are_held_by_those_that_run_there() -> None:
    """A job may run on a node that has left and joins again."""
    running = (e.Running(Job("a", 2), IdSet.parse("3-4"), 0.0),)
    c = Cluster(e.Begins(nodes=(Node("n0", 0, 4),), running=running), "tester")
    assert (c.busy_mask, c.free_units) == (0b11000, IdSet.parse("0-2"))
    c.observe(e.NodesJoined(1.0, (Node("n1", 4, 2),)))
    assert (c.busy_mask, c.free_units) == (0b11000, IdSet.parse("0-2 5"))
    c.observe(e.JobEnded(2.0, "a", JobState.SUCCEEDED, 0, IdSet.parse("3-4")))
    assert (c.busy_mask, c.free) == (0, 6)


@pytest.mark.parametrize(
    ("held", "off", "free"), [("3-4", "", 3), ("0-4", "", 0), ("2-3", "3", 2), ("0-4", "0-1", 0), ("2", "2", 3)]
)
def test_units_of_no_node_or_that_are_off_do_not_come_back(held: str, off: str, free: int) -> None:
    running = (e.Running(Job("a", 2), IdSet.parse(held), 0.0),)
    c = Cluster(e.Begins(nodes=(Node("n0", 0, 4),), running=running, unavailable=IdSet.parse(off)), "tester")
    assert (c.busy_mask, c.free, len(c.free_units)) == (IdSet.parse(held).mask, free, free)
    c.observe(e.JobEnded(2.0, "a", JobState.SUCCEEDED, 0, IdSet.parse(held)))
    assert (c.busy_mask, c.free_units, c.free) == (0, IdSet.parse("0-3") - IdSet.parse(off), 4 - len(IdSet.parse(off)))


def test_units_to_avoid_and_those_to_use_are_seen_apart() -> None:
    c = cluster()
    avoiding, all_free = c.free_nodes(0b1111), c.free_nodes()
    assert ([part.bit_count() for part in avoiding.free], [part.bit_count() for part in all_free.free]) == ([0, 4], [3, 4])
    assert c.free_nodes() is all_free
    assert [part.bit_count() for part in c.free_nodes(0b10000000).free] == [3, 3]


@pytest.mark.parametrize(
    ("nodes", "units"),
    [
        ((), ""),
        ((Node("a", 0),), "0"),
        ((Node("a", 2, 3),), "2-4"),
        ((Node("a", 0, 2), Node("b", 2, 2), Node("c", 4, 1)), "0-4"),
        ((Node("a", 0, 2), Node("b", 3, 2), Node("c", 9, 1)), "0-1 3-4 9"),
        ((Node("a", 6, 2), Node("b", 8, 1), Node("c", 1, 2), Node("d", 3, 1)), "1-3 6-8"),
    ],
)
def test_the_units_are_those_of_all_nodes(nodes: tuple[Node, ...], units: str) -> None:
    c = Cluster(e.Begins(nodes=nodes), "tester")
    assert c.units == c.free_units == IdSet.parse(units)
    assert c.total == c.free == len(IdSet.parse(units)) == c.begins.units
