"""A forecast says what the driver does: the same tasks start at the same dates on the same units.

Real are Driver, Session, policy and feeder, on virtual time. Engines are played: they report every task when its length is over.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest

from pilothouse.campaign.durations import Draw
from pilothouse.campaign.forecast import nodes_of, simulate
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.formats.task_file import TaskReader
from pilothouse.model import events as e
from pilothouse.model.decisions import Reply, Wants
from pilothouse.policies.catalog import make
from pilothouse.worlds.live.driver.decisions import apply
from pilothouse.worlds.live.driver.engine_frames import frames, hear
from pilothouse.worlds.live.driver.flow import begins, settle
from pilothouse.worlds.live.driver.state import new_state
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.task_feed import RunStart
from pilothouse.worlds.live.wire.messages import (
    VERSION,
    Assignment,
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


class TimedEngines:
    """A live world without processes: what engines report arrives when it is due."""

    name = "timed"

    def __init__(self, start: RunStart, seconds: dict[int, float]) -> None:
        self.driver = new_state(start.options)
        self.driver.feed(Feeder(iter(start.lines)))
        self.starts: dict[int, float] = {}
        self._nodes, self._seconds = start.nodes, seconds
        self._due: list[tuple[float, int, str, FromEngine]] = []
        self._now, self._count, self._ended = 0.0, 0, False
        self._sent: dict[str, int] = {}
        self._received: dict[str, int] = {}

    def begin(self, wants: Wants) -> e.Begins:
        for node in self._nodes:
            hello = Hello("test", node.name, node.count, 1, 0.0, node.cores, memory_mb=node.memory_mb)
            hear(self.driver, EngineFrame(VERSION, node.name, 0, 0, 0, [hello]), 0.0)
        self._send()
        return begins(self.driver, 0.0)

    def advance(self) -> e.Batch | None:
        if self._ended:
            return None
        settle(self.driver, self._now)
        self._send()
        while not (self.driver.events or self.driver.over):
            self._now = self._due[0][0]
            while self._due and self._due[0][0] == self._now:
                _, _, engine, body = heappop(self._due)
                seq = self._sent[engine] = self._sent.get(engine, 0) + 1
                hear(self.driver, EngineFrame(VERSION, engine, 1, seq, self._received[engine], [body]), self._now)
            settle(self.driver, self._now)
            self._send()
        events, self.driver.events = self.driver.events, []
        if self.driver.over:
            self._ended = True
            events.append(e.Ended(self._now))
        return e.Batch(self._now, events)

    def apply(self, reply: Reply) -> None:
        for decision in reply.decisions:
            apply(self.driver, decision, self._now)
        self._send()

    def _send(self) -> None:
        self.driver.records.clear()
        for frame in frames(self.driver, self._now):
            if frame.seq <= self._received.get(frame.engine, 0):
                continue  # repeated, or a sign of life
            self._received[frame.engine] = frame.seq
            for body in frame.bodies:
                if type(body) is Start:
                    for given in body.assignments:
                        self._work(frame.engine, given)
                elif type(body) is Leave:
                    self._later(self._now, frame.engine, Bye("done"))

    def _work(self, engine: str, given: Assignment) -> None:
        """The tasks of an assignment follow each other, and are reported together."""
        results = []
        at = self._now
        for task in given.tasks:
            began, at = at, at + self._seconds[task.task_id]
            self.starts[task.task_id] = began
            results.append(Result(task.task_id, task.attempt, 0, 1, began, at))
        self._later(at, engine, Report([Finished(given.id, results, True)]))

    def _later(self, at: float, engine: str, body: FromEngine) -> None:
        self._count += 1
        heappush(self._due, (at, self._count, engine, body))

    def watch(self, fd: int) -> None: ...

    def close(self) -> None: ...


def task_file(random: Random) -> str:
    """Tasks of one to four cores, some with memory or a name to wait for, and a barrier now and then."""
    lines = []
    for number in range(80):
        wish = f"cores={random.choice([1, 1, 1, 2, 4])} walltime={random.choice([20, 30, 60])}"
        if random.random() < 0.2:
            wish += f" mem={random.choice([1, 3])}G"
        if number > 10 and random.random() < 0.1:
            wish += f" after=t{number - random.randrange(1, 9)}"
        lines.append(f"#PILOTHOUSE name=t{number} {wish}\nwork {number}\n\n")
        if random.random() < 0.02:
            lines.append("#DISBATCH BARRIER\n")
    return "".join(lines)


def known(seconds: dict[int, float]) -> Draw:
    return lambda task, age: seconds[task.task_id]


POLICIES = {"fcfs": {}, "easy": {}, "conservative": {}, "filler": {}, "wfp3": {"backfill": "easy"}}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_forecast_says_what_the_driver_does(policy: str, nodes: int) -> None:
    for seed in range(4):
        random = Random(f"{policy} {nodes} {seed}")
        lines = list(TaskReader("tasks").read(task_file(random).encode().splitlines(keepends=True)))
        # Which of two nodes reports first is left to chance: there no two tasks end at the same date.
        apart = 0.0 if nodes == 1 else 1e-4
        seconds = {line.task_id: round(min(15, max(1, random.lognormvariate(1, 1)))) + apart * line.task_id for line in lines}
        start = RunStart(options=LiveOptions(), nodes=nodes_of(nodes, 6, memory_mb=6144), lines=lines)
        world = TimedEngines(start, seconds)
        Session(world, PolicyDecider(make(policy, POLICIES[policy]))).run()
        outcome = simulate(start, known(seconds), make(policy, POLICIES[policy]))
        assert len(world.starts) == len(outcome.times)
        for task in outcome.times:
            assert task.started_at == pytest.approx(world.starts[int(task.name)]), f"task {task.name}, seed {seed}"
