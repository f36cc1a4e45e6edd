"""The inventory of a Flux instance (RFC 20) as our units: ranks and cores to unit numbers and back, GPUs, Rs of jobs.

A unit is a core; a rank has consecutive units in the order of its core ids. Deciders place cores. The GPUs of a job are
chosen here: the lowest free ones of each rank. Used by both ends: the world has a Flux inventory and numbers its units;
the decider has our nodes and makes an inventory of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

import msgspec

from pilothouse.formats import hostlist, resource_set
from pilothouse.formats.resource_set import RankResources, ResourceSet
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.masks import lowest_bits


@lru_cache(maxsize=4096)
def _nodelist(hosts: tuple[str, ...]) -> str:
    return hostlist.encode(hosts)


@lru_cache(maxsize=10_000)
def _children(cores: int, gpus: int) -> tuple[str, str]:
    """R_lite children and their human form, cached: many jobs of a run are alike."""
    core_text, gpu_text = IdSet(cores).to_text(","), IdSet(gpus).to_text(",")
    human = f"core{core_text if core_text.isdigit() else f'[{core_text}]'}"
    if not gpus:
        return f'{{"core":"{core_text}"}}', human
    with_gpus = f"{human},gpu{gpu_text if gpu_text.isdigit() else f'[{gpu_text}]'}"
    return f'{{"core":"{core_text}","gpu":"{gpu_text}"}}', with_gpus


class _Rank:
    """One rank of the inventory."""

    __slots__ = (
        "base", "core_ids", "core_mask", "count", "first", "free_gpus", "gpus", "host", "mask", "rank", "shifted",
    )  # fmt: skip

    def __init__(self, entry: RankResources, host: str, first: int) -> None:
        self.rank = entry.rank
        self.host = host
        self.first = first
        self.core_ids = tuple(entry.cores)
        self.count = len(self.core_ids)
        self.core_mask = entry.cores.mask
        self.mask = ((1 << self.count) - 1) << first
        self.gpus = entry.gpus.mask
        self.free_gpus = entry.gpus.mask
        self.base = self.core_ids[0] if self.core_ids else 0
        self.shifted = self.count == 0 or self.core_ids[-1] - self.base + 1 == self.count

    def cores_of(self, units: int) -> int:
        """Mask of core ids for a mask of units of this rank."""
        local = units >> self.first
        if self.shifted:
            return local << self.base
        mask = 0
        for index in IdSet(local):
            mask |= 1 << self.core_ids[index]
        return mask

    def units_of(self, cores: int) -> int:
        cores &= self.core_mask
        if self.shifted:
            return cores >> self.base << self.first
        mask = 0
        for index, core in enumerate(self.core_ids):
            if cores >> core & 1:
                mask |= 1 << self.first + index
        return mask


class Grant(msgspec.Struct, frozen=True):
    """The resources of a started job: R as bytes, its human form, and the GPUs per rank."""

    resources: bytes
    summary: str
    gpus: tuple[tuple[int, int], ...]


class Machine:
    """The inventory with its unit numbers, which never change. `firsts`: the first unit of each rank, ascending; without
    it ranks follow each other without gaps."""

    def __init__(self, inventory: ResourceSet, firsts: Sequence[int] | None = None) -> None:
        self.inventory = inventory
        self.ends_s = inventory.expiration_s
        """The end of the instance itself; 0: none."""
        hosts = inventory.hosts or tuple(f"rank{entry.rank}" for entry in inventory.ranks)
        if firsts is None:
            firsts = [0, *accumulate(len(entry.cores) for entry in inventory.ranks)][:-1]
        self._firsts = firsts
        self._order = [_Rank(*of_rank) for of_rank in zip(inventory.ranks, hosts, firsts, strict=True)]
        self._ranks = {rank.rank: rank for rank in self._order}
        self.units = IdSet(sum(rank.mask for rank in self._order))
        self.properties: dict[str, IdSet] = dict(inventory.properties)
        self.scheduling = inventory.scheduling
        """What the scheduler of the enclosing instance wrote; part of every R."""
        names = [rank.host for rank in self._order]
        # Test instances run several brokers on one host: then the rank makes the name unique.
        self._names = names if len(set(names)) == len(names) else [f"{r.host}@{r.rank}" for r in self._order]

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._node(i) for i in range(len(self._order)))

    def nodes_of(self, ranks: IdSet) -> tuple[Node, ...]:
        return tuple(self._node(i) for i, rank in enumerate(self._order) if rank.rank in ranks)

    def _node(self, index: int) -> Node:
        rank = self._order[index]
        held = {name: "" for name, ranks in self.properties.items() if rank.rank in ranks}
        properties = {**held, "rank": str(rank.rank), "host": rank.host}
        gpus = rank.gpus.bit_count()
        return Node(self._names[index], rank.first, rank.count, gpus, cores=rank.count, properties=properties)

    def ranks_of_hosts(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for rank in self._order:
            found.setdefault(rank.host, []).append(str(rank.rank))
        return found

    def units_on(self, ranks: IdSet) -> IdSet:
        mask = 0
        for rank in ranks:
            if rank in self._ranks:
                mask |= self._ranks[rank].mask
        return IdSet(mask)

    def units_in(self, resources: ResourceSet) -> IdSet:
        """The units of an R. Unknown ranks and cores are left out."""
        mask = 0
        for entry in resources.ranks:
            if entry.rank in self._ranks:
                mask |= self._ranks[entry.rank].units_of(entry.cores.mask)
        return IdSet(mask)

    def gpus_in(self, resources: ResourceSet) -> tuple[tuple[int, int], ...]:
        return tuple((entry.rank, entry.gpus.mask) for entry in resources.ranks if entry.gpus)

    def unknown_ranks(self, resources: ResourceSet) -> IdSet:
        """The ranks of an R that are not in the inventory."""
        return IdSet.of(entry.rank for entry in resources.ranks if entry.rank not in self._ranks)

    def ranks_in(self, units: IdSet) -> Iterator[tuple[int, int]]:
        """(rank, mask of its units), ascending. The cost is the number of ranks in `units`."""
        mask = units.mask & self.units.mask
        while mask:
            low = (mask & -mask).bit_length() - 1
            rank = self._order[bisect_right(self._firsts, low) - 1]
            yield rank.rank, mask & rank.mask
            mask &= ~rank.mask

    def grant(self, job: Job, units: IdSet, slots: int, start_s: float) -> Grant:
        """R of a job that starts on these units; takes its GPUs."""
        groups: dict[tuple[int, int], int] = {}
        taken: list[tuple[int, int]] = []
        hosts: list[str] = []
        for number, part in self.ranks_in(units):
            rank = self._ranks[number]
            gpus = self._choose_gpus(job, rank, part)
            if gpus:
                rank.free_gpus &= ~gpus
                taken.append((number, gpus))
            key = (rank.cores_of(part), gpus)
            groups[key] = groups.get(key, 0) | 1 << number
            hosts.append(rank.host)
        lite, summary = [], []
        for key, ranks in groups.items():
            children, human = _children(*key)
            ids = IdSet(ranks).to_text(",")
            lite.append(f'{{"rank":"{ids}","children":{children}}}')
            summary.append(f"rank{ids if ids.isdigit() else f'[{ids}]'}/{human}")
        expiration = 0.0 if job.walltime == float("inf") else start_s + job.walltime
        if self.ends_s:
            # No job may outlive its instance.
            expiration = min(expiration or self.ends_s, self.ends_s)
        text = (
            f'{{"version":1,"execution":{{"R_lite":[{",".join(lite)}],"nslots":{slots},"starttime":{start_s!r},'
            f'"expiration":{expiration!r},"nodelist":["{_nodelist(tuple(hosts))}"]'
        )
        if self.properties:
            ranks = 0
            for mask in groups.values():
                ranks |= mask
            held = {name: ids.to_text(",") for name, ids in self._properties_on(ranks).items()}
            if held:
                text += f',"properties":{msgspec.json.encode(held).decode()}'
        text += "}}" if self.scheduling is None else f'}},"scheduling":{msgspec.json.encode(self.scheduling).decode()}}}'
        return Grant(text.encode(), " ".join(summary), tuple(taken))

    def give_back(self, gpus: tuple[tuple[int, int], ...]) -> None:
        for rank, mask in gpus:
            if rank in self._ranks:
                self._ranks[rank].free_gpus |= mask

    def take(self, gpus: tuple[tuple[int, int], ...]) -> None:
        """GPUs of a job that is already running."""
        for rank, mask in gpus:
            if rank in self._ranks:
                self._ranks[rank].free_gpus &= ~mask

    def resources(self, units: IdSet, start_s: float = 0.0, expiration_s: float = 0.0) -> bytes:
        """R of any units, without GPUs."""
        ranks = tuple(
            RankResources(rank, IdSet(self._ranks[rank].cores_of(part))) for rank, part in self.ranks_in(units)
        )
        hosts = tuple(self._ranks[entry.rank].host for entry in ranks)
        properties = self._properties_on(IdSet.of(entry.rank for entry in ranks).mask)
        return resource_set.encode(
            ResourceSet(ranks=ranks, hosts=hosts, start_s=start_s, expiration_s=expiration_s, properties=properties)
        )

    def _properties_on(self, ranks: int) -> dict[str, IdSet]:
        """RFC 20: the properties that ranks of a mask have. A job's R needs them: its own scheduler matches constraints
        against them. Names that begin with `+` are local to this instance and are not passed on."""
        found = ((name, ids.mask & ranks) for name, ids in self.properties.items() if not name.startswith("+"))
        return {name: IdSet(mask) for name, mask in found if mask}

    def _choose_gpus(self, job: Job, rank: _Rank, part: int) -> int:
        shape = job.shape
        if shape is None or not rank.gpus:
            return 0
        if shape.exclusive:
            return rank.free_gpus
        wanted = shape.gpus_per_node
        if shape.gpus_per_chunk:
            wanted = part.bit_count() // max(1, shape.chunk) * shape.gpus_per_chunk
        return lowest_bits(rank.free_gpus, wanted) if wanted else 0
