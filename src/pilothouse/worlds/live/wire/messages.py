"""The messages between driver, engines and cylinders: typed, versioned, batched (MessagePack on the wire).

A frame goes one way and carries any number of bodies. `session` is the driver's incarnation that the engine has joined
(0: none yet), `seq` numbers the frames that must not get lost (0: a mere sign of life), `ack` is the last one of the
other side that was taken in; an engine's results count as taken in only when the journal has them.

    engine to driver   Hello, Output, Report, Bye
    driver to engine   Welcome, Start, Kill, Leave, Dismiss, Kept
    engine to cylinder Prepare, Work, Stop (and Finished back)

Those that come by the thousand are kept from the garbage collector (gc=False): they never refer to each other in a ring.
"""

from __future__ import annotations

from math import inf
from typing import Generic, TypeAlias, TypeVar

import msgspec

from pilothouse.model.task_request import TaskRequest

VERSION = 2
"""Raised with every change that an older peer would misread; a frame of another version is refused with a warning."""
LINGER_S = 0.05
"""How long a slot waits for the output of commands that a task left in the background."""

MOST_FRAME_BYTES = 64 * 2**20

OUT_OF_MEMORY = "out of memory"
"""The reasons of tasks that were ended for it begin with this."""
LOST_CODE = -100
"""The return code of a task whose engine was lost with it (as in disBatch)."""

FINISH = "finish"
"""As the reason of Kill and Stop: the running task may end, and no other of the assignment is begun."""
CYLINDER_KILLED = "the process that ran it was killed"
"""The reason of a task that was lost with its cylinder."""
RESEND_S = 2.0
MOST_RESENT = 64
"""Frames repeated at once; the rest follows when these are acknowledged."""


class Task(msgspec.Struct, array_like=True, gc=False):
    """One task to run. Exactly one of `line` (shell only if it needs one) and `argv`; bytes, as files may hold any."""

    task_id: int
    line_number: int = 0
    repeat_index: int = -1
    attempt: int = 1
    line: bytes = b""
    argv: tuple[bytes, ...] = ()
    request: TaskRequest | None = None
    """What it asks for, if not what the run's options say; kept with it in the journal."""


