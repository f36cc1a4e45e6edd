"""What both readers of Batsim messages share: job descriptions, profiles, sets of resources, and errors.

event_reader.py reads what a Batsim sends, decision_reader.py what a scheduler sends. All errors are PeerErrors that name
the peer and the event.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET, Raw

from pilothouse.formats.profile_json import full_name
from pilothouse.model.errors import InputError, PeerError, quoted
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.profile import HomogeneousTask, Profile, Sequence, Spread
from pilothouse.protocols.batsim.messages import JobData, WireEvent, name_of

if TYPE_CHECKING:
    from pilothouse.protocols.batsim.redis_store import RedisStore

MOST_DIGITS = 6
"""Of a resource number that is parsed here; IdSet.parse judges longer ones."""


class JobDescription(msgspec.Struct):
    """The members of a job's JSON object that count. Generation 2 may leave out the date and the id."""

    res: int
    profile: str = ""
    id: str | int | None = None
    subtime: float | None = None
    walltime: float | None = None


Description = TypeVar("Description", bound=JobDescription)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> IdSet:
    """A set of resources. Schedulers name the same sets again and again, mostly as single numbers."""
    mask = 0
    for part in text.split(" "):
        if not part.isdecimal() or not part.isascii() or len(part) > MOST_DIGITS:
            return IdSet.parse(text)
        mask |= 1 << int(part)
    return IdSet(mask)


class WireReader:
    """`profiles`: the known ones by full name."""

    def __init__(self, peer: str, profiles: dict[str, Profile], store: RedisStore | None) -> None:
        self.peer = peer
        self._profiles = profiles
        self._store = store

    def error(self, event: WireEvent, problem: str) -> PeerError:
        return PeerError(self.peer, problem, event=name_of(event))

    def _units(self, event: WireEvent, text: str) -> IdSet:
        try:
            return _parsed(text)
        except InputError:
            raise self.error(event, f"not a set of resources: {quoted(text)}; expected e.g. '0-3 7'") from None

    def _number(self, event: WireEvent, value: int | str, what: str = "the number of a resource") -> int:
        try:
            return int(value)
        except ValueError:
            raise self.error(event, f"not {what}: {quoted(value)}") from None

    def _source(self, event: WireEvent, data: JobData) -> Raw:
        """The JSON object of a job, from the message or from Redis."""
        if data.job is not UNSET:
            return data.job
        if self._store is None:
            raise self.error(event, f"job {data.job_id} has no description, and Redis is not enabled")
        return Raw(self._store.get_job(data.job_id))

    def _description(self, event: WireEvent, job_id: str, source: Raw, kind: type[Description]) -> Description:
        try:
            return msgspec.json.decode(source, type=kind)
        except msgspec.DecodeError as problem:
            raise self.error(event, f"job {job_id}: {problem}") from None

    def _job(self, event: WireEvent, job_id: str, written: JobDescription, walltime: float, source: Raw) -> Job:
        profile = self._known(full_name(job_id.partition("!")[0], written.profile))
        submitted_at = event.timestamp if written.subtime is None else written.subtime
        job = Job(job_id, written.res, walltime, submitted_at, profile, source=source)
        job.elastic = self._is_elastic(profile)
        return job

    def _known(self, name: str) -> Profile | None:
        return self._profiles.get(name)

    def _is_elastic(self, profile: Profile | None) -> bool:
        """Whether its work is divided by the number of hosts."""
        if profile is None:
            return False
        spec = profile.spec
        if isinstance(spec, Sequence):
            return all(self._is_elastic(self._known(part)) for part in spec.parts)
        return isinstance(spec, HomogeneousTask) and spec.spread is Spread.TOTAL
