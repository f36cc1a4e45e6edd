"""The drop-in for Batsim 5 says and writes what the real Batsim 5.0.0-rc2 said and wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden.batsim5_replay import (
    HERE,
    OneByOne,
    RecordedComponent,
    Recording,
    Rejecter,
    SimpleComponent,
    difference,
    same,
)

pytestmark = pytest.mark.peer("batsim5", "recorded runs, message by message and file by file")

OWN = sorted(folder.name for folder in (HERE / "cases").iterdir())
SHARED = Path(__file__).resolve().parents[3] / "shared/reference"
ALL = sorted(folder.name for folder in (SHARED / "batsim5/golden").iterdir()) if SHARED.is_dir() else OWN
ONE_BY_ONE = [name for name in ALL if name.startswith("exec1by1_")]


def recording(name: str) -> Recording:
    if name in OWN:
        return Recording(HERE / "cases" / name, HERE / "inputs")
    return Recording(SHARED / "batsim5/golden" / name, SHARED / "inputs/v5")


def compare_files(found: Recording, prefix: Path) -> None:
    for file in sorted((found.folder / "out").iterdir()):
        name = file.name.removesuffix(".gz")
        want = found.text(f"out/{name}")
        if want:
            assert not (problem := difference(name, want, (prefix / name).read_text())), problem


@pytest.mark.parametrize("name", [name for name in ALL if recording(name).messages()[0]])
def test_recorded_component_hears_and_leaves_the_same(name: str, tmp_path: Path) -> None:
    found = recording(name)
    sent, answered = found.messages()
    component = RecordedComponent(answered)
    code, _ = found.run(component, f"{tmp_path}/")
    assert code % 128 == found.exit_code % 128 or (code, found.exit_code) == (-6, 134)
    for number, (want, got) in enumerate(zip(sent, component.heard, strict=False)):
        assert same(want, got), f"message {number}: {got}, expected {want}"
    assert len(component.heard) == len(sent)
    # To the last decimal that JSON carries: ties fall as they fell.
    assert [message["now"] for message in component.heard] == [message["now"] for message in sent]
    if found.exit_code == 0:
        compare_files(found, tmp_path)


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_one_job_at_a_time(name: str, tmp_path: Path) -> None:
    found = recording(name)
    code, _ = found.run(OneByOne(), f"{tmp_path}/")
    assert code == 0
    compare_files(found, tmp_path)


def test_rejecter(tmp_path: Path) -> None:
    found = recording("rejecter")
    assert found.run(Rejecter(), f"{tmp_path}/")[0] == 0
    compare_files(found, tmp_path)


def test_calls_of_one_shot(tmp_path: Path) -> None:
    found = recording("call_oneshot")
    calls = tuple(
        {"call_me_later_id": f"c{date}", "when_type": "OneShot", "when": {"time": date}}
        for date in (10, 100, 1000, 10000)
    )
    component = Rejecter(calls)
    code, ended_at = found.run(component, f"{tmp_path}/")
    assert code == 0
    compare_files(found, tmp_path)
    assert [(round(at), call, last) for at, call, last in component.called] == [
        (date, f"c{date}", False) for date in (10, 100, 1000, 10000)
    ]
    assert ended_at == pytest.approx(10000.00006, abs=2e-6)


class Scripted(SimpleComponent):
    """Answers the n-th event of a kind with the n-th list of orders for it."""

    def __init__(self, **on: list[list[tuple[str, dict[str, object]]]]) -> None:
        super().__init__()
        self._on = on

    def on(self, kind: str, event: dict[str, object]) -> None:
        if self._on.get(kind):
            for order, fields in self._on[kind].pop(0):
                self.say(order, **fields)


def switch(state: int) -> list[tuple[str, dict[str, object]]]:
    return [("TurnOnOffHostsEvent", {"host_ids": "0-3", "state": state})]


def test_turning_on_what_is_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = recording("machine_switcher_turn_on_fail")
    call: dict[str, object] = {"call_me_later_id": "c", "when_type": "OneShot", "when": {"time": 500}}
    allocation: dict[str, object] = {
        "host_allocation": "0",
        "executor_placement_type": "PredefinedExecutorPlacementStrategyWrapper",
        "executor_placement": {},
    }
    component = Scripted(
        SimulationBeginsEvent=[[("CallMeLaterEvent", call)]],
        JobSubmittedEvent=[[("ExecuteJobEvent", {"job_id": "w0!1", "allocation": allocation})]],
        JobCompletedEvent=[switch(1)],
        RequestedCallEvent=[switch(0)],
        HostsTurnedOnOffEvent=[[], switch(0)],
    )
    code, ended_at = found.run(component, f"{tmp_path}/")
    assert (code, found.exit_code) == (-6, 134)
    assert ended_at == pytest.approx(520.006711, abs=1e-6)
    words = (
        "Invalid turning ON/OFF of host 0 ('Earth'): "
        "Asked to turn ON a host already in a computing pstate (current: 0 target: 0)"
    )
    assert words in (found.text("stderr.txt") or words) and words in capsys.readouterr().err


def test_registering_a_profile_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = recording("dynreg_identical_profile_names_fail")
    profile = {"id": "w0!delay10", "profile_type": "DelayProfile", "profile": {"delay": 10}}
    component = Scripted(JobSubmittedEvent=[[("RegisterProfileEvent", {"profile": profile})]])
    component.features = {"dynamic_registration": True}
    code, ended_at = found.run(component, f"{tmp_path}/")
    assert (code, found.exit_code) == (-6, 134)
    assert ended_at == pytest.approx(0.000075, abs=1e-6)
    words = "Invalid new profile registration: 'w0!delay10' already exists in the workload."
    assert words in (found.text("stderr.txt") or words) and words in capsys.readouterr().err


class Periodic(Rejecter):
    """What the recorded component did: calls every 10 s, and at 3 s a probe every 100 s."""

    def on(self, kind: str, event: dict[str, object]) -> None:
        super().on(kind, event)
        if kind == "RequestedCallEvent" and event["call_me_later_id"] == "at 3":
            trigger = {
                "temporal_trigger_type": "Periodic",
                "temporal_trigger": {"period": 100, "mode_type": "FinitePeriodNumber", "mode": {"nb_periods": 3}},
            }
            self.say(
                "CreateProbeEvent",
                probe_id="probe",
                metrics="Power",
                resources_type="HostResources",
                resources={"host_ids": "0-3"},
                data_accumulation_strategy_type="ProbeDataAccumulation",
                data_accumulation_strategy={"reset_mode_type": "NoReset", "reset_mode": {}},
                measurement_triggering_policy_type="TemporalTriggerWrapper",
                measurement_triggering_policy=trigger,
                resources_aggregation_function_type="Sum",
                resources_aggregation_function={},
            )


def test_periodic_calls_and_probes(tmp_path: Path) -> None:
    found = recording("periodic_calls")
    every_10 = {"period": 10, "mode_type": "FinitePeriodNumber", "mode": {"nb_periods": 20}}
    component = Periodic(
        (
            {"call_me_later_id": "every 10", "when_type": "Periodic", "when": every_10},
            {"call_me_later_id": "at 3", "when_type": "OneShot", "when": {"time": 3}},
        )
    )
    code, ended_at = found.run(component, f"{tmp_path}/")
    assert code == 0
    compare_files(found, tmp_path)
    assert ended_at == pytest.approx(400.00006, abs=2e-6)
    series = [(round(at), last) for at, call, last in component.called if call == "every 10"]
    assert series == [(date, date == 200) for date in range(10, 201, 10)]
    data = [
        (round(message["now"]), item["event"]["data"]["data"])
        for message in component.heard
        for item in message["events"]
        if item["event_type"] == "ProbeDataEmittedEvent"
    ]
    assert [at for at, _ in data] == [200, 300, 400]  # the first tick only sets the probe up
    assert [joules for _, joules in data] == pytest.approx([40000.0, 60000.0, 80000.0])
