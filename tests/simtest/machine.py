"""A node in a storm: a real Engine, with cylinders and a warden that are played."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from pilothouse.worlds.live.engine.engine import Engine, EngineState
from pilothouse.worlds.live.engine.instructions import Go, TellCylinder
from pilothouse.worlds.live.wire.messages import (
    VERSION,
    Bye,
    DriverFrame,
    EngineFrame,
    Finished,
    FromEngine,
    Hello,
    Kept,
    Output,
    Report,
    Result,
    Stop,
    Task,
    ToCylinder,
    Work,
)

if TYPE_CHECKING:
    from tests.simtest.storm import Storm

_PER_ENGINE = (-1, -2)


class Death(msgspec.Struct):
    """A cylinder was killed, and another was forked: what its log says."""

    assignment: int | None
    results: list[Result]
    running: int | None


class PlayedCylinder:
    """Runs one assignment at a time, task by task; tells now and then, and at the end."""

    def __init__(self, machine: Machine, index: int) -> None:
        self._machine = machine
        self._index = index
        self._queue: list[Work] = []
        self.work: Work | None = None
        self.running: Task | None = None
        self.unsent: list[Result] = []
        self.logged: list[Result] = []
        """All results of the assignment: the cylinder's part of the spool."""
        self.logged_of: int | None = None
        """The assignment that the log is about."""
        self.gone = False
        """It was killed, and its engine does not know yet."""
        self._todo: list[Task] = []
        self._began_at = 0.0
        self._serial = 0
        self._killed = ""

    def tell(self, message: ToCylinder) -> None:
        if self.gone:
            return
        if type(message) is Work:
            self._queue.append(message)
            if self.work is None:
                self._next_work()
        elif type(message) is Stop and any(work.assignment.id == message.assignment for work in self._queue):
            self._queue = [work for work in self._queue if work.assignment.id != message.assignment]
            self._machine.heard(self._index, Finished(message.assignment, [], True))
        elif type(message) is Stop and self.work is not None and message.assignment == self.work.assignment.id:
            self._killed = message.reason
            self._serial += 1  # the running task will not end by itself
            self._machine.after(0.1, self._end_running)

    def _next_work(self) -> None:
        self.work = self._queue.pop(0) if self._queue else None
        if self.work is None:
            return
        self._killed = ""
        self._todo = list(self.work.assignment.tasks)
        self.logged, self.logged_of = [], self.work.assignment.id
        self._began_at = self._machine.storm.clock.now
        self._next_task()

    def _next_task(self) -> None:
        work = self.work
        assert work is not None
        cut = self._machine.storm.clock.now - self._began_at > work.assignment.cut_after
        if not self._todo or self._killed or cut:
            returned = tuple(order.task_id for order in self._todo)
            finished = Finished(work.assignment.id, self.unsent, True, returned)
            self.unsent, self._todo, self.running = [], [], None
            self._next_work_later(finished)
            return
        self.running = self._todo.pop(0)
        self._machine.began(self.running, work)
        self._serial += 1
        serial = self._serial
        words = self.running.line.split()
        seconds = float(words[-1]) if len(words) > 1 else 0.5
        if self._todo and work.assignment.cut_after < seconds:
            self._machine.after(work.assignment.cut_after, lambda: self._give_back(serial))
        self._machine.after(seconds, lambda: self._end_running() if serial == self._serial else None)

    def _give_back(self, serial: int) -> None:
        if serial == self._serial and self.work is not None and self._todo and self.running is not None:
            returned = tuple(order.task_id for order in self._todo)
            self._todo = []
            self._machine.heard(self._index, Finished(self.work.assignment.id, [], False, returned))

    def _end_running(self) -> None:
        if self.running is None or self.work is None:
            return
        now = self._machine.storm.clock.now
        code = -15 if self._killed else int(b"fail" in self.running.line)
        pack = self._machine.pack
        place = pack.add(self._machine.storm.output_of(self.running)) if pack is not None else 0
        self.unsent.append(
            Result(self.running.task_id, self.running.attempt, code, 1, now, now, reason=self._killed, output=place)
        )
        self.logged.append(self.unsent[-1])
        self._machine.ended(self.running, self.work)
        self.running = None
        if self._todo and self._machine.storm.random.random() < 0.3:
            sent, self.unsent = self.unsent, []
            self._machine.heard(self._index, Finished(self.work.assignment.id, sent))
        self._next_task()

    def die(self) -> None:
        """kill -9 of the cylinder; its warden ends the task and starts another cylinder."""
        death = Death(self.logged_of, self.logged, self.running.task_id if self.running else None)
        self._serial += 1
        self.work, self.running, self.unsent, self._todo, self._killed = None, None, [], [], ""
        self.logged, self.logged_of, self.gone = [], None, True
        self._queue.clear()
        self._machine.heard(self._index, death)

    def _next_work_later(self, finished: Finished) -> None:
        self.work = None
        self._machine.heard(self._index, finished)
        if self.work is None:
            self._next_work()


