"""What the drop-in for Batsim 5 does with orders: the words with which it refuses, and what it does without asking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from golden.batsim5_replay import HERE, OneByOne, SimpleComponent
from pilothouse.dropins.batsim5.inputs import Batsim5Inputs
from pilothouse.dropins.batsim5.options import parse
from pilothouse.dropins.batsim5.outputs import Batsim5Outputs
from pilothouse.dropins.batsim5.run import ABORTED, Log, run
from pilothouse.model.errors import InputError
from pilothouse.protocols.batprotocol.channel import Channel
from pilothouse.protocols.batprotocol.decider import EdcDecider

INPUTS = HERE / "inputs"
DELAYS = str(INPUTS / "test_delays.json")
ONE = str(INPUTS / "test_one_delay_job.json")
SMALL = str(INPUTS / "small_platform.xml")
SLEEPY = str(INPUTS / "energy_platform_homogeneous.xml")


class Bench:
    """Runs the drop-in in this process; keeps its words and its files."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(
        self, component: Channel, *extra: str, platform: str = SMALL, workload: str | None = ONE
    ) -> tuple[int, str]:
        arguments = ["-p", platform, "-s", "inproc://x", "", "-e", f"{self.folder}/", "-v", "info", *extra]
        if workload is not None:
            arguments += ["-w", workload]
        options = parse(arguments)
        outputs = Batsim5Outputs(
            options.export,
            energy=options.energy_host,
            machine_states=options.trace_machine_state,
            pstate_changes=options.trace_pstate_changes,
        )
        code = run(Batsim5Inputs(options, arguments).server(outputs), outputs, EdcDecider(component), Log("info"))
        return code, self._capsys.readouterr().err

    def rows(self) -> list[dict[str, str]]:
        head, *lines = (self.folder / "jobs.csv").read_text().splitlines()
        return [dict(zip(head.split(","), line.split(","), strict=True)) for line in lines]

    def workload(self, profiles: dict[str, Any], jobs: list[dict[str, Any]]) -> str:
        path = self.folder / "w.json"
        path.write_text(json.dumps({"nb_res": 4, "jobs": jobs, "profiles": profiles}))
        return str(path)


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, capsys)


Order = tuple[str, dict[str, Any]]


class Script(SimpleComponent):
    """Gives the orders of a script: `at_begin`, and those for the n-th message that holds an event of a kind."""

    def __init__(self, *at_begin: Order, features: dict[str, bool] | None = None, **on: list[list[Order]]) -> None:
        super().__init__()
        self.features = features or {}
        self._on = {"SimulationBeginsEvent": [list(at_begin)], **on}

    def on(self, kind: str, event: Any) -> None:
        if self._on.get(kind):
            for order, fields in self._on[kind].pop(0):
                self.say(order, **fields)

    def told(self, kind: str) -> list[Any]:
        return [item["event"] for message in self.heard for item in message["events"] if item["event_type"] == kind]


def execute(job_id: str, hosts: str, mapping: list[int] | None = None) -> Order:
    allocation: dict[str, Any] = {"host_allocation": hosts}
    if mapping is None:
        allocation["executor_placement_type"] = "PredefinedExecutorPlacementStrategyWrapper"
        allocation["executor_placement"] = {}
    else:
        allocation["executor_placement_type"] = "CustomExecutorToHostMapping"
        allocation["executor_placement"] = {"mapping": mapping}
    return "ExecuteJobEvent", {"job_id": job_id, "allocation": allocation}


def profile(name: str, delay: float = 5.0) -> Order:
    return "RegisterProfileEvent", {
        "profile": {"id": name, "profile_type": "DelayProfile", "profile": {"delay": delay}}
    }


def job(job_id: str, name: str, count: int = 1) -> Order:
    return "RegisterJobEvent", {"job_id": job_id, "job": {"resource_request": count, "profile_id": name}}


def switch(hosts: str, state: int) -> Order:
    return "TurnOnOffHostsEvent", {"host_ids": hosts, "state": state}


def probe(**changes: Any) -> Order:
    trigger = {"period": 2, "mode_type": "FinitePeriodNumber", "mode": {"nb_periods": 1}}
    event = {
        "probe_id": "p",
        "metrics": "Power",
        "resources_type": "HostResources",
        "resources": {"host_ids": "0"},
        "data_accumulation_strategy_type": "ProbeDataAccumulation",
        "data_accumulation_strategy": {"reset_mode_type": "NoReset", "reset_mode": {}},
        "measurement_triggering_policy_type": "TemporalTriggerWrapper",
        "measurement_triggering_policy": {"temporal_trigger_type": "Periodic", "temporal_trigger": trigger},
    }
    return "CreateProbeEvent", {**event, **changes}


