"""The payloads of messages: JSON objects of RFC 27 (allocation), RFC 28 (inventory) and RFC 16 (jobs in the KVS).

Unknown keys are ignored, as in Flux. R and jobspec stay raw bytes here.
"""

from __future__ import annotations

import base64
import binascii
import enum
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec

MOST_PRIORITY = 2**32 - 1
EXPEDITED_PRIORITY = MOST_PRIORITY
HELD_PRIORITY = 0
DEFAULT_URGENCY, HELD_URGENCY, EXPEDITED_URGENCY = 16, 0, 31

JobId = Annotated[int, msgspec.Meta(ge=0)]
"""A FLUID (formats/fluid.py)."""
Priority = Annotated[int, msgspec.Meta(ge=HELD_PRIORITY, le=MOST_PRIORITY)]
"""RFC 27: 0 through 4294967295. A message with another one is malformed."""

T = TypeVar("T")


class PayloadError(ValueError):
    """A payload that does not have the keys or types that the RFC requires."""


class AllocType(enum.IntEnum):
    SUCCESS = 0
    ANNOTATE = 1
    DENY = 2
    CANCEL = 3


class HelloRequest(msgspec.Struct, rename="kebab"):
    partial_ok: bool = False


class HelloJob(msgspec.Struct):
    """A running job. Flux's schedulers need t_submit, as a JSON real."""

    id: JobId
    priority: Priority
    userid: int
    t_submit: float = 0.0
    free: str | msgspec.UnsetType = msgspec.UNSET
    """Ranks that it has given back."""


class HelloAnswer(msgspec.Struct):
    """The single answer of the specification's dialect."""

    alloc: list[HelloJob]


class ReadyRequest(msgspec.Struct, omit_defaults=True):
    mode: str
    limit: int = 0


class ReadyAnswer(msgspec.Struct):
    count: int = 0


class AllocRequest(msgspec.Struct, omit_defaults=True):
    id: JobId
    priority: Priority
    userid: int
    t_submit: float = 0.0
    jobspec: msgspec.Raw = msgspec.Raw(b"")


class AllocAnswer(msgspec.Struct, omit_defaults=True):
    id: JobId
    type: int
    R: msgspec.Raw = msgspec.Raw(b"")
    annotations: dict[str, Any] | None = None
    note: str = ""


class JobOnly(msgspec.Struct):
    """sched.cancel, the specification's sched.free and its answer."""

    id: JobId


class FreeRequest(msgspec.Struct, omit_defaults=True):
    """`R` empty: all that the job holds. Without `final` more is to come."""

    id: JobId
    R: msgspec.Raw = msgspec.Raw(b"")
    final: bool = False


class PrioritizeRequest(msgspec.Struct):
    jobs: list[tuple[JobId, Priority]]


class ExpirationRequest(msgspec.Struct):
    id: JobId
    expiration: float


class FeasibilityRequest(msgspec.Struct):
    jobspec: msgspec.Raw


class QuiesceRequest(msgspec.Struct, omit_defaults=True):
    """Our extension. `now`: the date of a simulated world."""

    id: int = 0
    now: float | None = None


class QuiesceAnswer(msgspec.Struct, omit_defaults=True):
    """`call_at`: the date at which the scheduler wants to be asked again."""

    id: int = 0
    call_at: float | None = None


class RaiseRequest(msgspec.Struct):
    id: JobId
    severity: int
    type: str
    note: str = ""


class ServiceRequest(msgspec.Struct):
    service: str


class AcquireAnswer(msgspec.Struct, omit_defaults=True, rename="kebab"):
    """RFC 28: first the inventory, then its changes."""

    resources: msgspec.Raw = msgspec.Raw(b"")
    up: str | None = None
    down: str | None = None
    shrink: str | None = None
    expiration: float | None = None
    property_add: dict[str, str] | None = None
    property_remove: dict[str, str] | None = None
    now: float | None = None
    """Our extension: the date of a manager in simulated time."""


DECODE_JOB_INFO = 1


class JobInfoRequest(msgspec.Struct):
    id: JobId
    keys: list[str]
    flags: int = 0


class NameRequest(msgspec.Struct):
    name: str


class Dirent(msgspec.Struct):
    ver: int
    type: str
    data: Any


class LookupRequest(msgspec.Struct):
    key: str
    namespace: str = "primary"
    flags: int = 0


class LookupAnswer(msgspec.Struct):
    val: Dirent


class CommitOperation(msgspec.Struct):
    key: str
    flags: int
    dirent: Dirent | None


class CommitRequest(msgspec.Struct):
    namespace: str
    flags: int
    ops: list[CommitOperation]


encode = msgspec.json.Encoder().encode

_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def decode(body: bytes, kind: type[T]) -> T:
    """Reads a payload. Raises PayloadError with the path of the problem."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(body)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(str(error)) from None


def commit_values(values: Sequence[tuple[str, bytes]]) -> bytes:
    """The payload of a kvs.commit of these keys and values."""
    operations = b",".join(
        b'{"key":"%s","flags":0,"dirent":{"ver":1,"type":"val","data":"%s"}}' % (key.encode(), base64.b64encode(value))
        for key, value in values
    )
    return b'{"namespace":"primary","flags":0,"ops":[' + operations + b"]}"


def lookup_payload(key: str) -> bytes:
    return b'{"key":"' + key.encode() + b'","namespace":"primary","flags":0}'


def encoded_value(value: bytes) -> str:
    return base64.b64encode(value).decode()


def value_of(dirent: Dirent) -> bytes:
    """The bytes of a KVS value. Raises PayloadError."""
    if dirent.type != "val" or not isinstance(dirent.data, str):
        raise PayloadError(f"a KVS entry of type {dirent.type!r} where a value was expected")
    try:
        return base64.b64decode(dirent.data, validate=True)
    except binascii.Error as error:
        raise PayloadError(f"a KVS value that is not base64: {error}") from None
