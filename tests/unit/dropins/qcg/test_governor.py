"""A governor over virtual managers: how jobs are shared out, waited for, asked about and ended."""

from __future__ import annotations

import msgspec
import pytest

from pilothouse.dropins.qcg.governor import Member
from pilothouse.model.lifecycle import JobState
from unit.dropins.qcg.fleet import Fleet, job


def test_resources_add_up_and_single_jobs_are_shared_out() -> None:
    fleet = Fleet(4, 2)
    assert fleet.ask({"request": "resourcesInfo"})["data"] == {
        "total_nodes": 2, "total_cores": 6, "used_cores": 0, "free_cores": 6,
    }  # fmt: skip
    answer = fleet.submit(*(job(f"j{number}") for number in range(4)))
    assert answer["data"] == {"submitted": 4, "jobs": ["j0", "j1", "j2", "j3"]}
    assert [len(pilot.manager.queue.registry.entries) for pilot in fleet.pilots.values()] == [2, 2]
    assert fleet.state("j0") == "QUEUED"
    fleet.run()
    assert {name: item["status"] for name, item in fleet.ask({"request": "listJobs"})["data"]["jobs"].items()} == {
        f"j{number}": "SUCCEED" for number in range(4)
    }
    assert [topic for topic, _ in fleet.governor.publications].count("JFI") == 4
    assert fleet.governor.publications[-1][0] == "NOJ"
    status = fleet.ask({"request": "status"})["data"]
    assert status["JobStats"]["FinishedJobs"] == 4 and status["Resources"]["TotalCores"] == 6


def test_a_loop_is_cut_into_ranges_and_told_of_as_one() -> None:
    fleet = Fleet(2, 2, 2)
    fleet.submit(job("loop", iteration={"start": 2, "stop": 12}))
    assert fleet.held("loop") == {"m0": (2, 6), "m1": (6, 10), "m2": (10, 12)}
    fleet.run()
    info = fleet.about("jobInfo", "loop", withChilds=True)
    assert info["iterations"] == {"start": 2, "stop": 12, "total": 10, "finished": 10, "failed": 0}
    assert [child["iteration"] for child in info["childs"]] == list(range(2, 12))
    assert info["status"] == "SUCCEED" and fleet.about("jobStatus", "loop:7")["status"] == "SUCCEED"


def test_loops_over_words_stay_together_and_large_jobs_go_where_they_fit() -> None:
    fleet = Fleet(2, 4)
    fleet.submit(job("words", iteration={"values": ["a", "b"]}), job("wide", 3, iteration={"stop": 4}))
    assert len(fleet.held("words")) == 1
    assert fleet.held("wide") == {"m1": (0, 4)}
    assert fleet.submit(job("huge", 5)) == {"code": 1, "message": "Not enough resources for job huge"}


def test_jobs_wait_here_for_jobs_that_run_elsewhere() -> None:
    fleet = Fleet(1, 1)
    fleet.submit(
        job("first", iteration={"stop": 4}),
        job("second", dependencies={"after": ["first"]}),
        job("third", dependencies={"after": ["nobody"]}),
        job("fourth", dependencies={"after": ["third"]}),
    )
    assert not fleet.held("second")
    assert fleet.state("third") == fleet.state("fourth") == "OMITTED"
    fleet.run()
    assert fleet.state("second") == "SUCCEED" and len(fleet.held("second")) == 1


def test_iterations_that_wait_for_iterations_go_where_those_are() -> None:
    fleet = Fleet(1, 1)
    fleet.submit(
        job("a", iteration={"stop": 4}),
        job("b", iteration={"stop": 4}, dependencies={"after": ["a:${it}"]}),
        job("c", iteration={"stop": 6}, dependencies={"after": ["a:${it}"]}),
    )
    assert fleet.held("b") == fleet.held("a") == {"m0": (0, 2), "m1": (2, 4)}
    assert fleet.state("c") == "FAILED"
    assert "waits for iterations" in fleet.about("jobInfo", "c")["messages"]
    fleet.run()
    assert fleet.state("b") == "SUCCEED"


def test_jobs_are_kept_until_all_managers_are_there() -> None:
    fleet = Fleet(partitions=("m0", "m1"))
    assert fleet.submit(job("early", iteration={"stop": 2}), job("huge", 9))["code"] == 0
    fleet.join(1)
    assert not fleet.held("early")
    assert fleet.join(1)["data"] == {"id": "m1"}
    assert fleet.held("early") == {"m0": (0, 1), "m1": (1, 2)}
    assert fleet.state("huge") == "FAILED"


