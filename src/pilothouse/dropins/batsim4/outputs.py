"""The files that Batsim 4 leaves behind: PREFIX_jobs.csv, _schedule.csv, _machine_states.csv and more.

In: what happens to machines and jobs. Out: the files, byte for byte in Batsim's format. They are written as the run goes,
and kept whatever happens.
"""

from __future__ import annotations

from typing import TextIO

from pilothouse.dropins.batsim_tables import BatsimTables, written
from pilothouse.formats.jobs_csv import JobsCsv
from pilothouse.formats.paje import PajeTrace
from pilothouse.launch.output_files import opened
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.simulated.physics.machines import Machines, Tracer, numbers_of

_CUT = (JobState.KILLED, JobState.TIMED_OUT)


class Batsim4Outputs(BatsimTables):
    """`finish` writes the summary."""

    version = "v4.2.1"
    """The Batsim whose place is taken; scripts read it from the summary."""
    left_out: frozenset[str] = frozenset()
    """Figures that are not in the summary."""

    def __init__(
        self, prefix: str, *, energy: bool = False, machine_states: bool = True, schedule_trace: bool = True
    ) -> None:
        jobs = self.jobs_table(opened(f"{prefix}_jobs.csv"))
        super().__init__(f"{prefix}_", jobs, energy=energy, machine_states=machine_states, pstate_changes=energy)
        self._trace_file = opened(f"{prefix}_schedule.trace") if schedule_trace else None
        self._trace: PajeTrace | None = None

    def jobs_table(self, stream: TextIO) -> JobsCsv:
        return JobsCsv(stream, profile_prefix=False, quoted_metadata=True)

    def annotate(self, job_id: str, text: str) -> None:
        """Metadata of a job that has ended: its row is written."""

    @property
    def tracers(self) -> list[Tracer]:
        return super().tracers if self._trace_file is None else [self]

    # ---- what happens

    def began(self, machines: Machines) -> None:
        if self._trace_file is not None:
            self._trace = PajeTrace(self._trace_file, [machine.name for machine in machines])
        super().began(machines)

    def job_started(self, machines: Machines, job_id: str, units: IdSet) -> None:
        if self._energy is not None:
            super().job_started(machines, job_id, units)
        if self._trace is not None:
            self._trace.compute(machines.agenda.now, job_id, numbers_of(units.mask))

    def job_ended(self, machines: Machines, job_id: str, units: IdSet, state: JobState) -> None:
        if self._energy is not None:
            super().job_ended(machines, job_id, units, state)
        trace = self._trace
        if trace is None:
            return
        now, numbers = machines.agenda.now, numbers_of(units.mask)
        if state in _CUT:
            trace.kill(now, job_id, numbers)
        if not units.mask & ~machines.idle_mask:
            trace.wait(now, numbers)
            return
        shared = [unit for unit in numbers if machines[unit].users]
        trace.wait(now, [unit for unit in numbers if unit not in shared])
        for unit in shared:
            trace.compute(now, machines[unit].users[-1], (unit,))

    def power_state_changed(self, machines: Machines, units: IdSet, power_state: int) -> None:
        super().power_state_changed(machines, units, power_state)
        if self._energy is not None and power_state >= 0:
            self._write_energy(machines, "p")

    # ---- the end

    def finish(self, machines: Machines, *, scheduling_s: float, simulation_s: float) -> None:
        """Writes the summary and closes all files."""
        self.close()
        if self._trace is not None:
            self._trace.close(machines.agenda.now)
        figures = self.figures_of(machines, self.version, len(machines))
        figures |= {"scheduling_time": scheduling_s, "simulation_time": simulation_s}
        names = sorted(figures.keys() - self.left_out)
        row = ",".join(written(figures[name]) for name in names)
        with opened(f"{self._prefix}schedule.csv") as stream:
            stream.write(f"{','.join(names)}\n{row}\n")
