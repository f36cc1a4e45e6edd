"""Requests of users to a run: files in the run's folder.

In: `ask_to_stop` from a view, on any host that sees the folder. Out: `take_requests` for the driver, each once. A folder
instead of a socket: every login node sees it, it needs no port, and it has the owner's permissions.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Literal

import msgspec

from pilothouse.access.files import read_own, write_whole
from pilothouse.model.errors import InputError

FOLDER = "requests"
MOST_BYTES = 10_000
What = Literal["engine", "context"]


class StopRequest(msgspec.Struct, frozen=True):
    """An engine (by its id) or a context (by its name) finishes its tasks and leaves."""

    stop: What
    name: str


def ask_to_stop(folder: Path, what: What, name: str) -> None:
    """Leaves a request for the driver of the run in this folder."""
    box = folder / FOLDER
    try:
        box.mkdir(mode=0o700, exist_ok=True)
        path = box / f"{time.time_ns()}-{os.getpid()}.json"
        write_whole(path, msgspec.json.encode(StopRequest(what, name)))
    except OSError as error:
        raise InputError(str(box), f"cannot leave a request here: {error.strerror}") from error


def take_requests(folder: Path) -> list[StopRequest]:
    """All requests that were left, oldest first. Other files are removed as well."""
    box = folder / FOLDER
    try:
        names = sorted(name for name in os.listdir(box) if name.endswith(".json"))
    except OSError:
        return []  # not there, or no descriptor is left: the next look will do
    requests = []
    for name in names:
        path = box / name
        try:
            data = read_own(path, most_bytes=MOST_BYTES)
            path.unlink()
            requests.append(msgspec.json.decode(data, type=StopRequest))
        except InputError:
            # A pipe, a link, a file of another user: not a request.
            with contextlib.suppress(OSError):
                path.unlink()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue
    return requests
