"""A governor at work: its network interface, its files, and the managers of partitions that it started itself."""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec

from pilothouse.dropins.qcg.answers import Answer
from pilothouse.dropins.qcg.client import QcgClient
from pilothouse.dropins.qcg.folder import Folder
from pilothouse.dropins.qcg.governor import Governor, Member
from pilothouse.dropins.qcg.network import Network
from pilothouse.model.errors import PeerError

log = logging.getLogger("pilothouse.qcg")

ASK_S = 10.0
"""How long a manager may take to answer its governor."""
LOOK_S = 0.2
"""How often a governor looks after its partitions while nobody asks anything."""
END_S = 30.0
"""How long managers of partitions may take to end."""


class Asker:
    """Puts requests to managers, each over a connection of its own that is kept."""

    def __init__(self) -> None:
        self._clients: dict[str, QcgClient] = {}

    def __call__(self, member: Member, request: dict[str, object]) -> Answer:
        client = self._clients.get(member.address)
        if client is None:
            client = self._clients[member.address] = QcgClient(member.address, key=member.key, timeout_s=ASK_S)
        return client.answer(request)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


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
        """It was told to finish; in the end it is made to."""
        for act in (self.process.terminate, self.process.kill):
            try:
                self.process.wait(END_S)
                return
            except subprocess.TimeoutExpired:
                log.warning("partition %s: the manager does not end", self.name)
                act()
        self.process.wait()


class Governing:
    """Runs a governor until it is over."""

    def __init__(
        self,
        governor: Governor,
        network: Network,
        folder: Folder,
        asker: Asker,
        *,
        clock: Callable[[], float],
        requests: list[bytes],
        partitions: list[tuple[str, list[str]]],
    ) -> None:
        self._governor = governor
        self._network = network
        self._folder = folder
        self._asker = asker
        self._clock = clock
        self._requests = requests
        self._commands = partitions
        self._partitions: list[Partition] = []
        self._signalled = False

    def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        try:
            self._partitions = [Partition(name, command, self._folder.path) for name, command in self._commands]
            for text in self._requests:
                answer = self._answer(text)
                log.info("FileInterface reply message: %s", msgspec.json.format(msgspec.json.encode(answer)).decode())
            while not self._over():
                self._network.serve(self._answer)
                self._look_after_partitions()
                self._governor.settle(self._clock())
                self._publish()
                self._network.wait(LOOK_S)
        finally:
            self._close()

    def _on_signal(self, number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        self._signalled = True

    def _answer(self, text: bytes) -> Answer:
        answer = self._governor.handle(text, self._clock())
        # Whoever is told that a job has ended must not hear of it later, as news of jobs that came since.
        self._publish()
        log.info("request %s", text[:2000].decode("utf-8", "replace"))
        log.info("answer %s", msgspec.json.encode(answer)[:2000].decode())
        return answer

    def _publish(self) -> None:
        publications, self._governor.publications = self._governor.publications, []
        for topic, event in publications:
            self._network.publish(topic, event)

    def _look_after_partitions(self) -> None:
        for partition in list(self._partitions):
            code = partition.process.poll()
            if code is not None:
                log.error("partition %s: its manager ended with code %d", partition.name, code)
                self._partitions.remove(partition)
                self._governor.lost(partition.name, self._clock())

    def _over(self) -> bool:
        governor = self._governor
        if self._signalled or (governor.stop_at is not None and self._clock() >= governor.stop_at):
            return True
        # Whoever waits shall hear of the last end before the socket closes.
        return governor.finish_when_done and governor.registry.unfinished == 0 and not governor.publications

    def _close(self) -> None:
        # Managers end with their governor: at once, or when what they have is done.
        order: dict[str, object] = {"request": "control", "command": "finishAfterAllTasksDone"}
        if self._governor.registry.unfinished:
            order = {"request": "finish"}
        for member in self._governor.members.values():
            try:
                self._asker(member, order)
            except PeerError as error:
                log.warning("%s", error)
        for partition in self._partitions:
            partition.end()
        self._folder.write_status(self._governor.status(self._clock()))
        self._asker.close()
        self._network.close()
        self._folder.close()
        log.info("manager stopped")
