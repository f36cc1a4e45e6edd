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
_SHAPE = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,3})")


class LabShape(msgspec.Struct, frozen=True):
    """So many emulated nodes n1, n2, ... with so many CPUs each."""

    nodes: int
    cpus: int
    memory_mb: int = 4000

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))


def parse_shape(text: str) -> LabShape:
    """`8x4`: eight nodes of four CPUs. Raises InputError."""
    found = _SHAPE.fullmatch(text)
    if found is None or int(found[1]) > MOST_NODES or int(found[2]) > MOST_CPUS:
        raise InputError("slurm-lab", "not a shape", expected="nodes x CPUs, such as 8x4", found=quoted(text))
    return LabShape(int(found[1]), int(found[2]))


def slurm_conf(
    folder: Path, shape: LabShape, *, host: str, user: str, controller_port: int, node_ports: list[int], lua: bool
) -> str:
    everywhere = f"Nodes=n[1-{shape.nodes}] MaxTime=INFINITE DefaultTime=10"
    half = (shape.nodes + 1) // 2
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
        "SelectTypeParameters=CR_CPU",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "InactiveLimit=0",
        "KillWait=2",
        "MinJobAge=300",
        "MaxJobCount=30000",
        "MaxArraySize=10001",
        "WaitTime=0",
        "Licenses=matlab:2",
        "GresTypes=fpga",
        *(["JobSubmitPlugins=lua"] if lua else []),
        *(
            f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={shape.cpus}"
            f" RealMemory={shape.memory_mb} Feature={'low' if number <= half else 'high'}"
            f"{' Gres=fpga:2' if number <= half else ''} State=UNKNOWN"
            for number, port in enumerate(node_ports, 1)
        ),
        f"PartitionName=main {everywhere} Default=YES State=UP",
        f"PartitionName=queue {everywhere} State=DOWN OverSubscribe=EXCLUSIVE",
        f"PartitionName=go {everywhere} State=UP Hidden=YES OverSubscribe=EXCLUSIVE",
        f"PartitionName=cpuqueue {everywhere} State=DOWN",
        f"PartitionName=cpugo {everywhere} State=UP Hidden=YES",
        "",
    ]
    return "\n".join(lines)


def files(folder: Path, conf: str) -> dict[str, str]:
    """Name -> text of each file of the configuration."""
    return {
        "slurm.conf": conf,
        "cgroup.conf": "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n",
        "job_submit.lua": job_submit_lua([("queue", "go"), ("cpuqueue", "cpugo")]),
    }
