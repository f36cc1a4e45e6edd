"""The files that Batsim 4 leaves behind: PREFIX_jobs.csv, _schedule.csv, _machine_states.csv and more.

In: what a message server lets a Watcher see. Out: the files, byte for byte in Batsim's format. They are written as
the run goes, and kept whatever happens.
"""

from __future__ import annotations

from math import fsum, isnan, nan
from operator import itemgetter, sub
from typing import TextIO

from pilothouse.cli.outputs import opened
from pilothouse.formats.jobs_csv import JobsCsv
from pilothouse.formats.paje import PajeTrace
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.control import Known, Server, Watcher
from pilothouse.worlds.simulated.machine_book import numbers_of
from pilothouse.worlds.simulated.machines import MachineState

VERSION = "v4.2.1"
"""The Batsim whose place is taken; scripts read it from the summary."""

SHORTEST_RUN_S = 1e-5
"""A job that took no time is written as if it took this long."""

_STATES = (
    MachineState.SLEEPING,
    MachineState.SWITCHING_ON,
    MachineState.SWITCHING_OFF,
    MachineState.IDLE,
    MachineState.COMPUTING,
)


_of_states = itemgetter(*_STATES)


class Batsim4Outputs(Watcher):
    """`finish` writes the summary."""

    def __init__(
        self, prefix: str, *, energy: bool = False, machine_states: bool = True, schedule_trace: bool = True
    ) -> None:
        self._prefix = prefix
        self._traces_schedule = schedule_trace
        self._trace: PajeTrace | None = None
        self._jobs = JobsCsv(opened(f"{prefix}_jobs.csv"), profile_prefix=False, quoted_metadata=True)
        columns = ",".join(["time", *(f"nb_{state.name.lower()}" for state in _STATES)])
        self._states = self._table("machine_states", columns) if machine_states else None
        self._energy = self._table("consumed_energy", "time,energy,event_type,wattmin,epower") if energy else None
        self._pstates = self._table("pstate_changes", "time,machine_id,new_pstate") if energy else None
        self._last_energy: tuple[float, list[float]] = (0.0, [])
        self._energy_at_first_submission = -1.0
        self._energy_at_last_end = -1.0
        self._summary = Summary()

    def _table(self, name: str, columns: str) -> TextIO:
        stream = opened(f"{self._prefix}_{name}.csv")
        stream.write(columns + "\n")
        return stream

    # ---- what happens

    def began(self, server: Server) -> None:
        if self._traces_schedule:
            names = [machine.name for machine in server.machines.machines]
            self._trace = PajeTrace(opened(f"{self._prefix}_schedule.trace"), names)
        if self._pstates is not None:
            for power_state, units in server.machines.by_power_state():
                self._pstates.write(f"0,{units},{power_state}\n")

    def job_due(self, server: Server) -> None:
        """The first submission is where the summary's energy starts."""
        if self._energy is not None and self._energy_at_first_submission < 0:
            self._energy_at_first_submission = server.energy_j()

    def job_started(self, server: Server, known: Known) -> None:
        if self._energy is not None:
            assert known.run is not None
            known.energy_j = -server.energy_j(known.run.units)
            self._trace_energy(server, "s")
        if self._trace is not None and known.run is not None:
            self._trace.compute(server.agenda.now, known.job.id, numbers_of(known.run.units.mask))
        self.machines_changed(server)

    def job_left(self, server: Server, known: Known) -> None:
        if self._energy is not None:
            assert known.run is not None and known.energy_j is not None
            known.energy_j += server.energy_j(known.run.units)
            self._energy_at_last_end = self._trace_energy(server, "e")
        if self._trace is not None:
            self._trace_end(server, self._trace, known)
        self.machines_changed(server)

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
        self._summary.add(record)

    def before_switch(self, server: Server) -> None:
        if self._energy is not None:
            self._trace_energy(server, "p")

    def switch_asked(self, server: Server, units: IdSet, mark: int) -> None:
        self._trace_power(server, units, mark)

    def switch_done(self, server: Server, units: IdSet, power_state: int) -> None:
        self._trace_power(server, units, power_state)
        if self._energy is not None:
            self._trace_energy(server, "p")

    def machines_changed(self, server: Server) -> None:
        if self._states is not None:
            sleeping, on, off, idle, computing = _of_states(server.machines.counts)
            self._states.write(f"{server.agenda.now:g},{sleeping},{on},{off},{idle},{computing}\n")

    def _trace_power(self, server: Server, units: IdSet, power_state: int) -> None:
        if self._pstates is not None:
            self._pstates.write(f"{server.agenda.now:g},{units},{power_state}\n")

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

    def flush(self) -> None:
        """Everything that was written so far reaches the disk."""
        self._jobs.flush()
        for stream in (self._states, self._energy, self._pstates):
            if stream is not None:
                stream.flush()

    def finish(self, server: Server, *, scheduling_s: float, simulation_s: float) -> None:
        """Writes the summary and closes all files."""
        self._jobs.close()
        for stream in (self._states, self._energy, self._pstates):
            if stream is not None:
                stream.close()
        if self._trace is not None:
            self._trace.close(server.agenda.now)
        columns = self._summary.columns() | {
            "batsim_version": VERSION,
            "consumed_joules": self._joules(),
            "nb_computing_machines": len(server.machines),
            "nb_grouped_switches": server.machines.grouped_switches,
            "nb_machine_switches": server.machines.switched_machines,
            "scheduling_time": scheduling_s,
            "simulation_time": simulation_s,
        }
        columns |= {f"time_{state.name.lower()}": server.machines.seconds[state] for state in MachineState}
        names = sorted(columns)
        row = ",".join(_written(columns[name]) for name in names)
        with opened(f"{self._prefix}_schedule.csv") as stream:
            stream.write(f"{','.join(names)}\n{row}\n")

    def _joules(self) -> float:
        return self._energy_at_last_end - self._energy_at_first_submission if self._energy is not None else 0.0


