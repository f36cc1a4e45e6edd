"""The engine as processes: a warden, the engine itself, and its cylinders.

    python -m pilothouse.worlds.live.engine.process

The configuration (config.py) is read from standard input.

The warden is the process that a context starts: it forks the engine and adopts all orphans. When the engine dies, the
warden ends what is left and reports to the driver which tasks had ended, which were cut off and which never began. The
engine forks its cylinders before it opens any socket, so that they stay small.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from pilothouse.worlds.live.engine.config import EngineConfig, read_config
from pilothouse.worlds.live.engine.cylinder import Cylinder, Inbox, decode_finished, send
from pilothouse.worlds.live.engine.engine import Engine, EngineState, Go, Renamed, TellCylinder
from pilothouse.worlds.live.engine.spool import Spool
from pilothouse.worlds.live.wire import messages as m

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
WARDEN = "PILOTHOUSE_WARDEN"
"""In the environment of every task: the process that will end it if its engine dies."""
_MARK = f"\0{WARDEN}=".encode()
REPORT_S = 10.0
"""How long a warden tries to reach the driver."""
_MOST_WAIT_S = 1.0
FIRST_PATIENCE_S = 2.0
MOST_PATIENCE_S = 20.0
"""How long an engine tries an address of the driver: longer each time, as a driver on a busy host may be slow to answer."""


def main() -> None:
    """The warden."""
    config = _dealt(read_config(sys.stdin.buffer))
    _settle(config)
    identity = new_identity()
    spool = Spool(config.slots + 1)
    end_orphans()
    os.environ[WARDEN] = f"{os.getpid()}:{_started(os.getpid())}"
    _process_control(_PR_SET_CHILD_SUBREAPER, 1)
    warden_pid = os.getpid()
    engine_pid = os.fork()
    if engine_pid == 0:
        _die_with_parent(warden_pid)
        _run_engine(config, identity, spool)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: os.kill(engine_pid, number))
    status = _await(engine_pid)
    _end_everything()
    if status:
        _report_death(config, spool.name() or identity, spool, status)
    sys.exit(1 if status else 0)


def _dealt(config: EngineConfig) -> EngineConfig:
    """Gives the values of `deal` to slots; slots without a value are left out."""
    slots, slot_env = config.slots, dict(config.slot_env)
    for name in config.deal:
        if values := tuple(os.environ.get(name, "").split(",")) if os.environ.get(name) else ():
            slots = min(slots, len(values))
            slot_env[name] = values
    return msgspec.structs.replace(config, slots=slots, slot_env=slot_env)


def end_orphans() -> list[int]:
    """Ends tasks that were left because their engine and its warden were both killed. Their environment names the warden."""
    ended = []
    for pid in _all_pids():
        with contextlib.suppress(OSError, ValueError):
            if os.stat(f"/proc/{pid}").st_uid != os.getuid():
                continue  # not ours to end; and a process that is stuck may keep its readers waiting
            environment = Path("/proc", str(pid), "environ").read_bytes()
            if _MARK not in environment:
                continue
            name = environment.partition(_MARK)[2].partition(b"\0")[0].decode()
            warden, _, started = name.partition(":")
            if _started(int(warden)) != int(started):
                os.kill(pid, signal.SIGKILL)
                ended.append(pid)
    return ended


def _all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]


def _started(pid: int) -> int:
    """When a process began (clock ticks since boot), which tells it from a later one of the same number; 0: it is
    gone.
    """
    try:
        return int(Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


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


def _die_with_parent(parent: int) -> None:
    """Ends this process when its parent ends: without its warden an engine could leave orphans."""
    _process_control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(70)  # it had ended before the kernel knew that we end with it


def _process_control(option: int, value: int) -> None:
    """prctl(2), which Python does not have. Without it (not Linux) orphans are found less surely."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _await(pid: int) -> int:
    """Waits for the engine, reaping adopted processes meanwhile."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return status


def _end_everything() -> None:
    """Kills all that descends from here, also what moved to sessions of its own, until nothing is left."""
    while True:
        children = _children()
        if not children:
            return
        for pid in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.wait()


def _children() -> list[int]:
    """The pids whose parent is this process."""
    me = os.getpid()
    found = []
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            stat = Path("/proc", str(pid), "stat").read_bytes()
            if int(stat.rpartition(b")")[2].split()[1]) == me:
                found.append(pid)
    return found


def _report_death(config: EngineConfig, identity: str, spool: Spool, status: int) -> None:
    from pilothouse.worlds.live.wire.sockets import EngineSocket

    finished, begun = spool.unreported()
    code = os.waitstatus_to_exitcode(status)
    reason = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
    bodies: list[m.FromEngine] = [m.Report(finished), m.Bye(f"engine {reason}", True, tuple(sorted(begun)))]
    wire = EngineSocket(config, f"{identity}/warden")
    until = time.monotonic() + REPORT_S
    message = m.encode(m.EngineFrame(m.VERSION, identity, 0, 0, 0, bodies))
    while time.monotonic() < until:
        wire.send(message)
        if wire.socket.poll(1000):
            break
        wire.try_next_address()
    wire.close()


def _run_engine(config: EngineConfig, identity: str, spool: Spool) -> NoReturn:
    """Forks the cylinders, then runs the engine's loop; never returns."""
    links = [_fork_cylinder(spool, index, os.getpid()) for index in range(config.slots + 1)]
    try:
        EngineShell(config, identity, spool, links).run()
    finally:
        sys.stderr.flush()
        for link in links:
            link.close()
    os._exit(0)


