"""The job queue of a manager: what it hands out, what it counts as used, and where waiting jobs are in line."""

from __future__ import annotations

import msgspec
import pytest

from pilothouse.dropins.qcg.job_queue import RENUMBERED, JobQueue
from pilothouse.dropins.qcg.registry import Runtime, Usage
from pilothouse.formats.qcg_dialect import LATER
from pilothouse.formats.qcg_requests import Submit, parse_request
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Node
from pilothouse.model.lifecycle import JobState
from unit.dropins.qcg.virtual import nodes_of


def job(name: str, cores: object = 1, **more: object) -> dict[str, object]:
    size = {"exact": cores} if isinstance(cores, int) else cores
    return {"name": name, "execution": {"exec": "/bin/true"}, "resources": {"numCores": size}, **more}


def accept(queue: JobQueue, *jobs: dict[str, object], now: float = 0.0) -> None:
    request = parse_request(msgspec.json.encode({"request": "submit", "jobs": jobs}), dict, LATER)
    assert isinstance(request, Submit)
    queue.accept(request.jobs, now)


def names(queue: JobQueue, room: int, *narrow_room: int) -> list[str]:
    return [job.id for job in queue.take_ready(room, 1.0, *narrow_room)]


def start(queue: JobQueue, name: str, *units: int) -> None:
    queue.allocated(name, IdSet.of(units), 2.0)
    queue.launched(name, 2.0, wd="/wd", program="true")


def positions(queue: JobQueue) -> dict[str, int | None]:
    return {name: entry.queue_position for name, entry in queue.registry.entries.items()}


def test_few_jobs_of_one_core_are_handed_out_at_a_time_and_others_do_not_count() -> None:
    queue = JobQueue("q", nodes_of(4))
    on_a_node = {"numNodes": {"exact": 1}, "numCores": {"exact": 1}}
    accept(queue, job("node", resources=on_a_node), job("a"), job("wide", 2), job("b"), job("c"), job("wider", 3))
    assert names(queue, 99, 0) == []
    assert names(queue, 99, 2) == ["node", "a", "wide", "b"]
    assert queue.ready == 2
    assert names(queue, 1) == ["c"]
    assert names(queue, 0) == []
    assert names(queue, 1) == ["wider"]
    assert queue.ready == 0


def test_the_sizes_of_a_loop_are_computed_once() -> None:
    """maximum-iters shares the allocation among the iterations; those that follow get what was planned for them."""
    queue = JobQueue("q", nodes_of(4))
    accept(queue, job("a", {"min": 1, "scheduler": {"name": "maximum-iters"}}, iteration={"stop": 3}))
    assert [each.units for each in queue.take_ready(1, 1.0)] == [1]
    queue.joined((Node("n1", 4, 20),))
    assert [each.units for each in queue.take_ready(9, 1.0)] == [1, 2]


def test_a_plain_job_is_sized_when_it_is_handed_out() -> None:
    queue = JobQueue("q", nodes_of(4))
    accept(queue, job("a", 6))
    queue.joined((Node("n1", 4, 2),))
    assert names(queue, 9) == ["a"]


def test_units_that_jobs_share_count_once() -> None:
    """The jobs of a bundle have the same core."""
    queue = JobQueue("q", nodes_of(4, 2), reserved=1)
    assert (queue.usage, queue.busy) == (Usage(2, 7, 1), False)
    accept(queue, job("a"), job("b"), job("c", 2))
    names(queue, 9)
    start(queue, "a", 0)
    start(queue, "b", 0)
    start(queue, "c", 3, 4)
    assert (queue.usage, queue.busy) == (Usage(2, 7, 4), True)
    assert queue.usage.free == 3
    for name in "abc":
        queue.ended(name, JobState.SUCCEEDED, 0, 3.0)
    assert (queue.usage, queue.busy, queue.all_finished) == (Usage(2, 7, 1), False, True)


