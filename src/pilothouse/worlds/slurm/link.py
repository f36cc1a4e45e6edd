"""The way to a real Slurm: looks by squeue, sinfo and scontrol show, orders through one scontrol that reads its input.

Nothing here blocks but `wait` (and `facts`, before the run begins). After each order scontrol is told to print a mark of its
own (`show hostnames`, which asks no daemon): when the mark appears, the order was carried out, and what was printed before
it is the complaint about it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import socket
import struct
import subprocess
import time
from collections import deque
from math import inf

import msgspec

from pilothouse.formats import slurm_resources
from pilothouse.model.errors import InputError, PeerError
from pilothouse.worlds.slurm import look as looks
from pilothouse.worlds.slurm import records
from pilothouse.worlds.slurm.commands import Command
from pilothouse.worlds.slurm.look import JobReader, Look
from pilothouse.worlds.slurm_commands import COMMAND_TIMEOUT_S, run

PROMPT = "scontrol: "
ACKNOWLEDGED = "answered-"
CLOSE_S = 10.0
CHUNK = 1 << 16


class Facts(msgspec.Struct):
    """What is read once, before the run."""

    partitions: dict[str, dict[str, str]]
    config: dict[str, str]
    jobs: dict[str, str]
    """Job id -> its line of `scontrol show job`."""


class Answer(msgspec.Struct, frozen=True):
    """A command was carried out; `problem`: Slurm's complaint, `shown`: the line of a job that was asked for."""

    number: int
    problem: str
    shown: str = ""


class LookFailed(msgspec.Struct, frozen=True):
    problem: str


class Woken(msgspec.Struct, frozen=True):
    """A watched descriptor is readable."""


Heard = Look | LookFailed | Answer | Woken


class Asked(msgspec.Struct, frozen=True):
    """What a look includes besides jobs."""

    nodes: bool = True
    licences: bool = False
    reservations: bool = False


