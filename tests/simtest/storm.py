"""One seeded storm: a run on virtual time while everything that can break does, and the checks that nothing was lost.

Real are the Driver, the Engines, the channels between them, the Session, the policy and the feeder. Played here are time, the
network (loss, repetition, reordering, delay, partitions), processes (crashes of drivers, cylinders, engines, whole nodes, a
driver that goes on although another has taken over), descriptors that are used up, the disk (slow, full for a while, power
failures) and what tasks do. After the storm the weather clears, so every run must come to its end.
"""

from __future__ import annotations

import copy
import heapq
import io
import random
from collections.abc import Callable, Iterable
from math import inf

import msgspec
from tests.simtest.machine import Machine

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.formats.task_file import LineKind, TaskLine, read_file
from pilothouse.model import events as e
from pilothouse.model.decisions import Reply, StartJob, Wants
from pilothouse.model.errors import RunError
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import JobState
from pilothouse.policies.catalog import make
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.decisions import apply
from pilothouse.worlds.live.driver.engine_frames import ask_to_leave, engine_vanished, frames, hear, tick
from pilothouse.worlds.live.driver.flow import FIRST_SUBMITTED, begins, bind, cancel, settle, submit
from pilothouse.worlds.live.driver.restore import restore
from pilothouse.worlds.live.driver.state import DriverState, new_state
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.wire.messages import (
    DriverFrame,
    EngineFrame,
    Finished,
    Hello,
    Task,
    decode_from_driver,
    decode_from_engine,
    encode,
)

MOST_STEPS = 400_000
MOST_TIME_S = 50_000.0
TICK_S = 0.5
LAST_COMMANDS_S = 30.0
LOOKS_EVERY = 20
"""After so many writes to the journal, a driver that reads it is compared with the one that writes it."""


class DriverCrashed(BaseException):
    """kill -9 of the driver: nothing may catch this but the storm."""


class Weather(msgspec.Struct):
    """How bad it is. All are probabilities per opportunity, or means in seconds."""

    loss: float
    repeat: float
    delay_s: float
    driver_crash: float
    engine_crash_every_s: float
    partition_every_s: float
    disk_full_every_s: float
    cylinder_crash_every_s: float
    records_lost: float
    """The chance that a driver that crashes loses records although the disk had promised to keep them."""
    power_loss: float
    """The chance that a driver crashes together with all engines, and that nothing but what was durable is left."""
    frozen: float
    """The chance that a driver that seems to have crashed wakes up when another has taken over."""
    slow_disk_s: float
    no_descriptors_every_s: float
    engine_stop_every_s: float
    """SIGSTOP of an engine's process."""
    driver_stop: float
    clears_at: float


