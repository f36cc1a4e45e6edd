"""The addresses of this host by which other hosts are reached: where a run that uses them listens.

In: host names, as ssh or Slurm know them. Out: addresses to bind, or ALL where a host cannot be resolved or is behind a proxy.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

LOOPBACK = "127.0.0.1"
ALL = "0.0.0.0"
"""All interfaces of this host."""
SSH_CONFIG_S = 10.0
_AT_ONCE = 16


def towards(hosts: Iterable[str]) -> tuple[str, ...]:
    """Our addresses on the way to these hosts; (ALL,) if one of them cannot be resolved."""
    found: dict[str, None] = {}
    for host in hosts:
        source = _source_address(host)
        if source is None:
            return (ALL,)
        found[source] = None
    return tuple(found) or (LOOPBACK,)


def towards_by_ssh(hosts: Iterable[str]) -> tuple[str, ...]:
    """The same for names that ssh may know by its own configuration. A name that only ssh knows is taken for unknown."""
    names = list(hosts)
    if towards(name.rpartition("@")[2] for name in names) == (ALL,):
        return (ALL,)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        resolved = list(pool.map(_ssh_host, names))
    if any(name is None for name in resolved):
        return (ALL,)
    return towards(name for name in resolved if name is not None)


def _source_address(host: str) -> str | None:
    try:
        infos = socket.getaddrinfo(host, 9, socket.AF_INET, socket.SOCK_DGRAM)
        # No packet is sent: this asks the kernel which address it would use.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(infos[0][4])
            source = str(probe.getsockname()[0])
    except OSError:
        return None
    # Whether a host's own name is 127.0.0.1 or 127.0.1.1, it is this host.
    return LOOPBACK if source.startswith("127.") else source


def _ssh_host(name: str) -> str | None:
    """The host name that ssh would connect to; None: not known, or not directly."""
    try:
        shown = subprocess.run(
            ["ssh", "-G", "--", name], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SSH_CONFIG_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return name.rpartition("@")[2]
    settings = dict(line.split(" ", 1) for line in shown.stdout.splitlines() if " " in line)
    if settings.get("proxyjump", "none") != "none" or settings.get("proxycommand", "none") != "none":
        return None
    return settings.get("hostname", name.rpartition("@")[2])
