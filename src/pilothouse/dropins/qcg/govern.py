"""Behind `pilothouse qcg --governor`: a manager of managers, with those of its partitions if it makes some."""

from __future__ import annotations

import itertools
import os
import sys
import time
import uuid
from pathlib import Path

import pilothouse
from pilothouse.dropins.qcg.answers import System
from pilothouse.dropins.qcg.choices import Choices, in_slurm, named_nodes
from pilothouse.dropins.qcg.folder import Folder
from pilothouse.dropins.qcg.governing import Asker, Governing
from pilothouse.dropins.qcg.governor import Governor
from pilothouse.dropins.qcg.manager import request_variables
from pilothouse.dropins.qcg.network import KEY_FILE, Network
from pilothouse.worlds.live.contexts.slurm import SRUN

_CODE = "import sys; sys.path.append({root!r}); from pilothouse.cli.qcg import main; main()"


def govern(choices: Choices, path: Path, network: Network, system: System, requests: list[bytes]) -> None:
    """Runs a governor until it is over."""
    asker = Asker()
    numbers = itertools.count(1)
    partitions = _partitions(choices, network, path) if choices.slurm_partition_nodes else []
    governor = Governor(
        system,
        asker,
        lambda now: request_variables(next(numbers), uuid.uuid4().hex, "local", now),
        partitions=tuple(name for name, _ in partitions),
    )
    folder = Folder(path, choices.report_file, choices.report_format or "json")
    folder.write_environment(os.environ)
    governing = Governing(
        governor, network, folder, asker, clock=time.time, requests=requests, partitions=partitions
    )  # fmt: skip
    folder.write_address(network.address)
    governing.run()


def _partitions(choices: Choices, network: Network, path: Path) -> list[tuple[str, list[str]]]:
    """(name, command) of a manager for each so many nodes.

    They run on this host, from where each reaches its own nodes; on the first of these nodes if that is one of Slurm's
    and the governor may be reached from there.
    """
    size = choices.slurm_partition_nodes
    assert size is not None
    nodes = named_nodes(choices)
    program = [sys.executable, "-c", _CODE.format(root=str(Path(pilothouse.__file__).parent.parent))]
    common = ["--parent", network.address, "--wd", choices.wd, "--report-format", choices.report_format or "json"]
    common += ["--log", choices.level, "--envschema", choices.envschema, "--policy", choices.by]
    common += ["--nl-init-timeout", str(choices.nl_init_timeout)]
    common += ["--nl-ready-threshold", str(choices.nl_ready_threshold)]
    for option, port in (("--net-port-min", choices.net_port_min), ("--net-port-max", choices.net_port_max)):
        common += [option, str(port)] if port is not None else []
    if network.key:
        common += ["--parent-key", str(path / KEY_FILE), "--net-address", "0.0.0.0"]
    if choices.system_core:
        common.append("--system-core")
    first = choices.slurm_limit_nodes_range_begin or 0
    found = []
    for number, start in enumerate(range(0, len(nodes), size)):
        chosen = nodes[start : start + size]
        texts = [f"{name}:{cores}" for name, cores in chosen]
        if choices.hosts:
            where = ["--ssh", ",".join(texts)]
        elif in_slurm(choices):
            where = ["--resources", "slurm", "--slurm-limit-nodes-range-begin", str(first + start)]
            where += ["--slurm-limit-nodes-range-end", str(first + start + len(chosen))]
        else:
            where = ["--nodes", ",".join(texts)]
        name = f"partition-{number}"
        starter = [*SRUN, f"--nodelist={chosen[0][0]}"] if network.key and in_slurm(choices) else []
        found.append((name, [*starter, *program, "--id", name, *common, *where]))
    return found
