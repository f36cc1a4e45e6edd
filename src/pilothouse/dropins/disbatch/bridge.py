"""Between a live run and its key-value service: what monitors, tasks and task sources put there and find there.

In: the run's records, values that clients put. Out: the status for monitors, the ids of passed barriers under their
keys, results for a task source; requests to stop an engine or context; task lines that come through the KVS.

Messages of disBatch's own programs are pickles. A reader that knows disBatch's classes and nothing else reads them, which runs
nothing (protocols/disbatch); a client that sends another class loses its connection.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from pilothouse.dropins.disbatch.foreign_engines import ForeignEngines, PerEngine
from pilothouse.dropins.disbatch.status_file import StatusKind, StatusLine, snippet_text
from pilothouse.dropins.disbatch.status_json import STARTING, STATUS_KEYS, StatusBoard
from pilothouse.formats.task_file import TaskLine, TaskReader
from pilothouse.model.errors import InputError, PeerError
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.disbatch import pickles
from pilothouse.protocols.disbatch.messages import (
    CONTROLLER,
    DB_INFO,
    Context,
    ContextInfo,
    ControllerMessage,
    EngineStopped,
    Internal,
    Register,
    StopRequest,
    TaskInfo,
    read_controller,
    task_info,
)
from pilothouse.protocols.disbatch.messages import context as context_instance
from pilothouse.protocols.disbatch.pickles import Instance, UnknownClass
from pilothouse.worlds.live.records import EngineJoined, EngineLeft, Record, TaskEnded
from pilothouse.worlds.live.services.key_values import barrier_key
from pilothouse.worlds.live.services.kvs import JSON, PICKLE, TEXT, Value
from pilothouse.worlds.live.services.kvs_client import KvsClient
from pilothouse.worlds.live.services.kvs_wire import WireError

COMMON_ENV_KEYS = (".common env", ".common_env")
"""The variables that all tasks have; the program uses the first spelling, its specification the second."""
UPDATE_EVERY_S = 0.5
log = logging.getLogger("disBatch.driver")
_SOURCE_KEYS = ("task source name", "task source done task", "task source result key", "task source task key")
HEART_BEAT_S = 30.0


class Kvs(Protocol):
    """The service of this process, or one elsewhere."""

    @property
    def address(self) -> str: ...
    def put(self, key: str, data: bytes, coding: bytes = TEXT) -> None: ...
    def replace(self, key: str, data: bytes, coding: bytes = TEXT) -> None: ...
    def listen(self, key: str, receive: Callable[[Value], None]) -> None: ...
    def close(self) -> None: ...


class RemoteKvs:
    """The service of another program (`--kvsserver HOST:PORT`). When that program has ended, the run goes on without it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.gone = ""
        """Why the service cannot be reached any more; "": it can."""
        self._client = self._connect()
        self._lock = threading.Lock()
        self._posted: set[str] = set()

    def put(self, key: str, data: bytes, coding: bytes = TEXT) -> None:
        with self._lock, self._lost():
            self._client.put(key, data, coding)

    def replace(self, key: str, data: bytes, coding: bytes = TEXT) -> None:
        """Takes our last value away before the new one is put; others must leave the key alone."""
        with self._lock, self._lost():
            if key in self._posted:
                self._client.get(key)
            self._client.put(key, data, coding)
            self._posted.add(key)

    def _connect(self) -> KvsClient:
        try:
            return KvsClient(self.address)
        except OSError as error:
            raise InputError(self.address, f"the key-value service cannot be reached: {error.strerror or error}") from error

    @contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except (OSError, PeerError) as error:
            self.gone = self.gone or f"the key-value service {self.address} is gone ({error})"

    def listen(self, key: str, receive: Callable[[Value], None]) -> None:
        def loop() -> None:
            with self._lost(), KvsClient(self.address) as client:
                while True:
                    try:
                        receive(client.get(key))
                    except WireError as error:  # the connection of its sender is not ours to close
                        log.warning("dropped %s", error)

        threading.Thread(target=loop, name=f"kvs {key}", daemon=True).start()

    def close(self) -> None:
        self._client.close()


