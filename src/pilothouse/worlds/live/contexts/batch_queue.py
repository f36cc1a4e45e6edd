"""The batch jobs of one run: submitted, listed and cancelled by the commands of a batch system.

In: a row of batch_systems.py, options, job ids. Out: ids; PeerError if a command fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pilothouse.model.errors import PeerError, one_line
from pilothouse.worlds.live.contexts.batch_systems import BatchJob, BatchSystem
from pilothouse.worlds.slurm_commands import run


class BatchQueue:
    """All jobs are the same."""

    def __init__(self, system: BatchSystem, job: BatchJob) -> None:
        self._system = system
        self._job = job

    def submit(self) -> str:
        """The id of the new job. Raises PeerError with the batch system's complaint."""
        command = self._system.submit(self._job)
        answer = run(command)
        found = re.search(self._system.job_id, answer, re.MULTILINE)
        if found is None:
            raise PeerError(command[0], f"its answer has no job id: {one_line(answer)}")
        return self._system.plain_id(found[1])

    def known(self, job_ids: Sequence[str]) -> set[str]:
        """Those of the jobs that wait or run."""
        system = self._system
        if not job_ids:
            return set()
        try:
            listed = run(system.listing(self._job.name))
        except PeerError as error:
            if not system.nothing or system.nothing not in str(error):
                raise
            listed = ""
        rows = [line.split() for line in listed.splitlines()]
        id_at, state_at = system.id_and_state
        present = {system.plain_id(row[id_at]) for row in rows if len(row) > state_at and row[state_at] not in system.over}
        return present & set(job_ids)

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Those that have ended meanwhile are no error."""
        if not job_ids:
            return
        try:
            run([*self._system.cancel, *job_ids])
        except PeerError:
            if self.known(job_ids):
                raise
