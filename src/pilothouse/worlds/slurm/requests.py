"""From a line of squeue to a Job: what it asks for, in units of the inventory.

Named, excluded and featured nodes, GRES and reservations become one list of allowed nodes (an RFC 31 constraint). Equal
requests share one Shape: core/cluster.py then knows that they fit alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pilothouse.formats import slurm_fields as fields
from pilothouse.formats.slurm_resources import Reservation
from pilothouse.model.job import Job, Shape
from pilothouse.worlds.slurm.inventory import Inventory
from pilothouse.worlds.slurm.look import JobRow, NodeRow

MOST_SHAPES = 4096
_TOKEN = re.compile(r"[&|,()]|[^&|,()\s]+")


class Requests:
    """Makes jobs of rows."""

    def __init__(self, inventory: Inventory, *, counts_memory: bool = False) -> None:
        self._inventory = inventory
        self._counts_memory = counts_memory
        self._shapes: dict[bytes, Shape] = {}

    def job(self, row: JobRow, submitted_at: float, own_nodes: tuple[str, ...], reserved: Sequence[Reservation]) -> Job:
        """`own_nodes`: the nodes that its user named; `reserved`: reservations that it must keep away from."""
        allowed = self.allowed(row, own_nodes, reserved)
        by_cpu = self._inventory.by_cpu
        gpus = fields.gres(row.gres).get("gpu", 0) if row.gres else 0
        memory_mb = row.memory_mb if self._counts_memory else 0
        whole = not by_cpu or row.whole_nodes
        per_node = 0 if by_cpu and whole else max(-(-row.cpus // max(1, row.nodes)), row.cpus_per_node) if by_cpu else 1
        plain = allowed is None and (not by_cpu or (row.nodes == per_node == 1)) and not gpus and not memory_mb
        shape = None if plain else self._shape(row.nodes, by_cpu and whole, gpus, memory_mb, allowed)
        return Job(
            row.id,
            row.nodes if plain else per_node,
            row.limit_s,
            submitted_at,
            priority=row.priority,
            user=row.user,
            shape=shape,
        )

    def _shape(
        self, nodes: int, exclusive: bool, gpus: int, memory_mb: int, allowed: tuple[str, ...] | None
    ) -> Shape:
        constraint = None if allowed is None else msgspec.Raw(msgspec.json.encode({"hostlist": allowed}))
        shape = Shape(
            nodes=nodes, exclusive=exclusive, gpus_per_node=gpus, memory_mb_per_node=memory_mb, constraint=constraint
        )
        if len(self._shapes) > MOST_SHAPES:
            self._shapes.clear()
        return self._shapes.setdefault(msgspec.json.encode(shape), shape)

    def allowed(
        self, row: JobRow, own_nodes: tuple[str, ...], reserved: Sequence[Reservation]
    ) -> tuple[str, ...] | None:
        """The nodes on which a job may run; None: all."""
        if not (own_nodes or row.excluded_nodes or row.features or row.gres or reserved):
            return None
        others = frozenset(name for reservation in reserved for name in reservation.nodes)
        asked = fields.gres(row.gres)
        excluded = frozenset(row.excluded_nodes) | others
        found = [
            node.name
            for node in self._inventory.rows.values()
            if node.name not in excluded
            and (not own_nodes or node.name in own_nodes)
            and has_features(node, row.features)
            and _has_gres(node, asked)
        ]
        return None if len(found) == len(self._inventory.rows) else tuple(found)


def problem(row: JobRow, own_nodes: tuple[str, ...]) -> str:
    """Why this program cannot place a job; empty: it can."""
    if row.heterogeneous:
        return "heterogeneous jobs are not steered: submit them to a partition that Slurm schedules itself"
    if own_nodes and len(own_nodes) < row.nodes:
        return f"it names {len(own_nodes)} of its {row.nodes} nodes: name all of them, or none"
    if "*" in row.features or "[" in row.features:
        return f"features that are counted ({row.features}) are not steered"
    return ""


def has_features(node: NodeRow, wanted: str) -> bool:
    """`a`, `a&b`, `a,b`, `a|b`, `(a|b)&c`. A wish that cannot be read is left to Slurm."""
    if not wanted:
        return True
    tokens = _TOKEN.findall(wanted)
    try:
        found = _any_of(tokens, node)
    except (IndexError, RecursionError):
        return True
    return found or bool(tokens)


def _any_of(tokens: list[str], node: NodeRow) -> bool:
    found = _all_of(tokens, node)
    while tokens and tokens[0] == "|":
        del tokens[0]
        found = _all_of(tokens, node) or found
    return found


def _all_of(tokens: list[str], node: NodeRow) -> bool:
    found = _one(tokens, node)
    while tokens and tokens[0] in "&,":
        del tokens[0]
        found = _one(tokens, node) and found
    return found


def _one(tokens: list[str], node: NodeRow) -> bool:
    token = tokens.pop(0)
    if token in "&|,)":
        raise IndexError
    if token != "(":
        return token in node.features
    found = _any_of(tokens, node)
    if tokens.pop(0) != ")":
        raise IndexError
    return found


def _has_gres(node: NodeRow, asked: dict[str, int]) -> bool:
    have = fields.gres(node.gres) if asked else {}
    return all(have.get(name, 0) >= number for name, number in asked.items())
