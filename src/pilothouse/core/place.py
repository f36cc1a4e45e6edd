"""Which units a job would get now: the first block of free ones that holds it, else the lowest free ones; for a node-shaped
request the first nodes that fit.

`choose` answers a mask, or why not: NotNow where waiting helps, Never where it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pilothouse.model.answers import Never, NotNow
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.masks import first_block, lowest_bits

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster


def choose(cluster: Cluster, job: Job, *, least: bool = False) -> int | NotNow | Never:
    """The mask of the units that the job would get now: as many as it may use, or (`least`) as few as it needs."""
    if least:
        job = _at_its_least(job)
    if job.shape is not None:
        return _choose_shaped(cluster, job, job.shape)
    needed = job.units
    if 0 < needed <= cluster.free:
        count = job.most_units or needed
        return first_block(cluster.free_mask, count) or lowest_bits(cluster.free_mask, count)
    refusal = never(cluster, job)
    return NotNow(f"it needs {needed} units, and {cluster.free} are free") if refusal is None else refusal


def _at_its_least(job: Job) -> Job:
    """The same request, rigid."""
    shape = job.shape
    if shape is not None and (shape.most_nodes or shape.parts):
        shape = msgspec.structs.replace(shape, most_nodes=0, parts=0)
    return msgspec.structs.replace(job, most_units=0, shape=shape)


def misfit(cluster: Cluster, job: Job, mask: int) -> str | None:
    """In what way units that somebody else chose are not what a shaped request asked for; None: they are."""
    shape = job.shape
    if shape is None:
        return None
    nodes = [node for node in cluster.nodes.values() if node.mask & mask]
    unsuitable = [node for node in nodes if not (_could_hold(node, job, shape) and _has_free(cluster, node, shape))]
    if unsuitable:
        return f"node {unsuitable[0].name} cannot give what it asks for"
    if not shape.nodes:
        given = mask.bit_count()
        return None if given >= job.units else f"it asks for {job.units} units and was given {given}"
    if len(nodes) < shape.nodes:
        return f"it asks for {shape.nodes} nodes and was given units of {len(nodes)}"
    for node in nodes:
        here, least = node.mask & mask, job.units or node.count
        if here.bit_count() < least or (shape.exclusive and here != node.mask):
            return f"it was given {here.bit_count()} units of node {node.name}, and needs {least}"
    return None


def never(cluster: Cluster, job: Job) -> Never | None:
    """Why no state of this cluster could hold the job, or None."""
    if job.shape is None:
        if job.units > cluster.total:
            return Never(f"it needs {job.units} units, and there are {cluster.total}")
        return None if job.units > 0 else Never("it asks for no unit")
    suitable = [node for node in cluster.nodes.values() if _could_hold(node, job, job.shape)]
    if job.shape.nodes:
        if len(suitable) >= job.shape.nodes:
            return None
        return Never(f"it needs {job.shape.nodes} nodes that {_wish(job, job.shape)}, and there are {len(suitable)}")
    have = sum(_in_chunks(node.count, node.gpus, job.shape) for node in suitable)
    if have >= job.units:
        return None
    return Never(f"it needs {job.units} units on nodes that {_wish(job, job.shape)}, and there are {have}")


def _choose_shaped(cluster: Cluster, job: Job, shape: Shape) -> int | NotNow | Never:
    refusal = never(cluster, job)
    if refusal is not None:
        return refusal
    if not shape.nodes:
        return _choose_anywhere(cluster, job, shape)
    most_nodes = max(shape.most_nodes, shape.nodes)
    if shape.parts:
        most_nodes = max(shape.nodes, len(cluster.nodes) // shape.parts)
    mask = found = 0
    for node in cluster.nodes.values():
        taken = _on_node(cluster, node, job, shape)
        if taken:
            mask |= taken
            found += 1
            if found == most_nodes:
                break
    if found < shape.nodes:
        return NotNow(f"it needs {shape.nodes} nodes that {_wish(job, shape)}, and {found} are free")
    return mask


def _choose_anywhere(cluster: Cluster, job: Job, shape: Shape) -> int | NotNow:
    most = job.most_units or job.units
    if shape.parts:
        most = max(job.units, cluster.total // shape.parts)
    mask = 0
    for node in cluster.nodes.values():
        if _could_hold(node, job, shape) and _has_free(cluster, node, shape):
            free_here = cluster.free_mask & node.mask
            if shape.chunk:
                gpus = node.gpus - cluster.used_extras.get(node.name, (0, 0))[0]
                wanted = min(_in_chunks(free_here.bit_count(), gpus, shape), job.units - mask.bit_count())
                free_here = lowest_bits(free_here, wanted)
            mask |= free_here
    free = mask.bit_count()
    if free < job.units:
        return NotNow(f"it needs {job.units} units, and {free} that suit it are free")
    return lowest_bits(mask, min(most, free))


def _in_chunks(units: int, gpus: int, shape: Shape) -> int:
    """How many of these units of a node a job of this shape can use: whole chunks, each with its GPUs."""
    if not shape.chunk:
        return units
    chunks = units // shape.chunk
    if shape.gpus_per_chunk:
        chunks = min(chunks, gpus // shape.gpus_per_chunk)
    return chunks * shape.chunk


def _on_node(cluster: Cluster, node: Node, job: Job, shape: Shape) -> int:
    """The units that the job would take on this node; 0: none."""
    if not (_could_hold(node, job, shape) and _has_free(cluster, node, shape)):
        return 0
    free = cluster.free_mask & node.mask
    if shape.exclusive or job.units == 0:
        return free if free == node.mask else 0
    count = free.bit_count()
    if count < job.units:
        return 0
    return lowest_bits(free, min(job.most_units or job.units, count))


def _has_free(cluster: Cluster, node: Node, shape: Shape) -> bool:
    used = cluster.used_extras.get(node.name)
    if used is None:
        return True
    return node.gpus - used[0] >= shape.gpus_per_node and node.memory_mb - used[1] >= shape.memory_mb_per_node


def _could_hold(node: Node, job: Job, shape: Shape) -> bool:
    return (
        (not shape.nodes or node.count >= job.units)
        and node.gpus >= shape.gpus_per_node
        and node.memory_mb >= shape.memory_mb_per_node
        and (shape.constraint is None or satisfies(node, msgspec.json.decode(shape.constraint)))
    )


def satisfies(node: Node, constraint: object) -> bool:
    """RFC 31: {"properties": [..]}, {"hostlist": [..]}, and, or, not. A property `^x` is the absence of x."""
    if not isinstance(constraint, dict):
        return False
    return all(_satisfies_one(node, operator, values) for operator, values in constraint.items())


def _satisfies_one(node: Node, operator: str, values: list[object]) -> bool:
    if operator == "properties":
        return all(
            (value[1:] not in node.properties) if value.startswith("^") else (value in node.properties)
            for value in map(str, values)
        )
    if operator == "and":
        return all(satisfies(node, value) for value in values)
    if operator == "or":
        return any(satisfies(node, value) for value in values)
    if operator == "not":
        return not all(satisfies(node, value) for value in values)
    if operator in ("hostlist", "ranks"):
        return node.name in values or node.properties.get("rank") in values
    return False


def _wish(job: Job, shape: Shape) -> str:
    wishes = [f"have {job.units or 'all'} units free"]
    if shape.gpus_per_node:
        wishes.append(f"{shape.gpus_per_node} GPUs")
    if shape.memory_mb_per_node:
        wishes.append(f"{shape.memory_mb_per_node} MB")
    if shape.constraint is not None:
        wishes.append("the wanted properties")
    return " and ".join(wishes)