def _fork_cylinder(spool: Spool, index: int, engine_pid: int) -> socket.socket:
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        try:
            ours.close()
            _die_with_parent(engine_pid)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                # Not SIG_IGN: tasks would inherit that, and a TERM could not end them.
                signal.signal(number, lambda _number, _frame: None)
            Cylinder(theirs, spool.cylinders[index]).run()
        finally:
            os._exit(0)
    theirs.close()
    return ours


class EngineShell:
    """Performs what the Engine says, and shows it what happens."""

    def __init__(self, config: EngineConfig, identity: str, spool: Spool, links: list[socket.socket]) -> None:
        import zmq

        from pilothouse.worlds.live.wire.sockets import EngineSocket

        self._links = links
        self._inboxes = [Inbox(link) for link in links]
        self._spool = spool
        self._spool.set_name(identity)
        self._wire = EngineSocket(config, identity)
        self._poller = zmq.Poller()
        self._poller.register(self._wire.socket, zmq.POLLIN)
        self._by_fd = {link.fileno(): index for index, link in enumerate(links)}
        for link in links:
            self._poller.register(link.fileno(), zmq.POLLIN)
        cores = tuple(sorted(os.sched_getaffinity(0)))
        hello = m.Hello(
            context=config.context, node=config.node or socket.gethostname(), slots=config.slots, pid=os.getpid(),
            started_at=time.time(), cores=len(cores), gpus=config.gpus, memory_mb=_memory_mb(),
            properties={**config.properties, "key": config.key}, ends_at=config.ends_at,
        )  # fmt: skip
        self.engine = Engine(
            identity, hello, time.monotonic(), cores=cores, slot_env=config.slot_env, new_identity=new_identity
        )
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
            for source, _ in ready:
                if isinstance(source, int):
                    self._hear_cylinder(self._by_fd[source], now)
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

    def _hear_cylinder(self, index: int, now: float) -> None:
        messages = self._inboxes[index].receive()
        if messages is None:
            # Its task, if it has one, is an orphan now. The warden ends and reports it.
            os._exit(70)
        for data in messages:
            self.engine.report(index, decode_finished(data), now)

    def _perform(self) -> None:
        instructions = self.engine.take(time.monotonic())
        if instructions:
            self._spool.engine.write([finished for _, finished in self.engine.unacked])
        for instruction in instructions:
            if type(instruction) is m.EngineFrame:
                self._wire.send(m.encode(instruction))
            elif type(instruction) is TellCylinder:
                send(self._links[instruction.cylinder], instruction.message)
            elif type(instruction) is Renamed:
                self._spool.set_name(instruction.engine)
                self._replace_socket(partial(self._wire.rename, instruction.engine))
            elif type(instruction) is Go:
                self._going = True

    def _replace_socket(self, replace: Callable[[], bool]) -> None:
        self._poller.unregister(self._wire.socket)
        replace()
        self._poller.register(self._wire.socket)


def _memory_mb() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError):
        return 0


if __name__ == "__main__":
    main()
