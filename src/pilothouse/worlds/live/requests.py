"""Requests of users to a run: files in the run's folder.

In: `ask` from a view, on any host that sees the folder. Out: `take_requests` for the driver, each at most once: its file is
removed before it is obeyed. A folder instead of a socket: every login node sees it, it needs no port, and it has the
owner's permissions. What became of a request is an Answer in the journal.
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
MOST_ANSWERS = 50
"""Answers that the journal keeps: the last ones."""
ANSWER_NOTE = "answer "
CONTEXT_NOTE = "context "
"""Names of notes: answers, and contexts that were added, for a run that is resumed."""


class StopEngine(msgspec.Struct, frozen=True, tag_field="ask", tag="stop-engine"):
    """An engine, by its id, finishes its tasks and leaves."""

    engine: str


class StopContext(msgspec.Struct, frozen=True, tag_field="ask", tag="stop-context"):
    """All engines of a context, by its name, finish their tasks and leave."""

    context: str


class CancelTask(msgspec.Struct, frozen=True, tag_field="ask", tag="cancel"):
    """A task, by its number, is ended if it runs, and not run if it waits. Its state is then `killed`."""

    task: int


class RetryTask(msgspec.Struct, frozen=True, tag_field="ask", tag="retry"):
    """A task of the task file that did not succeed is run once more."""

    task: int


class AskEstimate(msgspec.Struct, frozen=True, tag_field="ask", tag="estimate"):
    """The run's scheduler is asked how long a waiting task, by its number, will wait."""

    task: int


class AddContext(msgspec.Struct, frozen=True, tag_field="ask", tag="add-context"):
    """More engines: on hosts over ssh (`HOST:SLOTS,...`), or one with so many slots on the driver's own host."""

    hosts: str = ""
    slots: int = 0


class EndRun(msgspec.Struct, frozen=True, tag_field="ask", tag="end-run"):
    """Nothing more is begun. `finish`: tasks that run may end; `stop`: they are ended. The run can be resumed."""

    how: Literal["finish", "stop"]
    reason: str = "asked to end"


Request = StopEngine | StopContext | CancelTask | RetryTask | AskEstimate | AddContext | EndRun


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a request."""

    number: int
    """Answers are counted from 1."""
    at: float
    """Seconds since 1970."""
    request: Request
    done: bool
    text: str
    seconds: float | None = None
    """An estimate; None: there is none."""


def ask(folder: Path, request: Request) -> str:
    """Leaves a request for the driver of the run in this folder. Returns its id."""
    box = folder / FOLDER
    request_id = f"{time.time_ns()}-{os.getpid()}-{os.urandom(2).hex()}"
    try:
        box.mkdir(mode=0o700, exist_ok=True)
        write_whole(box / f"{request_id}.json", msgspec.json.encode(request))
    except OSError as error:
        raise InputError(str(box), f"cannot leave a request here: {error.strerror}") from error
    return request_id


def decode_request(data: bytes) -> Request:
    """Raises msgspec.DecodeError or UnicodeDecodeError."""
    request: Request = msgspec.json.decode(data, type=Request)
    return request


def take_requests(folder: Path) -> list[Request]:
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
            requests.append(decode_request(data))
        except InputError:
            # A pipe, a link, a file of another user: not a request.
            with contextlib.suppress(OSError):
                path.unlink()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue
    return requests