class Summary:
    """The figures of _schedule.csv. Means divide by all jobs, the rejected ones included."""

    def __init__(self) -> None:
        self.jobs = self.finished = self.succeeded = 0
        self.makespan = 0.0
        self._sums = [0.0, 0.0, 0.0]
        self._most = [0.0, 0.0, 0.0]

    def add(self, record: JobRecord) -> None:
        self.jobs += 1
        start = record.started_at
        if start is None:
            return
        self.finished += 1
        self.succeeded += record.state is JobState.SUCCEEDED
        ended, submitted = record.ended_at, record.job.submitted_at
        if ended > self.makespan:
            self.makespan = ended
        waiting, turnaround = start - submitted, ended - submitted
        slowdown = turnaround / (ended - start if record.execution_s is None else record.execution_s)
        sums, most = self._sums, self._most
        sums[0] += waiting
        sums[1] += turnaround
        sums[2] += slowdown
        if waiting > most[0]:
            most[0] = waiting
        if turnaround > most[1]:
            most[1] = turnaround
        if slowdown > most[2]:
            most[2] = slowdown

    def columns(self) -> dict[str, float | int | str]:
        columns: dict[str, float | int | str] = {
            "makespan": self.makespan,
            "nb_jobs": self.jobs,
            "nb_jobs_finished": self.finished,
            "nb_jobs_killed": self.finished - self.succeeded,
            "nb_jobs_rejected": self.jobs - self.finished,
            "nb_jobs_success": self.succeeded,
            "success_rate": self.succeeded / self.jobs if self.jobs else nan,
        }
        for index, name in enumerate(("waiting_time", "turnaround_time", "slowdown")):
            columns[f"mean_{name}"] = self._sums[index] / self.jobs if self.jobs else nan
            columns[f"max_{name}"] = self._most[index]
        return columns


def _written(value: float | int | str) -> str:
    if isinstance(value, float):
        return "-nan" if isnan(value) else f"{value:f}"
    return str(value)
