"""What monitors find under the key "DisBatch status": engines, contexts and counts as JSON, in disBatch's words.

In: the run's records. Out: the JSON text. `StatusBoard` takes the records that the journal has kept.
"""

from __future__ import annotations

from itertools import count

import msgspec

from pilothouse.worlds.live.records import Assigned, EngineJoined, EngineLeft, Record, TaskEnded

STATUS_KEYS = ("DisBatch status", "Disbatch status")
"""The program's own spelling, which its monitor uses, and that of its specification."""
STARTING = b"<Starting...>"


class EngineStatus(msgspec.Struct, kw_only=True):
    """One engine as disBatch's monitor expects it; `active` cylinders, tasks `assigned` and not ended."""

    rank: int
    context_rank: int = msgspec.field(name="cRank")
    hostname: str
    pid: int
    active: int
    assigned: int
    cylinders: dict[str, list[int]]
    failed: int
    finished: int
    start: float
    status: str
    last: float


class ContextStatus(msgspec.Struct):
    rank: int
    label: str
    sysid: str
    nodes: list[str]
    cylinders: list[int]


class Status(msgspec.Struct, kw_only=True):
    more: str
    age: int
    barriers: int
    contexts: dict[str, ContextStatus]
    return_code: int = msgspec.field(name="currentReturnCode")
    engines: dict[str, EngineStatus]
    active_cylinders: int = msgspec.field(name="activeCylinders")


class StatusBoard:
    """Keeps the counts. `stopping` marks engines that were asked to leave."""

    def __init__(self) -> None:
        self.age = 0
        """Barriers and per-engine commands that engines were told of (2021)."""
        self.context_ranks: dict[str, int] = {}
        """Numbers of contexts that were given to them before an engine joined."""
        self.barriers = 0
        self.no_more_tasks = False
        self.return_code = 0
        self.finished = 0
        self.failed = 0
        self.changed = True
        self._engines: dict[str, EngineStatus] = {}
        self._by_rank: dict[int, EngineStatus] = {}
        self._contexts: dict[str, ContextStatus] = {}

    def write(self, records: list[Record]) -> None:
        for record in records:
            if type(record) is TaskEnded:
                self._ended(record)
            elif type(record) is Assigned:
                if record.engine in self._engines:
                    self._engines[record.engine].assigned += len(record.tasks)
            elif type(record) is EngineJoined:
                self._joined(record)
            elif type(record) is EngineLeft and record.engine in self._engines:
                engine = self._engines[record.engine]
                engine.status = "stopped"
                engine.active = engine.assigned = 0
                engine.last = record.at
            else:
                continue
            self.changed = True

    def stopping(self, rank: int) -> None:
        engine = self._by_rank.get(rank)
        if engine is not None and engine.status == "running":
            engine.status = "stopping"
            self.changed = True

    def context(self, label: str) -> ContextStatus:
        return self._contexts[label]

    def context_label(self, rank: int) -> str | None:
        return next((label for label, context in self._contexts.items() if context.rank == rank), None)

    def engine_id(self, rank: int) -> str | None:
        return next((name for name, engine in self._engines.items() if engine.rank == rank), None)

    def ranks_of(self, context_rank: int) -> list[int]:
        return [engine.rank for engine in self._engines.values() if engine.context_rank == context_rank]

    def json(self) -> bytes:
        """The status now; `changed` is false until something changes again."""
        self.changed = False
        return msgspec.json.encode(
            Status(
                age=self.age,
                more="No more tasks." if self.no_more_tasks else "More tasks.",
                barriers=self.barriers,
                contexts={str(context.rank): context for context in self._contexts.values()},
                return_code=self.return_code,
                engines={str(engine.rank): engine for engine in self._engines.values()},
                active_cylinders=sum(engine.active for engine in self._engines.values()),
            )
        )

    def _joined(self, record: EngineJoined) -> None:
        host = record.node.partition("#")[0]
        kind = "Slurm" if record.context.startswith("J") else "SSH"
        taken = {context.rank for context in self._contexts.values()} | set(self.context_ranks.values())
        rank = self.context_ranks.get(record.context, next(rank for rank in count() if rank not in taken))
        context = self._contexts.setdefault(record.context, ContextStatus(rank, record.context, kind, [], []))
        context.nodes.append(host)
        context.cylinders.append(record.slots)
        cylinders = {f".cylinder {record.rank} {i}": [record.pid, record.pid] for i in range(record.slots)}
        engine = EngineStatus(
            rank=record.rank, context_rank=context.rank, hostname=host, pid=record.pid, active=record.slots, assigned=0,
            cylinders=cylinders, failed=0, finished=0, start=record.at, status="running", last=record.at,
        )  # fmt: skip
        self._engines[record.engine] = self._by_rank[record.rank] = engine

    def _ended(self, record: TaskEnded) -> None:
        engine = self._by_rank.get(record.rank)
        if record.kind in ("B", "C"):
            self.barriers += 1
            self.return_code = 0
            return
        if engine is not None:
            engine.last = record.ended_at
            if record.kind == "N":
                engine.assigned = max(0, engine.assigned - 1)
        if not record.final:
            return
        self.finished += 1
        if engine is not None:
            engine.finished += 1
        if record.return_code:
            self.failed += 1
            self.return_code = self.return_code or record.return_code
            if engine is not None:
                engine.failed += 1