def calls(call_id: str, period: int, count: int = 1) -> Order:
    when = {"period": period, "mode_type": "FinitePeriodNumber", "mode": {"nb_periods": count}}
    return "CallMeLaterEvent", {"call_me_later_id": call_id, "when_type": "Periodic", "when": when}


def once(call_id: str) -> Order:
    return "CallMeLaterEvent", {"call_me_later_id": call_id, "when_type": "OneShot", "when": {"time": 50}}


def work(name: str, kind: str, **fields: object) -> Order:
    return "RegisterProfileEvent", {"profile": {"id": name, "profile_type": kind, "profile": fields}}


FINISH: Order = ("FinishRegistrationEvent", {})
DYNAMIC = {"dynamic_registration": True, "acknowledge_dynamic_jobs": True}


@pytest.mark.parametrize(
    ("orders", "told"),
    [
        ([execute("w0!9", "0")], "job 'w0!9' does not exist"),
        ([execute("w0!1", "")], "its allocation is empty"),
        ([execute("w0!1", "3-4")], "machines 4 do not exist"),
        ([execute("w0!1", "0"), execute("w0!1", "1")], "its state is RUNNING instead of SUBMITTED"),
        ([execute("w0!1", "0"), ("RejectJobEvent", {"job_id": "w0!1"})], "it is RUNNING, not SUBMITTED"),
        ([("RejectJobEvent", {"job_id": "w0!9"})], "w0!9"),
        ([("KillJobsEvent", {"job_ids": ["w0!1"]})], "its state must be RUNNING or COMPLETED"),
        ([("KillJobsEvent", {"job_ids": ["w0!9"]})], "does not exist"),
        ([("KillJobsEvent", {"job_ids": []})], "list of jobs to kill is empty"),
        ([("TriggerProbeEvent", {"probe_id": "p"})], "Unhandled event type"),
        ([("ResetProbeEvent", {"probe_id": "p"})], "Unhandled event type"),
        ([probe()], "--energy-host"),
        ([probe(metrics="NetworkLoad")], "not implemented"),
        ([probe(measurement_triggering_policy_type="NONE")], "only periodic triggers"),
        ([probe(data_accumulation_strategy_type="NONE")], "only accumulation without reset"),
        ([calls("c", 10), calls("c", 10)], "this id is in use"),
        ([calls("a", 10), calls("b", 15)], "not a multiple"),
        ([probe(), probe()], "this id is in use"),
        ([once("")], "Invalid (empty) call_me_later_id"),
        ([execute("w0!1", " 0")], "is not a set of ids"),
        ([("ChangeHostsPStateEvent", {"host_ids": "0", "pstate": 7})], "has 1 pstates"),
        ([("ChangeHostsPStateEvent", {"host_ids": "9", "pstate": 0})], "Machine 9 does not exist"),
        ([switch("0", 0)], "Asked to turn ON a host already in a computing pstate"),
        ([profile("w0!delay10")], "Invalid new profile registration: 'w0!delay10' already exists in the workload."),
        ([work("d!p", "DelayProfile", delay=0.0)], "it must be above 0"),
        ([work("d!p", "DelayProfile", delay=-1.0)], "it must be above 0"),
        ([work("d!p", "ParallelTaskHomogeneousProfile", computation_amount=-1.0)], "amounts must be 0 or more"),
        ([work("d!p", "ParallelTaskProfile", computation_vector=[1.0, -2.0])], "amounts must be 0 or more"),
        ([work("d!p", "ParallelTaskProfile", communication_matrix=[0.0] * 3)], "1 are needed"),
        (
            [work("d!p", "ParallelTaskProfile", computation_vector=[1.0, 1.0], communication_matrix=[0.0] * 3)],
            "4 are needed",
        ),
        ([work("d!p", "ParallelTaskOnStorageHomogeneousProfile", storage_name="s", bytes_to_read=-1.0)], "0 or more"),
        ([work("d!p", "SequentialCompositionProfile", profile_ids=["d!nothing"])], "which does not exist"),
        ([work("d!p", "ForkJoinCompositionProfile", profile_ids=["w0!delay10"])], "not implemented"),
        ([job("w0!1", "w0!delay10")], "already exists"),
        ([job("w0!2", "w0!nothing")], "its profile does not exist"),
        ([job("bare", "w0!delay10")], "has no workload name"),
        ([job("w0!2!3", "w0!delay10")], "has more than one '!'"),
    ],
)
def test_refused_orders_end_it_with_the_words_of_the_real_one(orders: list[Order], told: str, bench: Bench) -> None:
    code, words = bench(Script(JobSubmittedEvent=[orders]))
    assert code == ABORTED
    assert told in words and "CRITICAL" in words


