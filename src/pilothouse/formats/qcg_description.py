"""Job descriptions of QCG in both dialects, checked field by field.

Comes in: one job of a submit request, decoded from JSON. Goes out: a `Description`, or a `DescriptionError`. Its text
is that of QCG PilotJob 0.14.2 where that is known (users' scripts match it), otherwise it names the job and the field.
The specification's dialect takes the fields that 0.14 added to jobs, too: wt, nodeCrs, script, modules, venv, model, attributes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeGuard

import msgspec

from pilothouse.formats.qcg_dialect import LATER, Dialect
from pilothouse.model.errors import quoted

MOST_ITERATIONS = 10_000_000
"""The longest loop that is accepted: a typing error must not fill the memory."""

_WALLTIME = re.compile("(?:([0-9]{1,12})h)?(?:([0-9]{1,12})m)?(?:([0-9]{1,12})s)?")
_CONSUMABLES = {"gpu": "gpus", "mem": "memory"}


class DescriptionError(ValueError):
    """A job description that is refused; the text is the client's answer."""


def is_integer(value: object) -> TypeGuard[int]:
    """JSON's true and false are integers for Python."""
    return isinstance(value, int) and not isinstance(value, bool)


class Size(msgspec.Struct, frozen=True):
    """A number of cores or nodes: exact, a range, or computed by an iteration scheduler."""

    exact: int | None = None
    least: int | None = None
    most: int | None = None
    scheduler: str = ""
    """"split-into" or "maximum-iters": the size depends on the allocation and on the number of iterations."""
    parts: int = 0
    inside: bool = False
    """`split-into` was written inside the size (the specification): it limits the size instead of fixing it."""

    @property
    def minimum(self) -> int:
        return self.exact if self.exact is not None else (self.least or 0)

    def written(self) -> dict[str, object]:
        """The size as reports show it."""
        result: dict[str, object] = {}
        for key, value in (("exact", self.exact), ("min", self.least), ("max", self.most)):
            if value is not None:
                result[key] = value
        if self.inside:
            result["split-into"] = self.parts
        elif self.scheduler:
            result["scheduler"] = {"name": self.scheduler} | ({"params": {"parts": self.parts}} if self.parts else {})
        return result


class Resources(msgspec.Struct, frozen=True):
    cores: Size | None = None
    nodes: Size | None = None
    walltime_s: float | None = None
    gpus: int = 0
    memory: int = 0

    @property
    def consumables(self) -> bool:
        return bool(self.gpus or self.memory)

    @property
    def scheduled(self) -> bool:
        """Whether an iteration scheduler computes a size."""
        return any(size is not None and size.scheduler for size in (self.cores, self.nodes))

    def written(self, *, walltime: bool = False) -> dict[str, object]:
        result: dict[str, object] = {}
        if self.cores is not None:
            result["numCores"] = self.cores.written()
        if self.nodes is not None:
            result["numNodes"] = self.nodes.written()
        if self.consumables:
            counts = (("GPU", self.gpus), ("MEM", self.memory))
            result["nodeCrs"] = {name: count for name, count in counts if count}
        if walltime and self.walltime_s is not None:
            result["wt"] = f"{int(self.walltime_s)}s"
        return result


ONE_CORE = Resources(cores=Size(exact=1))
"""The default of 0.14.2."""


class Execution(msgspec.Struct, frozen=True):
    exec: str | None = None
    script: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    wd: str | None = None
    stdin: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    modules: tuple[str, ...] | None = None
    venv: str | None = None
    model: str | None = None
    model_opts: dict[str, object] = {}

    @property
    def program(self) -> str:
        """The name of the process as the user wrote it."""
        return "bash" if self.script else (self.exec or "").rpartition("/")[2]

    def written(self) -> dict[str, object]:
        result: dict[str, object] = {"exec": self.exec, "args": self.args, "env": self.env, "script": self.script}
        for key in ("wd", "stdin", "stdout", "stderr", "modules", "venv", "model"):
            if (value := getattr(self, key)) is not None:
                result[key] = value
        result["model_opts"] = self.model_opts
        return result


class Iteration(msgspec.Struct, frozen=True):
    """Indexes start .. stop-1; with `values` each index stands for a word."""

    start: int
    stop: int
    values: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return self.stop - self.start

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and self.start <= index < self.stop

    def value(self, index: int) -> str:
        return self.values[index - self.start] if self.values is not None else str(index)


