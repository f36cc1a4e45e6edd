"""Engines of the real disBatch that work for our driver, through the key-value service.

In: messages under `.controller` (messages.py), in the world's thread. Out: numbers for contexts and engines, tasks and stops for
their cylinders, per-engine commands and barrier notifications.

For our driver such an engine is one like ours (worlds/live/attached.py). It joins when its cylinders are known: all that its
context says, or those that have come when none has come for JOIN_AFTER_S. disBatch has no message that ends a running task; where
our driver ends one, its report is not waited for. An engine that is not heard for SILENT_S is given up, and its tasks run again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from math import inf

from pilothouse.dropins.disbatch.status_file import SNIPPET_BYTES
from pilothouse.formats.task_file import LineKind, TaskLine
from pilothouse.protocols.disbatch import messages as d
from pilothouse.protocols.disbatch import pickles
from pilothouse.worlds.live.attached import AttachedEngine, AttachedEngines
from pilothouse.worlds.live.records import TaskEnded
from pilothouse.worlds.live.services.kvs import PICKLE
from pilothouse.worlds.live.wire.messages import Hello, Result, Task

JOIN_AFTER_S = 1.0
SILENT_S = 121.0
"""disBatch sends a heart beat every 30 seconds: from an engine (3.0), or from its running tasks (2021)."""
log = logging.getLogger("disBatch.driver")

Put = Callable[[str, bytes, bytes], None]


class PerEngine:
    """What all engines are told, in order: under keys that they step through. An engine that joins late reads all of it."""

    def __init__(self, put: Put, edition: int) -> None:
        self.age = 0
        """How many synchronisation events have been posted (edition 2)."""
        self._put = put
        self._edition = edition
        self._posted = 0
        self._ended = False

    def post_lists(self, start: list[TaskLine], stop: list[TaskLine], *, complete: bool) -> None:
        """Those of the commands that have not been posted."""
        if self._edition == 2:
            for line in start[self._posted :]:
                self._event("task", info_of_line(line, key=f".per engine {self.age}", kind="P"))
            self._posted = len(start)
        elif complete and not self._ended:
            self._ended = True
            for word, lines in (("START", start), ("STOP", stop)):
                for number, line in enumerate(lines):
                    key = f".per engine {word} {number}"
                    self._say(key, ("task", d.task_info(info_of_line(line, key=key, kind="P"), 3)))
                self._put(f".per engine {word} {len(lines)}", d.STOP, PICKLE)

    def barrier_passed(self, record: TaskEnded) -> None:
        if self._edition == 2:
            info = d.TaskInfo(
                record.task_id, record.line_number, -1, record.command, record.kind, f".per engine {self.age}", self.age
            )
            self._event("barrier notification", info)

    def _event(self, word: str, info: d.TaskInfo) -> None:
        self._say(f".per engine {self.age}", (word, d.task_info(info, 2)))
        self.age += 1

    def _say(self, key: str, value: object) -> None:
        self._put(key, pickles.write(value), PICKLE)


class ForeignEngines:
    """All of a run. `hear` and `tick` are called in the world's thread."""

    def __init__(
        self,
        attached: AttachedEngines,
        put: Put,
        new_context: Callable[[], int],
        per_engine: PerEngine,
        edition: int,
    ) -> None:
        """`new_context`: the number of a new context."""
        self.over = False
        """The run is over: nobody can join any more."""
        self.attached = attached
        self.put = put
        self.per_engine = per_engine
        self.edition = edition
        self._new_context = new_context
        self._contexts: dict[int, d.Context] = {}
        self._engines: dict[int, _ForeignEngine] = {}
        self._registered: set[int] = set()
        """The ranks that were given to engines."""
        self._stopped: set[int] = set()
        """Ranks of those that have said so."""

    @property
    def working(self) -> bool:
        """Whether one has neither stopped nor been given up."""
        return any(not engine.given_up and rank not in self._stopped for rank, engine in self._engines.items())

    def note_stopped(self, rank: int) -> None:
        """From any thread."""
        self._stopped.add(rank)

    def is_one(self, rank: int) -> bool:
        return rank in self._engines

    def hear(self, message: d.ControllerMessage) -> None:
        if isinstance(message, d.Register):
            self._register(message)
        elif isinstance(message, d.ContextInfo):
            self._contexts[message.context.rank] = message.context
        elif isinstance(message, d.EngineStarted):
            context = self._contexts.get(message.context)
            if context is None or message.rank not in self._registered:
                log.warning("engine %d of context %d has started, and is not known", message.rank, message.context)
            elif message.rank not in self._engines:
                self._engines[message.rank] = _ForeignEngine(self, message, context)
        elif isinstance(message, d.HeartBeat):
            for engine in self._engines.values():
                engine.beat(message)
        elif isinstance(message, d.CylinderAvailable | d.CylinderStopped | d.TaskDone | d.EngineStopped):
            found = self._engines.get(message.rank)
            if found is not None:
                found.hear(message)

    def tick(self) -> None:
        for engine in self._engines.values():
            engine.tick()

    def _register(self, message: d.Register) -> None:
        rank = -1
        if not self.over:
            rank = self._new_context() if message.which == "context" else self.attached.reserve_rank()
            if message.which == "engine":
                self._registered.add(rank)
        self.put(message.key, pickles.write(rank), PICKLE)


