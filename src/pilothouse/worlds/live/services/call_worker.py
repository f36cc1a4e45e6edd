"""A worker of a Pool: a task that runs Python functions one after another, as the Pool's call server sends them.

In: calls as pickles, over the run's encrypted socket. Out: what each returned or raised, with its traceback. It ends when it is
told to, or when its server is not heard any more. The module imports little, so that a worker starts quickly.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from pilothouse.worlds.live.wire.sockets import Credentials, EngineSocket

SETTINGS = "PILOTHOUSE_WORKER"
"""In the environment of a worker: `WorkerSettings` as JSON."""
ANSWER_S = 3.0
"""After how long without an answer a worker tries another address of its server."""
GONE_S = 60.0


class WorkerSettings(msgspec.Struct, frozen=True):
    credentials: Credentials
    path: list[str]
    """Where modules are looked for, as in the program that has the Pool."""


class Ready(msgspec.Struct, tag="ready", array_like=True):
    """A worker waits for a call."""


class Done(msgspec.Struct, tag="done", array_like=True):
    """`answer`: the pickle of what was returned, or of the exception; `trace` is the traceback of the latter."""

    call: int
    answer: bytes
    trace: str = ""


class Call(msgspec.Struct, tag="call", array_like=True):
    """`data`: the pickle of function, arguments and named arguments."""

    call: int
    data: bytes


class Stay(msgspec.Struct, tag="stay", array_like=True):
    """There is nothing to do yet."""


class Leave(msgspec.Struct, tag="leave", array_like=True):
    """The worker is not needed any more."""


FromWorker = Ready | Done
ToWorker = Call | Stay | Leave
encode = msgspec.msgpack.Encoder().encode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode
_decode = msgspec.msgpack.Decoder(ToWorker).decode


def dumps() -> Callable[[Any], bytes]:
    """cloudpickle's, which takes functions of scripts and notebooks too; pickle's where it is not installed."""
    try:
        found: Callable[[Any], bytes] = importlib.import_module("cloudpickle").dumps
    except ImportError:
        found = pickle.dumps
    return found


def worker_command(python: str, root: str) -> tuple[str, ...]:
    """The command of a worker."""
    code = f"import sys; sys.path.append({root!r}); from pilothouse.worlds.live.services.call_worker import main; main()"
    return (python, "-P", "-c", code)


def main() -> None:
    settings = msgspec.json.decode(os.environ.pop(SETTINGS), type=WorkerSettings)
    sys.path[:] = settings.path
    identity = f"{os.environ.get('PILOTHOUSE_TASK', '')}-{os.environ.get('PILOTHOUSE_ATTEMPT', '')}-{os.getpid()}"
    wire = EngineSocket(settings.credentials, identity)
    wire.send(encode(Ready()))
    asked_at = heard_at = time.monotonic()
    heard_ever = False
    while time.monotonic() - heard_at < GONE_S:
        if not wire.socket.poll(1000):
            if not heard_ever and time.monotonic() - asked_at > ANSWER_S:
                wire.try_next_address()
                wire.send(encode(Ready()))
                asked_at = time.monotonic()
            continue
        for message in wire.receive():
            order = _decode(message)
            if isinstance(order, Leave):
                wire.close()
                return
            if isinstance(order, Call):
                wire.send(encode(_done(order)))
        heard_ever, heard_at = True, time.monotonic()
    sys.exit("the program that had the Pool is gone")


def _done(order: Call) -> Done:
    dump = dumps()
    try:
        function, arguments, named = pickle.loads(order.data)
        answer = function(*arguments, **named)
    except BaseException as problem:
        return _failed(order.call, problem, dump)
    try:
        return Done(order.call, dump(answer))
    except Exception as problem:
        return _failed(order.call, TypeError(f"{type(answer).__name__} cannot be sent back: {problem}"), dump)


def _failed(call: int, problem: BaseException, dump: Callable[[Any], bytes]) -> Done:
    trace = "".join(traceback.format_exception(problem))
    try:
        data = dump(problem)
        pickle.loads(data)  # some exceptions can be written and not read
    except Exception:
        data = pickle.dumps(RuntimeError(f"{type(problem).__name__}: {problem}"))
    return Done(call, data, trace)


if __name__ == "__main__":
    main()
