"""An engine and a context of ours for a driver of the real disBatch: `--engine` and `--context`, as in disBatch's own program.

In: DISBATCH_KVSSTCP_HOST, the driver's key-value service. Out: messages under `.controller`, reports of tasks. The driver may be
disBatch 3.0, or that of 2021 (`--dialect 2021`). Values are read by a reader that knows disBatch's classes and runs nothing.

A cylinder is a thread with a connection of its own: it waits for a task under its key, runs it, reports it, and waits again. One
more runs the per-engine commands: before and after all tasks (3.0), or in the order in which they are posted (2021), where a task
waits until the engine has reached its age.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from pilothouse.access.files import open_shared
from pilothouse.dropins.disbatch.options import EDITIONS
from pilothouse.dropins.disbatch.status_file import SNIPPET_BYTES
from pilothouse.launch.add_engines import add_context_arguments, context_options, expand_hosts, open_log
from pilothouse.model.errors import InputError, PeerError
from pilothouse.protocols.disbatch import messages as d
from pilothouse.protocols.disbatch import pickles
from pilothouse.worlds.live.contexts.layout import ContextOptions, Layout, plan, same_host
from pilothouse.worlds.live.services.kvs import PICKLE
from pilothouse.worlds.live.services.kvs_client import ADDRESS_VARIABLE, SECRET_VARIABLE, KvsClient

HEART_BEAT_S = 30.0
LINGER_S = 5.0
"""How long the output of commands is waited for that a task has left in the background, for each stream."""
POLL_S = 0.2
OVER = -1
"""The number of a context or an engine that comes too late."""
_PROGRAM = "import sys; sys.path.append({!r}); from pilothouse.dropins.disbatch.command import main; main()"
log = logging.getLogger("disBatch.engine")


class Service:
    """disBatch's key-value service, as its programs see it: values are Python objects."""

    def __init__(self) -> None:
        self._client = KvsClient(os.environ.get(ADDRESS_VARIABLE, ""), secret=os.environ.get(SECRET_VARIABLE, ""))

    def put(self, key: str, value: object) -> None:
        self._client.put(key, pickles.write(value), PICKLE)

    def tell(self, word: str, value: object) -> None:
        self.put(d.CONTROLLER, (word, value))

    def get(self, key: str) -> Any:
        return self._read(key, self._client.get(key).data)

    def view(self, key: str) -> Any:
        return self._read(key, self._client.view(key).data)

    def register(self, which: str) -> int:
        key = str(random.SystemRandom().randrange(10**9))
        self.tell("register", (which, key))
        rank = self.get(key)
        if not isinstance(rank, int):
            raise PeerError("disBatch's driver", f"gave no number to this {which}")
        return rank

    def check(self) -> None:
        """Raises PeerError if the service is gone; no answer may be waited for."""
        if self._client.lost:
            raise PeerError("disBatch's driver", "is gone")

    def close(self) -> None:
        self._client.close()

    def _read(self, key: str, data: bytes) -> Any:
        try:
            return pickles.read(data)
        except pickles.Malformed as error:
            raise PeerError("disBatch's driver", f"put something else under {key!r}: {error}") from error


def main(arguments: Sequence[str]) -> int:
    """`--engine -n NODE KEY` or `--context SCRIPT OPTIONS`."""
    parser = argparse.ArgumentParser("disBatch")
    parser.add_argument("--dialect", choices=EDITIONS, default="3")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--engine", action="store_true")
    kind.add_argument("--context", action="store_true")
    said, rest = parser.parse_known_args(list(arguments))
    edition = EDITIONS[said.dialect]
    try:
        return _engine(rest, edition) if said.engine else _context(rest, edition)
    except (OSError, PeerError, InputError) as error:
        print(f"disBatch: {error}", file=sys.stderr)
        return 1


# ---- the engine


def _engine(arguments: Sequence[str], edition: int) -> int:
    parser = argparse.ArgumentParser("disBatch --engine")
    parser.add_argument("-n", "--node", default=socket.gethostname())
    parser.add_argument("key", help="of its context")
    said = parser.parse_args(list(arguments))
    service = Service()
    info = service.view(d.DB_INFO).state
    rank = service.register("engine")
    if rank == OVER:
        print("the run is over", file=sys.stderr)
        return 0
    context = d.read_context(service.view(said.key))
    with contextlib.suppress(OSError):
        os.chdir(info["wd"])
    open_log(f"{info['uniqueId']}_{context.label}_{said.node}_engine_{rank}.log", "INFO", "disBatch", "pilothouse")
    return KvsEngine(service, context, said.node, rank, edition).run()


