"""Workflows behind the message server: a task is submitted when the last of its parents is done."""

from __future__ import annotations

import pytest

from pilothouse.formats.dax import Task, Workflow
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.worlds.simulated.message_server.generations import BATSIM4
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.message_server.workflow import SLACK_S, WorkflowSource
from pilothouse.worlds.simulated.message_server.world import MessageServerWorld
from unit.worlds.simulated.lab import platform_of

HOSTS = "".join(
    f'<host id="{name}" speed="1f"/>' for name in ("master", "a", "b", "c", "d")
) + '<link id="l" bandwidth="1MBps" latency="1ms"/>' + "".join(
    f'<route src="master" dst="{name}"><link_ctn id="l"/></route>' for name in ("master", "a", "b", "c", "d")
)  # fmt: skip
TASKS: dict[str, tuple[str, ...]] = {"in": (), "z": ("in",), "a": ("in",), "both": ("z", "a"), "alone": ()}
"""With their parents."""
RUNTIME_S = {"in": 3.0, "z": 2.0, "a": 5.0, "both": 1.0, "alone": 4.0}


def workflow() -> Workflow:
    tasks = {name: Task(name, RUNTIME_S[name], [], len(parents)) for name, parents in TASKS.items()}
    for name, parents in TASKS.items():
        for parent in parents:
            tasks[parent].children.append(tasks[name])
    return Workflow("flow", "flow.dax", list(tasks.values()))


class Flow:
    """Plays a workflow with a scheduler that starts each job at once, on its own machine, but for those it refuses."""

    def __init__(self, *, limit: int = 0, starts_at: float = 0.0, refused: str = "") -> None:
        platform = platform_of(HOSTS, generation=4, master_host="master")
        source = WorkflowSource(workflow(), starts_at, limit)
        begins = e.Begins(platform.nodes(), workloads={"flow": ""}, compute_sharing=True)
        world = MessageServerWorld(Server(begins, [source], platform, BATSIM4))
        world.begin(d.Wants())
        self.jobs: dict[str, Job] = {}
        """By task, in order of submission."""
        self.most_open = 0
        self.reason = ""
        open_jobs: set[str] = set()
        while (batch := world.advance()) is not None:
            answer: list[d.Decision] = []
            for event in batch.events:
                if isinstance(event, e.JobSubmitted):
                    assert event.job.profile is not None
                    task = event.job.profile.name.removeprefix("flow!flow_")
                    self.jobs[task] = event.job
                    open_jobs.add(event.job.id)
                    self.most_open = max(self.most_open, len(open_jobs))
                    unit = IdSet.span(len(self.jobs) % 4, 1)
                    start = d.StartJob(batch.now, event.job.id, unit)
                    answer.append(d.RejectJob(batch.now, event.job.id) if task == refused else start)
                elif isinstance(event, e.JobEnded):
                    open_jobs.discard(event.job_id)
                elif isinstance(event, e.Ended):
                    self.reason = event.reason
            world.apply(d.Reply(batch.now, answer))


def test_tasks_come_when_their_parents_are_done() -> None:
    flow = Flow()
    assert list(flow.jobs) == ["alone", "in", "z", "a", "both"], "those without parents by id, the others in order"
    assert [job.id for job in flow.jobs.values()] == [f"flow!{number}" for number in range(5)]
    dates = {task: job.submitted_at for task, job in flow.jobs.items()}
    assert dates == pytest.approx({"alone": 0.0, "in": 0.0, "a": 3.0, "z": 3.0, "both": 8.0}, abs=0.1)
    for task, job in flow.jobs.items():
        assert (job.runtime, job.walltime, job.units) == (RUNTIME_S[task], RUNTIME_S[task] + SLACK_S, 1)
    assert flow.most_open == 3 and flow.reason == ""


@pytest.mark.parametrize("limit", [1, 2])
def test_no_more_tasks_than_the_limit_are_open(limit: int) -> None:
    flow = Flow(limit=limit)
    assert len(flow.jobs) == 5 and flow.most_open == limit


def test_a_workflow_may_start_later() -> None:
    assert Flow(starts_at=50.0).jobs["in"].submitted_at == pytest.approx(50.0, abs=0.1)


def test_children_of_what_is_never_done_are_never_submitted() -> None:
    flow = Flow(refused="a")
    assert set(flow.jobs) == {"alone", "in", "a", "z"} and flow.reason