def test_machines_that_sleep_or_compute(bench: Bench) -> None:
    off = switch("0-3", 1)
    code, words = bench(Script(off, JobSubmittedEvent=[[execute("w0!1", "0")]]), platform=SLEEPY)
    assert code == ABORTED
    assert "cannot compute jobs now (the machine is not computing nor idle, its state is 'switching_off')" in words
    code, words = bench(Script(JobSubmittedEvent=[[execute("w0!1", "0"), off]]), platform=SLEEPY)
    assert code == ABORTED and "jobs are running on machine 0" in words
    component = Script(off, HostsTurnedOnOffEvent=[[switch("0-3", 1)]])
    code, words = bench(component, platform=SLEEPY, workload=None)
    assert code == ABORTED and "Asked to turn OFF a host already in a sleep pstate" in words


def test_off_and_on_again(bench: Bench) -> None:
    component = Script(
        switch("0-1", 1), HostsTurnedOnOffEvent=[[switch("0-1", 0)], [execute("w0!1", "0")]], JobSubmittedEvent=[[]]
    )
    code, words = bench(component, "--trace-pstate-changes", "--trace-machine-state", platform=SLEEPY)
    assert code == 0, words
    assert [event["state"] for event in component.told("HostsTurnedOnOffEvent")] == [1, 0]
    changes = [line.split(",")[1:] for line in (bench.folder / "pstate_changes.csv").read_text().splitlines()[1:]]
    assert changes == [["0-3", "0"], ["0-1", "-2"], ["0-1", "1"], ["0-1", "-1"], ["0-1", "0"]]


def test_registration_needs_no_feature_but_then_nobody_waits_for_its_end(bench: Bench) -> None:
    orders = [profile("dyn!p"), job("dyn!1", "p", 2), job("dyn!2", "dyn!p", 2)]
    component = Script(
        *orders, JobSubmittedEvent=[[execute("w0!1", "0"), execute("dyn!1", "1-2"), execute("dyn!2", "3")]]
    )
    code, words = bench(component)
    assert code == 0, words
    assert sorted((row["workload_name"], row["job_id"]) for row in bench.rows()) == [
        ("dyn", "1"),
        ("dyn", "2"),
        ("w0", "1"),
    ]


def test_parts_of_a_registered_sequence_are_sought_in_its_workload(bench: Bench) -> None:
    sequence = {"profile_ids": ["p", "w0!delay10", "d!p"]}
    register = "RegisterProfileEvent", {
        "profile": {"id": "d!s", "profile_type": "SequentialCompositionProfile", "profile": sequence}
    }
    orders: list[Order] = [profile("d!p"), register, job("d!1", "s"), execute("d!1", "0")]
    code, words = bench(Script(*orders, JobSubmittedEvent=[[execute("w0!1", "1")]]))
    assert code == 0, words
    assert [row["execution_time"] for row in bench.rows() if row["workload_name"] == "d"] == ["20.000000"]


@pytest.mark.parametrize(
    ("parts", "repetitions", "seconds"),
    [([], 1, 1e-5), (["w0!delay10"], 0, 1e-5), (["d!none"] * 3, 1_000_000_000, 1e-5), (["d!none", "w0!delay10"], 2, 20.0)],
)
def test_sequences_of_nothing_take_no_time(parts: list[str], repetitions: int, seconds: float, bench: Bench) -> None:
    kind = "SequentialCompositionProfile"
    orders: list[Order] = [
        work("d!none", kind, profile_ids=[]),
        work("d!s", kind, profile_ids=parts, repetition_count=repetitions),
        job("d!1", "d!s"),
        execute("d!1", "0"),
    ]
    code, words = bench(Script(*orders, JobSubmittedEvent=[[execute("w0!1", "1")]]))
    assert code == 0, words
    row = next(row for row in bench.rows() if row["workload_name"] == "d")
    assert row["final_state"] == "COMPLETED_SUCCESSFULLY" and float(row["execution_time"]) == pytest.approx(seconds)