class KvsEngine:
    def __init__(self, service: Service, context: d.Context, node: str, rank: int, edition: int) -> None:
        self.edition = edition
        self.node = node
        self.rank = rank
        self.age = 0
        """How many barriers and per-engine commands this engine is past (2021)."""
        self.aged = threading.Condition()
        self.broken = False
        """The driver cannot be reached any more."""
        self._service = service
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        """Tasks by their ids."""
        index = context.nodes.index(node) if node in context.nodes else 0
        self._count = context.cylinders[index]
        service.tell("engine started", (rank, context.rank, socket.gethostname(), os.getpid(), time.time()))
        common = service.view(".common env")
        self.env = {**os.environ, **common, "DISBATCH_ENGINE_RANK": str(rank)}
        self.env["DISBATCH_CORES_PER_TASK"] = str(context.cores[index])
        self._dealt: dict[str, list[str]] = {}
        for name in context.dealt:
            if values := [value for value in os.environ.get(name, "").split(",") if value]:
                self._dealt[name] = values
                self._count = min(self._count, len(values))

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._on_signal)
        log.info("engine %d on %s (%d): %d cylinders", self.rank, self.node, os.getpid(), self._count)
        if self.edition == 3:
            self._commands("START")
        cylinders = [threading.Thread(target=self._cylinder, args=(number,)) for number in range(self._count)]
        for cylinder in cylinders:
            cylinder.start()
        if self.edition == 2:
            self._service.put(f"engine {self.rank}", "running")
            threading.Thread(target=self._follow, daemon=True).start()
        beat_at = time.monotonic() + HEART_BEAT_S
        while any(cylinder.is_alive() for cylinder in cylinders):
            cylinders[0].join(POLL_S) if cylinders[0].is_alive() else time.sleep(POLL_S)
            with self._reaching():
                self._service.check()
                if time.monotonic() >= beat_at:
                    beat_at += HEART_BEAT_S
                    self._beat()
        if self.broken:
            return 1
        if self.edition == 3:
            self._commands("STOP")
        self._service.tell("engine stopped", ("OK", self.rank))
        if self.edition == 2:
            self._service.get(f"engine {self.rank}")
            self._service.put(f"engine {self.rank}", "engine stopped")
        self._service.close()
        return 0

    def _beat(self) -> None:
        running = sorted(self._running)
        if self.edition == 3:
            self._service.tell("engine heart beats", (self.rank, [(self.rank, task) for task in running]))
        else:
            for task in running:
                self._service.tell("task heart beat", task)

    @contextlib.contextmanager
    def _reaching(self) -> Any:
        try:
            yield
        except (OSError, PeerError, KeyError, TypeError) as error:
            if not self.broken:
                log.error("the driver cannot be reached any more, or says what is no task: %s", error)
            self.broken = True
            for task in list(self._running.values()):
                _end(task)
            with self.aged:
                self.aged.notify_all()

    def _cylinder(self, number: int) -> None:
        with self._reaching():
            service = Service()
            key = f".cylinder {self.rank} {number}"
            service.tell("cylinder available", (self.rank, os.getpid(), os.getpgid(0), key))
            while not self.broken:
                word, value = service.get(key)
                if word == "stop":
                    service.tell("cylinder stopped", (self.rank, key))
                    break
                task = d.read_task_info(value)
                with self.aged:
                    self.aged.wait_for(lambda task=task: self.edition == 3 or self.age >= task.age or self.broken)  # type: ignore[misc]
                self._run(service, task, number, key)
            service.close()

    def _commands(self, word: str) -> None:
        """START or STOP commands, up to the mark behind the last one."""
        with self._reaching():
            for number in range(10**6):
                said, value = self._service.view(f".per engine {word} {number}")
                if said == "stop":
                    return
                self._run(self._service, d.read_task_info(value), -1, f".per engine {word} %d")

    def _follow(self) -> None:
        """Per-engine commands and barriers of 2021, in their order. An engine that joins late does all of it."""
        with self._reaching():
            service = Service()
            while not self.broken:
                word, value = service.view(f".per engine {self.age}")
                if word != "barrier notification":
                    self._run(service, d.read_task_info(value), -1, ".per engine %d")
                with self.aged:
                    self.age += 1
                    self.aged.notify_all()

    def _run(self, service: Service, task: d.TaskInfo, cylinder: int, key: str) -> None:
        env = {**self.env, **_variables(task), "DISBATCH_CYLINDER_RANK": str(cylinder)}
        for name, values in self._dealt.items():
            env[name] = values[max(cylinder, 0)]
        began = time.time()
        process = subprocess.Popen(
            [b"/bin/bash", b"-c", task.command], env=env, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        if cylinder >= 0:
            self._running[task.task_id] = process
        out, err = _Collector(process.stdout), _Collector(process.stderr)
        code = process.wait()
        ended = time.time()
        self._running.pop(task.task_id, None)
        errors = "replace" if self.edition == 3 else "ignore"
        report = d.TaskReport(task, self.node, process.pid, code, began, ended, *out.text(errors), *err.text(errors))
        middle: tuple[Any, ...] = (d.task_report(report, self.edition), self.rank, cylinder)
        age = (self.age,) if self.edition == 2 else ()
        service.tell("task done", (*middle, *age, key))

    def _on_signal(self, number: int, _frame: object) -> None:
        for task in list(self._running.values()):
            _end(task)
        os._exit(1)


def _variables(task: d.TaskInfo) -> dict[str, str]:
    numbers = {"STREAM_INDEX": task.line_number, "REPEAT_INDEX": task.repeat_index, "TASKID": task.task_id}
    plain = {f"DISBATCH_{name}": str(number) for name, number in numbers.items()}
    return plain | {f"DISBATCH_{name}_ZP": f"{number:06d}" for name, number in numbers.items()}


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class _Collector(threading.Thread):
    """Counts what comes from a pipe, and keeps its first and its last bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._count = 0
        self._first = self._last = b""
        self.start()

    def run(self) -> None:
        while data := os.read(self._stream.fileno(), 1 << 16):
            self._count += len(data)
            room = SNIPPET_BYTES - len(self._first)
            self._first += data[:room]
            self._last = (self._last + data[room:])[-SNIPPET_BYTES:]
        self._stream.close()

    def text(self, errors: str) -> tuple[int, str]:
        self.join(LINGER_S)
        kept = self._first + (b"..." + self._last if self._last else b"")
        return self._count, kept.decode("utf-8", errors)


# ---- the context


def _context(arguments: Sequence[str], edition: int) -> int:
    parser = argparse.ArgumentParser("disBatch --context")
    parser.add_argument("script", help="disBatch's utility script; our engines are started without it")
    add_context_arguments(parser)
    options = context_options(parser.parse_args(list(arguments)))
    service = Service()
    info = service.view(d.DB_INFO)
    theirs = info.state["args"].state
    run = ContextOptions(
        cpus_per_task=None if theirs["cpusPerTask"] == -1.0 else theirs["cpusPerTask"],
        tasks_per_node=None if theirs["tasksPerNode"] == -1 else theirs["tasksPerNode"],
        env_resources=tuple(theirs["env_resource"]), edition=edition,
    )  # fmt: skip
    options = options.or_else(run)
    rank = service.register("context")
    if rank == OVER:
        print("the run is over", file=sys.stderr)
        return 0
    with contextlib.suppress(OSError):
        os.chdir(info.state["wd"])
    layout = plan(
        options, os.environ, rank=rank, host=socket.gethostname(), expand=expand_hosts, read=lambda path: Path(path).read_text()
    )
    said = d.Context(
        rank, layout.label, "Slurm" if layout.kind == "Slurm" else "SSH", tuple(node.name for node in layout.usable),
        tuple(node.cylinders for node in layout.usable), tuple(node.cores_per_task for node in layout.usable),
        options.task_limit, options.dealt,
    )  # fmt: skip
    shown = d.context(said, info, {**theirs, "context_task_limit": options.task_limit}, edition)
    key = f".context_{rank}"
    service.put(key, shown)
    service.tell("context info", shown)
    return _run_engines(layout, f"{info.state['uniqueId']}_{layout.label}", key, edition)


def _run_engines(layout: Layout, prefix: str, key: str, edition: int) -> int:
    program = [sys.executable, "-c", _PROGRAM.format(str(Path(__file__).resolve().parents[3]))]
    dialect = next(name for name, number in EDITIONS.items() if number == edition)
    engines: dict[str, subprocess.Popen[bytes]] = {}
    for node in layout.usable:
        command = [*program, "--dialect", dialect, "--engine", "-n", node.name, key]
        if layout.kind == "Slurm":
            command = ["srun", "-N", "1", "-n", "1", "-w", node.name, *command]
        elif not same_host(node.name, socket.gethostname()):
            address = f"{ADDRESS_VARIABLE}={os.environ[ADDRESS_VARIABLE]}"
            command = ["ssh", "--", node.name, shlex.join(["env", address, *command])]
        with open_shared(f"{prefix}_{node.name}_engine_wrap.log", "ab") as output:
            engines[node.name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    failed, retired = False, []
    while engines:
        time.sleep(POLL_S)
        for name, engine in list(engines.items()):
            code = engine.poll()
            if code is not None:
                del engines[name]
                retired.append(name)
                failed |= code != 0
                if layout.retire_command:
                    env = {"NODE": name, "RETCODE": str(code), "ACTIVE": ",".join(engines), "RETIRED": ",".join(retired)}
                    subprocess.run(["/bin/sh", "-c", layout.retire_command], env={**os.environ, **env}, check=False)
    return 1 if failed else 0