def test_where_and_how_a_job_ran() -> None:
    queue = JobQueue("q", nodes_of(4))
    accept(queue, job("a"), job("b"))
    names(queue, 9)
    start(queue, "a", 0)
    start(queue, "b", 1)
    queue.ended("a", JobState.FAILED, 3, 3.5, pid=7, message="m")
    queue.ended("b", JobState.SUCCEEDED, 0, 4.0)
    first, second = (queue.registry.entries[name].status for name in "ab")
    assert first.runtime == Runtime("n0[0]", "n0:1", "/wd", "0:00:01.500000", 3, 7, "true")
    assert second.runtime == Runtime("n0[1]", "n0:1", "/wd", "0:00:02.000000", 0, -1, "true"), "its process is not known"
    assert (first.messages, second.messages) == ("m", None)


def test_a_node_that_joins_again_counts_once() -> None:
    queue = JobQueue("q", nodes_of(4, 2))
    queue.joined((Node("n1#2", 6, 2),))
    assert [node.name for node in queue.nodes] == ["n0", "n1#2"]
    assert queue.usage == Usage(2, 6, 0)


def test_positions_in_line_move_up_when_a_turn_is_over() -> None:
    queue = JobQueue("q", nodes_of(4))
    accept(queue, *(job(name) for name in "abcd"))
    assert positions(queue) == {"a": 0, "b": 1, "c": 2, "d": 3}
    names(queue, 9)
    start(queue, "b", 1)
    assert positions(queue)["c"] == 2, "the turn is not over"
    queue.turn_is_over()
    assert positions(queue) == {"a": 0, "b": 1, "c": 1, "d": 2}
    queue.ended("b", JobState.SUCCEEDED, 0, 3.0)
    queue.turn_is_over()
    start(queue, "a", 0)
    queue.turn_is_over()
    assert positions(queue) == {"a": 0, "b": 1, "c": 0, "d": 1}


def test_on_a_full_allocation_only_jobs_ahead_of_those_that_started_move_up() -> None:
    queue = JobQueue("q", nodes_of(2))
    accept(queue, *(job(name) for name in "abcde"))
    names(queue, 9)
    start(queue, "b", 0)
    start(queue, "c", 1)
    queue.turn_is_over()
    assert positions(queue) == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}
    queue.ended("b", JobState.SUCCEEDED, 0, 3.0)
    start(queue, "e", 0)
    queue.turn_is_over()
    assert positions(queue) == {"a": 0, "b": 1, "c": 2, "d": 1, "e": 4}


def test_only_the_first_positions_are_kept_up_to_date() -> None:
    queue = JobQueue("q", nodes_of(2))
    count = RENUMBERED + 3
    accept(queue, *(job(f"j{number}") for number in range(count)))
    names(queue, 1)
    start(queue, "j0", 0)
    queue.turn_is_over()
    assert list(positions(queue).values()) == [0, *range(RENUMBERED), RENUMBERED + 1, RENUMBERED + 2]


def test_a_loop_is_in_line_until_its_last_iteration_starts() -> None:
    queue = JobQueue("q", nodes_of(4))
    accept(queue, job("a", iteration={"start": 2, "stop": 4}), job("b"))
    assert names(queue, 9) == ["a:2", "a:3", "b"]
    start(queue, "a:2", 0)
    queue.turn_is_over()
    assert positions(queue) == {"a": 0, "b": 1}
    start(queue, "a:3", 1)
    queue.turn_is_over()
    assert positions(queue) == {"a": 0, "b": 0}


