"""The accounting of PBS (OpenPBS, PBS Professional) and Torque: `date;record type;job;key=value ...`, one event a line.

Files of several days may be one after the other in one file. What is read:

* E (ended): the row of a job. It holds the dates in seconds since 1970, what was asked for and what was used.
* S (started) and R (rerun): a start that was followed by a rerun is an earlier run of a requeued job. PBS writes the dates of
  such a run into R or not at all; then it ended when R was written.
* Q, D, A (queued, deleted, aborted) of jobs without a start: cancelled before they started, or still waiting.
* records of other types (licences, reservations, checkpoints, provisioning), and `id[]`, which stands for a whole array.

Units are CPUs: those of `exec_host` (every form: `n1/0+n1/1`, `n1/0*4`, `n1/0-3`), else those of the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from math import inf
from pathlib import Path

from pilothouse.formats.accounting import AccountedJob, Fate, workload
from pilothouse.formats.text_input import read_bytes
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.numerals import whole_number

_LINE = re.compile(r"(\d\d/\d\d/\d{4} \d\d:\d\d:\d\d)(?:\.\d+)?;(\w{1,2});([^;]*);(.*)")
_PAIR = re.compile(r"""([A-Za-z_][\w.\-]*)=("[^"]*"|'[^']*'|\S*)""")
_DURATION = re.compile(r"(?:(\d{1,9}):)?(?:(\d{1,9}):)?(\d{1,9})(?:\.\d+)?")
_CHUNK = re.compile(r"(?:(\d+):)?(.*)", re.DOTALL)
OF_JOBS = frozenset("ACDEKLQRST")
"""Types of records; those of jobs that matter here are A, D, E, Q, R and S."""
Pairs = dict[str, str]


def read(path: str | Path, name: str = "w0", *, units: int = 0) -> Workload:
    """Reads a log. Larger jobs than `units` CPUs are left out."""
    left_out: dict[str, int] = {}
    rows = list(_rows(path, read_bytes(path).decode("utf-8", "replace"), left_out))
    return workload(rows, path, name, units=units, left_out=left_out)


def _rows(path: str | Path, text: str, left_out: dict[str, int]) -> Iterator[AccountedJob]:
    seen: dict[str, tuple[str, Pairs]] = {}
    """Job -> S or Q: it has started, or waits; and what that record says."""
    deleted: dict[str, None] = {}
    ended: set[str] = set()

    def odd(what: str) -> None:
        left_out[what] = left_out.get(what, 0) + 1

    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        match = _LINE.match(line.strip())
        if match is None:
            if number == 1:
                expected = "MM/DD/YYYY HH:MM:SS;type;job;..."
                raise InputError(f"{path}:{number}", "not a line of PBS's accounting", expected=expected, found=quoted(line))
            odd("a line that is damaged")
            continue
        written, kind, job, rest = match.groups()
        if kind not in OF_JOBS or not job[:1].isdigit():
            continue
        if "[]" in job:
            if kind == "E":
                odd("the record of a whole array: its jobs have their own")
            continue
        pairs = {key: value.strip("\"'") for key, value in _PAIR.findall(rest)}
        last, start = seen.get(job, ("", {}))
        if kind == "E":
            seen.pop(job, None)
            ended.add(job)
            yield _row(job, pairs, Fate.FINISHED, start if last == "S" else {}, job in deleted)
        elif kind == "R":
            if last == "S":
                yield _row(job, {"end": _written(written), **pairs}, Fate.REQUEUED, start, job in deleted)
            seen[job] = "Q", pairs
        elif kind == "S":
            seen[job] = "S", pairs
        elif kind == "Q":
            seen.setdefault(job, ("Q", pairs))
        elif kind in "DA":
            deleted[job] = None
    for job in deleted:
        # Deleted while it ran: E follows, unless the log ends before. S may be in the log of an earlier day.
        if job not in ended and seen.get(job, ("Q", {}))[0] == "Q":
            seen.pop(job, None)
            yield AccountedJob(_id(job), Fate.CUT_SHORT, None, None)
    for job, (last, pairs) in seen.items():
        yield _row(job, pairs, Fate.RUNNING if last == "S" else Fate.WAITING, {}, job in deleted)


