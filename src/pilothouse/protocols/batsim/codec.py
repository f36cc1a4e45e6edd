"""Encodes and decodes messages, and checks the specification's rules for incoming ones.

In: bytes of a peer, or typed messages. Out: typed messages, or bytes. Numbers with a fraction are written with six
decimals, as Batsim does (also in user data that is passed on); whole numbers stay whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from json.encoder import encode_basestring as quote
from math import inf
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from pilothouse.model.errors import PeerError, quoted
from pilothouse.protocols.batsim.messages import FromBatsim, FromScheduler, Message, WireEvent, name_of

MOST_BYTES = 32 * 2**20
"""Limit of a message."""

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
    _, found, place = problem.partition("$.events[")
    if not found:
        return ""
    index = int(place.partition("]")[0].replace("...", "0") or 0)
    try:
        event = _any_json.decode(data)["events"][index]
        return str(event["type"])
    except (KeyError, IndexError, TypeError, msgspec.DecodeError):
        return f"event {index}"


def _checked(message: Message[T], peer: str) -> Message[T]:
    """The specification's rules: dates ascend, and none is later than `now`. (A `now` in the past is allowed.)"""
    last = -inf
    now = message.now
    for event in message.events:
        date = event.timestamp
        if not last <= date <= now:
            index = next(index for index, other in enumerate(message.events) if other is event)
            problem = f"is before that of the event before it ({last:g})"
            if not date <= now:
                problem = f"should be lower than or equal to now={now:g}"
            raise PeerError(peer, f"timestamp {date:g} of event {index} {problem}", event=name_of(event))
        last = date
    return message


def encode(now: float, events: str) -> bytes:
    """A message as Batsim writes it, from the text of its events."""
    return f'{{"now":{now:.6f},"events":[{events}]}}'.encode()


def encode_plainly(now: float, events: Sequence[WireEvent]) -> bytes:
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
