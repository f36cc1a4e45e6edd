"""Nodes, partitions and reservations as `scontrol --oneliner show` prints them: one record of `Key=value` pairs a line.

In: the text. Out: records. A file of `scontrol -o show node` is also a platform (`simulate -p FILE`): its units are the CPUs
of the nodes, the most of it that a simulation of a log needs to know.
"""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.formats import hostlist
from pilothouse.formats import slurm_fields as fields
from pilothouse.model.errors import InputError, quoted

NODES = b"NodeName="


class SlurmNode(msgspec.Struct, frozen=True):
    name: str
    cpus: int
    memory_mb: int
    gres: str
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    state: str


class Partition(msgspec.Struct, frozen=True):
    name: str
    nodes: tuple[str, ...]
    state: str
    most_time_s: float
    default_time_s: float | None
    """None: there is none."""
    whole_nodes: bool


class Reservation(msgspec.Struct, frozen=True):
    name: str
    starts_at: float
    ends_at: float
    nodes: frozenset[str]


def records(text: str, first_key: str) -> list[dict[str, str]]:
    """The lines that begin with this key."""
    return [fields.record(line) for line in text.split("\n") if line.startswith(first_key + "=")]


def names(text: str) -> tuple[str, ...]:
    """`n[1-3],m7` as names."""
    return () if text in fields.NOTHING else tuple(hostlist.parse(text, where="Slurm's node list"))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word not in fields.NOTHING)


def read_nodes(text: str, where: str = "scontrol show node") -> list[SlurmNode]:
    """Raises InputError for a node without a number of CPUs."""
    found = []
    for row in records(text, "NodeName"):
        cpus = fields.count(row.get("CPUTot", "") or row.get("CPUs", ""))
        if not cpus:
            found_cpus = quoted(row.get("CPUTot", ""))
            raise InputError(where, f"node {row['NodeName']} has no CPUs", expected="CPUTot=...", found=found_cpus)
        found.append(
            SlurmNode(
                row["NodeName"],
                cpus,
                fields.memory_mb(row.get("RealMemory", "")) or 0,
                row.get("Gres", ""),
                _words(row.get("ActiveFeatures", "") or row.get("AvailableFeatures", "")),
                _words(row.get("Partitions", "")),
                row.get("State", ""),
            )
        )
    return found


def read_partitions(text: str) -> list[Partition]:
    found = []
    for row in records(text, "PartitionName"):
        most = fields.time_limit(row.get("MaxTime", ""))
        found.append(
            Partition(
                row["PartitionName"],
                names(row.get("Nodes", "")),
                row.get("State", ""),
                inf if most is None else most,
                fields.time_limit(row.get("DefaultTime", "")),
                row.get("OverSubscribe", "").upper().startswith("EXCLUSIVE"),
            )
        )
    return found


def read_reservations(text: str) -> list[Reservation]:
    found = []
    for row in records(text, "ReservationName"):
        starts, ends = fields.date(row.get("StartTime", "")), fields.date(row.get("EndTime", ""))
        if starts is not None:
            nodes = frozenset(names(row.get("Nodes", "")))
            found.append(Reservation(row["ReservationName"], starts, inf if ends is None else ends, nodes))
    return found
