"""What one look at Slurm shows: jobs (squeue), nodes (sinfo), licences, reservations, partitions (scontrol show).

In: the texts of these commands. Out: rows. A row of a job that is unchanged since the last look is the same object, so that
a look at many waiting jobs costs a comparison for each. A line that cannot be read raises PeerError.
"""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.formats import slurm_fields as fields
from pilothouse.formats import slurm_resources
from pilothouse.formats.slurm_fields import NOTHING
from pilothouse.formats.slurm_resources import Reservation, names
from pilothouse.model.errors import InputError, PeerError, quoted
from pilothouse.worlds.slurm import records

SEPARATOR = "\x1f"
"""Features hold `|`, reasons hold commas and blanks: only a control character is safe."""
_JOB_COLUMNS = "%i %P %T %r %Q %D %C %l %N %n %x %V %S %E %u %v %b %W %f %h %m %c"
JOB_FORMAT = SEPARATOR.join(_JOB_COLUMNS.split())
_COLUMNS = len(_JOB_COLUMNS.split())
_NODE_COLUMNS = "%N %P %T %c %m %G %f %a %Z %d"
NODE_FORMAT = SEPARATOR.join(_NODE_COLUMNS.split())

SQUEUE = ("squeue", "--noheader", "--all", "--array", "--states=all", f"--format={JOB_FORMAT}")
SINFO = ("sinfo", "--noheader", "--all", "--Node", f"--format={NODE_FORMAT}")
SHOW_PARTITIONS = ("scontrol", "--oneliner", "--all", "show", "partition")
SHOW_LICENCES = ("scontrol", "--oneliner", "show", "licenses")
SHOW_RESERVATIONS = ("scontrol", "--oneliner", "show", "reservation")
SHOW_JOBS = ("scontrol", "--oneliner", "--details", "--all", "show", "job")
SHOW_CONFIG = ("scontrol", "show", "config")

