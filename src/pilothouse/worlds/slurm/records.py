"""A job as `scontrol --oneliner --details show job` prints it: the whole request, and what Slurm has given.

squeue shows a part of a request only. In: the line of one job. Out: a Request, and the Parts of nodes that a running job
holds. GRES are counted by name (`gpu`) and, where a type was asked for, by name and type (`gpu:a100`).
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from pilothouse.formats import slurm_fields as fields
from pilothouse.formats.slurm_resources import names
from pilothouse.model.errors import InputError

_ID = re.compile(r"JobId=(\d+)(?: ArrayJobId=(\d+) ArrayTaskId=(\S+))?")
_GIVEN = re.compile(r" Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)")
_PLAIN = ("cpu", "mem", "node", "billing", "license")
"""Kinds of TRES that are no GRES: since 24.05 they are among those of a task."""
_GRES = re.compile(r"(?:gres[:/])?([A-Za-z][\w.]*)(?:[:/]([A-Za-z][\w.-]*))?(?:[:=](\d+[KMGTP]?))?(?:\([^()]*\))?")


class Part(msgspec.Struct, frozen=True):
    """What a job holds, or needs, of one node."""

    cpus: int = 0
    memory_mb: int = 0
    gres: dict[str, int] = {}


class Request(msgspec.Struct, frozen=True):
    """What a job asks for. 0: it says nothing."""

    nodes: int = 1
    """The least number."""
    most_nodes: int = 0
    tasks: int = 1
    cpus: int = 1
    """For all tasks. With --overcommit fewer than the tasks need."""
    cpus_per_task: int = 1
    cpus_per_node: int = 0
    """The least number on each node."""
    memory_mb_per_node: int = 0
    memory_mb_per_cpu: int = 0
    disk_mb_per_node: int = 0
    gres_per_job: dict[str, int] = {}
    gres_per_node: dict[str, int] = {}
    gres_per_task: dict[str, int] = {}
    cpus_per_gpu: int = 0
    memory_mb_per_gpu: int = 0
    tasks_per_gpu: int = 0
    most_elements: int = 0
    """How many elements of its array may run at a time."""
    comment: str = ""
    """The admin comment."""

    @property
    def overcommits(self) -> bool:
        return self.cpus < self.tasks * self.cpus_per_task

    def share(self, nodes: int) -> Part:
        """What each of so many nodes must have, if the job is spread evenly."""
        tasks = -(-self.tasks // nodes)
        gres = dict(self.gres_per_node)
        for asked, number in ((self.gres_per_job, nodes), (self.gres_per_task, 0)):
            for name, count in asked.items():
                gres[name] = gres.get(name, 0) + (-(-count // number) if number else count * tasks)
        if self.tasks_per_gpu:
            gres["gpu"] = max(gres.get("gpu", 0), -(-tasks // self.tasks_per_gpu))
        gpus = gpus_of(gres)
        cpus = -(-self.cpus // nodes) if self.overcommits else tasks * self.cpus_per_task
        cpus = max(1, cpus, self.cpus_per_node, gpus * self.cpus_per_gpu)
        memory_mb = max(self.memory_mb_per_node, cpus * self.memory_mb_per_cpu, gpus * self.memory_mb_per_gpu)
        return Part(cpus, memory_mb, gres)


def gpus_of(gres: dict[str, int]) -> int:
    """GPUs of all types."""
    return gres.get("gpu", 0) + sum(count for name, count in gres.items() if name.startswith("gpu:"))


def by_id(text: str) -> dict[str, str]:
    """Job id -> its line. The elements of an array that have no line of their own share that of the array."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        match = _ID.match(line)
        if match is not None:
            job, array, task = match.groups()
            found[job if array is None else f"{array}_{task}" if task.isdigit() else array] = line
    return found


def line_of(lines: dict[str, str], job_id: str) -> str:
    """Empty: there is none."""
    return lines.get(job_id) or lines.get(job_id.partition("_")[0], "")


@lru_cache(maxsize=16)  # The elements of an array share a line.
def read_request(line: str) -> Request:
    row = fields.record(line)

    def number(key: str) -> int:
        return fields.count(row.get(key, "")) or 0

    def memory(key: str) -> int:
        return fields.memory_mb(row.get(key, "")) or 0

    least, dash, most = row.get("NumNodes", "1").partition("-")
    nodes = fields.count(least) or 1
    if dash:
        # A range of nodes shows its upper end twice; the lower one is among the TRES.
        tres = fields.tres(row.get("ReqTRES", "") or row.get("TRES", ""))
        nodes = min(nodes, fields.count(tres.get("node", "")) or nodes)
    per_task, tasks = row.get("CPUs/Task", ""), number("NumTasks")
    return Request(
        nodes,
        fields.count(most) or 0,
        tasks or 1,
        number("NumCPUs") or 1,
        fields.count(per_task) or 1,
        number("MinCPUsNode"),
        memory("MinMemoryNode"),
        memory("MinMemoryCPU"),
        memory("MinTmpDiskNode"),
        gres(row.get("TresPerJob", "")),
        gres(row.get("TresPerNode", "")),
        gres(row.get("TresPerTask", "")),
        gres(row.get("CpusPerTres", "")).get("gpu", 0),
        gres(row.get("MemPerTres", "")).get("gpu", 0),
        number("NtasksPerTRES"),
        number("ArrayTaskThrottle"),
        row.get("AdminComment", "").strip('"'),
    )


def read_given(line: str) -> dict[str, Part]:
    """Node -> what a running job holds of it."""
    found: dict[str, Part] = {}
    for nodes, cpus, memory_mb, counts in _GIVEN.findall(line):
        try:
            ids = [first.partition("-") for first in cpus.split(",")]
            held = sum(int(last or first) - int(first) + 1 for first, _, last in ids)
            for name in names(nodes):
                found[name] = Part(held, int(memory_mb), gres(counts))
        except (ValueError, InputError):
            continue  # Not what Slurm prints: the counts of squeue are used.
    return found


def gres(text: str) -> dict[str, int]:
    """`gres:gpu:2`, `gres/gpu:a100:1`, `gpu:a:2(IDX:0-1),gpu:b:0(IDX:)`: name, or name and type -> number."""
    found: dict[str, int] = {}
    if text in fields.NOTHING:
        return found
    for match in _GRES.finditer(text):
        name, kind, count = match.groups()
        key = f"{name}:{kind}" if kind else name
        found[key] = found.get(key, 0) + (1 if count is None else fields.count(count) or 0)
    return {name: count for name, count in found.items() if count and name not in _PLAIN}


def covers(have: dict[str, int], asked: dict[str, int]) -> bool:
    """Whether these GRES hold those. GRES without a type may be of any type."""
    for name, number in asked.items():
        kinds = have.get(name, 0) if ":" in name else _all_kinds(have, name)
        if kinds < number:
            return False
        if ":" not in name and kinds < number + sum(asked[other] for other in asked if other.startswith(f"{name}:")):
            return False
    return True


def _all_kinds(have: dict[str, int], name: str) -> int:
    return sum(number for other, number in have.items() if other.partition(":")[0] == name)
