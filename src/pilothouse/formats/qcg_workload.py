"""QCG requests as a workload: what each job asks of a cluster, and how long it takes in simulation.

`Sizing` turns the sizes of a description into units (cores) and a shape, for the live manager and for simulations.
`load_workload` reads a request file: its submit requests become jobs with a delay each, iterations become jobs
`name:index`, dependencies become `after`. `Durations` says how long a job takes: one number for all, a file of
`name,seconds` (a name may be a job or an iteration), or the report of an earlier run.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from math import inf
from pathlib import Path

import msgspec

from pilothouse.formats.qcg_description import Description, Iteration, Resources, Size
from pilothouse.formats.qcg_dialect import SPECIFICATION, Dialect
from pilothouse.formats.qcg_requests import (
    RequestError,
    Submit,
    SubmittedJob,
    parse_request,
    read_requests,
    request_variables,
)
from pilothouse.formats.qcg_variables import replaced
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.profile import Delay, Profile

DEFAULT_SECONDS = 60.0
"""How long a job takes in simulation if no duration is given."""


class Unfit(ValueError):
    """A job that is too large for the whole allocation; the text is shown to the user."""


class Totals(msgspec.Struct, frozen=True):
    """How large the allocation is."""

    cores: int
    nodes: int
    smallest_node: int
    gpus: int = 0
    memory_mb: int = 0

    @classmethod
    def of(cls, nodes: tuple[Node, ...]) -> Totals:
        counts = [node.count for node in nodes] or [0]
        return cls(
            cores=sum(counts),
            nodes=len(nodes),
            smallest_node=min(counts),
            gpus=max((node.gpus for node in nodes), default=0),
            memory_mb=max((node.memory_mb for node in nodes), default=0),
        )


class UnitRequest(msgspec.Struct, frozen=True):
    """Units (per node where the shape names nodes), and the shape."""

    units: int
    most_units: int
    shape: Shape | None


class Sizing:
    """What each iteration of one job asks for. Iteration schedulers are computed once for all iterations."""

    def __init__(self, description: Description, totals: Totals) -> None:
        self._resources = resources = _without_zeros(description.resources)
        self._totals = totals
        self._open_ranges = description.dialect.open_ranges
        per_node = totals.cores if resources.nodes is None else totals.smallest_node
        self._cores = _planned_sizes(resources.cores, description.iteration, per_node)
        self._nodes = _planned_sizes(resources.nodes, description.iteration, totals.nodes)
        self._plain: UnitRequest | None = None

    def request(self, position: int) -> UnitRequest:
        """What the iteration at `position` (from 0) asks for. Raises Unfit."""
        if self._plain is not None:
            return self._plain
        resources, totals = self._resources, self._totals
        if resources.consumables:
            _check_consumables(resources, totals)
        may_be_open = self._open_ranges
        least_cores, most_cores = _range(resources.cores, self._cores, position, totals.cores, "core", may_be_open=may_be_open)
        least_nodes, most_nodes = _range(resources.nodes, self._nodes, position, totals.nodes, "node", may_be_open=may_be_open)
        shape = None
        if resources.nodes is not None:
            shape = Shape(least_nodes, most_nodes, gpus_per_node=resources.gpus, memory_mb_per_node=resources.memory)
        request = UnitRequest(least_cores, most_cores if most_cores != least_cores else 0, shape)
        if self._cores is None and self._nodes is None:
            self._plain = request
        return request


def iteration_sizes(size: Size, iterations: int, total: int) -> Iterator[int]:
    """The exact size of each iteration in turn, on an allocation with `total` cores (or nodes).

    split-into cuts the allocation into `parts` (or one part per iteration) and gives each iteration one of them.
    maximum-iters runs as many iterations at once as their minimum allows, in as few rounds as possible, and shares
    the whole allocation among those of one round. Raises Unfit where nothing is left for an iteration.
    """
    if size.most is not None:
        raise Unfit("Wrong submit request - split-into directive mixed with max directive")
    if size.scheduler == "split-into":
        part = total // (size.parts or iterations)
        if part < 1:
            raise Unfit("Wrong submit request - split-into resolved to zero")
        for _ in range(iterations):
            yield part
        return
    at_once = total // max(1, size.least or 1)
    if at_once < 1:
        raise Unfit("Wrong submit request - maximum-iters resolved to zero")
    rounds = -(-iterations // at_once)
    left = iterations
    for done in range(rounds):
        in_round = -(-left // (rounds - done))
        free = total
        for index in range(in_round):
            share = free // (in_round - index)
            free -= share
            yield share
        left -= in_round


def _without_zeros(resources: Resources) -> Resources:
    """A size of 0 is the same as no size."""
    cores, nodes = (None if size is None or size.exact == 0 else size for size in (resources.cores, resources.nodes))
    if cores is None and nodes is None:
        raise Unfit("Missing node and cores specification")
    if cores is resources.cores and nodes is resources.nodes:
        return resources
    return msgspec.structs.replace(resources, cores=cores, nodes=nodes)


def _planned_sizes(size: Size | None, loop: Iteration | None, total: int) -> list[int] | None:
    if size is None or not size.scheduler or size.inside:
        return None
    if loop is None and size.most is not None:
        return None  # a plain range: schedulers are for loops
    return list(iteration_sizes(size, len(loop) if loop is not None else 1, total))


def _range(
    size: Size | None, planned: list[int] | None, position: int, total: int, what: str, *, may_be_open: bool
) -> tuple[int, int]:
    if size is None:
        return 0, 0
    if planned is not None:
        return planned[position], planned[position]
    if size.exact is not None:
        return size.exact, size.exact
    least, most = max(1, size.least or 1), size.most
    if size.inside:
        # The specification: the range is <min, total / split-into>.
        most = total // size.parts
        if most < least:
            raise Unfit(f"Wrong submit request - split-into leaves {most} {what}s of {total} for a job that needs {least}")
    elif not may_be_open and (size.least is None or most is None):
        raise Unfit(f"Both {what}'s range boundaries (min, max) must be defined")
    elif most == 0:
        raise Unfit(f"a job with no {what}s cannot run")
    return least, max(least, total) if most is None else most


def _check_consumables(resources: Resources, totals: Totals) -> None:
    if resources.nodes is None:
        raise Unfit("Number of nodes is required when CR are used")
    for name, wanted, there in (("GPU", resources.gpus, totals.gpus), ("MEM", resources.memory, totals.memory_mb)):
        if wanted > there:
            raise Unfit(f"CR {name} exceeds maximum available resources on node ({there})")


def fits_ever(resources: Resources, nodes: tuple[Node, ...]) -> bool:
    """Whether the minimum that a job asks for fits into the whole allocation."""
    cores = resources.cores.minimum if resources.cores is not None else 0
    if resources.nodes is not None:
        wanted = resources.nodes.minimum
        if sum(node.count >= cores for node in nodes) < wanted:
            return False
        cores = max(1, cores) * wanted
    return cores <= sum(node.count for node in nodes)


_REPORTED = re.compile(r"(\S+) \([A-Z]+\)")


class Durations:
    """How long jobs take in simulation."""

    def __init__(self, default_s: float = DEFAULT_SECONDS, known: dict[str, float] | None = None) -> None:
        self.default_s = default_s
        self.known = known or {}

    @classmethod
    def named(cls, text: str) -> Durations:
        """A number of seconds, or the path of a file: `name,seconds` lines, or a jobs.report of an earlier run."""
        if not text:
            return cls()
        try:
            seconds = float(text)
        except ValueError:
            return cls(known=dict(_read_durations(Path(text))))
        if not 0 <= seconds < inf:
            raise InputError("durations", "not a number of seconds", found=quoted(text))
        return cls(seconds)

    def of(self, name: str) -> float:
        found = self.known.get(name)
        return found if found is not None else self.known.get(name.partition(":")[0], self.default_s)


def _read_durations(path: Path) -> Iterator[tuple[str, float]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(str(path), "cannot be read", found=error.strerror or "", hint="seconds, or a file") from None
    reported = ""
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{path}:{number}"
        if heading := _REPORTED.match(line):
            reported = heading[1]
            continue
        if reported and line[0] in "\t ":
            # The text form of a report: history, place and run time below the job's name.
            key, _, value = line.strip().partition(": ")
            if key == "rtime":
                yield reported, parse_rtime(value, where)
            continue
        if line.startswith("{"):
            entry = msgspec.json.decode(line)
            runtime = entry.get("runtime", {}) if isinstance(entry, dict) else {}
            if "rtime" in runtime:
                yield str(entry["name"]), parse_rtime(str(runtime["rtime"]), where)
            continue
        row = next(csv.reader([line]))
        try:
            name, seconds = row[0].strip(), float(row[1])
        except (IndexError, ValueError):
            if number == 1:  # a header
                continue
            raise InputError(where, "not a duration", expected="name,seconds", found=quoted(line)) from None
        yield name, seconds


def parse_rtime(text: str, where: str) -> float:
    """`0:00:06.082136`, or `1 day, 2:00:00.5`, in seconds."""
    days, _, clock = text.rpartition("day")
    try:
        hours, minutes, seconds = clock.lstrip("s, ").split(":")
        found = int(days or 0) * 86400 + int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        if not 0 <= found < inf:
            raise ValueError(found)
        return found
    except (ValueError, OverflowError):
        raise InputError(where, "not a run time", expected="h:mm:ss.ffffff", found=quoted(text)) from None


def load_workload(
    path: str | Path, durations: Durations, nodes: tuple[Node, ...], *, name: str = "w0", dialect: Dialect = SPECIFICATION
) -> Workload:
    """The jobs of a request file, all submitted at 0 in the order in which they are written. Raises InputError."""
    where = str(path)
    submitted: list[SubmittedJob] = []
    requests = read_requests(path)
    try:
        for number, request_text in enumerate(requests, 1):
            # There are no dates in simulation: every request comes at 0.
            variables = request_variables(number, f"request-{number}", "local", "1970-01-01", "00:00:00")
            request = parse_request(request_text, lambda variables=variables: variables, dialect)  # type: ignore[misc]
            if isinstance(request, Submit):
                submitted.extend(request.jobs)
    except RequestError as error:
        raise InputError(where, str(error)) from None
    jobs = list(_Reader(name, durations, nodes, where).jobs(submitted))
    profiles = {job.profile.name: job.profile for job in jobs if job.profile is not None}
    return Workload(name, str(Path(path).absolute()), 0, jobs, profiles)


class _Reader:
    """Turns accepted jobs into simulated ones."""

    def __init__(self, workload: str, durations: Durations, nodes: tuple[Node, ...], where: str) -> None:
        self._workload = workload
        self._durations = durations
        self._totals = Totals.of(nodes)
        self._where = where
        self._loops: dict[str, Iteration] = {}
        self._profiles: dict[float, Profile] = {}

    def jobs(self, submitted: list[SubmittedJob]) -> Iterator[Job]:
        seen: set[str] = set()
        for job in submitted:
            if job.name in seen:
                raise InputError(self._where, f"Job {job.name} already exist")
            seen.add(job.name)
            if job.loop_free and job.description.iteration is not None:
                self._loops[job.name] = job.description.iteration
        for job in submitted:
            try:
                yield from self._expanded(job.name, job.description)
            except Unfit as error:
                raise InputError(self._where, f"job {job.name}: {error}") from None

    def _expanded(self, name: str, description: Description) -> Iterator[Job]:
        sizing = Sizing(description, self._totals)
        loop = description.iteration
        if loop is None:
            yield self._job(name, None, description, sizing.request(0))
            return
        for position, index in enumerate(range(loop.start, loop.stop)):
            yield self._job(f"{name}:{index}", index, description, sizing.request(position))

    def _job(self, name: str, index: int | None, description: Description, asked: UnitRequest) -> Job:
        shape = asked.shape
        if shape is None and asked.units > self._totals.cores:
            # Too large for this machine: left to the policy, which refuses it as the manager would.
            shape = Shape()
        return Job(
            id=f"{self._workload}!{name}",
            units=asked.units,
            most_units=asked.most_units,
            shape=shape,
            walltime=description.resources.walltime_s or inf,
            profile=self._profile(self._durations.of(name)),
            after=tuple(f"{self._workload}!{needed}" for needed in self._after(description, index)),
        )

    def _after(self, description: Description, index: int | None) -> Iterator[str]:
        for needed in description.after:
            if index is not None:
                needed = replaced(needed, {"it": str(index)})
            loop = self._loops.get(needed)
            if loop is None:
                yield needed
            else:
                yield from (f"{needed}:{i}" for i in range(loop.start, loop.stop))

    def _profile(self, seconds: float) -> Profile:
        profile = self._profiles.get(seconds)
        if profile is None:
            profile = self._profiles[seconds] = Profile(name=f"{self._workload}!{seconds!r}s", spec=Delay(seconds))
        return profile
