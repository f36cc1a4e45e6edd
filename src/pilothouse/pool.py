"""Pool: a concurrent.futures.Executor whose calls and commands run on the nodes of a live world.

    with Pool(slots=4) as pool:
        future = pool.submit(function, 1, 2)
        other = pool.submit("echo hello")

In: functions with arguments, which run in worker processes that are used again (call_server.py); or commands (a line for the
shell, or a list of words). Out: futures as in the standard library; `result()` of a command is a TaskResult. The world runs in a
thread.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pilothouse.access.files import own_folder
from pilothouse.core.contract import Decider
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.formats.task_request import memory_mb
from pilothouse.journal.store import Journal
from pilothouse.launch import naming
from pilothouse.model.errors import RunError
from pilothouse.model.job import Command, Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.model.task_request import shape_for
from pilothouse.policies.base import Policy
from pilothouse.worlds.live.contexts import Context, listening
from pilothouse.worlds.live.contexts.local import LocalContext
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import TaskEnded
from pilothouse.worlds.live.services.call_server import CallServer, PendingCall
from pilothouse.worlds.live.services.call_worker import SETTINGS, WorkerSettings, dumps, worker_command
from pilothouse.worlds.live.wire.sockets import Keys
from pilothouse.worlds.live.world import LiveWorld

Returned = TypeVar("Returned")
_ROOT = str(Path(__file__).resolve().parents[1])
_WORKER = "worker"
"""What the ids of jobs that run workers begin with."""


class RemoteTraceback(Exception):
    """The cause of an exception of a call: its traceback in the worker, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class TaskResult(msgspec.Struct, frozen=True):
    """How a command ended. True in a condition if it succeeded."""

    state: JobState
    return_code: int
    node: str
    started_at: float
    ended_at: float
    out_bytes: int
    out_snippet: bytes
    err_bytes: int
    err_snippet: bytes
    reason: str

    def __bool__(self) -> bool:
        return self.state is JobState.SUCCEEDED


