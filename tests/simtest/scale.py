"""What the driver spends on a task, with few engines and with many: `python -m tests.simtest.scale`.

Real are Driver, Session, policy and feeder; engines answer at once, in order, and a hundred at a time, as a socket hands
messages over in portions. So all sizes do the same work in the same steps, and whatever grows grows with the engines.
Joining and leaving are counted apart: they happen once to an engine, not to a task.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import deque

import msgspec

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.formats.task_file import TaskLine
from pilothouse.launch.running import calm_collector
from pilothouse.model import events as e
from pilothouse.model.decisions import Reply, Wants
from pilothouse.policies.catalog import make
from pilothouse.worlds.live.driver.decisions import apply
from pilothouse.worlds.live.driver.engine_frames import frames, hear
from pilothouse.worlds.live.driver.flow import begins, settle
from pilothouse.worlds.live.driver.state import new_state
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.wire.messages import (
    VERSION,
    Bye,
    DriverFrame,
    EngineFrame,
    Finished,
    FromEngine,
    Hello,
    Leave,
    Report,
    Result,
    Start,
)

PORTION = 100


class Cost(msgspec.Struct, frozen=True):
    """CPU microseconds."""

    task: float
    join: float


class InstantEngines:
    """A world of engines that finish every task at once; one message for each assignment, as real ones send."""

    name = "instant"

    def __init__(self, engines: int, tasks: int) -> None:
        self.driver = new_state(LiveOptions(bundle=1))
        lines = (TaskLine(i, i + 1, -1, "true") for i in range(tasks))
        self.driver.feed(Feeder(lines))
        self.now = 0.0
        self._seq: dict[str, int] = {}
        self._sent: deque[DriverFrame] = deque()
        self._ended = False
        self._engines = engines
        self._joined = 0

    def begin(self, wants: Wants) -> e.Begins:
        """Half of them are there when the decider begins; the others join while it works."""
        while self._joined < self._engines // 2:
            self._join()
        return begins(self.driver, 0.0)

    @property
    def all_joined(self) -> bool:
        return self._joined == self._engines

    def advance(self) -> e.Batch | None:
        if self._ended:
            return None
        self.now += 0.001
        self._hear()
        settle(self.driver, self.now)
        self._send()
        events, self.driver.events = self.driver.events, []
        if self.driver.over:
            self._ended = True
            events.append(e.Ended(self.now))
        return e.Batch(self.now, events)

    def _hear(self) -> None:
        if not self.all_joined:
            self._join()
        for _ in range(min(PORTION, len(self._sent))):
            frame = self._sent.popleft()
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
                hear(self.driver, EngineFrame(VERSION, frame.engine, 1, seq, frame.seq, bodies), self.now)

    def _join(self) -> None:
        for number in range(self._joined, min(self._joined + PORTION, self._engines)):
            hello = Hello(context="test", node=f"n{number}", slots=1, pid=1, started_at=0.0)
            hear(self.driver, EngineFrame(VERSION, f"e{number}", 0, 0, 0, [hello]), self.now)
            self._joined += 1

    def apply(self, reply: Reply) -> None:
        for decision in reply.decisions:
            apply(self.driver, decision, self.now)
        self._send()

    def _send(self) -> None:
        self.driver.records.clear()
        self._sent.extend(frame for frame in frames(self.driver, self.now) if frame.bodies)

    def watch(self, fd: int) -> None: ...

    def unwatch(self, fd: int) -> None: ...

    def close(self) -> None: ...


def cost(engines: int, tasks: int) -> Cost:
    """Of the tasks between the time when all have joined and the time when the first may leave."""
    gc.collect()
    began = time.process_time()
    world = InstantEngines(engines, engines + tasks)
    marks: list[tuple[int, float]] = []

    def look(batch: e.Batch) -> None:
        done = world.driver.done.count
        if (not marks and world.all_joined and done >= engines) or (len(marks) == 1 and done >= tasks):
            marks.append((done, time.process_time()))

    Session(world, PolicyDecider(make("fcfs", {}))).run(look)
    (first, from_s), (last, to_s) = marks
    assert sum(world.driver.counts.values()) == engines + tasks
    each_s = (to_s - from_s) / (last - first)
    joins = time.process_time() - began - each_s * (engines + tasks)
    return Cost(each_s * 1e6, joins / engines * 1e6)


def compare(sizes: list[int], tasks: int, times: int) -> dict[int, Cost]:
    """The cheapest of several, taken in turns, so that a busy machine is unfair to nobody."""
    calm_collector()
    best: dict[int, Cost] = {}
    for _ in range(times):
        for engines in sizes:
            found = cost(engines, tasks)
            if engines not in best or found.task < best[engines].task:
                best[engines] = found
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default="100,1000,10000")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    found = compare([int(number) for number in given.engines.split(",")], given.tasks, given.times)
    least = next(iter(found.values()))
    for engines, spent in found.items():
        print(
            f"{engines:6d} engines: {spent.task:5.1f} µs a task ({spent.task / least.task:.2f}), "
            f"{spent.join:5.1f} µs an engine to join and to leave"
        )


if __name__ == "__main__":
    main()
