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
from typing import Any

from pilothouse.dropins.qcg.bundles import is_bundle
from pilothouse.dropins.qcg.executor import Executor
from pilothouse.dropins.qcg.files import ManagerFiles
from pilothouse.dropins.qcg.job_queue import EarlierEnd
from pilothouse.dropins.qcg.layout import NodeLayout
from pilothouse.dropins.qcg.options import VirtualNodes
from pilothouse.journal.read import read_jobs, read_nodes
from pilothouse.launch.running import is_alive
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live.contexts.slurm_queue import is_over
from pilothouse.worlds.live.driver.snapshots import EngineView

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

    def ended(job_id: str, state: JobState, units: IdSet, *rest: Any) -> None:
        item = registry.find(job_id.partition("#")[0])
        if item is not None and (state is not JobState.KILLED or states.get(item[0].full_name(item[1])) is state):
            queue.restore(item, EarlierEnd(state, layout.named_cores(units), layout.counted_cores(units), *rest), now)

    for row in rows.values():
        if row.state is not None:
            units = row.units if row.pid > 0 else IdSet()
            ended(row.job_id, row.state, units, row.started, row.ended, row.exit_code, row.pid, row.cwd)
    bundles = executor.bundles.found()
    for bundle in bundles:
        units = rows[bundle.id].units if bundle.id in rows else IdSet()
        for result in executor.bundles.results(bundle):
            if result.reason != "killed":
                rest = (result.started_at, result.ended_at, result.return_code, result.pid)
                ended(result.job_id, result.state, units, *rest)
    for name, state in states.items():
        item = registry.find(name)
        if item is not None and state is None:
            queue.remove(item[0])
        elif item is not None and state is not None:
            queue.restore(item, EarlierEnd(state), now)
    queue.outbox.removed.clear()
    for row in rows.values():
        if row.state is None and not is_bundle(row.job_id):
            executor.adopt(row.job_id)
    for bundle in bundles:
        executor.adopt_bundle(bundle)
    log.info("resumed: %d jobs, %d of them unfinished", len(registry.entries), registry.unfinished)


def gone_engines(here: str) -> Callable[[EngineView], bool]:
    """Tells which engines of the earlier manager are certainly gone: on this host those without a process, in Slurm those
    of an allocation that is over. The others may still report. `here` is the name of the present context."""
    over = functools.cache(lambda context: bool(_ALLOCATION.fullmatch(context)) and is_over(context[1:]))

    def is_gone(engine: EngineView) -> bool:
        if engine.context == VirtualNodes.NAME:
            return not is_alive(engine.pid)
        return engine.context != here and over(engine.context)

    return is_gone
