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
    constraint: msgspec.Raw | None = None
    """RFC 31 expression over node properties."""
    queue: str = ""

    @property
    def has_extras(self) -> bool:
        """It needs GPUs or memory, which nodes count apart from units."""
        return bool(self.gpus_per_node or self.memory_mb_per_node or self.gpus_per_chunk)


class Command(msgspec.Struct, frozen=True):
    """What a live world runs. Exactly one of `line` (a task line, run by a shell only if it needs one) and `argv`."""

    line: str = ""
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""


class Job(msgspec.Struct, eq=False, gc=False):
    """One job. `units` is the least number of units (hosts, cores) it needs; rigid if `most_units` is 0."""

    id: str
    units: int
    walltime: float = inf
    submitted_at: float = 0.0
    profile: Profile | None = None
    most_units: int = 0
    priority: float = 0.0
    user: str = ""
    after: tuple[str, ...] = ()
    shape: Shape | None = None
    command: Command | None = None
    runtime: float | None = None
    """How long it will really run, where that is known beforehand: for clairvoyant estimates only."""
    elastic: bool = False
    """Its work spreads over however many units it is given: any count is legal."""
    extra_data: str | None = None
    source: msgspec.Raw | None = None
    """The description as it was written, for those who forward it."""

    @property
    def least_units(self) -> int:
        """The least number of units in all: for a node-shaped request that of each node times the nodes."""
        if self.shape is not None and self.shape.nodes:
            return self.shape.nodes * max(self.units, 1)
        return self.units

    @property
    def workload(self) -> str:
        return self.id.partition("!")[0] if "!" in self.id else ""

    @property
    def local_id(self) -> str:
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
