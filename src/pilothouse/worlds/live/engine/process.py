"""The engine as processes: a warden, the engine itself, and its cylinders.

    python -m pilothouse.worlds.live.engine.process

The configuration (EngineConfig) is read from standard input.

The warden is the process that a context starts: it forks the engine, then each cylinder when the first work for it is there,
and adopts all orphans. It stays small, so that it can fork another cylinder for one that was killed. When the engine dies, the
warden ends what is left and reports to the driver which tasks had ended, which were cut off and which never began.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import msgspec

from pilothouse.worlds.live.engine.cylinder import FORK_AGAIN_S, Cylinder, Inbox, decode_finished, framed
from pilothouse.worlds.live.engine.engine import Engine, EngineState
from pilothouse.worlds.live.engine.instructions import Go, Renamed, TellCylinder
from pilothouse.worlds.live.engine.memory import memory_of_node_mb
from pilothouse.worlds.live.engine.output import PackTail, PackWriter
from pilothouse.worlds.live.engine.shipping import PIECE_BYTES
from pilothouse.worlds.live.engine.spool import Spool, read_spool
from pilothouse.worlds.live.engine.task_processes import (
    adopt_orphans,
    die_with_parent,
    end_children,
    end_orphans,
    hear_children,
    mark_of,
    mark_tasks,
)
from pilothouse.worlds.live.wire import messages as m
from pilothouse.worlds.live.wire.sockets import EngineConfig, read_config

if TYPE_CHECKING:
    from pilothouse.worlds.live.wire.sockets import EngineSocket

REPORT_S = 10.0
"""How long a warden tries to reach the driver, unless it knows how long its engine would have waited for one."""
_MOST_WAIT_S = 1.0
FIRST_PATIENCE_S = 2.0
MOST_PATIENCE_S = 20.0
"""How long an engine tries an address of the driver: longer each time, as a driver on a busy host may be slow to answer."""


def main() -> None:
    """The program of an engine."""
    config = _dealt(read_config(sys.stdin.buffer))
    _settle(config)
    end_orphans()
    adopt_orphans()
    status = Warden(config).run()
    sys.stderr.flush()
    os._exit(1 if status else 0)  # the driver waits for our end


class Warden:
    """Forks the engine and the cylinders that it asks for, adopts all orphans, and replaces a cylinder that dies.

    A task that kills its cylinder (its parent) is ended, and the engine reports it as lost; the tasks of other cylinders
    go on. When the engine dies, all tasks end, and the driver is told what the spool says.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._identity = new_identity()
        self._spool = Spool(config.spool, self._identity, config.server_public)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._cylinders: dict[int, int] = {}
        """Index of each cylinder by its pid."""
        warden_pid = os.getpid()
        self._engine = fork()
        if self._engine == 0:
            self._control.close()
            die_with_parent(warden_pid)
            _run_engine(config, self._identity, self._spool, theirs)
        theirs.close()

    def run(self) -> int:
        """Waits for the engine's end; its wait status."""
        child_ended = hear_children()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: os.kill(self._engine, number))
        poll = select.poll()
        for fd in (child_ended, self._control.fileno()):
            poll.register(fd, select.POLLIN)
        while (status := self._take_ends()) is None:
            ready = [fd for fd, _ in poll.poll()]
            if child_ended in ready:
                os.read(child_ended, 512)
            if self._control.fileno() in ready:
                if asked := self._control.recv(4):
                    self._fork_cylinder(int.from_bytes(asked, "little"))
                else:
                    poll.unregister(self._control)  # the engine ends
        end_children()
        self._spool.release()
        if not status or self._report_death(status):
            self._spool.remove()
        return status

    def _take_ends(self) -> int | None:
        """Replaces cylinders that have ended. The engine's wait status if it has ended."""
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if not ended:
                return None
            if ended == self._engine:
                return status
            if ended in self._cylinders:
                index = self._cylinders.pop(ended)
                gone, status = os.waitpid(self._engine, os.WNOHANG)
                if gone:
                    return status
                # Cylinders adopt the orphans of their tasks: children that are neither a cylinder nor the engine were its.
                end_children((self._engine, *self._cylinders))
                self._fork_cylinder(index)

    def _fork_cylinder(self, index: int) -> None:
        """A new process for this cylinder. The engine gets its end of their socket."""
        ours, theirs = socket.socketpair()
        log = self._spool.new_log(index)
        mark = mark_of(os.getpid())
        pid = fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                mark_tasks(mark)
                ours.close()
                self._control.close()
                adopt_orphans()
                cylinder = Cylinder(theirs, log, PackWriter(self._spool.pack))
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    # Not SIG_IGN: tasks would inherit that, and a TERM could not end them.
                    signal.signal(number, cylinder.note_signal)
                cylinder.run()
            finally:
                os._exit(0)
        log.close()
        theirs.close()
        self._cylinders[pid] = index
        with contextlib.suppress(OSError):  # the engine is about to end
            socket.send_fds(self._control, [index.to_bytes(4, "little")], [ours.fileno()])
        ours.close()

    def _report_death(self, status: int) -> bool:
        """Whether the driver answered."""
        from pilothouse.worlds.live.wire.sockets import EngineSocket

        remains = read_spool(self._spool.folder)
        code = os.waitstatus_to_exitcode(status)
        reason = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
        bye = m.Bye(f"engine {reason}", True, tuple(sorted(remains.begun or ())))
        engine = remains.identity.engine
        message = m.encode(m.EngineFrame(m.VERSION, engine, 0, 0, 0, [m.Report(remains.finished), bye]))
        wire = EngineSocket(self._config, f"{engine}/warden")
        until = time.monotonic() + (remains.identity.wait_for_driver_s or REPORT_S)
        if not self._spool.shared:
            _ship_rest(wire, engine, PackTail(self._spool.pack), until)
        heard = False
        while not heard and time.monotonic() < until and self._spool.folder.exists():
            # A driver that found the spool itself has removed it.
            wire.send(message)
            heard = bool(wire.socket.poll(1000))
            if not heard:
                wire.try_next_address()
        wire.close()
        return heard