class Clock:
    """Virtual time: a heap of callbacks."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self.steps = 0

    def at(self, when: float, action: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (max(when, self.now), self._serial, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    def step(self) -> None:
        self.steps += 1
        assert self.steps < MOST_STEPS, "the run does not come to an end"
        when, _, action = heapq.heappop(self._heap)
        self.now = when
        assert self.now < MOST_TIME_S, "the run does not come to an end"
        action()


    def pass_time(self, seconds: float) -> None:
        """Everything that happens in this time."""
        until = self.now + seconds
        self.at(until, lambda: None)
        while self.now < until:
            self.step()


class TakenOver(Exception):
    """Another driver has begun a session."""


class Disk:
    """The journal: what a restarted driver finds. Full for a while now and then."""

    def __init__(self) -> None:
        self.session = 0
        self.records: list[r.Record] = []
        self.commits: list[int] = [0]
        """How many records there were after each commit: one is kept as a whole or not at all."""
        self.full = False

    def write(self, records: list[r.Record], session: int) -> None:
        if session != self.session:
            raise TakenOver
        if self.full:
            raise RunError("no space left on device")
        # What is read back later has gone through the same bytes as in a real journal.
        self.records.extend(records)
        self.commits.append(len(self.records))

    def close(self) -> None:
        pass


class Storm:
    """One run. `run` raises AssertionError if anything was lost, repeated or out of order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.units_come_back = bool(seed % 2)
        """Numbers of units are given out again at once, and not only in large runs."""
        self.clock = Clock()
        self.disk = Disk()
        self.machines: list[Machine] = []
        self.driver: DriverState | None = None
        self.inbox: list[bytes] = []
        self.frozen: tuple[StormWorld, list[bytes]] | None = None
        """A driver that was taken for dead, and what it has been sent meanwhile."""
        self.rebooted: set[str] = set()
        """Engines whose host was restarted: of what they wrote last some may be lost."""
        self.no_descriptors = False
        self.ships_output = seed % 4 >= 2
        """Engines do not see the run's folder."""
        self.packs: dict[str, bytearray] = {}
        """Those that were sent, in the run's folder."""
        self.session = 0
        self.driver_up = False
        self.executions: dict[int, int] = {}
        self.final: dict[int, r.TaskEnded] = {}
        self.records_were_lost = False
        chance, more = self.random, random.Random(~seed)
        self.rounds = random.Random(seed + 0.5)
        self.rounds_take_s = self.rounds.choice([0.0, 0.01, 0.5])
        """How long an engine may take to look at what has happened: it finds all of it in one round."""
        self.weather = Weather(
            loss=chance.choice([0.0, 0.02, 0.1]),
            repeat=chance.choice([0.0, 0.05]),
            delay_s=chance.choice([0.001, 0.05, 0.5]),
            driver_crash=chance.choice([0.0, 0.002, 0.01]),
            engine_crash_every_s=chance.choice([inf, 60.0, 15.0]),
            partition_every_s=chance.choice([inf, 80.0]),
            disk_full_every_s=chance.choice([inf, 60.0]),
            cylinder_crash_every_s=more.choice([inf, 60.0, 10.0]),
            records_lost=more.choice([0.0, 0.0, 0.0, 0.5]),
            power_loss=more.choice([0.0, 0.0, 0.4]),
            frozen=more.choice([0.0, 0.5]),
            slow_disk_s=more.choice([0.0, 0.0, 0.02, 0.5]),
            no_descriptors_every_s=more.choice([inf, 50.0]),
            engine_stop_every_s=self.rounds.choice([inf, 60.0, 15.0]),
            driver_stop=self.rounds.choice([0.0, 0.002]),
            clears_at=chance.uniform(20.0, 150.0),
        )
        self.options = LiveOptions(
            retries=chance.choice([0, 0, 2]),
            at_most_once=chance.random() < 0.25,
            reissue=chance.random() < 0.9,
            bundle=chance.choice([1, 5, 400]),
            units=chance.choice([1, 1, 2]),
            lost_after_s=chance.choice([10.0, 60.0]),
            return_within_s=20.0,
            retire_idle=seed % 3 == 0,
            wait_for_driver_s=chance.choice([600.0, 600.0, 30.0]),
            most_losses=1000,
            grace_s=1.0,
        )
        self.text = self._task_file()
        self.jobs = self._submitted_jobs()
        self.cancelled: set[str] = set()
        self.soft_stops = chance.choice([0.0, 0.0, 0.002])
        self.cancels = chance.choice([0.0, 0.002])
        self.lines = {line.task_id: line for line in self._read() if line.kind.value in "NBC"}
        self.ages = {task_id: line.age for task_id, line in self.lines.items()}
        self.starts = [line.command.encode() for line in self._read() if line.kind is LineKind.ENGINE_START]
        self.stops = [line.command.encode() for line in self._read() if line.kind is LineKind.ENGINE_STOP]

    def _task_file(self) -> bytes:
        chance = self.random
        lines = []
        if chance.random() < 0.3:
            for when, most in (("START", 3), ("STOP", 2)):
                count = chance.randint(0, most)
                lines += [f"#DISBATCH PERENGINE {when} {when.lower()} {chance.choice([0.1, 2.0])}" for _ in range(count)]
        for _ in range(chance.randint(1, 4)):
            lines += [f"task {chance.choice([0.001, 0.01, 1.0, 5.0])}" for _ in range(chance.randint(0, 25))]
            if chance.random() < 0.2:
                lines += ["task fail 0.2"] * chance.randint(1, 3)
            if chance.random() < 0.3:
                lines.append(f"#DISBATCH REPEAT {chance.randint(1, 15)} task 0.5")
            if chance.random() < 0.5:
                lines.append("#DISBATCH BARRIER")
        return ("\n".join(lines) + "\n").encode()

    def _submitted_jobs(self) -> dict[str, Job]:
        """Jobs beside the file, some of which wait for others."""
        chance = self.random
        jobs: dict[str, Job] = {}
        for number in range(chance.choice([0, 0, 4, 12])):
            earlier = chance.sample(sorted(jobs), min(len(jobs), chance.choice([0, 0, 1, 2])))
            line = "task fail 0.2" if chance.random() < 0.15 else f"task {chance.choice([0.01, 1.0])}"
            jobs[f"job{number}"] = Job(f"job{number}", 1, after=tuple(earlier), command=Command(line=line))
        return jobs

    def _read(self) -> list[TaskLine]:
        return list(read_file(io.BytesIO(self.text), "storm"))

    @property
    def stormy(self) -> bool:
        return self.clock.now < self.weather.clears_at

    # ---- the whole run

    def run(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.start_machine()
        self._schedule_faults()
        while True:
            try:
                self._one_driver()
                break
            except DriverCrashed:
                self.driver, self.driver_up = None, False
                if self.random.random() < self.weather.power_loss:
                    self._lose_power()
                elif self.random.random() < self.weather.frozen:
                    self._freeze_driver()
                if self.random.random() < self.weather.records_lost:
                    self._lose_records()
                self.clock.pass_time(self.random.choice([0.1, 2.0, 15.0, 40.0]))
        self.check_end()

    def _one_driver(self) -> None:
        """One life of a driver: from a start or restart to the end of the run, or to its crash."""
        self.session += 1
        self.disk.session = self.session
        self.inbox.clear()
        world = self.world = StormWorld(self)
        self.driver = world.driver
        self.driver_up = True
        if self.session > 1:
            restore(world.driver, self.disk.records, self.clock.now)
            alive = {machine.engine.id for machine in self.machines if machine.alive}
            for engine in [engine for engine in world.driver.engines.present if engine not in alive]:
                if self.random.random() < 0.3:
                    # Whoever started it sees that its process is gone.
                    engine_vanished(world.driver, engine, "its process is gone", self.clock.now, *self._spool_of(engine))
        world.driver.feed(Feeder(iter(self._read()), world.driver.done.known))
        # A front end submits jobs again if nothing on disk says that they had arrived.
        arrived = {record.job_id for record in self.disk.records if type(record) in (r.JobKnown, r.TaskEnded)}
        for number, job in enumerate(self.jobs.values()):
            if job.id not in arrived:
                job = copy.copy(job)
                if number % 2:
                    job.command = None  # bound when it starts
                submit(world.driver, job, self.clock.now)
        Session(world, PolicyDecider(make("fcfs", {}))).run()
        self.driver_up = False

    def _spool_of(self, engine: str) -> tuple[list[Finished] | None, set[int] | None]:
        """What is left of a dead engine, where the driver can read it."""
        machine = next((machine for machine in self.machines if machine.engine.id == engine), None)
        if machine is None or self.random.random() < 0.5 or self.ships_output:
            return None, None
        finished, begun = machine.spool()
        if engine in self.rebooted:
            return finished[: self.random.randint(0, len(finished))], None
        return finished, set(begun)

    def _lose_power(self) -> None:
        """The hosts of all engines stop with the driver's."""
        for machine in self.machines:
            if machine.alive:
                machine.crash(with_will=False)
                self.rebooted.add(machine.engine.id)

    def _freeze_driver(self) -> None:
        """It has not crashed: it goes on when another has taken over."""
        world, inbox = self.world, list[bytes]()
        self.frozen = world, inbox

        def wake() -> None:
            if self.session == world.session:
                self.clock.after(1.0, wake)
            elif not world.turn_superseded(inbox):
                self.frozen = None
            else:
                self.clock.after(TICK_S, wake)

        self.clock.after(self.random.choice([0.5, 20.0]), wake)

    def _lose_records(self) -> None:
        """A power failure. Tasks may run again, whatever was asked for; but the run must come to its end."""
        self.records_were_lost = True
        disk = self.disk
        del disk.commits[max(1, len(disk.commits) - self.random.randint(1, 5)) :]
        for record in disk.records[disk.commits[-1] :]:
            if type(record) is r.TaskEnded and record.final and record.kind != "P":
                self.final.pop(record.task_id, None)
        del disk.records[disk.commits[-1] :]

    # ---- faults

    def _schedule_faults(self) -> None:
        weather = self.weather
        for every_s, fault in (
            (weather.engine_crash_every_s, self._crash_machine),
            (weather.cylinder_crash_every_s, self._crash_cylinder),
            (weather.partition_every_s, self._partition),
            (weather.engine_stop_every_s, self._stop_engine),
            (weather.disk_full_every_s, self._fill_disk),
            (weather.no_descriptors_every_s, self._use_up_descriptors),
        ):
            if every_s != inf:
                self._again(every_s, fault)

    def _again(self, every_s: float, fault: Callable[[], None]) -> None:
        def strike() -> None:
            if self.stormy:
                fault()
                self._again(every_s, fault)

        self.clock.after(self.random.expovariate(1 / every_s), strike)

    def start_machine(self) -> None:
        machine = Machine(self, f"engine{len(self.machines)}", self.random.randint(2, 4))
        self.machines.append(machine)
        machine.start()

    def _crash_machine(self) -> None:
        alive = [machine for machine in self.machines if machine.alive]
        if alive:
            self.random.choice(alive).crash(with_will=self.random.random() < 0.5)

    def _crash_cylinder(self) -> None:
        alive = [machine for machine in self.machines if machine.alive]
        if alive:
            self.random.choice(alive).kill_cylinder()

    def _partition(self) -> None:
        alive = [machine for machine in self.machines if machine.alive]
        if alive:
            machine = self.random.choice(alive)
            machine.cut_off = True
            self.clock.after(self.random.choice([1.0, 20.0, 90.0]), machine.reconnect)

    def _stop_engine(self) -> None:
        alive = [machine for machine in self.machines if machine.alive]
        if alive:
            self.random.choice(alive).stop(self.random.choice([0.1, 2.0, 20.0, 90.0]))

    def _fill_disk(self) -> None:
        self.disk.full = True

        def clean() -> None:
            self.disk.full = False

        self.clock.after(self.random.choice([0.5, 5.0]), clean)

    def _use_up_descriptors(self) -> None:
        """Established connections go on, new ones are not accepted."""
        self.no_descriptors = True

        def free() -> None:
            self.no_descriptors = False

        self.clock.after(self.random.choice([0.5, 30.0]), free)

    def users_do_something(self, driver: DriverState) -> None:
        """Somebody asks an engine to leave, or cancels a job."""
        if not self.stormy:
            return
        if driver.engines.present and self.random.random() < self.soft_stops:
            ask_to_leave(driver, self.random.choice(sorted(driver.engines.present)), "asked", self.clock.now)
        if self.jobs and self.random.random() < self.cancels:
            job_id = self.random.choice(sorted(self.jobs))
            if cancel(driver, job_id, self.clock.now):
                self.cancelled.add(job_id)

    def maybe_crash_driver(self) -> None:
        if self.stormy and self.random.random() < self.weather.driver_crash:
            raise DriverCrashed

    # ---- the network

    def to_driver(self, machine: Machine, frame: EngineFrame) -> None:
        data = encode(frame)
        for delay in self._deliveries():
            self.clock.after(delay, lambda: self._arrive_at_driver(machine, data))

    def _arrive_at_driver(self, machine: Machine, data: bytes) -> None:
        if machine.cut_off and self.stormy:
            return
        if self.frozen is not None:
            self.frozen[1].append(data)
        connected = self.driver is not None and machine.engine.id in self.driver.engines.present
        if self.driver_up and (connected or not self.no_descriptors):
            self.inbox.append(data)

    def to_engine(self, frame: DriverFrame) -> None:
        data = encode(frame)
        for delay in self._deliveries():
            self.clock.after(delay, lambda: self._arrive_at_engine(frame.engine, data))

    def _arrive_at_engine(self, engine: str, data: bytes) -> None:
        for machine in self.machines:
            if machine.engine.id == engine and not (machine.cut_off and self.stormy):
                (machine.hear if machine.alive else machine.hear_for_warden)(decode_from_driver(data))

    def _deliveries(self) -> list[float]:
        if not self.stormy:
            return [0.001]
        weather, chance = self.weather, self.random
        if chance.random() < weather.loss:
            return []
        delays = [chance.expovariate(1 / weather.delay_s)]
        if chance.random() < weather.repeat:
            delays.append(chance.expovariate(1 / (3 * weather.delay_s)))
        return delays

    # ---- what must hold

    def note_record(self, record: r.Record) -> None:
        """Called when a record is safely on disk."""
        if type(record) is r.TaskEnded and record.final and record.kind != "P":
            assert record.task_id not in self.final, f"task {record.task_id} has two final results"
            self.final[record.task_id] = record
        if type(record) is r.TaskEnded and record.kind == "N" and record.output:
            self._check_output(record)

    def _check_output(self, record: r.TaskEnded) -> None:
        """What a task wrote is there when its end is."""
        key = next(entry.key for entry in self.disk.records if type(entry) is r.EngineJoined and entry.rank == record.rank)
        text = output_of(record.task_id, record.attempt)
        found = bytes(self.packs.get(key, b""))[: record.output]
        assert found.endswith(text), f"the output of task {record.task_id} is not there"

    @staticmethod
    def output_of(task: Task) -> bytes:
        return output_of(task.task_id, task.attempt)

    def note_begin(self, task_id: int, machine: Machine) -> None:
        """A task is begun on a machine."""
        self.executions[task_id] = self.executions.get(task_id, 0) + 1
        if task_id >= FIRST_SUBMITTED or self.records_were_lost:
            return
        if self.options.at_most_once:
            attempts = 1 + self.options.retries
            assert self.executions[task_id] <= attempts, f"task {task_id} was begun too often"
        age = self.ages[task_id]
        for other, other_age in self.ages.items():
            if other_age < age:
                # The record must be on disk before anything of a later age is begun.
                assert other in self.final, f"task {task_id} of age {age} began before {other} of age {other_age} ended"

    def check_end(self) -> None:
        for task_id, line in self.lines.items():
            assert task_id in self.final, f"task {task_id} was lost"
            state = self.final[task_id].state
            if "fail" in line.command:
                assert state in (JobState.FAILED, JobState.LOST), f"task {task_id} is {state}"
                assert self.records_were_lost or state is JobState.LOST or self.executions[task_id] > self.options.retries
            elif line.kind.value == "N" and state is not JobState.SUCCEEDED:
                assert self.options.at_most_once or not self.options.reissue, f"task {task_id} is {state}"
                assert state is JobState.LOST
        self._check_jobs()
        calm = (
            self.weather.engine_crash_every_s == self.weather.partition_every_s == self.weather.engine_stop_every_s == inf
            and self.weather.cylinder_crash_every_s == inf
            and not self.records_were_lost
            and self.options.wait_for_driver_s > 500
        )
        if calm and not self._delayed_enough_to_be_given_up():
            for task_id, count in self.executions.items():
                if task_id >= FIRST_SUBMITTED:
                    continue
                expected = 1 + self.options.retries if "fail" in self.lines[task_id].command else 1
                assert count == expected, f"task {task_id} ran {count} times although no engine was lost"
        if self.records_were_lost or self.weather.engine_stop_every_s != inf:
            # An engine that was stopped may have been dismissed just now. The last driver may not know of an engine that another
            # had told to leave: its STOP commands end by themselves.
            self.clock.pass_time(LAST_COMMANDS_S)
        assert not any(machine.alive and machine.busy for machine in self.machines), "something still runs"

    def _check_jobs(self) -> None:
        """Every submitted job has its end, and none ran whose predecessors had not succeeded."""
        ends = {record.job_id: record.state for record in self.final.values() if record.job_id in self.jobs}
        for job_id, job in self.jobs.items():
            assert job_id in ends, f"{job_id} was lost"
            if self.records_were_lost:
                continue
            state = ends[job_id]
            before = [ends[other] for other in job.after]
            good = all(other is JobState.SUCCEEDED for other in before)
            allowed = {JobState.SUCCEEDED} if good else {JobState.OMITTED}
            if good and "fail" in job.command.line:  # type: ignore[union-attr]
                allowed = {JobState.FAILED}
            if job_id in self.cancelled:
                allowed |= {JobState.KILLED}
            if good and (self.options.at_most_once or not self.options.reissue):
                allowed |= {JobState.LOST}
            assert state in allowed, f"{job_id} is {state}, not {allowed}; before it: {before}"

    def _delayed_enough_to_be_given_up(self) -> bool:
        """Whether silence alone may have made the driver give up an engine."""
        return any(type(record) is r.EngineLeft and record.lost for record in self.disk.records)


def output_of(task_id: int, attempt: int) -> bytes:
    return b"%d#%d;" % (task_id, attempt) * (1 + task_id % 7)


class StormWorld:
    """The live world's shell on virtual time: the same order of writing, sending and telling as worlds/live/world.py."""

    name = "storm"

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self.session = storm.session
        self.driver = new_state(storm.options, storm.session)
        self.driver.kept_output = {key: len(pack) for key, pack in storm.packs.items()}
        if storm.units_come_back:
            self.driver.engines.spare_units = 0
        self._ended = False
        self._ticked_at = storm.clock.now
        self._alarm = -1.0
        self._writes = 0

    def begin(self, wants: Wants) -> e.Begins:
        while not self.driver.engines.present and not self.driver.nothing_to_do:
            self._turn()
            self._flush()
        return begins(self.driver, self._storm.clock.now)

    def advance(self) -> e.Batch | None:
        if self._ended:
            return None
        driver, clock = self.driver, self._storm.clock
        while True:
            settle(driver, clock.now)
            if driver.events and not driver.over:
                return e.Batch(clock.now, self._take_events())
            self._flush()
            if driver.over:
                self._ended = True
                return e.Batch(clock.now, [*self._take_events(), e.Ended(clock.now)])
            self._turn()

    def apply(self, reply: Reply) -> None:
        self._storm.clock.steps += 1
        assert self._storm.clock.steps < MOST_STEPS, "the decider and the world go round in circles"
        for decision in reply.decisions:
            if type(decision) is StartJob and (job := self._storm.jobs.get(decision.job_id)) is not None:
                assert job.command is not None
                bind(self.driver, job.id, job.command, self._storm.clock.now)
            apply(self.driver, decision, self._storm.clock.now)
        self._flush()

    def watch(self, fd: int) -> None:
        raise AssertionError("nothing to watch on virtual time")

    def close(self) -> None:
        pass

    def _turn(self) -> None:
        storm, clock = self._storm, self._storm.clock
        due = self._ticked_at + TICK_S
        if self._alarm < due:
            self._alarm = due
            clock.at(due, lambda: None)
        while not storm.inbox and clock.now < due:
            clock.step()
        storm.maybe_crash_driver()
        if storm.stormy and storm.rounds.random() < storm.weather.driver_stop:
            clock.pass_time(storm.rounds.choice([0.2, 5.0, 30.0, 90.0]))  # SIGSTOP and SIGCONT
        inbox, storm.inbox = storm.inbox, []
        storm.users_do_something(self.driver)
        for data in inbox:
            hear(self.driver, decode_from_engine(data), clock.now)
        if clock.now >= due:
            self._ticked_at = clock.now
            tick(self.driver, clock.now)
            if not self.driver.engines.present and not any(machine.alive for machine in storm.machines):
                storm.start_machine()  # as a context does

    def turn_superseded(self, inbox: list[bytes]) -> bool:
        """Another driver has taken over, and this one does not know. Whether it goes on."""
        storm, now = self._storm, self._storm.clock.now
        for data in inbox:
            hear(self.driver, decode_from_engine(data), now)
        inbox.clear()
        tick(self.driver, now)
        settle(self.driver, now)
        for key, place, data in self.driver.outputs:
            pack = storm.packs.setdefault(key, bytearray())
            assert place <= len(pack), "a part of a pack is missing"
            pack[place : place + len(data)] = data
        self.driver.outputs.clear()
        if self.driver.records:
            try:
                storm.disk.write(self.driver.records, self.session)
            except TakenOver:
                return False
        for frame in frames(self.driver, now):
            storm.to_engine(frame)
        return storm.stormy

    def _flush(self) -> None:
        storm, driver = self._storm, self.driver
        storm.maybe_crash_driver()
        self._write_outputs()
        if driver.records:
            records, driver.records = driver.records, []
            if storm.weather.slow_disk_s and storm.stormy:
                storm.clock.pass_time(storm.random.expovariate(1 / storm.weather.slow_disk_s))
            while True:
                try:
                    storm.disk.write(records, self.session)
                    break
                except RunError:
                    storm.clock.pass_time(1.0)
            for record in records:
                storm.note_record(record)
                if type(record) is r.EngineJoined:
                    self._check_units()
            self._writes += 1
            if self._writes % LOOKS_EVERY == 0:
                self._check_counts()
                self._check_restored()
        storm.maybe_crash_driver()
        for frame in frames(driver, storm.clock.now):
            storm.to_engine(frame)

    def _write_outputs(self) -> None:
        """A driver may be killed in the middle of it."""
        storm, outputs = self._storm, self.driver.outputs
        while outputs:
            key, place, data = outputs[0]
            pack = storm.packs.setdefault(key, bytearray())
            assert place <= len(pack), "a part of a pack is missing"
            half = len(data) // 2
            pack[place : place + half] = data[:half]
            storm.maybe_crash_driver()
            pack[place : place + len(data)] = data
            del outputs[0]

    def _check_units(self) -> None:
        """No unit has two owners."""
        engines, taken = self.driver.engines, 0
        for proxy in engines.present.values():
            assert not taken & proxy.node.mask, "a unit belongs to two engines"
            taken |= proxy.node.mask
            assert engines.owner(proxy.node.first) is proxy

    def _check_counts(self) -> None:
        """What is counted is what is there."""
        driver = self.driver
        groups = driver.groups.values()
        assert driver.waiting == sum(group.state is JobState.WAITING for group in groups), "jobs that wait"
        assert driver.running_tasks == sum(len(group.tasks) for group in driver.assignments.values()), "tasks that run"
        assert driver.engines.units == sum(proxy.node.count for proxy in driver.engines.present.values()), "units"

    def _check_restored(self) -> None:
        """A driver that is restarted now knows what this one knows."""
        again = new_state(self._storm.options, self.session)
        again.engines.spare_units = self.driver.engines.spare_units
        restore(again, self._storm.disk.records, self._storm.clock.now)
        ours, theirs = durable(self.driver, self._storm.lines), durable(again, self._storm.lines)
        for name, value in ours.items():
            assert theirs[name] == value, f"{name} after a restart: {theirs[name]}, not {value}"

    def _take_events(self) -> list[e.Event]:
        events, self.driver.events = self.driver.events, []
        return events


def durable(driver: DriverState, lines: Iterable[int]) -> dict[str, object]:
    """What must outlive a driver."""
    engines, backlog = driver.engines, driver.backlog
    hosts = sorted({proxy.node.name.partition("#")[0] for proxy in (*engines.present.values(), *engines.departed.values())})
    return {
        "engines": {
            name: (proxy.joined, proxy.node, sorted(proxy.free_gpus), sorted(proxy.assignments))
            for name, proxy in engines.present.items()
        },
        "departed": {name: proxy.state for name, proxy in engines.departed.items()},
        "the next engine": [
            engines.describe("next", Hello("c", host, slots, 1, 0.0), 0.0) for host in hosts for slots in (1, 2, 4)
        ],
        "assignments": {
            number: (
                group.job.id, group.state, group.engine, group.units, group.from_file, group.killed,
                {task_id: task.attempt for task_id, task in group.tasks.items()},
            )
            for number, group in driver.assignments.items()
        },
        "ended": (driver.done.count, driver.done.failed, [task_id for task_id in lines if task_id in driver.done]),
        "submitted": driver.outcomes,
        "spanning": driver.spanning,
        "numbers": (driver.running_tasks, driver.next_assignment, driver.answered, driver.output_room),
        "counts": driver.counts,
        "attempts": (backlog.attempts, driver.losses, backlog.cancelled, driver.context_limits),
    }  # fmt: skip
