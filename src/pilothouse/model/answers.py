"""What `cluster.start(job)` answers: it was placed, it cannot start now, or it never can. Only Placed is true."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from pilothouse.model.idset import IdSet


class Placed(msgspec.Struct, frozen=True):
    units: IdSet


class NotNow(msgspec.Struct, frozen=True):
    """Resources are missing at the moment."""

    reason: str

    def __bool__(self) -> bool:
        return False


class Never(msgspec.Struct, frozen=True):
    """No state of this cluster could hold the job."""

    reason: str

    def __bool__(self) -> bool:
        return False


Answer: TypeAlias = Placed | NotNow | Never