class KvsTasks:
    """Task lines that a program submits through the KVS (`--taskserver`, `--taskcommand`, disBatch's DisBatcher).

    Iterate it: a TaskLine, or None while nothing has come; it ends with the source's own end mark.
    """

    def __init__(self, kvs: Kvs, wake: Callable[[], None], reader: TaskReader) -> None:
        """Sources of edition 2 sign in by their name; later ones give their keys as well."""
        self.name = ""
        self.result_key = ""
        self.signed_in = threading.Event()
        self._kvs = kvs
        self._wake = wake
        self._reader = reader
        self._items: deque[bytes | None] = deque()
        self._said: dict[str, bytes] = {}
        self._keys = _SOURCE_KEYS[:1] if reader.edition == 2 else _SOURCE_KEYS
        for key in self._keys:
            kvs.listen(key, lambda value, key=key: self._hear(key, value))  # type: ignore[misc]

    def finish(self) -> None:
        """Ends the iteration, even if the source goes on."""
        self._items.append(None)
        self._wake()

    def __iter__(self) -> Iterator[TaskLine | None]:
        while True:
            if not self._items:
                yield None
                continue
            item = self._items.popleft()
            if item is None:
                return
            yield from self._reader.feed(item)
            if self._reader.over:
                return

    def _hear(self, key: str, value: Value) -> None:
        if self.signed_in.is_set():
            return
        self._said[key] = value.data
        if len(self._said) == len(self._keys):
            name, *others = (self._said[key] for key in self._keys)
            done, result_key, task_key = others or (name + b" done!", name + b" result", name + b" task")
            self.name = name.decode("utf-8", "replace")
            self.result_key = result_key.decode("utf-8", "replace")
            self.signed_in.set()
            self._kvs.listen(task_key.decode("utf-8", "replace"), lambda v: self._take(v.data, done))

    def _take(self, data: bytes, done: bytes) -> None:
        self._items.append(None if data == done else data)
        self._wake()