OVER = frozenset(
    {
        *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"),
        *("OUT_OF_MEMORY", "REVOKED"),
    }
)
HOLDING = frozenset(
    {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING"}
)
"""States of jobs that hold nodes."""
_USABLE = frozenset({"idle", "allocated", "mixed", "completing", "planned"})


class JobRow(msgspec.Struct, eq=False, gc=False):
    """A line of squeue."""

    id: str
    """`17`, or `17_3` for an element of an array."""
    partitions: tuple[str, ...]
    state: str
    reason: str
    priority: float
    nodes: int
    cpus: int
    limit_s: float
    node_names: tuple[str, ...]
    """The nodes that it holds."""
    wanted_nodes: tuple[str, ...]
    """The nodes that it must have (`-w`, or the order of a steering program)."""
    excluded_nodes: tuple[str, ...]
    submitted_at: float
    begins_at: float | None
    depends: bool
    user: str
    reservation: str
    gres: str
    licences: str
    features: str
    whole_nodes: bool
    memory_mb: int
    cpus_per_node: int

    @property
    def holds(self) -> bool:
        return self.state in HOLDING

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def heterogeneous(self) -> bool:
        return "+" in self.id

    @property
    def number(self) -> tuple[int, ...]:
        """`17_3` as numbers."""
        if self.id.isdigit():
            return (int(self.id),)
        return tuple([int(part) for part in self.id.replace("+", "_").split("_") if part.isdigit()])

    @property
    def asks(self) -> tuple[object, ...]:
        """What a user may change of the request while the job waits, as far as squeue shows it."""
        return (
            *(self.nodes, self.cpus, self.cpus_per_node, self.memory_mb, self.whole_nodes, self.wanted_nodes),
            *(self.excluded_nodes, self.features, self.gres, self.licences, self.reservation, self.heterogeneous),
        )


class NodeRow(msgspec.Struct, frozen=True):
    name: str
    partitions: tuple[str, ...]
    usable: bool
    """New jobs may start there."""
    state: str
    cpus: int
    memory_mb: int
    gres: dict[str, int]
    features: tuple[str, ...]
    threads: int = 1
    """CPUs of a core."""
    disk_mb: int = 0


    @property
    def has(self) -> tuple[object, ...]:
        """What does not depend on jobs."""
        return self.name, self.cpus, self.memory_mb, self.gres, self.features, self.threads, self.disk_mb


class Look(msgspec.Struct):
    """What was seen. `asked_at`: when the commands were started; what was ordered later may not show in it."""

    asked_at: float
    jobs: list[JobRow]
    nodes: list[NodeRow] | None = None
    """None: not looked at this time."""
    licences: dict[str, int] | None = None
    """Name -> how many are free."""
    reservations: list[Reservation] | None = None
    up: frozenset[str] = frozenset()
    """With `nodes`: the partitions that are UP."""


class JobReader:
    """Reads the output of squeue, look after look."""

    def __init__(self) -> None:
        self._rows: dict[str, JobRow] = {}

    def read(self, text: str) -> list[JobRow]:
        before = self._rows
        rows = {line: before.get(line) or _job(line) for line in text.split("\n") if line}
        self._rows = rows
        return list(rows.values())


def _job(line: str) -> JobRow:
    cells = line.split(SEPARATOR)
    if len(cells) != _COLUMNS:
        raise PeerError("squeue", f"a line of {len(cells)} fields", event=quoted(line), hint=f"expected {_COLUMNS}")
    (
        job_id, partitions, state, reason, priority, nodes, cpus, limit, holds, wanted, excluded, submitted, begins,
        dependency, user, reservation, gres, licences, features, shares, memory, per_node,
    ) = cells  # fmt: skip
    limit_s = fields.time_limit(limit)
    try:
        return JobRow(
            job_id,
            tuple(partitions.split(",")),
            state,
            reason,
            float(priority),
            fields.count(nodes.partition("-")[0]) or 1,
            fields.count(cpus.partition("-")[0]) or 1,
            inf if limit_s is None else limit_s,
            names(holds),
            names(wanted),
            names(excluded),
            fields.date(submitted) or 0.0,
            fields.date(begins),
            dependency not in NOTHING,
            user,
            "" if reservation in NOTHING else reservation,
            "" if gres in NOTHING else gres,
            "" if licences in NOTHING else licences,
            "" if features in NOTHING else features,
            shares in ("NO", "EXCLUSIVE", "USER", "MCS"),
            fields.memory_mb(memory) or 0,
            fields.count(per_node) or 1,
        )
    except (ValueError, InputError) as problem:
        raise PeerError("squeue", f"a line that cannot be read ({problem})", event=quoted(line)) from None


def read_nodes(text: str) -> tuple[list[NodeRow], frozenset[str]]:
    """The output of sinfo, one line for each node and partition: nodes, and the partitions that are UP."""
    found: dict[str, NodeRow] = {}
    up = set()
    for line in text.split("\n"):
        if not line:
            continue
        cells = line.split(SEPARATOR)
        cpus = fields.count(cells[3]) if len(cells) == 10 else None
        if cpus is None:
            raise PeerError("sinfo", "a line that cannot be read", event=quoted(line))
        name, partition, state = cells[0], cells[1].removesuffix("*"), cells[2].lower()
        if cells[7] == "up":
            up.add(partition)
        before = found.get(name)
        found[name] = NodeRow(
            name,
            (*(before.partitions if before is not None else ()), partition),
            usable_state(state),
            state,
            cpus,
            fields.memory_mb(cells[4]) or 0,
            records.gres(cells[5]),
            tuple(part for part in cells[6].split(",") if part not in NOTHING),
            fields.count(cells[8]) or 1,
            fields.memory_mb(cells[9]) or 0,
        )
    return list(found.values()), frozenset(up)


def usable_state(state: str) -> bool:
    """Whether Slurm starts jobs on a node in this state. Endings: `*` does not answer, `~` powered down (Slurm powers it up),
    `#` powering up, `%` powering down, `$` maintenance, `@` and `^` reboot, `-` planned."""
    return state.rstrip("~#-+") in _USABLE


def read_licences(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in slurm_resources.records(text, "LicenseName"):
        free, total, used = (fields.count(row.get(key, "")) for key in ("Free", "Total", "Used"))
        found[row["LicenseName"]] = free if free is not None else (total or 0) - (used or 0)
    return found