def test_partitions_get_their_shares_in_their_own_order() -> None:
    fleet = Fleet(partitions=("m1", "m2", "m0"))
    for _ in range(3):
        fleet.join(1)  # m0, m1, m2
    fleet.join(1)  # m3, which somebody else started
    fleet.submit(job("loop", iteration={"stop": 4}), job("single"))
    assert fleet.held("loop") == {"m1": (0, 1), "m2": (1, 2), "m0": (2, 3), "m3": (3, 4)}
    assert list(fleet.held("single")) == ["m1"]


def test_others_do_not_stand_in_for_a_partition() -> None:
    fleet = Fleet(partitions=("m1",))
    fleet.submit(job("a"))
    fleet.join(1)
    assert not fleet.held("a")
    fleet.join(1)
    assert list(fleet.held("a")) == ["m1"]


def test_cancelling_and_removing() -> None:
    fleet = Fleet(1, 1)
    fleet.submit(job("a", iteration={"stop": 4}), job("b", dependencies={"after": ["a"]}), job("c"))
    assert fleet.about("removeJob", "a") == {"removed": 0, "errors": {"a": "Job 'a' not finished - can not be removed"}}
    assert fleet.about("cancelJob", "b") == {"canceled": 1}
    assert fleet.state("b") == "CANCELED"
    assert fleet.about("cancelJob", "a:3") == {"canceled": 1}
    assert fleet.about("cancelJob", "c") == {"canceled": 1}
    fleet.run()
    assert fleet.state("a") == "FAILED" and fleet.state("c") == "CANCELED"
    assert "already finished" in fleet.about("cancelJob", "a")["errors"]["a"]
    assert fleet.about("removeJob", "a") == {"removed": 1}
    assert not fleet.held("a") and fleet.submit(job("a"))["code"] == 0


def test_a_manager_that_is_gone_takes_its_jobs_along() -> None:
    fleet = Fleet(1, 1)
    fleet.submit(job("a", iteration={"stop": 2}), job("b", dependencies={"after": ["a"]}))
    fleet.silent.add("m0")
    assert fleet.ask({"request": "resourcesInfo"})["data"]["total_cores"] == 2, "it counts with what it registered"
    fleet.lose("m0")
    del fleet.pilots["m0"]
    fleet.run()
    assert fleet.state("a") == "FAILED" and fleet.state("b") == "OMITTED"
    assert "m0 is gone" in fleet.ask({"request": "listJobs"})["data"]["jobs"]["a"]["messages"]


def test_managers_that_never_come_are_not_waited_for() -> None:
    fleet = Fleet(partitions=("m9", "m0"))
    fleet.submit(job("a"))
    fleet.lose("m9")
    assert fleet.state("a") == "QUEUED"
    fleet.join(1)
    assert fleet.held("a")
    fleet = Fleet(partitions=("m9",))
    fleet.submit(job("a"), job("b", dependencies={"after": ["a"]}))
    fleet.lose("m9")
    assert fleet.state("a") == fleet.state("b") == "FAILED"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"request": "jobStatus", "jobNames": ["x"]}, "Job 'x' doesn't exist"),
        ({"request": "jobStatus", "jobName": "a"}, "Wrong job status request - missing job names"),
        ({"request": "submit", "jobs": [job("a")]}, "Job a already exist"),
        ({"request": "submit", "jobs": [job("s", iterate=[0, 2])]}, "unexpected keyword argument 'iterate'"),
        (
            {"request": "notify", "entity": "job", "params": {"name": "a", "state": "SUCCEED", "attributes": {}}},
            "Unknown",
        ),
        (
            {
                "request": "notify",
                "entity": "job",
                "params": {
                    "name": "q",
                    "state": "DONE",
                    "attributes": {"parent_job_id": "a", "parent_job_part_id": "0"},
                },
            },
            "state DONE unknown",
        ),
        (
            {"request": "register", "entity": "manager", "params": {"id": "m0", "address": "x", "resources": {}}},
            "already registered",
        ),
        (
            {"request": "register", "entity": "manager", "params": {"id": "z", "address": "x", "resources": {}}},
            "Failed to register",
        ),
    ],
)
def test_refusals(request_: object, message: str) -> None:
    fleet = Fleet(1)
    fleet.submit(job("a"))
    answer = fleet.ask(request_)
    assert answer["code"] == 1 and message in answer["message"]


