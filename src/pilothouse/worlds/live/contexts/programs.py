"""ProgramContext: the base of contexts that start each engine by a program of its own (ssh, srun, or the engine itself)."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Mapping
from math import inf
from pathlib import Path
from typing import IO

from pilothouse.access.interfaces import LOOPBACK, towards
from pilothouse.model.errors import InputError, RunError, one_line
from pilothouse.worlds.live.contexts import Departure, Launch
from pilothouse.worlds.live.descriptors import give_former_limit
from pilothouse.worlds.live.engine.spool import spool_folder
from pilothouse.worlds.live.engine.task_processes import end_orphans
from pilothouse.worlds.live.wire.sockets import EngineConfig

MOST_STARTS = 5
MOST_DEATHS = 100
"""How often an engine that cannot be started is tried, and one that dies is replaced. MOST_DEATHS must be much larger than
LiveOptions.most_losses: a few tasks that kill engines must not end the run."""
SHORT_OF = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Errors of a system that has no process, memory or descriptor left: that may pass."""
FIRST_PAUSE_S = 1.0
"""Until the next attempt after such an error; each pause is twice the one before."""

_CODE = "import sys; sys.path.append({root!r}); from pilothouse.worlds.live.engine.process import main; main()"
_ROOT = str(Path(__file__).resolve().parents[4])


def engine_command(python: str) -> list[str]:
    """The program of an engine. It finds our package by its path, not by PYTHONPATH, which tasks would inherit, and imports
    nothing from the folder in which it is started (-P). It ignores PYTHON variables (-E) if the driver does (launch/shims.py).
    """
    return [python, "-PE" if sys.flags.ignore_environment else "-P", "-c", _CODE.format(root=_ROOT)]


def check_slots(slots: Mapping[str, int], most: int) -> None:
    """Raises InputError if a part (see ProgramContext) has more than a host may have."""
    for part, count in slots.items():
        if count > most:
            raise InputError(
                f"the slots of {part or 'this host'}", "more than a host is allowed to have", expected=f"{most:,} or fewer",
                found=f"{count:,}", hint="--most-slots N raises the limit",
            )  # fmt: skip


