"""When waiting jobs start if the present state goes on: of a Cluster, and of a live run."""

from __future__ import annotations

from math import inf

import pytest

from pilothouse.campaign.durations import GivenDurations
from pilothouse.campaign.forecast import expected_starts as starts_of_tasks
from pilothouse.campaign.run_ahead import expected_starts
from pilothouse.core.cluster import Cluster
from pilothouse.formats.task_file import TaskReader
from pilothouse.launch.start_estimates import StartEstimates
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node, Shape
from pilothouse.policies.base import Policy
from pilothouse.policies.catalog import CATALOG, make
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.task_feed import RunningGroup, RunStart
from pilothouse.worlds.live.wire.messages import Task

NOW = 1.7e9
"""As a Flux counts."""


def cluster(waiting: list[Job], *, nodes: int = 2, cores: int = 4, off: IdSet = IdSet()) -> Cluster:  # noqa: B008
    """Job `r` has held all units of the first node for 40 of its 100 s."""
    machine = tuple(Node(f"n{i}", i * cores, cores) for i in range(nodes))
    running = (e.Running(Job("r", cores, 100.0), IdSet.span(0, cores), NOW - 40),)
    made = Cluster(e.Begins(machine, started_at=NOW - 50, running=running, unavailable=off), "easy")
    made.now = NOW
    for job in waiting:
        made.observe(e.JobSubmitted(NOW, job))
    return made


def after(made: Cluster, policy: str, **options: object) -> dict[str, float]:
    found = expected_starts(made, make(policy, {}), **options)  # type: ignore[arg-type]
    return {job_id: date - NOW for job_id, date in found.items()}


def test_every_waiting_job_has_a_date_and_nothing_is_changed() -> None:
    jobs = [Job("a", 8, 10.0, NOW - 9), Job("b", 8, 20.0, NOW - 8), Job("c", 4, 60.0, NOW - 7), Job("d", 4, 61.0, NOW - 6)]
    made = cluster(jobs)
    assert after(made, "easy") == {"a": 60, "b": 70, "c": 0, "d": 90}
    assert after(made, "fcfs") == {"a": 60, "b": 70, "c": 90, "d": 90}
    assert (list(made.waiting), list(made.running), made.decisions) == (["a", "b", "c", "d"], ["r"], [])
    assert all(job.profile is None and job.runtime is None for job in jobs)


def test_what_is_known_of_the_machine_counts() -> None:
    assert after(cluster([Job("a", 4, 5.0)], off=IdSet.span(4, 4)), "fcfs") == {"a": 60}, "a node is down"
    assert after(cluster([Job("a", 9, 5.0), Job("b", 4, 5.0)]), "fcfs") == {"b": 0}, "it is larger than the machine"
    whole = Job("a", 4, 5.0, shape=Shape(nodes=2))
    assert after(cluster([whole]), "fcfs") == {"a": 60}
    gone = cluster([Job("a", 4, 5.0)])
    gone.observe(e.NodesLeft(NOW, ("n1",), IdSet.span(4, 4)))
    assert after(gone, "fcfs") == {"a": 60}
    urgent = cluster([Job("a", 8, 5.0), Job("b", 8, 5.0, priority=9)])
    assert after(urgent, "fcfs") == {"b": 60, "a": 65}


def test_a_job_without_a_limit_ends_at_no_date() -> None:
    assert after(cluster([Job("a", 4), Job("b", 8, 5.0)]), "fcfs") == {"a": 0}
    assert after(cluster([Job("a", 4), Job("b", 8, 5.0)]), "fcfs", run_s=lambda job: min(job.walltime, 80)) == {"a": 0, "b": 80}


def test_a_job_that_has_overrun_is_about_to_end() -> None:
    made = cluster([Job("a", 8, 5.0)])
    made.now = NOW + 1000
    assert expected_starts(made, make("easy", {})) == {"a": NOW + 1000}


@pytest.mark.parametrize("name", CATALOG)
def test_every_policy_runs_ahead(name: str) -> None:
    jobs = [Job(f"j{n}", 1 + n % 8, 10.0 + n, NOW - 50 + n) for n in range(40)]
    made = cluster(jobs)
    policy = make(name, {"score": "r*n"} if name == "priority" else {})
    found = {job_id: date - NOW for job_id, date in expected_starts(made, policy).items()}
    assert set(found) == {job.id for job in jobs} and min(found.values()) == 0 and max(found.values()) < inf