class Pool(Executor):
    """Engines that run what is submitted: one on this host with `slots` slots (its cores), one on each of `ssh`
    (`["node1:8", ...]`), or those of `contexts`. `Pool.slurm()` takes the nodes of the Slurm allocation that it is called in,
    `Pool.here()` those of a job of any batch system.

    `policy` decides what runs where: a name as on the command line (`easy`, `easy:estimate=2x`, `file.py:Class`,
    `batsim:ENDPOINT`), a Policy of your own, or a decider that reaches a foreign scheduler.
    """

    def __init__(
        self,
        slots: int | None = None,
        *,
        ssh: Iterable[str] = (),
        contexts: Iterable[Context] | None = None,
        options: LiveOptions | None = None,
        policy: str | Policy | Decider = "fcfs",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if isinstance(policy, str):
            decider = naming.decider(policy)
        else:
            decider = PolicyDecider(policy) if isinstance(policy, Policy) else policy
        found = list(contexts) if contexts is not None else _contexts(slots, list(ssh))
        self._own_folder = folder is None
        self.folder = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="pilothouse-"))
        own_folder(self.folder)
        journal = Journal(self.folder)
        journal.put_notes(started=time.time(), decider=policy if isinstance(policy, str) else decider.name)
        self._world = LiveWorld(options or LiveOptions(), folder=self.folder, recorder=journal, contexts=found)
        self._world.on_task.append(self._ended)
        self._world.on_tick.append(self._look_at_commands)
        self._max_workers = sum(sum(getattr(context, "slots", {"": 1}).values()) for context in found)
        """As dask and others look for it."""
        self._commands: dict[str, tuple[PoolFuture, int]] = {}
        """Commands that have not ended, and their places among all that was submitted."""
        self._first_waiting = inf
        """The place of the first command that waits for a slot."""
        self._lock = threading.Lock()
        self._serial = 0
        self._closing = False
        self._workers_started = 0
        self._over = ""
        """Why the pool has ended; "": it goes on."""
        self._dumps = dumps()
        self._python = self._world.launch().python
        self._calls = CallServer(
            Keys.load_or_make(self.folder), listening(found), self._max_workers, self._start_worker,
            lambda: self._first_waiting, lambda: self._world.call(self._world.no_more),
            lambda why: self._world.call(lambda: self._world.stop(why)), self._world.options.most_losses,
        )  # fmt: skip
        session = Session(self._world, decider, name=policy if isinstance(policy, str) else "")
        self._thread = threading.Thread(target=self._run, args=(session,), name="pilothouse pool", daemon=True)
        self._thread.start()

    @property
    def slots(self) -> int:
        """Of all nodes that it was made with."""
        return self._max_workers

    @classmethod
    def slurm(cls, **named: Any) -> Pool:
        """On the nodes of the Slurm allocation that this program runs in; the arguments are those of `Pool`."""
        from pilothouse.worlds.live.contexts.slurm import SlurmContext

        return cls(contexts=[SlurmContext.of_environment(os.environ)], **named)

    @classmethod
    def here(cls, slots: int | None = None, **named: Any) -> Pool:
        """On the nodes of the batch job that this program runs in (Slurm, SGE, PBS, LSF, Flux); on this host, with `slots` slots,
        if there is none or `slots` is given."""
        from pilothouse.worlds.live.contexts.batch_systems import around

        found = around(os.environ) if slots is None else None
        return cls(slots, contexts=[found.context(os.environ)] if found is not None else None, **named)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A function with its arguments, or a command: one line of text for the shell, or a list of words.

        With a command, the keywords are those of `command`.
        """
        if isinstance(fn, str) or (isinstance(fn, Sequence) and not callable(fn)):
            return self.command(fn, *args, **kwargs)
        data = self._pickled(fn, args, kwargs)
        future: Future[Any] = Future()
        with self._lock:
            serial = self._next_serial()
        call = PendingCall(
            serial, serial, data, future.set_running_or_notify_cancel,
            lambda answer, trace: _settle(future, answer, trace),
            lambda reason: _fail(future, RunError(f"the call gave no answer: {reason}")), future.cancel,
        )  # fmt: skip
        self._calls.submit(call)
        return future

    def command(
        self,
        line: str | Sequence[str],
        *,
        units: int = 1,
        mem: str | int = 0,
        gpus: int = 0,
        nodes: int = 1,
        walltime: float = inf,
        after: Iterable[Future[Any]] = (),
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        stdin: str = "",
        stdout: str = "",
        stderr: str = "",
    ) -> Future[TaskResult]:
        """A command; `after` names futures of commands of this pool that must have succeeded first. `mem` is text such as "8G",
        or megabytes; the command is ended if it uses more."""
        words = {"line": line} if isinstance(line, str) else {"argv": tuple(line)}
        memory = memory_mb(mem, "mem") if isinstance(mem, str) else mem
        command = Command(
            **words, env=dict(env or {}), cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, memory_mb=memory
        )  # fmt: skip
        names = tuple(future.job_id for future in after)  # type: ignore[attr-defined]
        return self._submit(command, units, walltime, names, shape_for(units, nodes, gpus, memory))

    def map(
        self,
        fn: Callable[..., Returned],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Returned]:
        """As that of concurrent.futures: results in order, as soon as they are there. `chunksize` calls are sent together."""
        calls = list(zip(*iterables, strict=False))
        chunks = [calls[at : at + chunksize] for at in range(0, len(calls), max(1, chunksize))]
        futures = deque(self.submit(_call_all, fn, chunk) for chunk in chunks)

        def results() -> Iterator[Returned]:
            try:
                while futures:
                    yield from _results(futures.popleft().result(timeout))
            finally:
                for future in futures:
                    future.cancel()

        return results()

    def stream(
        self, fn: Callable[..., Returned], *iterables: Iterable[Any], chunksize: int = 1, ahead: int = 0
    ) -> Iterator[Returned]:
        """Results in the order in which they come. Arguments are taken from the iterables while it goes on: at most `ahead`
        chunks are under way (0: four for each slot), so that they may be without end."""
        calls = zip(*iterables, strict=False)
        most = ahead or 4 * max(1, self._max_workers)
        under_way: set[Future[Any]] = set()
        try:
            while True:
                while len(under_way) < most and (chunk := list(islice(calls, max(1, chunksize)))):
                    under_way.add(self.submit(_call_all, fn, chunk))
                if not under_way:
                    return
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from _results(future.result())
        finally:
            for future in under_way:
                future.cancel()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._closing = True
        if cancel_futures:
            for future, _ in list(self._commands.values()):
                future.cancel()
            self._calls.cancel_pending()
        self._calls.close()
        if wait:
            self._thread.join()

    def _next_serial(self) -> int:
        """Called with the lock."""
        if self._closing:
            raise RuntimeError("cannot submit after shutdown")
        if self._over:
            raise RunError(self._over)
        self._serial += 1
        return self._serial

    def _pickled(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> bytes:
        if self._dumps is pickle.dumps and getattr(function, "__module__", "") == "__main__":
            raise RunError("functions of a script or notebook need cloudpickle: pip install 'pilothouse[pool]'")
        return self._dumps((function, arguments, named))

    def _start_worker(self) -> None:
        """Submits a task that runs a worker. Called with the call server's lock."""
        settings = WorkerSettings(self._calls.credentials, [path or os.getcwd() for path in sys.path])
        env = {SETTINGS: msgspec.json.encode(settings).decode()}
        self._workers_started += 1
        command = Command(argv=worker_command(self._python, _ROOT), env=env)
        job = Job(f"{_WORKER}{self._workers_started}", 1, inf, self._world.now(), command=command)
        self._world.call(lambda: self._world.submit(job))

    def _submit(
        self, command: Command, units: int, walltime: float, after: tuple[str, ...], shape: Shape | None
    ) -> Future[Any]:
        with self._lock:
            serial = self._next_serial()
            job = Job(f"p{serial}", units, walltime, self._world.now(), after=after, command=command, shape=shape)
            future = PoolFuture(job.id, self._cancel)
            self._commands[job.id] = (future, serial)
            self._first_waiting = min(self._first_waiting, serial)
        self._world.call(lambda: self._world.submit(job))
        return future

    def _cancel(self, job_id: str) -> None:
        self._world.call(lambda: self._world.cancel(job_id))

    def _look_at_commands(self) -> None:
        """In the world's thread: which command waits for a slot?"""
        with self._lock:
            waiting = [serial for job_id, (_, serial) in self._commands.items() if not self._world.units_of(job_id)]
            self._first_waiting = min(waiting, default=inf)

    def _ended(self, end: TaskEnded) -> None:
        """In the world's thread: an attempt has ended."""
        if end.job_id.startswith(_WORKER):
            said = end.reason or end.err_snippet.decode("utf-8", "replace").strip()
            reason = f"its worker ended with code {end.return_code}{': ' if said else ''}{said}"
            again = end.state is JobState.LOST and self._world.options.reissue and not self._world.options.at_most_once
            self._calls.worker_ended(end.task_id, end.attempt, reason, again=again, final=end.final)
            return
        if not end.final or end.job_id not in self._commands:
            return
        with self._lock:
            future, _ = self._commands.pop(end.job_id)
        self._look_at_commands()
        if end.state is JobState.KILLED and future.cancelled():
            return
        if not future.running() and not future.set_running_or_notify_cancel():
            return
        future.set_result(TaskResult(*(getattr(end, name) for name in TaskResult.__struct_fields__)))

    def _run(self, session: Session) -> None:
        why = ""
        try:
            session.run()
        except BaseException as problem:
            why = str(problem) or type(problem).__name__
        with self._lock:
            self._over = f"the pool has ended: {why or self._world.stopped_because or 'it was shut down'}"
            left = [future for future, _ in self._commands.values()]
        self._calls.fail_all(self._over)
        for future in left:
            _fail(future, RunError(self._over))
        self._calls.join()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)


