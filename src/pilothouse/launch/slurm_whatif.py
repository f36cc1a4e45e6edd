"""The table of `pilothouse whatif`: when jobs would start, by policy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from math import inf

import msgspec

from pilothouse.campaign.slurm_present import Present, expected_starts, follow, observed_pair, present
from pilothouse.launch import naming
from pilothouse.launch.start_estimates import ask
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.job import Job
from pilothouse.worlds.slurm.book import Pair
from pilothouse.worlds.slurm.link import SlurmLink


def pair_named(world_name: str) -> Pair:
    kind, _, address = world_name.partition("?")[0].partition(":")
    if kind != "slurm":
        raise InputError("--world", "not a Slurm", expected="slurm[:PARTITION] or slurm:QUEUE:GO", found=quoted(world_name))
    return observed_pair(address)


def look(world_name: str) -> Present:
    """The Slurm that a world's name stands for, as it is now."""
    link = SlurmLink()
    try:
        return present(pair_named(world_name), link)
    finally:
        link.close()


def dry_run_lines(world_name: str, by: str, looks: int) -> Iterator[str]:
    """What a policy would start, beside what Slurm starts."""
    if by.partition(":")[0] in naming.FOREIGN:
        raise InputError("--dry-run", "the scheduler is asked anew at each look", expected="a policy", found=quoted(by))
    naming.policy(by)  # a mistake is told before the first look
    for at, job_id, what in follow(pair_named(world_name), lambda: naming.policy(by), looks):
        yield f"{datetime.fromtimestamp(at).isoformat(timespec='seconds')}  job {job_id}: {what}"


def submitted(world_name: str, names: list[str], job: Job, *, as_json: bool) -> str:
    """How long a job would wait that is submitted now, by scheduler."""
    at = look(world_name)
    waits = {name: ask(at.begins, at.events, naming.decider(name), job) for name in names}
    if as_json:
        rows = {name: _or_none(seconds) for name, seconds in waits.items()}
        return msgspec.json.encode({"at": at.now, "units": job.units, "starts_in_s": rows}).decode()
    width = max(len(name) for name in names)
    return "\n".join(f"{name:<{width}}  {_duration(seconds)}" for name, seconds in waits.items())


def table(world_name: str, policies: list[str], used: float, only: str, *, as_json: bool) -> str:
    """Seconds until each waiting job starts, one column for each policy."""
    if not 0 < used <= 1:
        raise InputError("--used", "not a share", expected="a number above 0, up to 1", found=quoted(used))
    at = look(world_name)
    starts = {name: expected_starts(at, naming.policy(name), used) for name in policies}
    jobs = [job for job in at.waiting if not only or job.user == only]
    if as_json:
        rows = [
            {"job": job.id, "user": job.user, "starts_in_s": {name: _or_none(starts[name].get(job.id, inf)) for name in policies}}
            for job in jobs
        ]
        return msgspec.json.encode({"at": at.now, "jobs": rows}).decode()
    if not jobs:
        return "no job waits that could be started"
    head = ["job", "user", *policies]
    lines = [[job.id, job.user, *(_duration(starts[name].get(job.id, inf)) for name in policies)] for job in jobs]
    means = [_mean([starts[name].get(job.id, inf) for job in jobs]) for name in policies]
    lines.append(["mean", "", *map(_duration, means)])
    widths = [max(len(row[column]) for row in (head, *lines)) for column in range(len(head))]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in (head, *lines))
    return "\n".join("  ".join(row).rstrip() for row in padded)


def _mean(values: list[float]) -> float:
    known = [value for value in values if value < inf]
    return sum(known) / len(known) if known else inf


def _or_none(value: float) -> float | None:
    return value if value < inf else None


def _duration(seconds: float) -> str:
    if seconds == inf:
        return "never"
    if seconds < 1:
        return "now"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