class ProgramContext:
    """A context whose engines are started by one program each, one for each of its parts (nodes; "" is this host). A subclass
    gives the command. The programs run in sessions of their own, so they survive a killed driver."""

    remote = True
    env: dict[str, str] | None = None
    """Of the programs; None: ours."""

    def __init__(
        self, name: str, slots: Mapping[str, int], *, gpus: tuple[str, ...] = (), memory_mb: int = 0, ends_at: float = inf
    ) -> None:
        """`slots` of each part; `gpus` and `memory_mb` (0: what it has) are those of every part; `ends_at`: when the batch job
        ends (seconds since 1970)."""
        self.name = name
        self.slots = dict(slots)
        self.gpus = gpus
        self.memory_mb = memory_mb
        self.ends_at = ends_at
        self._waiting = list(slots)
        self.engines = len(self._waiting)
        self._children: dict[str, tuple[str, subprocess.Popen[bytes], IO[bytes]]] = {}
        self._ended_parts: dict[str, str] = {}
        self._not_started: dict[str, tuple[str, str, float]] = {}
        """Key -> part, why, and when to say so: the system was short of something."""
        self._failed: dict[str, int] = {}
        self._died: dict[str, int] = {}

    def command(self, part: str, launch: Launch) -> list[str]:
        """The program that starts an engine on this part; it gets the configuration on its standard input."""
        return engine_command(launch.python)

    def config(self, part: str, key: str, launch: Launch) -> EngineConfig:
        return EngineConfig(
            addresses=launch.addresses, server_public=launch.server_public, client_public=launch.client_public,
            client_secret=launch.client_secret, cwd=launch.cwd, context=self.name, slots=self.slots[part], key=key,
            node=part, gpus=self.gpus, memory_mb=self.memory_mb,
            ends_at=self.ends_at, log=str(Path(launch.folder) / f"engine-{key}.log"),
            spool=str(spool_folder(launch.folder, key)), leased=launch.leased,
        )  # fmt: skip

    def listens(self) -> tuple[str, ...]:
        """The addresses of this host by which its nodes are reached."""
        return towards(self.slots) if self.remote else (LOOPBACK,)

    def output(self, part: str) -> IO[bytes]:
        """A file for the program's stderr. If it can be read, its text is the reason in the Departure."""
        return tempfile.TemporaryFile()

    @property
    def keys(self) -> set[str]:
        return {*self._children, *self._ended_parts}

    def start(self, launch: Launch) -> None:
        check_slots(self.slots, launch.most_slots)
        for part in self._waiting:
            self._start_one(part, launch)
        self._waiting.clear()

    def adopt(self, engines: dict[str, str]) -> None:
        """Takes over engines (key -> node) that an earlier driver started and that may still run: they are not started again."""
        for key, node in engines.items():
            part = node if node in self._waiting else (self._waiting or [""])[0]
            if part in self._waiting:
                self._waiting.remove(part)
                self._ended_parts[key] = part
        self.engines = len(self._waiting)

    def again(self, key: str, launch: Launch, *, had_joined: bool) -> bool:
        """Starts a new engine where that one had been; False if that has failed too often."""
        part = self._ended_parts.pop(key, None)
        if part is None:
            return False
        ends, most = (self._died, MOST_DEATHS) if had_joined else (self._failed, MOST_STARTS)
        ends[part] = ends.get(part, 0) + 1
        if ends[part] >= most:
            return False
        self._start_one(part, launch)
        self.engines = max(self.engines, len(self._children))
        return True

    def ended(self) -> list[Departure]:
        gone = []
        for key, (part, child, complaints) in list(self._children.items()):
            code = child.poll()
            if code is not None:
                text = ""
                if complaints.readable():
                    complaints.seek(0)
                    text = one_line(complaints.read(4000).decode("utf-8", "replace"))
                complaints.close()
                del self._children[key]
                self._ended_parts[key] = part
                # ssh ends with 255 if it fails itself. A program that was killed tells nothing about what it had started.
                engine_ended = not self.remote or 0 <= code != 255
                gone.append(Departure(self.name, key, code, text, engine_ended, part))
        for key, (part, why, until) in list(self._not_started.items()):
            if time.monotonic() >= until:
                del self._not_started[key]
                self._ended_parts[key] = part
                gone.append(Departure(self.name, key, 1, why, place=part))
        return gone

    def close(self, joined: Container[str] = (), wait: Callable[[], bool] | None = None) -> None:
        children = [child for _, child, _ in self._children.values()]
        for key, (_part, child, _) in self._children.items():
            if key not in joined and child.poll() is None:
                child.terminate()
        while wait is not None and any(child.poll() is None for child in children):
            if not wait():
                self._kill([child for child in children if child.poll() is None])
                break
        self.ended()
        for _part, child, complaints in self._children.values():
            complaints.close()
            child.returncode = child.returncode or 0  # Popen must not warn that it still runs
        self._children.clear()

    def _kill(self, children: list[subprocess.Popen[bytes]]) -> None:
        """A program on this host is its engine's warden; the others, such as ssh, can be asked to end theirs."""
        for child in children:
            child.terminate() if self.remote else child.kill()
        if not self.remote:
            for child in children:
                child.wait()
            end_orphans()

    def _start_one(self, part: str, launch: Launch) -> None:
        key = f"{self.name}-{part or os.getpid()}-{os.urandom(4).hex()}"
        command = self.command(part, launch)
        try:
            complaints = self.output(part)
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                env=self.env,
                start_new_session=True,
            )
        except OSError as error:
            why = f"cannot run {command[0]}: {error.strerror}"
            if error.errno not in SHORT_OF:
                raise RunError(f"{self.name}: {why}") from error
            self._not_started[key] = (part, why, time.monotonic() + FIRST_PAUSE_S * 2 ** self._failed.get(part, 0))
            return
        assert child.stdin is not None
        give_former_limit(child.pid)  # before it reads its configuration, and so before it starts anything
        with contextlib.suppress(BrokenPipeError):  # it has ended already; `ended` reports why
            child.stdin.write(self.config(part, key, launch).framed())
            child.stdin.close()
        self._children[key] = (part, child, complaints)
