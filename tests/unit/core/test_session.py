"""What a policy may take over: hooks one by one, or the whole turn."""

from __future__ import annotations

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.model.events import Batch, Begins, Event, JobRequeued, JobSubmitted, JobWithdrawn, UnitsUnavailable
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.policies.base import Policy
from pilothouse.worlds.simulated.world import SimulatedWorld


def run(policy: Policy, *jobs: Job, external: tuple[Event, ...] = ()) -> dict[str, JobRecord]:
    records: dict[str, JobRecord] = {}
    begins = Begins(nodes=(Node("h0", 0), Node("h1", 1)))
    world = SimulatedWorld(begins, jobs, external_events=external, record=lambda r: records.update({r.job.id: r}))
    Session(world, PolicyDecider(policy)).run()
    return records


def job(name: str, *, units: int = 1, at: float = 0.0) -> Job:
    return Job(name, units, 100.0, at, Profile(name, Delay(10.0)))


def test_a_policy_that_takes_the_whole_turn_and_time_to_think() -> None:
    class Slow(Policy):
        def decide(self, batch: Batch, cluster: Cluster) -> float | None:
            for waiting in cluster.queue:
                cluster.start(waiting)
            return batch.now + 2.0

    records = run(Slow(), job("a"), job("b", at=3.0))
    assert (records["a"].started_at, records["b"].started_at) == (2.0, 4.0)


def test_hooks_are_called_in_order() -> None:
    class Curious(Policy):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def begin(self, cluster: Cluster) -> None:
            self.seen.append("begin")

        def on_submitted(self, job: Job, cluster: Cluster) -> None:
            self.seen.append(f"submitted {job.id}")

        def on_ended(self, job: Job, cluster: Cluster) -> None:
            self.seen.append(f"ended {job.id}")

        def on_event(self, event: Event, cluster: Cluster) -> None:
            self.seen.append(type(event).__name__)

        def schedule(self, cluster: Cluster) -> None:
            for waiting in cluster.queue:
                cluster.start(waiting)

    policy = Curious()
    records = run(policy, job("a"), job("huge", units=3), external=(UnitsUnavailable(5.0, IdSet.parse("1")),))
    assert policy.seen == [
        "begin", "Began", "submitted a", "NoMoreJobs", "UnitsUnavailable", "NoMoreExternalEvents", "ended a", "Ended",
    ]  # fmt: skip
    assert records["huge"].started_at is None


def test_a_policy_may_admit_what_it_likes() -> None:
    class Choosy(Policy):
        def admit(self, job: Job, cluster: Cluster) -> bool:
            if job.id == "b":
                cluster.reject(job, "not today")
                return False
            return True

        def schedule(self, cluster: Cluster) -> None:
            for waiting in cluster.queue:
                cluster.start(waiting)

    records = run(Choosy(), job("a"), job("b"))
    assert records["a"].started_at == 0.0
    assert records["b"].metadata == "not today"


def test_a_policy_sees_jobs_come_back_and_leave() -> None:
    """One that runs comes back as ended and submitted; one that waits and is withdrawn has ended, with its event."""

    class Watching(Policy):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_submitted(self, job: Job, cluster: Cluster) -> None:
            self.seen.append(f"submitted {job.id}")

        def on_ended(self, job: Job, cluster: Cluster) -> None:
            self.seen.append(f"ended {job.id}")

        def on_event(self, event: Event, cluster: Cluster) -> None:
            self.seen.append(type(event).__name__)

        def schedule(self, cluster: Cluster) -> None:
            for waiting in cluster.queue:
                cluster.start(waiting)

    policy = Watching()
    decider = PolicyDecider(policy)
    decider.hello()
    begins = Begins(nodes=(Node("h", 0),))
    cluster = Cluster(begins, "watching")
    decider.begin(begins, cluster)
    decider.decide(Batch(0.0, [JobSubmitted(0.0, job("a")), JobSubmitted(0.0, job("b"))]))
    policy.seen.clear()
    decider.decide(Batch(1.0, [JobWithdrawn(1.0, "b")]))
    assert policy.seen == ["ended b", "JobWithdrawn"]
    policy.seen.clear()
    decider.decide(Batch(2.0, [JobRequeued(2.0, "a", "its node was lost")]))
    assert policy.seen == ["ended a", "submitted a"]
    assert list(cluster.running) == ["a"]
