"""What tasks were measured to use, as requests for the next run of the same tasks.

In: the tasks of a file, and the rows of a run. Out: the same tasks; each asks for the memory that it used and some more, and for
as many cores as it kept busy unless it asked for a number. What else it asked for is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

import msgspec

from pilothouse.formats.task_file import TaskLine
from pilothouse.journal.read import TaskRow
from pilothouse.model.task_request import TaskRequest

ROOM = 1.2
"""A task may use so many times the memory that it used before."""
STEP_MB = 16
"""Memory is rounded up to a multiple of this, so that equal tasks ask for the same."""


def with_measured(lines: Iterable[TaskLine], rows: Iterable[TaskRow]) -> Iterator[TaskLine]:
    """Tasks that did not succeed are left as they were: what they used says little."""
    measured = {row.task: row for row in rows if row.state == "succeeded" and row.memory_kb}
    for line in lines:
        row = measured.get(line.task_id)
        yield line if row is None else msgspec.structs.replace(line, request=_request(line.request or TaskRequest(), row))


def _request(asked: TaskRequest, row: TaskRow) -> TaskRequest:
    took_s = (row.ended or 0.0) - (row.started or 0.0)
    busy = round(row.cpu_s / took_s) if took_s > 0 else 1
    memory_mb = STEP_MB * ceil(row.memory_kb * ROOM / 1024 / STEP_MB)
    return msgspec.structs.replace(asked, cores=asked.cores or max(1, busy), memory_mb=memory_mb)
