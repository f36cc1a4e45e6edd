"""Ten thousand engines: what the driver spends on a task does not grow with them."""

from __future__ import annotations

import time

from pilothouse.core.session import Session
from pilothouse.formats.task_file import TaskLine
from pilothouse.model import events as e
from pilothouse.model.decisions import Reply, Wants
from pilothouse.policies.catalog import make
from pilothouse.worlds.live.driver import Driver
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.messages import (
    VERSION,
    Bye,
    EngineFrame,
    Finished,
    FromEngine,
    Hello,
    Leave,
    Report,
    Result,
    Start,
)
from pilothouse.worlds.live.options import LiveOptions


class InstantEngines:
    """A world of engines that finish every task at once; one message for each assignment, as real ones send."""

    name = "instant"

    def __init__(self, engines: int, tasks: int) -> None:
        self.driver = Driver(LiveOptions(bundle=1), 1, 0.0)
        lines = (TaskLine(i, i + 1, -1, "true") for i in range(tasks))
        self.driver.feed(Feeder(lines))
        self.now = 0.0
        self._seq: dict[str, int] = {}
        self._answers: list[EngineFrame] = []
        self._ended = False
        for number in range(engines):
            hello = Hello(context="test", node=f"n{number}", slots=1, pid=1, started_at=0.0)
            self.driver.hear(EngineFrame(VERSION, f"e{number}", 0, 0, 0, [hello]), 0.0)

    def begin(self, wants: Wants) -> e.Begins:
        return self.driver.begins(0.0)

    def advance(self) -> e.Batch | None:
        if self._ended:
            return None
        self.now += 0.001
        answers, self._answers = self._answers, []
        for frame in answers:
            self.driver.hear(frame, self.now)
        self.driver.settle(self.now)
        self._send()
        events, self.driver.events = self.driver.events, []
        if self.driver.over:
            self._ended = True
            events.append(e.Ended(self.now))
        return e.Batch(self.now, events)

    def apply(self, reply: Reply) -> None:
        for decision in reply.decisions:
            self.driver.apply(decision, self.now)
        self._send()

    def _send(self) -> None:
        self.driver.records.clear()
        for frame in self.driver.frames(self.now):
            bodies: list[FromEngine] = []
            for body in frame.bodies:
                if type(body) is Start:
                    for given in body.assignments:
                        results = [Result(task.task_id, task.attempt, 0, 1, 0.0, 0.0) for task in given.tasks]
                        bodies.append(Report([Finished(given.id, results, True)]))
                elif type(body) is Leave:
                    bodies.append(Bye("done"))
            if bodies:
                seq = self._seq[frame.engine] = self._seq.get(frame.engine, 0) + 1
                self._answers.append(EngineFrame(VERSION, frame.engine, 1, seq, frame.seq, bodies))

    def watch(self, fd: int) -> None: ...

    def close(self) -> None: ...


def cost_us(engines: int, tasks: int) -> float:
    world = InstantEngines(engines, tasks)
    began = time.process_time()
    Session(world, make("fcfs", {})).run()
    spent = time.process_time() - began
    assert sum(world.driver.counts.values()) == tasks
    return spent / tasks * 1e6


def test_cost_per_task_stays_flat() -> None:
    few = min(cost_us(100, 5_000) for _ in range(2))
    many = cost_us(10_000, 30_000)
    assert many < 4 * few + 60, f"{few:.0f} µs a task with 100 engines, {many:.0f} µs with 10,000"
