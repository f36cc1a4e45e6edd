"""Profiles as Batsim workloads write them: the type names of Batsim 2, 3, 4 and 5, turned into model.profile.

`parse(raw, name, workload, where, base)` reads one description. Names of parts without `!` belong to the same workload.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, isqrt
from pathlib import Path
from typing import Literal

import msgspec

from pilothouse.formats.text_input import JSON_PROBLEMS
from pilothouse.model import profile as p
from pilothouse.model.errors import InputError, quoted

_NOTHING = msgspec.Raw(b"null")  # A union of Raw with None takes nothing but null.


class Written(msgspec.Struct):
    """All fields that any kind of profile may have; which of them count depends on `type`."""

    type: str
    ret: int = 0
    extra_data: msgspec.Raw = _NOTHING
    delay: float | None = None
    cpu: float | tuple[float, ...] | None = None
    com: float | tuple[float, ...] | None = None
    generation_strategy: str = ""
    seq: tuple[str, ...] | None = None
    repeat: int | None = None
    nb: int | None = None
    bytes_to_read: float | None = None
    bytes_to_write: float | None = None
    storage: str | None = None
    host: str | None = None
    nb_bytes: float | None = None
    source: msgspec.Raw = msgspec.field(name="from", default=_NOTHING)
    target: msgspec.Raw = msgspec.field(name="to", default=_NOTHING)
    trace: str | None = None
    trace_type: str | None = None
    filename: str | None = None
    msg: msgspec.Raw = _NOTHING
    sleeptime: float = 1e-7
    regex: str = ".*"
    success: str = ""
    failure: str = ""
    timeout: str = ""
    polltime: float = 0.005


class Place(msgspec.Struct, frozen=True):
    """The place of a description: for errors, for the names of its parts, and for files relative to it."""

    where: str
    workload: str
    base: Path

    def error(self, problem: str, **details: str) -> InputError:
        return InputError(self.where, problem, **details)

    def full(self, name: str) -> str:
        return full_name(self.workload, name)


class _PlainDelay(msgspec.Struct, forbid_unknown_fields=True):
    """The most frequent profile by far, without other fields."""

    type: Literal["delay", "DelayProfile"]
    delay: float


_WRITTEN = msgspec.json.Decoder(Written)
_PLAIN_DELAY = msgspec.json.Decoder(_PlainDelay)


def plain_delay(raw: msgspec.Raw, full: str) -> p.Profile | None:
    """A delay without other fields, read six times as fast; None if `parse` must read the profile."""
    try:
        seconds = _PLAIN_DELAY.decode(raw).delay
    except JSON_PROBLEMS:
        return None
    return p.Profile(full, p.Delay(seconds), source=raw) if seconds > 0.0 else None


def full_name(workload: str, name: str) -> str:
    """A profile's or job's name with its workload's in front, unless it is there already."""
    return name if "!" in name or not workload else f"{workload}!{name}"


def parse(raw: msgspec.Raw, name: str, place: Place) -> p.Profile:
    """One profile; InputError says which field is wrong."""
    try:
        written = _WRITTEN.decode(raw)
    except JSON_PROBLEMS as problem:
        raise place.error(str(problem)) from None
    read = READERS.get(written.type)
    if read is None:
        expected = f"one of {', '.join(READERS)}"
        raise place.error("unknown type of profile", found=quoted(written.type), expected=expected)
    spec = read(written, place)
    return p.Profile(place.full(name), spec, written.ret, extra_text(written.extra_data, place), raw)


def extra_text(raw: msgspec.Raw, place: Place) -> str | None:
    """`extra_data` is a string, or an object or array that is kept as compact JSON."""
    if bytes(raw) == b"null":
        return None
    value = _decoded(raw, place)
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    raise place.error("extra_data must be a string, an object or an array", found=quoted(value))


def _decoded(raw: msgspec.Raw, place: Place) -> object:
    try:
        return msgspec.json.decode(raw)
    except JSON_PROBLEMS as problem:  # such as a number out of range
        raise place.error(str(problem)) from None