def test_finishing() -> None:
    fleet = Fleet(1)
    assert fleet.ask({"request": "finish"})["data"] == {"when": "2s"}
    assert fleet.governor.stop_at == 2.0
    assert fleet.ask({"request": "control", "command": "finishAfterAllTasksDone"})["code"] == 1
    fleet = Fleet(1)
    assert fleet.ask({"request": "control", "command": "finishAfterAllTasksDone"})["code"] == 0
    assert fleet.governor.finish_when_done and fleet.ask({"request": "finish"})["code"] == 1


def test_a_cancellation_fails_where_no_manager_obeys() -> None:
    fleet = Fleet(1, 1)
    fleet.submit(job("a", iteration={"stop": 4}), job("b", iteration={"stop": 4}))
    assert len(fleet.held("a")) == 2
    fleet.silent.add("m0")
    assert fleet.about("cancelJob", "a") == {"canceled": 1}, "one of them does"
    fleet.silent.add("m1")
    assert fleet.about("cancelJob", "b") == {"canceled": 0, "errors": {"b": "no answer"}}


def test_a_silent_manager_counts_with_what_it_had_free_when_it_registered() -> None:
    fleet = Fleet()
    nodes = [
        {"name": "x", "total_cores": 4, "free_cores": [1, 2, 3]}, {"name": "y", "total_cores": 2, "free_cores": [0]},
    ]  # fmt: skip
    params = {"id": "late", "address": "tcp://late", "resources": {"nodes": nodes}}
    assert fleet.ask({"request": "register", "entity": "manager", "params": params})["code"] == 0
    assert [(node.name, node.first, node.count) for node in fleet.governor.members["late"].nodes] == [("x", 0, 4), ("y", 4, 2)]
    fleet.silent.add("late")
    assert fleet.ask({"request": "resourcesInfo"})["data"] == {
        "total_nodes": 2, "total_cores": 6, "used_cores": 2, "free_cores": 4,
    }  # fmt: skip


def test_iterations_of_a_manager_that_is_gone_are_not_waited_for() -> None:
    fleet = Fleet(1, 1)
    fleet.submit(job("a", iteration={"stop": 4}))
    fleet.lose("m0")
    fleet.submit(job("b", iteration={"stop": 4}, dependencies={"after": ["a:${it}"]}))
    assert fleet.state("b") == "FAILED"
    assert fleet.about("jobInfo", "b")["messages"] == "Job b waits for iterations of manager m0, which is gone"


@pytest.mark.parametrize("after", [["a:1", "nobody:1"], ["nobody:1", "a:1"]])
def test_a_job_that_waits_for_iterations_of_an_unknown_job_goes_where_the_others_are(after: list[str]) -> None:
    fleet = Fleet(1, 4)
    fleet.submit(job("a", 2, iteration={"stop": 4}), job("b", dependencies={"after": after}))
    assert fleet.held("b") == {"m1": None}
    fleet.run()
    assert fleet.state("a") == "SUCCEED" and fleet.state("b") == "OMITTED"


def test_a_lost_manager_fails_the_parts_that_had_not_ended_and_says_so() -> None:
    fleet = Fleet(1, 1)
    fleet.submit(job("both", iteration={"stop": 2}), job("first"), job("second"), job("later", dependencies={"after": ["both"]}))
    assert list(fleet.held("first")) == ["m0"]
    fleet.lose("m0")
    jobs = fleet.ask({"request": "listJobs"})["data"]["jobs"]
    assert {name: (each["status"], each.get("messages")) for name, each in jobs.items()} == {
        "both": ("QUEUED", "manager m0 is gone"), "first": ("FAILED", "manager m0 is gone"),
        "second": ("QUEUED", None), "later": ("QUEUED", None),
    }  # fmt: skip
    fleet.lose("m1")
    jobs = fleet.ask({"request": "listJobs"})["data"]["jobs"]
    assert {name: (each["status"], each.get("messages")) for name, each in jobs.items()} == {
        "both": ("FAILED", "manager m0 is gone\nmanager m1 is gone"), "first": ("FAILED", "manager m0 is gone"),
        "second": ("FAILED", "manager m1 is gone"), "later": ("FAILED", "no manager is left"),
    }  # fmt: skip
    assert fleet.governor.publications[-1] == ("NOJ", {"manager": "gov"})
    assert fleet.governor.registry.unfinished == 0


