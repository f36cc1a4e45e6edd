"""Writes and reads jobs.csv, in the form of Batsim 5.

One row a job, in the order of their ends; numbers with six decimals. Cost of a row: 1.2 µs, 3 µs without `_rows.c`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import TextIO

import msgspec

from pilothouse.formats.text_input import read_text
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.idset import MOST_ID
from pilothouse.model.lifecycle import BATSIM, JobState
from pilothouse.model.masks import mask_text
from pilothouse.model.record import JobRecord

COLUMNS = (
    "job_id,workload_name,profile,submission_time,requested_number_of_resources,requested_time,success,final_state,"
    "starting_time,execution_time,finish_time,waiting_time,turnaround_time,stretch,allocated_resources,consumed_energy,"
    "metadata"
)
_FLUSH_EVERY = 4096
LATEST_S = 1e11
"""No date is later than this, in seconds: some 3,000 years."""
_SUCCEEDED = JobState.SUCCEEDED


def plain_row(
    local: str,
    workload: str,
    profile: str,
    submitted: float,
    units: int,
    walltime: float,
    success: bool,
    state: str,
    started: float,
    execution: float,
    ended: float,
    allocated: str,
    energy: float,
    metadata: str,
) -> str:
    """The row of a job that was started. `_rows.c` does the same."""
    turnaround = ended - submitted
    # One % for the whole row: an f-string of the same row takes half as long again.
    return "%s,%s,%s,%f,%d,%f,%d,%s,%f,%f,%f,%f,%f,%f,%s,%f,%s" % (  # noqa: UP031
        local, workload, profile, submitted, units, walltime, success, state, started, execution, ended,
        started - submitted, turnaround, turnaround / execution if execution else inf, allocated, energy, metadata,
    )  # fmt: skip


try:
    from pilothouse.formats import _rows
except ImportError:
    row = plain_row
else:
    row = _rows.row


class JobsCsv:
    """Takes records as jobs end and writes their rows, some thousand at a time; `close` writes the rest.

    Batsim 4 puts metadata in quotes, and names profiles without their workload.
    """

    columns = COLUMNS

    def __init__(self, stream: TextIO, *, profile_prefix: bool = True, quoted_metadata: bool = False) -> None:
        self._stream = stream
        self._profile_prefix = profile_prefix
        self._quoted = quoted_metadata
        self._records: list[JobRecord] = []
        stream.write(self.columns + "\n")

    def write(self, record: JobRecord) -> None:
        records = self._records
        records.append(record)
        if len(records) >= _FLUSH_EVERY:
            self.flush()

    def write_all(self, records: list[JobRecord]) -> None:
        lines = []
        for record in records:
            job, start, end = record.job, record.started_at, record.ended_at
            workload, _, local = job.id.partition("!")
            if not local:
                workload, local = "", workload
            profile = job.profile.name if job.profile is not None else ""
            if not self._profile_prefix:
                profile = profile.partition("!")[2] or profile
            metadata = record.metadata
            if metadata or self._quoted:
                metadata = self._metadata(metadata)
            submitted, walltime, state = job.submitted_at, job.walltime, record.state
            if walltime == inf:
                walltime = -1.0
            if start is None:
                line = f"{local},{workload},{profile},{submitted:f},{job.units},{walltime:f},0,{BATSIM[state]},,,,,,,,,{metadata}"
            else:
                execution, energy, units = record.execution_s, record.energy_j, record.units
                line = row(
                    local, workload, profile, submitted, job.units, walltime, state is _SUCCEEDED, BATSIM[state],
                    start, end - start if execution is None else execution, end, mask_text(units.bits, " ", units.shift),
                    -1.0 if energy is None else energy, metadata,
                )  # fmt: skip
            lines.append(line)
        lines.append("")
        self._stream.write("\n".join(lines))

    def annotate(self, texts: Mapping[str, str]) -> None:
        """Sets the metadata of jobs whose rows may be written already: the whole file is written anew."""
        self.flush()
        path = self._stream.name
        with open(path, encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream))
        for row in rows[1:]:
            row[-1] = texts.get(f"{row[1]}!{row[0]}" if row[1] else row[0], row[-1])
        with open(path, "w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(rows)

    def flush(self) -> None:
        if self._records:
            self.write_all(self._records)
            self._records = []
        self._stream.flush()

    def close(self) -> None:
        self.flush()
        self._stream.close()

    def _metadata(self, text: str) -> str:
        if self._quoted:
            return f'"{text}"'
        if any(character in text for character in ',"\n'):
            return '"' + text.replace('"', '""') + '"'
        return text


class Row(msgspec.Struct, gc=False):
    """One row of a jobs.csv. Times are None for a job that never started."""

    id: str
    profile: str
    submitted_at: float
    units: int
    walltime: float
    state: str
    started_at: float | None
    ended_at: float | None
    allocated: str
    """As it was written: `0-3 7`."""
    width: int
    """How many units that is."""
    energy_j: float | None
    metadata: str


def read(path: str | Path) -> Iterator[Row]:
    """The rows of a jobs.csv of Batsim 4 or 5, or ours. The last row of a file that is being written may be cut off:
    it is left out. Cost: 4 µs a row."""
    text = read_text(path)
    lines = text.splitlines()
    reader = csv.reader(lines)
    header = next(reader, [])
    names = COLUMNS.split(",")
    missing = [name for name in names[:15] if name not in header]
    if missing:
        raise InputError(f"{path}:1", "not a jobs.csv", expected=f"a column {missing[0]}")
    places = [header.index(name) if name in header else None for name in names]
    widths: dict[str, int] = {"": 0}
    for fields in reader:
        if not fields:
            continue
        if len(fields) < len(header) and reader.line_num == len(lines) and not text.endswith("\n"):
            return
        try:
            yield _read_row([None if place is None else fields[place] for place in places], widths)
        except (ValueError, LookupError):
            raise InputError(
                f"{path}:{reader.line_num}", "not a row of a jobs.csv", found=quoted(lines[reader.line_num - 1])
            ) from None


def _read_row(fields: list[str | None], widths: dict[str, int]) -> Row:
    (
        local, workload, profile, submitted, units, requested, _success, state, started, _execution, ended,
        _waiting, _turnaround, _stretch, allocated, energy, metadata,
    ) = (field or "" for field in fields)  # fmt: skip
    walltime, date = float(requested), float(submitted)
    width = widths.get(allocated)
    if width is None:
        width = widths[allocated] = _width(allocated)
    used = float(energy) if energy else None
    begin, end = (float(started), float(ended)) if started else (date, date)
    if not (-LATEST_S < date < LATEST_S and -LATEST_S < begin <= end < LATEST_S and 0 <= int(units) <= MOST_ID):
        raise ValueError("a number that cannot be")
    return Row(
        f"{workload}!{local}" if workload else local,
        profile,
        date,
        int(units),
        inf if walltime < 0 else walltime,
        state,
        begin if started else None,
        end if started else None,
        allocated,
        width,
        used if used is not None and used >= 0 else None,
        metadata,
    )


def _width(allocated: str) -> int:
    """How many units `0-3 7` are. Raises ValueError."""
    count = 0
    for part in allocated.split():
        first, dash, last = part.partition("-")
        length = int(last) - int(first) + 1 if dash else int(first) * 0 + 1
        if not 1 <= length <= MOST_ID or int(first) > MOST_ID:
            raise ValueError(f"not a range of units: {part}")
        count += length
    return count