def fork() -> int:
    """os.fork, tried again where the system has no process or memory left for it; OSError if that lasts."""
    for pause_s in FORK_AGAIN_S:
        try:
            return os.fork()
        except OSError as error:
            print(f"cannot fork: {error.strerror}; trying again after {pause_s:g} s", file=sys.stderr, flush=True)
            time.sleep(pause_s)
    return os.fork()


def _ship_rest(wire: EngineSocket, engine: str, pack: PackTail, until: float) -> None:
    """Sends what the driver does not have of the pack of a dead engine, piece by piece, each with an answer."""
    piece, size = m.Output(0, b""), pack.size()
    while time.monotonic() < until:
        wire.send(m.encode(m.EngineFrame(m.VERSION, engine, 0, 0, 0, [piece])))
        if not wire.socket.poll(1000):
            wire.try_next_address()
            continue
        for message in wire.receive():
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # it is asked for again
                for body in m.decode_from_driver(message).bodies:
                    if type(body) is m.Dismiss or (type(body) is m.Kept and body.size >= size):
                        return
                    if type(body) is m.Kept:
                        piece = m.Output(body.size, pack.read(body.size, PIECE_BYTES))


def _dealt(config: EngineConfig) -> EngineConfig:
    """Gives the values of `deal` to slots; slots without a value are left out."""
    slots, slot_env = config.slots, dict(config.slot_env)
    for name in config.deal:
        if values := tuple(os.environ.get(name, "").split(",")) if os.environ.get(name) else ():
            slots = min(slots, len(values))
            slot_env[name] = values
    return msgspec.structs.replace(config, slots=slots, slot_env=slot_env)


def new_identity() -> str:
    return os.urandom(8).hex()


