"""Which units a job would get now: the first block of free ones that holds it, else the lowest free ones; for a node-shaped
request the first nodes that fit.

`choose` answers a mask, or why not: NotNow where waiting helps, Never where it does not. `when` answers when a job with a
shape could start, and where, if running jobs end as expected: on units that are busy now, where there is a choice, as others may
use the free ones until then. The index of nodes is in node_index.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from pilothouse.core.node_index import MOST_CACHED, FreeNodes, NodeTable, gpus_taken, memory_taken_mb, positions
from pilothouse.model.answers import Never, NotNow
from pilothouse.model.job import Job, Shape
from pilothouse.model.masks import first_block, lowest_bits

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster


class Reserved(int):
    """The mask of the units that a job will get at some date. `spare`: position of a node -> the GPUs and the memory that
    other jobs may still take there if they run past that date; only for nodes of a job that needs GPUs or memory itself."""

    spare: dict[int, tuple[int, int]]
    _closed: dict[tuple[int, int], int]
    """A cache: GPUs and memory that a job wants -> the nodes that are closed to it."""

    def closed(self, shape: Shape) -> int:
        """The positions of the nodes of which a job of this shape may take nothing."""
        key = (max(shape.gpus_per_node, shape.gpus_per_chunk), shape.least_memory_mb)
        found = self._closed.get(key)
        if found is None:
            found = 0
            for position, (gpus, memory_mb) in self.spare.items():
                if gpus < key[0] or memory_mb < key[1]:
                    found |= 1 << position
            self._closed[key] = found
        return found

    def extras_beside(self, table: NodeTable) -> Callable[[int], tuple[int, int]]:
        """The GPUs and the memory that another job may take of a node."""

        def left(position: int) -> tuple[int, int]:
            gpus, memory_mb = table.extras_left(position)
            if position in self.spare:
                spare = self.spare[position]
                return min(gpus, spare[0]), min(memory_mb, spare[1])
            return gpus, memory_mb

        return left

    def take(self, table: NodeTable, job: Job, mask: int) -> None:
        """Another job was started beside the reservation, on these units."""
        shape = job.shape
        if shape is None or not shape.has_extras or not self.spare:
            return
        self._closed.clear()
        for position, local in table.parts(mask):
            if position in self.spare:
                gpus, memory_mb = self.spare[position]
                gpus -= gpus_taken(shape, local.bit_count())
                self.spare[position] = (gpus, memory_mb - memory_taken_mb(shape, local.bit_count()))


def choose(cluster: Cluster, job: Job, *, least: bool = False, avoid: int = 0) -> int | NotNow | Never:
    """The mask of the units that the job would get now: as many as it may use, or (`least`) as few as it needs; none of
    the mask `avoid`, and nothing that a Reserved mask does not spare."""
    if least:
        job = _at_its_least(job)
    if job.shape is not None:
        return _choose_shaped(cluster, job, job.shape, avoid)
    needed, free_mask, free = job.units, cluster.free_mask, cluster.free
    if avoid:
        free_mask &= ~avoid
        free = free_mask.bit_count()
    if 0 < needed <= free:
        count = job.most_units or needed
        return first_block(free_mask, count) or lowest_bits(free_mask, count)
    refusal = never(cluster, job)
    return NotNow(f"it needs {needed} units, and {free} are free") if refusal is None else refusal


def _at_its_least(job: Job) -> Job:
    """The same request, rigid."""
    shape = job.shape
    if shape is not None and (shape.most_nodes or shape.parts):
        shape = msgspec.structs.replace(shape, most_nodes=shape.nodes, parts=0)
    elif not job.most_units:
        return job
    return msgspec.structs.replace(job, most_units=0, shape=shape)


def never(cluster: Cluster, job: Job) -> Never | None:
    """Why no state of this cluster could hold the job, or None."""
    shape = job.shape
    if shape is None:
        if job.units > cluster.total:
            return Never(f"it needs {job.units} units, and there are {cluster.total}")
        return None if job.units > 0 else Never("it asks for no unit")
    table = cluster.node_table
    suitable = table.suitable(job, shape)
    if shape.nodes:
        have = suitable.bit_count()
        if have >= shape.nodes:
            return None
        return Never(f"it needs {shape.nodes} nodes that have {_wish(job, shape)}, and there are {have}")
    key = (suitable, shape.chunk, shape.gpus_per_chunk, shape.memory_mb_per_chunk, shape.memory_mb_per_node)
    found = table.capacities.get(key)
    if found is None:
        nodes = [table.nodes[position] for position in positions(suitable)]
        found = table.capacities[key] = sum(_in_chunks(node.count, node.gpus, node.memory_mb, shape) for node in nodes)
    if job.units <= 0:
        return Never("it asks for no unit")
    if found >= job.units:
        return None
    return Never(f"it needs {job.units} units{_groups(shape)} on nodes that have {_wish(job, shape)}, and there are {found}")


def least_units(cluster: Cluster, job: Job) -> int:
    """The least number of units in all that a job takes: whole nodes count with all their units."""
    shape = job.shape
    if shape is None or not (shape.nodes or shape.exclusive):
        return job.units
    if not _wants_whole(job, shape):
        return shape.nodes * job.units
    table = cluster.node_table
    suitable = table.suitable(job, shape)
    key = (suitable, shape.nodes, job.units, shape.chunk, shape.gpus_per_chunk, shape.memory_mb_per_chunk)
    found = table.capacities.get(key)
    if found is None and shape.nodes:
        found = sum(sorted(table.nodes[position].count for position in positions(suitable))[: shape.nodes])
    elif found is None:
        found = _taken(table, table.wholes.__getitem__, _all_extras(table), suitable, job, shape)[0].bit_count()
    if len(table.capacities) > MOST_CACHED:
        table.capacities.clear()
    table.capacities[key] = found
    return found


def _all_extras(table: NodeTable) -> Callable[[int], tuple[int, int]]:
    return lambda position: (table.nodes[position].gpus, table.nodes[position].memory_mb)


def misfit(cluster: Cluster, job: Job, mask: int, *, memory: bool = True) -> str | None:
    """In what way units that a decider chose are not what a shaped request asked for; None: they are. `memory`: whether the
    memory that is left counts."""
    shape = job.shape
    if shape is None:
        return None
    table = cluster.node_table
    parts = table.parts(mask)
    able = table.suitable(job, shape) & table.with_extras(shape, memory=memory)
    for position, local in parts:
        name = table.nodes[position].name
        if not able >> position & 1:
            return f"node {name} cannot give what it asks for ({_wish(job, shape)})"
        if shape.exclusive and local != table.wholes[position]:
            return f"it was given {local.bit_count()} units of node {name}, and needs the whole node"
    if not shape.nodes:
        left = [table.memory_mb[position] if memory else 1 << 62 for position, _ in parts]
        usable = sum(
            _in_chunks(local.bit_count(), table.gpus[position], left_mb, shape)
            for (position, local), left_mb in zip(parts, left, strict=True)
        )
        if usable >= job.units:
            return None
        groups = _groups(shape)
        return f"it asks for {job.units} units{groups} and was given {usable}{' that can be used so' if groups else ''}"
    if len(parts) < shape.nodes:
        return f"it asks for {shape.nodes} nodes and was given units of {len(parts)}"
    for position, local in parts:
        node = table.nodes[position]
        given, least = local.bit_count(), job.units or node.count
        if given < least:
            return f"it was given {given} units of node {node.name}, and needs {least}"
    return None


def when(cluster: Cluster, job: Job, ends: Sequence[tuple[float, str]]) -> tuple[float, Reserved] | None:
    """When and where a job with a shape can start if these running jobs end then (date, job id; ascending); None: never.

    The cost is the number of nodes that become free until then."""
    job = _at_its_least(job)
    assert job.shape is not None
    found = _Forecast(cluster, job, job.shape)
    for index, (date, job_id) in enumerate(ends):
        found.add_end(job_id)
        if (index + 1 == len(ends) or ends[index + 1][0] != date) and found.fits:
            return date, found.units()
    return None


class _Forecast:
    """The nodes that could hold a job, while running jobs are taken to end one after the other."""

    def __init__(self, cluster: Cluster, job: Job, shape: Shape) -> None:
        self._cluster, self._job, self._shape = cluster, job, shape
        self._view = cluster.free_nodes()
        self._table = table = self._view.table
        self._suitable = table.suitable(job, shape)
        self._free: dict[int, int] = {}
        self._gpus: dict[int, int] = {}
        self._memory_mb: dict[int, int] = {}
        self._holding = _candidates(self._view, job, shape)
        """The positions of the nodes that can give something to the job."""
        self._have = 0 if shape.nodes else sum(map(self._usable, positions(self._holding)))

    def add_end(self, job_id: str) -> None:
        cluster, table, shape = self._cluster, self._table, self._shape
        run = cluster.running.get(job_id)
        if run is None:
            return
        off = run.units.mask & cluster.off_mask
        parts = table.parts(run.units.mask & ~off) if off else table.parts_of(run)
        extras = run.job.shape if run.job.shape is not None and run.job.shape.has_extras else None
        for position, local in parts:
            if not self._suitable >> position & 1:
                continue
            held = bool(self._holding >> position & 1)
            before = 0 if shape.nodes or not held else self._usable(position)
            self._free[position] = self._free.get(position, self._view.free[position]) | local
            if extras is not None:
                gpus = self._gpus.get(position, table.gpus[position])
                self._gpus[position] = gpus + gpus_taken(extras, local.bit_count())
                memory_mb = self._memory_mb.get(position, table.memory_mb[position])
                self._memory_mb[position] = memory_mb + memory_taken_mb(extras, local.bit_count())
            if not held and self._can_hold(position):
                self._holding |= 1 << position
                held = True
            if held and not shape.nodes:
                self._have += self._usable(position) - before

    @property
    def fits(self) -> bool:
        return self._holding.bit_count() >= self._shape.nodes if self._shape.nodes else self._have >= self._job.units

    def units(self) -> Reserved:
        shape, table = self._shape, self._table
        # A job that needs GPUs or memory gets the lowest units of its nodes.
        last = None if shape.has_extras else self._view.free.__getitem__
        reserved = Reserved(_taken(table, self._at, self._extras_at, self._holding, self._job, shape, last_of=last)[0])
        reserved.spare, reserved._closed = {}, {}
        if shape.has_extras:
            reserved.spare = {position: self._extras_at(position) for position, _ in table.parts(reserved)}
            reserved.take(table, self._job, reserved)
        return reserved

    def _at(self, position: int) -> int:
        return self._free.get(position, self._view.free[position])

    def _extras_at(self, position: int) -> tuple[int, int]:
        table = self._table
        return self._gpus.get(position, table.gpus[position]), self._memory_mb.get(position, table.memory_mb[position])

    def _usable(self, position: int) -> int:
        return _in_chunks(self._at(position).bit_count(), *self._extras_at(position), self._shape)

    def _can_hold(self, position: int) -> bool:
        shape, free = self._shape, self._at(position)
        gpus, memory_mb = self._extras_at(position)
        if gpus < max(shape.gpus_per_node, shape.gpus_per_chunk) or memory_mb < shape.least_memory_mb:
            return False
        if _wants_whole(self._job, shape):
            return free == self._table.wholes[position]
        return free.bit_count() >= _least_on_node(self._job, shape)


def _choose_shaped(cluster: Cluster, job: Job, shape: Shape, avoid: int) -> int | NotNow | Never:
    refusal = never(cluster, job)
    if refusal is not None:
        return refusal
    view = cluster.free_nodes(avoid)
    table = view.table
    nodes = _candidates(view, job, shape)
    extras_of: Callable[[int], tuple[int, int]] = table.extras_left
    if isinstance(avoid, Reserved) and avoid.spare and shape.has_extras:
        nodes &= ~avoid.closed(shape)
        extras_of = avoid.extras_beside(table)
    order = cluster.begins.node_order
    mask, found = _taken(table, view.free.__getitem__, extras_of, nodes, job, shape, cluster.total, order=order)
    if shape.nodes:
        if found >= shape.nodes:
            return mask
        wish = f"{shape.nodes} nodes that have {_wish(job, shape)}"
        return NotNow(f"it needs {wish}, and {found} are free{_gpus_left(table, shape)}")
    if found >= job.units:
        return mask
    return NotNow(f"it needs {job.units} units{_groups(shape)}, and {found} that suit it are free{_gpus_left(table, shape)}")


def _candidates(view: FreeNodes, job: Job, shape: Shape) -> int:
    """The positions of the nodes that can give something to a job now."""
    nodes = view.table.suitable(job, shape) & view.table.with_extras(shape)
    if _wants_whole(job, shape):
        return nodes & view.whole
    return nodes & view.with_units(_least_on_node(job, shape))


def _wants_whole(job: Job, shape: Shape) -> bool:
    return shape.exclusive or (bool(shape.nodes) and job.units == 0)


def _least_on_node(job: Job, shape: Shape) -> int:
    return max(1, job.units if shape.nodes else shape.chunk)


def _taken(
    table: NodeTable, free_of: Callable[[int], int], extras_of: Callable[[int], tuple[int, int]], nodes: int, job: Job,
    shape: Shape, total: int = 0, last_of: Callable[[int], int] | None = None, order: int = 0,
) -> tuple[int, int]:  # fmt: skip
    """The units that a job takes of these nodes, in their order; and the number of nodes or (without `shape.nodes`) of
    units that it can use of them. `last_of`: which units of a node are taken only where the others are too few. `order`: 1,
    those with the most free units come first, then those with the most GPUs; -1: the reverse."""
    whole = _wants_whole(job, shape)
    most_units = job.most_units or job.units
    most_nodes = max(shape.most_nodes, shape.nodes)
    if shape.parts:
        most_nodes = max(shape.nodes, len(table.nodes) // shape.parts)
        if not shape.nodes:
            most_units = max(job.units, total // shape.parts)
    mask = found = last = all_last = 0
    chosen: Iterable[int] = positions(nodes)
    if order:
        chosen = sorted(chosen, key=lambda position: (-order * free_of(position).bit_count(), -order * extras_of(position)[0]))
    for position in chosen:
        free = free_of(position)
        count = free.bit_count()
        if last_of is not None:
            last = last_of(position)
            all_last |= last << table.nodes[position].first
        if shape.nodes:
            found += 1
            taken = free if whole else _lowest(free, min(most_units, count), last)
        elif shape.chunk or whole:
            usable = min(_in_chunks(count, *extras_of(position), shape), job.units - found)
            found += usable
            taken = free if whole else _lowest(free, usable, last)
        else:
            found += count
            taken = free
        mask |= taken << table.nodes[position].first
        if (shape.nodes and found == most_nodes) or (not shape.nodes and found >= job.units and (shape.chunk or whole)):
            break
    if not shape.nodes and not shape.chunk and not whole:
        mask = _lowest(mask, min(most_units, found), all_last)
    return mask, found


def _lowest(free: int, count: int, last: int) -> int:
    """The lowest of these units; those of `last` only where the others are too few."""
    if not last:
        return lowest_bits(free, count)
    taken = lowest_bits(free & ~last, count)
    return taken | lowest_bits(free & last, count - taken.bit_count())


def _in_chunks(units: int, gpus: int, memory_mb: int, shape: Shape) -> int:
    """How many of these units of a node a job of this shape can use: whole chunks, each with its GPUs and memory."""
    if not shape.chunk:
        return units
    chunks = units // shape.chunk
    if shape.gpus_per_chunk:
        chunks = min(chunks, gpus // shape.gpus_per_chunk)
    if shape.memory_mb_per_chunk:
        chunks = min(chunks, max(0, memory_mb - shape.memory_mb_per_node) // shape.memory_mb_per_chunk)
    return chunks * shape.chunk


def _wish(job: Job, shape: Shape) -> str:
    """What a node must have for this request, in words."""
    if _wants_whole(job, shape):
        wishes = ["all units free"] if job.units <= 1 or not shape.nodes else [f"{job.units} units or more, all of them free"]
    else:
        wishes = [_some(_least_on_node(job, shape), "unit") + " free"]
    gpus = max(shape.gpus_per_node, shape.gpus_per_chunk)
    if gpus:
        wishes.append(_some(gpus, "GPU"))
    if shape.has_memory:
        wishes.append(f"{shape.least_memory_mb} MB")
    if shape.constraint is not None:
        wishes.append("the wanted properties")
    return " and ".join(wishes)


def _groups(shape: Shape) -> str:
    """How the units of a request belong together, in words."""
    extras = [_some(shape.gpus_per_chunk, "GPU")] if shape.gpus_per_chunk else []
    if shape.memory_mb_per_chunk:
        extras.append(f"{shape.memory_mb_per_chunk} MB")
    if not shape.chunk or (shape.chunk == 1 and not extras):
        return ""
    with_extras = f" with {' and '.join(extras)}" if extras else ""
    return f" in groups of {shape.chunk}{with_extras} on a node" if shape.chunk > 1 else f"{with_extras} each"


def _gpus_left(table: NodeTable, shape: Shape) -> str:
    if not (shape.gpus_per_node or shape.gpus_per_chunk):
        return ""
    return f" ({_some(table.free_gpus, 'GPU')} free in all)"


def _some(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
