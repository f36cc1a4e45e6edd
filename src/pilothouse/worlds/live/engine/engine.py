"""The engine: a node's share of the run, as a state machine without IO.

In: frames from the driver, reports and deaths of cylinders, the passing of time. Out: instructions (frames to the
driver, messages to cylinders, and in the end Go). process.py performs them; tests drive the same class on virtual
time, with faults.

Theory. An engine sends Hello again and again until a driver welcomes it. It runs the START commands in its extra
cylinder, then assignments, each in the cylinder of its first slot. It keeps every result until the driver has it in the
journal. If the driver falls silent, running tasks go on and results are kept until `wait_for_driver_s` is over. A driver
of a later incarnation gets everything again. An engine that was given up while it could not be reached is dismissed: it
ends what it has and joins under a new id.

    SEEKING ──welcomed──► PREPARING ──START commands done──► WORKING ──told to leave──► LEAVING ──STOP commands done──►
       ▲                      │                                 │                          PARTING ──acknowledged──► GONE
       └────── dismissed ─────┴─────────────────────────────────┘          (driver silent for too long: any ──► GONE)
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from math import inf

import msgspec

from pilothouse.worlds.live.engine.instructions import Go, Instruction, Renamed, TellCylinder
from pilothouse.worlds.live.engine.shipping import WINDOW_BYTES, Pack, Shipping
from pilothouse.worlds.live.wire import messages as m
from pilothouse.worlds.live.wire.messages import Channel

HELLO_EVERY_S = 1.0
FIRST_WORD_S = 120.0
"""How long an engine looks for its first driver: the run may have ended while it was being started."""
PARTING_S = 10.0
"""How long a leaving engine tries to hand over its last results."""
_JOIN = -1
_LEAVE = -2


class EngineState(enum.Enum):
    SEEKING = "seeking"
    PREPARING = "preparing"
    WORKING = "working"
    LEAVING = "leaving"
    PARTING = "parting"
    GONE = "gone"


class EngineStimulus(enum.Enum):
    WELCOMED = "welcomed"
    PREPARED = "START commands done"
    TOLD_TO_LEAVE = "told to leave"
    EMPTY = "nothing left to do, STOP commands done"
    ACKNOWLEDGED = "the driver has all results"
    DISMISSED = "given up by the driver"
    DESERTED = "the driver was silent for too long"
    TOO_LATE = "the run is over"


_S = EngineState
_ROWS: dict[EngineState, tuple[EngineState, ...]] = {
    #  WELCOMED, PREPARED, TOLD_TO_LEAVE, EMPTY, ACKNOWLEDGED, DISMISSED, DESERTED, TOO_LATE
    _S.SEEKING: (_S.PREPARING, _S.SEEKING, _S.SEEKING, _S.SEEKING, _S.SEEKING, _S.SEEKING, _S.GONE, _S.GONE),
    _S.PREPARING: (_S.PREPARING, _S.WORKING, _S.LEAVING, _S.PREPARING, _S.PREPARING, _S.SEEKING, _S.GONE, _S.GONE),
    _S.WORKING: (_S.WORKING, _S.WORKING, _S.LEAVING, _S.WORKING, _S.WORKING, _S.SEEKING, _S.GONE, _S.GONE),
    _S.LEAVING: (_S.LEAVING, _S.LEAVING, _S.LEAVING, _S.PARTING, _S.LEAVING, _S.GONE, _S.GONE, _S.GONE),
    _S.PARTING: (_S.PARTING, _S.PARTING, _S.PARTING, _S.PARTING, _S.GONE, _S.GONE, _S.GONE, _S.GONE),
    _S.GONE: (_S.GONE,) * 8,
}
TRANSITIONS: dict[tuple[EngineState, EngineStimulus], EngineState] = {
    (state, stimulus): target
    for state, row in _ROWS.items()
    for stimulus, target in zip(EngineStimulus, row, strict=True)
}


class Held(msgspec.Struct):
    assignment: m.Assignment
    begun: bool = False


class Engine:
    """One engine. Every public method returns nothing; `take` gives the instructions that have piled up."""

    def __init__(
        self,
        identity: str,
        hello: m.Hello,
        now: float,
        *,
        cores: tuple[int, ...] = (),
        slot_env: dict[str, tuple[str, ...]] | None = None,
        new_identity: Callable[[], str] | None = None,
        pack: Pack | None = None,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """`pack`: the output of its tasks, if it must be sent to the driver; so much of it may be on its way."""
        self.id = identity
        self.state = EngineState.SEEKING
        self.session = 0
        self.rank = -1
        self.unacked: list[tuple[int, m.Finished]] = []
        """Results by the number of the frame that carries them; kept until the driver has them."""
        self._hello = hello
        self._began_at = now
        self._prepares: dict[int, m.Prepare] = {}
        """What each cylinder was told about all tasks."""
        self._cores = cores
        self._slot_env = slot_env or {}
        self._new_identity = new_identity or (lambda: f"{self.id}+")
        self._held: dict[int, Held] = {}
        self._last_taken = 0
        self._welcome: m.Welcome | None = None
        self._channel: Channel[m.FromEngine] = Channel()
        self._shipping = Shipping(pack, window_bytes) if pack is not None else None
        self._bye_due = False
        """Goodbye is to be said when all results have been sent."""
        self._heard_at = now
        self._hello_at = now
        self._alive_at = inf
        self._parting_until = inf
        self._prepared = False
        self._commands = 0
        """How many of the START commands were given to the extra cylinder."""
        self._stop_runs = False
        self._stop_ran = False
        self._extra: m.Assignment | None = None
        """The START or STOP commands that the extra cylinder was given and has not ended."""
        self._extra_told: set[int] = set()
        """Those of them whose results the driver was told."""
        self._heartbeat_s = 2.0
        self.wait_for_driver_s = FIRST_WORD_S
        self._out: list[Instruction] = []

    # ---- stimuli

    def hear(self, frame: m.DriverFrame, now: float) -> None:
        """A frame of the driver."""
        if frame.engine != self.id or self.state is EngineState.GONE or frame.session < self.session:
            return
        self._heard_at = now
        if frame.session > self.session:
            welcome = next((body for body in frame.bodies if type(body) is m.Welcome), None)
            if welcome is None:
                if dismissal := next((body for body in frame.bodies if type(body) is m.Dismiss), None):
                    self._dismissed(now, over=dismissal.over)
                elif now >= self._hello_at:
                    self._say_hello(now)  # a driver that does not know us yet, or is not ready for us
                return
            self._welcomed(welcome, frame.session, now)
        if self._channel.take(frame.seq, frame.ack, now):
            for body in frame.bodies:
                self._take_body(body, now)
        elif dismissal := next((body for body in frame.bodies if type(body) is m.Dismiss), None):
            self._dismissed(now, over=dismissal.over)
        self._forget_acknowledged(frame.ack, now)

    def report(self, cylinder: int, finished: m.Finished, now: float) -> None:
        """A cylinder has news of its assignment."""
        if finished.assignment in (_JOIN, _LEAVE):
            self._per_engine(finished, now)
            return
        held = self._held.get(finished.assignment)
        if held is None:
            return  # it had that before it was dismissed
        if finished.closed:
            del self._held[finished.assignment]
        if self._shipping is not None:
            self._shipping.hold(finished)
            self._ship()
        else:
            self._send_result(finished)
        self._check_empty(now)

    def cylinder_died(
        self, cylinder: int, assignment: int | None, results: list[m.Result], running: int | None, now: float
    ) -> None:
        """A cylinder was killed, with the task that it ran; another has taken its place. `assignment` is the last that it had
        begun, with its results and the task that had begun and not ended.

        A task can kill its cylinder, so only that task is lost. The rest, and work of this round, is given back.
        """
        self._out = [out for out in self._out if not (type(out) is TellCylinder and out.cylinder == cylinder)]
        if cylinder in self._prepares:
            self._tell(cylinder, self._prepares[cylinder])
        if cylinder == self._hello.slots:
            self._extra_died(assignment, results, now)
            return
        for held in [held for held in self._held.values() if held.begun and held.assignment.slots[0] == cylinder]:
            ended: list[m.Result] = []
            rest = held.assignment.tasks
            if held.assignment.id == assignment:
                known = {result.task_id for result in results}
                cut_off = [task for task in rest if task.task_id == running]
                ended = [*results, *(_lost(task, self._date(now)) for task in cut_off)]
                rest = [task for task in rest if task.task_id not in known and task.task_id != running]
            returned = tuple(task.task_id for task in rest)
            self.report(cylinder, m.Finished(held.assignment.id, ended, True, returned), now)

    def _extra_died(self, assignment: int | None, results: list[m.Result], now: float) -> None:
        """The extra cylinder was killed: commands that it had not begun are given to the new one, others are lost."""
        extra = self._extra
        if extra is not None and extra.id != assignment:
            self._tell(self._hello.slots, m.Work(extra, {}))
        elif extra is not None:
            ended = {result.task_id for result in results}
            lost = [_lost(task, self._date(now)) for task in extra.tasks if task.task_id not in ended]
            self._per_engine(m.Finished(extra.id, [*results, *lost], True), now)

    def tick(self, now: float) -> None:
        """Time has passed."""
        if self.state is EngineState.GONE:
            return
        if self.state is EngineState.SEEKING and now >= self._hello_at:
            self._say_hello(now)
        if now - self._heard_at > self.wait_for_driver_s:
            self._step(EngineStimulus.DESERTED)
            self._out.append(Go("the driver was not heard for too long"))
            return
        if self.state is EngineState.PARTING and (self._all_sent or now > self._parting_until):
            self._step(EngineStimulus.ACKNOWLEDGED)
            self._out.append(Go("done"))
            return
        if self.state is not EngineState.SEEKING and now >= self._alive_at:
            self._alive_at = now + self._heartbeat_s
            self._out.append(self._frame(0, []))

    def take(self, now: float) -> list[Instruction]:
        """The instructions since the last call, frames last."""
        self._ship()
        for seq, bodies in self._channel.outgoing(now):
            self._out.append(self._frame(seq, bodies))
            self._alive_at = now + self._heartbeat_s
        out, self._out = self._out, []
        return out

    def wakes_at(self) -> float:
        """When `tick` must be called next."""
        return self._hello_at if self.state is EngineState.SEEKING else self._alive_at

    # ---- what the driver says

    def _welcomed(self, welcome: m.Welcome, session: int, now: float) -> None:
        first = self._welcome is None
        self.session = session
        self.rank = welcome.rank
        self._welcome = welcome
        self._heartbeat_s = welcome.heartbeat_s
        self.wait_for_driver_s = welcome.wait_for_driver_s
        self._alive_at = now + self._heartbeat_s
        self._channel = Channel()
        kept = self.results
        self.unacked = []
        known = {*self._held, *(finished.assignment for finished in kept)}
        # Their results were acknowledged, but the records of that were lost (a power failure).
        forgotten = [n for n in welcome.assignments if n <= self._last_taken and n not in known]
        if self._shipping is not None:
            self._shipping.begin(welcome.kept, kept)
            kept = []
        if kept or forgotten:
            gone = (m.Finished(number, [], closed=True, forgotten=True) for number in forgotten)
            self.unacked = [(1, finished) for finished in kept]
            self._channel.push(m.Report([*kept, *gone]))
        if self.state is EngineState.PARTING:
            self._bye_due = True
            self._ship()
        self._step(EngineStimulus.WELCOMED)
        self._abandon(set(self._held).difference(welcome.assignments))
        if not first:
            if self._prepared:
                self._prepare(now)
            return
        env = dict(welcome.env)
        for cylinder in range(self._hello.slots + 1):
            rank = cylinder if cylinder < self._hello.slots else -1
            ranks = ("PILOTHOUSE_SLOT", "DISBATCH_CYLINDER_RANK") if welcome.task_env else ("PILOTHOUSE_SLOT",)
            own = env | dict.fromkeys(ranks, str(rank))
            for name, values in self._slot_env.items():
                if values:
                    own[name] = values[cylinder % len(values)]
            self._prepares[cylinder] = m.Prepare(own, welcome.task_env, welcome.grace_s, welcome.linger_s)
            self._tell(cylinder, self._prepares[cylinder])
        self._prepare(now)

    def _take_body(self, body: m.FromDriver, now: float) -> None:
        match body:
            case m.Start(assignments):
                for assignment in assignments:
                    # Numbers ascend. An old one comes again if the driver got a Hello that was sent before it.
                    if assignment.id > self._last_taken:
                        self._last_taken = assignment.id
                        self._held[assignment.id] = Held(assignment)
                        if self._stop_runs or self.state is EngineState.PARTING:
                            # A driver that was replaced told us to leave; the one in its place does not know.
                            self._end(assignment.id, "leaving", now)
                        elif self._prepared:
                            self._begin(self._held[assignment.id])
            case m.Commands(on_join):
                assert self._welcome is not None
                self._welcome.on_join = on_join
                if self._prepared and not self._stop_runs:
                    self._prepare(now)
            case m.Kill(assignments, reason):
                for number in assignments:
                    self._end(number, reason, now)
            case m.Leave(_, at_once):
                self._step(EngineStimulus.TOLD_TO_LEAVE)
                if at_once:
                    for number in list(self._held):
                        self._end(number, "killed", now)
                self._check_empty(now)
            case m.Dismiss(over=over):
                self._dismissed(now, over=over)
            case m.Welcome() | m.Kept():
                pass

    def _begin(self, held: Held) -> None:
        held.begun = True
        assignment = held.assignment
        cylinder = assignment.slots[0]
        env = {}
        if assignment.nodes:
            env["PILOTHOUSE_NODES"] = assignment.nodes
        if assignment.gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(assignment.gpus)
        self._tell(cylinder, m.Work(assignment, env, self._cores_of(assignment)))

    def _cores_of(self, assignment: m.Assignment) -> tuple[int, ...]:
        """The cores of its slots: the node's cores dealt out evenly; none if it did not ask to be bound."""
        if not assignment.environment.bind or not self._cores:
            return ()
        per_slot = len(self._cores) / self._hello.slots
        cores: set[int] = set()
        for slot in assignment.slots:
            first, last = int(slot * per_slot), int((slot + 1) * per_slot)
            cores.update(self._cores[first : max(last, first + 1)])
        return tuple(sorted(cores))

    def _end(self, number: int, reason: str, now: float) -> None:
        held = self._held.get(number)
        if held is None:
            return
        if held.begun and not self._unsend(number):
            self._tell(held.assignment.slots[0], m.Stop(number, reason))
        else:
            everything = tuple(task.task_id for task in held.assignment.tasks)
            self.report(held.assignment.slots[0], m.Finished(number, [], True, everything), now)

    def _dismissed(self, now: float, *, over: bool) -> None:
        """The driver gave us up, and others have our tasks now; or the run was over when we came."""
        leaving = over or self.state in (EngineState.LEAVING, EngineState.PARTING)
        self._abandon(set(self._held))
        self.unacked.clear()
        if self._shipping is not None:
            self._shipping.begin(0, [])
        self._channel = Channel()
        self._bye_due = False
        self.session = 0
        self._step(EngineStimulus.TOO_LATE if over else EngineStimulus.DISMISSED)
        if leaving:
            self._out.append(Go("dismissed"))
            return
        self.id = self._new_identity()
        self._out.append(Renamed(self.id))
        self._hello_at = now

    def _abandon(self, numbers: set[int]) -> None:
        """Ends assignments whose results the driver does not want."""
        for number in sorted(numbers):
            held = self._held.pop(number)
            if held.begun and not self._unsend(number):
                self._tell(held.assignment.slots[0], m.Stop(number, "dismissed", at_once=True))

    # ---- inside

    def _per_engine(self, finished: m.Finished, now: float) -> None:
        leaving = finished.assignment == _LEAVE
        new = [result for result in finished.results if result.task_id not in self._extra_told]
        self._extra_told.update(result.task_id for result in new)
        results = [_leave_result(result) for result in new] if leaving else new
        if results:
            self._channel.push(m.Report([], results))
        if not finished.closed:
            return
        self._extra = None
        self._extra_told.clear()
        if leaving:
            self._stop_ran = True
            self._check_empty(now)
        else:
            self._prepare(now)

    def _prepare(self, now: float) -> None:
        """Runs the START commands that have not been run. Assignments that have not begun wait for them."""
        assert self._welcome is not None
        if new := self._welcome.on_join[self._commands :]:
            self._commands += len(new)
            self._prepared = False
            self._run_extra(_JOIN, new)
        else:
            self._ready(now)

    def _ready(self, now: float) -> None:
        """START commands are done: assignments may begin."""
        self._prepared = True
        self._step(EngineStimulus.PREPARED)
        for held in self._held.values():
            if not held.begun:
                self._begin(held)
        self._check_empty(now)

    def _check_empty(self, now: float) -> None:
        """A leaving engine without work runs the STOP commands, then says goodbye."""
        if self.state is not EngineState.LEAVING or self._held or not self._prepared or self._welcome is None:
            return
        if self._welcome.on_leave and not self._stop_ran:
            if not self._stop_runs:
                self._stop_runs = True
                self._run_extra(_LEAVE, self._welcome.on_leave)
            return
        self._bye_due = True
        self._ship()
        self._parting_until = now + PARTING_S
        self._step(EngineStimulus.EMPTY)

    def _date(self, now: float) -> float:
        """Seconds since 1970."""
        return self._hello.started_at + now - self._began_at

    def _run_extra(self, number: int, tasks: list[m.Task]) -> None:
        self._extra = m.Assignment(number, (self._hello.slots,), tasks)
        self._tell(self._hello.slots, m.Work(self._extra, {}))

    def _say_hello(self, now: float) -> None:
        self._hello_at = now + HELLO_EVERY_S
        held = {*self._held, *(finished.assignment for _, finished in self.unacked)}
        leaving = self.state in (EngineState.LEAVING, EngineState.PARTING)
        hello = msgspec.structs.replace(self._hello, held=tuple(sorted(held)), leaving=leaving)
        self._out.append(m.EngineFrame(m.VERSION, self.id, 0, 0, 0, [hello]))

    @property
    def results(self) -> list[m.Finished]:
        """Those that the driver may not have."""
        held_back = self._shipping.held_back if self._shipping is not None else []
        return [*(finished for _, finished in self.unacked), *held_back]

    @property
    def _all_sent(self) -> bool:
        return self._channel.idle and not self._bye_due

    def _ship(self) -> None:
        """Sends output, results behind it, and goodbye behind those."""
        shipping = self._shipping
        if shipping is not None and self.session:
            while True:
                while (finished := shipping.next_result()) is not None:
                    self._send_result(finished)
                piece = shipping.next_piece(self._channel.next_seq)
                if piece is None:
                    break
                self._channel.push(piece)
        if self._bye_due and not (shipping is not None and shipping.held_back):
            self._bye_due = False
            self._channel.push(m.Bye("done"))

    def _send_result(self, finished: m.Finished) -> None:
        self.unacked.append((self._channel.next_seq, finished))
        self._channel.push(m.Report([finished]))

    def _forget_acknowledged(self, ack: int, now: float) -> None:
        if self._shipping is not None and self._shipping.take_acknowledged(ack):
            self._parting_until = now + PARTING_S
        if self.unacked and self.unacked[0][0] <= ack:
            self.unacked = [entry for entry in self.unacked if entry[0] > ack]

    def _frame(self, seq: int, bodies: list[m.FromEngine]) -> m.EngineFrame:
        return m.EngineFrame(m.VERSION, self.id, self.session, seq, self._channel.received, bodies)

    def _tell(self, cylinder: int, message: m.ToCylinder) -> None:
        self._out.append(TellCylinder(cylinder, message))

    def _unsend(self, number: int) -> bool:
        """Takes the work of an assignment back; False: it was sent in an earlier round."""
        for place, out in enumerate(self._out):
            if type(out) is TellCylinder and type(out.message) is m.Work and out.message.assignment.id == number:
                del self._out[place]
                return True
        return False

    def _step(self, stimulus: EngineStimulus) -> None:
        self.state = TRANSITIONS[self.state, stimulus]


def _lost(task: m.Task, at: float) -> m.Result:
    return m.Result(task.task_id, task.attempt, m.LOST_CODE, -1, at, at, reason=m.CYLINDER_KILLED)


def _leave_result(result: m.Result) -> m.Result:
    """STOP commands are numbered downwards from -1, so that they differ from START commands."""
    return msgspec.structs.replace(result, task_id=-1 - result.task_id)
