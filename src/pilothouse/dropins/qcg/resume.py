"""Going on with an earlier manager: its jobs, how they ended, and what its engines still run.

Comes in: the files of the earlier manager (track.reqs, track.states, the bundles' results) and its journal. Goes out: a
job queue in the same state. Jobs that were killed together with the manager, and not cancelled, run again.
"""

from __future__ import annotations

import functools
import logging
import re
import time
from collections.abc import Callable

from pilothouse.dropins.qcg.bundles import is_bundle
from pilothouse.dropins.qcg.executor import Executor
from pilothouse.dropins.qcg.files import ManagerFiles
from pilothouse.dropins.qcg.job_command import NodeLayout
from pilothouse.dropins.qcg.options import VirtualNodes
from pilothouse.dropins.qcg.registry import Runtime, duration_text
from pilothouse.journal.read import JobRow, read_jobs, read_nodes
from pilothouse.launch.running import is_alive
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live.contexts.slurm_queue import is_over
from pilothouse.worlds.live.snapshots import EngineView

log = logging.getLogger("pilothouse.qcg")

_ALLOCATION = re.compile(r"J\d+")
"""The name of a context that is a Slurm allocation."""


def restore(executor: Executor, files: ManagerFiles) -> None:
    """Fills the queue from what the earlier manager left, and adopts what the live world still has."""
    queue, registry, now = executor.queue, executor.queue.registry, time.time()
    layout = NodeLayout(read_nodes(files.folder))
    rows = {row.job_id: row for row in read_jobs(files.folder)}
    files.read_report()
    states = files.tracked_states()
    for submitted, arrived in files.tracked_jobs():
        if submitted.name in registry.entries:
            queue.replace(submitted.name)
        queue.accept([submitted], arrived or now)
    queue.outbox.accepted.clear()

    def ended(row: JobRow) -> None:
        item = registry.find(row.job_id.partition("#")[0])
        if item is None or row.state is None:
            return
        if row.state is JobState.KILLED and states.get(item[0].full_name(item[1])) is not JobState.KILLED:
            return
        runtime = None
        if row.units and row.pid > 0:
            runtime = Runtime(
                layout.named_cores(row.units), layout.counted_cores(row.units), row.cwd or None,
                duration_text(row.ended - row.started), row.exit_code, row.pid, item[0].description.execution.program,
            )  # fmt: skip
        queue.restore(item, row.state, row.ended or now, runtime, row.started)

    for row in rows.values():
        ended(row)
    bundles = executor.bundles.found()
    for bundle in bundles:
        units = rows[bundle.id].units if bundle.id in rows else IdSet()
        for end in executor.bundles.results(bundle):
            if end.reason != "killed":
                ended(JobRow(end.job_id, units, "", end.state, end.started_at, end.ended_at, end.return_code, end.pid))
    for name, state in states.items():
        item = registry.find(name)
        if item is not None and state is None:
            queue.remove(item[0])
        elif item is not None and state is not None:
            queue.restore(item, state, now)
    queue.outbox.removed.clear()
    for row in rows.values():
        if row.state is None and not is_bundle(row.job_id):
            executor.adopt(row.job_id, now)
    for bundle in bundles:
        executor.adopt_bundle(bundle, now)
    log.info("resumed: %d jobs, %d of them unfinished", len(registry.entries), registry.unfinished)


def gone_engines(here: str) -> Callable[[EngineView], bool]:
    """A test for engines of the earlier manager that are gone: on this host those without a process, in Slurm those of an
    allocation that is over. The others may still report. `here` is the name of the present context."""
    over = functools.cache(lambda context: bool(_ALLOCATION.fullmatch(context)) and is_over(context[1:]))

    def is_gone(engine: EngineView) -> bool:
        if engine.context == VirtualNodes.NAME:
            return not is_alive(engine.pid)
        return engine.context != here and over(engine.context)

    return is_gone
