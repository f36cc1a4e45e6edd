"""QCG requests: JSON in, typed requests out, in the dialect that the manager speaks.

Comes in: the text of one request, or a file with a list of them. Goes out: a `Request`, whose jobs are checked and
whose variables of the first phase are replaced, or a `RequestError` with the text of the refusal.

Each index of a loop of the specification is a job of its own (its name holds `${it}`). Such jobs share one template,
and are described when they are needed, so that a long loop takes little memory before it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from pilothouse.formats.qcg_description import (
    MOST_ITERATIONS,
    Description,
    DescriptionError,
    describe,
    is_integer,
)
from pilothouse.formats.qcg_dialect import Dialect
from pilothouse.formats.qcg_variables import replaced, replaced_deep
from pilothouse.formats.text_input import JSON_PROBLEMS
from pilothouse.model.errors import InputError, quoted

FORBIDDEN_IN_NAMES = frozenset("${}()'\" \t\n")
LINE_BREAKS = frozenset("\r\n")
"""They would spoil the text report."""
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

    __slots__ = ("_description", "_index", "_loop", "name")

    def __init__(self, name: str, description: Description | None, loop: _Loop | None = None, index: int = 0) -> None:
        self.name = name
        self._description = description
        self._loop = loop
        self._index = index

    @property
    def loop_free(self) -> bool:
        """False for one index of the specification's loops, which never has iterations of its own."""
        return self._loop is None

    @property
    def dialect(self) -> Dialect:
        """The dialect that it is written in."""
        if self._description is not None:
            return self._description.dialect
        assert self._loop is not None
        return self._loop.dialect

    @property
    def is_first(self) -> bool:
        """Whether it is the first index of its loop, or in no loop: the others differ in texts only."""
        return self._loop is None or self._index == self._loop.start

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


class NamedJobs(msgspec.Struct):
    """jobStatus, jobInfo, cancelJob, removeJob: `kind` says which."""

    kind: str
    names: list[str]
    one: bool = False
    """Named by `jobName`, the specification's form."""
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


def parse_request(text: bytes, variables: Callable[[], dict[str, str]], dialect: Dialect) -> Request:
    """Reads one request. Raises RequestError."""
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
            return _submit(envelope.jobs, variables(), dialect)
        case "control":
            if not isinstance(envelope.command, str):
                raise RequestError("Invalid request: Wrong control request - missing command")
            if envelope.command != FINISH_WHEN_DONE:
                raise RequestError(f'Invalid request: Wrong control request - unknown command "{envelope.command}"')
            return Plain("control")
        case "jobStatus" | "jobInfo" | "cancelJob" | "removeJob":
            return _named(str(kind), envelope, dialect)
        case "listJobs" | "resourcesInfo" | "finish":
            return Plain(str(kind))
        case "status":
            return Plain("allJobsFinished" if _mapping("options", envelope.options).get("allJobsFinished") else "status")
        case "register" | "notify":
            return _manager_report(str(kind), envelope)
    raise RequestError(f"Invalid request: Unknown request name: {kind}")


def _named(kind: str, envelope: _Envelope, dialect: Dialect) -> NamedJobs:
    names = envelope.jobNames
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        found = NamedJobs(kind, names)
    elif dialect.one_name and names is None and isinstance(envelope.jobName, str) and envelope.jobName:
        found = NamedJobs(kind, [envelope.jobName], one=True)
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


def _submit(raw: msgspec.Raw, variables: dict[str, str], dialect: Dialect) -> Submit:
    try:
        items = msgspec.json.decode(raw, type=list[msgspec.Raw]) if bytes(raw) else []
    except msgspec.ValidationError:
        items = []
    if not items:
        raise RequestError("Invalid request: Wrong submit request - missing jobs data")
    submitted: list[SubmittedJob] = []
    for number, item in enumerate(items, 1):
        job = _decoded(item)
        try:
            _check_outline(job)
            assert isinstance(job, dict)
            submitted.extend(_jobs_of(job, dialect, variables if _mentions_dollar(item) else {}))
        except RequestError as error:
            if len(items) == 1:
                raise
            raise RequestError(_naming(str(error), job, number)) from None
    return Submit(submitted)


