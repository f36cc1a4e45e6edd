"""The commands by which jobs are started and taken back, and the mark in the admin comment of a job.

Each is one line for scontrol, and one request to slurmctld. The mark keeps what Slurm forgets: the first date of submission
(a requeue sets a new one), and what an order overwrites: the nodes that the user named, and the numbers of nodes and CPUs.
It is read again after a restart. A comment of the site stays before it, and is put back when the job has started.
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
    """One command; `line` is for the standard input of scontrol, `program` is run by itself."""

    number: int
    line: str = ""
    program: tuple[str, ...] = ()


class Mark(msgspec.Struct, frozen=True):
    submitted_at: float
    own_nodes: tuple[str, ...] = ()
    node_range: str = ""
    """`2-4`: the numbers of nodes that were asked for, where an order changed them."""
    cpus_per_node: str = ""
    """The least number on each node, where an order changed it."""
    comment: str = ""
    """What the site wrote into the comment."""

    @property
    def text(self) -> str:
        """The comment with the mark."""
        date = datetime.fromtimestamp(self.submitted_at).isoformat(timespec="seconds")
        words = [MARK, date, hostlist.encode(self.own_nodes), self.node_range, self.cpus_per_node]
        return f"{self.comment} {'/'.join(words).rstrip('/')}".lstrip()


def start(job_id: str, partition: str, node_names: tuple[str, ...], mark: Mark, cpus_per_node: int = 0) -> str:
    """Moves a job to where Slurm starts it, with exactly these nodes: `reqnodelist` alone would mean "at least"."""
    line = f"update jobid={job_id} partition={partition} reqnodelist={','.join(node_names)}"
    if mark.node_range:
        line += f" numnodes={len(node_names)}-{len(node_names)}"
    if mark.cpus_per_node:
        line += f" mincpusnode={cpus_per_node}"
    return line + _comment(mark.text)


def take_back(job_id: str, partition: str, mark: Mark, *, starts_later: bool) -> str:
    """`starts_later`: Slurm has set a begin time (after a requeue). Otherwise the date stays: waits are counted from it."""
    line = f"update jobid={job_id} partition={partition} reqnodelist={','.join(mark.own_nodes)}"
    if mark.node_range:
        line += f" numnodes={mark.node_range}"
    if mark.cpus_per_node:
        line += f" mincpusnode={mark.cpus_per_node}"
    return f"{line} starttime=now" if starts_later else line


def put_back_comment(job_id: str, comment: str) -> tuple[str, ...]:
    """A program of its own: scontrol that reads its input would keep the quotes."""
    return ("scontrol", "update", f"jobid={job_id}", f"admincomment={comment}")


def set_note(job_id: str, mark: Mark, note: str) -> str:
    text = "".join(c if c.isprintable() and c not in '"\\' else " " for c in note)[:MOST_NOTE]
    return f"update jobid={job_id}{_comment(f'{mark.text} {text}')}"


def show(job_id: str) -> str:
    return f"show job {job_id}"


def _comment(text: str) -> str:
    """A site's text that scontrol could not read back is left alone."""
    return "" if '"' in text or not text.isprintable() else f' admincomment="{text}"'


def partition_state(partition: str, state: str) -> str:
    return f"update partitionname={partition} state={state}"


def read_mark(text: str) -> Mark | None:
    """None: the comment has no mark. What comes after it is a note."""
    before, found, after = text.rpartition(f"{MARK}/")
    words = after.split(" ", 1)[0].split("/")
    submitted = fields.date(words[0])
    if not found or submitted is None or (before and not before.endswith(" ")):
        return None
    own_nodes, node_range, cpus_per_node = (*words[1:4], "", "", "")[:3]
    return Mark(submitted, names(own_nodes), node_range, cpus_per_node, before.rstrip())
