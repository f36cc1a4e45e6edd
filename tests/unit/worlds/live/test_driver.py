"""The driver on its own: what it asks of engines, step by step."""

from __future__ import annotations

from pilothouse.formats.task_file import TaskLine
from pilothouse.model.decisions import StartJob
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job
from pilothouse.worlds.live.driver import Driver
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.messages import (
    VERSION,
    EngineFrame,
    Finished,
    FromDriver,
    FromEngine,
    Hello,
    Leave,
    Report,
    Result,
    Start,
)
from pilothouse.worlds.live.options import LiveOptions


class Table:
    """A driver, and the engines that talk with it."""

    def __init__(self, options: LiveOptions | None = None, tasks: int = 0) -> None:
        self.driver = Driver(options or LiveOptions(bundle=1), 1, 0.0)
        if tasks:
            self.driver.feed(Feeder(TaskLine(i, i + 1, -1, "true") for i in range(tasks)))
        self._seq: dict[str, int] = {}
        self._acks: dict[str, int] = {}

    def join(self, engine: str, slots: int = 1, properties: dict[str, str] | None = None) -> None:
        hello = Hello(
            context="c", node=engine, slots=slots, pid=1, started_at=0.0, properties=properties or {}
        )  # fmt: skip
        self.driver.hear(EngineFrame(VERSION, engine, 0, 0, 0, [hello]), 0.0)

    def say(self, engine: str, *bodies: FromEngine) -> None:
        seq = self._seq[engine] = self._seq.get(engine, 0) + 1
        ack = self._acks.get(engine, 0)
        self.driver.hear(EngineFrame(VERSION, engine, 1, seq, ack, list(bodies)), 1.0)

    def sent(self, kind: type[FromDriver]) -> list[tuple[str, FromDriver]]:
        """What engines are told now, of one kind."""
        self.driver.settle(1.0)
        found = []
        for frame in self.driver.frames(1.0):
            self._acks[frame.engine] = frame.seq
            found += [(frame.engine, body) for body in frame.bodies if type(body) is kind]
        return found


def test_an_engine_leaves_only_when_jobs_that_span_it_have_ended() -> None:
    """It was not assigned the job itself, and would go at once: the job would be killed and run again."""
    table = Table()
    table.join("a")
    table.join("b")
    table.driver.submit(Job("wide", 2, command=Command(line="true")), 0.0)
    table.driver.begins(0.0)
    table.sent(Start)
    table.driver.apply(StartJob(0.0, "wide", IdSet.of([0, 1])), 0.0)
    ((engine, start),) = table.sent(Start)
    assert engine == "a"
    assert isinstance(start, Start)
    assert table.driver.ask_to_leave("b", "asked", 1.0)
    assert not table.sent(Leave)
    table.say("a", Report([Finished(start.assignments[0].id, [Result(0, 1, 0, 1, 0.0, 0.0)], True)]))
    assert [engine for engine, _ in table.sent(Leave)] == ["b"]
