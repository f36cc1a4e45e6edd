"""QCG descriptions and requests by tables: what is refused, what it becomes, and how it is written again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilothouse.formats.qcg_description import (
    Description,
    DescriptionError,
    Iteration,
    Resources,
    Size,
    describe,
)
from pilothouse.formats.qcg_dialect import LATER, Dialect
from pilothouse.formats.qcg_dialect import SPECIFICATION as SPECIFIED
from pilothouse.formats.qcg_requests import (
    NamedJobs,
    Plain,
    RequestError,
    Submit,
    parse_request,
    read_requests,
    request_variables,
)
from pilothouse.model.errors import InputError


def described(dialect: Dialect = LATER, **changes: object) -> Description:
    raw: dict[str, Any] = {"name": "a", "execution": {"exec": "/bin/true"}, **changes}
    return describe({key: value for key, value in raw.items() if value != "left out"}, dialect)


def execution(**fields: object) -> dict[str, object]:
    return {"execution": {"exec": "x", **fields}}


def cores(size: object, **more: object) -> dict[str, object]:
    return {"resources": {"numCores": size, **more}}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "left out"}, "job None: name: must be a text"),
        ({"name": ""}, "name: must be a text"),
        ({"name": 5}, "job 5: name: must be a text, found 5"),
        ({"name": "a:b"}, "Invalid job name a:b"),
        ({"more": 1}, r"Job.__init__\(\) got an unexpected keyword argument 'more'"),
        ({"iterate": [1, 2]}, "unexpected keyword argument 'iterate'"),
        ({"execution": "left out"}, "Job execution not defined or wrong type"),
        ({"execution": []}, "Job execution not defined or wrong type"),
        ({"execution": {}}, r"Job execution \(exec or script\) not defined"),
        ({"attributes": []}, "Job attributes must be dictionary"),
        (execution(script="y"), "Job script and exec or args or env defined"),
        ({"execution": {"script": "y", "args": ["z"]}}, "Job script and exec or args or env defined"),
        (execution(args="x"), "Execution arguments must be an array"),
        (execution(env=[1]), "Execution environment must be an dictionary"),
        (execution(model_opts=[1]), "Execution model options must be an dictionary"),
        (execution(modules=5), "execution/modules: must be a list of names"),
        (execution(stdin=5), "execution/stdin: must be a text, found 5"),
        (execution(x=5), r"JobExecution.__init__\(\) got an unexpected keyword argument 'x'"),
        ({"resources": {}}, "No resources defined"),
        ({"resources": []}, "Job resources not defined or wrong type"),
        (cores({}), "No resources defined"),
        (cores({"exact": None}), "No resources defined"),
        (cores({"exact": True}), "numCores/exact: must be a whole number"),
        (cores({"exact": 1, "min": 1}), "Exact number of resources defined with min/max/scheduler"),
        (cores({"exact": 1, "max": 1}), "Exact number of resources"),
        (cores({"exact": 1, "scheduler": "split-into"}), "Exact number of resources"),
        (cores({"min": 3, "max": 2}), "Maximum number greater than minimal"),
        (cores({"min": -1}), "Neative number of resources"),
        (cores({"min": -2, "max": -1}), "Neative number of resources"),
        (cores({"min": 0, "max": 0}), "numCores: must be at least 1, found 0"),
        (cores({"min": 1, "split-into": 2}), "unexpected keyword argument 'split-into'"),
        (cores({"min": 1, "scheduler": 5}), "numCores/scheduler: must be a dictionary with a name, found 5"),
        (cores({"min": 1, "scheduler": {}}), "must be a dictionary with a name"),
        (
            cores({"min": 1, "scheduler": {"name": "split-into", "params": {"parts": True}}}),
            "must be a positive number",
        ),
        (cores({"min": 1, "scheduler": {"name": "split-into", "params": {"parts": 0}}}), "must be a positive number"),
        (cores(1, wt=5), "resources/wt: must be a text such as 1h30m or 10s"),
        (cores(1, wt=""), "Wall time must be greater than 0"),
        (cores(1, wt="0s"), "Wall time must be greater than 0"),
        (cores(1, wt="x"), "Wall time must be greater than 0"),
        (cores(1, nodeCrs=[1]), "Wrong definition of Consumable Resources list"),
        (cores(1, nodeCrs={"x": 1}), "Unknown consumable resource x"),
        (cores(1, nodeCrs={"gpu": 1, "GPU": 1}), "Consumable resource GPU already defined"),
        (cores(1, nodeCrs={"gpu": "1"}), "Consumable resource gpu count not a number str"),
        (cores(1, nodeCrs={"gpu": 0}), "Number of consumable resource gpu must be greater than 0"),
        ({"iteration": 5}, "Job iteration wrong specification"),
        ({"iteration": {"stop": 1, "x": 1}}, "Job iteration wrong specification"),
        ({"iteration": {}}, "Missing stop or values iteration value"),
        ({"iteration": {"stop": 1, "values": [1]}}, "Stop and values iteration are excluding"),
        ({"iteration": {"values": []}}, "iteration/values: must be a list of at least one value"),
        ({"iteration": {"values": 5}}, "iteration/values: must be a list"),
        ({"iteration": {"start": "x", "stop": 1}}, "iteration/start: must be a whole number"),
        ({"iteration": {"stop": "x"}}, "iteration/stop: must be a whole number"),
        ({"iteration": {"start": 2, "stop": 2}}, "Job iteration stop greater or equal than start"),
        ({"iteration": {"stop": 10**7 + 1}}, "iteration: must not be longer than 10000000, found 10000001"),
        ({"dependencies": []}, "Job dependencies wrong type"),
        ({"dependencies": {"x": 1}}, "Job dependencies wrong specification"),
        ({"dependencies": {"after": "x"}}, "Dependency task's list must be an array of job names"),
        ({"dependencies": {"after": [1]}}, "Dependency task's list must be an array of job names"),
    ],
)
def test_descriptions_that_are_refused(changes: dict[str, Any], text: str) -> None:
    described(**cores({"exact": 1}))  # what is alike is read once, and true is not 1
    with pytest.raises(DescriptionError, match=text):
        described(**changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"iteration": {"stop": 2}}, r'job a: iteration: unknown in this dialect: use "iterate": \[start, stop\], or choose'),
        (execution(x=1), "job a: execution/x: an unknown field"),
        ({"resources": "left out"}, r'job a: resources: missing; expected such as {"numCores": {"exact": 1}}'),
        ({"resources": {}}, "No resources defined"),
        (cores(1), "numCores: must be a dictionary with exact, min or max, found 1"),
        (cores({"min": 1, "scheduler": "split-into"}), "numCores/scheduler: an unknown field"),
        (cores({"min": 1, "max": 2, "split-into": 2}), "numCores/split-into: is the upper end of the range"),
        (cores({"max": 2, "split-into": 2}), "max must not be beside it"),
        (cores({"exact": 2, "split-into": 2}), "Exact number of resources"),
        (cores({"min": 1, "split-into": 0}), "numCores/split-into: must be at least 1, found 0"),
        (cores("2"), "resources/numCores: must be a dictionary with exact, min or max, found '2'"),
        ({"dependencies": {"x": 1}}, "dependencies/x: an unknown field"),
        ({"dependencies": {}}, "dependencies/after: missing; expected a list of job names"),
        ({"dependencies": {"after": None}}, "dependencies/after: missing"),
    ],
)
def test_descriptions_that_the_specification_refuses(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(DescriptionError, match=text):
        described(SPECIFIED, **{**cores({"exact": 1}), **changes})


def test_sizes_that_the_specification_takes_and_0_14_refuses() -> None:
    assert described(SPECIFIED, **cores({"split-into": 2})).resources.cores == Size(
        least=1, scheduler="split-into", parts=2, inside=True
    )
    assert described(SPECIFIED, **cores({"min": 0, "max": 0})).resources.cores == Size(least=0, most=0)


def test_what_a_description_says_and_what_it_leaves_out() -> None:
    plain = described()
    assert plain.resources == Resources(cores=Size(exact=1))
    assert (plain.resources.gpus, plain.resources.memory, plain.resources.walltime_s, plain.resources.consumables) == (
        0,
        0,
        None,
        False,
    )
    assert (plain.iteration, plain.after, plain.attributes, plain.execution.program) == (None, (), None, "true")
    assert (plain.execution.args, plain.execution.env, plain.execution.modules, plain.execution.model) == (
        (),
        {},
        None,
        None,
    )
    assert described(execution={"script": "x"}).execution.program == "bash"
    full = described(
        **execution(args=[1, "b"], env={"A": 1}, modules="m", model="OpenMPI", model_opts={"x": 1}, wd="w")
    ).execution
    assert (full.args, full.env, full.modules, full.model, full.model_opts, full.wd) == (
        ("1", "b"),
        {"A": "1"},
        ("m",),
        "openmpi",
        {"x": 1},
        "w",
    )
    assert described(dependencies={"after": None}).after == described(dependencies={}).after == ()
    assert described(dependencies={"after": ["b"]}).after == ("b",)
    assert described(iteration={"start": 2, "stop": 3}).iteration == Iteration(2, 3)
    assert described(iteration={"start": None, "stop": 10**7}).iteration == Iteration(0, 10**7)
    assert described(iteration={"start": 10**7, "stop": 10**7 + 5}).iteration == Iteration(10**7, 10**7 + 5)
    assert described(iteration={"values": [1, "x"]}).iteration == Iteration(0, 2, ("1", "x"))
    assert described(**cores(1, wt=" 1h2m3s ")).resources.walltime_s == 3723.0
    assert described(**cores(1, wt="1s")).resources.walltime_s == 1.0
    assert described(**cores(1, nodeCrs={"GPU": 1, "mem": 2})).resources == Resources(
        cores=Size(exact=1), gpus=1, memory=2
    )
    assert described(**cores(0)).resources.cores == Size(exact=0)
    assert described(**cores({"min": 2, "max": 2})).resources.cores == Size(least=2, most=2)
    assert described(**cores({"max": 1})).resources.cores == Size(most=1)
    loop = Iteration(2, 4)
    assert (len(loop), [index in loop for index in (1, 2, 3, 4, "2")], loop.value(3)) == (
        2,
        [False, True, True, False, False],
        "3",
    )
    assert Iteration(3, 5, ("x", "y")).value(4) == "y"
    assert [Size(exact=2).minimum, Size(exact=0, least=4).minimum, Size(least=3).minimum, Size(most=3).minimum] == [
        2,
        0,
        3,
        0,
    ]


@pytest.mark.parametrize(
    ("size", "written"),
    [
        ({"exact": 0}, {"exact": 0}),
        ({"min": 1, "max": 3}, {"min": 1, "max": 3}),
        ({"min": 1, "scheduler": "maximum-iters"}, {"min": 1, "scheduler": {"name": "maximum-iters"}}),
        (
            {"min": 1, "scheduler": {"name": "Split-Into", "params": {"parts": 1}}},
            {"min": 1, "scheduler": {"name": "split-into", "params": {"parts": 1}}},
        ),
        (
            {"min": 1, "scheduler": {"name": "maximum-iters", "params": {"parts": 4}}},
            {"min": 1, "scheduler": {"name": "maximum-iters"}},
        ),
        ({"min": 1, "scheduler": {"name": "split-into"}}, {"min": 1, "scheduler": {"name": "split-into"}}),
    ],
)
def test_sizes_are_written_as_they_are_read(size: object, written: object) -> None:
    found = described(**cores(size))
    assert found.resources.written() == {"numCores": written}
    assert found.resources.scheduled is ("scheduler" in str(written))
    assert described(resources=found.resources.written()) == found


def test_other_fields_of_resources_are_written() -> None:
    found = described(resources={"numNodes": {"min": 1, "max": 2}, "nodeCrs": {"MEM": 5}, "wt": "90s"}).resources
    assert found.written() == {"numNodes": {"min": 1, "max": 2}, "nodeCrs": {"MEM": 5}}
    one = described(SPECIFIED, **cores({"min": 1, "split-into": 1})).resources
    assert one.written() == {"numCores": {"min": 1, "split-into": 1}}
    assert found.written(walltime=True)["wt"] == "90s"
    inside = described(SPECIFIED, **cores({"min": 1, "split-into": 3})).resources
    assert inside.written() == {"numCores": {"min": 1, "split-into": 3}}


# ---- requests


def parsed(dialect: Dialect = LATER, **fields: object) -> object:
    variables = request_variables(7, "u", "c", "d", "t")
    return parse_request(msgspec.json.encode(fields), lambda: variables, dialect)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{", r"Invalid request: not JSON \(Input data was truncated\)"),
        (b"\xff", "Invalid request: not JSON"),
        (b"[]", "Invalid request: Invalid request"),
        (b"{}", "Invalid request: Invalid request"),
        (b'{"request": ""}', "Invalid request: Invalid request"),
        (b'{"request": "x"}', "Unknown request name: x"),
        (b'{"request": "x\\u0000"}', "a text holds a NUL character"),
        (b'{"request": "x\\\\\\u0000"}', "a text holds a NUL character"),
        (b'{"request": "x\\\\u0000"}', "Unknown request name"),
        (b'{"request": "xu0000"}', "Unknown request name: xu0000"),
        (b'{"request": "control"}', "Wrong control request - missing command"),
        (b'{"request": "control", "command": "x"}', 'Wrong control request - unknown command "x"'),
        (b'{"request": "submit"}', "missing jobs data"),
        (b'{"request": "submit", "jobs": []}', "missing jobs data"),
        (b'{"request": "submit", "jobs": 5}', "missing jobs data"),
        (b'{"request": "submit", "jobs": [{"name": "a", "execution": {"exec": 1e999}}]}', r"not JSON \(Number out of range"),
        (b'{"request": "submit", "jobs": [5]}', "Wrong submit request - wrong job data"),
        (b'{"request": "submit", "jobs": [{}]}', "Missing name in job description"),
        (b'{"request": "submit", "jobs": [{"name": "a"}]}', "Missing execution element in job description"),
        (
            b'{"request": "submit", "jobs": [{"name": 5, "execution": {}}]}',
            "Wrong submit request: job 5: name: must be a text",
        ),
        (
            b'{"request": "submit", "jobs": [{"name": "a b", "execution": {"exec": "x"}}]}',
            "contains invalid characters",
        ),
        (
            b'{"request": "submit", "jobs": [{"name": "a", "execution": {}, "iteration": 5}]}',
            "iteration directive: not a dictionary",
        ),
        (
            b'{"request": "submit", "jobs": [{"name": "a", "execution": {}, "iteration": {}}]}',
            "iteration directive: not a dictionary",
        ),
        (
            b'{"request": "submit", "jobs": [{"name": "a", "execution": {}, "iteration": {"start": 2, "stop": 1}}]}',
            "start index larger then stop one",
        ),
        (b'{"request": "jobInfo"}', "Invalid request"),
        (b'{"request": "jobInfo", "jobNames": []}', "Invalid request"),
        (b'{"request": "jobInfo", "jobNames": [1]}', "Invalid request"),
        (b'{"request": "jobInfo", "jobName": ""}', "Invalid request"),
        (b'{"request": "jobInfo", "jobNames": ["a"], "params": 5}', "params: must be a dictionary, found 5"),
        (b'{"request": "status", "options": 5}', "options: must be a dictionary, found 5"),
    ],
)
def test_requests_that_are_refused(text: bytes, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        parse_request(text, dict, LATER)


def test_requests_that_are_taken() -> None:
    assert parsed(request="control", command="finishAfterAllTasksDone") == Plain("control")
    assert [parsed(request=kind) for kind in ("listJobs", "finish")] == [Plain("listJobs"), Plain("finish")]
    assert parsed(request="status", options={"allJobsFinished": 1}) == Plain("allJobsFinished")
    assert parsed(request="status") == parsed(request="status", options={"allJobsFinished": 0}) == Plain("status")
    assert parsed(request="jobInfo", jobNames=["a"]) == NamedJobs("jobInfo", ["a"])
    assert parsed(SPECIFIED, request="jobInfo", jobName="a", params={"withChilds": 1}) == NamedJobs(
        "jobInfo", ["a"], one=True, with_childs=True
    )
    assert parsed(request="jobStatus", jobNames=["a"], params=5) == NamedJobs("jobStatus", ["a"])
    assert parsed(SPECIFIED, request="jobStatus", jobNames=["a"]) == NamedJobs("jobStatus", ["a"])
    with pytest.raises(RequestError, match="missing job names"):
        parsed(request="jobInfo", jobName="a")


JOB = {"name": "a", "execution": {"exec": "x"}}
SIZED = {**JOB, "resources": {"numCores": {"exact": 1}}}


def submitted(dialect: Dialect, *jobs: object) -> Submit:
    found = parsed(dialect, request="submit", jobs=jobs)
    assert isinstance(found, Submit)
    return found


def test_a_job_is_read_in_the_dialect_that_was_chosen() -> None:
    """The same file means the same whatever else is in it."""
    for dialect in (LATER, SPECIFIED):
        assert [job.dialect for job in submitted(dialect, SIZED).jobs] == [dialect]
    for dialect, job, problem in (
        (LATER, {**SIZED, "name": "b_${it}", "iterate": [0, 1]}, "invalid characters or unknown variables"),
        (LATER, {**SIZED, "iterate": [0, 1]}, "unexpected keyword argument 'iterate'"),
        (SPECIFIED, JOB, "resources: missing"),
        (SPECIFIED, {**SIZED, "iteration": {"stop": 2}}, "iteration: unknown in this dialect"),
    ):
        with pytest.raises(RequestError, match=problem):
            submitted(dialect, job)
        with pytest.raises(RequestError, match=problem):
            submitted(dialect, {**SIZED, "name": "other"}, job)


@pytest.mark.parametrize("dialect", [LATER, SPECIFIED])
def test_names_with_variables(dialect: Dialect) -> None:
    (job,) = submitted(dialect, {**SIZED, "name": "n${rcnt}", "execution": {"exec": "${jname}"}}).jobs
    assert (job.name, job.description.name, job.description.execution.exec) == ("n7", "n7", "n7")


def test_loops_of_the_specification() -> None:
    loop = {**SIZED, "name": "b_${it}", "iterate": [3, 5]}
    for needed, after in (({"dependencies": {"after": ["a_${it}", "c"]}}, [("a_3", "c"), ("a_4", "c")]), ({}, [(), ()])):
        found = submitted(SPECIFIED, {**loop, **needed})
        assert [job.after for job in found.jobs] == [job.description.after for job in found.jobs] == after
        assert not any(job.loop_free for job in found.jobs)
        assert [(job.is_first, job.dialect) for job in found.jobs] == [(True, SPECIFIED), (False, SPECIFIED)]
    assert submitted(SPECIFIED, {**loop, "iterate": [3, 3]}).jobs == [], "stop - start iterations"
    for wrong in ([5, 2], [0, 3, 1], "0-3", [0, "3"]):
        with pytest.raises(RequestError, match="iterate"):
            submitted(SPECIFIED, {**loop, "iterate": wrong})


def test_names_in_both_dialects() -> None:
    for name in ("n${x}", "a b", "it's (1)", 7):
        assert [job.name for job in submitted(SPECIFIED, {**SIZED, "name": name}).jobs] == [str(name)]
        with pytest.raises(RequestError, match=r"invalid characters|must be a text"):
            submitted(LATER, {**SIZED, "name": name})
    wrong = {"a:1": "Invalid job name", "a\nb": "invalid characters"}
    for name, problem in (*wrong.items(), ([], "must be a text"), (True, "must be a text")):
        with pytest.raises(RequestError, match=problem):
            submitted(SPECIFIED, {**SIZED, "name": name})


@pytest.mark.parametrize("dialect", [LATER, SPECIFIED])
def test_unknown_variables_are_left_to_the_shell(dialect: Dialect) -> None:
    texts = ["${HOME} $USER ${ x }", "${rcnt}${ rcnt }$rcnt"]
    (job,) = submitted(dialect, {**SIZED, "execution": {"exec": "sh", "args": texts, "env": {"A": "${B}"}}}).jobs
    assert job.description.execution.args == ("${HOME} $USER ${ x }", "777")
    assert job.description.execution.env == {"A": "${B}"}


def test_request_files(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    for text, problem in (
        (b"[", "f.json: Wrong job description"),
        (b"{}", "Not an array of requests"),
        (b"{", "Wrong job description"),
    ):
        path.write_bytes(text)
        with pytest.raises(InputError, match=problem):
            read_requests(path)
    path.write_bytes(b'[{"request": "x"}, 5]')
    assert read_requests(path) == [b'{"request": "x"}', b"5"]
    with pytest.raises(InputError, match=r"none.json: cannot be read; found No such file"):
        read_requests(tmp_path / "none.json")
