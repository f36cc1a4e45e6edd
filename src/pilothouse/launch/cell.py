"""One cell of a sweep, simulated: in this process, in a worker of this machine, or on a worker of a dask cluster.

In: a `CellTask`, which says where the inputs are and what they must contain. Out: a `CellResult`. Inputs that were read are
kept for the next cell.
"""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from math import isinf, isnan
from pathlib import Path

import msgspec

from pilothouse.campaign.grid import Cell, with_options
from pilothouse.core.session import Session
from pilothouse.formats.workload import Workload
from pilothouse.launch import naming
from pilothouse.launch.simulation import read_all
from pilothouse.model.errors import InputError, PilothouseError
from pilothouse.policies.catalog import CATALOG
from pilothouse.views.metrics import Collector, Metrics
from pilothouse.views.tables import COLUMNS
from pilothouse.worlds.simulated import generators
from pilothouse.worlds.simulated.inputs import DIALECT, Setup, join
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.shaping import AS_IT_IS, Shaping

COUNTS = ("jobs", "succeeded", "failed", "timed_out", "killed", "rejected")
CODE = ("model", "policies", "core", "formats", "worlds/simulated", "views/metrics.py", "views/schedule.py", "launch/cell.py")
"""The parts of the package that a result depends on."""


Value = float | int | str | None
"""A number; "inf", which JSON has no number for; None: not known."""


class OtherInputs(Exception):
    """A worker has another version of pilothouse, or other contents of a file, than the sweep."""


class CellTask(msgspec.Struct, frozen=True):
    """A cell, where its inputs are, and the digests of code and files."""

    cell: Cell
    workload: str
    """A path, or a generator with its seed."""
    platform: str
    policy: str
    """With its seed."""
    digests: tuple[str, ...]
    """Of the code, the workload, the platform and the policy."""

    @property
    def key(self) -> str:
        """What the result depends on. A file may move and keep its results."""
        cell = self.cell
        names = [text for text in (self.workload, self.platform) if not Path(text).is_file()]
        policy = self.policy.partition(":")[2] if self.digests[3] else self.policy
        told = [names, policy, cell.load, cell.week, cell.tau, cell.warm_up, cell.cool_down, self.digests]
        return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:40]


class CellResult(msgspec.Struct, frozen=True):
    units: int = 0
    """Of the machine."""
    values: dict[str, Value] | None = None
    """The metrics by column; None: the policy did not come to the end."""
    waiting: int = 0
    """Jobs that never started."""
    problem: str = ""


def make_task(cell: Cell, workload: str, platform: str, policy: str) -> CellTask:
    """The task of a cell whose inputs are there. Seeds go where they make a difference."""
    if cell.seed is not None:
        if generators.is_generated(workload):
            workload = generators.with_seed(workload, cell.seed)
        if takes_seed(policy):
            policy = with_options(policy, [f"seed={cell.seed}"])
    return CellTask(cell, workload, platform, policy, _digests(workload, platform, policy))


def run_cell(task: CellTask) -> CellResult:
    """Simulates it. A policy that fails is a result; OtherInputs is raised where the inputs are not those of the sweep."""
    if _digests(task.workload, task.platform, task.policy) != task.digests:
        hint = "pilothouse and the input files must be the same on all machines"
        raise OtherInputs(f"a worker would simulate {task.cell.workload} with other inputs or other code than ours ({hint})")
    cell = task.cell
    shaping = Shaping(cell.load, cell.week, cell.warm_up, cell.cool_down)
    try:
        setup = setup_of(task.workload, task.platform, shaping)
        collector = Collector(cell.tau, window=shaping.window(setup.jobs))
        outcome = Session(setup.world(collector.add), naming.decider(task.policy), name=cell.policy).run()
    except PilothouseError as problem:
        return CellResult(problem=str(problem))
    units = setup.begins.units
    return CellResult(units, flat(collector.metrics(units)), len(outcome.waiting), outcome.reason)


def flat(metrics: Metrics) -> dict[str, Value]:
    """The metrics as columns of a table: counts, then what `compare` shows."""
    found: dict[str, Value] = {name: getattr(metrics, name) for name in COUNTS}
    for name, value in COLUMNS.items():
        number = float(value(metrics))
        found[name] = None if isnan(number) else "inf" if isinf(number) else number
    return found


def takes_seed(policy: str) -> bool:
    """Whether a seed makes a difference to the policy, and it names none."""
    name, _, rest = policy.partition(":")
    if name in CATALOG:
        return "seed" in CATALOG[name].options and "seed=" not in rest
    import inspect

    return "seed" in inspect.signature(type(naming.policy(policy)).__init__).parameters and "seed=" not in rest


def setup_of(workload: str, platform: str, shaping: Shaping = AS_IT_IS) -> Setup:
    """The inputs of a cell, read and checked. The latest are kept, whole and in shape: a log is read once for all its weeks."""
    return _setup(workload, platform, shaping, (_of_file(workload), _of_file(platform)))


@lru_cache(maxsize=4)
def _setup(workload: str, platform: str, shaping: Shaping, digests: tuple[str, str]) -> Setup:
    machine, read = _read(workload, platform, digests)
    return join(machine, [shaping.of(read)])


@lru_cache(maxsize=4)
def _read(workload: str, platform: str, digests: tuple[str, str]) -> tuple[Platform, Workload]:
    machine = Platform.named(platform)
    (read,) = read_all([workload], machine)
    return machine, read


def _digests(workload: str, platform: str, policy: str) -> tuple[str, ...]:
    file = workload.partition(DIALECT)[0]
    return code_digest(), _of_file(file), _of_file(platform), _of_file(naming.source_file(policy))


@cache
def code_digest() -> str:
    """Of everything in this installation that a result depends on."""
    package = Path(__file__).parent.parent
    made = hashlib.sha256()
    for part in CODE:
        place = package / part
        files = [place] if place.is_file() else sorted(place.rglob("*.py")) + sorted(place.rglob("*.c"))
        for file in files:
            made.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes())
    return made.hexdigest()


def _of_file(path: str) -> str:
    """The digest of a file; "" if there is none of that name."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return ""
    return _contents(path, status.st_mtime_ns, status.st_size) if path and Path(path).is_file() else ""


@lru_cache(maxsize=1024)
def _contents(path: str, modified_ns: int, size: int) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as problem:
        raise InputError(path, f"cannot be read: {problem.strerror}") from None