def test_calls_that_share_an_id_all_come(bench: Bench) -> None:
    component = Script(once("c"), once("c"), calls("c", 10, 3), JobSubmittedEvent=[[execute("w0!1", "0")]])
    code, words = bench(component)
    assert code == 0, words
    assert len(component.told("RequestedCallEvent")) == 2 + 3


def test_a_profile_needs_no_workload_and_a_comma_ends_a_number(bench: Bench) -> None:
    component = Script(profile("bare"), JobSubmittedEvent=[[execute("w0!1", "0,1")]])
    code, words = bench(component)
    assert code == 0, words
    assert bench.rows()[0]["allocated_resources"] == "0"


def test_registration_that_never_finishes_is_a_deadlock(bench: Bench) -> None:
    code, words = bench(Script(features=DYNAMIC, JobSubmittedEvent=[[execute("w0!1", "0")]]))
    assert code == 1
    assert "The simulation could NOT finish because a deadlock was detected in SimGrid" in words
    assert "Dynamic registration of jobs is ENABLED" in words
    assert len(bench.rows()) == 1 and not (bench.folder / "schedule.json").exists()


@pytest.mark.parametrize("acknowledge", [True, False])
def test_acknowledgement_of_registered_jobs(acknowledge: bool, bench: Bench) -> None:
    features = {"dynamic_registration": True, "acknowledge_dynamic_jobs": acknowledge}
    orders = [profile("d!p"), job("d!1", "p"), FINISH]
    on: dict[str, list[list[Order]]] = {"JobSubmittedEvent": [[execute("d!1", "0")]]}
    if not acknowledge:
        orders.append(execute("d!1", "0"))
        on = {}
    component = Script(*orders, features=features, **on)
    code, words = bench(component, workload=None)
    assert code == 0, words
    assert [event["job_id"] for event in component.told("JobSubmittedEvent")] == (["d!1"] if acknowledge else [])
    assert [event["job_id"] for event in component.told("JobCompletedEvent")] == ["d!1"]


@pytest.mark.parametrize("reuse", [True, False])
def test_profiles_are_collected_unless_they_may_be_reused(reuse: bool, bench: Bench) -> None:
    features = {"dynamic_registration": True, "profile_reuse": reuse}
    later = [job("w0!later", "w0!delay10"), FINISH, execute("w0!later", "0")]
    call = {"call_me_later_id": "c", "when_type": "OneShot", "when": {"time": 50}}
    component = Script(
        ("CallMeLaterEvent", call),
        features=features,
        JobSubmittedEvent=[[execute("w0!1", "0")]],
        RequestedCallEvent=[later],
    )
    code, words = bench(component)
    if reuse:
        assert code == 0, words
        assert len(bench.rows()) == 2
    else:
        assert code == ABORTED and "garbage collected" in words


def test_constraints_are_ignored_unless_strict(bench: Bench) -> None:
    two = [execute("w0!0", "0-1")], [execute("w0!1", "0")]
    rest = [[execute(f"w0!{i}", "3")] for i in range(2, 10)]
    assert bench(Script(JobSubmittedEvent=[*two, *rest]), workload=DELAYS)[0] == 0
    code, words = bench(Script(JobSubmittedEvent=[*two, *rest]), "--strict", workload=DELAYS)
    assert code == ABORTED and "requests 1 resources, and 2 were given" in words
    shared = [execute("w0!0", "0")], [execute("w0!1", "0")]
    code, words = bench(Script(JobSubmittedEvent=[*shared, *rest]), "--strict", workload=DELAYS)
    assert code == ABORTED and "machine 0 is used by w0!0" in words


