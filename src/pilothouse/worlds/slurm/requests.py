"""From a job of Slurm to a Job: what it asks for, in units of the inventory.

Tasks of one CPU may be spread over nodes in any way. Everything else is asked for as equal shares of nodes: of the least
number of nodes that could give such shares if they were empty. Where no number of equal shares will do, nodes that could
hold the job together are named, and must be free. Named, excluded and featured nodes, GRES, disks and reservations become
one list of allowed nodes (an RFC 31 constraint). Equal requests share one Shape: core/cluster.py then knows that they fit
alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from pilothouse.formats.slurm_resources import Reservation
from pilothouse.model.job import Job, Shape
from pilothouse.worlds.slurm.inventory import Inventory
from pilothouse.worlds.slurm.look import JobRow, NodeRow
from pilothouse.worlds.slurm.records import Part, Request, covers, gpus_of

MOST_SHAPES = 4096
_TOKEN = re.compile(r"[&|,()]|[^&|,()\s]+")


class Wish(msgspec.Struct, frozen=True):
    """A request as it is put to the decider: nodes, and what each must give. `nodes` 0: CPUs of any nodes."""

    nodes: int
    share: Part
    whole: bool
    allowed: tuple[str, ...] | None
    """None: all nodes."""

    def exact_cpus(self, request: Request, cpus: Sequence[int]) -> int | None:
        """The number of CPUs that Slurm must give on each of several nodes, where it was planned to give these; 0: it finds
        out itself. None: it would give too few.

        QUIRK: of tasks with several CPUs Slurm places one too many on a node whose free CPUs are no multiple of theirs."""
        if len(cpus) == 1 or request.cpus_per_task == 1 or request.overcommits or self.whole:
            return 0
        return cpus[0] if len(set(cpus)) == 1 and sum(cpus) == request.cpus else None


class Requests:
    """Makes jobs of rows."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._shapes: dict[bytes, Shape] = {}
        self._wishes: dict[bytes, Wish] = {}

    def job(self, row: JobRow, request: Request, wish: Wish, submitted_at: float) -> Job:
        by_cpu = self._inventory.by_cpu
        share, allowed = wish.share, wish.allowed
        plain = allowed is None and (not by_cpu or (not wish.nodes and request.cpus == share.cpus == 1 and not wish.whole))
        memory_mb = share.memory_mb if self._inventory.counts_memory and not wish.whole else 0
        gpus = gpus_of(share.gres)
        if plain and not (by_cpu and (gpus or memory_mb)):
            units, shape = wish.nodes or 1, None
        elif not by_cpu:
            units, shape = 1, self._shape(Shape(nodes=wish.nodes, constraint=_hosts(allowed)))
        elif wish.nodes:
            # Whole nodes have more than a share of memory and GRES: they are free if their CPUs are.
            most = request.most_nodes if request.most_nodes > wish.nodes else 0
            units = 0 if wish.whole else share.cpus
            shape = self._shape(
                Shape(
                    nodes=wish.nodes,
                    most_nodes=most,
                    exclusive=wish.whole,
                    gpus_per_node=0 if wish.whole else gpus,
                    memory_mb_per_node=memory_mb,
                    constraint=_hosts(allowed),
                )
            )
        else:
            memory, per_task = self._inventory.counts_memory and not wish.whole, gpus_of(request.gres_per_task)
            # Tasks that share a core come together.
            together = max(1, self._inventory.threads // request.cpus_per_task)
            chunk = -(-together * request.cpus_per_task // self._inventory.threads) * self._inventory.threads
            units = -(-request.tasks // together) * chunk
            shape = self._shape(
                Shape(
                    chunk=chunk,
                    exclusive=wish.whole,
                    gpus_per_chunk=per_task * together,
                    gpus_per_node=gpus - per_task,
                    memory_mb_per_chunk=request.memory_mb_per_cpu * chunk if memory else 0,
                    memory_mb_per_node=request.memory_mb_per_node if memory else 0,
                    constraint=_hosts(allowed),
                )
            )
        return Job(row.id, units, row.limit_s, submitted_at, priority=row.priority, user=row.user, shape=shape)

    def _shape(self, shape: Shape) -> Shape:
        if len(self._shapes) > MOST_SHAPES:
            self._shapes.clear()
        return self._shapes.setdefault(msgspec.json.encode(shape), shape)

    def wish(
        self, row: JobRow, request: Request, own_nodes: tuple[str, ...], reserved: Sequence[Reservation],
        is_free: Callable[[str], bool], evenly: bool = False,
    ) -> Wish:  # fmt: skip
        """`own_nodes`: the nodes that its user named; `reserved`: reservations that it must keep away from; `is_free`:
        whether a node could serve the job now; `evenly`: tasks of several CPUs only in equal shares."""
        if own_nodes:
            return self._wish(row, request, own_nodes, reserved, is_free, evenly)
        plain = msgspec.structs.replace(request, comment="")
        away = [sorted(reservation.nodes) for reservation in reserved]
        asked = (self._inventory.version, plain, row.features, row.excluded_nodes, row.whole_nodes, away, evenly)
        key = msgspec.msgpack.encode(asked)
        found = self._wishes.get(key)
        if found is None:
            if len(self._wishes) > MOST_SHAPES:
                self._wishes.clear()
            found = self._wishes[key] = self._wish(row, request, own_nodes, reserved, is_free, evenly)
        return found

    def _wish(
        self, row: JobRow, request: Request, own_nodes: tuple[str, ...], reserved: Sequence[Reservation],
        is_free: Callable[[str], bool], evenly: bool,
    ) -> Wish:  # fmt: skip
        inventory = self._inventory
        whole = row.whole_nodes or not inventory.by_cpu
        if inventory.counts_memory and not (
            request.memory_mb_per_node or request.memory_mb_per_cpu or request.memory_mb_per_gpu
        ):
            whole = True  # No amount means all memory of a node: no other job is there.
        nodes = self._nodes(row, request, own_nodes, reserved)
        if inventory.by_cpu and _spreads(request, evenly) and not own_nodes:
            share = self._rounded(request.share(request.tasks))
            return Wish(0, share, whole, self._allowed(nodes, share, request))
        most = min(request.most_nodes or len(inventory.rows), len(inventory.rows))
        least = max(request.nodes, len(own_nodes))
        counts = range(least, max(least, most) + 1)
        if request.cpus_per_task > 1 and request.tasks > 1 and not request.overcommits:
            counts = [count for count in counts if request.tasks % count == 0] or counts  # type: ignore[assignment]
        for count in counts:
            share = self._rounded(request.share(count))
            able = [node for node in nodes if _holds(node, share, request, inventory.counts_memory)]
            if len(able) < count:
                continue
            if own_nodes and len(own_nodes) < count:
                chosen = _chosen(able, count, own_nodes, is_free)
                if chosen is None:
                    continue
                return Wish(count, share, whole, chosen)
            return Wish(count, share, whole, self._allowed(able, share, request))
        together = _together(nodes, request, least, most, own_nodes)
        if together is not None:
            return Wish(len(together), Part(1), True, together)
        return Wish(counts[0], self._rounded(request.share(counts[0])), whole, self._allowed(nodes, Part(), request))

    def could_hold(self, request: Request, wish: Wish) -> bool:
        """Whether the allowed nodes could hold a job if they were empty."""
        if wish.allowed is None:
            return True
        if wish.nodes:
            return len(wish.allowed) >= wish.nodes
        return sum(self._inventory.rows[name].cpus for name in wish.allowed) >= request.cpus

    def _rounded(self, share: Part) -> Part:
        threads = self._inventory.threads
        return share if threads == 1 else msgspec.structs.replace(share, cpus=-(-share.cpus // threads) * threads)

    def _nodes(
        self, row: JobRow, request: Request, own_nodes: tuple[str, ...], reserved: Sequence[Reservation]
    ) -> list[NodeRow]:
        """The nodes that the job does not exclude."""
        others = frozenset(name for reservation in reserved for name in reservation.nodes)
        excluded = frozenset(row.excluded_nodes) | others
        named = frozenset(own_nodes) if len(own_nodes) >= request.nodes else None
        return [
            node
            for node in self._inventory.rows.values()
            if node.name not in excluded
            and (named is None or not own_nodes or node.name in named)
            and has_features(node, row.features)
        ]

    def _allowed(self, nodes: Sequence[NodeRow], share: Part, request: Request) -> tuple[str, ...] | None:
        memory = self._inventory.counts_memory
        found = tuple(node.name for node in nodes if _holds(node, share, request, memory))
        return None if len(found) == len(self._inventory.rows) else found


def _hosts(allowed: tuple[str, ...] | None) -> msgspec.Raw | None:
    return None if allowed is None else msgspec.Raw(msgspec.json.encode({"hostlist": allowed}))


def _spreads(request: Request, evenly: bool) -> bool:
    """Whether its tasks may be on any number of nodes, any number on each."""
    return (
        request.nodes == 1
        and (request.cpus_per_task == 1 or not evenly)
        and not request.most_nodes
        and request.cpus_per_node <= request.cpus_per_task
        and not (request.gres_per_job or request.cpus_per_gpu or request.memory_mb_per_gpu or request.tasks_per_gpu)
        and not request.overcommits
    )


def _holds(node: NodeRow, share: Part, request: Request, counts_memory: bool) -> bool:
    """Whether an empty node has what is asked of each."""
    if counts_memory and node.memory_mb < share.memory_mb:
        return False
    memory_mb = 0 if counts_memory else request.memory_mb_per_node
    enough = node.cpus >= share.cpus and node.disk_mb >= request.disk_mb_per_node and node.memory_mb >= memory_mb
    return enough and (not share.gres or covers(node.gres, share.gres))


def _together(
    nodes: Sequence[NodeRow], request: Request, least: int, most: int, own_nodes: tuple[str, ...]
) -> tuple[str, ...] | None:
    """The largest nodes that hold a job together which cannot be spread evenly."""
    each = Part(max(1, request.cpus_per_node, request.cpus_per_task), 0, request.gres_per_node)
    able = [node for node in nodes if _holds(node, each, request, False)]
    able.sort(key=lambda node: (node.name not in own_nodes, -gpus_of(node.gres) if request.gres_per_job else 0, -node.cpus))
    for count in range(least, most + 1):
        chosen = able[:count]
        gres: dict[str, int] = {}
        for node in chosen:
            for name, number in node.gres.items():
                gres[name] = gres.get(name, 0) + number
        tasks = sum(node.cpus // request.cpus_per_task for node in chosen)
        wanted = dict(request.gres_per_job)
        for name, number in request.gres_per_task.items():
            wanted[name] = wanted.get(name, 0) + number * request.tasks
        cpus = max(request.cpus, gpus_of(wanted) * request.cpus_per_gpu)
        enough = request.overcommits or (tasks >= request.tasks and sum(node.cpus for node in chosen) >= cpus)
        if len(chosen) == count and enough and covers(gres, wanted):
            return tuple(node.name for node in chosen)
    return None


def problem(row: JobRow) -> str:
    """Why this program cannot place a job; empty: it can."""
    if row.heterogeneous:
        return (
            "heterogeneous jobs are left to Slurm: only its backfill scheduler starts them, all parts at once; "
            "submit them to a partition that Slurm schedules itself"
        )
    if "*" in row.features or "[" in row.features:
        return (
            f"features that are counted ({row.features}) are left to Slurm: it takes no list of nodes for such a job; "
            "submit it to a partition that Slurm schedules itself"
        )
    return ""


def _chosen(
    nodes: Sequence[NodeRow], count: int, own_nodes: tuple[str, ...], is_free: Callable[[str], bool]
) -> tuple[str, ...] | None:
    """So many nodes with those that the user named, and free ones first. None: they cannot be had."""
    able = sorted(nodes, key=lambda node: (node.name not in own_nodes, not (node.usable and is_free(node.name))))
    chosen = tuple(node.name for node in able[:count])
    return chosen if set(own_nodes) <= set(chosen) else None


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
