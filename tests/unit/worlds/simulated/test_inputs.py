"""The inputs of a simulation: jobs of several workloads come one workload after the other."""

from __future__ import annotations

import pytest

from pilothouse.formats.workload import Workload
from pilothouse.model.events import Begins
from pilothouse.model.job import Job, Node
from pilothouse.worlds.simulated.inputs import Setup
from unit.worlds.simulated.lab import SWITCHABLE, platform_of


@pytest.mark.parametrize("sizes", [(3,), (2, 1), (1, 0, 2)])
def test_jobs_of_several_workloads(sizes: tuple[int, ...]) -> None:
    workloads = []
    for number, size in enumerate(sizes):
        jobs = [Job(f"w{number}!{index}", 1) for index in range(size)]
        workloads.append(Workload(f"w{number}", f"w{number}.json", 4, jobs))
    setup = Setup(platform_of(SWITCHABLE), workloads, [], Begins((Node("n", 0),)))
    assert [job.id for job in setup.jobs] == [job.id for workload in workloads for job in workload.jobs]
    assert len(setup.jobs) == sum(sizes)