def _settle(config: EngineConfig) -> None:
    """Standard descriptors and folder: an engine outlives the terminal and the driver that started it."""
    null = os.open(os.devnull, os.O_RDWR)
    log = null
    if config.log:
        with contextlib.suppress(OSError):  # the folder need not be there on another host
            log = os.open(config.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if config.cwd:
        with contextlib.suppress(OSError):
            os.chdir(config.cwd)


def _run_engine(config: EngineConfig, identity: str, spool: Spool, control: socket.socket) -> NoReturn:
    """Runs the engine's loop; never returns."""
    try:
        EngineShell(config, identity, spool, control).run()
    finally:
        sys.stderr.flush()
    os._exit(0)


class CylinderLink:
    """The engine's end of the socket to one cylinder process. A process that does not read (it is stopped) delays nobody."""

    def __init__(self, link: socket.socket, process: int) -> None:
        link.setblocking(False)
        self.fd = link.fileno()
        self.process = process
        """How many processes of this cylinder there were before."""
        self._link = link
        self._inbox = Inbox(link)
        self._unsent = b""

    def send(self, message: m.ToCylinder) -> bool:
        """Whether all was sent; otherwise `flush` goes on with it."""
        self._unsent += framed(message)
        return self.flush()

    def flush(self) -> bool:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._link.send(self._unsent) :]
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):  # it is being replaced
            self._unsent = b""
        return True

    def receive(self) -> list[m.Finished] | None:
        """What came; None: it has ended."""
        messages = self._inbox.receive()
        return None if messages is None else [decode_finished(data) for data in messages]

    def close(self) -> list[m.Finished]:
        """What it had sent before it was killed."""
        last: list[m.Finished] = []
        with contextlib.suppress(BlockingIOError):
            while (messages := self.receive()) is not None:
                last += messages
        self._link.close()
        return last


