"""QCG requests: JSON in, typed requests out, in both dialects.

Comes in: the text of one request, or a file with a list of them. Goes out: a `Request`, whose jobs are checked and
whose variables of the first phase are replaced, or a `RequestError` with the text of the refusal. The fields of a
request show its dialect: `iterate`, `split-into` inside a size and `jobName` are the specification's; `iteration`,
`jobNames`, schedulers as objects, jobs without resources and most newer fields are 0.14.2's; the rest fits both.

Each index of a loop of the specification is a job of its own (its name holds `${it}`). Such jobs share one template,
and are described when they are needed, so that a long loop takes little memory before it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from pilothouse.formats.qcg_description import (
    MOST_ITERATIONS,
    Description,
    DescriptionError,
    Dialect,
    describe,
    is_integer,
)
from pilothouse.formats.qcg_variables import KNOWN, LOOP_ONLY, replaced, replaced_deep, unknown_variables
from pilothouse.formats.text_input import JSON_PROBLEMS
from pilothouse.model.errors import InputError, quoted

FORBIDDEN_IN_NAMES = frozenset("${}()'\" \t\n")
LATER_EXECUTION = frozenset({"script", "modules", "venv", "model", "model_opts"})
LATER_RESOURCES = frozenset({"wt", "nodeCrs"})
FINISH_WHEN_DONE = "finishAfterAllTasksDone"


_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class RequestError(ValueError):
    """A request that is refused as a whole; the text is the client's answer."""


def request_variables(number: int, unique: str, cluster: str, day: str, clock: str) -> dict[str, str]:
    """The values of the first phase's variables in one request."""
    dates = {"date": day, "time": clock, "dateTime": f"{day} {clock}"}
    return {"rcnt": str(number), "uniq": unique, "sname": cluster, **dates}


class SubmittedJob:
    """One job of a submit request: its final name, and its description (for a loop made when it is needed)."""

    __slots__ = ("_description", "_index", "_loop", "dialect", "name")

    def __init__(
        self, name: str, dialect: Dialect, description: Description | None, loop: _Loop | None = None, index: int = 0
    ) -> None:
        self.name = name
        self.dialect = dialect
        self._description = description
        self._loop = loop
        self._index = index

    @property
    def loop_free(self) -> bool:
        """False for one index of the specification's loops, which never has iterations of its own."""
        return self._loop is None

    @property
    def after(self) -> tuple[str, ...]:
        """The names of the jobs that it depends on."""
        if self._description is not None:
            return self._description.after
        assert self._loop is not None
        return self._loop.after(self._index)

    @property
    def description(self) -> Description:
        if self._description is not None:
            return self._description
        assert self._loop is not None
        return self._loop.description(self._index)


class Submit(msgspec.Struct):
    jobs: list[SubmittedJob]
    dialect: Dialect


class NamedJobs(msgspec.Struct):
    """jobStatus, jobInfo, cancelJob, removeJob: `kind` says which."""

    kind: str
    names: list[str]
    dialect: Dialect
    with_childs: bool = False


class Plain(msgspec.Struct):
    """status, allJobsFinished, listJobs, resourcesInfo, finish, control: nothing but their kind.

    allJobsFinished is a status request with that option; the one command of control is FINISH_WHEN_DONE.
    """

    kind: str


class ManagerReport(msgspec.Struct):
    """register and notify, which managers send to their governor."""

    kind: str
    params: dict[str, object]


Request: TypeAlias = Submit | NamedJobs | Plain | ManagerReport

MISSING_NAMES = {
    kind: f"Wrong {words} request - missing job names"
    for kind, words in (
        ("jobStatus", "job status"), ("jobInfo", "job info"), ("cancelJob", "cancel job"), ("removeJob", "remove job")
    )
}  # fmt: skip
"""Why a request about jobs that names no job is refused."""

_REPORT_KEYS = {"register": ("manager", ("id", "address", "resources")), "notify": ("job", ("name", "state", "attributes"))}


class _Envelope(msgspec.Struct):
    """The outer level of a request. Jobs stay undecoded: a list of 100,000 is decoded one by one."""

    request: object = None
    jobs: msgspec.Raw = msgspec.Raw()
    command: object = None
    jobName: object = None
    jobNames: object = None
    params: object = None
    options: object = msgspec.field(default_factory=dict)
    entity: object = None


