"""What a run of a task file notes in its journal: its options, and where its tasks are. A resumed run and a forecast read it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pilothouse.launch.run_options import RunOptions
from pilothouse.model.errors import InputError


class RunPlan(msgspec.Struct, kw_only=True):
    """What a run must remember to be resumed; noted in its journal."""

    options: RunOptions
    source: str
    cwd: str
    total: int | None
    digest: bytes
    """Of the task file as it was in the beginning; empty if tasks came from standard input."""


def plan_of(folder: Path, noted: bytes | None) -> RunPlan:
    if noted is None:
        raise InputError(str(folder), "its journal is not one of `pilothouse run`")
    try:
        return msgspec.msgpack.decode(noted, type=RunPlan)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(folder), f"its journal is damaged, or of another version of pilothouse: {error}") from error