def test_a_kill_that_was_asked_for_already_is_dropped_from_the_list(bench: Bench) -> None:
    kill = ("KillJobsEvent", {"job_ids": ["w0!0"]})
    both = ("KillJobsEvent", {"job_ids": ["w0!0", "w0!1"]})
    rest: list[list[Order]] = [[("RejectJobEvent", {"job_id": f"w0!{i}"})] for i in range(2, 10)]
    component = Script(JobSubmittedEvent=[[execute("w0!0", "0")], [execute("w0!1", "1"), kill, both], *rest])
    code, words = bench(component, workload=DELAYS)
    assert code == 0, words
    assert [event["job_ids"] for event in component.told("JobsKilledEvent")] == [["w0!0"], ["w0!1"]]
    again = Script(JobSubmittedEvent=[[execute("w0!0", "0"), kill, kill]])
    code, words = bench(again, workload=DELAYS)
    assert code == ABORTED and "is empty" in words


def test_stopping_unknown_calls_is_only_a_warning(bench: Bench) -> None:
    stop = ("StopCallMeLaterEvent", {"call_me_later_id": "nothing"})
    code, words = bench(Script(stop, JobSubmittedEvent=[[execute("w0!1", "0")]]))
    assert code == 0 and "Cannot stop periodic call 'nothing'" in words


def test_calls_without_end_stop_when_told(bench: Bench) -> None:
    when = {"period": 500, "time_unit": "Millisecond", "mode_type": "Infinite", "mode": {}}
    call = ("CallMeLaterEvent", {"call_me_later_id": "c", "when_type": "Periodic", "when": when})
    stop = ("StopCallMeLaterEvent", {"call_me_later_id": "c"})
    component = Script(call, RequestedCallEvent=[[], [], [stop]])
    code, words = bench(component, workload=None)
    assert code == 0, words
    dates = [
        message["now"] for message in component.heard if message["events"][0]["event_type"] == "RequestedCallEvent"
    ]
    assert dates == pytest.approx([0.5, 1.0, 1.5], abs=1e-3)


def test_probe_sums_over_hosts(bench: Bench) -> None:
    wanted = probe(
        resources={"host_ids": "0-3"}, resources_aggregation_function_type="Sum", resources_aggregation_function={}
    )
    component = Script(wanted)
    code, words = bench(component, "--energy-host", platform=SLEEPY, workload=None)
    assert code == 0, words
    (data,) = component.told("ProbeDataEmittedEvent")
    assert (data["data_type"], data["metrics"], data["nb_emitted"]) == ("AggregatedProbeData", "Power", 0)
    assert data["data"]["data"] == pytest.approx(4 * 30.0 * 4.0)


def test_what_the_real_one_ignores_of_a_probe_is_ignored_with_a_warning(bench: Bench) -> None:
    accumulation = {"reset_mode_type": "NoReset", "reset_mode": {}, "temporal_normalization": True}
    component = Script(
        probe(
            data_accumulation_strategy={**accumulation, "cumulative_function": "Maximum"},
            temporal_aggregation_function_type="SlidingWindowOperation",
            temporal_aggregation_function={},
            emission_filtering_policy_type="ThresholdFilteringFunction",
            emission_filtering_policy={"threshold": 1e9},
        )
    )
    code, words = bench(component, "--energy-host", platform=SLEEPY, workload=None)
    assert code == 0 and "Probe 'p': its cumulative function, normalization" in words
    (data,) = component.told("ProbeDataEmittedEvent")
    assert data["data"]["data"] == [pytest.approx(30.0 * 4.0)]


def test_stop_leaves_unfinished_jobs_out(bench: Bench) -> None:
    component = Script(JobSubmittedEvent=[[execute("w0!0", "0")], [("ForceSimulationStopEvent", {})]])
    code, words = bench(component, workload=DELAYS)
    assert code == 0, words
    assert bench.rows() == []
    assert [item["event_type"] for item in component.heard[-1]["events"]] == ["SimulationEndsEvent"]


def test_staging_between_storages_fails_as_in_the_real_one(bench: Bench) -> None:
    work = bench.workload(
        {"s": {"type": "ParallelTaskDataStagingBetweenStoragesProfile", "nb_bytes": 5, "from": "a", "to": "b"}},
        [{"id": 1, "subtime": 0, "res": 1, "profile": "s"}],
    )
    code, words = bench(OneByOne(), workload=work)
    assert code == ABORTED
    assert "bytes_amounts must be a matrix of size host_count * host_count (2*2), but it's of size 2." in words