def _naming(problem: str, job: object, number: int) -> str:
    """The problem with the name of the job: 0.14.2's texts seldom say which of several jobs is wrong."""
    name = job.get("name") if isinstance(job, dict) else None
    if not isinstance(name, str):
        return f"{problem} (job number {number})"
    named = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", problem)
    return problem if named else f"{problem} (job {name})"


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


def _name_of(job: dict[str, object], dialect: Dialect) -> str:
    name = job["name"]
    if dialect.any_name and is_integer(name):
        return str(name)
    if not isinstance(name, str):
        raise RequestError(f"Wrong submit request: job {quoted(name)}: name: must be a text")
    return name


def _jobs_of(job: dict[str, object], dialect: Dialect, variables: dict[str, str]) -> Iterable[SubmittedJob]:
    """The job, or all indexes of a loop of the specification. `variables` is empty if the job holds none."""
    if dialect.loops_are_jobs and "iterate" in job:
        return _Loop(job, variables, dialect).jobs()
    final = replaced(_name_of(job, dialect), variables)
    _check_name(final, dialect)
    if variables:
        values = {**variables, "jname": final}
        job = {key: replaced_deep(value, values) for key, value in job.items()}
    job["name"] = final
    return (SubmittedJob(final, _described(job, dialect)),)


def _mentions_dollar(text: msgspec.Raw) -> bool:
    encoded = bytes(text)
    return b"$" in encoded or b"\\u0024" in encoded


def _described(job: Mapping[str, object], dialect: Dialect) -> Description:
    try:
        return describe(job, dialect)
    except DescriptionError as error:
        raise RequestError(f"Wrong submit request: {error}") from None


def _check_name(name: str, dialect: Dialect) -> None:
    forbidden = LINE_BREAKS if dialect.any_name else FORBIDDEN_IN_NAMES
    if not forbidden.isdisjoint(name):
        raise RequestError(f"Job identifier '({name})' contains invalid characters or unknown variables")


class _Loop:
    """`iterate: [start, stop]`: a template, and the values of its variables at each index."""

    def __init__(self, job: dict[str, object], common: dict[str, str], dialect: Dialect) -> None:
        bounds = job["iterate"]
        numbers = bounds if isinstance(bounds, list) else []
        if len(numbers) != 2 or not all(map(is_integer, numbers)):
            raise RequestError(
                f"Wrong submit request: job {job['name']}: iterate: must be [start, stop], found {quoted(bounds)}"
            )
        self.start, self.stop = int(numbers[0]), int(numbers[1])
        if not 0 <= self.stop - self.start <= MOST_ITERATIONS:
            raise RequestError(
                f"Wrong submit request: job {job['name']}: iterate: stop must not be smaller than start, found {bounds}"
            )
        self.template = {key: value for key, value in job.items() if key != "iterate"}
        self.template["name"] = _name_of(job, dialect)
        self.common = common
        self.dialect = dialect

    def values(self, index: int) -> dict[str, str]:
        bounds = {"its": str(self.stop - self.start), "it_start": str(self.start), "it_stop": str(self.stop)}
        values = {**self.common, **bounds, "it": str(index), "uniq": f"{self.common.get('uniq')}-{index}"}
        values["jname"] = replaced(str(self.template["name"]), values)
        return values

    def description(self, index: int) -> Description:
        values = self.values(index)
        job = {key: replaced_deep(value, values) for key, value in self.template.items()}
        return _described(job, self.dialect)

    def after(self, index: int) -> tuple[str, ...]:
        return self.description(index).after if "dependencies" in self.template else ()

    def jobs(self) -> Iterator[SubmittedJob]:
        # One index is checked in full: the others differ in texts only.
        self.description(self.start)
        for index in range(self.start, self.stop):
            name = self.values(index)["jname"]
            _check_name(name, self.dialect)
            yield SubmittedJob(name, None, self, index)


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
