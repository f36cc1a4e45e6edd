"""A job: what it asks for, and what it does (a profile to simulate, a command to run, or both)."""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.model.profile import Profile


class Shape(msgspec.Struct, frozen=True):
    """What a job asks for beyond "so many units anywhere".

    With `nodes` > 0 the request is node-shaped: nodes..most_nodes nodes, and on each of them `Job.units`..`most_units`
    units (0 units: all of the node). `parts` > 0 is QCG's split-into: the most is total // parts.
    """

    nodes: int = 0
    most_nodes: int = 0
    exclusive: bool = False
    gpus_per_node: int = 0
    memory_mb_per_node: int = 0
    parts: int = 0
    chunk: int = 0
    """Units come in groups of so many on one node (a Flux slot of several cores); 0: each for itself."""
    gpus_per_chunk: int = 0
    memory_mb_per_chunk: int = 0
    constraint: msgspec.Raw | None = None
    """RFC 31 expression over node properties."""
    queue: str = ""

    @property
    def has_extras(self) -> bool:
        """It needs GPUs or memory, which nodes count apart from units."""
        return bool(self.gpus_per_node or self.gpus_per_chunk or self.has_memory)

    @property
    def has_memory(self) -> bool:
        return bool(self.memory_mb_per_node or self.memory_mb_per_chunk)

    @property
    def least_memory_mb(self) -> int:
        """The memory that a node must have to give anything to the job."""
        return self.memory_mb_per_node + self.memory_mb_per_chunk


class Command(msgspec.Struct, frozen=True):
    """What a live world runs. Exactly one of `line` (a task line, run by a shell only if it needs one) and `argv`."""

    line: str = ""
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    memory_mb: int = 0
    """It is ended if it uses more; 0: no limit."""


class Job(msgspec.Struct, eq=False, gc=False):
    """One job: what it asks for, and what it does."""

    id: str
    """Unique in a run; `workload!name` in simulations."""
    units: int
    """The least number of units (hosts, cores) that it needs; with `shape.nodes`, on each node."""
    walltime: float = inf
    """The longest time that it may run, in seconds."""
    submitted_at: float = 0.0
    """When it was submitted, in seconds of the world's clock."""
    profile: Profile | None = None
    """What it does in a simulated world."""
    most_units: int = 0
    """The most units that it can use; 0: just `units`."""
    priority: float = 0.0
    """Larger is more urgent. Only some policies look at it."""
    user: str = ""
    """Who submitted it; "" where that is not known."""
    after: tuple[str, ...] = ()
    """Ids of jobs that must succeed first. Worlds hold the job until then."""
    shape: Shape | None = None
    """What it asks for beyond a number of units: nodes, GPUs, memory, constraints."""
    command: Command | None = None
    """What it does in a live world."""
    runtime: float | None = None
    """How long it will really run, if that is known beforehand. For clairvoyant estimates only."""
    elastic: bool = False
    """Its work spreads over any number of units, so any count is legal."""
    extra_data: str | None = None
    """Text of the workload that is passed on to deciders."""
    source: msgspec.Raw | None = None
    """The description as it was written, for protocols that pass it on."""

    @property
    def least_units(self) -> int:
        """The least number of units in all: for a node-shaped request that of each node times the nodes."""
        if self.shape is not None and self.shape.nodes:
            return self.shape.nodes * max(self.units, 1)
        return self.units

    @property
    def workload(self) -> str:
        """The part of the id before `!`; "" if it has none."""
        return self.id.partition("!")[0] if "!" in self.id else ""

    @property
    def local_id(self) -> str:
        """The part of the id after `!`."""
        return self.id.partition("!")[2] or self.id


class Node(msgspec.Struct, frozen=True):
    """A machine that owns the units first .. first+count-1 (one unit for a simulated host, one per core for a live node)."""

    name: str
    first: int
    count: int = 1
    gpus: int = 0
    memory_mb: int = 0
    cores: int = 1
    properties: dict[str, str] = {}
    zone_properties: dict[str, str] = {}
    speeds: tuple[float, ...] = ()
    """Flop per second in each power state."""
    power_state: int = 0

    @property
    def mask(self) -> int:
        return ((1 << self.count) - 1) << self.first
