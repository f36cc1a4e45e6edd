"""The live world: the thin shell around the driver, with sockets, clock, journal and contexts. It decides nothing.

`advance` waits for engines, contexts and calls of other threads, `apply` hands decisions to the driver. Records are written
before frames are sent; a full disk stops everything until there is room again. Other threads may use `call`, and nothing else.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from pilothouse.formats.task_file import TaskLine
from pilothouse.model import events as e
from pilothouse.model.decisions import Reply, Wants
from pilothouse.model.errors import PeerError, RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.attached import AttachedEngines
from pilothouse.worlds.live.contexts import Context, Launch, listening
from pilothouse.worlds.live.descriptors import raise_limit
from pilothouse.worlds.live.driver import decisions, engine_frames, flow
from pilothouse.worlds.live.driver.flow import PARTING_S, begins, settle, stop
from pilothouse.worlds.live.driver.restore import restore
from pilothouse.worlds.live.driver.state import new_state
from pilothouse.worlds.live.engine_files import DeadEngines, sizes_of_packs
from pilothouse.worlds.live.engine_supply import EngineSupply
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.record_writer import RecordWriter
from pilothouse.worlds.live.request_desk import MakeContext, RequestDesk
from pilothouse.worlds.live.requests import Request
from pilothouse.worlds.live.run_clock import clock_note
from pilothouse.worlds.live.snapshots import Demand, EngineView, demand, engine_views
from pilothouse.worlds.live.stopping import Idleness, Stopping
from pilothouse.worlds.live.wire.messages import encode, read_engine_frame
from pilothouse.worlds.live.wire.sockets import DriverSocket, Keys, own_addresses

if TYPE_CHECKING:
    from pilothouse.worlds.live.contexts.programs import ProgramContext

TICK_S = 0.5
FIRST_ENGINE_S = 120.0
"""How long begin() waits for an engine before it gives up (a service waits for ever)."""
ENDS_S = 10.0
"""How long engines may take to end after their goodbye, before they are killed."""


class LiveWorld:
    """Real tasks on real nodes. See the package's docstring for how to use one."""

    name = "live"

    def __init__(
        self,
        options: LiveOptions,
        *,
        folder: Path,
        recorder: r.Recorder,
        contexts: Iterable[Context] = (),
        feeder: Feeder | None = None,
        total: int | None = None,
        session: int = 1,
        port: int = 0,
        listens: tuple[str, ...] = (),
        warn: Callable[[str], None] | None = None,
        logs: str = "",
    ) -> None:
        """`listens`: addresses to bind, if not those towards the contexts' nodes. `logs`: where engine logs are, for messages."""
        raise_limit()
        contexts = list(contexts)
        self.options = options
        self.folder = folder
        self._logs = logs
        self.on_task: list[Callable[[r.TaskEnded], None]] = []
        """Called with the end of every attempt, barrier and per-engine command, once it is in the journal."""
        self.on_tick: list[Callable[[], None]] = []
        """Called about twice a second, and never more often."""
        self.never_started: tuple[str, ...] = ()
        """Tasks that the decider left waiting when nothing could happen any more."""
        self._started_at = time.monotonic()
        began_at = time.time()
        self._driver = new_state(options, session, began_at)
        self._driver.records.append(clock_note(began_at, self._started_at))
        self._driver.backlog.total = total
        self._driver.kept_output = sizes_of_packs(folder)
        if feeder is not None:
            self._driver.feed(feeder)
        self._recorder = recorder
        self._warn = warn or (lambda _text: None)
        self._keys = Keys.load_or_make(folder)
        listens = listens or listening(contexts)
        self._wire = DriverSocket(self._keys, *listens, port=port)
        self.addresses = own_addresses(self._wire.port, listens)
        self._dead_engines = DeadEngines(folder)
        self._supply = EngineSupply(self._driver, contexts, self._dead_engines, partial(self.launch, leased=True), self._warn)
        self._peers: dict[str, bytes] = {}
        self.attached = AttachedEngines(self._driver, self.now, self.call)
        self._poller = zmq.Poller()
        self._poller.register(self._wire.socket, zmq.POLLIN)
        self._calls: list[Callable[[], object]] = []
        self._lock = threading.RLock()  # a signal handler may come while it is held
        self._bell_read, self._bell_write = os.pipe()
        os.set_blocking(self._bell_read, False)
        os.set_blocking(self._bell_write, False)
        self._poller.register(self._bell_read, zmq.POLLIN)
        self._watched: list[int] = []
        self._ticked_at = 0.0
        self._writer = RecordWriter(folder, recorder, self._driver.engines, self._warn, self._wait_for_room)
        self._stopping, self._idleness = Stopping(options.grace_s), Idleness()
        self._desk = RequestDesk(self._driver, self._supply, folder, listens, self.call, self.now)
        self._taken_over = False  # another driver has the run: nothing is to be said to its engines
        self._closed = False
        self._ended = False

    # ---- the contract

    def begin(self, wants: Wants) -> e.Begins:
        """Starts the contexts' engines, waits for the first one (and a little for the others)."""
        gc.freeze()  # the collector need not look at what was imported
        if self._driver.nothing_to_do and not self._driver.has_engine_commands:
            return begins(self._driver, self.now())
        for context in self._supply.contexts:
            self._supply.start(context)
        expected = self._supply.expected
        first_at = None
        enough, patience_s = expected * self.options.enough_engines, self.options.engines_within_s
        first_within_s = max(FIRST_ENGINE_S, patience_s)
        until = self.now() + first_within_s
        while not self._driver.over:
            present = sum(1 for proxy in self._driver.engines.present.values() if proxy.welcomed)
            if present and first_at is None:
                first_at = self.now()
            if present >= enough or (present and present + self._supply.gone_for_good >= expected):
                break
            if first_at is not None and self.now() > first_at + patience_s:
                break
            if self.options.service and not expected:
                break
            if why := self._driver.stopped_because:
                raise RunError(f"{why}{self._where_to_look() if why == r.NO_ENGINE else '; no task had begun'}")
            if not self._driver.start_commands_known():
                until = self.now() + first_within_s  # no engine can join yet
            if not present and self.now() > until:
                raise RunError(f"no engine joined within {first_within_s:g} s{self._where_to_look()}")
            self._turn()
            self._flush()
        return begins(self._driver, self.now())

    def _where_to_look(self) -> str:
        """The logs that engines have left, for a message; those that were never started left none."""
        if self._logs:
            return f"; see {self._logs}"
        written = sorted(path for path in self.folder.glob("engine-*.log") if path.stat().st_size)
        return f"; see {written[-1]}" if written else ""

    def advance(self) -> e.Batch | None:
        if self._ended:
            return None
        driver = self._driver
        while True:
            settle(driver, self.now())
            if driver.events and driver.backlog.feeder is not None and not driver.over and not self._stopping.abandoned:
                # Records are written with those of the decisions: one wait for the disk, not two. No engine is answered before.
                # Front ends that submit jobs hear of their ends first.
                return e.Batch(self.now(), self._take_events())
            self._flush()
            if driver.over or self._stopping.abandoned:
                self._ended = True
                now = self.now()
                return e.Batch(now, [*self._take_events(), e.Ended(now, self.never_started)])
            if driver.events:
                return e.Batch(self.now(), self._take_events())
            if self._turn():
                settle(driver, self.now())
                return e.Batch(self.now(), self._take_events())

    def apply(self, reply: Reply) -> None:
        now = self.now()
        for decision in reply.decisions:
            decisions.apply(self._driver, decision, now)
        self._flush()

    def watch(self, fd: int) -> None:
        self._watched.append(fd)
        self._poller.register(fd, zmq.POLLIN)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if not self._stopping.abandoned:
                self._flush()
            self._part()
            self._writer.close()
        finally:
            self._ends_by = self.now() + (0.0 if self._stopping.abandoned else ENDS_S)
            self._supply.close(None if self._taken_over else self._wait_for_ends)
            self._wire.close()
            if self._driver.over and not self._driver.stopped_because:
                self._dead_engines.sweep()
            with self._lock:
                os.close(self._bell_read)
                os.close(self._bell_write)
                self._bell_write = -1
            self._recorder.close()

    def _part(self) -> None:
        """If the run ends before its work (its decider failed), engines end their tasks and leave."""
        driver = self._driver
        if driver.over or self._stopping.abandoned or not driver.engines.present:
            return
        while self._watched:
            self._poller.unregister(self._watched.pop())
        stop(driver, "the run ended early", self.now())
        for engine in list(driver.engines.present):
            engine_frames.ask_to_leave(driver, engine, "the run ended early", self.now(), at_once=True)
        until = self.now() + PARTING_S
        self._flush()
        while driver.engines.present and self.now() < until:
            self._turn()
            settle(driver, self.now())
            self._take_events()
            self._flush()

    def _wait_for_ends(self) -> bool:
        """A goodbye that comes again is answered again. False: engines had time enough to end."""
        if self._poller.poll(10):
            self._receive(self.now())
        if not self._stopping.abandoned:
            self._flush()
        return self.now() < self._ends_by

    # ---- for front ends

    def now(self) -> float:
        """Seconds since the world was made; never jumps."""
        return time.monotonic() - self._started_at

    def launch(self, *, leased: bool = False) -> Launch:
        """What a context must hand to its engines. `leased`: the context is one of this world's."""
        keys = self._keys
        return Launch(
            self.addresses, keys.server_public, keys.client_public, keys.client_secret, os.getcwd(), str(self.folder),
            sys.executable, leased, self.options.most_slots,
        )  # fmt: skip

    @property
    def port(self) -> int:
        return self._wire.port

    @property
    def engine_hosts(self) -> set[str]:
        """The addresses of the hosts that engines have joined from."""
        return self._wire.engine_hosts

    def restore(self, journal: Iterable[r.Record]) -> None:
        """Before begin: takes up the run that the journal describes."""
        restore(self._driver, journal, self.now())

    def known(self, line: TaskLine) -> bool | None:
        """For a Feeder: None if the task must run, else whether it failed in an earlier life of the run."""
        return self._driver.known(line)

    def take_contexts(self, make: MakeContext) -> None:
        """Users may ask for more engines, which come from contexts that `make` makes."""
        self._desk.make_context = make

    def feed(self, feeder: Feeder) -> None:
        """The tasks of a file, where they could not be given at once because `restore` comes first."""
        self._driver.feed(feeder)

    def adopt(self, contexts: Iterable[ProgramContext], is_gone: Callable[[EngineView], bool]) -> None:
        """Before begin: the contexts of the run. After `restore` they start only the engines that are missing (`is_gone`)."""
        for engine in self.engines():
            if is_gone(engine):
                # If its warden is still at work, it will report.
                proxy = self._driver.engines.present[engine.id]
                self._dead_engines.report(self._driver, proxy, "its process is gone", self.now())
        self._driver.lost_engines.clear()
        for context in contexts:
            known = {engine.key: engine.host for engine in self.engines() if engine.context == context.name}
            self._supply.adopt(context, known)

    def add_context(self, context: Context) -> None:
        """More engines for a run that goes on."""
        self._supply.contexts.append(context)
        self._supply.start(context)

    def submit(self, job: Job) -> int:
        """Queues a job; the decider hears of it with the next batch. Returns its task id.

        A job without a command needs one (`bind`) before it is started. The journal does not have it until then.
        """
        return flow.submit(self._driver, job, self.now())

    def bind(self, job_id: str, command: Command) -> None:
        """Sets the command of a job that waits, before the reply that starts it is applied. Ignores unknown jobs."""
        flow.bind(self._driver, job_id, command, self.now())

    def cancel(self, job_id: str) -> bool:
        """Withdraws a job that waits, or ends one that runs. False if it is unknown or over."""
        return flow.cancel(self._driver, job_id, self.now())

    def more_events(self) -> list[e.Event]:
        """Events that follow from calls made since advance() returned: a front end adds them to the same batch."""
        settle(self._driver, self.now())
        return self._take_events()

    def no_more(self) -> None:
        """No further submit(): the run ends when all has ended."""
        self._driver.no_more = True

    def stop(self, reason: str) -> None:
        stop(self._driver, reason, self.now())

    def obey(self, request: Request) -> str:
        """A request of the user, as those that are left in the folder. What happens, in words."""
        return self._desk.obey(request)

    def abandon(self) -> None:
        """Ends the run at once: its engines are killed when it is closed. Safe in a signal handler."""
        self._stopping.abandoned = True

    def stop_engine(self, engine: str) -> bool:
        """Soft shutdown."""
        return engine_frames.ask_to_leave(self._driver, engine, "asked to leave", self.now())

    def stop_context(self, context: str) -> int:
        return engine_frames.stop_context(self._driver, context, "asked to leave", self.now())

    def engines(self) -> list[EngineView]:
        """The engines that are present, or expected back after a restart."""
        return engine_views(self._driver)

    def units_of(self, job_id: str) -> IdSet:
        """The units that a job has; none if it waits or is unknown."""
        group = self._driver.groups.get(job_id)
        return group.units if group is not None else IdSet()

    @property
    def counts(self) -> Mapping[JobState, int]:
        """Tasks by final state."""
        return self._driver.counts

    @property
    def done(self) -> int:
        """Tasks and barriers that have their final result."""
        return self._driver.done.count

    @property
    def waiting(self) -> int:
        """Jobs that the decider knows and has not started."""
        return self._driver.waiting

    @property
    def running(self) -> int:
        """Tasks that engines have in hand."""
        return self._driver.running_tasks

    @property
    def slots(self) -> int:
        """Slots of all engines."""
        return self._driver.engines.units

    @property
    def over(self) -> bool:
        return self._driver.over

    @property
    def stopped_because(self) -> str:
        """Why the run was stopped before its end; "" if it was not."""
        return self._driver.stopped_because

    def demand(self) -> Demand:
        """What automatic allocation decides on."""
        return demand(self._driver)

    def call(self, action: Callable[[], object]) -> None:
        """Runs an action in the world's own thread, soon. The only method that other threads may use."""
        with self._lock:
            self._calls.append(action)
        self.ring()

    def ring(self) -> None:
        """Wakes advance(); safe in a signal handler."""
        with self._lock, contextlib.suppress(OSError):  # the pipe is full: it will wake; or the world is closed
            os.write(self._bell_write, b"!")

    # ---- one look at everything

    def _turn(self) -> bool:
        """Waits for something to happen, or for the next tick. Whether a watched descriptor is readable."""
        driver = self._driver
        now = self.now()
        wait_s = max(0.0, min(self._ticked_at + TICK_S, driver.calls.next_at) - now)
        ready = {source for source, _ in self._poller.poll(int(wait_s * 1000) + 1)}
        now = self.now()
        if self._wire.socket in ready:
            self._receive(now)
        if self._bell_read in ready:
            self._answer_bell()
        if now >= self._ticked_at + TICK_S or now >= driver.calls.next_at:
            self._ticked_at = now
            engine_frames.tick(driver, now)
            self._look_at_contexts(now)
            self._desk.look()
            self._look_whether_stuck(now)
            if said := self._stopping.look(driver, now):
                self._warn(said)
            for show in self.on_tick:
                show()
        return any(fd in ready for fd in self._watched)

    def _receive(self, now: float) -> None:
        for peer, message in self._wire.receive():
            frame = read_engine_frame(message)
            if isinstance(frame, str):
                self._warn(frame)
                continue
            self._peers[frame.engine] = peer
            engine_frames.hear(self._driver, frame, now)

    def _answer_bell(self) -> None:
        os.read(self._bell_read, 4096)
        with self._lock:
            calls, self._calls = self._calls, []
        for action in calls:
            action()

    def _look_at_contexts(self, now: float) -> None:
        driver, supply = self._driver, self._supply
        supply.look(now)
        may_come = self.options.service or supply.gone_for_good < supply.expected
        if supply.given_up and not driver.engines.present and not may_come:
            stop(driver, r.NO_ENGINE, now)

    def _look_whether_stuck(self, now: float) -> None:
        """Tells the user that engines are idle while jobs wait; stops the run if no engine and no event is to come."""
        driver = self._driver
        to_come = self.options.service or len(driver.engines.present) + self._supply.gone_for_good < self._supply.expected
        if self._idleness.is_for_good(driver, now) and not self._watched and not to_come:
            self.never_started = driver.waiting_tasks
            stop(driver, f"the decider starts none of the {driver.waiting} jobs that wait, and nothing is left to happen", now)
        elif said := self._idleness.look(driver, now):
            self._warn(said)

    def _flush(self) -> None:
        """Writes output and records, then sends frames. While the disk is full nothing is sent, and nothing is lost. A wait for
        the disk that no frame and no front end needs is left to the next: engines keep what is not acknowledged.
        """
        driver = self._driver
        frames = engine_frames.frames(driver, self.now())
        durable = bool(frames) or driver.backlog.feeder is None
        if driver.records or driver.outputs or (durable and self._writer.not_durable):
            records, driver.records = driver.records, []
            try:
                self._writer.write(driver.outputs, records, self.now(), durable=durable)
            except PeerError:
                self._stopping.abandoned = self._taken_over = True
                raise
            self._dead_engines.forget_written()
            for record in records if self.on_task else ():
                if type(record) is r.TaskEnded:
                    for tell in self.on_task:
                        tell(record)
        for frame in frames:
            peer = self._peers.get(frame.engine)
            if not self.attached.take(frame) and peer is not None:
                self._wire.send(peer, encode(frame))

    def _wait_for_room(self) -> bool:
        """The disk is full. False: the run was stopped, and has waited long enough."""
        self._stopping.abandoned = self._stopping.is_too_late(self._driver, self.now())
        if not self._stopping.abandoned:
            bell = select.poll()
            bell.register(self._bell_read, select.POLLIN)
            if bell.poll(1000):
                self._answer_bell()  # such as a signal to stop
        return not self._stopping.abandoned

    def _take_events(self) -> list[e.Event]:
        events, self._driver.events = self._driver.events, []
        return events
