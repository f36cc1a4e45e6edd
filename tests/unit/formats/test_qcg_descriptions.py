"""QCG descriptions and requests by tables: what is refused, what it becomes, and how it is written again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilothouse.formats.qcg_description import (
    Description,
    DescriptionError,
    Dialect,
    Iteration,
    Resources,
    Size,
    describe,
)
from pilothouse.formats.qcg_requests import (
    NamedJobs,
    Plain,
    RequestError,
    Submit,
    dialect_of,
    parse_request,
    preferred_dialect,
    read_requests,
    request_variables,
)
from pilothouse.formats.qcg_variables import unknown_variables
from pilothouse.model.errors import InputError

LATER, SPECIFIED = Dialect.LATER, Dialect.SPECIFICATION


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
        ({"iteration": {"stop": 2}}, "job a: iteration: an unknown field"),
        (execution(x=1), "job a: execution/x: an unknown field"),
        (cores(0), "numCores: must be at least 1, found 0"),
        (cores({"split-into": 2}), "numCores/split-into: needs min beside it"),
        (cores({"min": 1, "max": 2, "split-into": 2}), "numCores/split-into: needs min beside it, and no max"),
        (cores({"max": 2, "split-into": 2}), "needs min beside it, and no max"),
        (cores({"exact": 2, "split-into": 2}), "Exact number of resources"),
        (cores({"min": 1, "split-into": 0}), "numCores/split-into: must be at least 1, found 0"),
        (cores("2"), "resources/numCores: must be a number or a dictionary, found '2'"),
        ({"dependencies": {"x": 1}}, "dependencies/x: an unknown field"),
    ],
)
def test_descriptions_that_the_specification_refuses(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(DescriptionError, match=text):
        described(SPECIFIED, **changes)


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


def parsed(preferred: Dialect = Dialect.EITHER, **fields: object) -> object:
    variables = request_variables(7, "u", "c", "d", "t")
    return parse_request(msgspec.json.encode(fields), lambda: variables, preferred)


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
        parse_request(text, dict, Dialect.EITHER)


def test_requests_that_are_taken() -> None:
    assert parsed(request="control", command="finishAfterAllTasksDone") == Plain("control")
    assert [parsed(request=kind) for kind in ("listJobs", "finish")] == [Plain("listJobs"), Plain("finish")]
    assert parsed(request="status", options={"allJobsFinished": 1}) == Plain("allJobsFinished")
    assert parsed(request="status") == parsed(request="status", options={"allJobsFinished": 0}) == Plain("status")
    assert parsed(request="jobInfo", jobNames=["a"]) == NamedJobs("jobInfo", ["a"], LATER, False)
    assert parsed(request="jobInfo", jobName="a", params={"withChilds": 1}) == NamedJobs(
        "jobInfo", ["a"], SPECIFIED, True
    )
    assert parsed(request="jobStatus", jobNames=["a"], params=5) == NamedJobs("jobStatus", ["a"], LATER, False)


JOB = {"name": "a", "execution": {"exec": "x"}}
SIZED = {**JOB, "resources": {"numCores": {"exact": 1}}}


@pytest.mark.parametrize(
    ("job", "dialect"),
    [
        (JOB, LATER), (SIZED, Dialect.EITHER), ({**SIZED, "iterate": [0, 1]}, SPECIFIED), ({**JOB, "iterate": [0, 1]}, LATER),
        ({**JOB, "resources": {"numCores": {"min": 1, "split-into": 1}}}, SPECIFIED), ({**SIZED, "iteration": {}}, LATER),
        ({**JOB, "resources": {"numNodes": {"min": 1, "split-into": 1}}}, SPECIFIED), ({**SIZED, "attributes": {}}, LATER),
        ({**JOB, "resources": {"numCores": {"min": 1, "scheduler": {}}}}, LATER), ({**JOB, "resources": {"numNodes": 2}}, LATER),
        ({**JOB, "resources": {"numCores": {"exact": 1}, "wt": "1s"}}, LATER), ({**JOB, "resources": []}, Dialect.EITHER),
        ({**SIZED, "execution": {"exec": "x", "venv": "v"}}, LATER), ({**SIZED, "execution": 5}, Dialect.EITHER),
    ],
)  # fmt: skip
def test_dialects_of_jobs(job: dict[str, Any], dialect: Dialect) -> None:
    assert dialect_of(job) is dialect


def test_in_a_file_of_the_specification_jobs_may_leave_resources_out() -> None:
    assert dialect_of(JOB, SPECIFIED) is Dialect.EITHER
    assert dialect_of({**JOB, "iterate": [0, 1]}, SPECIFIED) is SPECIFIED


@pytest.mark.parametrize(
    ("requests", "dialect"),
    [
        ([b"{"], Dialect.EITHER), ([b'["iterate"]'], Dialect.EITHER), ([b'{"iterate"'], Dialect.EITHER), ([], Dialect.EITHER),
        ([{"request": "status"}], LATER), ([{"request": "jobInfo"}], LATER), ([{"jobNames": 5}], LATER),
        ([{"jobName": "a"}], SPECIFIED), ([{"jobName": 5}], Dialect.EITHER),
        ([{"request": "status"}, {"jobName": "a"}], SPECIFIED), ([{"jobs": 5, "x": "iterate"}], Dialect.EITHER),
        ([{"jobs": [SIZED]}], Dialect.EITHER), ([{"jobs": [{**SIZED, "iteration": {}}]}], LATER),
        ([{"jobs": [{**JOB, "iterate": []}]}], SPECIFIED), ([{"jobs": [{**JOB, "iterate": [], "iteration": {}}]}], LATER),
        ([{"jobs": [5, {**SIZED, "iterate": []}]}], SPECIFIED),
        ([b"{\"iterate\"", {"jobs": [{**SIZED, "iterate": []}]}], SPECIFIED), ([b'["iterate"]', {"request": "status"}], LATER),
        ([{"jobs": [SIZED]}, {"request": "status"}], LATER),
    ],
)  # fmt: skip
def test_dialects_of_files(requests: list[Any], dialect: Dialect) -> None:
    assert (
        preferred_dialect([one if isinstance(one, bytes) else msgspec.json.encode(one) for one in requests]) is dialect
    )


def test_dialects_of_requests_and_names_with_variables() -> None:
    for jobs, dialect in (
        ([SIZED], Dialect.EITHER),
        ([SIZED, {**JOB, "name": "b"}], LATER),
        ([{**SIZED, "name": "b_${it}", "iterate": [0, 1]}], SPECIFIED),
    ):
        found = parsed(request="submit", jobs=jobs)
        assert isinstance(found, Submit) and found.dialect is dialect
    found = parsed(request="submit", jobs=[{**SIZED, "name": "n${rcnt}", "execution": {"exec": "${jname}"}}])
    assert isinstance(found, Submit)
    (job,) = found.jobs
    assert (job.name, job.description.name, job.description.execution.exec, job.dialect) == (
        "n7",
        "n7",
        "n7",
        Dialect.EITHER,
    )
    split = {**JOB, "name": "b", "resources": {"numCores": {"min": 1, "split-into": 1}}}
    for first in ({**SIZED, "name": "b_${it}", "iterate": [0, 1]}, split):
        found = parsed(request="submit", jobs=[first, JOB])
        assert isinstance(found, Submit)
        assert [job.dialect for job in found.jobs] == [SPECIFIED, SPECIFIED], "a job without resources is one of theirs"
    loop = {**SIZED, "name": "b_${it}", "iterate": [3, 5]}
    for needed, after in (({"dependencies": {"after": ["a_${it}", "c"]}}, [("a_3", "c"), ("a_4", "c")]), ({}, [(), ()])):
        found = parsed(request="submit", jobs=[{**loop, **needed}])
        assert isinstance(found, Submit)
        assert [job.after for job in found.jobs] == [job.description.after for job in found.jobs] == after
        assert not any(job.loop_free for job in found.jobs)
    with pytest.raises(RequestError, match="invalid characters"):
        parsed(request="submit", jobs=[{**JOB, "name": "n${x}"}])


def test_variables_that_are_not_known_and_where_they_are() -> None:
    value = {"a": ["${x}", {"b": "$y ${ z } $$"}], "script": "${s}", "c": "${it}$${w}"}
    assert list(unknown_variables(value)) == [("a[0]", "x"), ("a[1]/b", "z"), ("c", "w")]
    assert list(unknown_variables(value, doubled=True)) == [("a[0]", "x"), ("a[1]/b", "z")]


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
