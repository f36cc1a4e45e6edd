"""Prints, checks and undoes the configuration of a steered Slurm. The texts are made in worlds/slurm/set_up.py."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from pilothouse.access.user import user_name
from pilothouse.model.errors import PeerError
from pilothouse.worlds.slurm import commands, records, set_up
from pilothouse.worlds.slurm.book import Pair
from pilothouse.worlds.slurm.link import SlurmLink
from pilothouse.worlds.slurm.look import SQUEUE, JobReader
from pilothouse.worlds.slurm.set_up import Asker, Finding
from pilothouse.worlds.slurm_commands import run


def texts(pair: Pair, nodes: str, *, whole_nodes: bool, uids: Sequence[int]) -> str:
    lua = set_up.job_submit_lua([(pair.queue, pair.go)], uids)
    return f"{set_up.conf_lines(pair, nodes, whole_nodes)}\n# job_submit.lua, beside slurm.conf:\n{lua}"


def check_here(pair: Pair) -> list[Finding]:
    """Asks the Slurm of this machine."""
    return set_up.check(pair, SlurmLink().facts(), _asker())


def _asker() -> Asker:
    name = user_name()
    try:
        shown = run(["sacctmgr", "-nP", "show", "user", name, "format=adminlevel"], timeout_s=20)
    except PeerError:
        shown = ""  # no accounting database
    return Asker(name, os.geteuid(), shown.strip())


def undo(pair: Pair) -> list[str]:
    """Takes back orders that were not started, and sets the queue UP. Returns what was done."""
    facts = SlurmLink().facts()
    done = []
    for row in JobReader().read(run(SQUEUE)):
        if pair.go in row.partitions and row.state == "PENDING":
            request = records.read_request(records.line_of(facts.jobs, row.id))
            mark = commands.read_mark(request.comment) or commands.Mark(row.submitted_at)
            later = row.begins_at is not None and row.begins_at > time.time()
            run(["scontrol", *commands.take_back(row.id, pair.queue, mark, starts_later=later).split()])
            done.append(f"job {row.id} is back in {pair.queue}")
    run(["scontrol", *commands.partition_state(pair.queue, "UP").split()])
    return [*done, f"partition {pair.queue} is UP: Slurm schedules its jobs itself"]
