"""The table of `--ask-estimates`: how long the scheduler thinks that jobs would wait that are not submitted.

In: the potential jobs, and answers. Out: a CSV file with a row for each job, by the date of the question. A question without
an answer has an empty cell; `inf` is a job that would never start.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from pilothouse.launch.output_files import opened
from pilothouse.model.decisions import AnswerEstimate
from pilothouse.model.job import Job

COLUMNS = "job_id,asked_at,requested_number_of_resources,requested_time,estimated_waiting_time"


class EstimateTable:
    """`answered` takes an answer; `close` writes the file."""

    def __init__(self, path: str, jobs: Sequence[Job]) -> None:
        self.path = path
        self._jobs = jobs
        self._answers: dict[str, float] = {}
        self._stream = opened(path)

    def answered(self, answer: AnswerEstimate) -> None:
        self._answers[answer.job_id] = answer.seconds

    def close(self) -> None:
        rows = [COLUMNS]
        for job in sorted(self._jobs, key=lambda job: job.submitted_at):
            walltime = -1.0 if job.walltime == inf else job.walltime
            seconds = self._answers.get(job.id)
            estimate = "" if seconds is None else f"{seconds:f}"
            rows.append(f"{job.id},{job.submitted_at:f},{job.units},{walltime:f},{estimate}")
        self._stream.write("\n".join(rows) + "\n")
        self._stream.close()
