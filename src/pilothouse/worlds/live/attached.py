"""Engines whose tasks another program runs: they are attached to the driver in this process, without a socket.

In: results of tasks and of per-engine commands, in the world's thread. Out: tasks for the cylinders of that program (`give`), and
that no more come (`leave`). For the driver it is an engine like others: the same state machine (engine/engine.py) is in between.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from pilothouse.worlds.live.driver import engine_frames
from pilothouse.worlds.live.driver.state import DriverState
from pilothouse.worlds.live.engine.engine import Engine, EngineState
from pilothouse.worlds.live.engine.instructions import TellCylinder
from pilothouse.worlds.live.wire import messages as m

_STOP_COMMANDS = -2
"""The assignment in which an Engine runs its STOP commands."""


class Program(Protocol):
    """What runs the tasks of an attached engine."""

    def give(self, cylinder: int, task: m.Task) -> None: ...
    def leave(self) -> None:
        """No more tasks come. STOP commands may be run now."""


class AttachedEngines:
    """Those of one world."""

    def __init__(self, driver: DriverState, now: Callable[[], float], soon: Callable[[Callable[[], object]], None]) -> None:
        self.now = now
        self.soon = soon
        """Calls an action in the world's thread."""
        self._state = driver
        self._engines: dict[str, AttachedEngine] = {}

    def reserve_rank(self) -> int:
        """For an engine that must know its rank before it joins."""
        return self._state.engines.reserve_rank()

    def attach(self, hello: m.Hello, program: Program) -> AttachedEngine:
        made = AttachedEngine(self, hello, program)
        self._engines[made.machine.id] = made
        made.tick()
        return made

    def hear(self, frame: m.EngineFrame) -> None:
        engine_frames.hear(self._state, frame, self.now())

    def take(self, frame: m.DriverFrame) -> bool:
        """Whether the frame was for one of them. It is heard later: the driver is in the middle of sending."""
        engine = self._engines.get(frame.engine)
        if engine is not None:
            self.soon(lambda: engine.hear(frame))
        return engine is not None


class AttachedEngine:
    def __init__(self, engines: AttachedEngines, hello: m.Hello, program: Program) -> None:
        self.machine = Engine(os.urandom(8).hex(), hello, engines.now())
        self._engines = engines
        self._slots = hello.slots
        self._program = program
        self._work: dict[int, tuple[m.Assignment, deque[m.Task]]] = {}
        """Cylinder -> its assignment, and the tasks of it that have not ended; the first one runs."""
        self._commands: m.Assignment | None = None
        """Per-engine commands whose results the driver waits for."""
        self._ended: dict[int, m.Result] = {}
        """Results of per-engine commands by their numbers; -1-i is STOP command i."""

    @property
    def running(self) -> set[int]:
        """The ids of its tasks that run."""
        return {tasks[0].task_id for _, tasks in self._work.values()}

    @property
    def waits(self) -> bool:
        """Something is to be reported."""
        return bool(self._work) or self._commands is not None

    @property
    def gone(self) -> bool:
        return self.machine.state is EngineState.GONE

    def tick(self) -> None:
        self.machine.tick(self._engines.now())
        self._perform()

    def hear(self, frame: m.DriverFrame) -> None:
        self.machine.hear(frame, self._engines.now())
        self._perform()

    def done(self, cylinder: int, result: m.Result) -> bool:
        """A task has ended. False: it is not one that runs there."""
        assignment, tasks = self._work.get(cylinder, (None, deque()))
        if assignment is None or tasks[0].task_id != result.task_id:
            return False
        result.attempt = tasks.popleft().attempt
        if not tasks:
            del self._work[cylinder]
        self._report(cylinder, m.Finished(assignment.id, [result], not tasks))
        if tasks:
            self._program.give(cylinder, tasks[0])
        return True

    def command_done(self, number: int, result: m.Result) -> None:
        self._ended[number] = result
        self._report_commands()

    def lost(self, reason: str) -> None:
        """The program is gone, with the tasks that run."""
        if self.machine.state not in (EngineState.PARTING, EngineState.GONE):
            bye = m.Bye(reason, True, tuple(sorted(self.running)))
            self._engines.hear(m.EngineFrame(m.VERSION, self.machine.id, 0, 0, 0, [bye]))
        self._work.clear()
        self._commands = None

    def _perform(self) -> None:
        for instruction in self.machine.take(self._engines.now()):
            if isinstance(instruction, m.EngineFrame):
                self._engines.hear(instruction)
            elif isinstance(instruction, TellCylinder):
                self._tell(instruction.cylinder, instruction.message)
        if self.machine.state in (EngineState.PARTING, EngineState.GONE):
            self._program.leave()

    def _tell(self, cylinder: int, message: m.ToCylinder) -> None:
        if isinstance(message, m.Work) and cylinder == self._slots:
            self._commands = message.assignment
            if message.assignment.id == _STOP_COMMANDS:
                self._program.leave()
            self._report_commands()
        elif isinstance(message, m.Work):
            self._work[cylinder] = (message.assignment, deque(message.assignment.tasks))
            self._program.give(cylinder, message.assignment.tasks[0])
        elif isinstance(message, m.Stop) and cylinder in self._work:
            self._end(cylinder, message)

    def _end(self, cylinder: int, order: m.Stop) -> None:
        """The driver ends a task: its result is not waited for."""
        assignment, tasks = self._work[cylinder]
        if assignment.id == order.assignment:
            del self._work[cylinder]
            running, at = tasks.popleft(), time.time()
            ended = m.Result(running.task_id, running.attempt, -15, -1, at, at, reason=order.reason)
            self._report(cylinder, m.Finished(assignment.id, [ended], True, tuple(task.task_id for task in tasks)))

    def _report_commands(self) -> None:
        """When all are there that the driver waits for."""
        waited = self._commands
        if waited is None:
            return
        numbers = [-1 - task.task_id if waited.id == _STOP_COMMANDS else task.task_id for task in waited.tasks]
        if all(number in self._ended for number in numbers):
            self._commands = None
            self._report(self._slots, m.Finished(waited.id, [self._ended[number] for number in numbers], True))

    def _report(self, cylinder: int, finished: m.Finished) -> None:
        self.machine.report(cylinder, finished, self._engines.now())
        self._perform()
