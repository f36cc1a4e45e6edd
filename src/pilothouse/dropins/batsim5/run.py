"""One run of the drop-in for Batsim 5: reads the input, joins the simulated world to the component, writes the files.

In: options. Out: the exit code, lines on stderr in the manner of Batsim's log, and the files. What would end the real
program with SIGABRT ends this one so too, but after everything that is known has been written.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pilothouse.core.cluster import Cluster
from pilothouse.dropins.batsim5.guard import Guard, GuardedLibrary
from pilothouse.dropins.batsim5.inputs import Scene
from pilothouse.dropins.batsim5.options import VERSION, Options
from pilothouse.dropins.batsim5.outputs import Batsim5Outputs
from pilothouse.model.decisions import Reply, Wants
from pilothouse.model.errors import DecisionError, InputError, PeerError, PilothouseError
from pilothouse.model.events import Batch, Ended
from pilothouse.protocols.batprotocol.channel import Channel, InProcessLibrary, ZmqPeer
from pilothouse.protocols.batprotocol.codec import Format
from pilothouse.protocols.batprotocol.decider import EdcDecider
from pilothouse.worlds.simulated.message_server.server import ControlledWorld
from pilothouse.worlds.simulated.message_server.server5 import Batsim5Server

DEADLOCK = "The simulation could NOT finish because a deadlock was detected in SimGrid."
ABORTED = -signal.SIGABRT


class Log:
    """Lines on stderr, as the real program's log has them: date, who, how bad, what."""

    def __init__(self, verbosity: str) -> None:
        self.is_quiet = verbosity == "quiet"

    def info(self, category: str, text: str, now: float = 0.0, master: str = "") -> None:
        if not self.is_quiet:
            self._write(f"{category}/INFO", text, now, master)

    def warning(self, text: str, now: float, master: str) -> None:
        if not self.is_quiet:
            self._write("server/WARNING", text, now, master)

    def critical(self, text: str, now: float, master: str = "") -> None:
        self._write("root/CRITICAL", text, now, master)

    @staticmethod
    def _write(what: str, text: str, now: float, master: str) -> None:
        who = f"{master}:server:(1) " if master else ""
        sys.stderr.write(f"[{who}{now:f}] [{what}] {text}\n")


class Overheard:
    """A channel whose messages are logged where they are text, as the real program logs them."""

    def __init__(self, channel: Channel, log: Log) -> None:
        self.name = channel.name
        self.master = ""
        self.date: Callable[[], float] = lambda: 0.0
        self._channel = channel
        self._log = log
        self._is_text = False

    def hello(self, init: bytes) -> tuple[int, bytes]:
        flags, answer = self._channel.hello(init)
        self._is_text = Format.of_flags(flags) is Format.JSON
        self._tell("Received", answer)
        return flags, answer

    def exchange(self, message: bytes) -> bytes:
        self._tell("Sending", message)
        answer = self._channel.exchange(message)
        self._tell("Received", answer)
        return answer

    def _tell(self, what: str, data: bytes) -> None:
        if self._is_text:
            text = data.rstrip(b"\0").decode(errors="replace")
            self._log.info("server", f"{what} '{text}'", self.date(), self.master)

    def close(self) -> None:
        self._channel.close()


def simulate(options: Options, arguments: list[str]) -> int:
    """The whole run; returns the exit code, ABORTED for what ends the real program with SIGABRT."""
    told = Log(options.verbosity)
    told.info("batsim", f"Batsim version: {VERSION} (pilothouse)")
    kind, where, _ = options.edcs[0]
    if "library" not in kind or options.inprocess:
        return _simulate(options, arguments, told, None)
    guard = Guard()
    work = partial(_simulate, options, arguments, told, guard)
    return guard.run(work, options.edc_timeout, told.critical, Path(where).name)


def _simulate(options: Options, arguments: list[str], told: Log, guard: Guard | None) -> int:
    try:
        scene = Scene(options, arguments)
        channel, init = _channel(options, guard)
        outputs = Batsim5Outputs(
            options.export,
            energy=options.energy_host,
            machine_states=options.trace_machine_state,
            pstate_changes=options.trace_pstate_changes,
            opened_to_keep=None if guard is None else guard.opened,
        )
    except PilothouseError as problem:
        told.critical(str(problem), 0.0)
        return ABORTED
    for name, path in scene.begins.workloads.items():
        told.info("batsim", f"Workload '{name}' corresponds to workload file '{path}'.")
    count = scene.platform.compute_count
    told.info("machines", f"The machines have been created successfully. There are {count} computing machines.")
    told.info("export", f"Export prefix path is '{options.export}'")
    master = scene.platform.host(-1).name
    heard: Channel = channel
    if not told.is_quiet:
        heard = overheard = Overheard(channel, told)
        overheard.master = master
        overheard.date = lambda: conversation.ended_at
    conversation = Conversation(scene, outputs, EdcDecider(heard, init), told, options)
    if guard is not None:
        guard.note_master(master)
        assert isinstance(channel, GuardedLibrary)
        channel.date = lambda: conversation.ended_at
    return conversation.run()


