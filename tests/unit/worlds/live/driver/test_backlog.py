"""The backlog: which groups come next, how large they are and what they are called."""

from __future__ import annotations

from math import inf

import pytest

from pilothouse.formats.task_file import LineKind, TaskLine
from pilothouse.model.job import Command, Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.model.task_request import TaskRequest
from pilothouse.worlds.live.driver.task_groups import Backlog, TaskGroup, TaskTemplates, group_of_job, with_more_memory
from pilothouse.worlds.live.feeder import BUNDLE_BYTES, DoneIds, Feeder
from pilothouse.worlds.live.wire.messages import Task, TaskEnvironment

JOB = Job("", 1, command=Command())
SHORT = TaskRequest(name="short")
LIMITED = TaskRequest(walltime=5.0)


def backlog(*lines: TaskLine, bundle: int = 1000, done: DoneIds | None = None, paced: bool = True) -> Backlog:
    made = Backlog(JOB, TaskEnvironment(env={"A": "1"}), bundle, done or DoneIds())
    made.feeder = Feeder(iter(lines))
    if paced:
        made.pace.note(0.001)
    return made


def lines(count: int, request: TaskRequest | None = None) -> list[TaskLine]:
    return [TaskLine(number, number + 1, -1, f"do {number}", request=request) for number in range(count)]


def given(made: Backlog, most: int = 99, units: int = 1) -> list[tuple[str, list[int]]]:
    return [(group.job.id, list(group.tasks)) for group in made.groups(most, units, 3.0)]


def test_submitted_jobs_come_first_then_what_came_back_then_the_file() -> None:
    made = backlog(*lines(2), bundle=1)
    made.give_back(Task(9, attempt=2))
    made.give_back(Task(8))
    for name in ("x", "y"):
        made.add(group_of_job(Job(name, 1), 100, 1, bind=False))
    assert made.waiting_here == 4 and not made.empty
    assert [group.job.id for group in made.jobs] == ["x", "y"]
    assert given(made, most=1) == [("x", [100])]
    assert given(made, most=3) == [("y", [100]), ("9#2@1", [9]), ("8@2", [8])]
    assert made.waiting_here == 0 and made.last_given == -1
    assert given(made) == [("0", [0]), ("1", [1])]
    assert made.last_given == 1 and not made.empty, "they have not ended"
    for task_id in range(2):
        made.ended(task_id, failed=False)
    assert made.empty and given(made) == []


def test_bundles_have_names_of_their_own() -> None:
    made = backlog(*lines(7), bundle=3)
    assert given(made) == [("0+2@1", [0, 1, 2]), ("3+2@2", [3, 4, 5]), ("6", [6])]
    made.taken("0+2@40")
    made.taken("5")
    made.taken("a@b")
    made.taken("0+2@7")
    made.give_back(Task(3))
    assert given(made) == [("3@41", [3])]


@pytest.mark.parametrize(("request_", "sizes"), [(None, [4, 3, 2, 2, 1, 1]), (SHORT, [4, 3, 2, 2, 1, 1]), (LIMITED, [1] * 13)])
def test_what_came_back_is_bundled_less_and_less(request_: TaskRequest | None, sizes: list[int]) -> None:
    """So that a slow task is not bundled with the same others again; tasks with a walltime never are."""
    made = backlog()
    for number in range(13):
        made.give_back(Task(number, request=request_))
    found = [len(tasks) for _, tasks in given(made, units=2)]
    assert found == sizes
    for number in range(13):
        made.give_back(Task(number, request=request_))
    assert [len(tasks) for _, tasks in given(made, most=1, units=0)] == [7 if sizes[0] > 1 else 1], "without units as with one"


def test_a_bundle_holds_tasks_of_one_request() -> None:
    made = backlog()
    for number, request in enumerate((SHORT, SHORT, LIMITED, LIMITED, None, None, None)):
        made.give_back(Task(number, request=request))
    assert [tasks for _, tasks in given(made)] == [[0, 1], [2], [3], [4, 5], [6]]


def test_bundles_shrink_towards_the_end_of_a_file_that_was_counted() -> None:
    made = backlog(*lines(400))
    made.total = 400
    sizes = [len(tasks) for _, tasks in given(made, units=1)]
    assert sizes[0] == 200 and sizes[-1] <= 20 and sum(sizes) == 400 and sizes == sorted(sizes, reverse=True)
    fewer = backlog(*lines(30))
    fewer.total = 10  # more came than were counted
    assert sum(len(tasks) for _, tasks in given(fewer)) == 30
    assert [len(tasks) for _, tasks in given(backlog(*lines(30)))] == [30], "where nothing was counted"


