"""Encodes and decodes messages, and checks the specification's rules for incoming ones.

In: bytes of a peer, or typed messages. Out: typed messages, or bytes. Numbers with a fraction are written with six
decimals, as Batsim does (also in user data that is passed on); whole numbers stay whole.
"""

from __future__ import annotations

import logging
from functools import cache, lru_cache
from json.encoder import encode_basestring as quote
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from pilothouse.formats import profile_json
from pilothouse.formats.profile_json import full_name
from pilothouse.model import profile as p
from pilothouse.model.errors import InputError, PeerError, quoted
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.profile import HomogeneousTask, Profile, Spread
from pilothouse.protocols.batsim.messages import FromBatsim, FromScheduler, JobData, Message, WireEvent, name_of
from pilothouse.protocols.batsim.settings import Dialect

if TYPE_CHECKING:
    from pilothouse.protocols.batsim.redis_store import RedisStore


MOST_BYTES = 32 * 2**20
"""Limit of a message."""

_log = logging.getLogger("pilothouse.batsim")

T = TypeVar("T", bound=WireEvent)

_WRONG = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_decode_from_scheduler = msgspec.json.Decoder(Message[FromScheduler]).decode
_any_json = msgspec.json.Decoder()
_with_six_decimals = msgspec.json.Decoder(float_hook=lambda digits: Raw(b"%.6f" % float(digits)))
_encode = msgspec.json.Encoder().encode


def decode_from_scheduler(data: bytes, peer: str = "scheduler") -> Message[FromScheduler]:
    """A message of a scheduler. Raises PeerError."""
    if len(data) > MOST_BYTES:
        raise _too_long(data, peer)
    try:
        if not data.isascii():
            data.decode()  # parts of it are only read later
        message = _decode_from_scheduler(data)
    except _WRONG as error:
        raise _refusal(data, error, peer) from None
    events = message.events
    if not events or (len(events) == 1 and events[0].timestamp <= message.now):
        return message  # The usual answers.
    return _checked(message, peer)


def decode_from_batsim(data: bytes, peer: str = "Batsim") -> Message[FromBatsim]:
    """A message of a Batsim. Raises PeerError."""
    if len(data) > MOST_BYTES:
        raise _too_long(data, peer)
    try:
        if not data.isascii():
            data.decode()
        return _checked(_batsim_decoder().decode(data), peer)
    except _WRONG as error:
        raise _refusal(data, error, peer) from None


@cache
def _batsim_decoder() -> msgspec.json.Decoder[Message[FromBatsim]]:
    """Made when it is first needed: only BatsimWorld needs it."""
    return msgspec.json.Decoder(Message[FromBatsim])


def _too_long(data: bytes, peer: str) -> PeerError:
    return PeerError(peer, f"sent a message of {len(data)} bytes, more than {MOST_BYTES}")


def _refusal(data: bytes, error: Exception, peer: str) -> PeerError:
    if not isinstance(error, msgspec.ValidationError):
        return PeerError(peer, f"invalid JSON message: {error}; it begins {quoted(data[:40])}")
    event, problem = _blamed_event(data, str(error)), f"invalid message: {error}"
    if problem.endswith(".type`"):
        problem = "unknown type of event"
    return PeerError(peer, problem, event=event)


def _blamed_event(data: bytes, problem: str) -> str:
    """The wire name of the event that a validation error is about, if it has one."""
    # The place is last: what stands before it may be the peer's own text.
    _, found, place = problem.rpartition("$.events[")
    if not found:
        return ""
    index = int(place.partition("]")[0])
    try:
        event = _any_json.decode(data)["events"][index]
        return str(event["type"])
    except (KeyError, IndexError, TypeError, *_WRONG):
        return f"event {index}"


def _checked(message: Message[T], peer: str) -> Message[T]:
    """The specification's rules: no date is later than `now`, and dates ascend. Batsim accepts dates that descend, and so do
    we, with a warning: the event before delays the one with the earlier date. (A `now` in the past is allowed.)"""
    last = -inf
    now = message.now
    for index, event in enumerate(message.events):
        date = event.timestamp
        if not date <= now:
            problem = f"timestamp {date:g} of event {index} should be lower than or equal to now={now:g}"
            raise PeerError(peer, problem, event=name_of(event))
        if date < last:
            what = f"timestamp {date:g} of event {index} is before that of the event before it ({last:g})"
            _log.warning("%s: %s: %s; events take effect in the order of the message", peer, name_of(event), what)
        last = date
    return message


def encode(now: float, events: str) -> bytes:
    """A message as Batsim writes it, from the text of its events."""
    return f'{{"now":{now:.6f},"events":[{events}]}}'.encode()


def encode_plainly(now: float, events: list[WireEvent]) -> bytes:
    """A message as schedulers write it: dates with all digits."""
    return msgspec.json.encode(Message(now, list(events)))


def text_of(value: object) -> str:
    """JSON text of structs and plain values, with six decimals."""
    kind = type(value)
    if kind is str:
        return quote(value)  # type: ignore[arg-type]
    if kind is float:
        return f"{value:.6f}"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if kind is int:
        return str(value)
    if value is None:
        return "null"
    if kind is dict:
        return "{" + ",".join([f"{quote(str(key))}:{text_of(item)}" for key, item in value.items()]) + "}"  # type: ignore[attr-defined]
    if kind is list or kind is tuple:
        return "[" + ",".join(map(text_of, value)) + "]"  # type: ignore[call-overload]
    if isinstance(value, Raw):
        return bytes(value).decode()
    if isinstance(value, Struct):
        return _struct_text(value)
    raise TypeError(f"{kind.__name__} is not a JSON value")


def _struct_text(value: Struct) -> str:
    kind = type(value)
    known = _FIELDS.get(kind)
    if known is None:
        tag = value.__struct_config__.tag
        opening = "{" if tag is None else f'{{"type":{quote(str(tag))},'
        known = _FIELDS[kind] = (opening, [(name, f'"{name}":') for name in value.__struct_fields__])
    opening, fields = known
    parts = [key + text_of(item) for name, key in fields if (item := getattr(value, name)) is not UNSET]
    return opening + ",".join(parts) + "}"


_FIELDS: dict[type, tuple[str, list[tuple[str, str]]]] = {}
"""For each struct: the text before its members, and the members."""


def passed_on(source: Raw | bytes, **changed: object) -> str:
    """A JSON object of the user with some members replaced and numbers written as Batsim writes them."""
    value = _with_six_decimals.decode(source)
    if changed and isinstance(value, dict):
        value.update(changed)
    return _encode(value).decode()


def profile_text(profile: Profile) -> Raw:
    """The JSON text of a profile for a scheduler."""
    return Raw(passed_on(profile.source if profile.source is not None else b"{}").encode())


def read_profile(raw: Raw, workload: str, name: str, peer: str, event: str, dialect: Dialect = Dialect.ANY) -> Profile:
    """A profile of a message. Raises PeerError."""
    place = profile_json.Place(f"profile {name}", workload, Path())
    try:
        profile = profile_json.parse(raw, name, place)
        if dialect.since_three:
            profile_json.refuse_other_generations(raw, place)
        return profile
    except InputError as problem:
        raise PeerError(peer, str(problem), event=event) from None


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
        except _WRONG as problem:
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
        if isinstance(spec, p.Sequence):
            return all(self._is_elastic(self._known(part)) for part in spec.parts)
        return isinstance(spec, HomogeneousTask) and spec.spread is Spread.TOTAL
