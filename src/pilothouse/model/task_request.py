"""What one task of a live run asks for, where that differs from what the run's options say."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import msgspec

from pilothouse.model.job import Job, Shape


class TaskRequest(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """0 cores and None: as the options of the run say. With several nodes, cores, GPUs and memory are those on each."""

    cores: int = 0
    memory_mb: int | None = None
    gpus: int | None = None
    walltime: float | None = None
    """In seconds; inf: no limit."""
    nodes: int | None = None
    retries: int | None = None
    name: str = ""
    """Of a line, or of several: other tasks may wait for all of them."""
    after: tuple[str, ...] = ()
    """Names of tasks that must succeed first."""
    env: tuple[tuple[str, str], ...] = ()

    @property
    def can_be_bundled(self) -> bool:
        """Whether tasks with this request may share a decision: a decider takes a walltime for that of the whole."""
        return self.walltime is None or self.walltime == inf


class Asked(NamedTuple):
    """What a task asks for in all: of each of its nodes, and for how long."""

    cores: int
    nodes: int
    gpus: int
    memory_mb: int
    walltime: float


def asked(request: TaskRequest, run: Job) -> Asked:
    """The request, with what the options of the run say (as a job) where it says nothing."""
    shape = run.shape or _NO_SHAPE
    return Asked(
        request.cores or run.units,
        shape.nodes if request.nodes is None else request.nodes,
        shape.gpus_per_node if request.gpus is None else request.gpus,
        shape.memory_mb_per_node if request.memory_mb is None else request.memory_mb,
        run.walltime if request.walltime is None else request.walltime,
    )


def shape_for(cores: int, nodes: int, gpus: int, memory_mb: int) -> Shape | None:
    """The shape of a job of so many nodes, and of so much on each; None: one core anywhere."""
    if cores <= 1 and nodes <= 1 and not gpus and not memory_mb:
        return None
    count = max(1, nodes)
    return Shape(nodes=count, most_nodes=count, gpus_per_node=gpus, memory_mb_per_node=memory_mb)


_NO_SHAPE = Shape()
