"""What every policy must keep, on random workloads: no unit used twice, nothing lost, and EASY's and conservative's promises."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse.core.session import Outcome, Session
from pilothouse.launch import naming
from pilothouse.model.events import Begins
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.policies.catalog import CATALOG
from pilothouse.worlds.simulated.world import SimulatedWorld

UNITS = 8
POLICIES = [name for name in CATALOG if name != "priority"] + ["priority:score=r*n,backfill=easy", "wfp3:backfill=easy"]

jobs = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 10), st.integers(1, 20), st.integers(0, 15)), min_size=1, max_size=25
)


def run(drawn: list[tuple[int, int, int, int]], policy: str) -> tuple[Outcome, dict[str, JobRecord]]:
    """Jobs of (submission, units, run time, slack of the request)."""
    work = []
    for number, (submitted, units, runtime, slack) in enumerate(drawn):
        profile = Profile(f"p{number}", Delay(float(runtime)))
        work.append(Job(f"j{number}", units, float(runtime + slack), float(submitted), profile, runtime=float(runtime)))
    records: dict[str, JobRecord] = {}

    def record(job: JobRecord) -> None:
        assert job.job.id not in records
        records[job.job.id] = job

    world = SimulatedWorld(Begins(nodes=tuple(Node(f"h{i}", i) for i in range(UNITS))), work, record=record)
    return Session(world, naming.decider(policy)).run(), records


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None)
@given(drawn=jobs)
def test_every_job_ends_once_and_no_unit_is_used_twice(policy: str, drawn: list[tuple[int, int, int, int]]) -> None:
    outcome, records = run(drawn, policy)
    assert not outcome.deadlocked
    assert len(records) == len(drawn)
    started = [r for r in records.values() if r.started_at is not None]
    for r in records.values():
        assert (r.state is JobState.REFUSED) == (r.job.units > UNITS)
    for r in started:
        assert r.started_at is not None and r.started_at >= r.job.submitted_at
        assert len(r.units) == r.job.units
        for other in started:
            if other is not r and other.started_at is not None:
                overlap = r.started_at < other.ended_at and other.started_at < r.ended_at
                assert not (overlap and r.units.mask & other.units.mask)


@settings(max_examples=60, deadline=None)
@given(drawn=jobs)
def test_fcfs_never_lets_anybody_overtake(drawn: list[tuple[int, int, int, int]]) -> None:
    _, records = run(drawn, "fcfs")
    ran = sorted(
        (r for r in records.values() if r.started_at is not None), key=lambda r: (r.job.submitted_at, int(r.job.id[1:]))
    )
    starts = [r.started_at for r in ran]
    assert starts == sorted(starts)  # type: ignore[type-var]


@settings(max_examples=60, deadline=None)
@given(drawn=jobs)
def test_easy_never_delays_the_head_by_backfilling(drawn: list[tuple[int, int, int, int]]) -> None:
    """With perfect estimates, a head that is alone in the queue starts no later than without later jobs."""
    exact = [(submitted, units, runtime, 0) for submitted, units, runtime, _ in drawn]
    exact.sort()
    _, records = run(exact, "easy")
    blocked = [
        n
        for n in range(len(exact))
        if f"j{n}" in records
        and records[f"j{n}"].started_at is not None
        and all((records[f"j{m}"].started_at or -inf) <= exact[n][0] for m in range(n) if exact[m][1] <= UNITS)
    ]
    for n in blocked:
        _, alone = run(exact[: n + 1], "easy")
        with_later, without = records[f"j{n}"].started_at, alone[f"j{n}"].started_at
        assert with_later is not None and without is not None and with_later <= without


@settings(max_examples=60, deadline=None)
@given(drawn=jobs)
def test_conservative_never_delays_anybody_by_later_jobs(drawn: list[tuple[int, int, int, int]]) -> None:
    """With perfect estimates the start of a job does not depend on jobs that come after it."""
    exact = sorted((submitted, units, runtime, 0) for submitted, units, runtime, _ in drawn)
    _, records = run(exact, "conservative")
    half = len(exact) // 2
    if half:
        _, first = run(exact[:half], "conservative")
        for n in range(half):
            assert records[f"j{n}"].started_at == first[f"j{n}"].started_at


@settings(max_examples=20, deadline=None)
@given(drawn=jobs)
def test_the_same_input_gives_the_same_run(drawn: list[tuple[int, int, int, int]]) -> None:
    for policy in ("easy", "random:seed=3"):
        a, b = run(drawn, policy)[1], run(drawn, policy)[1]
        assert {k: (r.started_at, r.units) for k, r in a.items()} == {k: (r.started_at, r.units) for k, r in b.items()}
