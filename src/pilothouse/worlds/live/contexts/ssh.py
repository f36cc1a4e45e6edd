"""The ssh context: one engine on each of some hosts, started by the user's own ssh (its configuration, its keys)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from pilothouse.access.interfaces import towards_by_ssh
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.numerals import whole_number
from pilothouse.worlds.live.contexts import Launch
from pilothouse.worlds.live.contexts.programs import ProgramContext, engine_command

SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=30", "--")


class SshContext(ProgramContext):
    """Hosts and their slots. Engines have the names that the user gives to hosts, so that these need not be unique."""

    def __init__(
        self, hosts: dict[str, int], *, name: str = "ssh", gpus: tuple[str, ...] = (), memory_mb: int = 0
    ) -> None:
        super().__init__(name, hosts, gpus=gpus, memory_mb=memory_mb)

    def listens(self) -> tuple[str, ...]:
        return towards_by_ssh(self.slots)

    def command(self, part: str, launch: Launch) -> list[str]:
        return [*SSH, part, shlex.join(engine_command(launch.python))]


def parse_hosts(texts: Iterable[str], slots: int = 0) -> dict[str, int]:
    """`h1:8,h2:4`, any number of such texts; slots of a host that is named twice add up. One without a number has `slots`."""
    hosts: dict[str, int] = {}
    for text in texts:
        for part in text.split(","):
            host, _, number = part.strip().rpartition(":")
            if not host and slots:
                host, number = number, str(slots)
            count = whole_number(number) or 0
            if not host or host.startswith("-") or count < 1:  # a dash: ssh would take it for an option
                raise InputError("--ssh", "not a list of hosts", expected="HOST:SLOTS,...", found=quoted(text))
            hosts[host] = hosts.get(host, 0) + count
    return hosts
