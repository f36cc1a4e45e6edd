"""Replays usage traces: each rank keeps a fraction of its host's cores busy, phase after phase.

In: a file that lists one trace per rank; a line of a trace is `RANK m_usage USAGE FLOPS`: max(1, round(USAGE x cores))
executors of FLOPS each on the rank's host. Out: over when the last rank has said so. Ranks report to the first host
with a message of four bytes each, taken one after the other, as Batsim 4's replay does; that is why a replay ends a
little after its last phase. In Batsim 5 reports cost nothing (`Demands.ranks_report`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pilothouse.formats.traces import read_usage, trace_files
from pilothouse.model.errors import InputError
from pilothouse.model.events import Progress
from pilothouse.model.profile import Profile, TraceReplay
from pilothouse.worlds.simulated.physics.activities import TIMED_OUT, Activity, Over
from pilothouse.worlds.simulated.physics.sharing import Flow

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.physics.execution import Physics, Run

REPORT_BYTES = 4.0


class Replay(Activity):
    """What replays have in common: ranks on hosts, a walltime, and reports to the first host."""

    __slots__ = ("_began", "_entry", "_flows", "_left", "_queue", "_reporting", "_silent", "hosts")

    def __init__(self, physics: Physics, run: Run, profile: Profile, ranks: int) -> None:
        super().__init__(physics, run, profile)
        hosts = physics.executors(run, profile, ranks)
        self.hosts = [hosts[rank % len(hosts)] for rank in range(ranks)]
        self._flows: dict[Flow, None] = {}
        self._silent = ranks
        self._queue: list[int] = []
        self._reporting = False
        self._entry = 0
        self._began = self._left = 0.0

    def begin(self, left: float, over: Over) -> None:
        self._over, self._left = over, left
        agenda = self.physics.agenda
        self._began = agenda.now
        if left < float("inf"):
            self._entry = agenda.at(agenda.now + left, self._timed_out)
        for rank in range(len(self.hosts)):
            self.begin_rank(rank)

    def begin_rank(self, rank: int) -> None:
        raise NotImplementedError

    def share_done(self) -> float:
        raise NotImplementedError

    def start(self, flow: Flow) -> None:
        """Starts a flow that is stopped with the replay."""
        self._flows[flow] = None
        self.physics.start_flow(flow)

    def ended(self, flow: Flow) -> None:
        self._flows.pop(flow, None)

    def rank_is_over(self, rank: int) -> None:
        """The rank reports to the first host; reports are taken one at a time."""
        if not self.physics.demands.ranks_report:
            self._heard()
            return
        self._queue.append(self.hosts[rank])
        if not self._reporting:
            self._next_report()

    def _next_report(self) -> None:
        if not self._queue:
            return
        self._reporting = True
        physics = self.physics
        flow = physics.demands.message(self._queue.pop(0), self.run.units.first(), REPORT_BYTES, self._reported)
        self.start(flow)

    def _reported(self, flow: Flow) -> None:
        self.ended(flow)
        self._reporting = False
        self._heard()

    def _heard(self) -> None:
        """One more rank is known to be over."""
        self._silent -= 1
        if self._silent:
            self._next_report()
            return
        agenda = self.physics.agenda
        if self._entry:
            agenda.cancel(self._entry)
        self._over(self.profile.return_code, max(0.0, self._left - (agenda.now - self._began)))

    def _timed_out(self, _: object) -> None:
        self._entry = 0
        self.stop_all()
        self._over(TIMED_OUT, 0.0)

    def stop_all(self) -> None:
        for flow in self._flows:
            self.physics.stop_flow(flow)
        self._flows.clear()
        self._queue.clear()

    def cancel(self) -> Progress:
        if self._entry:
            self.physics.agenda.cancel(self._entry)
        share = self.share_done()
        self.stop_all()
        return Progress(self.profile.name, share)


class UsageReplay(Replay):
    """Fractions of processors over time."""

    __slots__ = ("_phases", "_places")

    def __init__(self, physics: Physics, run: Run, profile: Profile, spec: TraceReplay) -> None:
        files = trace_files(spec.path)
        super().__init__(physics, run, profile, len(files))
        if not physics.demands.ranks_report and len(set(self.hosts)) < len(files):
            problem = f"job {run.job.id}: {len(files)} ranks on {len(set(self.hosts))} hosts"
            raise InputError(spec.path, problem, expected="each rank of a usage trace on a host of its own")
        self._phases = [read_usage(path) for path in files]
        self._places = [0] * len(files)

    def begin_rank(self, rank: int) -> None:
        self._next_phase(rank, None)

    def _next_phase(self, rank: int, flow: Flow | None) -> None:
        if flow is not None:
            self.ended(flow)
        phases, place = self._phases[rank], self._places[rank]
        if place == len(phases):
            self.rank_is_over(rank)
            return
        self._places[rank] = place + 1
        usage, flop = phases[place]
        physics, host = self.physics, self.hosts[rank]
        assert physics.platform is not None
        cores = physics.platform.hosts[host].cores
        count = max(1, int(usage * cores + 0.5))
        self.start(physics.demands.task([host] * count, [flop] * count, (), partial(self._next_phase, rank)))

    def share_done(self) -> float:
        total = sum(len(phases) for phases in self._phases)
        return sum(max(0, place - 1) for place in self._places) / total if total else 0.0
