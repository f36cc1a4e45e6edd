"""Going on with an earlier manager: its jobs, how they ended, and what its engines still run.

Comes in: the files of the earlier manager (track.reqs, track.states, the bundles' results) and its journal. Goes out: a
job queue in the same state. Jobs that were killed together with the manager, and not cancelled, run again.
"""

from __future__ import annotations

import functools
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator

from pilothouse.dropins.qcg.bundles import is_bundle
from pilothouse.dropins.qcg.executor import Executor
from pilothouse.dropins.qcg.files import ManagerFiles, TrackedEnds
from pilothouse.dropins.qcg.job_command import NodeLayout
from pilothouse.dropins.qcg.job_queue import JobQueue
from pilothouse.dropins.qcg.options import VirtualNodes
from pilothouse.dropins.qcg.registry import Entry, Runtime, duration_text, split_name
from pilothouse.formats.qcg_requests import SubmittedJob
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
    queue, now = executor.queue, time.time()
    rows = {row.job_id: row for row in read_jobs(files.folder)}
    bundles = executor.bundles.found()
    members = [
        JobRow(end.job_id, units, "", end.state, end.started_at, end.ended_at, end.return_code, end.pid)
        for bundle in bundles
        for units in (rows[bundle.id].units if bundle.id in rows else IdSet(),)
        for end in executor.bundles.results(bundle)
        if end.reason != "killed"
    ]
    refill(queue, files, [*rows.values(), *members], NodeLayout(read_nodes(files.folder)), now)
    for row in rows.values():
        if row.state is None and not is_bundle(row.job_id):
            executor.adopt(row.job_id, now)
    for bundle in bundles:
        executor.adopt_bundle(bundle, now)
    log.info("resumed: %d jobs, %d of them unfinished", len(queue.registry.entries), queue.registry.unfinished)


def refill(queue: JobQueue, files: ManagerFiles, rows: Iterable[JobRow], layout: NodeLayout, now: float) -> None:
    """All jobs that were accepted, and how they had ended: by the journal's rows, else by the tracked states.

    A name may have been submitted again once its job was removed. The jobs are numbered as by the earlier manager.
    """
    registry, states = queue.registry, files.tracked_states()
    files.read_report()

    def tracked(entry: Entry) -> TrackedEnds:
        return states.get(entry.number) or states.get(entry.name) or TrackedEnds()

    def end(entry: Entry) -> None:
        found = tracked(entry)
        for name, state in found.states.items():
            index = split_name(name)[1]
            if entry.has(index):
                queue.restore((entry, index), state, now)
        if found.removed:
            queue.replace(entry)

    for jobs, arrived in _requests(files.tracked_jobs()):
        for name in registry.entries.keys() & jobs.keys():
            earlier = registry.entries[name]
            end(earlier)
            if name in registry.entries:
                queue.replace(earlier)
        for entry in queue.accept(list(jobs.values()), arrived or now):
            entry.cancelled = tracked(entry).states.get(entry.name) is JobState.KILLED
    for row in rows:
        item = queue.named_in_world(row.job_id)
        if item is None or row.state is None:
            continue
        if row.state is JobState.KILLED and tracked(item[0]).states.get(item[0].full_name(item[1])) is not JobState.KILLED:
            continue
        runtime = None
        if row.units and row.pid > 0:
            runtime = Runtime(
                layout.named_cores(row.units), layout.counted_cores(row.units), row.cwd or None,
                duration_text(row.ended - row.started), row.exit_code, row.pid, item[0].description.execution.program,
            )  # fmt: skip
        queue.restore(item, row.state, row.ended or now, runtime, row.started)
    for entry in list(registry.entries.values()):
        end(entry)
    files.forget_reported(registry)
    outbox = queue.outbox
    outbox.finished = [item for item in outbox.finished if registry.entries.get(item[0].name) is item[0]]
    outbox.accepted.clear()
    outbox.removed.clear()


def _requests(tracked: Iterable[tuple[SubmittedJob, float]]) -> Iterator[tuple[dict[str, SubmittedJob], float]]:
    """Jobs that were submitted together, by name: they may depend on each other in any order."""
    jobs: dict[str, SubmittedJob] = {}
    at = 0.0
    for submitted, arrived in tracked:
        if jobs and (arrived != at or submitted.name in jobs):
            yield jobs, at
            jobs = {}
        jobs[submitted.name], at = submitted, arrived
    if jobs:
        yield jobs, at


def gone_engines(here: str) -> Callable[[EngineView], bool]:
    """A test for engines of the earlier manager that are gone: on this host those without a process, in Slurm those of an
    allocation that is over. The others may still report. `here` is the name of the present context."""
    over = functools.cache(lambda context: bool(_ALLOCATION.fullmatch(context)) and is_over(context[1:]))

    def is_gone(engine: EngineView) -> bool:
        if engine.context == VirtualNodes.NAME:
            return not is_alive(engine.pid)
        return engine.context != here and over(engine.context)

    return is_gone
