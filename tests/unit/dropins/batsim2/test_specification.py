"""Statements of the specification of Batsim 2's protocol, in conversations with `batsim2` and with `simulate` in its dialect."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import pilothouse.cli.batsim2
import pilothouse.cli.simulate
from golden.batsim4_player import run
from unit.dropins.batsim4.test_run import Live

GOLDEN = Path(__file__).resolve().parents[3] / "golden/batsim2"
DYNAMIC = {"job_submission": {"from_scheduler": {"enabled": True}}}
Order = tuple[str, dict[str, Any]]


def job(name: str, profile: str = "d10", **more: Any) -> dict[str, Any]:
    return {"id": name, "subtime": 0, "res": 1, "walltime": 100, "profile": profile, **more}


class Script:
    """Gives orders at the n-th event of a kind. `W!1` is job 1 of the workload, whatever that is called."""

    def __init__(self, *, busy_s: float = 0.0, **on: list[list[Order]]) -> None:
        self.heard: list[dict[str, Any]] = []
        self._on = on
        self._busy_s = busy_s
        self._workload = "W"

    def __call__(self, message: dict[str, Any]) -> bytes:
        if not self.heard:
            self._workload = next(iter(message["events"][0]["data"]["workloads"]))
        message = json.loads(json.dumps(message).replace(f"{self._workload}!", "W!"))
        self.heard.append(message)
        now, orders = message["now"], []
        for event in message["events"]:
            for kind, data in self._on[event["type"]].pop(0) if self._on.get(event["type"]) else ():
                orders.append({"timestamp": now, "type": kind, "data": data})
        text = json.dumps({"now": now + (self._busy_s if orders else 0), "events": orders})
        return text.replace("W!", f"{self._workload}!").encode()

    def told(self, kind: str) -> list[tuple[float, dict[str, Any]]]:
        return [(round(e["timestamp"], 3), e["data"]) for m in self.heard for e in m["events"] if e["type"] == kind]


class Place:
    """Where a conversation is held."""

    def __init__(self, command: str, folder: Path) -> None:
        self.command = command
        self.folder = folder

    def __call__(
        self, script: Script, *jobs: dict[str, Any], config: dict[str, Any] | None = None, energy: bool = False
    ) -> tuple[int, str]:
        delays = {f"d{seconds}": {"type": "delay", "delay": seconds} for seconds in (2, 10)}
        work = {"nb_res": 4, "jobs": list(jobs), "profiles": delays}
        (self.folder / "w.json").write_text(json.dumps(work))
        platform = str(GOLDEN / f"batsim2-platform-{'energy' if energy else 'plain'}.xml")
        arguments = ["-p", platform, "-w", f"{self.folder}/w.json", "-e", f"{self.folder}/out"]
        if config is not None:
            (self.folder / "conf.json").write_text(json.dumps(config))
        endpoint = f"ipc://{self.folder}/s"
        if self.command == "batsim2":
            arguments += ["-s", endpoint, "--decider-timeout", "20", *(["-E"] if energy else [])]
            arguments += ["--config-file", f"{self.folder}/conf.json"] if config is not None else []
        else:
            more = "" if config is None else f"&config={self.folder}/conf.json"
            arguments += ["--by", f"batsim:{endpoint}?dialect=2{more}", *(["--energy"] if energy else [])]
        player = Live(endpoint, script)
        try:
            tool = pilothouse.cli.batsim2 if self.command == "batsim2" else pilothouse.cli.simulate
            return run(arguments, tool.command)
        finally:
            player.close()

    def rows(self) -> dict[str, dict[str, str]]:
        found = csv.DictReader(next(self.folder.glob("out*jobs.csv")).open())
        return {row["job_id"].rpartition("!")[2]: row for row in found}


@pytest.fixture(params=["batsim2", "simulate"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def start(name: str = "W!1", alloc: str = "0", **more: Any) -> Order:
    return "EXECUTE_JOB", {"job_id": name, "alloc": alloc, **more}


def submit(name: str, **more: Any) -> Order:
    description = {"id": name, "subtime": 0, "res": 1, "walltime": 20, "profile": "d2"}
    return "SUBMIT_JOB", {"job_id": name, "job": description, **more}


FINISHED: Order = ("NOTIFY", {"type": "submission_finished"})


def test_a_run_from_its_beginning_to_its_end(place: Place) -> None:
    script = Script(JOB_SUBMITTED=[[start()]])
    code, words = place(script, job("1"))
    assert code == 0, words
    kinds = [event["type"] for message in script.heard for event in message["events"]]
    assert kinds == ["SIMULATION_BEGINS", "JOB_SUBMITTED", "JOB_COMPLETED", "SIMULATION_ENDS"]
    (_, ended), = script.told("JOB_COMPLETED")
    assert ended == {"job_id": "W!1", "job_state": "COMPLETED_SUCCESSFULLY", "return_code": 0, "kill_reason": "", "alloc": "0"}
    for message in script.heard:
        dates = [event["timestamp"] for event in message["events"]]
        assert dates == sorted(dates) and dates[-1] <= message["now"]


def test_the_configuration_is_passed_on_with_what_is_added_to_it(place: Place) -> None:
    script = Script(JOB_SUBMITTED=[[start()]])
    code, words = place(script, job("1"), config={"mine": {"x": [1, "two"]}})
    assert code == 0, words
    (_, begins), = script.told("SIMULATION_BEGINS")
    assert begins["config"]["mine"] == {"x": [1, "two"]}
    assert begins["config"]["job_submission"]["from_scheduler"] == {"enabled": False, "acknowledge": True}
    assert (begins["nb_resources"], begins["allow_time_sharing"]) == (4, False)
    assert [(one["id"], one["name"], one["state"], one["properties"]) for one in begins["resources_data"]] == [
        (i, f"h{i}", "idle", {}) for i in range(4)
    ]
    assert [Path(path).is_absolute() for path in begins["workloads"].values()] == [True]


def test_properties_are_those_of_the_platform(place: Place) -> None:
    script = Script(JOB_SUBMITTED=[[start()]])
    place(script, job("1"), energy=True)
    (_, begins), = script.told("SIMULATION_BEGINS")
    found = begins["resources_data"][2]["properties"]
    assert found["rack"] == "r1" and found.keys() <= {"rack", "watt_per_state", "watt_off", "sleep_pstates"}


@pytest.mark.parametrize("forward", [True, False])
def test_profiles_are_forwarded_or_not(place: Place, forward: bool) -> None:
    script = Script(JOB_SUBMITTED=[[start()]])
    place(script, job("1"), config={"job_submission": {"forward_profiles": forward}})
    (_, submitted), = script.told("JOB_SUBMITTED")
    assert submitted.get("profile") == ({"type": "delay", "delay": 10} if forward else None)
    assert submitted["job"] == {**job("1"), "id": "W!1"}


def test_a_scheduler_is_busy_until_its_now(place: Place) -> None:
    """It answers the first submission with `now` 30: all that happens meanwhile is told then, in one message."""
    script = Script(JOB_SUBMITTED=[[start()]], busy_s=30.0)
    code, words = place(script, job("1", "d2"), job("2", subtime=5), job("3", subtime=7))
    assert code != 0, words  # two jobs never start
    later = script.heard[2]
    assert later["now"] == pytest.approx(30) and [event["type"] for event in later["events"]] == [
        "JOB_COMPLETED", "JOB_SUBMITTED", "JOB_SUBMITTED",
    ]  # fmt: skip


def test_ends_of_every_kind_are_told(place: Place) -> None:
    kill: Order = ("KILL_JOB", {"job_ids": ["W!3"]})
    script = Script(JOB_SUBMITTED=[[start("W!1", "0")], [start("W!2", "1")], [start("W!3", "2")]], JOB_COMPLETED=[[kill]])
    code, words = place(script, job("1", walltime=5), job("2", "d2", walltime=2), job("3"))
    assert code == 0, words
    ended = {data["job_id"]: data for _, data in script.told("JOB_COMPLETED")}
    assert ended["W!1"]["job_state"] == "COMPLETED_WALLTIME_REACHED"
    if place.command == "batsim2":
        assert ended["W!2"]["job_state"] == "COMPLETED_WALLTIME_REACHED", "its walltime is its duration"
    assert ended["W!3"]["job_state"] == "COMPLETED_KILLED" and ended["W!3"]["kill_reason"]
    assert ended["W!3"]["return_code"] != 0


def test_calls_come_at_their_dates(place: Place) -> None:
    call: Order = ("CALL_ME_LATER", {"timestamp": 3.25})
    script = Script(JOB_SUBMITTED=[[start(), call]])
    code, words = place(script, job("1"))
    assert code == 0, words
    assert script.told("REQUESTED_CALL") == [(3.25, {})]


def test_kills_of_running_and_ended_jobs_are_acknowledged_once(place: Place) -> None:
    both: Order = ("KILL_JOB", {"job_ids": ["W!1", "W!2"]})
    script = Script(JOB_SUBMITTED=[[start("W!1", "0")], [start("W!2", "1")]], JOB_COMPLETED=[[both]])
    code, words = place(script, job("1", "d2"), job("2"))
    assert code == 0, words
    (when, killed), = script.told("JOB_KILLED")
    assert (round(when, 2), killed["job_ids"]) == (2.0, ["W!1", "W!2"])
    assert killed["job_progress"].keys() == {"W!2"}
    progress = killed["job_progress"]["W!2"]
    assert (progress["profile"], round(progress["progress"], 3)) == ("d10", 0.2)
    kinds = [event["type"] for message in script.heard for event in message["events"]]
    assert kinds.index("JOB_KILLED") > max(i for i, kind in enumerate(kinds) if kind == "JOB_COMPLETED")


def test_a_job_may_be_rejected(place: Place) -> None:
    script = Script(JOB_SUBMITTED=[[("REJECT_JOB", {"job_id": "W!1"})]])
    code, words = place(script, job("1"))
    assert code == 0, words
    assert ("1" in place.rows()) is (place.command == "simulate"), "no row in batsim2"


def test_the_energy_is_answered_in_joules(place: Place) -> None:
    query: Order = ("QUERY", {"requests": {"consumed_energy": {}}})
    script = Script(JOB_SUBMITTED=[[start("W!1", "0")], [start("W!2", "1")]], JOB_COMPLETED=[[query]])
    code, words = place(script, job("1"), job("2", walltime=20, profile="d10", subtime=5), energy=True)
    assert code == 0, words
    (_, answer), = script.told("ANSWER")
    assert answer["consumed_energy"] > 4 * 10 * 30 - 1


def test_the_energy_is_known_only_where_it_is_simulated(place: Place) -> None:
    query: Order = ("QUERY", {"requests": {"consumed_energy": {}}})
    script = Script(JOB_SUBMITTED=[[start("W!1", "0"), query]])
    code, words = place(script, job("1"))
    if place.command == "batsim2":
        assert code == 0 and script.told("ANSWER")[0][1] == {"consumed_energy": -1}
    else:
        assert code != 0 and "energy is not simulated" in words


def test_the_question_for_energy_has_no_argument(place: Place) -> None:
    query: Order = ("QUERY", {"requests": {"consumed_energy": {"from": 3}}})
    code, words = place(Script(JOB_SUBMITTED=[[start("W!1", "0"), query]]), job("1"), energy=True)
    assert code != 0 and "consumed_energy" in words


def test_submissions_must_be_enabled(place: Place) -> None:
    profile = {"workload_name": "W", "profile_name": "p", "profile": {"type": "delay", "delay": 1}}
    for order in (submit("dyn!1"), ("SUBMIT_PROFILE", profile)):
        code, words = place(Script(JOB_SUBMITTED=[[order]]), job("1"))
        assert code != 0 and "registration" in words


@pytest.mark.parametrize("acknowledge", [None, True, False])
def test_submissions_are_acknowledged_by_default(place: Place, acknowledge: bool | None) -> None:
    inside: dict[str, Any] = {"enabled": True} if acknowledge is None else {"enabled": True, "acknowledge": acknowledge}
    delay = {"type": "delay", "delay": 3}
    orders = [start(), submit("dyn!9", profile=delay), FINISHED]
    script = Script(JOB_SUBMITTED=[[*orders, *([start("dyn!9", "1")] if acknowledge is False else [])], [start("dyn!9", "1")]])
    code, words = place(script, job("1"), config={"job_submission": {"from_scheduler": inside}})
    assert code == 0, words
    submitted = [data["job_id"] for _, data in script.told("JOB_SUBMITTED")]
    assert submitted == (["W!1"] if acknowledge is False else ["W!1", "dyn!9"])
    assert float(place.rows()["9"]["execution_time"]) == pytest.approx(3.0)


def test_the_workload_is_added_to_the_id_of_an_acknowledged_job(place: Place) -> None:
    order = submit("dyn!9", profile={"type": "delay", "delay": 3})
    order[1]["job"]["id"] = "9"
    script = Script(JOB_SUBMITTED=[[start(), order, FINISHED], [start("dyn!9", "1")]])
    code, words = place(script, job("1"), config=DYNAMIC)
    assert code == 0, words
    assert script.told("JOB_SUBMITTED")[1][1]["job"]["id"] == "dyn!9"


def test_an_id_is_submitted_once(place: Place) -> None:
    order = submit("dyn!9", profile={"type": "delay", "delay": 3})
    code, words = place(Script(JOB_SUBMITTED=[[start(), order, order]]), job("1"), config=DYNAMIC)
    assert code != 0 and "there already was a job" in words


def test_profiles_are_submitted_before_their_jobs(place: Place) -> None:
    profile: Order = ("SUBMIT_PROFILE", {"workload_name": "dyn", "profile_name": "d2", "profile": {"type": "delay", "delay": 7}})
    script = Script(JOB_SUBMITTED=[[start(), profile, submit("dyn!9"), FINISHED], [start("dyn!9", "1")]])
    code, words = place(script, job("1"), config=DYNAMIC)
    assert code == 0, words
    assert float(place.rows()["9"]["execution_time"]) == pytest.approx(7.0)


def test_the_end_of_submissions_must_be_told_and_can_be_taken_back(place: Place) -> None:
    code, _ = place(Script(JOB_SUBMITTED=[[start()]]), job("1"), config=DYNAMIC)
    assert code != 0
    again: Order = ("NOTIFY", {"type": "continue_submission"})
    dynamic = submit("dyn!9", profile={"type": "delay", "delay": 3})
    script = Script(JOB_SUBMITTED=[[start(), FINISHED, again], [start("dyn!9", "1")]], JOB_COMPLETED=[[dynamic, FINISHED]])
    code, words = place(script, job("1"), config=DYNAMIC)
    assert code == 0, words
    assert place.rows().keys() == {"1", "9"}


def test_a_call_keeps_the_run_alive_until_the_next_submission(place: Place) -> None:
    call: Order = ("CALL_ME_LATER", {"timestamp": 50})
    dynamic = submit("dyn!9", profile={"type": "delay", "delay": 3})
    script = Script(JOB_SUBMITTED=[[start(), call], [start("dyn!9", "1")]], REQUESTED_CALL=[[dynamic, FINISHED]])
    code, words = place(script, job("1"), config=DYNAMIC)
    assert code == 0, words
    assert float(place.rows()["9"]["starting_time"]) == pytest.approx(50.0, abs=0.01)


def test_machines_change_their_state_with_one_acknowledgement(place: Place) -> None:
    """h0 needs 2 s to sleep, h1 4 s."""
    sleep: Order = ("SET_RESOURCE_STATE", {"resources": "0-1", "state": "2"})
    script = Script(JOB_SUBMITTED=[[start("W!1", "3"), sleep]])
    code, words = place(script, job("1"), energy=True)
    assert code == 0, words
    (when, changed), = script.told("RESOURCE_STATE_CHANGED")
    assert when == pytest.approx(4.0, abs=0.1) and changed == {"resources": "0-1", "state": "2"}


def test_metadata_is_a_column_of_the_jobs(place: Place) -> None:
    note: Order = ("SET_JOB_METADATA", {"job_id": "W!1", "metadata": "scheduler-defined string"})
    script = Script(JOB_SUBMITTED=[[start("W!1", "0"), note], [start("W!2", "1")]])
    code, words = place(script, job("1"), job("2"))
    assert code == 0, words
    assert {name: row["metadata"] for name, row in place.rows().items()} == {"1": "scheduler-defined string", "2": ""}


def test_the_state_of_a_job_is_changed(place: Place) -> None:
    change: list[Order] = [
        ("CHANGE_JOB_STATE", {"job_id": "W!2", "job_state": "RUNNING", "kill_reason": ""}),
        ("CHANGE_JOB_STATE", {"job_id": "W!2", "job_state": "COMPLETED_KILLED", "kill_reason": "Sub-jobs were killed."}),
    ]
    script = Script(JOB_SUBMITTED=[[start("W!1", "0")], [change[0]]], JOB_COMPLETED=[[change[1]]])
    code, words = place(script, job("1"), job("2"))
    assert code == 0, words
    row = place.rows()["2"]
    assert row["success"] == "0" and float(row["finish_time"]) == pytest.approx(10.0, abs=0.01)


def test_executors_are_mapped_as_asked_for(place: Place) -> None:
    """The mapping is only for SMPI by the text; parallel jobs of Batsim 2.0.0 take one too."""
    script = Script(JOB_SUBMITTED=[[start("W!1", "2-3", mapping={"0": "0", "1": "0", "2": "1", "3": "1"})]])
    code, words = place(script, job("1", res=4))
    assert code == 0, words
    assert "2-3" in place.rows()["1"].values()


def test_decisions_take_effect_at_now_at_the_earliest(place: Place) -> None:
    class Early(Script):
        def __call__(self, message: dict[str, Any]) -> bytes:
            answer = json.loads(super().__call__(message))
            for event in answer["events"]:
                event["timestamp"] -= 3
            return json.dumps(answer).encode()

    code, words = place(Early(JOB_SUBMITTED=[[start()]]), job("1", subtime=5))
    assert code == 0, words
    assert float(place.rows()["1"]["starting_time"]) == pytest.approx(5.0, abs=0.01)