class _ForeignEngine:
    """One engine, and its cylinders. It is the Program of an AttachedEngine once it has joined."""

    def __init__(self, all_engines: ForeignEngines, started: d.EngineStarted, context: d.Context) -> None:
        self.given_up = False
        self._all = all_engines
        self._started = started
        self._context = context
        self._cylinders: list[str] = []
        self._join_at = inf
        self._heard_at = all_engines.attached.now()
        self._engine: AttachedEngine | None = None
        self._early: list[tuple[int, Result]] = []
        """Results of per-engine commands that it has run before it joined."""
        self._told_to_stop = False

    def hear(self, message: d.CylinderAvailable | d.CylinderStopped | d.TaskDone | d.EngineStopped) -> None:
        self._heard_at = self._all.attached.now()
        if isinstance(message, d.CylinderAvailable):
            if message.key in self._cylinders:
                return
            if self._engine is not None:
                self._put(message.key, d.STOP)  # too late: our driver knows how many there are
                return
            self._cylinders.append(message.key)
            self._join_at = self._heard_at + JOIN_AFTER_S
            expected = set(self._context.cylinders)
            if self._told_to_stop:
                self._put(message.key, d.STOP)
            elif expected == {len(self._cylinders)}:
                self._join()
        elif isinstance(message, d.TaskDone):
            self._task_done(message)
        elif isinstance(message, d.EngineStopped) and self._engine is not None:
            self._engine.lost(f"disBatch's engine {message.rank} stopped: {message.status}")

    def beat(self, message: d.HeartBeat) -> None:
        if message.rank == self._started.rank or (self._engine and self._engine.running.intersection(message.tasks)):
            self._heard_at = self._all.attached.now()

    def tick(self) -> None:
        now = self._all.attached.now()
        if self._engine is None and now >= self._join_at:
            self._join()
        engine = self._engine
        if engine is None or self.given_up:
            return
        if engine.waits and now - self._heard_at > SILENT_S:
            self.given_up = True
            engine.lost(f"disBatch's engine {self._started.rank} was not heard for too long")
        elif not engine.gone:
            engine.tick()

    def give(self, cylinder: int, task: Task) -> None:
        age = self._all.per_engine.age
        info = d.TaskInfo(task.task_id, task.line_number, task.repeat_index, task.line or b" ".join(task.argv), age=age)
        self._put(self._cylinders[cylinder], pickles.write(("task", d.task_info(info, self._all.edition))))

    def leave(self) -> None:
        """Each cylinder ends when it has done what it has; then the engine runs its STOP commands."""
        if not self._told_to_stop:
            self._told_to_stop = True
            for key in self._cylinders:
                self._put(key, d.STOP)

    def _join(self) -> None:
        if self._engine is not None:
            return
        started, context = self._started, self._context
        properties = {"rank": str(started.rank), "kind": context.kind}
        if context.task_limit:
            properties["task_limit"] = str(context.task_limit)
        hello = Hello(
            context=context.label, node=context.nodes[0] if len(context.nodes) == 1 else started.host,
            slots=len(self._cylinders), pid=started.pid, started_at=time.time(), cores=len(self._cylinders),
            properties=properties,
        )  # fmt: skip
        self._engine = self._all.attached.attach(hello, self)
        for number, result in self._early:
            self._engine.command_done(number, result)

    def _task_done(self, done: d.TaskDone) -> None:
        report = done.report
        result = _result(report)
        if report.task.kind == "P":
            number = report.task.task_id
            number = -1 - number if report.task.key.startswith(".per engine STOP") else number
            if self._engine is None:
                self._early.append((number, result))
            else:
                self._engine.command_done(number, result)
        elif (
            self._engine is None
            or done.key not in self._cylinders
            or not self._engine.done(self._cylinders.index(done.key), result)
        ):
            log.info("engine %d: task %d ended after it was given up", done.rank, report.task.task_id)

    def _put(self, key: str, data: bytes) -> None:
        self._all.put(key, data, PICKLE)


def info_of_line(line: TaskLine, *, key: str = ".task", kind: str = "") -> d.TaskInfo:
    kinds = {LineKind.TASK: "N", LineKind.BARRIER: "B", LineKind.CHECK: "C"}
    return d.TaskInfo(
        line.task_id, line.line_number, line.repeat_index, line.command.encode("utf-8", "surrogateescape"),
        kind or kinds.get(line.kind, "P"), key, line.age, line.key or None,
    )  # fmt: skip


def _result(report: d.TaskReport) -> Result:
    return Result(
        report.task.task_id, 1, report.return_code, report.pid, report.started_at, report.ended_at, report.out_bytes,
        _kept(report.out_bytes, report.out_text), report.err_bytes, _kept(report.err_bytes, report.err_text),
    )  # fmt: skip


def _kept(count: int, text: str) -> bytes:
    """A snippet as our engines have it: without the dots that disBatch has put into one that is complete."""
    data = text.encode("utf-8", "surrogateescape")
    if SNIPPET_BYTES < count <= 2 * SNIPPET_BYTES and data[SNIPPET_BYTES : SNIPPET_BYTES + 3] == b"...":
        data = data[:SNIPPET_BYTES] + data[SNIPPET_BYTES + 3 :]
    return data


def fed(lines: Iterable[TaskLine | None], say: Callable[[str, object], None], edition: int) -> Iterable[TaskLine | None]:
    """The lines, and what disBatch's feeder says of each to its driver."""
    last = -1
    try:
        for line in lines:
            if line is not None:
                last = max(last, line.task_id)
                word = "special task" if line.kind in (LineKind.BARRIER, LineKind.CHECK) else "task"
                say(word, d.task_info(info_of_line(line), edition))
            yield line
    except Exception:
        say("feeder exception", None)
        raise
    say("no more tasks", last + 1)