def _channel(options: Options, guard: Guard | None) -> tuple[Channel, bytes]:
    kind, where, what = options.edcs[0]
    if kind.endswith("_file"):
        try:
            init = Path(what).read_bytes()
        except OSError as problem:
            raise InputError(what, f"cannot be read: {problem.strerror}") from None
    else:
        init = os.fsencode(what)
    if "socket" in kind:
        return ZmqPeer(where, options.edc_timeout), init
    method = options.edc_library_load_method
    return (InProcessLibrary(where, method) if guard is None else guard.library(where, method)), init


class Conversation:
    """The turns between the world and the component."""

    def __init__(self, scene: Scene, outputs: Batsim5Outputs, decider: EdcDecider, log: Log, options: Options) -> None:
        self._scene = scene
        self._outputs = outputs
        self._decider = decider
        decider.precision_s = 0.0  # SimGrid sleeps for any time, however short: that decides between ties.
        self._log = log
        self._options = options
        self._began_at = time.perf_counter()
        self._edc_s = 0.0
        self._server: Batsim5Server | None = None
        self._master = scene.platform.host(-1).name

    def run(self) -> int:
        """To the end, or to the first mistake; the files are complete either way."""
        code = ABORTED
        try:
            code = self._converse()
        except DecisionError as problem:
            self._log.critical(problem.detail, self._now(), self._master)
        except PeerError as problem:
            self._log.critical(f"{problem.problem} ({problem.peer})", self._now(), self._master)
        except PilothouseError as problem:
            self._log.critical(str(problem), self._now(), self._master)
        finally:
            self._outputs.close()
            try:
                self._decider.close()
            except PeerError as problem:
                self._log.critical(str(problem), self._now(), self._master)
                code = ABORTED
        if code == 0 and self._server is not None:
            self._summarize(self._server)
        return code

    @property
    def ended_at(self) -> float:
        """The date that the simulation has come to."""
        return self._now()

    def _now(self) -> float:
        return self._server.agenda.now if self._server is not None else 0.0

    def _converse(self) -> int:
        decider = self._decider
        wants = decider.hello()
        server = self._server = self._scene.server(self._outputs, wants if self._options.strict else None)
        server.decider = decider.name
        if wants.dynamic_registration:
            self._log.warning(
                "Dynamic registration of jobs is ENABLED. "
                "The EDC MUST send a FinishRegistrationEvent to let Batsim end the simulation.",
                0.0,
                self._master,
            )
        world = ControlledWorld(server)
        begins = world.begin(_registration(wants))
        decider.begin(begins, Cluster(begins, decider.name))
        server.decide = self._ask
        end = world.advance()  # the whole simulation: the server asks for decisions itself
        if end is not None:
            assert type(end.events[-1]) is Ended, "a batch that the server did not ask about"
            self._log.critical(DEADLOCK, end.now, self._master)
            return 1
        return 0

    def _ask(self, batch: Batch) -> Reply:
        asked_at = time.perf_counter()
        reply = self._decider.decide(batch)
        self._edc_s += time.perf_counter() - asked_at
        server = self._server
        if server is not None and server.warnings:
            for line in server.warnings:
                self._log.warning(line, batch.now, self._master)
            server.warnings.clear()
        return reply

    def _summarize(self, server: Batsim5Server) -> None:
        now = server.agenda.now
        self._log.info("server", "Simulation is finished!", now, self._master)
        elapsed = time.perf_counter() - self._began_at
        found = self._outputs.finish(server, edc_s=self._edc_s, simulation_s=elapsed)
        jobs = ", ".join(f"{name}={found[f'nb_jobs_{name}']}" for name in ("finished", "success", "killed"))
        self._log.info("export", f"jobs={found['nb_jobs']}, {jobs}", now)


def _registration(wants: Wants) -> Wants:
    """What the world must know of the hello; the rest is the decider's own business, or a matter of --strict."""
    return Wants(
        dynamic_registration=wants.dynamic_registration,
        acknowledge_registration=wants.acknowledge_registration,
        profile_reuse=wants.profile_reuse,
        forward_profiles=wants.forward_profiles,
    )


def end_by_abort() -> None:
    """Ends this process as a failed assertion would, without a core file."""
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGABRT)
