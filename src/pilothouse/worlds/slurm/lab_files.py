"""The files of a loopback Slurm: slurm.conf, job_submit.lua, cgroup.conf.

In: a folder, the host, ports, the shape of the nodes. Out: texts. The partitions of a lab:

    main                 UP, the default: Slurm starts jobs itself
    queue, go            a steered pair (see docs/how-to/slurm.md); jobs get whole nodes
    cpuqueue, cpugo      a steered pair; jobs get CPUs
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from pilothouse.model.errors import InputError, quoted
from pilothouse.worlds.slurm.set_up import job_submit_lua

MOST_NODES = 1000
MOST_CPUS = 1024
_SHAPE = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,3})((?::gpu=\d{1,2}|:memory=[1-9]\d{0,6}|:disk=\d{1,7})*)")


class LabNode(msgspec.Struct, frozen=True):
    cpus: int
    memory_mb: int = 4000
    gpus: int = 0
    disk_mb: int = 0


class LabShape(msgspec.Struct, frozen=True):
    """The emulated nodes n1, n2, ... `counts_memory`: Slurm gives out memory as well."""

    kinds: tuple[LabNode, ...]
    counts_memory: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, len(self.kinds) + 1))


def parse_shape(text: str) -> LabShape:
    """`8x4`: eight nodes of four CPUs; `4x4,2x16:gpu=2:memory=8000:disk=500`: nodes of two kinds. Where one has an amount of
    memory, memory is given out. Raises InputError."""
    kinds: list[LabNode] = []
    for group in text.split(","):
        found = _SHAPE.fullmatch(group)
        if found is None or int(found[2]) > MOST_CPUS or len(kinds) + int(found[1]) > MOST_NODES:
            expected = "nodes x CPUs, such as 8x4 or 4x4,2x16:gpu=2:memory=8000:disk=500"
            raise InputError("slurm-lab", "not a shape", expected=expected, found=quoted(text))
        has = {key: int(value) for key, _, value in (word.partition("=") for word in found[3].split(":")[1:])}
        kind = LabNode(int(found[2]), has.get("memory", LabNode(1).memory_mb), has.get("gpu", 0), has.get("disk", 0))
        kinds += [kind] * int(found[1])
    return LabShape(tuple(kinds), counts_memory=":memory=" in text)


def slurm_conf(
    folder: Path, shape: LabShape, *, host: str, user: str, controller_port: int, node_ports: list[int], lua: bool
) -> str:
    everywhere = f"Nodes=n[1-{len(shape.kinds)}] MaxTime=INFINITE DefaultTime=10"
    half = (len(shape.kinds) + 1) // 2
    lines = [
        "ClusterName=pilothouse",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={controller_port}",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        f"AuthInfo=socket={folder / 'munge.socket'}",
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
        f"StateSaveLocation={folder / 'state'}",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldPidFile={folder / 'slurmctld.pid'}",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmctldLogFile={folder / 'slurmctld.log'}",
        f"SlurmdLogFile={folder}/slurmd-%n.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={folder / 'jobcomp.txt'}",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_min_interval=0,bf_interval=1,batch_sched_delay=0,default_queue_depth=10000",
        "SelectType=select/cons_tres",
        f"SelectTypeParameters={'CR_CPU_Memory' if shape.counts_memory else 'CR_CPU'}",
        *(["DefMemPerCPU=100"] if shape.counts_memory else []),
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "InactiveLimit=0",
        "KillWait=2",
        "MinJobAge=300",
        "MaxJobCount=30000",
        "MaxArraySize=10001",
        "WaitTime=0",
        "Licenses=matlab:2",
        "GresTypes=fpga,gpu",
        *(["JobSubmitPlugins=lua"] if lua else []),
        *(
            f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={kind.cpus}"
            f" RealMemory={kind.memory_mb} TmpDisk={kind.disk_mb} Feature={'low' if number <= half else 'high'}"
            f"{_gres(kind, fpga=number <= half)} State=UNKNOWN"
            for number, (kind, port) in enumerate(zip(shape.kinds, node_ports, strict=True), 1)
        ),
        f"PartitionName=main {everywhere} Default=YES State=UP",
        f"PartitionName=queue {everywhere} State=DOWN OverSubscribe=EXCLUSIVE",
        f"PartitionName=go {everywhere} State=UP OverSubscribe=EXCLUSIVE",
        f"PartitionName=cpuqueue {everywhere} State=DOWN",
        f"PartitionName=cpugo {everywhere} State=UP",
        "",
    ]
    return "\n".join(lines)


def _gres(kind: LabNode, *, fpga: bool) -> str:
    have = [*(["fpga:2"] if fpga else []), *([f"gpu:{kind.gpus}"] if kind.gpus else [])]
    return f" Gres={','.join(have)}" if have else ""


def files(folder: Path, conf: str, shape: LabShape) -> dict[str, str]:
    """Name -> text of each file of the configuration."""
    most_gpus = max(kind.gpus for kind in shape.kinds)
    return {
        # A GPU is a file that exists.
        **{f"gpu{number}": "" for number in range(most_gpus)},
        "gres.conf": "".join(
            f"NodeName={name} Name=gpu File={folder}/gpu[0-{kind.gpus - 1}]\n"
            for name, kind in zip(shape.names, shape.kinds, strict=True)
            if kind.gpus
        ),
        "slurm.conf": conf,
        "cgroup.conf": "CgroupPlugin=cgroup/v1\n",
        "job_submit.lua": job_submit_lua([("queue", "go"), ("cpuqueue", "cpugo")]),
    }
