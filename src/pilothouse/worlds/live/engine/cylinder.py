"""A cylinder: a process that runs one task at a time, and all tasks of an assignment one after another.

In (from its engine, over a stream socket): Prepare, Work, Stop. Out: Finished, at the end of an assignment and at least
every FLUSH_S while results come in. There is one process per slot: the end of a task wakes only the process that starts
the next, and a task costs about 30 µs more than in a C loop that does nothing else (bench/tasks.py): tasks that end well
and write nothing run one after another in _spawn.c.

If the engine dies, its socket closes: the cylinder ends all that its tasks have started (it adopts their orphans) and
goes, and the warden reports to the driver. What goes wrong in a cylinder because of one task is the end of that task.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator
from functools import partial
from math import inf

import msgspec

from pilothouse.formats.output_pack import STDERR, STDOUT
from pilothouse.worlds.live.engine.memory import MemoryGuard, MemoryGuards
from pilothouse.worlds.live.engine.output import Capture, PackWriter
from pilothouse.worlds.live.engine.spool import Log
from pilothouse.worlds.live.engine.task_files import open_files
from pilothouse.worlds.live.engine.task_processes import (
    Begun,
    Fds,
    Launch,
    Launcher,
    Native,
    SpawnError,
    end_children,
    find_native,
    group_alive,
    has_pidfd,
    hear_children,
    reap,
    signal_group,
    spawn,
)
from pilothouse.worlds.live.wire import messages as m

FLUSH_S = 0.2
AT_ONCE = 32
"""How many tasks are prepared together, and given to the compiled loop."""
_LENGTH = struct.Struct("<I")
_MOST_POLL_MS = 3_600_000
_NOT_STARTED = 127

decode_finished = msgspec.msgpack.Decoder(m.Finished).decode
_decode_message = msgspec.msgpack.Decoder(m.ToCylinder).decode
_decode_results = msgspec.msgpack.Decoder(list[m.Result]).decode

FORK_AGAIN_S = (0.05, 0.2, 1.0, 2.0, 5.0, 10.0)
"""Pauses before a program is started again where the system had no process or memory for it."""


def framed(message: m.ToCylinder | m.Finished) -> bytes:
    data = m.encode(message)
    return _LENGTH.pack(len(data)) + data


def send(link: socket.socket, message: m.ToCylinder | m.Finished) -> None:
    link.sendall(framed(message))


class Inbox:
    """Whole messages out of a stream."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._buffer = b""

    def receive(self) -> list[bytes] | None:
        """Reads once (blocks if the socket does); None at the end of the stream."""
        try:
            chunk = self._link.recv(1 << 18)
        except ConnectionResetError:
            return None
        if not chunk:
            return None
        self._buffer += chunk
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if len(self._buffer) < _LENGTH.size + length:
                break
            messages.append(self._buffer[_LENGTH.size : _LENGTH.size + length])
            self._buffer = self._buffer[_LENGTH.size + length :]
        return messages


class EngineGone(Exception):
    """The engine has closed the socket."""


OWNERS_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
"""Those by which the owner of a node (a batch system at the end of its job) ends all processes there."""
SIGNALS_WITHIN_S = 0.2
"""How long the owner may take to send a signal to a task and to its cylinder."""
ENGINE_ENDS_S = 5.0
"""How long an engine may take to end after that."""