def test_the_cost_is_bounded() -> None:
    jobs = [Job(f"j{n}", 8, 10.0, priority=float(n == 50)) for n in range(100)]
    assert list(after(cluster(jobs), "fcfs", most_jobs=3)) == ["j50", "j0", "j1"]
    turns = iter([True] * 6)
    assert 0 < len(after(cluster(jobs), "fcfs", in_time=lambda: next(turns, False))) < 10


class Restless(Policy):
    """Starts nothing, and wants to be called again and again."""

    def schedule(self, cluster: Cluster) -> None:
        cluster.call_at(cluster.now + 1.0)


class Broken(Policy):
    def schedule(self, cluster: Cluster) -> None:
        if cluster.waiting:
            raise ValueError("no")


def test_a_policy_that_never_starts_anything_ends() -> None:
    assert expected_starts(cluster([Job("a", 1, 5.0)]), Restless()) == {}


def test_a_policy_that_cannot_be_simulated_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    estimates, made = StartEstimates(Broken), cluster([Job("a", 1, 5.0)])
    with pytest.raises(DecisionError):
        expected_starts(made, Broken())
    assert [estimates(made, 1.0)[0], estimates(made, 1.0)[0]] == [{}, {}]
    assert [record.message for record in caplog.records if "cannot be simulated" in record.message][1:] == []
    assert len(caplog.records) == 1


def test_fewer_jobs_are_simulated_where_time_does_not_do() -> None:
    jobs = [Job(f"j{n}", 8, 10.0) for n in range(1000)]
    estimates, made = StartEstimates(lambda: make("fcfs", {})), cluster(jobs)
    counts = [len(estimates(made, limit_s)[0]) for limit_s in (0.0, 0.0, 0.0, inf, inf, inf, inf)]
    assert counts == [0, 0, 0, 125, 250, 500, 1000]


def test_how_long_a_potential_job_would_wait() -> None:
    estimates = StartEstimates(lambda: make("fcfs", {}))
    made = cluster([Job("a", 8, 10.0)])
    assert estimates.wait_of(made, Job("w!potential", 4, 5.0)) == 70
    assert estimates.wait_of(made, Job("a", 8, 10.0)) == 60
    assert estimates.wait_of(made, Job("r", 4, 10.0)) == 0
    assert estimates.wait_of(made, Job("w!potential", 9, 5.0)) == inf
    assert list(made.waiting) == ["a"]


# ---- tasks of a live run


def task_starts(text: str, names: list[str], seconds: float, slots: int = 2) -> dict[str, float]:
    """Task 0 has run for 4 s on slot 0 of the only node."""
    lines = list(TaskReader("tasks", requests=True).read(text.encode().splitlines(keepends=True)))
    running = RunningGroup(Job("0", 1), IdSet(1), (Task(0, 1, line=b"x"),), 4.0, 4.0)
    start = RunStart(options=LiveOptions(), nodes=(Node("n", 0, slots),), lines=lines, running=(running,))
    found = starts_of_tasks(start, GivenDurations([seconds]), lambda: make("fcfs", {}), names)
    return {name: dates.median for name, dates in found.items()}


def test_slots_are_taken_in_turn() -> None:
    assert list(task_starts("x\n" * 6, [str(n) for n in range(6)], 10.0).values()) == [0, 0, 6, 10, 16, 20]


def test_barriers_and_dependencies_hold() -> None:
    assert task_starts("x\n#DISBATCH BARRIER\ny\n", ["2"], 10.0) == {"2": 6}
    named = "#PILOTHOUSE name=a\nx\n\n#PILOTHOUSE after=a name=b\ny\n\n#PILOTHOUSE after=b\nz\n"
    assert task_starts(named, ["2"], 10.0) == {"2": 16}


def test_a_task_that_took_longer_than_expected_is_about_to_end() -> None:
    assert task_starts("x\ny\n", ["1"], 1.0, slots=1) == {"1": 0}
