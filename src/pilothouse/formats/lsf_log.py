"""LSF's lsb.acct: one JOB_FINISH record a line, fields by position, blanks between them, strings in double quotes.

A quote inside a string is doubled. Two lists in the middle (hosts that were asked for, hosts that were used) say their
lengths, and so do those near the end, behind which the run limit is. Old versions end earlier: then the limit is not known.
Dates are seconds since 1970, 0 where there is none.

Each record is a run of a job, or of an element of an array. The log tells no dependencies: a job is taken as eligible when it was
submitted, or at its begin time.
"""

from __future__ import annotations

import re
from pathlib import Path

from pilothouse.formats.accounting import AccountedJob, Fate, workload
from pilothouse.formats.text_input import read_bytes
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.numerals import whole_number

_FIELD = re.compile(r'"((?:[^"]|"")*+)"(?=\s|$)|(\S+)')
_FINISH = "JOB_FINISH"
# Positions of fields before the first list.
_EVENT_TIME, _JOB, _PROCESSORS, _SUBMIT, _BEGIN, _START, _USER, _LIST = 2, 3, 6, 7, 8, 10, 11, 22
_USAGE = 19
"""Fields of the resource usage, from ru_utime to ru_exutime."""
# Positions after that usage.
_MOST_PROCESSORS, _INDEX, _EXIT_INFO, _EXTENSIONS = 3, 6, 15, 30
_DONE = 64
_RUN_LIMIT, _REQUEUED, _CUT = 5, (10, 11), frozenset({1, 2, 3, 6, 7, 8, 9, 12, 14, 15, 16, 20, 21, 23})
"""Values of exitInfo: ended by the run limit; requeued; preempted, killed by somebody, over another limit."""
_PER_HOST = 6


def read(path: str | Path, name: str = "w0", *, units: int = 0) -> Workload:
    """Reads a log. Larger jobs than `units` slots are left out."""
    left_out = {"a record that is damaged": 0}
    rows: list[AccountedJob] = []
    finished = 0
    for number, line in enumerate(read_bytes(path).decode("utf-8", "replace").split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [bare or text.replace('""', '"') for text, bare in _FIELD.findall(line)]
        if fields[0] != _FINISH:
            if not line.lstrip().startswith('"'):
                raise InputError(f"{path}:{number}", "not a record of lsb.acct", expected='"JOB_FINISH" ...', found=quoted(line))
            continue  # a resize or a reservation
        finished += 1
        row = _row(fields)
        if row is None:
            left_out["a record that is damaged"] += 1
        else:
            rows.append(row)
    if not finished:
        raise InputError(str(path), "no job in it", expected="JOB_FINISH records")
    return workload(rows, path, name, units=units, left_out=left_out)


def _row(fields: list[str]) -> AccountedJob | None:
    """None: fields are missing, or are not numbers."""
    try:
        ended, job, processors, submitted, begin, started = (
            _whole(fields[place]) for place in (_EVENT_TIME, _JOB, _PROCESSORS, _SUBMIT, _BEGIN, _START)
        )
        place = _LIST + 1 + _whole(fields[_LIST])  # hosts that were asked for
        begin_hosts, place = place + 1, place + 1 + _whole(fields[place])
        hosts = fields[begin_hosts:place]
        status = _whole(fields[place])
    except (ValueError, IndexError):
        return None
    rest = fields[place + 4 + _USAGE :]  # past the status, the host factor, the name and the command
    index, exit_info = _number(rest, _INDEX), _number(rest, _EXIT_INFO)
    return AccountedJob(
        f"{job}_{index}" if index else str(job),
        _fate(status, exit_info),
        _slots(hosts) or max(processors, _number(rest, _MOST_PROCESSORS) or 0) or None,
        float(submitted) if submitted > 0 else None,
        float(begin) if begin > 0 else None,
        float(started) if started > 0 else None,
        float(ended) if ended > 0 else None,
        limit_s=_run_limit(rest),
        user=fields[_USER],
    )


def _fate(status: int, exit_info: int | None) -> Fate:
    if status & _DONE:
        return Fate.FINISHED
    if exit_info == _RUN_LIMIT:
        return Fate.TIME_LIMIT
    if exit_info in _REQUEUED:
        return Fate.REQUEUED
    return Fate.CUT_SHORT if exit_info in _CUT else Fate.FINISHED


def _slots(hosts: list[str]) -> int:
    """One name for each slot, or `16*host` (the short form of LSF_HPC_EXTENSIONS)."""
    count = 0
    for host in hosts:
        number, star, _ = host.partition("*")
        count += (whole_number(number) or 1) if star else 1
    return count


def _run_limit(rest: list[str]) -> float | None:
    """Seconds; None where the record has none, or is not of a version whose end is known.

    Behind the extensions (a number of pairs) come the usage of hosts (a number of groups), then the run limit, bit flags, and
    the mean memory, and then a text. Records of versions 9.1 and 10.1 were seen; the order in LSF's manual is another.
    """
    try:
        place = _EXTENSIONS + 1 + 2 * _whole(rest[_EXTENSIONS])
        place += 1 + _PER_HOST * _whole(rest[place])
        flags, memory, text = rest[place + 1 : place + 4]
        limit = whole_number(rest[place])  # -1: none
        if whole_number(flags) is None or whole_number(memory) is None or whole_number(text) is not None:
            return None
    except (ValueError, IndexError):
        return None
    return float(limit) if limit else None


def _whole(text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise ValueError(text)
    return number


def _number(fields: list[str], place: int) -> int | None:
    return whole_number(fields[place]) if place < len(fields) else None