def test_an_empty_homogeneous_task_fails_and_an_empty_explicit_one_takes_no_time(bench: Bench) -> None:
    empty = {"type": "ParallelTaskHomogeneousProfile", "cpu": 0, "com": 0}
    code, words = bench(
        OneByOne(), workload=bench.workload({"e": empty}, [{"id": 1, "subtime": 0, "res": 1, "profile": "e"}])
    )
    assert code == ABORTED and "no flops_amount defined" in words
    zero = {"type": "ParallelTaskProfile", "cpu": [0, 0], "com": [0, 0, 0, 0]}
    code, words = bench(
        OneByOne(), workload=bench.workload({"z": zero}, [{"id": 1, "subtime": 0, "res": 2, "profile": "z"}])
    )
    assert code == 0, words
    assert [row["execution_time"] for row in bench.rows()] == ["0.000010"]


def test_external_events_are_told_with_a_stale_date(bench: Bench) -> None:
    file = bench.folder / "events.txt"
    file.write_text('{"type":"generic","timestamp":20,"data":"b"}\n\n{"type":"generic","timestamp":10,"data":"a"}\n')
    component = Script()
    code, words = bench(component, "--ee", str(file), workload=None)
    assert code == 0, words
    told = component.told("ExternalEventOccurredEvent")
    assert [(event["id"], event["external_event"]["data"]) for event in told] == [("ee0!1", "a"), ("ee0!0", "b")]
    first = next(m for m in component.heard if m["events"][0]["event_type"] == "ExternalEventOccurredEvent")
    assert first["now"] == pytest.approx(10.0, abs=1e-3) and first["events"][0]["timestamp"] < 1.0
    assert len(component.told("AllStaticExternalEventsHaveBeenInjectedEvent")) == 1
    begins = component.told("SimulationBeginsEvent")[0]
    assert begins["external_event_lists"] == [{"name": "ee0", "filename": str(file)}]


@pytest.mark.parametrize(
    ("code", "state"),
    [(-1, "COMPLETED_WALLTIME_REACHED"), (-2, "COMPLETED_KILLED"), (-3, None), (7, "COMPLETED_FAILED")],
)
def test_return_codes_below_zero_are_taken_for_batsims_own(code: int, state: str | None, bench: Bench) -> None:
    work = bench.workload(
        {"f": {"type": "DelayProfile", "delay": 5, "ret": code}}, [{"id": 1, "subtime": 0, "res": 1, "profile": "f"}]
    )
    found, words = bench(OneByOne(), workload=work)
    if state is None:
        assert found == ABORTED and "return code -3" in words
    else:
        assert found == 0, words
        assert [row["final_state"] for row in bench.rows()] == [state]


def test_a_storage_must_be_placed_or_named(bench: Bench) -> None:
    io = {"type": "ParallelTaskOnStorageHomogeneousProfile", "bytes_to_read": 100.0, "storage": "pfs"}
    work = bench.workload({"io": io}, [{"id": 1, "subtime": 0, "res": 1, "profile": "io"}])

    def placed(storage: list[dict[str, Any]]) -> tuple[int, str]:
        order, fields = execute("w0!1", "0")
        orders: list[Order] = [(order, {**fields, "storage_placement": storage})]
        return bench(Script(JobSubmittedEvent=[orders]), "-r", "Jupiter", "storage", workload=work)

    assert placed([{"storage_name": "pfs", "host_id": 3}])[0] == 0
    code, words = placed([])
    assert code == ABORTED and "storage 'pfs' has no placement" in words
    code, words = placed([{"storage_name": "pfs", "host_id": 1}])
    assert code == ABORTED and "does not have the storage role" in words


def test_a_sequence_may_run_profiles_of_an_earlier_workload(bench: Bench) -> None:
    sequence = {"type": "SequentialCompositionProfile", "seq": ["w0!delay10", "own"]}
    profiles = {"s": sequence, "own": {"type": "DelayProfile", "delay": 2}}
    second = bench.workload(profiles, [{"id": 1, "subtime": 0, "res": 1, "profile": "s"}])
    assert bench(OneByOne(), "-w", ONE, second, workload=None)[0] == 0
    times = {row["profile"]: row["execution_time"] for row in bench.rows()}
    assert times == {"w0!delay10": "10.000000", "w1!s": "12.000000"}
    with pytest.raises(InputError, match="unknown profile; found 'delay10'"):
        bench(OneByOne(), workload=second)