class PoolFuture(Future[Any]):
    """A future that can name its job, and whose cancel() reaches a task that runs."""

    def __init__(self, job_id: str, cancel: Callable[[str], None]) -> None:
        super().__init__()
        self.job_id = job_id
        self._cancel_job = cancel

    def cancel(self) -> bool:
        done = super().cancel()
        if done:
            self._cancel_job(self.job_id)
        return done


def _contexts(slots: int | None, ssh: list[str]) -> list[Context]:
    if not ssh:
        gpus = tuple(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))
        return [LocalContext(slots or len(os.sched_getaffinity(0)), gpus=gpus)]
    from pilothouse.worlds.live.contexts.ssh import SshContext, parse_hosts

    return [SshContext(parse_hosts(ssh))]


def _settle(future: Future[Any], answer: bytes, trace: str) -> None:
    try:
        found = pickle.loads(answer)
    except Exception as problem:
        _fail(future, RunError(f"the answer of the call cannot be read: {type(problem).__name__}: {problem}"))
        return
    if not trace:
        future.set_result(found)
    else:
        found.__cause__ = RemoteTraceback(trace)
        future.set_exception(found)


def _fail(future: Future[Any], problem: Exception) -> None:
    if not future.done() and (future.running() or future.set_running_or_notify_cancel()):
        future.set_exception(problem)


class _Failed(msgspec.Struct):
    """The call of a chunk that raised; those behind it were not made."""

    problem: Any
    trace: str


def _call_all(function: Callable[..., Returned], calls: list[tuple[Any, ...]]) -> list[Any]:
    """In a worker: a chunk of calls, up to the first that raises."""
    made: list[Any] = []
    for arguments in calls:
        try:
            made.append(function(*arguments))
        except Exception as problem:
            made.append(_Failed(problem, "".join(traceback.format_exception(problem))))
            break
    return made


def _results(made: list[Any]) -> Iterator[Any]:
    for result in made:
        if isinstance(result, _Failed):
            result.problem.__cause__ = RemoteTraceback(result.trace)
            raise result.problem
        yield result
