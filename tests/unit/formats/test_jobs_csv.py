"""jobs.csv: rows as Batsim writes them, and reading them back."""

from __future__ import annotations

import io
from math import inf
from pathlib import Path

import pytest

from pilothouse.formats import jobs_csv
from pilothouse.formats.jobs_csv import JobsCsv
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord


def record(name: str = "w0!a", start: float | None = 2.0, end: float = 12.0, **more: object) -> JobRecord:
    job = Job(name, 2, 50.0, 1.0, Profile("w0!p", Delay(10.0)))
    state = JobState.REFUSED if start is None else JobState.SUCCEEDED
    return JobRecord(job, state, start, end, IdSet() if start is None else IdSet.parse("0-1"), **more)  # type: ignore[arg-type]


def written(*records: JobRecord, **options: bool) -> list[str]:
    stream = io.StringIO()
    table = JobsCsv(stream, **options)
    for one in records:
        table.write(one)
    table.flush()
    return stream.getvalue().splitlines()[1:]


def test_a_row_in_all_its_columns() -> None:
    assert written(record(energy_j=5.0)) == [
        "a,w0,w0!p,1.000000,2,50.000000,1,COMPLETED_SUCCESSFULLY,2.000000,10.000000,12.000000,1.000000,11.000000,1.100000,"
        "0-1,5.000000,"
    ]


def test_jobs_that_never_started_and_names_without_workload() -> None:
    assert written(record("a", None), profile_prefix=False) == ["a,,p,1.000000,2,50.000000,0,REJECTED,,,,,,,,,"]


@pytest.mark.parametrize(
    ("text", "quoted", "cell"), [("", True, '""'), ("x", True, '"x"'), ("x", False, "x"), ('a,"b', False, '"a,""b"')]
)
def test_metadata(text: str, quoted: bool, cell: str) -> None:
    (row,) = written(record(metadata=text), quoted_metadata=quoted)
    assert row.endswith(f",-1.000000,{cell}")


def test_rows_are_written_some_thousand_at_a_time() -> None:
    stream = io.StringIO()
    table = JobsCsv(stream)
    for _ in range(100_000):
        table.write(record())
    assert stream.getvalue().count("\n") > 90_000


def test_rows_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    with path.open("w") as stream:
        table = JobsCsv(stream)
        for one in (record(), record("w0!b", None), record("w0!c", 3.0, 3.5, metadata="a,b", energy_j=2.0)):
            table.write(one)
        table.flush()
    rows = list(jobs_csv.read(path))
    assert [(row.id, row.profile, row.submitted_at, row.units, row.walltime, row.started_at, row.ended_at) for row in rows] == [
        ("w0!a", "w0!p", 1.0, 2, 50.0, 2.0, 12.0),
        ("w0!b", "w0!p", 1.0, 2, 50.0, None, None),
        ("w0!c", "w0!p", 1.0, 2, 50.0, 3.0, 3.5),
    ]
    assert rows[2].metadata == "a,b"


def test_no_limit_is_written_as_minus_one(tmp_path: Path) -> None:
    job = Job("w0!a", 1, inf, 0.0)
    (row,) = written(JobRecord(job, JobState.FAILED, 0.0, 1.0, IdSet.parse("3")))
    assert row.split(",")[4:8] == ["1", "-1.000000", "0", "COMPLETED_FAILED"]
    path = tmp_path / "jobs.csv"
    path.write_text(jobs_csv.COLUMNS + "\n" + row + "\n")
    assert next(jobs_csv.read(path)).walltime == inf


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "COLUMNS\na,w0,p,x,1,1,1,S,0,0,0,0,0,0,0,0,\n", "COLUMNS\na\n"])
def test_what_is_no_table_of_jobs(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(text.replace("COLUMNS", jobs_csv.COLUMNS))
    with pytest.raises(InputError):
        list(jobs_csv.read(path))
