"""What a run noted about itself when it began, as far as readers of its journal need it: its task file and its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from pilothouse.model.errors import InputError
from pilothouse.model.job import Job
from pilothouse.model.task_request import asked, shape_for

if TYPE_CHECKING:
    from pilothouse.formats.task_file import TaskLine


class PlanOptions(msgspec.Struct, frozen=True):
    """Options of `pilothouse run`, by their names."""

    units: int = 1
    nodes: int = 1
    gpus_per_task: int = 0
    mem: int = 0
    walltime: float | None = None
    out: str = ""
    err: str = ""
    lenient: bool = False
    task_format: str | None = None


class Plan(msgspec.Struct, frozen=True):
    options: PlanOptions = PlanOptions()
    source: str = ""
    """The task file; "" : the tasks of this run do not come from one."""
    cwd: str = ""

    def lines(self) -> Iterator[TaskLine]:
        """The tasks of the file. Raises InputError if it cannot be read any more."""
        if not self.source:
            return iter(())
        from pilothouse.formats.task_table import read_tasks  # few readers of a journal need it, and it costs 10 ms

        options = self.options
        return read_tasks(_open(self.source), self.source, kind=options.task_format or "", lenient=options.lenient)

    def job_of(self, line: TaskLine) -> Job:
        """The request of a task, as a decider gets it."""
        options = self.options
        shape = shape_for(options.units, options.nodes, options.gpus_per_task, options.mem)
        job = Job(str(line.task_id), options.units, inf if options.walltime is None else options.walltime, shape=shape)
        if line.request is None:
            return job
        wanted = asked(line.request, job)
        return Job(job.id, wanted.cores, wanted.walltime, shape=shape_for(*wanted[:4]))


def plan_of(notes: Mapping[str, bytes]) -> Plan:
    """The plan among the notes of a journal. Raises DecodeError if it is damaged."""
    noted = notes.get("plan")
    return Plan() if noted is None else msgspec.msgpack.decode(noted, type=Plan)


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(path, f"cannot read the task file: {error.strerror}") from error
