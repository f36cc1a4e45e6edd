"""Why does this job wait? The answer as data, and as a sentence.

Works on the told state of a Cluster at any moment: what is free, who is ahead, what the policy means to do. (Why a job of
a finished run started when it did is told from its records: views/story.py.)
"""

from __future__ import annotations

from heapq import nsmallest
from math import inf

import msgspec

from pilothouse.core import place
from pilothouse.core.cluster import Cluster
from pilothouse.model.answers import Never, NotNow
from pilothouse.model.job import Job, Shape
from pilothouse.model.lifecycle import JobState

MOST_BLOCKERS = 5


class Shortage(msgspec.Struct, frozen=True):
    """What a job that does not fit now lacks."""

    what: str
    """`cores`, `memory` or `gpus`; `node`: no node is large enough."""
    detail: str


class Explanation(msgspec.Struct, frozen=True):
    """Why a job is where it is."""

    job_id: str
    state: str
    reason: str
    """One of: unknown, running, ended, never, resources, unavailable, policy."""
    detail: str
    ahead: int = 0
    """Waiting jobs that arrived earlier."""
    free: int = 0
    needed: int = 0
    expected_at: float | None = None
    """When the policy means to start it, if it says."""
    blockers: tuple[str, ...] = ()
    """Running jobs whose units it waits for, soonest expected end first (MOST_BLOCKERS at most)."""

    @property
    def sentence(self) -> str:
        text = f"job {self.job_id} is {self.state}: {self.detail}"
        if self.ahead:
            text += f"; {self.ahead} job{'s' if self.ahead > 1 else ''} arrived before it"
        if self.expected_at is not None:
            text += f"; it is expected to start at {self.expected_at:g} s"
        return text


def explain(cluster: Cluster, job_id: str) -> Explanation:
    """Why the job is where it is, by what is known now."""
    state = cluster.state_of(job_id)
    if state is None:
        return Explanation(job_id, "unknown", "unknown", "there is no such job")
    if state is JobState.RUNNING:
        run = cluster.running[job_id]
        return Explanation(job_id, state.value, "running", f"on {run.units} since {run.started_at:g} s")
    if state is not JobState.WAITING:
        return Explanation(job_id, state.value, "ended", "it is over")
    return _explain_waiting(cluster, job_id)


def _explain_waiting(cluster: Cluster, job_id: str) -> Explanation:
    job = cluster.waiting[job_id]
    reason, detail = why_waiting(cluster, job)
    expected = cluster.expected_starts().get(job_id)
    return Explanation(
        job_id,
        JobState.WAITING.value,
        reason,
        detail,
        list(cluster.waiting).index(job_id),
        cluster.free,
        job.units,
        None if expected is None or expected == inf else expected,
        _soonest(cluster, job.units - cluster.free) if reason in ("resources", "unavailable") else (),
    )


def why_waiting(cluster: Cluster, job: Job) -> tuple[str, str]:
    """The reason and the detail of a waiting job's explanation. These cost little: no other job is looked at."""
    found = place.choose(cluster, job)
    if isinstance(found, Never):
        return "never", f"it can never start, {found.reason}"
    if not isinstance(found, NotNow):
        return "policy", f"it would fit now ({cluster.free} units are free), but {cluster.decider} holds it back"
    off = cluster.off_mask and (cluster.off_mask & cluster.all_mask & ~cluster.busy_mask).bit_count()
    if off and cluster.free + off >= job.units:
        return "unavailable", f"{found.reason} ({off} more are not available)"
    return "resources", found.reason


def _soonest(cluster: Cluster, missing: int) -> tuple[str, ...]:
    """The running jobs whose expected ends would give enough units back."""
    names: list[str] = []
    for job_id in nsmallest(MOST_BLOCKERS, cluster.running, key=cluster.expected_end):
        if missing <= 0:
            break
        names.append(job_id)
        missing -= cluster.returning(cluster.running[job_id])
    return tuple(names)


def shortage(cluster: Cluster, job: Job) -> Shortage | None:
    """What the job lacks now; None: it fits. Of several things the first of memory, GPUs and cores."""
    found = place.choose(cluster, job)
    if isinstance(found, Never):
        return Shortage("node", found.reason)
    if not isinstance(found, NotNow):
        return None
    shape, table = job.shape or Shape(), cluster.node_table
    where = " on one node" if shape.nodes == 1 else f" on each of {shape.nodes} nodes" if shape.nodes else ""
    free = [part.bit_count() for part in cluster.free_nodes().free]
    shown = f"at most {max(free)} of a node are free" if where else f"{cluster.free} of {cluster.total} are free"
    cores = Shortage("cores", f"it needs {job.units}{where}, and {shown}")
    memory_mb, gpus = shape.least_memory_mb, max(shape.gpus_per_node, shape.gpus_per_chunk)
    left_mb, left = max(table.memory_mb), max(table.gpus)
    memory = Shortage("memory", f"it needs {memory_mb:,} MB{where}, and at most {left_mb:,} MB of a node are free")
    others = Shortage("gpus", f"it needs {gpus}{where}, and at most {left} of a node are free")

    def fits(**without: int) -> bool:
        less = msgspec.structs.replace(job, shape=msgspec.structs.replace(shape, **without))
        return isinstance(place.choose(cluster, less), int)

    if memory_mb and (memory_mb > left_mb or fits(memory_mb_per_node=0, memory_mb_per_chunk=0)):
        return memory
    return others if gpus and (gpus > left or fits(gpus_per_node=0, gpus_per_chunk=0)) else cores