def test_ranks_of_a_usage_trace_need_hosts_of_their_own(bench: Bench) -> None:
    (bench.folder / "a").write_text("0 m_usage 1 1e6\n")
    (bench.folder / "list").write_text("a\na\n")
    replay = {"type": "TraceReplayProfile", "trace_type": "FractionalComputation", "filename": "list"}
    work = bench.workload({"t": replay}, [{"id": 1, "subtime": 0, "res": 2, "profile": "t"}])
    assert bench(Script(JobSubmittedEvent=[[execute("w0!1", "0-1")]]), workload=work)[0] == 0
    code, words = bench(Script(JobSubmittedEvent=[[execute("w0!1", "0")]]), workload=work)
    assert code == ABORTED and "2 ranks on 1 hosts" in words


def test_sleep_states_must_exist(bench: Bench) -> None:
    text = Path(SLEEPY).read_text()
    assert "1:2:3" in text
    platform = bench.folder / "p.xml"
    platform.write_text(text.replace("1:2:3", "1:2:4"))
    with pytest.raises(InputError, match="there are 4 pstates"):
        bench(Script(), platform=str(platform), workload=None)


def test_failed_and_timed_out_jobs(bench: Bench) -> None:
    work = bench.workload(
        {"f": {"type": "DelayProfile", "delay": 5, "ret": 3}, "d": {"type": "DelayProfile", "delay": 5}},
        [
            {"id": 1, "subtime": 0, "res": 1, "profile": "f"},
            {"id": 2, "subtime": 0, "res": 1, "profile": "d", "walltime": 5},
        ],
    )
    component = OneByOne()
    assert bench(component, workload=work)[0] == 0
    assert [(row["final_state"], row["success"]) for row in bench.rows()] == [
        ("COMPLETED_FAILED", "0"),
        ("COMPLETED_WALLTIME_REACHED", "0"),
    ]
    codes = [
        item["event"]["return_code"]
        for message in component.heard
        for item in message["events"]
        if item["event_type"] == "JobCompletedEvent"
    ]
    assert codes == [3, 2**32 - 1]


def refused(*extra: str, platform: str = SMALL) -> str:
    arguments = ["-p", platform, "-s", "inproc://x", "", *extra]
    with pytest.raises(InputError) as found:
        options = parse(arguments)
        Batsim5Inputs(options, arguments).server(Batsim5Outputs(options.export, energy=options.energy_host))
    return str(found.value)


@pytest.mark.parametrize("extra", [("--sg-cfg", "network/nonsense:1"), ("--sg-cfg", "tracing"), ("--sg-log", "root")])
def test_settings_that_simgrid_does_not_know_are_refused(extra: tuple[str, str]) -> None:
    assert refused(*extra).startswith(extra[0])


LONELY = """<?xml version='1.0'?><!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd"><platform version="4.1">
<zone id="z" routing="Full"><host id="master_host" speed="1Gf"/>{host}</zone></platform>"""


def test_settings_of_simgrid_have_an_effect(tmp_path: Path) -> None:
    (tmp_path / "p.xml").write_text(LONELY.format(host="<host id='a' speed='1Gf'/>"))
    for setting, latency_s in (((), 0.0), (("--sg-cfg", "network/loopback-lat:0.5"), 0.5)):
        arguments = ["-p", str(tmp_path / "p.xml"), "-s", "inproc://x", "", *setting]
        assert Batsim5Inputs(parse(arguments), arguments).platform.route(0, 0).latency == latency_s


@pytest.mark.parametrize("powers", ["1:2,3:4", "1:2,3:4,5:6,7:8", "1:2,3:4,five"])
def test_powers_must_be_as_many_as_power_states(powers: str, tmp_path: Path) -> None:
    host = f"<host id='a' speed='1Gf, 2Gf, 3Gf'><prop id='wattage_per_state' value='{powers}'/></host>"
    (tmp_path / "p.xml").write_text(LONELY.format(host=host))
    found = refused("--energy-host", platform=str(tmp_path / "p.xml"))
    assert "host a: wattage_per_state" in found
    assert ("3 entries" in found) is ("five" not in found)


@pytest.mark.parametrize("line", ['{"type": "generic", "timestamp": 1}', '{"type": "magic", "timestamp": 1}'])
def test_external_events_without_data_or_of_unknown_types_are_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "events.txt").write_text(f'{{"type": "generic", "timestamp": 0, "data": ""}}\n{line}\n')
    assert refused("--ee", str(tmp_path / "events.txt")).startswith(f"{tmp_path}/events.txt:2: ")
