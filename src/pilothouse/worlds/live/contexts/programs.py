"""Engines that are started by a program of ours each: ssh, srun, or the engine itself. What their contexts share."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import IO

import msgspec

from pilothouse.model.errors import RunError, one_line
from pilothouse.worlds.live.contexts import Departure
from pilothouse.worlds.live.engine_process import EngineConfig

_CODE = "import sys; sys.path.append({root!r}); from pilothouse.worlds.live.engine_process import main; main()"
_ROOT = str(Path(__file__).resolve().parents[4])


def engine_command(python: str) -> list[str]:
    """The program of an engine: our package is found where it was found here, and tasks see nothing of that."""
    return [python, "-c", _CODE.format(root=_ROOT)]


def new_key(context: str) -> str:
    """A name for an engine that is about to be started."""
    return f"{context}-{os.getpid()}-{os.urandom(3).hex()}"


class Programs:
    """Programs that were started and have not been seen to end. They live in sessions of their own: a driver that is
    killed leaves them alone."""

    def __init__(self, context: str) -> None:
        self._context = context
        self._children: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}

    def start(self, command: list[str], config: EngineConfig, env: dict[str, str] | None = None) -> None:
        """Starts one, with the configuration on its standard input."""
        complaints = tempfile.TemporaryFile()  # noqa: SIM115 - read when the program has ended
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            raise RunError(f"{self._context}: cannot run {command[0]}: {error.strerror}") from error
        assert child.stdin is not None
        try:
            child.stdin.write(msgspec.msgpack.encode(config))
            child.stdin.close()
        except BrokenPipeError:
            pass  # it has ended already; `ended` tells why
        self._children[config.key] = (child, complaints)

    def ended(self) -> list[Departure]:
        gone = []
        for key, (child, complaints) in list(self._children.items()):
            code = child.poll()
            if code is not None:
                complaints.seek(0)
                text = one_line(complaints.read(4000).decode("utf-8", "replace"))
                complaints.close()
                del self._children[key]
                gone.append(Departure(self._context, key, code, text))
        return gone

    def forget(self) -> None:
        for child, complaints in self._children.values():
            complaints.close()
            child.returncode = child.returncode or 0  # it is not ours to wait for any more
        self._children.clear()
