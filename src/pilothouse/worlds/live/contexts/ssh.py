"""The ssh context: one engine on each of some hosts, started by the user's own ssh (its configuration, its keys)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from pilothouse.model.errors import InputError, quoted
from pilothouse.worlds.live.contexts import Departure, Launch
from pilothouse.worlds.live.contexts.programs import Programs, engine_command, new_key

SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=30")


class SshContext:
    """Hosts and their slots. `python` is the interpreter over there (default: the one here)."""

    remote = True

    def __init__(self, hosts: dict[str, int], *, name: str = "ssh", python: str = "") -> None:
        self.name = name
        self.engines = len(hosts)
        self._hosts = hosts
        self._python = python
        self._programs = Programs(name)

    def start(self, launch: Launch) -> None:
        command = shlex.join(engine_command(self._python or launch.python))
        for host, slots in self._hosts.items():
            key = new_key(self.name)
            # A name given by the user tells hosts apart even where several call themselves the same.
            log = str(Path(launch.folder) / f"engine-{key}-{host}.log")
            config = launch.config(self.name, slots, node=host, key=key, log=log)
            self._programs.start([*SSH, host, command], config)

    def ended(self) -> list[Departure]:
        return self._programs.ended()

    def close(self) -> None:
        self._programs.forget()


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
