"""QCG requests in both dialects: what is accepted, what it becomes, and which field of which job a refusal names."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.formats.qcg_description import Size
from pilothouse.formats.qcg_dialect import LATER, SPECIFICATION, Dialect
from pilothouse.formats.qcg_requests import (
    NamedJobs,
    RequestError,
    Submit,
    SubmittedJob,
    parse_request,
    request_variables,
    split_requests,
)
from pilothouse.formats.qcg_workload import Unfit, iteration_sizes

VARIABLES = request_variables(7, "uniq", "eagle", "2018-01-12", "14:58:49")


def submit(*jobs: object, dialect: Dialect = SPECIFICATION) -> list[SubmittedJob]:
    text = msgspec.json.encode({"request": "submit", "jobs": list(jobs)})
    request = parse_request(text, lambda: VARIABLES, dialect)
    assert isinstance(request, Submit)
    return request.jobs


def refusal(*jobs: object, dialect: Dialect = SPECIFICATION) -> str:
    with pytest.raises(RequestError) as caught:
        submit(*jobs, dialect=dialect)
    return str(caught.value)


def job(**changes: object) -> dict[str, object]:
    return {
        "name": "a",
        "execution": {"exec": "/bin/true"},
        "resources": {"numCores": {"exact": 1}},
        **changes,
    }


def loop(**changes: object) -> dict[str, object]:
    return job(**{"name": "a_${it}", "iterate": [1, 4], **changes})


# ---- the specification, "Job description format"


def test_sample_of_the_specification() -> None:
    (submitted,) = submit(
        {
            "name": "msleep2",
            "execution": {
                "exec": "/bin/sleep",
                "args": ["5s"],
                "env": {},
                "wd": "sleep.sandbox",
                "stdout": "sleep2.${ncores}.${nnodes}.stdout",
                "stderr": "sleep2.${ncores}.${nnodes}.stderr",
            },
            "resources": {"numCores": {"exact": 2}},
        }
    )
    description = submitted.description
    assert description.execution.args == ("5s",)
    assert description.execution.stdout == "sleep2.${ncores}.${nnodes}.stdout"
    assert description.resources.cores == Size(exact=2)
    assert description.resources.nodes is None


def test_a_loop_makes_stop_minus_start_jobs_and_the_last_index_is_stop_minus_one() -> None:
    submitted = submit(loop())
    assert [item.name for item in submitted] == ["a_1", "a_2", "a_3"]


def test_loop_variables_of_the_request() -> None:
    words = "${it} ${its} ${it_start} ${it_stop} ${jname} ${rcnt} ${sname} ${date} ${time} ${uniq}"
    submitted = submit(loop(execution={"exec": "echo", "args": [words, "${dateTime}", "${ it }"]}))
    second = submitted[1].description.execution.args
    assert second[0] == "2 3 1 4 a_2 7 eagle 2018-01-12 14:58:49 uniq-2"
    assert second[1:] == ("2018-01-12 14:58:49", "2")
    uniques = {item.description.execution.args[0].split()[-1] for item in submitted}
    assert len(uniques) == 3, "each sub-job has its own unique identifier"


def test_variables_of_the_start_are_left_for_the_start() -> None:
    (submitted,) = submit(job(execution={"exec": "echo", "args": ["${root_wd} ${ncores} ${nnodes} ${nlist}"]}))
    assert submitted.description.execution.args == ("${root_wd} ${ncores} ${nnodes} ${nlist}",)


def test_jname_is_the_name_after_all_other_variables() -> None:
    (submitted,) = submit(job(name="job_${rcnt}", execution={"exec": "true", "stdout": "logs/${jname}.out"}))
    assert submitted.name == "job_7"
    assert submitted.description.execution.stdout == "logs/job_7.out"


@pytest.mark.parametrize("loop", [{}, {"iteration": {"stop": 2}}])
def test_two_dollars_are_one(loop: dict[str, object]) -> None:
    execution = {"exec": "sh", "args": ["$${it} $${HOME} $$$$ $jname"], "wd": "w_$${ncores}"}
    for dialect in (LATER,) if loop else (LATER, SPECIFICATION):
        (submitted,) = submit(job(execution=execution, **loop), dialect=dialect)
        assert submitted.description.execution.args == ("${it} ${HOME} $$ a",)
        assert submitted.description.execution.wd == "w_${ncores}"


def test_shell_variables_pass() -> None:
    later = job(iteration={"stop": 2}, execution={"exec": "sh", "args": ["-c", "echo ${HOME} $1 ${it}"]})
    (submitted,) = submit(later, dialect=LATER)
    assert submitted.description.execution.args[1] == "echo ${HOME} $1 ${it}"
    (script,) = submit(job(execution={"script": "echo ${HOME}"}))
    assert script.description.execution.script == "echo ${HOME}"


def test_exact_excludes_min_and_max() -> None:
    for other in ("min", "max"):
        assert "Exact number" in refusal(job(resources={"numCores": {"exact": 1, other: 2}}))
    assert "Exact number" in refusal(job(resources={"numNodes": {"exact": 1, "split-into": 2}}))


def test_split_into_inside_a_size_is_the_upper_end_of_a_range() -> None:
    (submitted,) = submit(job(resources={"numCores": {"min": 2, "split-into": 4}}))
    size = submitted.description.resources.cores
    assert size == Size(least=2, scheduler="split-into", parts=4, inside=True)
    assert "at least 1" in refusal(job(resources={"numCores": {"min": 1, "split-into": 0}}))


@pytest.mark.parametrize("bounds", [[1], [4, 1], "1-4", [1, 2, 3], ["a", "b"], [0, 10**9]])
def test_wrong_loops(bounds: object) -> None:
    assert "job a_${it}: iterate" in refusal(loop(iterate=bounds))


# ---- fields, in both dialects


def scheduled(name: str, params: object) -> dict[str, object]:
    return {"resources": {"numCores": {"min": 1, "scheduler": {"name": name, "params": params}}}}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"execution": {"exec": "true", "colour": 1}}, "execution/colour: an unknown field"),
        ({"resources": {"numCores": {"many": 1}}}, "resources/numCores/many: an unknown field"),
        ({"resources": {"numCores": "two"}}, "resources/numCores: must be a dictionary with exact, min or max"),
        ({"resources": {"numThreads": 1}}, "resources/numThreads: an unknown field"),
        ({"dependencies": {"before": ["b"]}}, "dependencies/before: an unknown field"),
    ],
)
def test_refusals_in_the_specifications_dialect(changes: dict[str, object], text: str) -> None:
    assert f"job a_1: {text}" in refusal(loop(**changes))


def test_of_several_jobs_the_wrong_one_is_named() -> None:
    good, negative = job(), job(name="b", resources={"numCores": {"exact": -1}})
    assert refusal(negative) == "Wrong submit request: Neative number of resources"
    assert refusal(good, negative) == "Wrong submit request: Neative number of resources (job b)"
    assert refusal(good, {"name": "c"}) == "Invalid request: Missing execution element in job description (job c)"
    assert refusal(good, {}) == "Invalid request: Missing name in job description (job number 2)"
    assert refusal(good, job(name="b:1")) == "Wrong submit request: Invalid job name b:1"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"execution": {"exec": "true", "colour": 1}},
            "JobExecution.__init__() got an unexpected keyword argument 'colour'",
        ),
        ({"execution": {"exec": "true", "wd": 3}}, "job a: execution/wd: must be a text, found 3"),
        ({"execution": {"exec": "true", "modules": [1]}}, "job a: execution/modules: must be a list of names"),
        ({"execution": {"exec": "true", "model": "pvm"}}, "job a: execution/model: must be one of"),
        ({"resources": {"numCores": {"exact": "1"}}}, "job a: resources/numCores/exact: must be a whole number"),
        ({"resources": {"numCores": {"max": 0}}}, "job a: resources/numCores: must be at least 1"),
        ({"resources": {"numCores": {"many": 1}}}, "ResourceSize.__init__() got an unexpected keyword argument 'many'"),
        ({"resources": {"numCores": "two"}}, "Wrong definition of number of cores (str)"),
        ({"resources": {"numNodes": 1.5}}, "Wrong definition of number of nodes (float)"),
        ({"resources": {"numThreads": 1}}, "JobResources.__init__() got an unexpected keyword argument 'numThreads'"),
        ({"resources": None}, "Job resources not defined or wrong type"),
        ({"resources": {"numNodes": {"exact": -1}}}, "Neative number of resources"),
        (scheduled("split-into", {"parts": 0}), "scheduler/params/parts: must be a positive number, found 0"),
        (scheduled("split-into", []), "job a: resources/numCores/scheduler/params: must be a dictionary"),
        (scheduled("fastest", {}), "job a: resources/numCores/scheduler/name: must be split-into or maximum-iters"),
        ({"resources": {"numNodes": 1, "nodeCrs": 3}}, "Wrong definition of Consumable Resources int (must be"),
        ({"resources": {"numNodes": 1, "nodeCrs": {"tpu": 1}}}, "Unknown consumable resource tpu"),
        ({"resources": {"numNodes": 1, "nodeCrs": {"gpu": 0}}}, "must be greater than 0"),
        ({"dependencies": {"after": "b"}}, "must be an array of job names"),
        ({"dependencies": {"before": ["b"]}}, "Job dependencies wrong specification"),
        ({"name": 3}, "name: must be a text"),
        ({"name": "a b"}, "contains invalid characters"),
        ({"iteration": {"stop": "4"}}, "job a: iteration/stop: must be a whole number"),
        ({"iteration": {"values": []}}, "job a: iteration/values: must be a list of at least one value"),
        ({"iteration": {"start": 3, "stop": 3}}, "Job iteration stop greater or equal than start"),
        ({"iteration": {"stop": 10**9}}, "job a: iteration: must not be longer"),
        ({"attributes": 3}, "Job attributes must be dictionary"),
    ],
)
def test_refusals_name_job_and_field(changes: dict[str, object], text: str) -> None:
    assert text in refusal(job(**changes), dialect=LATER)


def test_sizes_may_be_numbers_and_schedulers_objects() -> None:
    size = {"min": 1, "scheduler": {"name": "maximum-iters"}}
    (submitted,) = submit(job(resources={"numNodes": 2, "numCores": size, "wt": "1h2m3s"}), dialect=LATER)
    resources = submitted.description.resources
    assert resources.nodes == Size(exact=2)
    assert resources.cores == Size(least=1, scheduler="maximum-iters")
    assert resources.walltime_s == 3723
    scheduler = {"name": "split-into", "params": {"parts": 3}}
    (split,) = submit(job(resources={"numCores": {"min": 1, "scheduler": scheduler}}), dialect=LATER)
    assert split.description.resources.cores == Size(least=1, scheduler="split-into", parts=3)


def test_model_options_and_environment_are_kept() -> None:
    (submitted,) = submit(
        job(
            execution={
                "exec": "x", "args": [1, "b"], "env": {"A": 1}, "modules": "gcc", "venv": "v", "model": "OpenMPI",
                "model_opts": {"mpirun": "/opt/mpirun"}, "stdin": "i",
            }
        )
    )  # fmt: skip
    execution = submitted.description.execution
    assert execution.args == ("1", "b") and execution.env == {"A": "1"} and execution.modules == ("gcc",)
    assert execution.model == "openmpi" and execution.model_opts == {"mpirun": "/opt/mpirun"}
    assert submitted.description.written()["execution"] == execution.written()


# ---- dialects


def test_jobname_and_jobnames() -> None:
    for text, one in ((b'"jobName":"x"', True), (b'"jobNames":["x"]', False)):
        request = parse_request(b'{"request":"jobStatus",' + text + b"}", lambda: VARIABLES, SPECIFICATION)
        assert isinstance(request, NamedJobs) and request.one is one and request.names == ["x"]


def test_request_files_that_are_no_list_are_refused() -> None:
    assert split_requests(b'[{"request":"finish"}]', "f") == [b'{"request":"finish"}']
    with pytest.raises(RequestError, match="Not an array"):
        split_requests(b"{}", "f")
    for text in (b"[", b"{not json", b""):
        with pytest.raises(RequestError, match="f: Wrong job description"):
            split_requests(text, "f")


KEYS = [
    "request",
    "jobs",
    "name",
    "execution",
    "exec",
    "resources",
    "numCores",
    "exact",
    "iterate",
    "iteration",
    "stop",
]
KEYS += ["jobNames", "command", "x"]
LEAVES = st.none() | st.integers() | st.text() | st.booleans()
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)


@given(ANYTHING)
def test_whatever_is_sent_is_answered_or_refused_in_words(data: object) -> None:
    for value in (data, {"request": "submit", "jobs": [data]}, {"request": "submit", "jobs": data}):
        try:
            for dialect in (SPECIFICATION, LATER):
                parse_request(msgspec.json.encode(value), lambda: VARIABLES, dialect)
        except RequestError as refused:
            assert str(refused)


# ---- iteration schedulers


def test_split_into_gives_every_iteration_one_part() -> None:
    size = Size(least=1, scheduler="split-into", parts=4)
    assert list(iteration_sizes(size, 3, 10)) == [2, 2, 2]
    assert list(iteration_sizes(Size(least=1, scheduler="split-into"), 3, 10)) == [3, 3, 3]
    with pytest.raises(Unfit, match="zero"):
        list(iteration_sizes(Size(least=1, scheduler="split-into", parts=11), 3, 10))


@given(st.integers(1, 60), st.integers(1, 40), st.integers(1, 12))
def test_maximum_iters_uses_whole_rounds_and_never_less_than_the_minimum(
    iterations: int, total: int, least: int
) -> None:
    size = Size(least=least, scheduler="maximum-iters")
    if total < least:
        with pytest.raises(Unfit):
            list(iteration_sizes(size, iterations, total))
        return
    sizes = list(iteration_sizes(size, iterations, total))
    assert len(sizes) == iterations
    assert min(sizes) >= least
    rounds = -(-iterations // (total // least))
    assert sum(sizes) == rounds * total, "every round uses all there is"


@pytest.mark.parametrize(
    ("parts", "taken"), [(1, True), (2, True), (0, False), (-1, False), (True, False), (1.5, False), ("2", False)]
)
def test_parts_are_positive_numbers(parts: object, taken: bool) -> None:
    size = {"min": 1, "scheduler": {"name": "split-into", "params": {"parts": parts}}}
    job = {"name": "a", "execution": {"exec": "x"}, "iteration": {"stop": 2}, "resources": {"numCores": size}}
    if taken:
        (found,) = submit(job, dialect=LATER)
        assert found.description.resources.cores == Size(least=1, scheduler="split-into", parts=parts)
    else:
        with pytest.raises(RequestError, match="parts"):
            submit(job, dialect=LATER)


@pytest.mark.parametrize(("least", "most", "taken"), [(2, 2, True), (2, 3, True), (3, 2, False)])
def test_a_range_ends_where_it_begins_or_later(least: int, most: int, taken: bool) -> None:
    job = {"name": "a", "execution": {"exec": "x"}, "resources": {"numCores": {"min": least, "max": most}}}
    if taken:
        (found,) = submit(job)
        assert found.description.resources.cores == Size(least=least, most=most)
    else:
        with pytest.raises(RequestError, match="a"):
            submit(job)
