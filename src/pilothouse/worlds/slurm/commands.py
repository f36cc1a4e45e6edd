"""The commands by which jobs are started and taken back, and the mark in the admin comment of a job.

Each is one line for scontrol, and one request to slurmctld. The mark keeps what Slurm forgets: the first date of submission
(a requeue sets a new one) and the nodes that the user named (an order overwrites them). It is read again after a restart.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from pilothouse.formats import hostlist
from pilothouse.formats import slurm_fields as fields
from pilothouse.formats.slurm_resources import names

MARK = "pilothouse"
MOST_NOTE = 200


class Command(msgspec.Struct, frozen=True):
    """One command; `line` is for the standard input of scontrol, `cancels` are job ids for scancel."""

    number: int
    line: str = ""
    cancels: tuple[str, ...] = ()


class Mark(msgspec.Struct, frozen=True):
    submitted_at: float
    own_nodes: tuple[str, ...] = ()


def start(
    job_id: str, partition: str, node_names: tuple[str, ...], cpus_per_node: int, submitted_at: float,
    own_nodes: tuple[str, ...],
) -> str:  # fmt: skip
    """Moves a job to where Slurm starts it, with exactly these nodes: `reqnodelist` alone would mean "at least"."""
    count = len(node_names)
    line = f"update jobid={job_id} partition={partition} reqnodelist={','.join(node_names)} numnodes={count}-{count}"
    if count > 1 and cpus_per_node > 1:
        line += f" mincpusnode={cpus_per_node}"
    return f"{line} admincomment={mark(submitted_at, own_nodes)}"


def take_back(job_id: str, partition: str, own_nodes: tuple[str, ...]) -> str:
    return f"update jobid={job_id} partition={partition} reqnodelist={','.join(own_nodes)} starttime=now"


def set_note(job_id: str, submitted_at: float, own_nodes: tuple[str, ...], note: str) -> str:
    text = "".join(c if c.isprintable() and c not in '"\\' else " " for c in note)[:MOST_NOTE]
    return f'update jobid={job_id} admincomment="{mark(submitted_at, own_nodes)} {text}"'


def partition_state(partition: str, state: str) -> str:
    return f"update partitionname={partition} state={state}"


def mark(submitted_at: float, own_nodes: tuple[str, ...]) -> str:
    date = datetime.fromtimestamp(submitted_at).isoformat(timespec="seconds")
    return f"{MARK}/{date}/{hostlist.encode(own_nodes)}"


def read_mark(text: str) -> Mark | None:
    """None: the comment is not ours."""
    words = text.split(" ", 1)[0].split("/", 2)
    if len(words) != 3 or words[0] != MARK:
        return None
    submitted = fields.date(words[1])
    return None if submitted is None else Mark(submitted, names(words[2]))