def test_bundles_of_long_commands_fit_into_messages() -> None:
    made = backlog(*lines(5))
    made.give_back(Task(9, line=b"x" * (BUNDLE_BYTES // 2)))
    made.give_back(Task(8, line=b"x"))
    assert [len(tasks) for _, tasks in given(made, units=9)] == [1, 1, 2, 2, 1], "the longest command counts"


def test_tasks_that_engines_have_in_hand_are_passed_over() -> None:
    made = backlog(*lines(6), bundle=2)
    made.held.update((0, 1, 3))
    made.attempts[2] = 4
    found = list(made.groups(99, 1, 0.0))
    assert [[(task.task_id, task.attempt) for task in group.tasks.values()] for group in found] == [[(2, 4)], [(4, 1), (5, 1)]]
    assert [group.job.id for group in found] == ["2#4", "4+1@1"]


@pytest.mark.parametrize("failed", [False, True])
def test_a_task_that_ended_after_it_was_read_is_not_given_out(failed: bool) -> None:
    """An engine had it in hand when the driver was restarted, and has reported its end."""
    done = DoneIds()
    first, last = lines(3)[::2]
    made = backlog(first, TaskLine(1, 2, -1, "", LineKind.CHECK), last, done=done, bundle=1)
    made.held.add(0)
    done.add(0, JobState.FAILED if failed else JobState.SUCCEEDED, 1)
    made.ended(0, failed=failed)  # it was not given out: the feeder has not counted it
    assert given(made) == ([] if failed else [("2", [2])])
    assert made.feeder is not None
    assert made.feeder.check_failed is failed and made.feeder.outstanding == (0 if failed else 1)


def test_cancelled_tasks_are_withdrawn_when_they_come_up_and_when_they_came_back() -> None:
    made = backlog(*lines(4), bundle=2)
    made.cancelled.update((0, 3, 7))
    made.give_back(Task(7))
    made.give_back(Task(8))
    assert made.came_back(7) and not made.came_back(3)
    assert [task.task_id for task in made.withdraw_cancelled()] == [7]
    assert not made.came_back(7) and made.came_back(8)
    assert given(made) == [("8@1", [8]), ("1", [1]), ("2", [2])]
    assert [task.task_id for task in made.withdraw_cancelled()] == [0, 3]
    assert made.withdraw_cancelled() == []


def test_a_submitted_job_is_taken_back_once() -> None:
    made = backlog()
    for name in ("x", "y", "z"):
        made.add(group_of_job(Job(name, 1), 100, 1, bind=False))
    taken = made.withdraw("y")
    assert taken is not None and taken.job.id == "y"
    assert made.withdraw("y") is None
    assert [name for name, _ in given(made)] == ["x", "z"]


def test_a_group_of_the_file_has_the_job_and_the_environment_of_its_request() -> None:
    made = backlog(*lines(1, TaskRequest(cores=2, memory_mb=50, walltime=7.0, env=(("B", "2"),))))
    (group,) = made.groups(1, 1, 3.0)
    assert (group.job.units, group.job.walltime, group.job.submitted_at) == (2, 7.0, 3.0)
    assert group.job.shape == Shape(nodes=1, most_nodes=1, memory_mb_per_node=50)
    environment = group.environment
    assert (environment.walltime, environment.memory_mb, environment.env) == (7.0, 50, {"A": "1", "B": "2"})
    assert (group.from_file, group.size, group.state) == (True, 1, JobState.KNOWN)
    empty = made.named_group("none", {})
    assert (empty.job.units, empty.job.walltime, empty.size) == (1, inf, 0)


def test_requests_for_the_same_share_a_shape_and_a_template() -> None:
    templates = TaskTemplates(JOB, TaskEnvironment())
    assert templates.of(None) == (JOB, TaskEnvironment())
    first, again = templates.of(TaskRequest(cores=4)), templates.of(TaskRequest(cores=4))
    other = templates.of(TaskRequest(cores=4, walltime=9.0))
    assert first is again
    assert first[0].shape is other[0].shape and first[0].shape is not None


def test_a_submitted_job_as_a_group() -> None:
    command = Command(argv=("a", "\udcff"), cwd="/w", stdin="i", stdout="o", stderr="e", env={"X": "1"}, memory_mb=9)
    group = group_of_job(Job("j", 2, 30.0, command=command), 5, 3, bind=True)
    assert group.environment == TaskEnvironment(30.0, "/w", "i", "o", "e", {"X": "1"}, True, 9)
    assert group.tasks == {5: Task(5, attempt=3, argv=(b"a", b"\xff"))}
    assert (group.from_file, group.killed) == (False, False)
    assert group_of_job(Job("j", 2), 5, 1, bind=False).tasks == {5: Task(5)}


@pytest.mark.parametrize(("reason", "killed"), [("", False), ("a node of it was lost", False), ("killed", True), ("x", True)])
def test_a_lost_node_kills_nothing_for_good(reason: str, killed: bool) -> None:
    assert TaskGroup(JOB, {}, TaskEnvironment(), kill_reason=reason).killed is killed


@pytest.mark.parametrize(
    ("used", "factor", "most", "asks"),
    [(100, 1.5, 1000, 150), (101, 1.5, 1000, 152), (800, 1.5, 1000, 1000), (999, 2.0, 1000, 1000)],
)
def test_more_memory_is_rounded_up_and_at_most_that_of_a_node(used: int, factor: float, most: int, asks: int) -> None:
    for request in (None, TaskRequest(cores=3)):
        larger = with_more_memory(Task(1, request=request), used, factor, most)
        assert larger is not None and larger.request is not None
        assert (larger.request.memory_mb, larger.request.cores) == (asks, 0 if request is None else 3)
    assert with_more_memory(Task(1), most, factor, most) is None
    assert with_more_memory(Task(1), most + 1, factor, most) is None
