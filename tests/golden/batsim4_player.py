"""Plays the scheduler of a recorded Batsim 4 run against our drop-in, and says what we sent and wrote.

In: the folder of a recording (cmd.txt, protocol.jsonl, out_*.csv; gzipped where large) and that of its inputs. Out: the
messages that we sent, the files that we wrote, the exit code. The drop-in runs in this process, over a real socket.
"""

from __future__ import annotations

import csv
import gzip
import json
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path
from typing import Any

import click
import zmq
from click.testing import CliRunner

from pilothouse.cli.batsim4 import command
from pilothouse.model.errors import PilothouseError

FILES = ("jobs", "machine_states", "schedule", "consumed_energy", "pstate_changes")
REAL_TIME = ("scheduling_time", "simulation_time")


def text(path: Path) -> str | None:
    """A file of a recording, gzipped or not."""
    if path.exists():
        return path.read_text()
    packed = path.with_name(path.name + ".gz")
    return gzip.decompress(packed.read_bytes()).decode() if packed.exists() else None


@dataclass
class Recording:
    folder: Path
    inputs: Path
    arguments: list[str] = field(default_factory=list)
    ours: list[dict[str, Any]] = field(default_factory=list)
    """What the real Batsim sent."""
    answers: list[bytes] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path, inputs: Path) -> Recording:
        recording = cls(folder, inputs)
        lines = (text(folder / "cmd.txt") or "").splitlines()
        line = next(line for line in lines if line.startswith("batsim:"))
        recording.arguments = shlex.split(line.partition(":")[2])[1:]
        for row in (text(folder / "protocol.jsonl") or "").splitlines():
            message = json.loads(row)
            if message["dir"].startswith("batsim->"):
                recording.ours.append(message["msg"])
            else:
                recording.answers.append(json.dumps(message["msg"]).encode())
        return recording

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def succeeded(self) -> bool:
        return "batsim_rc=0" in (text(self.folder / "status.txt") or "")

    def written(self, name: str) -> str | None:
        """A file that the real Batsim wrote."""
        return text(self.folder / f"out_{name}.csv")


@dataclass
class Played:
    exit_code: int
    stderr: str
    sent: list[dict[str, Any]]
    files: dict[str, str]


class Player(threading.Thread):
    """A scheduler that gives the recorded answers, whatever it is asked."""

    def __init__(self, endpoint: str, answers: list[bytes]) -> None:
        super().__init__(daemon=True)
        self._endpoint = endpoint
        self._answers = answers
        self.heard: list[bytes] = []
        self._leave = threading.Event()
        self._is_bound = threading.Event()
        self.start()
        assert self._is_bound.wait(10)

    def run(self) -> None:
        with zmq.Context() as context, context.socket(zmq.REP) as socket:
            socket.linger = 0
            socket.bind(self._endpoint)
            self._is_bound.set()
            for answer in self._answers:
                while not socket.poll(20):
                    if self._leave.is_set():
                        return
                self.heard.append(socket.recv())
                socket.send(self.answer(answer, self.heard[-1]))
            self._leave.wait(30)

    def answer(self, prepared: bytes, heard: bytes) -> bytes:
        """What is answered; the recorded answer, unless a subclass knows better."""
        return prepared

    def close(self) -> None:
        self._leave.set()
        self.join(10)


def play(recording: Recording, folder: Path, *more: str, replaced: dict[str, str] | None = None) -> Played:
    """Runs the drop-in with the recorded options under the recorded scheduler."""
    endpoint = f"ipc://{folder}/s"
    player = Player(endpoint, recording.answers)
    try:
        arguments = [*_arguments(recording, endpoint, folder, replaced or {}), *more]
        code, stderr = run(arguments)
    finally:
        player.close()
    files = {name: path.read_text() for name in FILES if (path := folder / f"out_{name}.csv").exists()}
    return Played(code, stderr, [json.loads(message) for message in player.heard], files)


def run(arguments: list[str], drop_in: click.Command = command) -> tuple[int, str]:
    """The drop-in in this process: exit code and what it wrote to stderr."""
    result = CliRunner().invoke(drop_in, arguments)
    if isinstance(result.exception, PilothouseError):
        return result.exception.exit_code, str(result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stderr


def _arguments(recording: Recording, endpoint: str, folder: Path, replaced: dict[str, str]) -> Iterator[str]:
    given: dict[str, Callable[[str], str]] = {"-s": lambda _: endpoint, "-e": lambda _: str(folder / "out")}
    given |= {option: lambda _, value=value: value for option, value in replaced.items()}  # type: ignore[misc]
    before = ""
    for argument in recording.arguments:
        if before in given:
            yield given[before](argument)
        elif argument.startswith("inputs/"):
            yield str(recording.inputs / argument.removeprefix("inputs/"))
        else:
            yield argument
        before = argument


def same(want: object, got: object) -> bool:
    """Equal, but for paths of files and half a unit of the last written decimal."""
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    if isinstance(want, int | float) and isinstance(got, int | float):
        return isclose(want, got, rel_tol=1e-9, abs_tol=1.01e-6)
    if isinstance(want, dict) and isinstance(got, dict):
        return want.keys() == got.keys() and all(key == "workloads" or same(want[key], got[key]) for key in want)
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(map(same, want, got))
    return want == got


def first_difference(recording: Recording, played: Played) -> str:
    """What differs in the conversation or in jobs.csv; empty: nothing."""
    for index, (want, got) in enumerate(zip(recording.ours, played.sent, strict=False)):
        if not same(want, got):
            return f"message {index}: {got} instead of {want}"
    if len(played.sent) != len(recording.ours):
        return f"{len(played.sent)} messages instead of {len(recording.ours)}"
    return table_difference(recording.written("jobs"), played.files.get("jobs"))


def table_difference(want: str | None, got: str | None) -> str:
    """The first field in which two CSV files differ, real time aside."""
    if want is None or got is None or want == got:
        return "" if want == got else "a file is missing"
    wanted, found = (list(csv.reader(table.splitlines())) for table in (want, got))
    if len(wanted) != len(found):
        return f"{len(found)} rows instead of {len(wanted)}"
    for number, (row, other) in enumerate(zip(wanted, found, strict=True)):
        for column, a, b in zip(wanted[0], row, other, strict=True):
            if a != b and column not in REAL_TIME:
                return f"row {number}, {column}: {b} instead of {a}"
    return ""
