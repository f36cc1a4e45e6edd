"""The simulated world, driven turn by turn: calls, kills, registration, dependencies, late replies, the end."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Traits
from pilothouse.core.session import Outcome, Session
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.world import SimulatedWorld


class Script:
    """A decider that answers by a function, and remembers what it was told."""

    name = "script"
    traits = Traits()

    def __init__(
        self, answer: Callable[[Script, e.Batch], list[d.Decision] | d.Reply], wants: d.Wants | None = None
    ) -> None:
        self._answer = answer
        self._wants = wants or d.Wants()
        self.told: list[tuple[float, e.Event]] = []
        self.cluster: Cluster

    def hello(self) -> d.Wants:
        return self._wants

    def begin(self, begins: e.Begins, cluster: Cluster) -> None:
        self.cluster = cluster

    def fileno(self) -> int:
        raise AssertionError

    def decide(self, batch: e.Batch) -> d.Reply:
        self.told += [(batch.now, event) for event in batch.events]
        answer = self._answer(self, batch)
        return answer if isinstance(answer, d.Reply) else d.Reply(batch.now, answer)

    def close(self) -> None:
        pass

    def of(self, kind: type) -> list[tuple[float, e.Event]]:
        return [(now, event) for now, event in self.told if type(event) is kind]


def job(
    name: str, seconds: float, *, at: float = 0.0, walltime: float = inf, code: int = 0, after: tuple[str, ...] = ()
) -> Job:
    return Job(name, 1, walltime, at, Profile(f"delay {name}", Delay(seconds), code), after=after)


def run(
    jobs: list[Job],
    answer: Callable[[Script, e.Batch], list[d.Decision] | d.Reply],
    *,
    wants: d.Wants | None = None,
    external: tuple[e.Event, ...] = (),
) -> tuple[Outcome, Script, dict[str, JobRecord]]:
    records: dict[str, JobRecord] = {}
    begins = e.Begins(nodes=(Node("h0", 0), Node("h1", 1)))
    world = SimulatedWorld(begins, jobs, external_events=external, record=lambda r: records.update({r.job.id: r}))
    script = Script(answer, wants)
    return Session(world, script).run(), script, records


def start_all(script: Script, batch: e.Batch) -> list[d.Decision]:
    """One job on each unit, as they come."""
    orders: list[d.Decision] = []
    free = script.cluster.free_units
    for waiting in script.cluster.queue:
        if free:
            unit = free.lowest(1)
            free = free - unit
            orders.append(d.StartJob(batch.now, waiting.id, unit))
    return orders


def test_ends_and_their_codes() -> None:
    jobs = [job("ok", 5), job("bad", 5, code=3), job("cut", 9, at=6, walltime=4), job("equal", 4, at=6, walltime=4)]
    outcome, script, records = run(jobs, start_all)
    ends = {name: (r.state, r.started_at, r.ended_at, r.return_code) for name, r in records.items()}
    assert ends == {
        "ok": (JobState.SUCCEEDED, 0, 5, 0),
        "bad": (JobState.FAILED, 0, 5, 3),
        "cut": (JobState.TIMED_OUT, 6, 10, -1),
        "equal": (JobState.TIMED_OUT, 6, 10, -1),
    }
    assert outcome == Outcome(10.0, outcome.turns)
    assert type(script.told[0][1]) is e.Began and type(script.told[-1][1]) is e.Ended
    assert [now for now, _ in script.of(e.NoMoreJobs)] == [6.0]


def test_submissions_come_before_ends_of_the_same_date() -> None:
    _, script, _ = run([job("a", 5), job("b", 5, at=5)], start_all)
    at_five = [type(event) for now, event in script.told if now == 5]
    assert at_five[:3] == [e.JobSubmitted, e.NoMoreJobs, e.JobEnded]


def test_a_kill_tells_how_far_the_job_had_come() -> None:
    def answer(script: Script, batch: e.Batch) -> list[d.Decision]:
        if any(type(event) is e.CallArrived for event in batch.events):
            return [d.KillJobs(batch.now, ("long",))]
        return [
            *start_all(script, batch),
            *([d.CallAt(batch.now, 3.0, "kill")] if batch.now == 0 and script.cluster.waiting else []),
        ]

    _, script, records = run([job("long", 12)], answer)
    ((now, killed),) = script.of(e.JobsKilled)
    assert isinstance(killed, e.JobsKilled)
    assert (now, killed.job_ids, killed.progress["long"].done) == (3.0, ("long",), 0.25)
    assert (records["long"].state, records["long"].ended_at) == (JobState.KILLED, 3.0)


def test_rejected_jobs_are_recorded_and_never_start() -> None:
    def answer(script: Script, batch: e.Batch) -> list[d.Decision]:
        return [d.RejectJob(batch.now, waiting.id, "no") for waiting in script.cluster.queue]

    outcome, _, records = run([job("a", 5)], answer)
    assert records["a"].state is JobState.REFUSED and records["a"].started_at is None
    assert not outcome.deadlocked


def test_periodic_calls_keep_to_the_multiples_of_their_period() -> None:
    def answer(script: Script, batch: e.Batch) -> list[d.Decision]:
        if any(type(event) is e.JobSubmitted for event in batch.events):
            return [
                *start_all(script, batch),
                d.CallEvery(batch.now, 4.0, "tick", 3),
                d.CallEvery(batch.now, 7.0, "tock"),
            ]
        if any(isinstance(event, e.CallArrived) and event.call_id == "tick" and event.last for event in batch.events):
            return [d.StopCalls(batch.now, "tock")]
        return []

    _, script, _ = run([job("a", 1, at=2)], answer)
    calls = [
        (now, event.call_id, event.last) for now, event in script.of(e.CallArrived) if isinstance(event, e.CallArrived)
    ]
    assert calls == [(4.0, "tick", False), (7.0, "tock", False), (8.0, "tick", False), (12.0, "tick", True)]


def test_thinking_takes_time_and_events_wait_for_it() -> None:
    def answer(script: Script, batch: e.Batch) -> d.Reply:
        orders = start_all(script, batch)
        for order in orders:
            order.at = batch.now + 1.0
        return d.Reply(batch.now + (10.0 if orders else 0.0), orders)

    _, script, records = run([job("a", 2), job("b", 2, at=3)], answer)
    assert records["a"].started_at == 1.0 and records["a"].ended_at == 3.0
    assert [now for now, event in script.told if type(event) in (e.JobEnded, e.JobSubmitted)][:3] == [0.0, 10.0, 10.0]
    (_, ended), _ = script.of(e.JobEnded)
    assert ended.at == 3.0
    assert records["b"].started_at == 11.0


def test_jobs_registered_while_running() -> None:
    def answer(script: Script, batch: e.Batch) -> list[d.Decision]:
        orders = start_all(script, batch)
        if any(isinstance(event, e.JobEnded) and event.job_id == "a" for event in batch.events):
            orders.append(d.RegisterJob(batch.now, job("dyn", 7)))
            orders.append(d.FinishRegistration(batch.now))
        return orders

    outcome, script, records = run([job("a", 5)], answer, wants=d.Wants(dynamic_registration=True))
    assert records["dyn"].ended_at == 12.0
    assert len(script.of(e.JobSubmitted)) == 2
    assert not outcome.deadlocked


def test_registration_that_never_ends_is_a_deadlock() -> None:
    outcome, _, records = run([job("a", 5)], start_all, wants=d.Wants(dynamic_registration=True))
    assert outcome.deadlocked and "registrations" in outcome.reason
    assert "a" in records


def test_waiting_for_ever_is_a_deadlock_that_names_the_jobs() -> None:
    outcome, _, _ = run([job("a", 5), job("b", 5)], lambda script, batch: [])
    assert outcome.waiting == ("a", "b")


def test_dependencies_are_held_and_released_or_omitted() -> None:
    jobs = [
        job("first", 5),
        job("second", 5, after=("first",)),
        job("bad", 5, code=1),
        job("never", 5, after=("bad",)),
        job("nor this", 5, after=("never",)),
        job("unknown", 5, after=("nobody",)),
        job("late", 5, at=20, after=("first", "second")),
    ]
    outcome, _, records = run(jobs, start_all)
    assert not outcome.deadlocked
    assert records["second"].started_at == 5.0
    assert records["late"].started_at == 20.0
    for name in ("never", "nor this", "unknown"):
        assert records[name].state is JobState.OMITTED


def test_machines_come_and_go() -> None:
    external = (
        e.UnitsUnavailable(1.0, IdSet.parse("1")),
        e.UnitsAvailable(8.0, IdSet.parse("1")),
    )
    _, script, records = run([job("a", 4), job("b", 4, at=2)], start_all, external=external)
    assert records["b"].started_at == 4.0
    assert [now for now, _ in script.of(e.NoMoreExternalEvents)] == [8.0]


def test_metadata_and_states_set_by_the_decider() -> None:
    def answer(script: Script, batch: e.Batch) -> list[d.Decision]:
        if any(type(event) is e.JobSubmitted for event in batch.events):
            return [
                d.SetMetadata(batch.now, "a", "a note"),
                d.SetJobState(batch.now, "a", JobState.RUNNING),
                d.CallAt(batch.now, 4.0),
            ]
        if any(type(event) is e.CallArrived for event in batch.events):
            return [d.SetJobState(batch.now, "a", JobState.FAILED)]
        return []

    _, _, records = run([job("a", 5)], answer)
    assert (records["a"].metadata, records["a"].state, records["a"].ended_at) == ("a note", JobState.FAILED, 4.0)


def test_stopping_the_world_drops_everything_else() -> None:
    def answer(script: Script, batch: e.Batch) -> list[d.Decision]:
        if any(type(event) is e.JobSubmitted for event in batch.events):
            return [*start_all(script, batch), d.CallAt(batch.now, 2.0)]
        if any(type(event) is e.CallArrived for event in batch.events):
            return [d.StopWorld(batch.now)]
        return []

    outcome, script, records = run([job("a", 5), job("b", 5, at=3)], answer)
    assert records == {}
    assert outcome.ended_at == 2.0 and type(script.told[-1][1]) is e.Ended


@pytest.mark.parametrize("date", [-5.0, 0.0])
def test_a_negative_date_of_submission_is_now(date: float) -> None:
    _, _, records = run([job("a", 5, at=date)], start_all)
    assert records["a"].started_at == 0.0


def test_a_decider_that_never_lets_time_go_on_is_stopped() -> None:
    def answer(script: Script, batch: e.Batch) -> list[d.Decision]:
        return [d.CallAt(batch.now, batch.now)]

    with pytest.raises(RunError, match="asked to be called at 0 s"):
        run([job("a", 5, at=1.0)], answer)


def test_the_last_external_event_is_told_to_be_the_last() -> None:
    external = (e.UnitsUnavailable(3.0, IdSet.of([1])), e.UnitsAvailable(7.0, IdSet.of([1])))
    heard: list[tuple[float, str]] = []

    def answer(script: Script, batch: e.Batch) -> list[d.Decision]:
        heard.extend((event.at, type(event).__name__) for event in batch.events)
        return start_all(script, batch)

    run([job("a", 20)], answer, external=external)
    told = [entry for entry in heard if "Unit" in entry[1] or "External" in entry[1]]
    assert told == [(3.0, "UnitsUnavailable"), (7.0, "UnitsAvailable"), (7.0, "NoMoreExternalEvents")]
    heard.clear()
    run([job("a", 20)], answer)
    assert "NoMoreExternalEvents" not in {name for _, name in heard}
