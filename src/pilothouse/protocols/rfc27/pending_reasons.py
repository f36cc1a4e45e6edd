"""Annotations that tell the users of a Flux instance why their jobs wait and when they may start.

`reason_pending` comes from core/explain.py. `t_estimate` is when the job starts in a simulation of the present state under the
same policy (`ahead`). Simulations are made once a second at most, a second after something happened (most jobs of a busy machine
have started by then), and may take a small share of the time. Where there is none (a foreign scheduler decides, or the clock
stands still while we think), the estimate comes from the policy's reservations; the first job in line then gets one from the
expected ends of running jobs if the policy has none that is up to date.

Only changes are sent. An estimate that no longer holds is deleted in the same turn. A turn looks at the reasons of new jobs and
of the first in line, so that its cost does not depend on the length of the queue; the others follow a second later, some at a
time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from pilothouse.core import place
from pilothouse.core.explain import explain
from pilothouse.model.answers import Never, NotNow
from pilothouse.model.decisions import Annotate, CallAt, Decision, Reply
from pilothouse.model.events import Batch, CallArrived, JobSubmitted
from pilothouse.model.job import Job

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster
    from pilothouse.core.contract import Turn

_log = logging.getLogger("pilothouse.rfc27")

MOST_PER_TURN = 16
MOST_PER_CALL = 128
MOST_ESTIMATES = 32
LONG_QUEUE = 1000
"""In a longer queue the reason leaves out the position in the queue."""
LEAST_CHANGE_S = 1.0
AGAIN_S = 1.0
"""Reasons that could not be looked at in a turn are looked at so much later. Simulations are no closer to each other."""
SHARE = 0.01
"""The share of the time that simulations may take."""
LEAST_S = SHARE * AGAIN_S
"""One is not made for less."""
MOST_S = 0.2
"""One simulation takes no longer."""
CALL = "pilothouse: notes"


class PendingReasons:
    """The turn of a decider, with notes for users: it stands around `decide` (see Session). The calls that it asks for never
    reach the decider.

    `ahead` takes the cluster and a limit in seconds. It returns when waiting jobs will start (those that are known to), and how
    many seconds it took to find out.
    """

    def __init__(
        self,
        decide: Turn,
        cluster: Cluster,
        *,
        notes: bool = True,
        ahead: Callable[[Cluster, float], tuple[dict[str, float], float]] | None = None,
    ) -> None:
        self._decide = decide
        self._cluster = cluster
        self._notes = notes
        self._ahead = ahead
        self._simulated: dict[str, float] = {}
        """Job id -> when it starts in the last simulation."""
        self._outdated = False
        """Something happened since the last simulation."""
        self._ahead_at = -inf
        """The next simulation is made no sooner."""
        self._spare_s, self._spare_at = 0.0, inf
        """How long simulations may take, by that date; more is added as time goes on."""
        self._unsent = False
        """There are estimates that have not been sent: too many for one turn."""
        self._estimates: dict[str, float] = {}
        """Job id -> the t_estimate that was sent last."""
        self._reasons: dict[str, str] = {}
        """Job id -> the reason_pending that was sent last. In the order in which they were looked at."""
        self._stale = 0
        """Number of reasons that have not been looked at since something changed."""
        self._call_at = -inf

    def __call__(self, batch: Batch) -> Reply:
        cluster = self._cluster
        others = [event for event in batch.events if type(event) is not CallArrived or event.call_id != CALL]
        called = len(others) < len(batch.events)
        if called:
            batch = Batch(batch.now, others, batch.waits)
        reply = Reply(batch.now, []) if called and not others else self._decide(batch)
        if cluster.refused is not None:
            for warning in cluster.refused.take_warnings():
                _log.warning("%s", warning)
        if self._notes:
            for decision in self._look(batch, cluster, called=called):
                cluster.book(decision)
            reply.decisions = [*reply.decisions, *cluster.take_decisions()]
        return reply

    def _look(self, batch: Batch, cluster: Cluster, *, called: bool) -> list[Decision]:
        """What has changed for users, and the call for what could not be looked at now."""
        notes: dict[str, dict[str, object]] = {}
        self._look_at_reasons(batch, cluster, notes, called=called)
        if self._ahead is None or batch.waits:
            wanted = self._planned(cluster)
        else:
            wanted = self._run_ahead(self._ahead, batch.now, cluster)
        self._look_at_estimates(cluster, wanted, notes, MOST_PER_CALL if called else MOST_ESTIMATES)
        decisions: list[Decision] = [Annotate(batch.now, job_id, {"sched": note}) for job_id, note in notes.items()]
        call_at = self._next_call(batch.now)
        if call_at < inf and not batch.waits and self._call_at <= batch.now:
            self._call_at = call_at
            decisions.append(CallAt(batch.now, call_at, CALL))
        return decisions

    def _next_call(self, now: float) -> float:
        """When there is something to do even if nothing happens; inf: never."""
        if self._stale > 0 or self._unsent:
            return now + AGAIN_S
        return max(now, self._ahead_at) if self._outdated and self._ahead is not None else inf

    # ---- reasons

    def _look_at_reasons(
        self, batch: Batch, cluster: Cluster, notes: dict[str, dict[str, object]], *, called: bool
    ) -> None:
        looked_at: set[str] = set()
        changed = bool(batch.events)
        for event in batch.events:
            if type(event) is JobSubmitted:
                # A request that was canceled and made anew has lost its annotations.
                job_id = event.job.id
                self._estimates.pop(job_id, None)
                self._reasons.pop(job_id, None)
                if job_id in cluster.waiting and len(looked_at) < MOST_PER_TURN:
                    looked_at.add(job_id)
                    self._look_at(cluster, job_id, notes)
        head = first_in_line(cluster)
        if head is not None and head.id not in looked_at:
            looked_at.add(head.id)
            self._look_at(cluster, head.id, notes)
        if changed:
            self._stale = len(self._reasons)
            if not self._outdated:
                self._outdated = True
                self._spare_at = min(self._spare_at, batch.now)
                self._ahead_at = max(self._ahead_at, batch.now + AGAIN_S)
        # Those that were looked at are the last ones.
        self._stale = min(self._stale, len(self._reasons) - len(looked_at))
        left = MOST_PER_CALL if called else MOST_PER_TURN if batch.waits else 0
        while self._stale > 0 and left > 0:
            left -= 1
            self._stale -= 1
            job_id = next(iter(self._reasons))
            if job_id in cluster.waiting:
                self._look_at(cluster, job_id, notes)
            else:
                del self._reasons[job_id]

    def _look_at(self, cluster: Cluster, job_id: str, notes: dict[str, dict[str, object]]) -> None:
        reason = _reason(cluster, job_id)
        if self._reasons.pop(job_id, None) != reason:
            notes.setdefault(job_id, {})["reason_pending"] = reason
        self._reasons[job_id] = reason

    # ---- estimates

    def _planned(self, cluster: Cluster) -> dict[str, float]:
        """What the policy means to do, and when the first in line could start."""
        planned = dict(cluster.expected_starts())
        head = first_in_line(cluster)
        # On a full machine most policies do not plan anew: their reservation may be an old one.
        if head is not None and (not cluster.free or head.id not in planned):
            planned[head.id] = _expected_start(cluster, head)
        return planned

    def _run_ahead(
        self, ahead: Callable[[Cluster, float], tuple[dict[str, float], float]], now: float, cluster: Cluster
    ) -> dict[str, float]:
        if self._outdated and now >= self._ahead_at:
            limit_s = min(MOST_S, self._spare_s + SHARE * max(0.0, now - self._spare_at))
            self._simulated, took_s = ahead(cluster, limit_s) if cluster.waiting else ({}, 0.0)
            self._spare_s, self._spare_at = limit_s - took_s, now
            # One that was cut off is made again, with more time.
            cut_off = took_s >= limit_s
            self._outdated = cut_off and limit_s < MOST_S
            wanted_s = min(MOST_S, max(LEAST_S, 2 * took_s if cut_off else took_s))
            self._ahead_at = now + max(AGAIN_S, (wanted_s - self._spare_s) / SHARE)
        return self._simulated

    def _look_at_estimates(
        self, cluster: Cluster, wanted: dict[str, float], notes: dict[str, dict[str, object]], left: int
    ) -> None:
        for job_id in [job_id for job_id in self._estimates if wanted.get(job_id, inf) == inf or job_id not in cluster.waiting]:
            del self._estimates[job_id]
            if job_id in cluster.waiting:
                notes.setdefault(job_id, {})["t_estimate"] = None
        self._unsent = False
        for job_id, date in wanted.items():
            if date == inf or abs(self._estimates.get(job_id, -inf) - date) <= LEAST_CHANGE_S or job_id not in cluster.waiting:
                continue
            if not left:
                self._unsent = True
                break
            left -= 1
            self._estimates[job_id] = date
            notes.setdefault(job_id, {})["t_estimate"] = date


def first_in_line(cluster: Cluster) -> Job | None:
    """The most urgent waiting job; of equally urgent ones the first that arrived. None if the queue is long."""
    if len(cluster.waiting) > LONG_QUEUE:
        return None
    return max(cluster.waiting.values(), key=_priority, default=None)


def _priority(job: Job) -> float:
    return job.priority


def _expected_start(cluster: Cluster, job: Job) -> float:
    """When a job could start if all running jobs use up their walltimes and no job overtakes it; inf: not known."""
    ends = sorted((cluster.expected_end(job_id), job_id) for job_id in cluster.running)
    if job.shape is not None:
        found = cluster.when_fits(job, ends)
        return inf if found is None else max(found[0], cluster.now)
    missing, when = job.units - cluster.free, cluster.now
    for date, job_id in ends:
        if missing <= 0:
            break
        missing -= cluster.returning(cluster.running[job_id])
        when = max(when, date)
    return when if missing <= 0 else inf


def _reason(cluster: Cluster, job_id: str) -> str:
    if len(cluster.waiting) <= LONG_QUEUE:
        return explain(cluster, job_id).detail
    found = place.choose(cluster, cluster.waiting[job_id])
    if isinstance(found, NotNow | Never):
        return found.reason
    return f"it would fit now, but {cluster.decider} holds it back"
