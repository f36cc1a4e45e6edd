"""The files that Batsim 4 leaves behind: PREFIX_jobs.csv, _schedule.csv, _machine_states.csv and more.

In: what a message server lets a Watcher see. Out: the files, byte for byte in Batsim's format. They are written as
the run goes, and kept whatever happens.
"""

from __future__ import annotations

from math import fsum
from operator import sub

from pilothouse.dropins.batsim_tables import Tables, written
from pilothouse.formats.jobs_csv import JobsCsv
from pilothouse.formats.paje import PajeTrace
from pilothouse.launch.outputs import opened
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.message_server.machine_book import numbers_of
from pilothouse.worlds.simulated.message_server.server import Known, Server
from pilothouse.worlds.simulated.physics.execution import SHORTEST_RUN_S

VERSION = "v4.2.1"
"""The Batsim whose place is taken; scripts read it from the summary."""


class Batsim4Outputs(Tables):
    """`finish` writes the summary."""

    def __init__(
        self, prefix: str, *, energy: bool = False, machine_states: bool = True, schedule_trace: bool = True
    ) -> None:
        self._jobs = JobsCsv(opened(f"{prefix}_jobs.csv"), profile_prefix=False, quoted_metadata=True)
        super().__init__(f"{prefix}_", energy=energy, machine_states=machine_states, pstate_changes=energy)
        self._traces_schedule = schedule_trace
        self._trace: PajeTrace | None = None
        self._last_energy: tuple[float, list[float]] = (0.0, [])
        self._energy_at_first_submission = -1.0

    # ---- what happens

    def began(self, server: Server) -> None:
        if self._traces_schedule:
            names = [machine.name for machine in server.machines.machines]
            self._trace = PajeTrace(opened(f"{self._prefix}schedule.trace"), names)
        super().began(server)

    def job_due(self, server: Server) -> None:
        """The first submission is where the summary's energy starts."""
        if self._energy is not None and self._energy_at_first_submission < 0:
            self._energy_at_first_submission = server.energy_j()

    def job_started(self, server: Server, known: Known) -> None:
        super().job_started(server, known)
        if self._trace is not None and known.run is not None:
            self._trace.compute(server.agenda.now, known.job.id, numbers_of(known.run.units.mask))

    def job_left(self, server: Server, known: Known) -> None:
        super().job_left(server, known)
        if self._trace is not None:
            self._trace_end(server, self._trace, known)

    def _trace_end(self, server: Server, trace: PajeTrace, known: Known) -> None:
        assert known.run is not None
        now, units = server.agenda.now, numbers_of(known.run.units.mask)
        if known.state in (JobState.KILLED, JobState.TIMED_OUT):
            trace.kill(now, known.job.id, units)
        if not server.begins.compute_sharing:
            trace.wait(now, units)
            return
        shared = [unit for unit in units if server.machines[unit].users]
        trace.wait(now, [unit for unit in units if unit not in shared])
        for unit in shared:
            trace.compute(now, server.machines[unit].users[-1], (unit,))

    def job_over(self, record: JobRecord) -> None:
        if record.started_at is not None and record.ended_at - record.started_at <= 0:
            record.execution_s = SHORTEST_RUN_S
            record.ended_at = record.started_at + SHORTEST_RUN_S
        self._jobs.write(record)
        self.summary.add(record)

    def switch_done(self, server: Server, units: IdSet, power_state: int) -> None:
        super().switch_done(server, units, power_state)
        if self._energy is not None:
            self._trace_energy(server, "p")

    def _trace_energy(self, server: Server, kind: str) -> float:
        machines = server.physics.machines
        assert self._energy is not None and machines is not None
        machines.energy_j()
        meters = machines.meters
        watts = sum(meter.range(state).epsilon for meter, state in zip(meters, machines.pstates, strict=True))
        now, joules = server.agenda.now, [meter.joules for meter in meters]
        before, joules_before = self._last_energy
        # Machine by machine: the difference of two large sums would lose what a short time adds.
        added = fsum(map(sub, joules, joules_before)) if joules_before else fsum(joules)
        power = f"{added / (now - before):f}" if now > before else "NA"
        total = fsum(joules)
        self._energy.write(f"{now:f},{total:f},{kind},{watts:f},{power}\n")
        self._last_energy = (now, joules)
        return total

    # ---- the end

    def finish(self, server: Server, *, scheduling_s: float, simulation_s: float) -> None:
        """Writes the summary and closes all files."""
        self._jobs.close()
        self.close_tables()
        if self._trace is not None:
            self._trace.close(server.agenda.now)
        figures = self.figures(server) | {
            "batsim_version": VERSION,
            "consumed_joules": self._joules(),
            "nb_computing_machines": len(server.machines),
            "scheduling_time": scheduling_s,
            "simulation_time": simulation_s,
        }
        names = sorted(figures)
        row = ",".join(_written(figures[name]) for name in names)
        with opened(f"{self._prefix}schedule.csv") as stream:
            stream.write(f"{','.join(names)}\n{row}\n")

    def _joules(self) -> float:
        return self._energy_at_last_end - self._energy_at_first_submission if self._energy is not None else 0.0


def _written(value: float | int | str) -> str:
    return value if isinstance(value, str) else written(value)