class Description(msgspec.Struct, frozen=True):
    name: str
    execution: Execution
    resources: Resources = ONE_CORE
    iteration: Iteration | None = None
    after: tuple[str, ...] = ()
    attributes: dict[str, object] | None = None
    dialect: Dialect = LATER

    def written(self) -> dict[str, object]:
        """The description as 0.14.2 writes it into track.reqs, from which a resumed manager reads it."""
        result: dict[str, object] = {
            "name": self.name,
            "execution": self.execution.written(),
            "resources": self.resources.written(walltime=True),
        }
        if self.iteration is not None:
            start, stop, values = self.iteration.start, self.iteration.stop, self.iteration.values
            result["iteration"] = {"values": list(values)} if values is not None else {"start": start, "stop": stop}
        if self.after:
            result["dependencies"] = {"after": list(self.after)}
        if self.attributes is not None:
            result["attributes"] = self.attributes
        return result


def describe(raw: Mapping[str, object], dialect: Dialect) -> Description:
    """Checks one job. Variables of the first phase have been replaced already. Raises DescriptionError."""
    where = _Where(str(raw.get("name")), dialect)
    for key in raw:
        if key not in ("name", "execution", "resources", "dependencies", "attributes", "iteration"):
            raise where.unknown(key, "Job")
    if dialect.loops_are_jobs and "iteration" in raw:
        raise where.wrong("iteration", 'unknown in this dialect: use "iterate": [start, stop], or choose the dialect 0.14')
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        raise where.wrong("name", "must be a text", name)
    if ":" in name:
        raise DescriptionError(f"Invalid job name {name}")
    execution = raw.get("execution")
    if not isinstance(execution, dict):
        raise DescriptionError("Job execution not defined or wrong type")
    attributes = raw.get("attributes")
    if attributes is not None and not isinstance(attributes, dict):
        raise DescriptionError("Job attributes must be dictionary")
    return Description(
        name=name,
        execution=_execution(execution, where),
        resources=_resources(raw, where),
        iteration=_iteration(raw.get("iteration"), where),
        after=_after(raw.get("dependencies"), where),
        attributes=attributes,
        dialect=dialect,
    )


class _Where:
    """The job that is being checked, for error texts."""

    def __init__(self, job: str, dialect: Dialect) -> None:
        self.job = job
        self.dialect = dialect

    def unknown(self, field: str, peers_class: str) -> DescriptionError:
        if self.dialect.sizes_required:
            return self.wrong(field, "an unknown field")
        # QUIRK: 0.14.2 shows its Python error here, and clients match it (tests/golden/qcg, 04-errors).
        key = field.rpartition("/")[2]
        return DescriptionError(f"{peers_class}.__init__() got an unexpected keyword argument '{key}'")

    def wrong(self, field: str, problem: str, found: object = None) -> DescriptionError:
        shown = f", found {quoted(found)}" if found is not None else ""
        return DescriptionError(f"job {self.job}: {field}: {problem}{shown}")


def _execution(raw: Mapping[str, object], where: _Where) -> Execution:
    fields = Execution.__struct_fields__
    for key in raw:
        if key not in fields:
            raise where.unknown(f"execution/{key}", "JobExecution")
    program, script = raw.get("exec"), raw.get("script")
    if not program and not script:
        raise DescriptionError("Job execution (exec or script) not defined")
    if script and (program or raw.get("args") or raw.get("env")):
        raise DescriptionError("Job script and exec or args or env defined")
    args, env, options, modules = raw.get("args"), raw.get("env"), raw.get("model_opts"), raw.get("modules")
    if args is not None and not isinstance(args, list):
        raise DescriptionError("Execution arguments must be an array")
    if env is not None and not isinstance(env, dict):
        raise DescriptionError("Execution environment must be an dictionary")
    if options is not None and not isinstance(options, dict):
        raise DescriptionError("Execution model options must be an dictionary")
    if isinstance(modules, str):
        modules = [modules]
    if modules is not None and not (isinstance(modules, list) and all(isinstance(m, str) for m in modules)):
        raise where.wrong("execution/modules", "must be a list of names", modules)
    texts: dict[str, str] = {}
    for key, value in raw.items():
        if key in _TEXTS and value is not None:
            if not isinstance(value, str):
                raise where.wrong(f"execution/{key}", "must be a text", value)
            texts[key] = value
    model = texts.pop("model", "").lower() or None
    if model is not None and model not in MODELS:
        raise where.wrong("execution/model", f"must be one of {', '.join(sorted(MODELS))}", model)
    return Execution(
        args=tuple(str(arg) for arg in args) if args else (),
        env={str(key): str(value) for key, value in env.items()} if env else _NO_ENV,
        modules=tuple(modules) if modules is not None else None,
        model=model,
        model_opts=options if options else _NO_OPTIONS,
        **texts,
    )