class EngineShell:
    """Performs what the Engine says, and shows it what happens."""

    def __init__(self, config: EngineConfig, identity: str, spool: Spool, control: socket.socket) -> None:
        import zmq

        from pilothouse.worlds.live.wire.sockets import EngineSocket

        self._cylinders: dict[int, CylinderLink] = {}
        self._early: dict[int, list[m.ToCylinder]] = {}
        """Messages for cylinders that there are not yet."""
        self._wanted: list[int] = []
        """Cylinders that the warden must fork, one after the other: it is asked for the first."""
        self._spool = spool
        self._wire = EngineSocket(config, identity)
        self._poller = zmq.Poller()
        self._readable, self._writable = zmq.POLLIN, zmq.POLLOUT
        self._poller.register(self._wire.socket, zmq.POLLIN)
        self._control = control
        self._poller.register(control.fileno(), zmq.POLLIN)
        self._by_fd: dict[int, int] = {}
        cores = tuple(sorted(os.sched_getaffinity(0)))
        hello = m.Hello(
            context=config.context, node=config.node or socket.gethostname(), slots=config.slots, pid=os.getpid(),
            started_at=time.time(), cores=len(cores), gpus=config.gpus, memory_mb=config.memory_mb or memory_of_node_mb(),
            properties={**config.properties, "key": config.key}, ends_at=config.ends_at, leased=config.leased,
        )  # fmt: skip
        self.engine = Engine(
            identity, hello, time.monotonic(), cores=cores, slot_env=config.slot_env, new_identity=new_identity,
            pack=None if spool.shared else PackTail(spool.pack),
        )  # fmt: skip
        self._identified: tuple[str, float] = ("", 0.0)
        self._going = False
        self._tried_at = time.monotonic()
        self._patience_s = FIRST_PATIENCE_S
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_signal(self, number: int, _frame: object) -> None:
        """The owner of the node ends us; the warden reports what was cut off."""
        os._exit(128 + number)

    def run(self) -> None:
        engine, poller = self.engine, self._poller
        engine.tick(time.monotonic())
        self._perform()
        while not self._going:
            wait_s = min(_MOST_WAIT_S, max(0.0, engine.wakes_at() - time.monotonic()))
            ready = poller.poll(int(wait_s * 1000) + 1)
            now = time.monotonic()
            for source, events in ready:
                if source == self._control.fileno():
                    self._take_cylinder(now)
                elif isinstance(source, int):
                    if source in self._by_fd:  # it may have been replaced in this round
                        self._hear_cylinder(self._by_fd[source], events, now)
                else:
                    for message in self._wire.receive():
                        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # the driver sends it again
                            engine.hear(m.decode_from_driver(message), now)
            engine.tick(now)
            if engine.state is EngineState.SEEKING and now - self._tried_at > self._patience_s:
                self._tried_at = now
                self._patience_s = min(1.5 * self._patience_s, MOST_PATIENCE_S)
                self._replace_socket(self._wire.try_next_address)
            self._perform()
        self._wire.close()

    def _hear_cylinder(self, index: int, events: int, now: float) -> None:
        link = self._cylinders[index]
        if events & self._writable and link.flush():
            self._poller.register(link.fd, self._readable)
        if events & ~self._writable:
            reports = link.receive()
            if reports is None:
                # The warden ends its task and sends the socket of another cylinder.
                self._poller.unregister(link.fd)
            for finished in reports or ():
                self.engine.report(index, finished, now)

    def _take_cylinder(self, now: float) -> None:
        """The first process of a cylinder, or another for one that was killed. All that that one had started has been ended, and
        its log says what it had done."""
        message, fds, _, _ = socket.recv_fds(self._control, 4, 1)
        if not fds:
            os._exit(70)  # the warden is gone
        index = int.from_bytes(message, "little")
        old = self._cylinders.get(index)
        link = self._cylinders[index] = CylinderLink(socket.socket(fileno=fds[0]), 0 if old is None else old.process + 1)
        if old is None:
            self._wanted.remove(index)
            self._ask_for_cylinder()
        else:
            with contextlib.suppress(KeyError):
                self._poller.unregister(old.fd)
            del self._by_fd[old.fd]
            for finished in old.close():
                self.engine.report(index, finished, now)
        self._by_fd[link.fd] = index
        self._poller.register(link.fd, self._readable)
        for early in self._early.pop(index, ()):
            self._tell(index, early)
        if old is not None:
            content = self._spool.log_of(index, old.process)
            self.engine.cylinder_died(index, content.assignment, content.last_results, content.running, now)

    def _ask_for_cylinder(self) -> None:
        if self._wanted:
            self._control.send(self._wanted[0].to_bytes(4, "little"))

    def _tell(self, index: int, message: m.ToCylinder) -> None:
        """Cylinders are forked when there is work for them: an engine whose driver is gone forks nothing."""
        link = self._cylinders.get(index)
        if link is None:
            self._early.setdefault(index, []).append(message)
            if type(message) is m.Work and index not in self._wanted:
                self._wanted.append(index)
                if len(self._wanted) == 1:
                    self._ask_for_cylinder()
        elif not link.send(message):
            self._poller.register(link.fd, self._readable | self._writable)

    def _perform(self) -> None:
        engine = self.engine
        identity = (engine.id, engine.wait_for_driver_s)
        if identity != self._identified:
            self._spool.identify(*identity)
            self._identified = identity
        for instruction in engine.take(time.monotonic()):
            if type(instruction) is m.EngineFrame:
                self._wire.send(m.encode(instruction))
            elif type(instruction) is TellCylinder:
                self._tell(instruction.cylinder, instruction.message)
            elif type(instruction) is Renamed:
                self._replace_socket(partial(self._wire.rename, instruction.engine))
            elif type(instruction) is Go:
                self._going = True

    def _replace_socket(self, replace: Callable[[], bool]) -> None:
        self._poller.unregister(self._wire.socket)
        replace()
        self._poller.register(self._wire.socket)


if __name__ == "__main__":
    main()