class SlurmLink:
    """Slurm's commands of this machine, with the SLURM_CONF of the environment."""

    def __init__(self) -> None:
        self._reader = JobReader()
        self._poller = select.poll()
        self._watched: set[int] = set()
        self._children: dict[int, tuple[str, subprocess.Popen[bytes], bytearray]] = {}
        """Commands of the look that is under way: descriptor -> name, process, output."""
        self._outputs: dict[str, str] = {}
        self._failed = ""
        self._asked_at = -inf
        self._control: subprocess.Popen[bytes] | None = None
        self._pending: deque[int] = deque()
        self._input = bytearray()
        self._printed = bytearray()
        self._complaint: list[str] = []
        self._shown = ""
        self._heard: deque[Heard] = deque()
        self._programs: list[subprocess.Popen[bytes]] = []
        self._claim: socket.socket | None = None

    def now(self) -> float:
        return time.time()

    def facts(self) -> Facts:
        for program in ("scontrol", "squeue", "sinfo"):
            if shutil.which(program) is None:
                raise InputError("slurm", f"{program} is not installed here", hint="run this on a node of the cluster")
        shown = slurm_resources.records(run(looks.SHOW_PARTITIONS), "PartitionName")
        lines = (line.partition("=") for line in run(looks.SHOW_CONFIG).splitlines() if "=" in line)
        return Facts(
            {row["PartitionName"]: row for row in shown},
            {key.strip(): value.strip() for key, _, value in lines},
            records.by_id(run(looks.SHOW_JOBS)),
        )

    def claim(self, name: str) -> None:
        """One steering program at a time on this machine: the name is taken until this process ends. InputError: it is taken by
        another one of this user or of root. (Any user could take a name.)"""
        self._claim = socket.socket(socket.AF_UNIX)
        address = f"\0pilothouse/{name}"
        try:
            self._claim.bind(address)
            self._claim.listen(1)
            return
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise
        with contextlib.suppress(OSError):
            self._claim.connect(address)
            credentials = self._claim.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, user, _ = struct.unpack("3i", credentials)
            if user in (0, os.geteuid()):
                raise InputError("slurm", f"{name} is steered already, by process {pid}", hint="end that one first")

    def watch(self, fd: int) -> None:
        self._watched.add(fd)
        self._poller.register(fd, select.POLLIN)

    # ---- looks

    @property
    def looking(self) -> bool:
        return bool(self._children)

    def ask(self, asked: Asked) -> None:
        """Starts a look."""
        commands: dict[str, tuple[str, ...]] = {"jobs": looks.SQUEUE}
        if asked.nodes:
            commands["nodes"] = looks.SINFO
        if asked.licences:
            commands["licences"] = looks.SHOW_LICENCES
        if asked.reservations:
            commands["reservations"] = looks.SHOW_RESERVATIONS
        self._asked_at, self._failed, self._outputs = self.now(), "", {}
        for name, command in commands.items():
            try:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            except OSError as problem:
                self._failed = f"{command[0]}: {problem.strerror}"
                continue
            assert child.stdout is not None
            fd = child.stdout.fileno()
            os.set_blocking(fd, False)
            self._children[fd] = name, child, bytearray()
            self._poller.register(fd, select.POLLIN)
        if not self._children:
            self._heard.append(LookFailed(self._failed))

    def _read_child(self, fd: int) -> None:
        name, child, output = self._children[fd]
        data = _read(fd)
        if data is None:
            return
        output += data
        if data:
            return
        self._drop_child(fd)
        code = child.wait()
        text = output.decode("utf-8", "replace")
        if code != 0:
            self._failed = self._failed or text.strip() or f"{name}: ended with code {code}"
        self._outputs[name] = text
        if not self._children:
            self._heard.append(self._finish())

    def _drop_child(self, fd: int) -> subprocess.Popen[bytes]:
        _, child, _ = self._children.pop(fd)
        self._poller.unregister(fd)
        assert child.stdout is not None
        child.stdout.close()
        return child

    def _finish(self) -> Look | LookFailed:
        if self._failed:
            return LookFailed(self._failed)
        texts = self._outputs
        try:
            nodes, up = looks.read_nodes(texts["nodes"]) if "nodes" in texts else (None, frozenset[str]())
            return Look(
                self._asked_at,
                self._reader.read(texts["jobs"]),
                nodes,
                looks.read_licences(texts["licences"]) if "licences" in texts else None,
                slurm_resources.read_reservations(texts["reservations"]) if "reservations" in texts else None,
                up,
            )
        except (PeerError, InputError) as problem:
            return LookFailed(str(problem))

    def _give_up(self) -> None:
        for fd in list(self._children):
            child = self._drop_child(fd)
            child.kill()
            child.wait()
        self._heard.append(LookFailed(f"no answer within {COMMAND_TIMEOUT_S:g} s"))

    # ---- orders

    def send(self, commands: list[Command]) -> None:
        """Passes commands on, in order. Each that has a line is answered."""
        for command in commands:
            if command.program:
                self._run(command)
            if command.line:
                self._pending.append(command.number)
                line = command.line.replace("\n", " ")
                self._input += f"{line}\nshow hostnames {ACKNOWLEDGED}{command.number}\n".encode()
        if self._input:
            self._write()

    def _run(self, command: Command) -> None:
        self._programs = [child for child in self._programs if child.poll() is None]
        with contextlib.suppress(OSError):
            self._programs.append(
                subprocess.Popen(
                    command.program,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )

    def _write(self) -> None:
        control = self._control or self._start_control()
        if control is None:
            return
        assert control.stdin is not None and control.stdout is not None
        try:
            while self._input:
                del self._input[: os.write(control.stdin.fileno(), self._input[:4096])]
        except BlockingIOError:
            self._poller.register(control.stdin.fileno(), select.POLLOUT)
        except OSError:
            self._control_ended()

    def _start_control(self) -> subprocess.Popen[bytes] | None:
        try:
            # It ends with us: what it has not read yet must not reach Slurm after a new process has begun to steer.
            setpriv = shutil.which("setpriv")
            prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
            command = [*prefix, "scontrol", "--oneliner", "--details", "--all"]
            control = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as problem:
            self._forget_pending(f"scontrol: {problem.strerror}")
            return None
        assert control.stdin is not None and control.stdout is not None
        for pipe in (control.stdin, control.stdout):
            os.set_blocking(pipe.fileno(), False)
        self._poller.register(control.stdout.fileno(), select.POLLIN)
        self._control = control
        return control

    def _read_control(self) -> None:
        assert self._control is not None and self._control.stdout is not None
        data = _read(self._control.stdout.fileno())
        if data is None:
            return
        if not data:
            self._control_ended()
            return
        self._printed += data
        *lines, rest = self._printed.split(b"\n")
        self._printed = rest
        for raw in lines:
            line = raw.decode("utf-8", "replace").strip("\r").removeprefix(PROMPT)
            if line.startswith(ACKNOWLEDGED) and line[len(ACKNOWLEDGED) :].isdigit():
                self._acknowledge(int(line[len(ACKNOWLEDGED) :]))
            elif line.startswith("JobId="):
                self._shown = line
            elif line.strip() and not line.startswith(("update ", "show ")):
                # scontrol repeats each line of its input; anything else is a complaint.
                self._complaint.append(line.strip())

    def _acknowledge(self, number: int) -> None:
        problem, shown = "; ".join(self._complaint), self._shown
        self._complaint.clear()
        self._shown = ""
        while self._pending and self._pending[0] <= number:
            self._heard.append(Answer(self._pending.popleft(), problem, shown))

    def _control_ended(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            assert control.stdin is not None and control.stdout is not None
            for pipe in (control.stdin, control.stdout):
                with contextlib.suppress(KeyError):
                    self._poller.unregister(pipe.fileno())
                with contextlib.suppress(OSError):
                    pipe.close()
            control.kill()
            control.wait()
        self._forget_pending("; ".join(self._complaint) or "scontrol has ended")

    def _forget_pending(self, problem: str) -> None:
        """Whether they were carried out is not known: the next look tells."""
        self._input.clear()
        self._printed.clear()
        self._complaint.clear()
        while self._pending:
            self._heard.append(Answer(self._pending.popleft(), problem))

    # ---- waiting

    def wait(self, until: float) -> list[Heard]:
        """What was heard, at once if there is something; else waits until then."""
        while not self._heard:
            now = self.now()
            limit = min(until, self._asked_at + COMMAND_TIMEOUT_S if self._children else inf)
            ready = self._poller.poll(None if limit == inf else max(0.0, (limit - now) * 1000) + 1)
            for fd, _ in ready:
                if fd in self._watched:
                    self._heard.append(Woken())
                elif fd in self._children:
                    self._read_child(fd)
                elif self._control is not None and self._control.stdout is not None:
                    if fd == self._control.stdout.fileno():
                        self._read_control()
                    else:
                        self._poller.unregister(fd)
                        self._write()
            now = self.now()
            if self._children and now >= self._asked_at + COMMAND_TIMEOUT_S:
                self._give_up()
            if now >= until:
                break
        heard = list(self._heard)
        self._heard.clear()
        return heard

    def flush(self) -> None:
        """Waits until all commands were answered, for a while."""
        end = self.now() + CLOSE_S
        while self._pending and self.now() < end:
            self.wait(self.now() + 0.1)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.flush()
        for fd in list(self._children):
            child = self._drop_child(fd)
            child.kill()
            child.wait()
        self._control_ended()
        if self._claim is not None:
            self._claim.close()
        for program in self._programs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(CLOSE_S)


def _read(fd: int) -> bytes | None:
    """None: nothing to read now; empty: the end."""
    try:
        return os.read(fd, CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def counts_memory(config: dict[str, str]) -> bool:
    return "MEMORY" in config.get("SelectTypeParameters", "").upper()


def gives_whole_cores(config: dict[str, str]) -> bool:
    """Whether all CPUs (threads) of a core go to one job."""
    return any(word in config.get("SelectTypeParameters", "").upper() for word in ("CR_CORE", "CR_SOCKET", "CR_ONE_TASK"))


def is_whole_nodes(partition: dict[str, str], config: dict[str, str]) -> bool:
    """Whether jobs of this partition get whole nodes."""
    shares = partition.get("OverSubscribe", "NO").upper()
    return shares.startswith("EXCLUSIVE") or "linear" in config.get("SelectType", "")