class Cylinder:
    """The loop of one cylinder process."""

    def __init__(self, link: socket.socket, log: Log, output: PackWriter, *, native: bool = True) -> None:
        self._link = link
        self._inbox = Inbox(link)
        self._log = log
        self._launcher = Launcher(os.environ.get("PATH", os.defpath))
        self._null = os.open(os.devnull, os.O_RDWR)
        self._output = output
        self._out = Capture(partial(output.add, STDOUT))
        self._err = Capture(partial(output.add, STDERR))
        self._home = os.getcwd()
        self._cwd = self._home
        self._all_cores = os.sched_getaffinity(0)
        self._bound = False
        self._prepare = m.Prepare({}, "", 10.0)
        self._env: list[bytes] = []
        self._env_key: tuple[object, ...] = ()
        self._todo: list[m.Work] = []
        self._stop: m.Stop | None = None
        self._early_stops: dict[int, m.Stop] = {}
        self._guards = MemoryGuards()
        self._assignment = 0
        self._tasks: list[m.Task] = []
        self._next = self._behind = 0
        """Index of the next task of the assignment, and how many wait behind the running one."""
        self._prepared: list[Launch] = []
        self._prepared_from = 0
        """How to start the next tasks, and the index of the first of them."""
        self._cut_at = inf
        self._cut = False
        self._signalled_at = -inf
        self._poll = select.poll()
        self._wakeup = -1 if has_pidfd() else hear_children()  # kernels before 5.3
        self._native = find_native() if native and self._wakeup < 0 else None
        for fd in (self._wakeup, link.fileno(), self._out.read_fd, self._err.read_fd):
            if fd >= 0:
                self._poll.register(fd, select.POLLIN)

    def note_signal(self, _number: int, _frame: object) -> None:
        """A handler of signals: they do not end a cylinder, which goes with its engine."""
        self._signalled_at = time.monotonic()

    def run(self) -> None:
        """Works until the engine goes."""
        gc.freeze()  # memory that came with the fork stays shared
        try:
            while True:
                while not self._todo:
                    self._hear()
                self._work(self._todo.pop(0))
        except (EngineGone, BrokenPipeError, ConnectionResetError):
            end_children()
            self._guards.close()

    def _hear(self) -> None:
        """Takes in messages of the engine; blocks until there is one."""
        messages = self._inbox.receive()
        if messages is None:
            raise EngineGone
        for data in messages:
            message = _decode_message(data)
            if type(message) is m.Work:
                self._todo.append(message)
            elif type(message) is m.Prepare:
                self._prepare = message
                self._launcher = Launcher(
                    message.env.get("PATH", os.environ.get("PATH", os.defpath)),
                    always_shell="BASH_ENV" in os.environ,
                )
                self._env_key = ()
            elif type(message) is m.Stop and message.assignment == self._assignment:
                if message.reason == m.FINISH:
                    self._cut_at = 0.0
                else:
                    self._stop = message
            elif type(message) is m.Stop and any(work.assignment.id == message.assignment for work in self._todo):
                # It came together with the work itself: a kill right after a start must not get lost.
                self._early_stops[message.assignment] = message

    def _work(self, work: m.Work) -> None:
        assignment = work.assignment
        self._assignment = assignment.id
        self._stop = self._early_stops.pop(assignment.id, None)
        self._cut = False
        self._log.begin(assignment.id)
        self._set_environment(work)
        results: list[m.Result] = []
        tasks = self._tasks = assignment.tasks
        self._prepared, self._prepared_from, index = [], 0, 0
        sent = time.monotonic()
        self._cut_at = sent + assignment.cut_after
        returned: tuple[int, ...] = ()
        while index < len(tasks):
            now = time.monotonic()
            if self._stop is not None or (index and (self._cut or now > self._cut_at)):
                returned = () if self._cut else tuple(other.task_id for other in tasks[index:])
                break
            if now - sent > FLUSH_S:
                self._log.flush()
                send(self._link, m.Finished(assignment.id, results))
                results, sent = [], now
            ended = self._run_tasks(index, assignment.environment, min(sent + FLUSH_S, self._cut_at))
            results += ended
            index += len(ended)
        self._log.flush()
        self._assignment = 0
        send(self._link, m.Finished(assignment.id, results, True, returned))
        reap()

    def _set_environment(self, work: m.Work) -> None:
        """Environment, folder and cores of an assignment; the environment is kept while nothing in it changes."""
        environment = work.assignment.environment
        if work.cores:
            with contextlib.suppress(OSError):  # the cores may have been taken from us
                os.sched_setaffinity(0, work.cores)
            self._bound = True
        elif self._bound:
            os.sched_setaffinity(0, self._all_cores)
            self._bound = False
        key = (work.env, environment.env)
        if key != self._env_key:
            merged = {**os.environ, **self._prepare.env, **work.env, **environment.env}
            self._env = [os.fsencode(f"{name}={value}") for name, value in merged.items()]
            self._env_key = key
        cwd = environment.cwd or self._home
        if cwd != self._cwd:
            try:
                os.chdir(cwd)
                self._cwd = cwd
            except (OSError, ValueError):
                self._cwd = ""  # every task of the assignment says so

    def _run_tasks(self, index: int, environment: m.TaskEnvironment, return_at: float) -> list[m.Result]:
        """Runs the task with this index; the compiled way goes on with those behind it until `return_at`, or until one needs a
        look. Returns their results; none if the disk was full."""
        opened: list[int] = []
        ended: list[m.Result] = []
        started_at = time.time()
        try:
            if not self._cwd:
                raise SpawnError(f"cannot enter {environment.cwd}")
            fds = (self._null, self._out.write_fd, self._err.write_fd)
            if alone := bool(environment.stdin or environment.stdout or environment.stderr or environment.memory_mb):
                fds = open_files(self._tasks[index], environment, self._cwd, fds, opened)
            launches = self._launches_from(index)
            guard = self._guards.guard(environment.memory_mb) if environment.memory_mb else None
            ended, begun = self._start(launches[:1] if alone else launches, fds, environment.walltime, guard, return_at)
            if begun is None:
                return ended
            index += len(ended)
            self._next, self._behind = index + 1, len(self._tasks) - index - 1
            self._output.begin(self._tasks[index].task_id, self._tasks[index].attempt, environment.keep)
            begun, reason = self._wait_for(begun, environment.walltime, guard)
        except EngineGone:
            raise
        except Exception as problem:
            # Whatever it is (a name with a NUL, a format that needs too much memory): this task cannot run, others can.
            reason = f"{problem.filename}: {problem.strerror}" if isinstance(problem, OSError) else str(problem)
            task = self._tasks[index]
            result = m.Result(task.task_id, task.attempt, _NOT_STARTED, 0, started_at, started_at, reason=reason)
        else:
            result = self._result(self._tasks[index], environment, begun, guard, reason)
        finally:
            for fd in opened:
                os.close(fd)
        self._log.ended(result)
        return [*ended, result]

    def _launches_from(self, index: int) -> list[Launch]:
        """How to start the task with this index, and some behind it."""
        at = index - self._prepared_from
        if at >= len(self._prepared):
            tasks = self._tasks[index : index + AT_ONCE]
            self._prepared, self._prepared_from, at = self._launcher.launches(tasks, self._prepare.task_env), index, 0
        return self._prepared[at:]

    def _start(
        self, launches: list[Launch], fds: Fds, walltime: float, guard: MemoryGuard | None, return_at: float
    ) -> tuple[list[m.Result], Begun | None]:
        """Starts tasks one after another: the results of those that ended without needing a look, and the one that needs it."""
        native = self._native
        if guard is not None:  # it must look before the end is written into the log, and the compiled loop writes by itself
            native, launches = None, [(*launches[0][:2], guard.argv(launches[0][2]), launches[0][3])]
        for pause_s in (*FORK_AGAIN_S, 0.0):
            ended, begun = self._start_once(native, launches, fds, walltime, return_at)
            if ended or begun is None or -begun.pid not in (errno.EAGAIN, errno.ENOMEM) or not pause_s:
                break
            time.sleep(pause_s)
        if begun is not None and begun.pid < 0:
            if not ended:
                raise SpawnError(f"{os.fsdecode(launches[0][2][0])}: {os.strerror(-begun.pid)}")
            begun = None  # it is the first of the next call
        return ended, begun

    def _start_once(
        self, native: Native | None, launches: list[Launch], fds: Fds, wait_s: float, return_at: float
    ) -> tuple[list[m.Result], Begun | None]:
        if native is None:
            task_id, _, argv, own = launches[0]
            self._log.running(task_id)
            started_at, started = time.time(), time.monotonic()
            return [], Begun(spawn(argv, [*self._env, *own], fds), -1, 0, 0, 0.0, 0, started_at, started)
        polled = (self._link.fileno(), self._out.read_fd, self._err.read_fd)
        last, log, env = self._tasks[-1].task_id, self._log, self._env
        made = native(launches, env, fds, polled, log.fd, log.pending, wait_s, self._cut_at, last, return_at)
        ended, begun, written, pending = made
        log.wrote(written, pending)
        results = _decode_results(ended)
        if begun is None and not results:
            log.flush()  # the disk is full
        return results, begun and Begun(*begun)

    def _wait_for(self, begun: Begun, walltime: float, guard: MemoryGuard | None) -> tuple[Begun, str]:
        """Waits for the end of a task. What is known about it then, and why it was ended."""
        if begun.status >= 0:
            if begun.ready:
                self._drain([self._out.read_fd, self._err.read_fd])
            return begun, ""
        with self._watch(begun.pid) as watched:
            status, reason, used = self._wait(begun.pid, begun.started + walltime, watched, guard)
        cpu_s, alive = used.ru_utime + used.ru_stime, group_alive(begun.pid)
        return begun._replace(status=status, survivors=alive, cpu_s=cpu_s, memory_kb=used.ru_maxrss), reason

    def _result(
        self, task: m.Task, environment: m.TaskEnvironment, begun: Begun, guard: MemoryGuard | None, reason: str
    ) -> m.Result:
        """The result of a task that has ended."""
        memory_kb = begun.memory_kb
        took_s = time.monotonic() - begun.started
        if guard is not None:
            memory_kb, exceeded = guard.finish(memory_kb)
            if exceeded:
                reason = f"{m.OUT_OF_MEMORY}: it used {memory_kb // 1024:,} MB and may use {environment.memory_mb:,} MB"
        code = os.waitstatus_to_exitcode(begun.status)
        if code and not reason and (-code in OWNERS_SIGNALS or code - 128 in OWNERS_SIGNALS):
            self._see_whether_engine_ends()
        if begun.survivors:
            if reason:
                signal_group(begun.pid, signal.SIGKILL)
            else:
                self._linger(begun.pid, begun.started + environment.walltime)
            # Bytes that survivors write from now on must not count for the next task.
            self._renew(self._out)
            self._renew(self._err)
        last_line = self._err.last_line() if code else b""
        out_bytes, out_snippet = self._out.take()
        err_bytes, err_snippet = self._err.take()
        output, left_out = self._output.end((out_bytes, err_bytes)) if out_bytes or err_bytes else (0, 0)
        return m.Result(
            task.task_id, task.attempt, code, begun.pid, begun.started_at, begun.started_at + took_s, out_bytes, out_snippet,
            err_bytes, err_snippet, reason, begun.cpu_s, memory_kb, last_line, output, left_out,
        )  # fmt: skip

    def _see_whether_engine_ends(self) -> None:
        """A task was ended by a signal that we did not send (or its shell says so: 128 + number). If the owner of the node ends
        the engine too, the task was cut off, and that is no end of its own: raises EngineGone.
        """
        link = select.poll()
        link.register(self._link.fileno(), select.POLLIN)
        ended_at = now = time.monotonic()
        while now < max(ended_at + SIGNALS_WITHIN_S, self._signalled_at + ENGINE_ENDS_S):
            if link.poll(int(SIGNALS_WITHIN_S * 1000)):
                self._hear()
            now = time.monotonic()

    @contextlib.contextmanager
    def _watch(self, pid: int) -> Iterator[int]:
        """A descriptor among those that are polled which becomes readable when the child ends."""
        if self._wakeup >= 0:
            yield self._wakeup
            return
        watched = os.pidfd_open(pid)
        self._poll.register(watched, select.POLLIN)
        try:
            yield watched
        finally:
            self._poll.unregister(watched)
            os.close(watched)

    def _wait(
        self, pid: int, deadline: float, watched: int, guard: MemoryGuard | None
    ) -> tuple[int, str, resource.struct_rusage]:
        """Waits for the task; ends it at its deadline, on a Stop, or when it uses too much memory. Returns the wait status, why
        it was ended, and what it used."""
        reason = ""
        terminated = False
        look_at = inf if guard is None else 0.0
        while True:
            until = min(deadline, look_at, self._output.flush_at, self._cut_at if self._behind else inf)
            timeout = None if until == inf else _milliseconds(until)
            ready = [fd for fd, _ in self._poll.poll(timeout)]
            if time.monotonic() >= self._output.flush_at:
                self._output.flush()
            if watched in ready:
                if watched == self._wakeup:
                    os.read(watched, 512)
                ended, status, used = os.wait4(pid, os.WNOHANG)
                if ended == pid:
                    # What was written between the poll and the end of the process is there by now.
                    self._drain([fd for fd, _ in self._poll.poll(0)])
                    return status, reason, used
            self._drain(ready)
            if self._link.fileno() in ready:
                try:
                    self._hear()
                except EngineGone:
                    signal_group(pid, signal.SIGKILL)
                    raise
            if self._stop is not None and not reason:
                reason, deadline = self._stop.reason, 0.0
                terminated = self._stop.at_once
            if self._behind and time.monotonic() >= self._cut_at:
                self._give_back()
            if guard is not None and time.monotonic() >= look_at:
                look_at = time.monotonic() + guard.pause_s
                if guard.look() and not reason:
                    reason, deadline, terminated = m.OUT_OF_MEMORY, 0.0, True
            if time.monotonic() >= deadline:
                reason = reason or "walltime"
                signal_group(pid, signal.SIGKILL if terminated else signal.SIGTERM)
                deadline = inf if terminated else time.monotonic() + self._prepare.grace_s
                terminated = True

    def _give_back(self) -> None:
        """A slow task holds up those behind it in its bundle: others may have them."""
        returned = tuple(task.task_id for task in self._tasks[self._next :])
        send(self._link, m.Finished(self._assignment, [], False, returned))
        self._behind = 0
        self._cut = True

    def _drain(self, ready: list[int]) -> None:
        """Takes what the task wrote."""
        for capture in (self._out, self._err):
            if capture.read_fd in ready:
                capture.drain()

    def _linger(self, pid: int, deadline: float) -> None:
        """What background commands write after the end of their shell belongs to the task as well. The slot is held until they
        have closed its stdout and stderr, or for `linger_s` each, as in disBatch.
        """
        streams = select.poll()
        streams.register(self._link.fileno(), select.POLLIN)
        waited_for = [self._out, self._err]
        for capture in waited_for:
            capture.close_write()
            streams.register(capture.read_fd, select.POLLIN)
        until = min(deadline, time.monotonic() + self._prepare.linger_s)
        while waited_for:
            wake = min(until, self._cut_at) if self._behind else until
            ready = [fd for fd, _ in streams.poll(None if wake == inf else _milliseconds(wake))]
            first = waited_for[0]
            for capture in list(waited_for):
                if capture.read_fd in ready and capture.drain():
                    streams.unregister(capture.read_fd)
                    waited_for.remove(capture)
            if self._link.fileno() in ready:
                try:
                    self._hear()
                except EngineGone:
                    signal_group(pid, signal.SIGKILL)
                    raise
            now = time.monotonic()
            if self._behind and now >= self._cut_at:
                self._give_back()
            if self._stop is not None or now >= deadline:
                signal_group(pid, signal.SIGKILL)
                return
            if waited_for and (now >= until or waited_for[0] is not first):
                if waited_for[0] is first:
                    streams.unregister(first.read_fd)
                    waited_for.remove(first)
                until = min(deadline, now + self._prepare.linger_s)

    def _renew(self, capture: Capture) -> None:
        self._poll.unregister(capture.read_fd)
        capture.replace()
        self._poll.register(capture.read_fd, select.POLLIN)


def _milliseconds(until: float) -> int:
    """How long to wait, at the most: a poll takes no more than a month, and is repeated anyway."""
    return max(0, min(_MOST_POLL_MS, int((until - time.monotonic()) * 1000) + 1))