LEAST_POLLTIME_S = 1e-6
"""A job that looks for a message more often than this would never get on."""


def _amount(value: object, field: str, place: Place, *, positive: bool = False) -> float:
    if value is None:
        raise place.error(f"field {field!r} is missing")
    if not isinstance(value, int | float) or not isfinite(value) or value < 0 or (positive and value == 0):
        kind = "a number above 0" if positive else "a number, 0 or more"
        raise place.error(f"field {field!r}", expected=kind, found=quoted(value))
    return float(value)


def _delay(w: Written, place: Place) -> p.Spec:
    return p.Delay(_amount(w.delay, "delay", place, positive=True))


def _amounts(value: object, field: str, place: Place) -> tuple[float, ...]:
    if value is None:
        return ()
    if not isinstance(value, tuple):
        raise place.error(f"field {field!r}", expected="an array of numbers", found=quoted(value))
    return tuple(_amount(v, f"{field}[{i}]", place) for i, v in enumerate(value))


def _parallel(w: Written, place: Place) -> p.Spec:
    flop, amounts = _amounts(w.cpu, "cpu", place), _amounts(w.com, "com", place)
    count = len(flop) or isqrt(len(amounts))
    if not flop and not amounts:
        raise place.error("a parallel task needs 'cpu', 'com' or both")
    if amounts and len(amounts) != count * count:
        expected = f"{count * count} numbers"
        raise place.error("matrix 'com' of the wrong size", expected=expected, found=str(len(amounts)))
    return p.ParallelTask(flop, amounts)


def _parallel_4(w: Written, place: Place) -> p.Spec:
    if w.cpu is None or w.com is None:
        raise place.error(f"field {'cpu' if w.cpu is None else 'com'!r} is missing")
    return _parallel(w, place)


def _homogeneous(w: Written, place: Place, spread: p.Spread = p.Spread.EACH) -> p.Spec:
    return p.HomogeneousTask(_amount(w.cpu, "cpu", place), _amount(w.com, "com", place), spread)


def _homogeneous_total(w: Written, place: Place) -> p.Spec:
    return _homogeneous(w, place, p.Spread.TOTAL)


def _strategy(w: Written) -> p.Spread:
    # QUIRK: Batsim 5 takes an unknown strategy for the default.
    return p.Spread.UNIFORM if w.generation_strategy == "DefinedAmountsSpreadUniformly" else p.Spread.EACH


def _storage(w: Written, place: Place) -> p.Spec:
    if w.bytes_to_read is None and w.bytes_to_write is None:
        raise place.error("needs 'bytes_to_read', 'bytes_to_write' or both")
    read = _amount(w.bytes_to_read or 0.0, "bytes_to_read", place)
    write = _amount(w.bytes_to_write or 0.0, "bytes_to_write", place)
    return p.StorageTask(read, write, w.storage or w.host or "pfs", _strategy(w))


def _storage_2(w: Written, place: Place) -> p.Spec:
    """Batsim 2's msg_par_hg_pfs* have one amount, `com`, which is written."""
    if w.com is not None and w.bytes_to_write is None and w.bytes_to_read is None:
        return p.StorageTask(0.0, _amount(w.com, "com", place), w.storage or w.host or "pfs")
    return _storage(w, place)


def _label(raw: msgspec.Raw, field: str, place: Place) -> str:
    value = _decoded(raw, place)
    if not isinstance(value, str):
        raise place.error(f"field {field!r}", expected="the name of a storage", found=quoted(value))
    return value


def _staging(w: Written, place: Place) -> p.Spec:
    amount = _amount(w.nb_bytes, "nb_bytes", place)
    return p.StagingTask(amount, _label(w.source, "from", place), _label(w.target, "to", place))


def _parts(w: Written, place: Place) -> tuple[str, ...]:
    if not w.seq:
        raise place.error("field 'seq'", expected="a non-empty array of names of profiles", found=quoted(w.seq))
    return tuple(place.full(name) for name in w.seq)


