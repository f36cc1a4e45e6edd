"""DisBatcher: a disBatch run from inside a Python program, with the methods that disBatch's own class has.

    with DisBatcher("mine", ["-s", "localhost:4"]) as batcher:
        first = batcher.submit("myprog 1")
        second = batcher.submit("myprog 2")
        for result in batcher.syncTasks([first, second]).values():
            print(result["ReturnCode"])

A task starts when it is submitted, not when the next one is. `submit` returns the id of its first task (None for a line
without tasks), where disBatch leaves the counting to the caller.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pilothouse.access.peer import Peer, Whose, addresses_of
from pilothouse.formats.hostlist import parse as parse_hostlist
from pilothouse.formats.task_file import TaskReader
from pilothouse.model.errors import PeerError
from pilothouse.worlds.live.contexts.layout import only_here
from pilothouse.worlds.live.services.kvs_client import KvsClient
from pilothouse.worlds.live.services.kvs_server import KvsServer, only_us

_PROGRAM = "import sys; sys.path.append({!r}); from pilothouse.dropins.disbatch.command import main; main(None, 'DisBatcher')"


class DisBatcher:
    """`kvsserver`: join a run that waits for its tasks (`disBatch --taskserver`) instead of starting one."""

    def __init__(self, tasksname: str = "DisBatcher", args: Sequence[str] = (), kvsserver: str | None = None) -> None:
        self._server: KvsServer | None = None
        self._run: subprocess.Popen[bytes] | None = None
        if kvsserver is None:
            self._server = _server(args)
            kvsserver = self._server.address
            program = _PROGRAM.format(str(Path(__file__).resolve().parents[3]))
            command = [sys.executable, "-c", program, "--taskserver", kvsserver, "--kvsserver", kvsserver, *args]
            self._run = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._task_key = f"{tasksname} task"
        self._result_key = f"{tasksname} result"
        self._done_mark = f"{tasksname} done!"
        self._results: dict[int, dict[str, Any]] = {}
        self._reader = TaskReader(tasksname, lenient=True)
        self._next_id = 0
        self._kvs = KvsClient(kvsserver)
        for key, value in (
            ("name", tasksname),
            ("done task", self._done_mark),
            ("result key", self._result_key),
            ("task key", self._task_key),
        ):
            self._kvs.put(f"task source {key}", value.encode())

    def __enter__(self) -> DisBatcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.done()

    def submit(self, line: str) -> int | None:
        """Adds a line of the task file language. The id of its first task or barrier."""
        data = line.encode("utf-8", "surrogateescape")
        tasks, barriers, _ = self._reader.count(data)
        first = self._next_id
        self._next_id += tasks + barriers
        self._kvs.put(self._task_key, data)
        return first if tasks + barriers else None

    def syncTasks(self, taskIds: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Waits for these tasks; their results by id."""
        wanted = list(taskIds)
        while any(task_id not in self._results for task_id in wanted):
            self.wait_one_task()
        return {task_id: self._results[task_id] for task_id in wanted}

    def wait_one_task(self) -> dict[str, Any]:
        """Waits for any task that has not been waited for. Raises PeerError if the run ends before one does."""
        task_id = int(self._kvs.get(f"{self._result_key} done tasks", self._check_run).data)
        result: dict[str, Any] = json.loads(self._kvs.get(f"{self._result_key} {task_id}", self._check_run).data)
        self._results[task_id] = result
        return result

    def _check_run(self) -> None:
        if self._run is not None and self._run.poll() is not None:
            raise PeerError("the run", f"ended with code {self._run.returncode} before its tasks did")

    def done(self) -> int:
        """No more tasks: waits for the end of a run that was started here. Its exit code."""
        self._kvs.put(self._task_key, self._done_mark.encode())
        code = 0
        if self._run is not None:
            code = self._run.wait()
            self._run = None
        self._kvs.close()
        if self._server is not None:
            self._server.close()
            self._server = None
        return code


def _server(args: Sequence[str]) -> KvsServer:
    """A service that all hosts of the run can reach: on loopback if that is enough."""
    host = os.uname().nodename
    nodes = [word for option, word in itertools.pairwise(args) if option in ("-s", "--ssh-node")]
    if only_here(",".join(nodes), host):
        return KvsServer()
    theirs = {word.rpartition(":")[0] for node in nodes for word in node.split(",")}
    theirs.update(parse_hostlist(os.environ.get("SLURM_JOB_NODELIST", "")))
    return KvsServer("", trusts=partial(_trusts, addresses_of(theirs)), advertised_host=host)


def _trusts(nodes: set[str], peer: Peer) -> bool:
    """Programs of this user here, and all on the nodes of the run."""
    return peer.host in nodes if peer.whose is Whose.ELSEWHERE else only_us(peer)
