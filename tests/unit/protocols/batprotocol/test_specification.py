"""The batprotocol by its text, as `simulate` and `steer` speak it: where the real Batsim 5 does otherwise, the drop-in does
as it does (tests/unit/dropins/batsim5)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from golden.batsim5_replay import SimpleComponent
from pilothouse.core.session import Outcome, Session
from pilothouse.dropins.batsim5.run import ABORTED
from pilothouse.model.errors import DecisionError, PeerError
from pilothouse.model.events import Begins
from pilothouse.model.job import Job
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.protocols.batprotocol.decider import EdcDecider
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.world import SimulatedWorld
from unit.dropins.batsim5.test_run import (
    DYNAMIC,
    FINISH,
    SLEEPY,
    Bench,
    Order,
    Script,
    bench,
    calls,
    execute,
    job,
    once,
    probe,
    profile,
)
from unit.protocols.batprotocol.test_decider import begins

__all__ = ["bench"]


def simulated(component: SimpleComponent, *works: float, **changes: Any) -> tuple[Outcome, list[JobRecord]]:
    """Delays on four hosts, submitted at 0; jobs are w0!0, w0!1, ..."""
    profiles = {f"w0!d{seconds:g}": Profile(f"w0!d{seconds:g}", Delay(seconds)) for seconds in works}
    jobs = [Job(f"w0!{i}", 1, 1000.0, 0.0, profiles[f"w0!d{seconds:g}"]) for i, seconds in enumerate(works)]
    done: list[JobRecord] = []
    world = SimulatedWorld(begins(profiles=profiles), jobs, record=done.append, **changes)
    return Session(world, EdcDecider(component)).run(), done


class Raw(SimpleComponent):
    """Answers its n-th message with the n-th text; after the last one with nothing."""

    def __init__(self, *answers: str) -> None:
        super().__init__()
        self._answers = list(answers)

    def exchange(self, message: bytes) -> bytes:
        self.heard.append(json.loads(message.rstrip(b"\0")))
        if self._answers:
            return self._answers.pop(0).encode()
        return json.dumps({"now": self.heard[-1]["now"], "events": []}).encode()


# ---- message composition


REJECT = '{"event_type": "RejectJobEvent", "event": {"job_id": "w0!0"}}'
EMPTY = '{"now": 0, "events": []}'


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (f'{{"now": 0, "events": [{REJECT}]}}', "an event without a timestamp"),
        ('{"events": []}', "a message without `now`"),
        ('{"now": -3, "events": []}', "before `now`"),
        ('{"now": 0, "events": [{"timestamp": -1, ' + REJECT[1:] + "]}", "before `now`"),
        ('{"now": 0, "events": [{"timestamp": 1, ' + REJECT[1:] + "]}", "no event may be later than `now`"),
    ],
)
def test_dates_are_there_and_not_before_now(answer: str, told: str) -> None:
    with pytest.raises(PeerError, match=told):
        simulated(Raw(EMPTY, answer), 1.0)


def test_the_drop_in_takes_early_and_missing_dates_for_now(bench: Bench) -> None:
    reject = REJECT.replace("w0!0", "w0!1")
    for answer in (f'{{"events": [{reject}]}}', '{"now": -3, "events": []}'):
        _, words = bench(Raw(EMPTY, answer))
        assert "invalid message" not in words, words


# ---- registration


def test_registration_must_be_enabled() -> None:
    for orders in ([profile("dyn!p")], [job("dyn!1", "w0!d1")]):
        with pytest.raises(DecisionError, match="dynamic registration is not enabled"):
            simulated(Script(*orders), 1.0)
    orders = [profile("dyn!p", 5.0), job("dyn!1", "dyn!p"), FINISH]
    component = Script(*orders, features=DYNAMIC, JobSubmittedEvent=[[execute("dyn!1", "0"), execute("w0!0", "1")]])
    _, done = simulated(component, 1.0)
    assert [(record.job.id, record.ended_at) for record in done] == [("w0!0", 1.0), ("dyn!1", 5.0)]


@pytest.mark.parametrize("job_id", ["bare", "!bare", "dyn!"])
def test_ids_of_registered_jobs_name_their_workload(job_id: str) -> None:
    with pytest.raises(PeerError, match="its id must be WORKLOAD!NAME"):
        simulated(Script(job(job_id, "w0!d1"), features=DYNAMIC), 1.0)


def test_registration_must_be_finished_for_the_run_to_end() -> None:
    outcome, _ = simulated(Script(features=DYNAMIC, JobSubmittedEvent=[[execute("w0!0", "0")]]), 1.0)
    assert outcome.deadlocked
    outcome, _ = simulated(Script(FINISH, features=DYNAMIC, JobSubmittedEvent=[[execute("w0!0", "0")]]), 1.0)
    assert not outcome.deadlocked


def test_a_call_keeps_the_run_alive_until_the_next_registration() -> None:
    later = [job("dyn!1", "w0!d1"), FINISH]
    component = Script(once("c"), features=DYNAMIC, JobSubmittedEvent=[[execute("w0!0", "0")], [execute("dyn!1", "0")]],
                       RequestedCallEvent=[later])  # fmt: skip
    outcome, done = simulated(component, 1.0)
    assert not outcome.deadlocked
    assert [(record.job.id, record.started_at) for record in done] == [("w0!0", 0.0), ("dyn!1", 50.0)]
    assert len(component.told("JobSubmittedEvent")) == 2, "the registered job is acknowledged"


def test_a_job_is_registered_at_the_current_time() -> None:
    component = Script(once("c"), features=DYNAMIC, JobSubmittedEvent=[[execute("w0!0", "0")], [execute("dyn!1", "0")]],
                       RequestedCallEvent=[[job("dyn!1", "w0!d1"), FINISH]])  # fmt: skip
    _, done = simulated(component, 1.0)
    assert [record.job.submitted_at for record in done] == [0.0, 50.0]


# ---- kills


KILL_BOTH: Order = ("KillJobsEvent", {"job_ids": ["w0!0", "w0!1"]})


def test_a_job_may_have_completed_before_its_kill() -> None:
    """One ends at 1 and is told; then both are killed: only the other one has a progress."""
    component = Script(
        JobSubmittedEvent=[[execute("w0!0", "0")], [execute("w0!1", "1")]], JobCompletedEvent=[[KILL_BOTH], [], [KILL_BOTH]]
    )
    _, done = simulated(component, 1.0, 9.0)
    assert [(record.job.id, record.state.value, record.ended_at) for record in done] == [
        ("w0!0", "succeeded", 1.0), ("w0!1", "killed", 1.0),
    ]  # fmt: skip
    kinds = [item["event_type"] for message in component.heard for item in message["events"]]
    assert kinds[-4:] == ["JobCompletedEvent", "JobCompletedEvent", "JobsKilledEvent", "SimulationEndsEvent"]
    (killed,) = component.told("JobsKilledEvent")
    assert killed["job_ids"] == ["w0!0", "w0!1"]
    assert [one["job_id"] for one in killed["progresses"]] == ["w0!1"]


def test_jobs_that_have_all_completed_are_acknowledged_as_killed() -> None:
    component = Script(
        once("c"), JobSubmittedEvent=[[execute("w0!0", "0")], [execute("w0!1", "1")]], RequestedCallEvent=[[KILL_BOTH]]
    )
    simulated(component, 1.0, 2.0)
    (killed,) = component.told("JobsKilledEvent")
    assert (killed["job_ids"], killed["progresses"]) == (["w0!0", "w0!1"], [])


def test_the_drop_in_ends_at_the_kill_of_a_job_whose_end_was_told(bench: Bench) -> None:
    kill: Order = ("KillJobsEvent", {"job_ids": ["w0!1"]})
    code, words = bench(Script(JobSubmittedEvent=[[execute("w0!1", "0")]], JobCompletedEvent=[[kill]]))
    assert code == ABORTED and "job 'w0!1' does not exist (or has been deleted)" in words


# ---- probes


def controlled(*on_call: list[Order]) -> Script:
    """A probe that measures only when it is triggered, and what is ordered at 2, 4, ..."""
    by_hand = probe(measurement_triggering_policy_type="NONE", measurement_triggering_policy=None)
    return Script(by_hand, calls("c", 2, len(on_call)), RequestedCallEvent=list(on_call))


TRIGGER: Order = ("TriggerProbeEvent", {"probe_id": "p", "force_data_emission": True})
RESET: Order = ("ResetProbeEvent", {"probe_id": "p", "new_value": 5.0})


def readings(component: Script) -> list[tuple[float, bool]]:
    return [(data["data"]["data"][0], data["manually_triggered"]) for data in component.told("ProbeDataEmittedEvent")]


def test_probes_are_triggered_and_reset() -> None:
    """Joules of one host at 30 W or so: at 2, at 4 after a reset to 5 at 2."""
    component = controlled([TRIGGER, RESET], [TRIGGER], [("StopProbeEvent", {"probe_id": "p"})])
    platform = Platform.load(SLEEPY, generation=5, master_host="master_host")
    world = SimulatedWorld(Begins(platform.nodes(), energy=True), [], platform=platform)
    Session(world, EdcDecider(component)).run()
    (first, by_hand), (second, _) = readings(component)
    assert by_hand and first > 0 and second == pytest.approx(5.0 + first)


def test_the_drop_in_triggers_and_resets_probes_where_that_is_asked_for(bench: Bench) -> None:
    for options, code in (((), ABORTED), (("--all-probes",), 0)):
        component = controlled([TRIGGER, RESET], [TRIGGER], [("StopProbeEvent", {"probe_id": "p"})])
        ended, words = bench(component, "--energy-host", *options, platform=SLEEPY, workload=None)
        assert ended == code, words
    (first, by_hand), (second, _) = readings(component)
    assert by_hand and first > 0 and second == pytest.approx(5.0 + first, rel=1e-3)


# ---- the end


def test_the_end_is_the_last_message() -> None:
    component = Script(JobSubmittedEvent=[[execute("w0!0", "0")]])
    simulated(component, 1.0)
    assert [item["event_type"] for item in component.heard[-1]["events"]] == ["SimulationEndsEvent"]


def kinds(component: SimpleComponent) -> list[list[str]]:
    return [[item["event_type"] for item in message["events"]] for message in component.heard]


def test_events_of_a_run_in_their_order() -> None:
    """The run is suspended while the component thinks: all dates are those of the jobs."""
    component = Script(JobSubmittedEvent=[[execute("w0!0", "0")], [execute("w0!1", "0")]])
    simulated(component, 1.0)
    assert [(message["now"], names) for message, names in zip(component.heard, kinds(component), strict=True)] == [
        (0, ["SimulationBeginsEvent"]),
        (0, ["JobSubmittedEvent", "AllStaticJobsHaveBeenSubmittedEvent"]),
        (1, ["JobCompletedEvent"]),
        (1, ["SimulationEndsEvent"]),
    ]


def test_our_own_messages_keep_the_rules_of_dates() -> None:
    component = Script(
        calls("c", 1, 3), once("d"), JobSubmittedEvent=[[execute("w0!0", "0")], [execute("w0!1", "1")]],
        JobCompletedEvent=[[KILL_BOTH]],
    )  # fmt: skip
    simulated(component, 2.0, 9.0)
    assert len(component.heard) > 5
    for message in component.heard:
        dates = [item["timestamp"] for item in message["events"]]
        assert dates and dates == sorted(dates) and dates[-1] <= message["now"]


def test_a_component_is_busy_until_its_now() -> None:
    """It answers the submissions with `now` 3: the end of the job at 1 is told at 3."""

    class Busy(Script):
        def finish(self) -> None:
            self.now = max(self.now, 3.0) if len(self.heard) == 2 else self.now

    component = Busy(JobSubmittedEvent=[[execute("w0!0", "0")]])
    _, done = simulated(component, 1.0)
    assert done[0].ended_at == 1.0
    assert [(message["now"], names) for message, names in zip(component.heard, kinds(component), strict=True)][2:] == [
        (3, ["JobCompletedEvent"]), (3, ["SimulationEndsEvent"]),
    ]  # fmt: skip


def test_the_beginning_tells_of_hosts_workloads_and_profiles() -> None:
    component = Script(features={"forward_profiles_on_simulation_begins": True})
    simulated(component, 1.0)
    (begins_event,) = component.told("SimulationBeginsEvent")
    assert begins_event["computation_host_number"] == 4
    assert [host["name"] for host in begins_event["computation_hosts"]] == ["h0", "h1", "h2", "h3"]
    assert [profile["id"] for profile in begins_event["profiles"]] == ["w0!d1"]


@pytest.mark.parametrize("forward", [True, False])
def test_profiles_are_forwarded_with_submissions_and_kills_on_demand(forward: bool) -> None:
    features = {"forward_profiles_on_job_submission": forward, "forward_profiles_on_jobs_killed": forward}
    kill: Order = ("KillJobsEvent", {"job_ids": ["w0!0"]})
    component = Script(once("c"), features=features, JobSubmittedEvent=[[execute("w0!0", "0")]], RequestedCallEvent=[[kill]])
    simulated(component, 100.0)
    (submitted,), (killed,) = component.told("JobSubmittedEvent"), component.told("JobsKilledEvent")
    assert bool(submitted.get("profile")) is forward and bool(killed.get("profiles")) is forward
    (progress,) = killed["progresses"]
    assert progress["wrapper"]["kill_progress"] == {"profile_id": "w0!d100", "progress": 0.5}


def test_profiles_are_kept_for_new_jobs() -> None:
    """Also without `profile_reuse`, and after the last job that had it: nothing is lost by that."""
    component = Script(once("c"), features=DYNAMIC, JobSubmittedEvent=[[execute("w0!0", "0")], [execute("dyn!1", "0")]],
                       RequestedCallEvent=[[job("dyn!1", "w0!d1"), FINISH]])  # fmt: skip
    _, done = simulated(component, 1.0)
    assert [record.job.id for record in done] == ["w0!0", "dyn!1"]


def test_calls_come_once_or_periodically_until_they_are_stopped() -> None:
    stop: Order = ("StopCallMeLaterEvent", {"call_me_later_id": "p"})
    endless = {"period": 10, "mode_type": "Infinite", "mode": {}}
    periodic: Order = ("CallMeLaterEvent", {"call_me_later_id": "p", "when_type": "Periodic", "when": endless})
    component = Script(periodic, once("o"), RequestedCallEvent=[[], [], [stop]])
    simulated(component)
    assert [(message["now"], item["event"]["call_me_later_id"]) for message in component.heard
            for item in message["events"] if item["event_type"] == "RequestedCallEvent"] == [
        (10, "p"), (20, "p"), (30, "p"), (50, "o"),
    ]  # fmt: skip


def test_a_stop_drops_what_would_have_been_told() -> None:
    stop: list[Order] = [("ForceSimulationStopEvent", {}), execute("w0!1", "1")]
    component = Script(JobSubmittedEvent=[[execute("w0!0", "0")], stop])
    _, done = simulated(component, 1.0, 1.0)
    assert kinds(component)[-1] == ["SimulationEndsEvent"] and len(component.heard) == 3 and done == []


def test_a_hello_names_component_version_protocol_and_features() -> None:
    component = Script(features={"dynamic_registration": True})
    decider = EdcDecider(component)
    wants = decider.hello()
    hello = decider.hello_event
    assert hello is not None and wants.dynamic_registration and not wants.profile_reuse
    assert hello.batprotocol_version and hello.decision_component_version
    assert decider.name == hello.decision_component_name