@pytest.mark.parametrize("publishes", [True, False])
def test_events_are_published_where_anything_receives_them(publishes: bool) -> None:
    queue = JobQueue("q", nodes_of(4))
    queue.publishes = publishes
    accept(queue, job("a", iteration={"stop": 1}))
    names(queue, 9)
    start(queue, "a:0", 0)
    queue.ended("a:0", JobState.SUCCEEDED, 0, 3.0)
    outbox = queue.take_outbox()
    done = [("NOJ", {"manager": "q"})]
    each = [("IST", "SCHEDULED"), ("IST", "EXECUTING"), ("IST", "SUCCEED"), ("IFI", "SUCCEED")]
    told = [(topic, {"manager": "q", "job": "a", "state": state, "it": 0}) for topic, state in each]
    told += [(topic, {"manager": "q", "job": "a", "state": "SUCCEED"}) for topic in ("JST", "JFI")]
    assert outbox.publications == ([*told, *done] if publishes else done)
    assert [(entry.name, index) for entry, index in outbox.finished] == [("a", 0), ("a", None)]
    assert queue.take_outbox().finished == []


def test_a_circle_is_omitted_with_its_reason() -> None:
    queue = JobQueue("q", nodes_of(4))
    accept(queue, job("a", dependencies={"after": ["b"]}), job("b", dependencies={"after": ["a"]}), job("c"))
    assert names(queue, 9) == ["c"]
    assert queue.registry.unfinished == 3
    start(queue, "c", 0)
    queue.ended("c", JobState.SUCCEEDED, 0, 3.0)
    for name in "ab":
        status = queue.registry.entries[name].status
        assert (status.state, status.messages) == (JobState.OMITTED, "the jobs that it waits for wait for it")
    assert queue.all_finished


def test_a_job_that_was_cancelled_while_it_waited_is_not_made_ready() -> None:
    queue = JobQueue("q", nodes_of(4))
    after = {"after": ["a"]}
    accept(queue, job("a"), job("b", dependencies=after), job("c", iteration={"stop": 2}, dependencies=after))
    assert names(queue, 9) == ["a"]
    for name in "bc":
        queue.cancel(queue.registry.entries[name], None, 2.0)
    start(queue, "a", 0)
    queue.ended("a", JobState.SUCCEEDED, 0, 3.0)
    assert (queue.ready, names(queue, 9), queue.all_finished) == (0, [], True)
    assert [queue.registry.entries[name].status.state for name in "bc"] == [JobState.KILLED] * 2


def test_a_job_that_ended_before_it_was_launched_ran_for_no_time() -> None:
    queue = JobQueue("q", nodes_of(4))
    accept(queue, job("a"))
    names(queue, 9)
    queue.allocated("a", IdSet.of([0]), 2.0)
    queue.ended("a", JobState.FAILED, -1, 9.0)
    assert queue.registry.entries["a"].status.runtime == Runtime("n0[0]", "n0:1", None, "0:00:00.000000", -1, -1)


def test_what_depends_on_a_refused_job_is_omitted_at_once() -> None:
    queue = JobQueue("q", nodes_of(4))
    accept(queue, job("a"), job("b", dependencies={"after": ["a"]}), job("c", dependencies={"after": ["b"]}))
    names(queue, 9)
    queue.refused("a", "no", 2.0)
    entries = queue.registry.entries
    assert entries["a"].status.messages == "no"
    assert {name: entry.status.state for name, entry in entries.items()} == {
        "a": JobState.REFUSED, "b": JobState.OMITTED, "c": JobState.OMITTED,
    }  # fmt: skip
    assert queue.take_outbox().publications[-1] == ("NOJ", {"manager": "q"})
    assert queue.all_finished and queue.item_of("a") is None


def test_a_job_that_had_ended_before_a_manager_was_resumed_is_not_made_ready() -> None:
    queue = JobQueue("q", nodes_of(4))
    accept(queue, job("a"), job("b", dependencies={"after": ["a"]}), job("c", dependencies={"after": ["a"]}))
    first, second, _ = queue.registry.entries.values()
    queue.restore((second, None), JobState.KILLED, 2.0)
    queue.restore((first, None), JobState.SUCCEEDED, 3.0)
    queue.restore((first, None), JobState.FAILED, 4.0)
    assert first.status.history[-1] == (JobState.SUCCEEDED, 3.0), "the first end that is known counts"
    assert queue.ready == 2
    assert names(queue, 9) == ["c"]
    assert queue.ready == 0
