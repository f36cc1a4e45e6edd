"""The manager on a virtual allocation: requests and answers of both dialects, queue rules, dependencies, cancelling."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from virtual import VirtualPilot

from pilothouse.dropins.qcg.files import json_report, text_report
from pilothouse.formats.qcg_dialect import LATER, SPECIFICATION
from pilothouse.model.job import Node
from pilothouse.policies.catalog import make


def job(name: str, cores: object = 1, **more: object) -> dict[str, object]:
    size = {"exact": cores} if isinstance(cores, int) else cores
    return {"name": name, "execution": {"exec": "/bin/true"}, "resources": {"numCores": size}, **more}


def submit(pilot: VirtualPilot, *jobs: object) -> dict[str, Any]:
    return pilot.ask({"request": "submit", "jobs": list(jobs)})


def specified(pilot: VirtualPilot, kind: str, name: str) -> dict[str, Any]:
    return pilot.ask({"request": kind, "jobName": name})


# ---- the specification, "Queue & Scheduler"


def test_jobs_start_in_order_of_arrival() -> None:
    pilot = VirtualPilot(2)
    submit(pilot, *(job(f"j{i}") for i in range(5)))
    pilot.run()
    assert [name for _, name, _ in pilot.starts] == ["j0", "j1", "j2", "j3", "j4"]
    assert [when - 1000 for when, _, _ in pilot.starts] == [0, 0, 1, 1, 2]


def test_a_job_gets_as_much_as_it_may_use_and_nobody_else_gets_it() -> None:
    pilot = VirtualPilot(4)
    submit(pilot, job("a", {"min": 1, "max": 3}), job("b", {"min": 1, "max": 3}), job("c", {"min": 1, "max": 8}))
    assert pilot.starts == [(1000.0, "a", "n0:3"), (1000.0, "b", "n0:1")]
    pilot.run()
    assert pilot.starts[2] == (1001.0, "c", "n0:4")


def test_a_job_that_is_too_large_fails_and_the_others_run() -> None:
    pilot = VirtualPilot(2, dialect=SPECIFICATION)
    big = {"name": "big_${it}", "iterate": [0, 1], "execution": {"exec": "x"}, "resources": {"numCores": {"exact": 3}}}
    assert submit(pilot, big, job("small"))["code"] == 0
    pilot.run()
    assert specified(pilot, "jobStatus", "big_0")["data"]["status"] == "FAILED"
    assert specified(pilot, "jobStatus", "small")["data"]["status"] == "SUCCEED"
    assert "3 units" in specified(pilot, "jobStatus", "big_0")["data"]["messages"]


def test_a_job_that_does_not_fit_stays_queued_and_the_next_is_looked_at() -> None:
    pilot = VirtualPilot(2, dialect=SPECIFICATION)
    submit(pilot, job("a"), job("wide", 2), job("b"))
    assert [name for _, name, _ in pilot.starts] == ["a", "b"]
    assert pilot.ask({"request": "jobStatus", "jobName": "wide"})["data"]["status"] == "QUEUED"
    pilot.run()
    assert pilot.starts[-1] == (1001.0, "wide", "n0:2")


def test_a_large_job_starves_under_these_rules_and_not_under_easy() -> None:
    def wide_starts(policy: str) -> int:
        pilot = VirtualPilot(2, policy=make(policy, {}), outcome=lambda name: (1.5 if name == "s0" else 1.0, 0, ""))
        submit(pilot, *(job(f"s{i}", resources={"numCores": 1, "wt": "2s"}) for i in range(2)))
        submit(pilot, job("wide", resources={"numCores": 2, "wt": "2s"}))
        for number in range(2, 12):
            submit(pilot, job(f"s{number}", resources={"numCores": 1, "wt": "2s"}))
        pilot.run()
        return [name for _, name, _ in pilot.starts].index("wide")

    assert wide_starts("qcg") == 12
    assert wide_starts("easy") == 2


def test_waiting_jobs_are_not_considered_and_hopeless_ones_are_omitted() -> None:
    pilot = VirtualPilot(4, outcome=lambda name: (1.0, 1 if name == "fails" else 0, ""))
    submit(
        pilot,
        job("fails"),
        job("good"),
        job("after_good", dependencies={"after": ["good"]}),
        job("after_both", dependencies={"after": ["good", "fails"]}),
        job("after_that", dependencies={"after": ["after_both"]}),
        job("after_nobody", dependencies={"after": ["nobody"]}),
    )
    assert [name for _, name, _ in pilot.starts] == ["fails", "good"]
    pilot.run()
    assert pilot.states() == {
        "fails": "FAILED",
        "good": "SUCCEED",
        "after_good": "SUCCEED",
        "after_both": "OMITTED",
        "after_that": "OMITTED",
        "after_nobody": "OMITTED",
    }


def test_a_released_job_keeps_its_place_in_the_queue() -> None:
    pilot = VirtualPilot(1)
    submit(pilot, job("first"), job("second", dependencies={"after": ["first"]}), job("third"), job("fourth"))
    pilot.run()
    assert [name for _, name, _ in pilot.starts] == ["first", "second", "third", "fourth"]


def test_jobs_that_wait_for_each_other_are_omitted() -> None:
    pilot = VirtualPilot(1)
    submit(pilot, job("a", dependencies={"after": ["b"]}), job("b", dependencies={"after": ["a"]}), job("c"))
    pilot.run()
    assert pilot.states() == {"a": "OMITTED", "b": "OMITTED", "c": "SUCCEED"}
    assert pilot.published[-1][0] == "NOJ"


def test_a_long_chain_of_omitted_jobs_is_no_deep_recursion() -> None:
    pilot = VirtualPilot(1, outcome=lambda name: (1.0, 1, ""))
    chain = [job("j0")] + [job(f"j{i}", dependencies={"after": [f"j{i - 1}"]}) for i in range(1, 3000)]
    submit(pilot, *chain)
    pilot.run()
    assert set(pilot.states().values()) == {"FAILED", "OMITTED"}


# ---- sizes


def test_cores_with_nodes_are_per_node() -> None:
    pilot = VirtualPilot(3, 4, 4)
    submit(pilot, job("a", resources={"numCores": {"exact": 2}, "numNodes": {"exact": 2}}))
    assert pilot.starts == [(1000.0, "a", "n0:2,n1:2")]


def test_nodes_alone_are_whole_nodes() -> None:
    pilot = VirtualPilot(2, 2, 2)
    submit(pilot, job("one"), job("two", resources={"numNodes": {"min": 1, "max": 2}}))
    assert pilot.starts == [(1000.0, "one", "n0:1"), (1000.0, "two", "n1:2,n2:2")]


@pytest.mark.parametrize(("parts", "cores"), [(2, 4), (4, 2), (3, 2)])
def test_split_into_ranges_from_min_to_a_part_of_all(parts: int, cores: int) -> None:
    pilot = VirtualPilot(4, 4, dialect=SPECIFICATION)
    submit(pilot, job("a", {"min": 2, "split-into": parts}))
    assert sum(int(part.split(":")[1]) for part in pilot.starts[0][2].split(",")) == cores


def test_schedulers_of_the_later_dialect() -> None:
    pilot = VirtualPilot(5, 5)
    scheduler = {"min": 1, "scheduler": {"name": "maximum-iters"}}
    submit(pilot, job("m", scheduler, iteration={"stop": 3}))
    assert [where for _, _, where in pilot.starts] == ["n0:3", "n0:2,n1:1", "n1:4"]
    split = {"min": 1, "scheduler": {"name": "split-into", "params": {"parts": 5}}}
    submit(pilot, job("s", split, iteration={"stop": 5}))
    pilot.run()
    assert next(where for _, name, where in pilot.starts if name.startswith("s:")) == "n0:2"
    submit(pilot, job("z", {"min": 1, "scheduler": {"name": "split-into", "params": {"parts": 99}}}))
    assert pilot.states()["z"] == "FAILED"


def test_a_range_needs_both_ends_in_the_later_dialect() -> None:
    pilot = VirtualPilot(4)
    submit(pilot, {"name": "a", "execution": {"script": "true"}, "resources": {"numCores": {"min": 1}}})
    info = pilot.ask({"request": "jobInfo", "jobNames": ["a"]})["data"]["jobs"]["a"]["data"]
    assert info["status"] == "FAILED"
    assert info["messages"] == "Both core's range boundaries (min, max) must be defined"


def test_zero_is_no_size_in_the_later_dialect() -> None:
    pilot = VirtualPilot(2, 2)
    jobs = {"none": {"numCores": 0}, "nodes": {"numCores": 0, "numNodes": 1}, "cores": {"numCores": 3, "numNodes": 0}}
    submit(pilot, *({"name": name, "execution": {"exec": "true"}, "resources": size} for name, size in jobs.items()))
    pilot.run()
    found = pilot.ask({"request": "jobInfo", "jobNames": list(jobs)})["data"]["jobs"]
    assert (found["none"]["data"]["status"], found["none"]["data"]["messages"]) == (
        "FAILED",
        "Missing node and cores specification",
    )
    assert found["nodes"]["data"]["runtime"]["allocation"] == "n0[0:1]"
    assert found["cores"]["data"]["runtime"]["allocation"] == "n0[0:1],n1[0]"


def test_parts_of_a_loop_that_cannot_be_refuse_the_request() -> None:
    pilot = VirtualPilot(4)
    split = {"name": "split-into", "params": {"parts": 9}}
    for size, problem in (
        ({"min": 1, "scheduler": split}, "Wrong submit request - split-into resolved to zero"),
        (
            {"min": 1, "max": 2, "scheduler": split},
            "Wrong submit request - split-into directive mixed with max directive",
        ),
    ):
        loop = job("a", size, iteration={"stop": 2})
        assert submit(pilot, loop) == {"code": 1, "message": problem}
    assert pilot.ask({"request": "listJobs"})["data"]["length"] == 0
    submit(pilot, job("plain", {"min": 1, "max": 2, "scheduler": split}))
    pilot.run()
    info = pilot.ask({"request": "jobInfo", "jobNames": ["plain"]})["data"]["jobs"]["plain"]["data"]
    assert (info["status"], info["runtime"]["allocation"]) == ("SUCCEED", "n0[0:1]")


def test_nodes_that_join_count_once() -> None:
    pilot = VirtualPilot(2)
    pilot.queue.joined((Node("n1", 2, 2),))
    assert pilot.ask({"request": "resourcesInfo"})["data"]["total_cores"] == 4
    pilot.queue.joined((Node("n0#2", 4, 2),))
    assert pilot.ask({"request": "resourcesInfo"})["data"] == {
        "total_nodes": 2, "total_cores": 4, "used_cores": 0, "free_cores": 4,
    }  # fmt: skip
    assert submit(pilot, job("fits", 4))["code"] == 0
    assert submit(pilot, job("large", 5)) == {"code": 1, "message": "Not enough resources for job large"}


def test_gpus_per_node() -> None:
    pilot = VirtualPilot(2, 2, gpus=1)
    gpu = {"numNodes": 1, "numCores": 1, "nodeCrs": {"gpu": 1}}
    submit(pilot, *(job(f"g{i}", resources=gpu) for i in range(3)))
    assert [where for _, _, where in pilot.starts] == ["n0:1", "n1:1"]
    submit(pilot, job("too_many", resources={"numNodes": 1, "nodeCrs": {"gpu": 2}}))
    assert pilot.states()["too_many"] == "FAILED"


# ---- answers of the specification's dialect


def test_status_of_the_specification() -> None:
    pilot = VirtualPilot(2, dialect=SPECIFICATION)
    submit(pilot, job("msleep2", 2))
    answer = specified(pilot, "jobStatus", "msleep2")
    assert answer["code"] == 0
    data = answer["data"]
    assert data["jobName"] == "msleep2" and data["status"] == "EXECUTING"
    assert data["runtime"] == {"allocation": "n0:2"}
    date = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}"
    assert re.fullmatch(rf"\n{date}: QUEUED\n{date}: EXECUTING", data["history"])


def test_lists_and_resources_of_both_dialects() -> None:
    pilot = VirtualPilot(8, dialect=SPECIFICATION)
    assert submit(pilot, job("echo"), job("msleep2", 2)) == {"code": 0, "message": "2 jobs submited"}
    assert pilot.ask({"request": "listJobs"}) == {"code": 0, "data": {"length": 2, "names": ["echo", "msleep2"]}}
    assert pilot.ask({"request": "resourcesInfo"})["data"] == {
        "totalCores": 8, "totalNodes": 1, "usedCores": 3, "freeCores": 5,
    }  # fmt: skip
    later = VirtualPilot(8)
    assert submit(later, job("echo"), job("msleep2", 2))["data"] == {"submitted": 2, "jobs": ["echo", "msleep2"]}
    assert set(later.ask({"request": "listJobs"})["data"]["jobs"]) == {"echo", "msleep2"}
    assert later.ask({"request": "resourcesInfo"})["data"]["total_cores"] == 8


def test_cancel_and_remove_by_one_name() -> None:
    pilot = VirtualPilot(1, outcome=lambda name: (60.0, 0, ""), dialect=SPECIFICATION)
    submit(pilot, job("runs"), job("waits"))
    assert "not finished" in specified(pilot, "removeJob", "runs")["message"]
    assert specified(pilot, "cancelJob", "waits")["code"] == 0
    assert specified(pilot, "jobStatus", "waits")["data"]["status"] == "CANCELED"
    assert specified(pilot, "cancelJob", "runs")["code"] == 0
    pilot.run()
    assert specified(pilot, "jobStatus", "runs")["data"]["status"] == "CANCELED"
    assert specified(pilot, "cancelJob", "nobody") == {"code": 1, "message": "Job nobody doesn't exist"}
    assert specified(pilot, "removeJob", "runs") == {"code": 0, "data": {"messages": "Job runs removed"}}
    assert submit(pilot, job("runs"))["code"] == 0, "a removed name may come again"
    pilot.run()
    assert specified(pilot, "jobStatus", "runs")["data"]["status"] == "SUCCEED"


def test_finish_in_both_dialects() -> None:
    later = VirtualPilot(1)
    later.ask({"request": "status"})
    assert later.ask({"request": "finish"}) == {"code": 0, "data": {"when": "2s"}}
    assert later.manager.stop_at == 1002.0
    assert submit(later, job("a"))["code"] == 0, "as 0.14 does until it ends"
    specification = VirtualPilot(1, dialect=SPECIFICATION)
    submit(specification, job("a"))
    assert specification.ask({"request": "finish"}) == {"code": 0, "data": {"when": "0s"}}
    assert specification.ask({"request": "finish"})["message"] == "Finish request already requested"
    late = submit(specification, job("b"))
    assert late == {"code": 1, "message": "finish was requested: no more jobs are accepted"}
    assert specification.ask({"request": "listJobs"})["data"]["names"] == ["a"]


def test_a_name_twice_in_one_request_of_the_specification() -> None:
    """It is refused; no other job of the request is lost."""
    pilot = VirtualPilot(2, dialect=SPECIFICATION)
    loop = {**job("same"), "iterate": [0, 3]}
    answer = submit(pilot, job("b"), job("b"), job("c"), loop)
    assert answer == {"code": 1, "message": "Job b already exist (the first job of each name was accepted)"}
    assert pilot.ask({"request": "listJobs"})["data"]["names"] == ["b", "c", "same"]
    assert submit(pilot, job("d"), job("c"))["message"] == "Job c already exist"
    assert pilot.ask({"request": "listJobs"})["data"]["length"] == 3, "a name of an earlier request refuses all"
    pilot.run()
    assert [name for _, name, _ in pilot.starts] == ["b", "c", "same"]


@pytest.mark.parametrize("field", ["name", "execution", "exec", "resources", "after"])
def test_what_a_description_of_the_specification_must_have(field: str) -> None:
    """The fields that its text calls required, and the only one of `dependencies`."""
    pilot = VirtualPilot(2, dialect=SPECIFICATION)
    whole: dict[str, Any] = {**job("b"), "dependencies": {"after": ["a"]}}
    assert submit(pilot, job("a"), whole)["code"] == 0
    place = {"exec": whole["execution"], "after": whole["dependencies"]}.get(field, whole)
    del place[field]
    if field != "name":
        whole["name"] = "c"
    answer = submit(pilot, job("d"), whole)
    assert answer["code"] == 1 and field in answer["message"], answer
    assert pilot.ask({"request": "listJobs"})["data"]["names"] == ["a", "b"]


def test_sizes_that_cannot_be_had_in_the_specifications_dialect() -> None:
    pilot = VirtualPilot(4, dialect=SPECIFICATION)
    refused = submit(pilot, job("w3", {"min": 1, "split-into": 9}), job("ok"))
    assert refused["message"] == "Wrong submit request - split-into leaves 0 cores of 4 for a job that needs 1"
    assert submit(pilot, {**job("l_${it}", {"min": 3, "split-into": 2}), "iterate": [0, 9]})["code"] == 1
    after = job("after", dependencies={"after": ["wide"]})
    answer = submit(pilot, job("none", 0), job("max", {"min": 0, "max": 0}), job("wide", 5), after)
    assert answer == {"code": 0, "message": "4 jobs submited"}
    submit(pilot, job("open", {"min": 1}), job("top", {"max": 2}), job("half", {"split-into": 2}))
    pilot.run()
    states = {entry.name: text_report(entry, None).split()[1] for entry, _ in pilot.finished}
    assert states == {"none": "(FAILED)", "max": "(FAILED)", "wide": "(FAILED)", "after": "(OMITTED)", "open": "(SUCCEED)",
                      "top": "(SUCCEED)", "half": "(SUCCEED)"}  # fmt: skip
    assert [where for _, _, where in pilot.starts] == ["n0:4", "n0:2", "n0:2"]


def test_states_and_events_of_the_specification_are_six() -> None:
    """SCHEDULED is a state of 0.14."""
    lives = {}
    for dialect in (SPECIFICATION, LATER):
        pilot = VirtualPilot(2, dialect=dialect)
        submit(pilot, job("a"))
        pilot.run()
        lives[dialect.name] = [event["state"] for topic, event in pilot.published if topic == "JST"]
    assert lives == {"2018": ["EXECUTING", "SUCCEED"], "0.14": ["SCHEDULED", "EXECUTING", "SUCCEED"]}


# ---- requests that change nothing


def test_a_refused_request_changes_nothing() -> None:
    pilot = VirtualPilot(2)
    answer = submit(pilot, job("good"), job("good"))
    assert answer == {"code": 1, "message": "Job good already exist"}
    assert submit(pilot, job("good"), job("huge", 3))["message"] == "Not enough resources for job huge"
    assert submit(pilot, job("good"), job("bad", dependencies=3))["code"] == 1
    assert pilot.ask({"request": "listJobs"})["data"]["length"] == 0
    assert pilot.published == []


# ---- iterations of the later dialect


def test_cancelling_iterations() -> None:
    pilot = VirtualPilot(2, outcome=lambda name: (5.0, 0, ""))
    submit(pilot, job("it", iteration={"start": 2, "stop": 8}), job("dep", iteration={"start": 2, "stop": 8},
           dependencies={"after": ["it:${it}"]}))  # fmt: skip
    answer = pilot.ask({"request": "cancelJob", "jobNames": ["it:2", "it:7", "it:9", "it", "nope:1"]})
    assert answer["data"]["canceled"] == 3
    assert answer["data"]["errors"] == {
        "it:9": "Unknown iteration 9 for job it",
        "nope:1": "Job/iteration nope doesn't exist",
    }
    pilot.run()
    info = pilot.ask({"request": "jobInfo", "jobNames": ["it", "dep"], "params": {"withChilds": True}})["data"]["jobs"]
    assert info["it"]["data"]["status"] == "CANCELED"
    assert info["dep"]["data"]["status"] == "FAILED"
    assert {child["state"] for child in info["it"]["data"]["childs"]} == {"CANCELED"}
    assert {child["state"] for child in info["dep"]["data"]["childs"]} == {"OMITTED"}
    assert info["dep"]["data"]["iterations"] == {"start": 2, "stop": 8, "total": 6, "finished": 6, "failed": 6}
    assert pilot.published[-1] == ("NOJ", {"manager": "vm.1"})


def test_an_omitted_loop_is_omitted_whole() -> None:
    pilot = VirtualPilot(2, outcome=lambda name: (1.0, 1, ""))
    submit(pilot, job("a"), job("loop", iteration={"stop": 1000}, dependencies={"after": ["a"]}))
    pilot.run()
    info = pilot.ask({"request": "jobInfo", "jobNames": ["loop"]})["data"]["jobs"]["loop"]["data"]
    assert info["status"] == "OMITTED" and info["iterations"]["failed"] == 1000
    stats = pilot.ask({"request": "status"})["data"]["IterationStats"]
    assert stats["TotalIterations"] == 1001 and stats["FailedIterations"] == 1001


def test_a_long_loop_is_taken_apart_as_it_runs() -> None:
    pilot = VirtualPilot(4)
    submit(pilot, job("loop", iteration={"stop": 1_000_000}))
    assert len(pilot.cluster.waiting) + len(pilot.cluster.running) == 4096
    assert [name for _, name, _ in pilot.starts] == ["loop:0", "loop:1", "loop:2", "loop:3"]


def test_iterations_by_values() -> None:
    pilot = VirtualPilot(1)
    submit(pilot, job("v", iteration={"values": ["x", "y"]}))
    pilot.run()
    assert [name for _, name, _ in pilot.starts] == ["v:0", "v:1"]
    assert pilot.states() == {"v": "SUCCEED"}


def test_jobs_are_asked_about_by_jobnames_in_the_dialect_of_0_14() -> None:
    pilot = VirtualPilot(1)
    submit(pilot, {"name": "a", "execution": {"exec": "true"}})
    assert specified(pilot, "jobStatus", "a")["message"] == (
        "Invalid request: Wrong job status request - missing job names"
    )


# ---- reports


def test_report_text_of_the_specification() -> None:
    pilot = VirtualPilot(2, dialect=SPECIFICATION)
    submit(pilot, {"name": "msleep2_${it}", "iterate": [2, 3], "execution": {"exec": "sleep"},
           "resources": {"numCores": {"exact": 2}}})  # fmt: skip
    pilot.run()
    text = text_report(*pilot.finished[0])
    date = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}"
    expected = (
        rf"msleep2_2 \(SUCCEED\)\n\t{date}: QUEUED\n\t{date}: EXECUTING\n\t{date}: SUCCEED\n"
        r"\tallocation: n0:2\n\twd: /wd\n\trtime: 0:00:01\.000000\n"
    )
    assert re.fullmatch(expected, text), text


def test_report_text_and_json_of_the_later_dialect() -> None:
    pilot = VirtualPilot(2, outcome=lambda name: (1.5, 3, "why"))
    submit(pilot, job("it", 2, iteration={"stop": 1}, dependencies={"after": []}))
    pilot.run()
    assert [entry.full_name(index) for entry, index in pilot.finished] == ["it:0", "it"]
    text = text_report(*pilot.finished[0])
    assert text.startswith("it:0 (FAILED) why\n\t") and "\tallocation: n0[0:1]\n" in text
    assert "\texit_code: 3\n\tpid: 4711\n\tpname: true\n" in text and "SCHEDULED" in text
    child, parent = (msgspec.json.decode(json_report(*place)) for place in pilot.finished)
    assert list(child) == ["name", "state", "history", "runtime", "messages"]
    assert [step["state"] for step in child["history"]] == ["SCHEDULED", "EXECUTING", "FAILED"]
    assert parent["execution"]["exec"] == "/bin/true" and parent["resources"] == {"numCores": {"exact": 2}}
    assert [step["state"] for step in parent["history"]] == ["QUEUED", "FAILED"]


# ---- names of iterations


@pytest.fixture
def looped() -> VirtualPilot:
    pilot = VirtualPilot(4)
    loop = {"name": "l", "iteration": {"start": -2, "stop": 1}, "execution": {"exec": "true"}}
    pilot.ask({"request": "submit", "jobs": [{"name": "j", "execution": {"exec": "true"}}, loop]})
    return pilot


@pytest.mark.parametrize("kind", ["jobStatus", "jobInfo"])
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("l:x", "invalid literal for int() with base 10: 'x'"),
        ("nobody:", "invalid literal for int() with base 10: ''"),
        ("j:1:2", "invalid literal for int() with base 10: '1:2'"),
        ("j:-1", "'NoneType' object has no attribute 'in_range'"),
    ],
)
def test_a_wrong_index_is_told_in_its_place(looped: VirtualPilot, kind: str, name: str, problem: str) -> None:
    answer = looped.ask({"request": kind, "jobNames": ["j", name]})
    jobs = answer["data"]["jobs"]
    assert answer["code"] == 0 and jobs["j"]["status"] == 0
    assert jobs[name] == {"status": 1, "message": problem}
    cancelled = looped.ask({"request": "cancelJob", "jobNames": [name]})
    assert cancelled == {"code": 0, "data": {"canceled": 0, "errors": {name: problem}}}


def test_iterations_may_have_negative_indexes(looped: VirtualPilot) -> None:
    each = {"name": "e", "iteration": {"start": -2, "stop": 1}, "execution": {"exec": "true"}}
    each["dependencies"] = {"after": ["l:${it}"]}
    one = {"name": "o", "execution": {"exec": "true"}, "dependencies": {"after": ["l:-01", "l: 0"]}}
    looped.ask({"request": "submit", "jobs": [each, one]})
    for kind in ("jobStatus", "jobInfo"):
        assert looped.ask({"request": kind, "jobNames": ["l:-3"]}) == {
            "code": 1,
            "message": "Unknown iteration -3 for job l",
        }
    looped.run()
    found = looped.ask({"request": "jobStatus", "jobNames": ["l:-2", "e:-1", "e", "o"]})["data"]["jobs"]
    assert {name: job["data"]["status"] for name, job in found.items()} == dict.fromkeys(found, "SUCCEED")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"request": "status", "options": None}, "options"),
        ({"request": "status", "options": ["allJobsFinished"]}, "options"),
        ({"request": "jobInfo", "jobNames": ["j"], "params": "withChilds"}, "params"),
    ],
)
def test_options_that_are_no_dictionary_are_refused(
    looped: VirtualPilot, request_: dict[str, object], field: str
) -> None:
    answer = looped.ask(request_)
    assert looped.ask({"request": "jobInfo", "params": 3})["message"] == (
        "Invalid request: Wrong job info request - missing job names"
    ), "names come first"
    assert answer["code"] == 1
    assert str(answer["message"]).startswith(f"Invalid request: {field}: must be a dictionary, found ")


def test_what_ran_is_told_when_it_has_ended() -> None:
    pilot = VirtualPilot(1)
    submit(pilot, job("a"))
    question = {"request": "jobInfo", "jobNames": ["a"]}
    runs = pilot.ask(question)["data"]["jobs"]["a"]["data"]
    assert runs["status"] == "EXECUTING" and set(runs["runtime"]) == {"allocation", "wd"}
    pilot.run()
    ended = pilot.ask(question)["data"]["jobs"]["a"]["data"]
    assert list(ended["runtime"]) == ["allocation", "wd", "rtime", "exit_code", "pid", "pname"]


def position(pilot: VirtualPilot, name: str) -> int:
    found = pilot.queue.registry.find(name)
    assert found is not None
    return found[0].queue_position


def test_a_loop_waits_until_its_last_iteration_has_started() -> None:
    """What arrives behind it is told so; and nothing is counted as ready that the world has."""
    pilot = VirtualPilot(1)
    loop = {"name": "l", "iteration": {"start": 0, "stop": 3}, "execution": {"exec": "x"}}
    submit(pilot, loop)
    assert pilot.queue.ready == 0
    submit(pilot, {"name": "behind", "execution": {"exec": "x"}})
    assert position(pilot, "behind") == 1
    pilot.run(until=1002.5)
    submit(pilot, {"name": "last", "execution": {"exec": "x"}})
    assert position(pilot, "last") == 1
    pilot.run()
    assert [name for _, name, _ in pilot.starts] == ["l:0", "l:1", "l:2", "behind", "last"]
    assert pilot.queue.ready == 0


def test_what_is_published_of_jobs_and_iterations() -> None:
    pilot = VirtualPilot(2, outcome=lambda name: (1.0, int(name == "l:1"), ""))
    submit(pilot, job("a"), job("l", iteration={"stop": 2}), job("x", dependencies={"after": ["l"]}))
    pilot.run()
    told = [(topic, event["job"], event.get("it"), event["state"]) for topic, event in pilot.published if topic != "NOJ"]
    assert all(event["manager"] == "vm.1" for _, event in pilot.published)

    def of(name: str, index: int | None) -> list[tuple[str, str]]:
        return [(topic, state) for topic, job_name, it, state in told if (job_name, it) == (name, index)]

    assert of("a", None) == [("JST", "SCHEDULED"), ("JST", "EXECUTING"), ("JST", "SUCCEED"), ("JFI", "SUCCEED")]
    assert of("l", 0) == [("IST", "SCHEDULED"), ("IST", "EXECUTING"), ("IST", "SUCCEED"), ("IFI", "SUCCEED")]
    assert of("l", 1)[-1] == ("IFI", "FAILED")
    assert of("l", None) == [("JST", "FAILED"), ("JFI", "FAILED")]
    assert of("x", None) == [("JST", "OMITTED"), ("JFI", "OMITTED")]
    assert [topic for topic, _ in pilot.published].count("NOJ") == 1
    silent = VirtualPilot(2)
    silent.queue.publishes = False
    submit(silent, job("a"))
    silent.run()
    assert [topic for topic, _ in silent.published] == ["NOJ"]


def test_jobs_of_a_circle_say_why_they_are_omitted() -> None:
    pilot = VirtualPilot(1)
    submit(pilot, job("a", dependencies={"after": ["b"]}), job("b", dependencies={"after": ["a"]}))
    for name in ("a", "b"):
        info = pilot.ask({"request": "jobInfo", "jobNames": [name]})["data"]["jobs"][name]["data"]
        assert info["messages"] == "the jobs that it waits for wait for it"