def test_a_lost_manager_does_not_change_what_had_ended() -> None:
    fleet = Fleet(1)
    fleet.submit(job("a"))
    fleet.run()
    fleet.lose("m0")
    assert fleet.ask({"request": "listJobs"})["data"]["jobs"] == {"a": {"status": "SUCCEED"}}


def test_a_question_that_a_manager_does_not_answer_is_answered_with_its_reason() -> None:
    fleet = Fleet(1)
    fleet.submit(job("a"))
    fleet.silent.add("m0")
    answer = fleet.ask({"request": "jobInfo", "jobNames": ["a"]})
    assert answer == {"code": 0, "data": {"jobs": {"a": {"status": 1, "message": "tcp://m0: no answer"}}}}


def test_a_governor_without_managers_has_no_resources() -> None:
    fleet = Fleet()
    none = {"total_nodes": 0, "total_cores": 0, "used_cores": 0, "free_cores": 0}
    assert fleet.governor.last_usage.shown(*none) == none
    assert fleet.ask({"request": "resourcesInfo"})["data"] == none


@pytest.mark.parametrize("address", [None, "", 7, ["tcp://x"]])
def test_a_manager_without_an_address_is_refused(address: object) -> None:
    fleet = Fleet()
    params = {"id": "z", "address": address, "resources": {"nodes": []}}
    answer = fleet.ask({"request": "register", "entity": "manager", "params": params})
    assert answer == {"code": 1, "message": "Missing registry entity address"}
    assert not fleet.governor.members


def test_a_manager_that_only_says_what_it_must_has_used_nothing() -> None:
    fleet = Fleet()
    params = {"id": "z", "address": "tcp://z", "resources": {"nodes": []}}
    assert fleet.ask({"request": "register", "entity": "manager", "params": params}) == {"code": 0, "data": {"id": "z"}}
    assert fleet.governor.members["z"] == Member("z", "tcp://z", (), used=0, jobs=0, key="")
    assert Member("z", "tcp://z", ()) == Member("z", "tcp://z", (), used=0, jobs=0, key="")


def test_ends_have_the_date_of_what_led_to_them() -> None:
    fleet = Fleet(1)
    fleet.submit(job("a"), job("b", dependencies={"after": ["a"]}))
    fleet.governor.lost("m0", 60.0)
    entries = fleet.governor.registry.entries
    assert entries["a"].status.history[-1] == (JobState.FAILED, 60.0)
    assert entries["b"].status.history[-1] == (JobState.FAILED, 60.0)
    fleet.now = 70.0
    fleet.join(1)
    request = {"request": "submit", "jobs": [job("d", dependencies={"after": ["a"]})]}
    fleet.governor.handle(msgspec.json.encode(request), 80.0)
    fleet.governor.settle(90.0)
    assert entries["d"].status.history == [(JobState.WAITING, 80.0), (JobState.OMITTED, 90.0)]


def test_jobs_are_omitted_along_a_chain_in_any_order() -> None:
    fleet = Fleet(1)
    chain = [job(name, dependencies={"after": [after]}) for name, after in (("d", "c"), ("c", "b"), ("b", "nobody"))]
    fleet.submit(*chain, job("a"))
    states = {name: entry.status.state for name, entry in fleet.governor.registry.entries.items()}
    assert states == {"d": JobState.OMITTED, "c": JobState.OMITTED, "b": JobState.OMITTED, "a": JobState.WAITING}


def test_a_job_that_was_removed_is_unknown_to_its_managers_too() -> None:
    fleet = Fleet(1)
    fleet.submit(job("a"))
    fleet.run()
    assert fleet.about("removeJob", "a") == {"removed": 1}
    attributes = {"parent_job_id": "a", "parent_job_part_id": "0"}
    report = {"request": "notify", "entity": "job", "params": {"name": "a", "state": "FAILED", "attributes": attributes}}
    assert fleet.ask(report) == {"code": 1, "message": "Job a unknown"}
    assert fleet.ask({"request": "jobStatus", "jobNames": ["a"]}) == {"code": 1, "message": "Job 'a' doesn't exist"}
    assert not fleet.held("a")


@pytest.mark.parametrize("resources", [None, 7, [], "nodes"])
def test_a_manager_without_nodes_is_refused(resources: object) -> None:
    params = {"id": "z", "address": "tcp://z", "resources": resources}
    answer = Fleet().ask({"request": "register", "entity": "manager", "params": params})
    assert answer["code"] == 1 and "resources must be a dictionary" in answer["message"]
