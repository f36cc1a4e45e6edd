"""R version 1 (RFC 20): concrete resources, as an inventory or as an allocation.

In: JSON bytes or the decoded object. Out: a `ResourceSet`: per rank its cores and GPUs, its host name, and the times.
`encode` writes ranks with equal children as one R_lite entry, as Flux does.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from pilothouse.formats import hostlist
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.idset import IdSet

MOST_RANKS = 2**20

_NONE = IdSet()


class RankResources(msgspec.Struct, frozen=True):
    """What one rank holds."""

    rank: int
    cores: IdSet
    gpus: IdSet = _NONE


class ResourceSet(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks in ascending order, and the host name of each (none if R names no hosts)."""

    ranks: tuple[RankResources, ...] = ()
    hosts: tuple[str, ...] = ()
    slots: int = 0
    """nslots; 0: not said."""
    start_s: float = 0.0
    expiration_s: float = 0.0
    """0: none."""
    properties: dict[str, IdSet] = {}
    """Property name to the ranks that have it."""
    scheduling: Any = None
    """Only the scheduler that wrote it can read it."""

    def rank_ids(self) -> IdSet:
        return IdSet.of(entry.rank for entry in self.ranks)

    def core_count(self) -> int:
        return sum(len(entry.cores) for entry in self.ranks)

    def only(self, ranks: IdSet) -> ResourceSet:
        """The part on these ranks, without times, as a partial sched.free carries it."""
        kept = [i for i, entry in enumerate(self.ranks) if entry.rank in ranks]
        hosts = tuple(self.hosts[i] for i in kept) if self.hosts else ()
        return ResourceSet(ranks=tuple(self.ranks[i] for i in kept), hosts=hosts)


class _Execution(msgspec.Struct):
    R_lite: list[dict[str, Any]]
    nodelist: list[str] = []
    nslots: int = 0
    starttime: float = 0.0
    expiration: float = 0.0
    properties: dict[str, str] = {}


class _Document(msgspec.Struct):
    version: int
    execution: _Execution
    scheduling: Any = None


_decoder = msgspec.json.Decoder(_Document)


def parse(data: bytes | str | msgspec.Raw, *, where: str = "R") -> ResourceSet:
    """Reads JSON text. Raises InputError."""
    try:
        document = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(where, f"not an R object: {error}") from None
    return _checked(document, where)


def from_object(value: object, *, where: str = "R") -> ResourceSet:
    try:
        document = msgspec.convert(value, _Document)
    except msgspec.ValidationError as error:
        raise InputError(where, f"not an R object: {error}") from None
    return _checked(document, where)


def _checked(document: _Document, where: str) -> ResourceSet:
    if document.version != 1:
        raise InputError(f"{where}.version", "not R version 1", expected="1", found=quoted(document.version))
    execution = document.execution
    where = f"{where}.execution"
    found: dict[int, RankResources] = {}
    for i, entry in enumerate(execution.R_lite):
        path = f"{where}.R_lite[{i}]"
        children = entry.get("children")
        if not isinstance(children, dict):
            raise InputError(f"{path}.children", "expected an object", found=quoted(children))
        cores = _ids(children.get("core", ""), f"{path}.children.core")
        gpus = _ids(children.get("gpu", ""), f"{path}.children.gpu")
        for rank in _ids(entry.get("rank"), f"{path}.rank"):
            if rank in found:
                raise InputError(f"{path}.rank", "a rank that an earlier entry has", found=str(rank))
            if len(found) == MOST_RANKS:
                raise InputError(path, f"more than {MOST_RANKS} ranks")
            found[rank] = RankResources(rank, cores, gpus)
    hosts = hostlist.parse_all(execution.nodelist, where=f"{where}.nodelist")
    if hosts and len(hosts) != len(found):
        raise InputError(f"{where}.nodelist", f"{len(hosts)} hosts for {len(found)} ranks")
    for name, value in (("starttime", execution.starttime), ("expiration", execution.expiration)):
        if not 0 <= value < math.inf:
            raise InputError(f"{where}.{name}", "not a time", found=quoted(value))
    return ResourceSet(
        ranks=tuple(found[rank] for rank in sorted(found)),
        hosts=tuple(hosts),
        slots=execution.nslots,
        start_s=execution.starttime,
        expiration_s=execution.expiration,
        properties={name: _ids(ids, f"{where}.properties.{name}") for name, ids in execution.properties.items()},
        scheduling=document.scheduling,
    )


def _ids(value: object, where: str) -> IdSet:
    if not isinstance(value, str):
        raise InputError(where, "expected an idset text", found=quoted(value))
    return IdSet.parse_strict(value, where=where)


def to_object(resources: ResourceSet) -> dict[str, Any]:
    groups: dict[tuple[IdSet, IdSet], int] = {}
    for entry in resources.ranks:
        key = (entry.cores, entry.gpus)
        groups[key] = groups.get(key, 0) | 1 << entry.rank
    lite = []
    for (cores, gpus), mask in groups.items():
        children = {"core": cores.to_text(",")} if cores or not gpus else {}
        if gpus:
            children["gpu"] = gpus.to_text(",")
        lite.append({"rank": IdSet(mask).to_text(","), "children": children})
    execution: dict[str, Any] = {"R_lite": lite}
    if resources.slots:
        execution["nslots"] = resources.slots
    execution["starttime"] = resources.start_s
    execution["expiration"] = resources.expiration_s
    if resources.hosts:
        execution["nodelist"] = [hostlist.encode(resources.hosts)]
    if resources.properties:
        execution["properties"] = {name: ids.to_text(",") for name, ids in resources.properties.items()}
    document: dict[str, Any] = {"version": 1, "execution": execution}
    if resources.scheduling is not None:
        document["scheduling"] = resources.scheduling
    return document


def encode(resources: ResourceSet) -> bytes:
    return msgspec.json.encode(to_object(resources))