class PlayedPack:
    """The output of all tasks of an engine that does not see the run's folder."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, text: bytes) -> int:
        """What a task has written; the place behind it."""
        self._data += text
        return len(self._data)

    def size(self) -> int:
        return len(self._data)

    def read(self, at: int, most: int) -> bytes:
        return bytes(self._data[at : at + min(most, 50)])


class Machine:
    """One node: its engine, its cylinders, and what happens to it."""

    def __init__(self, storm: Storm, name: str, slots: int) -> None:
        self.storm = storm
        self.alive = True
        self.cut_off = False
        self._name = name
        self._slots = slots
        self._names = 0
        self._life = 0
        hello = Hello(
            context="storm", node=name, slots=slots, pid=1, started_at=storm.clock.now, properties={"key": name}
        )
        self.pack = PlayedPack() if storm.ships_output else None
        self.engine = Engine(name, hello, storm.clock.now, new_identity=self._new_name, pack=self.pack, window_bytes=60)
        self._cylinders = [PlayedCylinder(self, index) for index in range(slots + 1)]
        self.kept = -1
        """What its warden knows of how much of its pack the driver has."""
        self._starts: list[bytes] = []
        self._stops: list[bytes] = []
        self._age = 0
        """So many START commands have ended here: the engine's own age, whenever it joined."""
        self._stopped = False
        self._frames: list[DriverFrame] = []
        self._reports: list[tuple[int, Finished | Death]] = []
        """What the engine will find in its next round."""
        self._round_due = False

    def _new_name(self) -> str:
        self._names += 1
        return f"{self._name}.{self._names}"

    @property
    def busy(self) -> bool:
        return any(cylinder.work is not None for cylinder in self._cylinders)

    def start(self) -> None:
        self._wake()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Something of this machine, if it is still alive by then."""
        self.storm.clock.after(seconds, lambda: action() if self.alive else None)

    def hear(self, frame: DriverFrame) -> None:
        self._frames.append(frame)
        self._look()

    def heard(self, index: int, news: Finished | Death) -> None:
        """A cylinder speaks to the engine, or its end is seen."""
        self._reports.append((index, news))
        self._look()

    def stop(self, seconds: float) -> None:
        """SIGSTOP of the engine, and SIGCONT later, at the latest when the storm ends. Its cylinders go on."""
        self._stopped = True

        def go_on() -> None:
            self._stopped = False
            self._round()

        self.after(min(seconds, self.storm.weather.clears_at - self.storm.clock.now), go_on)

    def _look(self) -> None:
        """The engine's loop wakes at once, or a little later, when several things have happened."""
        if self.storm.rounds_take_s == 0.0:
            self._round()
        elif not self._round_due:
            self._round_due = True
            self.after(self.storm.rounds.uniform(0.0, self.storm.rounds_take_s), self._round)

    def _round(self) -> None:
        """All that has happened, each source in its own order."""
        self._round_due = False
        if self._stopped or not self.alive:
            return
        now = self.storm.clock.now
        while self._frames or self._reports:
            if self._frames and (not self._reports or self.storm.rounds.random() < 0.5):
                self.engine.hear(self._frames.pop(0), now)
                continue
            index, news = self._reports.pop(0)
            if type(news) is Death:
                self._cylinders[index].gone = False
                self.engine.cylinder_died(index, news.assignment, news.results, news.running, now)
            else:
                self.engine.report(index, news, now)
        self._perform()

    def _wake(self) -> None:
        if not self._stopped:
            self.engine.tick(self.storm.clock.now)
            self._perform()
        if self.alive:
            self.after(0.5, self._wake)

    def _perform(self) -> None:
        for instruction in self.engine.take(self.storm.clock.now):
            if type(instruction) is EngineFrame:
                self.storm.to_driver(self, instruction)
            elif type(instruction) is TellCylinder:
                self._check_slots(instruction.message)
                self._cylinders[instruction.cylinder].tell(instruction.message)
            elif type(instruction) is Go:
                self.alive = False
                driver = self.storm.driver
                if instruction.reason != "done" or driver is None or not driver.nothing_to_do:
                    self._replace()

    def _check_slots(self, message: ToCylinder) -> None:
        """No slot may be given to two assignments that the driver knows of."""
        if type(message) is not Work:
            return
        mine = set(message.assignment.slots)
        for cylinder in self._cylinders:
            work = cylinder.work
            if work is None or cylinder._killed == "dismissed":
                continue
            assert not mine & set(work.assignment.slots), f"{self._name}: a slot is used twice"

    def began(self, order: Task, work: Work) -> None:
        starts, stops = self.storm.starts, self.storm.stops
        if work.assignment.id == -1:
            self._starts.append(order.line)
            assert self._starts == starts[: len(self._starts)], "START commands ran twice or out of order"
            assert self._age == len(self._starts) - 1, "a START command began before the one before it had ended"
        elif work.assignment.id == -2:
            self._stops.append(order.line)
            assert self._stops == stops[: len(self._stops)], "STOP commands ran twice or out of order"
            assert self._age == len(starts), "STOP commands of an engine that had not been set up"
            others = [cylinder for cylinder in self._cylinders if cylinder.work is not None]
            assert all(other.work is work or other._killed for other in others), "STOP commands while tasks ran"
        else:
            assert not self._stops, "a task began after the STOP commands"
            assert self.engine.state is not EngineState.PARTING, "a task began after the engine had said goodbye"
            assert self._age == len(starts), "a task began before the START commands were done"
            self.storm.note_begin(order.task_id, self)

    def ended(self, order: Task, work: Work) -> None:
        if work.assignment.id == -1:
            self._age += 1

    def kill_cylinder(self) -> None:
        """One that works, mostly. The extra one only while it has no command: a lost START command is told elsewhere."""
        chance = self.storm.random
        found = [each for each in self._cylinders[:-1] if each.work is not None] if chance.random() < 0.7 else []
        found = found or [each for each in self._cylinders if each.work is None and not each.gone]
        if found:
            chance.choice(found).die()

    def spool(self) -> tuple[list[Finished], list[int]]:
        """What the engine's spool holds: results that the driver may not have, and the tasks that had begun."""
        finished = self.engine.results
        begun = []
        for _, news in self._reports:
            if type(news) is Finished and news.assignment not in _PER_ENGINE:
                finished.append(Finished(news.assignment, news.results))
            elif type(news) is Death and news.assignment is not None and news.assignment not in _PER_ENGINE:
                finished.append(Finished(news.assignment, news.results))
                begun += [] if news.running is None else [news.running]
        for cylinder in self._cylinders:
            if cylinder.work is None or cylinder.work.assignment.id in _PER_ENGINE:
                continue
            if cylinder.logged:
                finished.append(Finished(cylinder.work.assignment.id, list(cylinder.logged)))
            if cylinder.running is not None:
                begun.append(cylinder.running.task_id)
        return finished, begun

    def crash(self, *, with_will: bool) -> None:
        """kill -9 of the engine (its warden then speaks for it), or of the whole node."""
        self.alive = False
        if with_will and self.pack is not None and self.engine.state is not EngineState.SEEKING:
            self._will_of_a_pack()
        elif with_will and self.engine.state is not EngineState.SEEKING:
            finished, begun = self.spool()
            bodies: list[FromEngine] = [Report(finished), Bye("killed", True, tuple(begun))]
            frame = EngineFrame(VERSION, self.engine.id, 0, 0, 0, bodies)
            for second in range(5):
                copied = msgspec.structs.replace(frame)
                self.storm.clock.after(0.05 + second, lambda copied=copied: self.storm.to_driver(self, copied))
        self._replace()

    def _will_of_a_pack(self) -> None:
        """The warden sends the rest of the pack, piece by piece, and then what the spool says."""
        assert self.pack is not None
        pack, engine, until = self.pack, self.engine.id, self.storm.clock.now + 5.0
        finished, begun = self.spool()
        will: list[FromEngine] = [Report(finished), Bye("killed", True, tuple(begun))]

        def send() -> None:
            kept = self.kept
            if kept >= pack.size() or self.storm.clock.now < until:
                piece = [Output(max(0, kept), pack.read(kept, 1000) if kept >= 0 else b"")]
                bodies = will if kept >= pack.size() else list[FromEngine](piece)
                self.storm.to_driver(self, EngineFrame(VERSION, engine, 0, 0, 0, bodies))
            if self.storm.clock.now < until:
                self.storm.clock.after(0.5, send)

        send()

    def hear_for_warden(self, frame: DriverFrame) -> None:
        for body in frame.bodies:
            if type(body) is Kept:
                self.kept = max(self.kept, body.size)

    def _replace(self) -> None:
        """A context starts another engine."""
        self.storm.clock.after(self.storm.random.choice([0.5, 5.0]), self.storm.start_machine)

    def reconnect(self) -> None:
        self.cut_off = False
