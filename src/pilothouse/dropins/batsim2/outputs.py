"""The files that Batsim 2 leaves behind. They differ from Batsim 4's in columns, in the order of rows and in energy.

In: what happens to machines and jobs. Out: the files. Rows of jobs are written at the end of the run, because metadata may
still change until then.
"""

from __future__ import annotations

from math import inf
from typing import TextIO

from pilothouse.dropins.batsim4.outputs import Batsim4Outputs
from pilothouse.formats.jobs_csv import JobsCsv
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.physics.machines import Machines

COLUMNS = (
    "allocated_processors,consumed_energy,execution_time,finish_time,job_id,metadata,requested_number_of_processors,"
    "requested_time,starting_time,stretch,submission_time,success,turnaround_time,waiting_time,workload_name"
)


class Batsim2JobsCsv(JobsCsv):
    """jobs.csv of Batsim 2: by full id. Rejected jobs are left out (specification, REJECT_JOB)."""

    columns = COLUMNS

    def write(self, record: JobRecord) -> None:
        if record.started_at is not None:
            self._records.append(record)

    def write_all(self, records: list[JobRecord]) -> None:
        for record in sorted(records, key=lambda record: record.job.id):
            self._stream.write(_row(record))


def _row(record: JobRecord) -> str:
    job, started, ended = record.job, record.started_at, record.ended_at
    assert started is not None
    workload, _, local = job.id.partition("!")
    execution = ended - started if record.execution_s is None else record.execution_s
    turnaround = ended - job.submitted_at
    energy = -1.0 if record.energy_j is None else record.energy_j
    walltime = -1.0 if job.walltime == inf else job.walltime
    return (
        f'{record.units},{energy:f},{execution:f},{ended:f},{local},"{record.metadata}",{job.units},'
        f"{walltime:f},{started:f},{turnaround / execution:f},{job.submitted_at:f},"
        f"{record.state is JobState.SUCCEEDED:d},{turnaround:f},{started - job.submitted_at:f},{workload}\n"
    )


class Batsim2Outputs(Batsim4Outputs):
    version = "v2.0.0"
    left_out = frozenset(("nb_jobs_rejected", "time_unavailable"))
    energy_format = "g"

    def __init__(
        self, prefix: str, *, energy: bool = False, machine_states: bool = True, schedule_trace: bool = True
    ) -> None:
        super().__init__(prefix, energy=energy, machine_states=machine_states, schedule_trace=schedule_trace)
        self._joules_before: dict[str, float] = {}
        self._ended: dict[str, JobRecord] = {}

    def jobs_table(self, stream: TextIO) -> JobsCsv:
        return Batsim2JobsCsv(stream)

    def job_started(self, machines: Machines, job_id: str, units: IdSet) -> None:
        super().job_started(machines, job_id, units)
        if self._energy is not None:
            self._joules_before[job_id] = machines.energy_j(units)

    def record(self, record: JobRecord) -> None:
        """QUIRK: the energy of a job that was not killed is what its hosts had consumed before it (golden: sleep)."""
        before = self._joules_before.pop(record.job.id, None)
        if before is not None and record.state is not JobState.KILLED:
            record.energy_j = before
        self._ended[record.job.id] = record
        super().record(record)

    def annotate(self, job_id: str, text: str) -> None:
        self._ended[job_id].metadata = text
