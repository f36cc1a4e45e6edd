"""What an engine leaves behind when it is killed."""

from __future__ import annotations

import os

from pilothouse.worlds.live.engine.spool import REGION_BYTES, Spool
from pilothouse.worlds.live.wire.messages import Finished, Result


def result(task_id: int, size: int = 0) -> Result:
    return Result(task_id, 1, 0, 99, 1.0, 2.0, size, b"x" * size)


def test_a_killed_writer_is_read_by_its_parent() -> None:
    spool = Spool(2)
    spool.set_name("engine")
    if (pid := os.fork()) == 0:
        region = spool.cylinders[0]
        region.begin(5)
        region.ended(result(1))
        region.running(2)
        spool.cylinders[1].begin(6)
        spool.engine.write([Finished(4, [result(0)], True)])
        os._exit(0)
    os.waitpid(pid, 0)
    finished, begun = spool.unreported()
    assert spool.name() == "engine"
    assert [(entry.assignment, [end.task_id for end in entry.results]) for entry in finished] == [(4, [0]), (5, [1])]
    assert begun == {2}


def test_what_the_engine_has_is_not_told_twice() -> None:
    spool = Spool(1)
    spool.cylinders[0].begin(5)
    spool.cylinders[0].ended(result(1))
    spool.cylinders[0].ended(result(2))
    spool.engine.write([Finished(5, [result(1)])])
    finished, begun = spool.unreported()
    assert sorted(end.task_id for entry in finished for end in entry.results) == [1, 2]
    assert begun == set()


def test_a_full_region_keeps_what_fitted_and_forgets_no_running_task() -> None:
    spool = Spool(1)
    region = spool.cylinders[0]
    region.begin(5)
    for task_id in range(2000):
        region.running(task_id)
        region.ended(result(task_id, 60))
    assignment, running, results = region.read()
    assert assignment == 5
    assert 0 < len(results) < 2000 and len(results) * 60 < REGION_BYTES
    assert [end.task_id for end in results] == list(range(len(results)))
    assert running == 1999
