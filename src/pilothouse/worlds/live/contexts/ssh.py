"""The ssh context: one engine on each of some hosts, started by the user's own ssh (its configuration, its keys)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from pilothouse.model.errors import InputError, quoted
from pilothouse.worlds.live.contexts import Launch
from pilothouse.worlds.live.contexts.programs import ProgramContext, engine_command, log_name
from pilothouse.worlds.live.engine.config import EngineConfig

SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=30")


class SshContext(ProgramContext):
    """Hosts and their slots. `python` is the interpreter over there (default: the one here)."""

    def __init__(self, hosts: dict[str, int], *, name: str = "ssh", python: str = "") -> None:
        super().__init__(name, hosts)
        self._hosts = hosts
        self._python = python

    def command(self, part: str, launch: Launch) -> list[str]:
        return [*SSH, part, shlex.join(engine_command(self._python or launch.python))]

    def config(self, part: str, key: str, launch: Launch) -> EngineConfig:
        # A name given by the user tells hosts apart even where several call themselves the same.
        return launch.config(self.name, self._hosts[part], node=part, key=key, log=log_name(launch, key))


def parse_hosts(texts: Iterable[str]) -> dict[str, int]:
    """`h1:8,h2:4`, any number of such texts; slots of a host that is named twice add up."""
    hosts: dict[str, int] = {}
    for text in texts:
        for part in text.split(","):
            host, colon, count = part.strip().rpartition(":")
            if not colon or not host or not count.isdigit() or int(count) < 1:
                raise InputError("--ssh", "not a list of hosts", expected="HOST:SLOTS,...", found=quoted(text))
            hosts[host] = hosts.get(host, 0) + int(count)
    return hosts