def _sequence(w: Written, place: Place) -> p.Spec:
    repeat = w.repeat if w.repeat is not None else w.nb if w.nb is not None else 1
    if repeat < 1:
        raise place.error("field 'repeat'", expected="1 or more", found=str(repeat))
    return p.Sequence(_parts(w, place), repeat)


def _trace(kind: p.TraceKind, field: str, name: str | None, place: Place) -> p.Spec:
    if not name:
        raise place.error(f"field {field!r} is missing")
    return p.TraceReplay(kind, name, str(place.base))


def _trace_5(w: Written, place: Place) -> p.Spec:
    kinds = {"SMPI": p.TraceKind.SMPI, "FractionalComputation": p.TraceKind.USAGE}
    if w.trace_type not in kinds:
        raise place.error("field 'trace_type'", expected=" or ".join(kinds), found=quoted(w.trace_type))
    return _trace(kinds[w.trace_type], "filename", w.filename, place)


def _send(w: Written, place: Place) -> p.Spec:
    if bytes(w.msg) == b"null":
        raise place.error("field 'msg' is missing")
    return p.SendMessage(w.msg, _amount(w.sleeptime, "sleeptime", place, positive=True))


def _receive(w: Written, place: Place) -> p.Spec:
    match, other, timeout = (place.full(name) if name else "" for name in (w.success, w.failure, w.timeout))
    polltime = _amount(w.polltime, "polltime", place, positive=True)
    if polltime < LEAST_POLLTIME_S:
        raise place.error("field 'polltime'", expected=f"{LEAST_POLLTIME_S:g} or more", found=quoted(w.polltime))
    return p.ReceiveMessage(w.regex, match, other, timeout, polltime)


_Read = Callable[[Written, Place], p.Spec]
BATSIM_4: dict[str, _Read] = {
    "delay": _delay,
    "parallel": _parallel_4,
    "parallel_homogeneous": _homogeneous,
    "parallel_homogeneous_total": _homogeneous_total,
    "parallel_homogeneous_pfs": _storage,
    "composed": _sequence,
    "data_staging": _staging,
    "send": _send,
    "recv": _receive,
    "smpi": lambda w, place: _trace(p.TraceKind.SMPI, "trace", w.trace, place),
    "usage_trace": lambda w, place: _trace(p.TraceKind.USAGE, "trace", w.trace, place),
}
"""The types of Batsim 3 and 4, which refuse all others."""
READERS: dict[str, _Read] = {
    **BATSIM_4,
    "msg_par": _parallel_4,
    "msg_par_hg": _homogeneous,
    "msg_par_hg_tot": _homogeneous_total,
    "msg_par_hg_pfs": _storage_2,
    "msg_par_hg_pfs0": _storage_2,
    "DelayProfile": _delay,
    "ParallelTaskProfile": _parallel,
    "ParallelTaskHomogeneousProfile": lambda w, place: _homogeneous(w, place, _strategy(w)),
    "ParallelTaskOnStorageHomogeneousProfile": _storage,
    "ParallelTaskDataStagingBetweenStoragesProfile": _staging,
    "SequentialCompositionProfile": _sequence,
    "ForkJoinCompositionProfile": lambda w, place: p.ForkJoin(_parts(w, place)),
    "ParallelTaskMergeCompositionProfile": lambda w, place: p.Merge(_parts(w, place)),
    "TraceReplayProfile": _trace_5,
}
"""Every type, of Batsim 3 and 4, then 2, then 5."""


def refuse_other_generations(raw: msgspec.Raw, place: Place) -> None:
    """InputError if a profile has a type that Batsim 3 and 4 do not know."""
    written = _WRITTEN.decode(raw).type
    if written not in BATSIM_4:
        expected = f"one of {', '.join(sorted(BATSIM_4))}"
        raise place.error("a type of profile that Batsim 4 does not know", found=quoted(written), expected=expected)