class Bridge:
    """Shows a run in the KVS: `write` takes its records; call `update` about once a second."""

    def __init__(
        self,
        kvs: Kvs,
        common_env: Mapping[str, str] | None = None,
        *,
        run_info: Instance | None = None,
        tasks: KvsTasks | None = None,
        edition: int = 3,
    ) -> None:
        self.tasks = tasks
        self._run_info = run_info or Instance("argparse", "Namespace", {"args": Instance("argparse", "Namespace", {})})
        kvs.replace(DB_INFO, pickles.write(self._run_info), PICKLE)
        self.board = StatusBoard()
        self._edition = edition
        self._kvs = kvs
        self._requests: deque[StopRequest] = deque()
        self._foreign: ForeignEngines | None = None
        self._per_engine: PerEngine | None = None
        self._early: list[ControllerMessage] = []
        self._beat_at = time.monotonic() + HEART_BEAT_S
        self._update_at = 0.0
        self._ranks: dict[str, int] = {}
        for key in STATUS_KEYS:
            kvs.replace(key, STARTING)
        for key in COMMON_ENV_KEYS:
            kvs.replace(key, pickles.write(dict(common_env or {})), PICKLE)
        kvs.listen(CONTROLLER, self._hear)

    def work_with(self, foreign: ForeignEngines, per_engine: PerEngine) -> None:
        """Real engines of disBatch may join from now on; those that wanted to before are heard now."""
        self._per_engine = per_engine
        self._foreign = foreign
        for message in self._early:
            self._pass_on(message)

    def say(self, word: str, value: object) -> None:
        """What disBatch's driver says to itself through the service."""
        self._kvs.put(CONTROLLER, pickles.write((word, value)), PICKLE)

    def write(self, records: list[Record]) -> None:
        self.board.write(records)
        passed = 0
        for record in records:
            if type(record) is TaskEnded:
                if record.final:
                    self._tell(record)
                if record.state is JobState.LOST and self._edition == 2:
                    self._say_lost(record)
                passed += record.kind in "BC"
            elif type(record) is EngineJoined and not (self._foreign and self._foreign.is_one(record.rank)):
                self._ranks[record.engine] = record.rank
                self._note_engine(record.rank, "running")
                self._show_context(record.context)
            elif type(record) is EngineLeft and record.engine in self._ranks:
                self._note_engine(self._ranks.pop(record.engine), "engine stopped")

        if passed > 1 and self._edition == 2:
            self.say("clearing barriers", None)

    def _say_lost(self, record: TaskEnded) -> None:
        info = TaskInfo(record.task_id, record.line_number, record.repeat_index, record.command)
        value = (task_info(info, 2), f".cylinder {record.rank} 0", record.started_at, record.ended_at)
        self.say("task hb fail", value)

    def _show_context(self, label: str) -> None:
        """A context of ours, as disBatch's own contexts show themselves."""
        found = self.board.context(label)
        ones = (1,) * len(found.nodes)
        shown = Context(found.rank, label, found.sysid, tuple(found.nodes), tuple(found.cylinders), ones)
        value = context_instance(shown, self._run_info, self._run_info.state["args"].state, self._edition)
        self._kvs.replace(f".context_{found.rank}", pickles.write(value), PICKLE)

    def _note_engine(self, rank: int, text: str) -> None:
        if self._edition == 2:
            self._kvs.replace(f"engine {rank}", pickles.write(text), PICKLE)
        else:
            self._kvs.replace(f"engine {rank}", text.encode())

    def update(self, *, at_once: bool = False) -> None:
        """Shows monitors how things stand, if they have changed; with many engines less often, so that it costs little."""
        began = time.monotonic()
        if self._per_engine is not None:
            self.board.age = self._per_engine.age
        if self.board.changed and (at_once or began >= self._update_at):
            status = self.board.json()
            for key in STATUS_KEYS:
                self._kvs.replace(key, status, JSON)
            self._update_at = began + max(UPDATE_EVERY_S, 100 * (time.monotonic() - began))
        if self._edition == 2 and began >= self._beat_at:
            self._beat_at = began + HEART_BEAT_S
            self.say("driver heart beat", None)

    def answer_requests(self, stop_engine: Callable[[str], bool], stop_context: Callable[[str], int]) -> None:
        """Carries out what monitors have requested since the last call."""
        while self._requests:
            request = self._requests.popleft()
            if request.what == "engine":
                engine = self.board.engine_id(request.rank)
                if engine is not None and stop_engine(engine):
                    self.board.stopping(request.rank)
            else:
                label = self.board.context_label(request.rank)
                if label is not None and stop_context(label):
                    for rank in self.board.ranks_of(request.rank):
                        self.board.stopping(rank)

    def _hear(self, value: Value) -> None:
        """In the service's thread. Raises WireError for a pickle of an unknown class."""
        try:
            message = read_controller(value.data)
        except UnknownClass as error:
            raise WireError(f"a message to the driver that holds {error}") from error
        if message is None:
            log.warning("a message to the driver is none of disBatch's: %r", value.data[:200])
        elif isinstance(message, StopRequest):
            self._requests.append(message)
        elif self._foreign is None:
            self._early.append(message)
        else:
            self._pass_on(message)

    def _pass_on(self, message: ControllerMessage) -> None:
        foreign = self._foreign
        assert foreign is not None
        if isinstance(message, ContextInfo):
            self.board.context_ranks[message.context.label] = message.context.rank
        if isinstance(message, EngineStopped):
            foreign.note_stopped(message.rank)  # the world may be over, and hear nothing
        if foreign.over and isinstance(message, Register):
            foreign.hear(message)
        elif not isinstance(message, Internal):
            foreign.attached.soon(lambda: foreign.hear(message))

    def _tell(self, record: TaskEnded) -> None:
        if record.kind in "BC" and self._per_engine is not None:
            self._per_engine.barrier_passed(record)
        if key := barrier_key(record, self._edition):
            self._kvs.put(key, str(record.task_id).encode())
        elif self.tasks is not None and self.tasks.result_key and record.kind not in "BCP":
            line = status_line(record, self._edition)
            key = self.tasks.result_key
            if self._edition == 2:
                self._kvs.put(f"{key} {record.task_id}", line.text(2).encode("utf-8", "backslashreplace"))
                return
            self._kvs.put(f"{key} {record.task_id}", json.dumps(_report(line)).encode(), JSON)
            self._kvs.put(f"{key} done tasks", str(record.task_id).encode())


def status_line(record: TaskEnded, edition: int = 3) -> StatusLine:
    """The status file's line for a task that ended. Barriers end in the driver."""
    barrier = record.kind in "BC"
    node, pid = (socket.gethostname(), os.getpid()) if barrier else (record.node.partition("#")[0], record.pid)
    return StatusLine(
        record.task_id, record.line_number, record.repeat_index, node, pid,
        record.return_code, record.started_at, record.ended_at, record.command.decode("utf-8", "surrogateescape"),
        record.out_bytes, snippet_text(record.out_bytes, record.out_snippet, edition),
        record.err_bytes, snippet_text(record.err_bytes, record.err_snippet, edition), StatusKind(record.kind),
    )  # fmt: skip


def _report(line: StatusLine) -> dict[str, object]:
    """A result in the words that a task source of disBatch expects."""
    return {
        "Flags": line.flags, "TaskId": line.task_id, "TaskStreamIndex": line.line_number,
        "TaskRepIndex": line.repeat_index, "Host": line.node, "PID": line.pid, "ReturnCode": line.return_code,
        "Elapsed": line.finish - line.start, "Start": line.start, "End": line.finish,
        "OutBytes": line.out_bytes, "OutData": line.out_snippet,
        "ErrBytes": line.err_bytes, "ErrData": line.err_snippet,
        "TaskCmd": line.command.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
    }  # fmt: skip
