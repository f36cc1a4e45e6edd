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

from pilothouse.core.contract import WORLD_JUDGES
from pilothouse.core.session import Session
from pilothouse.dropins.batsim5.guard import Guard, GuardedLibrary
from pilothouse.dropins.batsim5.inputs import Batsim5Inputs
from pilothouse.dropins.batsim5.options import VERSION, Options
from pilothouse.dropins.batsim5.outputs import Batsim5Outputs
from pilothouse.dropins.batsim_decider import MeasuredDecider
from pilothouse.launch.running import calm_collector
from pilothouse.model.decisions import Wants
from pilothouse.model.errors import DecisionError, InputError, PeerError, PilothouseError
from pilothouse.protocols.batprotocol.channel import Channel, InProcessLibrary, ZmqPeer
from pilothouse.protocols.batprotocol.codec import Format
from pilothouse.protocols.batprotocol.decider import EdcDecider
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.message_server.world import MessageServerWorld

DEADLOCK = "The simulation could NOT finish because a deadlock was detected in SimGrid."
ABORTED = -signal.SIGABRT


class Log:
    """Lines on stderr, as the real program's log has them: date, who, how bad, what."""

    def __init__(self, verbosity: str) -> None:
        self.is_quiet = verbosity == "quiet"
        self.master = ""
        self.date: Callable[[], float] = lambda: 0.0

    def info(self, category: str, text: str) -> None:
        if not self.is_quiet:
            self._write(f"{category}/INFO", text)

    def warning(self, text: str) -> None:
        if not self.is_quiet:
            self._write("server/WARNING", text)

    def critical(self, text: str, now: float | None = None, master: str = "") -> None:
        self._write("root/CRITICAL", text, now, master)

    def _write(self, what: str, text: str, now: float | None = None, master: str = "") -> None:
        who = master or self.master
        who = f"{who}:server:(1) " if who else ""
        sys.stderr.write(f"[{who}{self.date() if now is None else now:f}] [{what}] {text}\n")


class LoggedChannel:
    """A channel whose messages are logged where they are text, as the real program logs them."""

    def __init__(self, channel: Channel, batsim_log: Log) -> None:
        self.name = channel.name
        self._channel = channel
        self._log = batsim_log
        self._is_text = False

    def hello(self, init: bytes) -> tuple[int, bytes]:
        flags, answer = self._channel.hello(init)
        self._is_text = Format.of_flags(flags) is Format.JSON
        self._note("Received", answer)
        return flags, answer

    def exchange(self, message: bytes) -> bytes:
        self._note("Sending", message)
        answer = self._channel.exchange(message)
        self._note("Received", answer)
        return answer

    def _note(self, what: str, data: bytes) -> None:
        if self._is_text:
            text = data.rstrip(b"\0").decode(errors="replace")
            self._log.info("server", f"{what} '{text}'")

    def close(self) -> None:
        self._channel.close()


def simulate(options: Options, arguments: list[str]) -> int:
    """The whole run; returns the exit code, ABORTED for what ends the real program with SIGABRT."""
    calm_collector()
    batsim_log = Log(options.verbosity)
    batsim_log.info("batsim", f"Batsim version: {VERSION} (pilothouse)")
    kind, where, _ = options.edcs[0]
    if "library" not in kind or options.inprocess:
        return _simulate(options, arguments, batsim_log, None)
    guard = Guard()
    work = partial(_simulate, options, arguments, batsim_log, guard)
    return guard.run(work, options.edc_timeout, batsim_log.critical, Path(where).name)


def _simulate(options: Options, arguments: list[str], batsim_log: Log, guard: Guard | None) -> int:
    try:
        inputs = Batsim5Inputs(options, arguments)
        if "/" not in options.export and not os.path.exists(options.export):
            # QUIRK: such a prefix has no folder, which Batsim then tries to make.
            raise InputError("--export", "a prefix without a folder", expected="./PREFIX", found=repr(options.export))
        channel, init = _channel(options, guard)
        outputs = Batsim5Outputs(
            options.export,
            energy=options.energy_host,
            machine_states=options.trace_machine_state,
            pstate_changes=options.trace_pstate_changes,
            opened_to_keep=None if guard is None else guard.opened,
        )
        server = inputs.server(outputs)
    except PilothouseError as problem:
        batsim_log.critical(str(problem), 0.0)
        return ABORTED
    for name, path in inputs.begins.workloads.items():
        batsim_log.info("batsim", f"Workload '{name}' corresponds to workload file '{path}'.")
    count = inputs.platform.compute_count
    batsim_log.info("machines", f"The machines have been created successfully. There are {count} computing machines.")
    batsim_log.info("export", f"Export prefix path is '{options.export}'")
    batsim_log.master = inputs.platform.host(-1).name
    batsim_log.date = lambda: server.agenda.now
    if guard is not None:
        guard.note_master(batsim_log.master)
        assert isinstance(channel, GuardedLibrary)
        channel.date = batsim_log.date
    logged = channel if batsim_log.is_quiet else LoggedChannel(channel, batsim_log)
    return run(server, outputs, EdcDecider(logged, init), batsim_log)


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


class _Component(MeasuredDecider):
    """Batsim warns of a component that may register jobs."""

    def __init__(self, decider: EdcDecider, batsim_log: Log) -> None:
        super().__init__(decider)
        decider.precision_s = 0.0  # SimGrid sleeps for any time, however short: that decides between ties.
        decider.lenient = True
        self._log = batsim_log

    def hello(self) -> Wants:
        wants = super().hello()
        if wants.dynamic_registration:
            self._log.warning(
                "Dynamic registration of jobs is ENABLED. "
                "The EDC MUST send a FinishRegistrationEvent to let Batsim end the simulation."
            )
        return wants


def run(server: Server, outputs: Batsim5Outputs, decider: EdcDecider, batsim_log: Log) -> int:
    """To the end, or to the first mistake; returns the exit code. The files are complete either way."""
    began_at = time.perf_counter()
    component = _Component(decider, batsim_log)
    server.warn = batsim_log.warning
    code = ABORTED
    try:
        outcome = Session(MessageServerWorld(server), component, judge=WORLD_JUDGES).run()
        code = 1 if outcome.deadlocked else 0
        if outcome.deadlocked:
            batsim_log.critical(DEADLOCK)
    except DecisionError as problem:
        batsim_log.critical(problem.detail)
    except PeerError as problem:
        batsim_log.critical(f"{problem.problem} ({problem.peer})")
    except PilothouseError as problem:
        batsim_log.critical(str(problem))
    finally:
        outputs.close()
    if component.close_problem is not None:
        batsim_log.critical(str(component.close_problem))
        code = ABORTED
    if code == 0:
        batsim_log.info("server", "Simulation is finished!")
        elapsed = time.perf_counter() - began_at
        found = outputs.finish(server.machines, edc_s=component.spent_s, simulation_s=elapsed)
        jobs = ", ".join(f"{name}={found[f'nb_jobs_{name}']}" for name in ("finished", "success", "killed"))
        batsim_log.info("export", f"jobs={found['nb_jobs']}, {jobs}")
    return code


def end_by_abort() -> None:
    """Ends this process as a failed assertion would, without a core file."""
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGABRT)