def parse_request(text: bytes, variables: Callable[[], dict[str, str]], preferred: Dialect) -> Request:
    """Reads one request. `preferred` is the dialect of requests that fit both. Raises RequestError."""
    try:
        text.decode()  # parts of it are only read later
        if b"u0000" in text and _NUL.search(text):
            raise RequestError("Invalid request: a text holds a NUL character")
        envelope = msgspec.json.decode(text, type=_Envelope)
    except msgspec.ValidationError:
        raise RequestError("Invalid request: Invalid request") from None
    except JSON_PROBLEMS as error:
        raise RequestError(f"Invalid request: not JSON ({error})") from None
    kind = envelope.request
    if not kind:
        raise RequestError("Invalid request: Invalid request")
    match kind:
        case "submit":
            return _submit(envelope.jobs, variables(), preferred)
        case "control":
            if not isinstance(envelope.command, str):
                raise RequestError("Invalid request: Wrong control request - missing command")
            if envelope.command != FINISH_WHEN_DONE:
                raise RequestError(f'Invalid request: Wrong control request - unknown command "{envelope.command}"')
            return Plain("control")
        case "jobStatus" | "jobInfo" | "cancelJob" | "removeJob":
            return _named(str(kind), envelope)
        case "listJobs" | "resourcesInfo" | "finish":
            return Plain(str(kind))
        case "status":
            return Plain("allJobsFinished" if _mapping("options", envelope.options).get("allJobsFinished") else "status")
        case "register" | "notify":
            return _manager_report(str(kind), envelope)
    raise RequestError(f"Invalid request: Unknown request name: {kind}")


def _named(kind: str, envelope: _Envelope) -> NamedJobs:
    names = envelope.jobNames
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        found = NamedJobs(kind, names, Dialect.LATER)
    elif names is None and isinstance(envelope.jobName, str) and envelope.jobName:
        found = NamedJobs(kind, [envelope.jobName], Dialect.SPECIFICATION)
    else:
        raise RequestError(f"Invalid request: {MISSING_NAMES[kind]}")
    if kind == "jobInfo":
        found.with_childs = bool(_mapping("params", envelope.params or {}).get("withChilds"))
    return found


