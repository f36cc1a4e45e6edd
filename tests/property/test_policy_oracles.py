"""Every policy of the catalog against a slow, obvious scheduler: the same start and the same units for every job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.model.events import Begins
from pilothouse.model.job import Job, Node
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.policies import backfill_queue, queueing
from pilothouse.policies.catalog import CATALOG
from pilothouse.policies.conservative import Conservative
from pilothouse.worlds.simulated.world import SimulatedWorld
from property import oracles
from property.oracles import Pass, Work

UNITS = 8
ESTIMATES = {"requested": oracles.requested, "2x": oracles.doubled, "clairvoyant": oracles.clairvoyant}
SCORE = oracles.scored(lambda r, n, s, w: n - w / 7)

Oracle = tuple[Callable[[], Pass], bool]
"""Makes its pass, and whether there is one for each event."""
ORACLES: dict[str, Oracle] = {
    "fcfs": (lambda: oracles.queueing("none", oracles.by_priority), True),
    "filler": (lambda: oracles.queueing("fill", oracles.by_priority), True),
    "easy": (lambda: oracles.queueing("easy", oracles.by_priority), True),
    "easy-sjbf": (lambda: oracles.queueing("easy", oracles.by_priority, shortest_first=True), True),
    "conservative": (lambda: oracles.conservative, False),
    "qcg": (lambda: oracles.qcg, False),
    "random:seed=5": (lambda: oracles.shuffled(5), False),
    **{
        f"{name}:backfill={way}": (lambda way=way, order=order: oracles.queueing(way, order), True)  # type: ignore[misc]
        for name, order in {**oracles.SCORES, "priority:score=n-w/7,": SCORE}.items()
        for way in ("none", "fill", "easy")
    },
}
ORACLES = {name.replace(",:", ","): oracle for name, oracle in ORACLES.items()}


def workloads(most: int = 25, *, molded: bool = False) -> st.SearchStrategy[list[Work]]:
    """Submission dates that often coincide, walltimes that are met, exceeded or exact, a few priorities."""
    drawn = st.tuples(
        st.integers(0, 30),
        st.integers(1, UNITS + 1),
        st.integers(1, 12),
        st.integers(-2, 12),
        st.sampled_from([0, 0, 0, 0, 3, -1]),
        st.integers(0, 3) if molded else st.just(0),
    )
    return st.lists(drawn, min_size=1, max_size=most).map(
        lambda rows: [
            Work(f"j{n}", s, units, run, max(1, run + slack), priority, units + more if more else 0)
            for n, (s, units, run, slack, priority, more) in enumerate(rows)
        ]
    )


def ours(work: list[Work], decider: str | PolicyDecider) -> dict[str, tuple[float | None, set[int]]]:
    jobs = [
        Job(
            job.name, job.units, float(job.walltime), float(job.submitted),
            Profile(job.name, Delay(float(job.runtime))), runtime=float(job.runtime), priority=float(job.priority),
            most_units=job.most_units,
        )
        for job in work
    ]  # fmt: skip
    records: list[JobRecord] = []
    world = SimulatedWorld(
        Begins(nodes=tuple(Node(f"h{i}", i) for i in range(UNITS))), jobs, record=records.append
    )
    outcome = Session(world, naming.decider(decider) if isinstance(decider, str) else decider).run()
    assert not outcome.deadlocked and len(records) == len(work)
    return {record.job.id: (record.started_at, set(record.units)) for record in records}


def theirs(work: list[Work], oracle: Oracle, estimate: str) -> dict[str, tuple[float | None, set[int]]]:
    one_pass, each_event = oracle
    oracles.simulate(work, UNITS, one_pass(), ESTIMATES[estimate], each_event=each_event)
    return {job.name: (job.started, job.where) for job in work}


def takes_estimates(policy: str) -> bool:
    return "estimate" in CATALOG[policy.partition(":")[0]].options


CASES = [(name, estimate) for name in ORACLES for estimate in ESTIMATES if estimate == "requested" or takes_estimates(name)]


@pytest.mark.parametrize(("policy", "estimate"), CASES)
@settings(max_examples=40)
@given(work=workloads())
def test_the_same_schedule(policy: str, estimate: str, work: list[Work]) -> None:
    assert_same(policy, estimate, work)


@contextmanager
def in_python() -> Iterator[None]:
    """The queue in Python instead of the compiled one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queueing, "BackfillQueue", backfill_queue.PlainBackfillQueue)
        yield


@pytest.mark.parametrize("policy", ["fcfs", "filler", "easy", "easy-sjbf", "wfp3:backfill=easy"])
@settings(max_examples=60)
@given(work=workloads())
def test_the_same_schedule_without_compiled_parts(policy: str, work: list[Work]) -> None:
    with in_python():
        assert_same(policy, "requested", work)


def assert_same(policy: str, estimate: str, work: list[Work]) -> None:
    spelled = policy
    if estimate != "requested":
        spelled += (":" if ":" not in policy else ",") + f"estimate={estimate}"
    assert ours(work, spelled) == theirs(work, ORACLES[policy], estimate)


@settings(max_examples=80)
@given(work=workloads(molded=True))
def test_qcg_makes_jobs_as_large_as_possible(work: list[Work]) -> None:
    assert_same("qcg", "requested", work)


def test_every_policy_has_an_oracle() -> None:
    assert {name.partition(":")[0] for name in ORACLES} == set(CATALOG)


class Watched(Conservative):
    """Remembers the first reservation of each job."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, float] = {}

    def schedule(self, cluster: Cluster) -> None:
        super().schedule(cluster)
        for job_id, date in cluster.reservations.items():
            self.first.setdefault(job_id, date)


@settings(max_examples=80)
@given(work=workloads())
def test_conservative_starts_no_job_after_its_first_reservation(work: list[Work]) -> None:
    """With exact estimates, and jobs that are equally urgent."""
    for job in work:
        job.walltime, job.priority = job.runtime, 0
    policy = Watched()
    for name, (started, _) in ours(work, PolicyDecider(policy)).items():
        assert started is None or started <= policy.first.get(name, inf)
