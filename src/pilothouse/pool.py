"""Pool: a concurrent.futures.Executor whose calls and commands run as tasks of a live world.

    with Pool(slots=4) as pool:
        future = pool.submit("echo hello")

In: commands (a line for the shell, or a list of words), or picklable functions with arguments, which run in a Python process
of their own. Out: futures as in the standard library; `result()` of a command is a TaskResult. The world runs in a thread.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pilothouse.access.files import own_folder
from pilothouse.core.contract import Decider
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.journal.store import Journal
from pilothouse.launch import naming
from pilothouse.model.errors import RunError
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import JobState
from pilothouse.policies.base import Policy
from pilothouse.worlds.live.contexts import Context
from pilothouse.worlds.live.contexts.local import LocalContext
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import TaskEnded
from pilothouse.worlds.live.world import LiveWorld

Returned = TypeVar("Returned")

_CALL = """
import os, pickle, sys
folder = sys.argv[1]
sys.path[:] = pickle.load(open(os.path.join(folder, "path"), "rb"))
try:
    function, arguments, named = pickle.load(open(os.path.join(folder, "call"), "rb"))
    answer = (True, function(*arguments, **named))
except BaseException as problem:
    answer = (False, problem)
with open(os.path.join(folder, "answer.new"), "wb") as stream:
    try:
        data = pickle.dumps(answer)
    except Exception as problem:
        data = pickle.dumps((False, RuntimeError("%s cannot be sent back: %s" % (type(answer[1]).__name__, problem))))
    stream.write(data)
os.rename(os.path.join(folder, "answer.new"), os.path.join(folder, "answer"))
"""


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
    """Engines that run what is submitted. Without contexts: one engine on this host, with `slots` slots (its cores).

    `policy` decides what runs where: a name as on the command line (`easy`, `easy:estimate=2x`, `file.py:Class`,
    `batsim:ENDPOINT`), a Policy of your own, or a decider that reaches a foreign scheduler.
    """

    def __init__(
        self,
        slots: int | None = None,
        *,
        contexts: Iterable[Context] | None = None,
        options: LiveOptions | None = None,
        policy: str | Policy | Decider = "fcfs",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if isinstance(policy, str):
            decider = naming.decider(policy)
        else:
            decider = PolicyDecider(policy) if isinstance(policy, Policy) else policy
        self._own_folder = folder is None
        self.folder = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="pilothouse-"))
        own_folder(self.folder)
        if contexts is None:
            contexts = [LocalContext(slots or len(os.sched_getaffinity(0)))]
        self._world = LiveWorld(
            options or LiveOptions(), folder=self.folder, recorder=Journal(self.folder), contexts=contexts
        )
        self._world.on_task.append(self._ended)
        self._futures: dict[str, tuple[Future[Any], Path | None]] = {}
        self._lock = threading.Lock()
        self._serial = 0
        self._closing = False
        self._problem: BaseException | None = None
        session = Session(self._world, decider, name=policy if isinstance(policy, str) else "")
        self._thread = threading.Thread(target=self._run, args=(session,), name="pilothouse pool", daemon=True)
        self._thread.start()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A function with its arguments, or a command: one line of text for the shell, or a list of words.

        With a command, the keywords are those of `command`.
        """
        if isinstance(fn, str) or (isinstance(fn, Sequence) and not callable(fn)):
            return self.command(fn, *args, **kwargs)
        folder = Path(tempfile.mkdtemp(prefix="call-", dir=self.folder))
        (folder / "call").write_bytes(pickle.dumps((fn, args, kwargs)))
        (folder / "path").write_bytes(pickle.dumps([path or os.getcwd() for path in sys.path]))
        argv = (sys.executable, "-c", _CALL, str(folder))
        return self._submit(Command(argv=argv), 1, inf, (), folder)

    def command(
        self,
        line: str | Sequence[str],
        *,
        units: int = 1,
        walltime: float = inf,
        after: Iterable[Future[Any]] = (),
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        stdin: str = "",
        stdout: str = "",
        stderr: str = "",
    ) -> Future[TaskResult]:
        """A command; `after` names futures of this pool that must have succeeded first."""
        words = {"line": line} if isinstance(line, str) else {"argv": tuple(line)}
        command = Command(**words, env=dict(env or {}), cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)
        names = tuple(future.job_id for future in after)  # type: ignore[attr-defined]
        return self._submit(command, units, walltime, names, None)

    def map(
        self,
        fn: Callable[..., Returned],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Returned]:
        """As that of concurrent.futures; `chunksize` calls share one process."""
        calls = list(zip(*iterables, strict=False))
        chunks = [calls[at : at + chunksize] for at in range(0, len(calls), max(1, chunksize))]
        futures = [self.submit(_call_all, fn, chunk) for chunk in chunks]
        return (result for future in futures for result in future.result(timeout))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._closing = True
        if cancel_futures:
            for future, _ in list(self._futures.values()):
                future.cancel()
        self._world.call(self._world.no_more)
        if wait:
            self._thread.join()
            if self._own_folder:
                shutil.rmtree(self.folder, ignore_errors=True)

    def _submit(
        self, command: Command, units: int, walltime: float, after: tuple[str, ...], folder: Path | None
    ) -> Future[Any]:
        with self._lock:
            if self._closing:
                raise RuntimeError("cannot submit after shutdown")
            if self._problem is not None:
                raise RunError(f"the pool has ended: {self._problem}")
            self._serial += 1
            job = Job(f"p{self._serial}", units, walltime, after=after, command=command)
            future = PoolFuture(job.id, self._cancel)
            self._futures[job.id] = (future, folder)
        self._world.call(lambda: self._world.submit(job))
        return future

    def _cancel(self, job_id: str) -> None:
        self._world.call(lambda: self._world.cancel(job_id))

    def _ended(self, end: TaskEnded) -> None:
        """In the world's thread: an attempt has ended."""
        if not end.final or end.job_id not in self._futures:
            return
        future, folder = self._futures.pop(end.job_id)
        result = TaskResult(*(getattr(end, name) for name in TaskResult.__struct_fields__))
        if end.state is JobState.KILLED and future.cancelled():
            return
        if not future.running() and not future.set_running_or_notify_cancel():
            return
        if folder is None:
            future.set_result(result)
        else:
            _settle_call(future, folder, result)

    def _run(self, session: Session) -> None:
        try:
            session.run()
        except BaseException as problem:
            self._problem = problem
        for future, _ in list(self._futures.values()):
            if not future.done():
                future.set_exception(RunError(f"the pool has ended: {self._problem or 'it was shut down'}"))


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


def _settle_call(future: Future[Any], folder: Path, result: TaskResult) -> None:
    """The answer of a function that ran in a process of its own."""
    try:
        good, answer = pickle.loads((folder / "answer").read_bytes())
    except (OSError, pickle.PickleError, EOFError, AttributeError, ImportError) as problem:
        why = result.reason or result.err_snippet.decode("utf-8", "replace") or str(problem)
        future.set_exception(RunError(f"the call gave no answer (exit code {result.return_code}): {why}"))
        return
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if good:
        future.set_result(answer)
    else:
        future.set_exception(answer)


def _call_all(function: Callable[..., Returned], calls: list[tuple[Any, ...]]) -> list[Returned]:
    return [function(*arguments) for arguments in calls]