_TEXTS = frozenset({"exec", "script", "wd", "stdin", "stdout", "stderr", "venv", "model"})
MODELS = frozenset({"default", "threads", "openmpi", "intelmpi", "srunmpi"})
_NO_ENV: dict[str, str] = {}
_NO_OPTIONS: dict[str, object] = {}
_last: list[tuple[bytes, Dialect, Resources]] = [(b"", LATER, ONE_CORE)]
"""The last resources that were read, as text (1, 1.0 and true are equal otherwise). Jobs of one list mostly ask for the same:
they share one object."""


def _resources(job: Mapping[str, object], where: _Where) -> Resources:
    if "resources" not in job:
        if where.dialect.sizes_required:
            raise where.wrong("resources", 'missing; expected such as {"numCores": {"exact": 1}}')
        return ONE_CORE
    raw = job["resources"]
    text = msgspec.json.encode(raw)
    known, dialect, resources = _last[0]
    if text != known or where.dialect is not dialect:
        resources = _new_resources(raw, where)
        _last[0] = (text, where.dialect, resources)
    return resources


def _new_resources(raw: object, where: _Where) -> Resources:
    if not isinstance(raw, dict):
        raise DescriptionError("Job resources not defined or wrong type")
    for key in raw:
        if key not in ("numCores", "numNodes", "wt", "nodeCrs"):
            raise where.unknown(f"resources/{key}", "JobResources")
    cores, nodes = raw.get("numCores"), raw.get("numNodes")
    if cores is None and nodes is None:
        raise DescriptionError("No resources defined")
    return Resources(
        cores=_size(cores, "numCores", where),
        nodes=_size(nodes, "numNodes", where),
        walltime_s=_walltime(raw.get("wt"), where),
        **_consumables(raw.get("nodeCrs")),
    )


def _size(raw: object, field: str, where: _Where) -> Size | None:
    if raw is None:
        return None
    dialect = where.dialect
    if is_integer(raw) and not dialect.sizes_required:
        raw = {"exact": raw}
    if not isinstance(raw, dict):
        if dialect.sizes_required:
            raise where.wrong(f"resources/{field}", "must be a dictionary with exact, min or max", raw)
        raise DescriptionError(f"Wrong definition of number of {field[3:].lower()} ({type(raw).__name__})")
    known = {"exact", "min", "max", "split-into" if dialect.split_inside else "scheduler"}
    numbers: dict[str, int | None] = {}
    for key, value in raw.items():
        if key not in known:
            raise where.unknown(f"resources/{field}/{key}", "ResourceSize")
        if key == "scheduler" or value is None:
            continue
        if not is_integer(value):
            raise where.wrong(f"resources/{field}/{key}", "must be a whole number", value)
        numbers[key] = value
    scheduler, parts = _scheduler(raw.get("scheduler"), field, where)
    exact, least, most = numbers.get("exact"), numbers.get("min"), numbers.get("max")
    split = numbers.get("split-into")
    if exact is not None and (least is not None or most is not None or scheduler or split is not None):
        raise DescriptionError("Exact number of resources defined with min/max/scheduler")
    if least is not None and most is not None and least > most:
        raise DescriptionError("Maximum number greater than minimal")
    if exact is None and least is None and most is None:
        if split is None:
            raise DescriptionError("No resources defined")
        least = 1  # the specification says that min comes along; the program of 2018 takes such a job, too
    if any(number is not None and number < 0 for number in (exact, least, most)):
        # QUIRK: the spelling is 0.14.2's (tests/unit/formats/test_qcg_requests.py).
        raise DescriptionError("Neative number of resources")
    if most == 0 and not dialect.too_large_fails:
        raise where.wrong(f"resources/{field}", "must be at least 1", 0)
    if split is not None:
        if split < 1:
            raise where.wrong(f"resources/{field}/split-into", "must be at least 1", split)
        if most is not None:
            # The specification: split-into is itself the upper end of the range.
            raise where.wrong(f"resources/{field}/split-into", "is the upper end of the range: max must not be beside it")
        return Size(least=least, scheduler="split-into", parts=split, inside=True)
    return Size(exact=exact, least=least, most=most, scheduler=scheduler, parts=parts)