def _mapping(field: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise RequestError(f"Invalid request: {field}: must be a dictionary, found {quoted(value)}")
    return value


def _manager_report(kind: str, envelope: _Envelope) -> ManagerReport:
    entity, keys = _REPORT_KEYS[kind]
    if envelope.entity != entity:
        raise RequestError(f"Invalid request: Wrong {kind} request - missing/unknown entity")
    if envelope.params is None:
        raise RequestError(f"Invalid request: Wrong {kind} request - missing register parameters")
    if not isinstance(envelope.params, dict) or not all(key in envelope.params for key in keys):
        raise RequestError(f"Invalid request: Wrong {kind} request - missing key {kind} parameters")
    return ManagerReport(kind, envelope.params)


def _decoded(item: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(item)
    except JSON_PROBLEMS as error:  # such as a number out of range
        raise RequestError(f"Invalid request: not JSON ({error})") from None


def _submit(raw: msgspec.Raw, variables: dict[str, str], preferred: Dialect) -> Submit:
    try:
        items = msgspec.json.decode(raw, type=list[msgspec.Raw]) if bytes(raw) else []
    except msgspec.ValidationError:
        items = []
    if not items:
        raise RequestError("Invalid request: Wrong submit request - missing jobs data")
    decoded: Iterator[tuple[object, bool]] = ((_decoded(item), _mentions_dollar(item)) for item in items)
    dialect = preferred
    text = bytes(raw)
    if b'"iterate"' in text or b'"split-into"' in text:
        jobs = list(decoded)
        if any(isinstance(job, dict) and dialect_of(job) is Dialect.SPECIFICATION for job, _ in jobs):
            dialect = Dialect.SPECIFICATION
        decoded = iter(jobs)
    submitted: list[SubmittedJob] = []
    later = False
    for number, (job, variables_inside) in enumerate(decoded, 1):
        try:
            _check_outline(job)
            assert isinstance(job, dict)
            own = dialect_of(job, dialect)
            later = later or own is Dialect.LATER
            if own is Dialect.EITHER and dialect is not Dialect.SPECIFICATION and not variables_inside:
                # The usual job of a long list: nothing to replace.
                name = _name_of(job)
                _check_name(name)
                submitted.append(SubmittedJob(name, own, _described(job, dialect)))
            else:
                submitted.extend(_jobs_of(job, own, dialect, variables if variables_inside else {}))
        except RequestError as error:
            if len(items) == 1:
                raise
            raise RequestError(_naming(str(error), job, number)) from None
    if dialect is not Dialect.SPECIFICATION and later:
        dialect = Dialect.LATER
    return Submit(submitted, dialect)


def _naming(problem: str, job: object, number: int) -> str:
    """The problem with the name of the job: 0.14.2's texts seldom say which of several jobs is wrong."""
    name = job.get("name") if isinstance(job, dict) else None
    if not isinstance(name, str):
        return f"{problem} (job number {number})"
    named = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", problem)
    return problem if named else f"{problem} (job {name})"


def dialect_of(job: Mapping[str, object], preferred: Dialect = Dialect.EITHER) -> Dialect:
    """Which dialect one job description is written in.

    The specification requires resources. A job without them is therefore read as one of 0.14.2 (and refused if it has
    `iterate`), except where its request or file is the specification's (`preferred`): there it asks for one core.
    """
    resources = job.get("resources")
    sizes = [resources.get(key) for key in ("numCores", "numNodes")] if isinstance(resources, dict) else []
    dictionaries = [size for size in sizes if isinstance(size, dict)]
    in_file = preferred is Dialect.SPECIFICATION
    if (resources is not None or in_file) and ("iterate" in job or any("split-into" in size for size in dictionaries)):
        return Dialect.SPECIFICATION
    execution = job.get("execution")
    if (
        (resources is None and not in_file)
        or "iteration" in job
        or "attributes" in job
        or any("scheduler" in size for size in dictionaries)
        or any(isinstance(size, int) for size in sizes)
        or (isinstance(resources, dict) and not LATER_RESOURCES.isdisjoint(resources))
        or (isinstance(execution, dict) and not LATER_EXECUTION.isdisjoint(execution))
    ):
        return Dialect.LATER
    return Dialect.EITHER


def _check_outline(job: object) -> None:
    """What 0.14.2 checks before it looks at any job closely."""
    if not isinstance(job, dict):
        raise RequestError("Invalid request: Wrong submit request - wrong job data")
    if "name" not in job:
        raise RequestError("Invalid request: Missing name in job description")
    if "execution" not in job:
        raise RequestError("Invalid request: Missing execution element in job description")
    if "iteration" in job:
        loop = job["iteration"]
        if not isinstance(loop, dict) or ("stop" not in loop and "values" not in loop):
            raise RequestError("Invalid request: Wrong format of iteration directive: not a dictionary")
        start, stop = loop.get("start", 0), loop.get("stop")
        if isinstance(start, int) and isinstance(stop, int) and start > stop:
            raise RequestError("Invalid request: Wrong format of iteration directive: start index larger then stop one")


def _name_of(job: dict[str, object]) -> str:
    name = job["name"]
    if not isinstance(name, str):
        raise RequestError(f"Wrong submit request: job {quoted(name)}: name: must be a text")
    return name


def _jobs_of(
    job: dict[str, object], own: Dialect, preferred: Dialect, variables: dict[str, str]
) -> Iterator[SubmittedJob]:
    """The job, or all indexes of a loop of the specification. `variables` is empty if the job holds none."""
    dialect = own if own is not Dialect.EITHER else preferred
    name = _name_of(job)
    doubled = dialect is not Dialect.SPECIFICATION
    if dialect is not Dialect.LATER:
        # 0.14.2's dialect leaves unknown variables to the shell.
        known = KNOWN if "iterate" in job else KNOWN - LOOP_ONLY
        for field, variable in unknown_variables(job, known, doubled=doubled):
            raise RequestError(f"Wrong submit request: job {name}: {field}: unknown variable ${{{variable}}}")
    if dialect is Dialect.SPECIFICATION and "iterate" in job:
        yield from _Loop(job, variables).jobs()
        return
    final = replaced(name, variables, doubled=doubled)
    _check_name(final)
    if variables:
        values = {**variables, "jname": final}
        job = {key: replaced_deep(value, values, doubled=doubled) for key, value in job.items()}
    job["name"] = final
    kept = Dialect.EITHER if own is Dialect.EITHER and dialect is Dialect.LATER else dialect
    yield SubmittedJob(final, kept, _described(job, dialect))


def _mentions_dollar(text: msgspec.Raw) -> bool:
    encoded = bytes(text)
    return b"$" in encoded or b"\\u0024" in encoded


def _described(job: Mapping[str, object], dialect: Dialect) -> Description:
    try:
        return describe(job, dialect)
    except DescriptionError as error:
        raise RequestError(f"Wrong submit request: {error}") from None


def _check_name(name: str) -> None:
    if not FORBIDDEN_IN_NAMES.isdisjoint(name):
        raise RequestError(f"Job identifier '({name})' contains invalid characters or unknown variables")


class _Loop:
    """`iterate: [start, stop]`: a template, and the values of its variables at each index."""

    def __init__(self, job: dict[str, object], common: dict[str, str]) -> None:
        bounds = job["iterate"]
        numbers = bounds if isinstance(bounds, list) else []
        if len(numbers) != 2 or not all(map(is_integer, numbers)):
            raise RequestError(
                f"Wrong submit request: job {job['name']}: iterate: must be [start, stop], found {quoted(bounds)}"
            )
        self.start, self.stop = int(numbers[0]), int(numbers[1])
        if not 0 < self.stop - self.start <= MOST_ITERATIONS:
            raise RequestError(
                f"Wrong submit request: job {job['name']}: iterate: stop must be larger than start, found {bounds}"
            )
        self.template = {key: value for key, value in job.items() if key != "iterate"}
        self.common = common

    def values(self, index: int) -> dict[str, str]:
        bounds = {"its": str(self.stop - self.start), "it_start": str(self.start), "it_stop": str(self.stop)}
        values = {**self.common, **bounds, "it": str(index), "uniq": f"{self.common.get('uniq')}-{index}"}
        values["jname"] = replaced(str(self.template["name"]), values)
        return values

    def description(self, index: int) -> Description:
        values = self.values(index)
        job = {key: replaced_deep(value, values) for key, value in self.template.items()}
        return _described(job, Dialect.SPECIFICATION)

    def after(self, index: int) -> tuple[str, ...]:
        return self.description(index).after if "dependencies" in self.template else ()

    def jobs(self) -> Iterator[SubmittedJob]:
        if "${" not in str(self.template["name"]) and self.stop - self.start > 1:
            raise RequestError(
                f"Wrong submit request: job {self.template['name']}: name: must hold ${{it}}, "
                "or all iterations have the same name"
            )
        # One index is checked in full: the others differ in texts only.
        self.description(self.start)
        for index in range(self.start, self.stop):
            name = self.values(index)["jname"]
            _check_name(name)
            yield SubmittedJob(name, Dialect.SPECIFICATION, None, self, index)


def read_requests(path: str | Path) -> list[bytes]:
    """The requests of a request file, each as its own text. Raises InputError."""
    try:
        return split_requests(Path(path).read_bytes(), str(path))
    except OSError as error:
        raise InputError(str(path), "cannot be read", found=error.strerror or "") from None
    except RequestError as error:
        raise InputError("", str(error)) from None


def split_requests(text: bytes, where: str) -> list[bytes]:
    """The requests of a request file, each as its own text. Raises RequestError."""
    try:
        return [bytes(raw) for raw in msgspec.json.decode(text, type=list[msgspec.Raw])]
    except msgspec.ValidationError:
        problem = "Not an array of requests in json file"
        try:
            msgspec.json.decode(text, type=msgspec.Raw)
        except JSON_PROBLEMS as error:
            problem = f"Wrong job description: {error}"
        raise RequestError(f"{where}: {problem}") from None
    except JSON_PROBLEMS as error:
        raise RequestError(f"{where}: Wrong job description: {error}") from None


_MARKS = tuple(
    f'"{word}"'.encode()
    for word in ("iterate", "split-into", "jobName", "jobNames", "iteration", "scheduler", "status", "jobInfo")
)


def preferred_dialect(requests: list[bytes]) -> Dialect:
    """The dialect of a request file as a whole: what its unambiguous requests are written in."""
    found = Dialect.EITHER
    for text in requests:
        if not any(mark in text for mark in _MARKS):
            continue  # a list of 100,000 plain jobs need not be read twice
        try:
            data = msgspec.json.decode(text)
        except JSON_PROBLEMS:
            continue
        if not isinstance(data, dict):
            continue
        if isinstance(data.get("jobName"), str):
            return Dialect.SPECIFICATION
        jobs = data.get("jobs")
        for job in jobs if isinstance(jobs, list) else ():
            own = dialect_of(job) if isinstance(job, dict) else Dialect.EITHER
            if own is Dialect.SPECIFICATION or (isinstance(job, dict) and "iterate" in job and "iteration" not in job):
                return Dialect.SPECIFICATION
            if own is Dialect.LATER:
                found = own
        if "jobNames" in data or data.get("request") in ("status", "jobInfo"):
            found = Dialect.LATER
    return found