def _row(job: str, pairs: Pairs, fate: Fate, start: Pairs, deleted: bool) -> AccountedJob:
    found = {**start, **pairs}
    limit_s = duration(found.get("Resource_List.walltime", ""))
    started, ended = _date(found, "start"), _date(found, "end")
    failed = found.get("Exit_status", "0") != "0"
    used = duration(found.get("resources_used.walltime", ""))
    if fate is Fate.FINISHED and started is not None:
        run_s = ended - started if ended is not None else used
        if limit_s is not None and run_s is not None and run_s >= limit_s and failed:
            fate = Fate.TIME_LIMIT
        elif deleted:
            fate = Fate.CUT_SHORT
    return AccountedJob(
        _id(job),
        fate,
        cpus(found),
        _date(found, "ctime") or _date(found, "qtime"),
        _date(found, "etime"),
        started,
        ended,
        None if ended is not None else used,
        limit_s=limit_s,
        user=found.get("user", "") or found.get("owner", "").partition("@")[0],
    )


def _id(job: str) -> str:
    """`17[3].server` and `17-3.server` as 17_3; the server is not part of it."""
    local = job.partition(".")[0]
    return local.replace("[", "_").replace("]", "").replace("-", "_")


def _date(found: Pairs, key: str) -> float | None:
    """Seconds since 1970; 0 and what is no number are not known."""
    number = whole_number(found.get(key, "").partition(".")[0])
    return float(number) if number and number < 2**40 else None


def _written(text: str) -> str:
    """The local date of a record as the others are; "" if there is no such date."""
    try:
        return str(int(datetime.strptime(text, "%m/%d/%Y %H:%M:%S").timestamp()))
    except (ValueError, OverflowError):
        return ""


def duration(text: str) -> float | None:
    """`3600`, `30:00`, `1:00:00`, `100:00:00`, `2:00:00:00` (days) in seconds; UNLIMITED is inf; None: not known."""
    if text.lower() in ("unlimited", "infinite", "-1"):
        return inf
    days, _, rest = text.partition(":") if text.count(":") == 3 else ("0", "", text)
    match = _DURATION.fullmatch(rest)
    if match is None or whole_number(days) is None:
        return None
    first, second, last = match.groups()
    hours, minutes = (first, second) if second is not None else ("0", first or "0")
    return int(days) * 86400.0 + int(hours) * 3600.0 + int(minutes) * 60.0 + int(last)


def cpus(found: Pairs) -> int | None:
    """CPUs that a job had, or asked for."""
    hosts = _on_hosts(found.get("exec_host", ""))
    asked = whole_number(found.get("Resource_List.ncpus", "")) or whole_number(found.get("Resource_List.procs", ""))
    by_nodes = _of_nodes(found.get("Resource_List.nodes", "")) or _of_select(found.get("Resource_List.select", ""))
    total = whole_number(found.get("total_execution_slots", ""))
    # PBS writes one slot a chunk into exec_host (n1/0) and the CPUs into ncpus; Torque leaves ncpus out, or at 1.
    return max((number for number in (hosts, asked, by_nodes, total) if number), default=None)


def _on_hosts(text: str) -> int:
    """`n1/0+n1/1`, `n1/0*4+n2/0*4`, `n1/0-3,7`."""
    count = 0
    for part in filter(None, text.split("+")):
        _, slash, slots = part.partition("/")
        if not slash:
            count += 1
            continue
        index, star, several = slots.partition("*")
        if star:
            count += whole_number(several) or 1
            continue
        for piece in index.split(","):
            first, dash, last = piece.partition("-")
            low, high = whole_number(first), whole_number(last)
            count += high - low + 1 if dash and low is not None and high is not None and low <= high < 2**24 else 1
    return count


def _of_nodes(text: str) -> int:
    """`2:ppn=6+1:ppn=2:fat`, `n1:ppn=4+n2`: nodes times processors."""
    count = 0
    for part in filter(None, text.split("+")):
        words = part.split(":")
        per_node = next((whole_number(word[4:]) for word in words if word.startswith("ppn=")), 1) or 1
        count += (whole_number(words[0]) or 1) * per_node
    return count


def _of_select(text: str) -> int:
    """`2:ncpus=4:mem=1gb+ncpus=1`: chunks times CPUs; a chunk that names none has one."""
    count = 0
    for part in filter(None, text.split("+")):
        match = _CHUNK.fullmatch(part)
        assert match is not None
        words = match[2].split(":")
        chunks = whole_number(match[1]) if match[1] else whole_number(words[0])
        per_chunk = next((whole_number(word[6:]) for word in words if word.startswith("ncpus=")), 1)
        count += (chunks or 1) * (1 if per_chunk is None else per_chunk)
    return count