def _scheduler(raw: object, field: str, where: _Where) -> tuple[str, int]:
    if raw is None:
        return "", 0
    if isinstance(raw, str):
        raw = {"name": raw}  # what the client library's short form sends
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        raise where.wrong(f"resources/{field}/scheduler", "must be a dictionary with a name", raw)
    name = str(raw["name"]).lower()
    if name not in ("split-into", "maximum-iters"):
        raise where.wrong(f"resources/{field}/scheduler/name", "must be split-into or maximum-iters", name)
    params = raw.get("params", {})
    if not isinstance(params, dict):
        raise where.wrong(f"resources/{field}/scheduler/params", "must be a dictionary", params)
    if name != "split-into" or "parts" not in params:
        return name, 0
    parts = params["parts"]
    if not is_integer(parts) or parts < 1:
        raise where.wrong(f"resources/{field}/scheduler/params/parts", "must be a positive number", parts)
    return name, parts


def _walltime(raw: object, where: _Where) -> float | None:
    if raw is None:
        return None
    if not isinstance(raw, str):
        raise where.wrong("resources/wt", "must be a text such as 1h30m or 10s", raw)
    match = _WALLTIME.fullmatch(raw.strip())
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = hours * 3600 + minutes * 60 + seconds
    if total == 0:
        raise DescriptionError("Wall time must be greater than 0")
    return float(total)


def _consumables(raw: object) -> dict[str, int]:
    """GPUs and memory, as fields of Resources."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        kind = type(raw).__name__
        raise DescriptionError(f"Wrong definition of Consumable Resources {kind} (must be a dictionary)")
    counts: dict[str, int] = {}
    for name, count in raw.items():
        known = _CONSUMABLES.get(str(name).lower())
        if known is None:
            raise DescriptionError(f"Unknown consumable resource {name}")
        if known in counts:
            raise DescriptionError(f"Consumable resource {name} already defined")
        if not is_integer(count):
            raise DescriptionError(f"Consumable resource {name} count not a number {type(count).__name__}")
        if count < 1:
            raise DescriptionError(f"Number of consumable resource {name} must be greater than 0")
        counts[known] = count
    return counts


def _iteration(raw: object, where: _Where) -> Iteration | None:
    if raw is None:
        return None
    if not isinstance(raw, dict) or not set(raw) <= {"start", "stop", "values"}:
        raise DescriptionError("Job iteration wrong specification")
    values, stop, start = raw.get("values"), raw.get("stop"), raw.get("start")
    if stop is None and values is None:
        raise DescriptionError("Missing stop or values iteration value")
    if stop is not None and values is not None:
        raise DescriptionError("Stop and values iteration are excluding")
    if values is not None:
        if not isinstance(values, list) or not values:
            raise where.wrong("iteration/values", "must be a list of at least one value", values)
        return Iteration(0, len(values), tuple(str(value) for value in values))
    start = start if start is not None else 0
    if not is_integer(start):
        raise where.wrong("iteration/start", "must be a whole number", start)
    if not is_integer(stop):
        raise where.wrong("iteration/stop", "must be a whole number", stop)
    if start >= stop:
        raise DescriptionError("Job iteration stop greater or equal than start")
    if stop - start > MOST_ITERATIONS:
        raise where.wrong("iteration", f"must not be longer than {MOST_ITERATIONS}", stop - start)
    return Iteration(start, stop)


def _after(raw: object, where: _Where) -> tuple[str, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, dict):
        raise DescriptionError("Job dependencies wrong type")
    for key in raw:
        if key != "after":
            if where.dialect.sizes_required:
                raise where.wrong(f"dependencies/{key}", "an unknown field")
            raise DescriptionError("Job dependencies wrong specification")
    names = raw.get("after")
    if names is None:
        if where.dialect.sizes_required:
            raise where.wrong("dependencies/after", "missing; expected a list of job names")
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DescriptionError("Dependency task's list must be an array of job names")
    return tuple(names)
