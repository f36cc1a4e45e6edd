"""Why does this job wait? The answer as data, and as a sentence.

Works on the told state of a Cluster at any moment: what is free, who is ahead, what the policy means to do. (Why a job of
a finished run started when it did is told from its records: views/story.py.)
"""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.core import place
from pilothouse.core.cluster import Cluster
from pilothouse.model.answers import Never, NotNow
from pilothouse.model.lifecycle import JobState


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
    """Running jobs whose units it waits for, soonest expected end first (at most five)."""

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
    ahead = list(cluster.waiting).index(job_id)
    expected = cluster.expected_starts().get(job_id)
    found = place.choose(cluster, job)
    blockers: tuple[str, ...] = ()
    if isinstance(found, Never):
        reason, detail = "never", f"it can never start, {found.reason}"
    elif isinstance(found, NotNow):
        reason, detail = "resources", found.reason
        off = cluster.off_mask & cluster.all_mask & ~cluster.busy_mask
        if off and cluster.free + off.bit_count() >= job.units:
            reason = "unavailable"
            detail += f" ({off.bit_count()} more are not available)"
        blockers = _soonest(cluster, job.units - cluster.free)
    else:
        reason, detail = (
            "policy",
            f"it would fit now ({cluster.free} units are free), but {cluster.decider} holds it back",
        )
    return Explanation(
        job_id,
        JobState.WAITING.value,
        reason,
        detail,
        ahead,
        cluster.free,
        job.units,
        None if expected is None or expected == inf else expected,
        blockers,
    )


def _soonest(cluster: Cluster, missing: int) -> tuple[str, ...]:
    """The running jobs whose expected ends would give enough units back."""
    names: list[str] = []
    for job_id in sorted(cluster.running, key=cluster.expected_end):
        if missing <= 0 or len(names) == 5:
            break
        names.append(job_id)
        missing -= len(cluster.running[job_id].units)
    return tuple(names)
