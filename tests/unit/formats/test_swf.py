"""Logs of the Parallel Workloads Archive: which columns are read, what is odd, and our own logs."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from pilothouse.formats import swf
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.record import JobRecord


def line(number: int, submit: float, run: float, used: int, asked: int, walltime: float, user: str = "7") -> str:
    return f"{number} {submit} -1 {run} {used} -1 -1 {asked} {walltime} -1 1 {user} -1 -1 -1 -1 -1 -1\n"


def read(tmp_path: Path, text: str, units: int = 0) -> swf.Workload:
    path = tmp_path / "log.swf"
    path.write_text(text)
    return swf.read(path, units=units)


def test_the_columns(tmp_path: Path) -> None:
    found = read(tmp_path, "; MaxProcs: 64\n; Note: x\n" + line(2, 5, 30, 4, 8, 60) + line(1, 5, 10.5, 4, -1, 20, "u"))
    assert found.units == 64
    assert [(job.id, job.submitted_at, job.units, job.walltime, job.runtime, job.user) for job in found.jobs] == [
        ("w0!1", 5.0, 4, 20.0, 10.5, "u"),
        ("w0!2", 5.0, 8, 60.0, 30.0, "7"),
    ]


@pytest.mark.parametrize(
    ("text", "kept", "odd"),
    [
        (line(1, 0, 10, 0, 0, 20), 0, 1),
        (line(1, 0, -1, 1, 1, 20), 0, 1),
        (line(1, -1, 10, 1, 1, 20), 0, 1),
        (line(1, 0, 10, 9, 9, 20), 0, 1),
        (line(1, 0, 10, 8, 8, 20), 1, 0),
        (line(1, 0, 10, 1, 1, 0), 1, 1),
        (line(1, 0, 10, 1, 1, 9), 1, 1),
        (line(1, 0, 10, 1, 1, 10), 1, 0),
        (line(1, 0, 0, 1, 1, 10), 1, 1),
        (line(1, 5, 10, 1, 1, 10) + line(2, 4, 10, 1, 1, 10), 2, 1),
        (line(1, 5, 10, 1, 1, 10) + line(2, 5, 10, 1, 1, 10), 2, 0),
    ],
)
def test_oddities_are_counted(tmp_path: Path, text: str, kept: int, odd: int) -> None:
    found = read(tmp_path, text, units=8)
    assert (len(found.jobs), sum(found.oddities.values())) == (kept, odd)


def test_a_job_without_request_is_taken_to_ask_for_what_it_used(tmp_path: Path) -> None:
    found = read(tmp_path, line(1, 0, 10, 1, 1, -1) + line(2, 0, 0, 1, 1, -1))
    assert [job.walltime for job in found.jobs] == [10.0, 1.0]


@pytest.mark.parametrize("text", ["", "; MaxProcs: 4\n", "1 2 3\n", line(1, 0, 1, 1, 1, 1) * 2, line(1, inf, 1, 1, 1, 1)])
def test_what_is_no_log(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError):
        read(tmp_path, text)


@pytest.mark.parametrize(("header", "units"), [("; MaxNodes: 12", 12), ("; MaxProcs: x", 0), ("; MaxProcs:", 0), ("; Max: 9", 0)])
def test_the_size_of_the_machine(tmp_path: Path, header: str, units: int) -> None:
    assert read(tmp_path, f"{header}\n" + line(1, 0, 1, 1, 1, 1)).units == units


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    jobs = [Job("w0!2", 3, inf, 4.0, user="x"), Job("w0!10", 2, 50.5, 4.0, user="12"), Job("w0!1", 1, 9.0, 1.25, user="-3")]
    records = [
        JobRecord(jobs[0], JobState.SUCCEEDED, 5.0, 15.0, IdSet.span(0, 3)),
        JobRecord(jobs[1], JobState.KILLED, 6.5, 7.0, IdSet.span(4, 2)),
        JobRecord(jobs[2], JobState.REFUSED, None, 1.25, IdSet()),
    ]
    text = swf.write(records, 16)
    assert text.endswith("-1\n") and "; MaxProcs: 16\n" in text
    rows = [row.split() for row in text.splitlines() if not row.startswith(";")]
    # number, submission, wait, run, units, request, time, status, user
    assert [[row[i] for i in (0, 1, 2, 3, 4, 7, 8, 10, 11)] for row in rows] == [
        ["1", "1.25", "-1", "-1", "-1", "1", "9", "-1", "-3"],
        ["2", "4", "1", "10", "3", "3", "-1", "1", "-1"],
        ["3", "4", "2.5", "0.5", "2", "2", "50.5", "5", "12"],
    ]
    assert [job.units for job in read(tmp_path, text).jobs] == [3, 2]
