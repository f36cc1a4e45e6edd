"""Behind `pilothouse qcg --governor`: a governor with its network interface, its files and its partitions.

A partition is a part of the nodes with a manager of its own, which the governor starts (`--slurm-partition-nodes`).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pilothouse
from pilothouse.dropins.qcg.files import ManagerFiles
from pilothouse.dropins.qcg.governor import Governor, Member
from pilothouse.dropins.qcg.manager import System
from pilothouse.dropins.qcg.options import QcgOptions, in_slurm, named_nodes
from pilothouse.dropins.qcg.service import log_file_answer, log_request
from pilothouse.launch.signals import on_signals
from pilothouse.model.errors import PeerError
from pilothouse.protocols.qcg.client import QcgClient
from pilothouse.protocols.qcg.network import KEY_FILE, Answer, Network
from pilothouse.worlds.live.contexts.slurm import SRUN

log = logging.getLogger("pilothouse.qcg")

ASK_S = 10.0
"""How long a manager may take to answer its governor."""
LOOK_S = 0.2
"""How often a governor checks its partitions while there are no requests."""
END_S = 30.0
"""How long managers of partitions may take to end."""
_CODE = "import sys; sys.path.append({root!r}); from pilothouse.cli.qcg import main; main()"


def govern(options: QcgOptions, folder: Path, network: Network, system: System, requests: list[bytes]) -> None:
    """Runs a governor until it is over."""
    files = ManagerFiles(folder, options.report_file, options.report_format or "json")
    files.write_environment(os.environ)
    service = GovernorService(system, network, files, _partition_commands(options, network, folder))
    files.write_address(network.address)
    with on_signals(service.stop):
        service.run(requests)


class Partition:
    """A manager of some of the nodes, started by the governor on its own host."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        # The names that 0.14.2 gives them.
        out = (folder / f"part-manager-{name}-stdout.log").open("w")
        err = (folder / f"part-manager-{name}-stderr.log").open("w")
        with out, err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        log.info("partition %s: manager started, pid %d", name, self.process.pid)

    def end(self) -> None:
        """Waits for a manager that was asked to finish; terminates, then kills it if it takes too long."""
        for act in (self.process.terminate, self.process.kill):
            try:
                self.process.wait(END_S)
                return
            except subprocess.TimeoutExpired:
                log.warning("partition %s: the manager does not end", self.name)
                act()
        self.process.wait()


class GovernorService:
    """A governor at work. `run` once."""

    def __init__(self, system: System, network: Network, files: ManagerFiles, commands: dict[str, list[str]]) -> None:
        """`commands` start the managers of partitions, by name."""
        self._governor = Governor(system, self._ask, lambda: uuid.uuid4().hex, partitions=tuple(commands))
        self._network = network
        self._files = files
        self._commands = commands
        self._partitions: list[Partition] = []
        self._clients: dict[str, QcgClient] = {}
        self._stopped = False

    def stop(self, _signal: int) -> None:
        self._stopped = True

    def run(self, requests: list[bytes]) -> None:
        try:
            self._partitions = [Partition(name, command, self._files.folder) for name, command in self._commands.items()]
            for text in requests:
                log_file_answer(self._answer(text))
            while not self._over():
                self._network.serve(self._answer)
                self._check_partitions()
                self._governor.settle(time.time())
                self._publish()
                self._network.wait(LOOK_S)
        finally:
            self._close()

    def _ask(self, member: Member, request: dict[str, object]) -> Answer:
        """Connections to managers are kept."""
        client = self._clients.get(member.address)
        if client is None:
            client = self._clients[member.address] = QcgClient(member.address, key=member.key, timeout_s=ASK_S)
        return client.answer(request)

    def _answer(self, text: bytes) -> Answer:
        answer = self._governor.handle(text, time.time())
        # A client that is told of an end must not receive its event later, when it waits for other jobs.
        self._publish()
        log_request(text, answer)
        return answer

    def _publish(self) -> None:
        publications, self._governor.publications = self._governor.publications, []
        for topic, event in publications:
            self._network.publish(topic, event)

    def _check_partitions(self) -> None:
        for partition in list(self._partitions):
            code = partition.process.poll()
            if code is not None:
                log.error("partition %s: its manager ended with code %d", partition.name, code)
                self._partitions.remove(partition)
                self._governor.lost(partition.name, time.time())

    def _over(self) -> bool:
        governor = self._governor
        if self._stopped or (governor.stop_at is not None and time.time() >= governor.stop_at):
            return True
        # The last events are published before the socket closes.
        return governor.finish_when_done and governor.registry.unfinished == 0 and not governor.publications

    def _close(self) -> None:
        """Managers end with their governor: at once, or when their jobs are done."""
        governor = self._governor
        request: dict[str, object] = {"request": "control", "command": "finishAfterAllTasksDone"}
        if governor.registry.unfinished:
            request = {"request": "finish"}
        for member in governor.members.values():
            try:
                self._ask(member, request)
            except PeerError as error:
                log.warning("%s", error)
        for partition in self._partitions:
            partition.end()
        self._files.write_status(governor.status(time.time(), governor.last_usage))
        for client in self._clients.values():
            client.close()
        self._network.close()
        self._files.close()
        log.info("manager stopped")


def _partition_commands(options: QcgOptions, network: Network, folder: Path) -> dict[str, list[str]]:
    """Name and command of a manager for each so many nodes.

    They run on this host, from where each reaches its own nodes; inside Slurm, if the governor can be reached from
    other hosts, each runs on the first of its nodes.
    """
    size = options.slurm_partition_nodes
    if size is None:
        return {}
    nodes = named_nodes(options)
    program = [sys.executable, "-c", _CODE.format(root=str(Path(pilothouse.__file__).parent.parent))]
    common = ["--parent", network.address, "--wd", options.wd, "--report-format", options.report_format or "json"]
    common += ["--log", options.level, "--envschema", options.envschema, "--policy", options.by]
    common += ["--nl-init-timeout", str(options.nl_init_timeout)]
    common += ["--nl-ready-threshold", str(options.nl_ready_threshold)]
    for option, port in (("--net-port-min", options.net_port_min), ("--net-port-max", options.net_port_max)):
        common += [option, str(port)] if port is not None else []
    if network.key:
        common += ["--parent-key", str(folder / KEY_FILE), "--net-address", "0.0.0.0"]
    if options.system_core:
        common.append("--system-core")
    first = options.slurm_limit_nodes_range_begin or 0
    commands = {}
    for number, start in enumerate(range(0, len(nodes), size)):
        chosen = nodes[start : start + size]
        listed = ",".join(f"{name}:{cores}" for name, cores in chosen)
        if options.hosts:
            where = ["--ssh", listed]
        elif in_slurm(options):
            where = ["--resources", "slurm", "--slurm-limit-nodes-range-begin", str(first + start)]
            where += ["--slurm-limit-nodes-range-end", str(first + start + len(chosen))]
        else:
            where = ["--nodes", listed]
        name = f"partition-{number}"
        starter = [*SRUN, f"--nodelist={chosen[0][0]}"] if network.key and in_slurm(options) else []
        commands[name] = [*starter, *program, "--id", name, *common, *where]
    return commands