class TaskEnvironment(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How the tasks of an assignment are run; file names may hold the placeholders of `Placeholders`."""

    walltime: float = inf
    cwd: str = ""
    stdin: str = ""
    stdout: str = ""
    """"" : counted and cut to a snippet. A file name: written there."""
    stderr: str = ""
    env: dict[str, str] = {}
    bind: bool = False
    """CPU affinity to the cores of its units."""
    memory_mb: int = 0
    """The most memory that a task may use; 0: no limit."""
    keep: int = 0
    """The most bytes that are kept of what a task writes to stdout and stderr, where they go to no file."""


class Assignment(msgspec.Struct, array_like=True, gc=False):
    """What one decision gave to one engine: tasks that run one after another on these units of its node."""

    id: int
    slots: tuple[int, ...]
    """Indices of the engine's slots; the first one's cylinder runs it."""
    tasks: list[Task]
    environment: TaskEnvironment = TaskEnvironment()
    gpus: tuple[str, ...] = ()
    nodes: str = ""
    """All nodes and slot counts of a job that spans several: `a:4,b:2`."""
    cut_after: float = inf
    """A bundle that takes longer than this many seconds returns the tasks that it has not begun."""


class Result(msgspec.Struct, array_like=True, gc=False):
    """The end of one attempt of one task."""

    task_id: int
    attempt: int
    return_code: int
    pid: int
    started_at: float
    ended_at: float
    out_bytes: int = 0
    out_snippet: bytes = b""
    err_bytes: int = 0
    err_snippet: bytes = b""
    reason: str = ""
    """"" (it ended by itself), "walltime", "killed", "lost", OUT_OF_MEMORY and more, or why it could not be started."""
    cpu_s: float = 0.0
    memory_kb: int = 0
    """The most that one of its processes used, or all together where that was watched."""
    last_line: bytes = b""
    """The last line of its stderr, if it failed."""
    output: int = 0
    """Where its output is in its engine's pack; 0: it wrote nothing, or nothing is kept."""
    left_out: int = 0
    """How many bytes of it are not in the pack, though output is kept."""


class Hello(msgspec.Struct, tag="hello"):
    """An engine joins, or finds a driver of a later incarnation: everything that a driver must know about it."""

    context: str
    node: str
    slots: int
    pid: int
    started_at: float
    cores: int = 0
    gpus: tuple[str, ...] = ()
    memory_mb: int = 0
    properties: dict[str, str] = {}
    ends_at: float = inf
    """When its allocation ends (seconds since 1970)."""
    held: tuple[int, ...] = ()
    """Assignments that it has and has not finished."""
    leased: bool = False
    """It was started by the run's driver for slots that one engine has at a time; the driver knows by its key which."""
    leaving: bool = False
    """A former incarnation of the driver had asked it to leave."""


class Finished(msgspec.Struct, array_like=True, gc=False):
    """News of one assignment: tasks that ended, and if `closed`, those given back unbegun."""

    assignment: int
    results: list[Result]
    closed: bool = False
    returned: tuple[int, ...] = ()
    forgotten: bool = False
    """The engine had it once, and has no results of it."""


class Report(msgspec.Struct, tag="report", gc=False):
    finished: list[Finished]
    per_engine: list[Result] = []
    """Ends of per-engine commands; a negative task id -1-i is STOP command i."""


class Output(msgspec.Struct, tag="output", gc=False):
    """Bytes of the pack of an engine that does not see the run's folder. Results of the tasks that wrote them come later."""

    at: int
    data: bytes


class Bye(msgspec.Struct, tag="bye"):
    """The engine has left. `died`: its warden reports; it has ended what the engine held and is not reported."""

    reason: str = ""
    died: bool = False
    begun: tuple[int, ...] = ()
    """With `died`: tasks that had been begun and were ended; the rest of what it held was never begun."""


class Welcome(msgspec.Struct, tag="welcome"):
    rank: int
    env: dict[str, str]
    """Put over the engine's own environment for every task."""
    task_env: str
    """A template of NAME=value pairs joined by NUL; see `Placeholders`."""
    heartbeat_s: float
    wait_for_driver_s: float
    grace_s: float
    first_unit: int
    assignments: tuple[int, ...] = ()
    """Those that the driver knows it to have. Others were given by a driver whose records were lost: they must be ended. It
    closes those that it had once and has no results of."""
    on_join: list[Task] = []
    """Per-engine START commands: done in order before any assignment is begun."""
    on_leave: list[Task] = []
    """Per-engine STOP commands: done in order after the last assignment."""
    linger_s: float = LINGER_S
    kept: int = 0
    """How much of its pack the run's folder has, if it sends it."""


class Commands(msgspec.Struct, tag="commands"):
    """All per-engine START commands so far. New ones are done in order, before any assignment that comes later."""

    on_join: list[Task]


class Start(msgspec.Struct, tag="start", gc=False):
    assignments: list[Assignment]


class Kill(msgspec.Struct, tag="kill"):
    assignments: tuple[int, ...]
    reason: str = "killed"


class Leave(msgspec.Struct, tag="leave"):
    """Finish what you have, run the per-engine STOP tasks, then go."""

    reason: str = ""
    now: bool = False
    """End running tasks as well."""


class Dismiss(msgspec.Struct, tag="dismiss"):
    """The engine was given up: it must end all tasks that it holds, and may join again under a new id."""

    reason: str = ""
    over: bool = False
    """The run is over: no engine can join any more."""


class Kept(msgspec.Struct, tag="kept"):
    """To a warden that sends the rest of a pack: how much of it the run's folder has."""

    size: int


FromEngine: TypeAlias = Hello | Report | Bye | Output
FromDriver: TypeAlias = Welcome | Commands | Start | Kill | Leave | Dismiss | Kept


class Prepare(msgspec.Struct, tag="prepare"):
    """What holds for all tasks from now on."""

    env: dict[str, str]
    task_env: str
    grace_s: float
    linger_s: float = LINGER_S


class Work(msgspec.Struct, tag="work"):
    assignment: Assignment
    env: dict[str, str]
    """What the assignment's place in the engine adds."""
    cores: tuple[int, ...] = ()
    """Cores to bind to; none: wherever the engine may run."""


class Stop(msgspec.Struct, tag="stop"):
    """End the running task (TERM, then KILL), and begin no other of this assignment."""

    assignment: int
    reason: str
    at_once: bool = False


ToCylinder: TypeAlias = Prepare | Work | Stop


class EngineFrame(msgspec.Struct, array_like=True, gc=False):
    version: int
    engine: str
    session: int
    seq: int
    ack: int
    bodies: list[FromEngine]


class DriverFrame(msgspec.Struct, array_like=True, gc=False):
    version: int
    engine: str
    session: int
    seq: int
    ack: int
    bodies: list[FromDriver]


encode = msgspec.msgpack.Encoder().encode
decode_from_engine = msgspec.msgpack.Decoder(EngineFrame).decode
decode_from_driver = msgspec.msgpack.Decoder(DriverFrame).decode


def read_engine_frame(message: bytes) -> EngineFrame | str:
    """A frame from the network, or why it is dropped."""
    if len(message) > MOST_FRAME_BYTES:
        return f"dropped a message of {len(message):,} bytes (more than {MOST_FRAME_BYTES:,})"
    try:
        frame = decode_from_engine(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"dropped a malformed message from an engine: {error}"
    if frame.version != VERSION:
        return f"an engine uses version {frame.version} of the protocol, this driver {VERSION}: it cannot join"
    return frame


Body = TypeVar("Body")


class Channel(Generic[Body]):
    """One end of a reliable channel: no frame is lost, repeated or reordered, whatever the transport does.

    The owner sends what `outgoing` returns and shows `take` what arrives. The receiver takes frames in sequence only, the
    sender repeats what is not acknowledged in time. A channel lives as long as one pair of driver incarnation and engine;
    what must survive longer is kept by its owner and sent again (see Hello).
    """

    __slots__ = ("_pending", "_resend_at", "_unacked", "next_seq", "received")  # a driver may have ten thousand

    def __init__(self) -> None:
        self.received = 0
        """The last frame of the other side that was taken in: what we acknowledge."""
        self.next_seq = 1
        self._pending: list[Body] = []
        self._unacked: list[tuple[int, list[Body]]] = []
        self._resend_at = 0.0

    def push(self, body: Body) -> None:
        """Will go out with the next frame."""
        self._pending.append(body)

    @property
    def idle(self) -> bool:
        """Everything that was pushed has been acknowledged."""
        return not self._pending and not self._unacked

    def outgoing(self, now: float) -> list[tuple[int, list[Body]]]:
        """Frames (number, bodies) to send now: what is new, and what must be repeated."""
        frames: list[tuple[int, list[Body]]] = []
        if self._unacked and now >= self._resend_at:
            frames = self._unacked[:MOST_RESENT]
            self._resend_at = now + RESEND_S
        if self._pending:
            frame = (self.next_seq, self._pending)
            self.next_seq += 1
            self._pending = []
            if not self._unacked:
                self._resend_at = now + RESEND_S
            self._unacked.append(frame)
            frames.append(frame)
        return frames

    def take(self, seq: int, ack: int, now: float) -> bool:
        """Notes a frame that arrived; whether its bodies are news and in order (0 is a sign of life: never)."""
        unacked = self._unacked
        if unacked and unacked[0][0] <= ack:
            acked = 1
            while acked < len(unacked) and unacked[acked][0] <= ack:
                acked += 1
            del unacked[:acked]
            self._resend_at = now + RESEND_S
        if seq != self.received + 1:
            return False
        self.received = seq
        return True
