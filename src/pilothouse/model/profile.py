"""What a simulated job does: a named Profile around one of eleven kinds of work.

Names of parts (in compositions) are full profile names, e.g. `w0!delay10`. Amounts are flop and bytes.
"""

from __future__ import annotations

import enum
from math import inf, isqrt
from pathlib import PurePath

import msgspec


class Spread(enum.Enum):
    """How a homogeneous task turns two numbers into amounts per host and per pair of hosts."""

    EACH = "each"
    """Every host computes `flop`; every ordered pair of different hosts exchanges `bytes`."""
    UNIFORM = "uniform"
    """`flop`/n on each host; `bytes`/(n*n-n) for each ordered pair."""
    TOTAL = "total"
    """`flop`/n on each host; `bytes`/n for each ordered pair (Batsim 2 to 4's total profiles)."""


class Delay(msgspec.Struct, frozen=True, gc=False):
    """Holds its hosts for so long, and uses nothing."""

    seconds: float


class ParallelTask(msgspec.Struct, frozen=True):
    """One amount per executor, and a row-major matrix of bytes (row = sender); either may be empty."""

    flop: tuple[float, ...]
    bytes: tuple[float, ...]


class HomogeneousTask(msgspec.Struct, frozen=True):
    """A parallel task whose amounts are the same on every host and between every pair."""

    flop: float
    bytes: float
    spread: Spread = Spread.EACH


class StorageTask(msgspec.Struct, frozen=True):
    """Every host reads from and writes to one storage, found by its label."""

    read_bytes: float
    write_bytes: float
    storage: str = "pfs"
    spread: Spread = Spread.EACH


class StagingTask(msgspec.Struct, frozen=True):
    """Moves bytes from one storage to another; the allocated hosts are only reserved."""

    bytes: float
    source: str
    target: str


class Sequence(msgspec.Struct, frozen=True):
    """One part after the other, the whole so many times."""

    parts: tuple[str, ...]
    repeat: int = 1


class ForkJoin(msgspec.Struct, frozen=True):
    """All parts at once on the same allocation; done when the last is done."""

    parts: tuple[str, ...]


class Merge(msgspec.Struct, frozen=True):
    """All parts (parallel tasks) added up into one parallel task."""

    parts: tuple[str, ...]


class TraceKind(enum.Enum):
    SMPI = "smpi"
    USAGE = "usage"


class TraceReplay(msgspec.Struct, frozen=True):
    """Replays one trace per rank. `file`, the list of traces, is named as the profile names it; `folder` is where to look."""

    kind: TraceKind
    file: str
    folder: str = ""

    @property
    def path(self) -> str:
        return str(PurePath(self.folder, self.file))


class SendMessage(msgspec.Struct, frozen=True):
    """Tells the decider something, then sleeps."""

    message: msgspec.Raw
    seconds: float = 1e-7


class ReceiveMessage(msgspec.Struct, frozen=True):
    """Waits for a message from the decider and goes on with the part that it selects."""

    pattern: str = ".*"
    on_match: str = ""
    on_other: str = ""
    on_timeout: str = ""
    poll_seconds: float = 0.005


Spec = (
    Delay
    | ParallelTask
    | HomogeneousTask
    | StorageTask
    | StagingTask
    | Sequence
    | ForkJoin
    | Merge
    | TraceReplay
    | SendMessage
    | ReceiveMessage
)


class Profile(msgspec.Struct, eq=False, gc=False):
    """A named kind of work. `source` is the description as it was written, for those who forward it."""

    name: str
    spec: Spec
    return_code: int = 0
    extra_data: str | None = None
    source: msgspec.Raw | None = None


def is_same(one: Profile, other: Profile) -> bool:
    """Whether two profiles have equal content, however it was written."""
    if one.source is None or other.source is None:
        return (one.spec, one.return_code, one.extra_data) == (other.spec, other.return_code, other.extra_data)
    try:
        return bool(msgspec.json.decode(one.source) == msgspec.json.decode(other.source))
    except msgspec.DecodeError:  # a number out of range, in a field that is not read
        return bytes(one.source) == bytes(other.source)


def problem_of(spec: Spec) -> str:
    """What is wrong with the amounts of a profile, empty if nothing is. Its parts are not looked at."""
    if isinstance(spec, Delay):
        return "" if 0.0 < spec.seconds < inf else f"a delay of {spec.seconds:g} s: it must be above 0"
    if isinstance(spec, ParallelTask):
        count = len(spec.flop) or isqrt(len(spec.bytes))
        if spec.bytes and len(spec.bytes) != count * count:
            return f"a matrix of {len(spec.bytes)} amounts for {count} executors: {count * count} are needed"
    for kind, amounts in _amounts_of(spec):
        for amount in amounts:
            if not 0.0 <= amount < inf:
                return f"{amount:g} {kind}: amounts must be 0 or more"
    if isinstance(spec, Sequence) and spec.repeat < 0:
        return f"{spec.repeat} repetitions: there must be 0 or more"
    return ""


def _amounts_of(spec: Spec) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """The amounts of a task, each kind with its unit."""
    if isinstance(spec, ParallelTask):
        return ("flop", spec.flop), ("bytes", spec.bytes)
    if isinstance(spec, HomogeneousTask):
        return ("flop", (spec.flop,)), ("bytes", (spec.bytes,))
    if isinstance(spec, StorageTask):
        return (("bytes", (spec.read_bytes, spec.write_bytes)),)
    if isinstance(spec, StagingTask):
        return (("bytes", (spec.bytes,)),)
    return ()


def parts_of(spec: Spec) -> tuple[str, ...]:
    """The names of the profiles that this one runs, empty for a plain task."""
    if isinstance(spec, Sequence | ForkJoin | Merge):
        return spec.parts
    if isinstance(spec, ReceiveMessage):
        return tuple(name for name in (spec.on_match, spec.on_other, spec.on_timeout) if name)
    return ()
