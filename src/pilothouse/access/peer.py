"""Who is at the other end of a TCP connection: a user of this host, or another host.

In: a connected socket. Out: a Peer. The kernel's table of sockets (sock_diag(7), or /proc/net/tcp where that is not allowed) has
both ends of a connection within this host, each with the uid of its owner. The other end of a connection from elsewhere is not
in it.

A socket that its owner has closed has inode 0 there, and uid 0 as soon as the kernel has also delivered its end (or at once,
before Linux 6.17). A client that closes before we look would then be unknown. `hold_ends` lets a listener hold the ends of its
connections back until `release_end`, so that there is time to look.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import re
import socket
import struct
import sys
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

import msgspec

_SOCK_DIAG_BY_FAMILY = 20
_NETLINK_SOCK_DIAG = 4
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_NO_COOKIE = 0xFFFFFFFF
_FIN_WAIT_1 = 4
_TIME_WAIT = 6
_SO_ATTACH_FILTER = 26
_SO_DETACH_FILTER = 27
_DROP_ENDS = struct.pack("HBBI" * 4, 0x30, 0, 0, 13, 0x45, 0, 1, 1, 0x06, 0, 0, 0, 0x06, 0, 0, 0xFFFFFFFF)
"""A classic BPF program over a TCP segment: the byte of flags (13); if FIN (1) is set keep 0 bytes, else all."""
_ANSWER_BYTES = 8192
ROOT = 0

Address = tuple[str, int]


class Whose(Enum):
    OURS = "ours"
    """Of this process's user, or of root."""
    ANOTHER_USER = "another user"
    UNKNOWN = "unknown"
    """Within this host, but its owner has closed it or is hidden."""
    ELSEWHERE = "elsewhere"
    """On another host."""


class Peer(msgspec.Struct, frozen=True):
    whose: Whose
    host: str
    """Its IP address."""
    port: int = 0
    uid: int | None = None

    def __str__(self) -> str:
        owner = f" (uid {self.uid})" if self.uid is not None else ""
        return f"{self.host}:{self.port}{owner}"


def peer_of(connection: socket.socket) -> Peer:
    """Who is at the other end. A connection that is broken already is UNKNOWN."""
    try:
        theirs = _address(connection.getpeername())
        ours = _address(connection.getsockname())
    except OSError:
        return Peer(Whose.UNKNOWN, "?")
    if not ipaddress.ip_address(theirs[0]).is_loopback and theirs[0] != ours[0] and not is_own_address(theirs[0]):
        return Peer(Whose.ELSEWHERE, *theirs)
    uid = owner_of(connection.family, theirs, ours)
    if uid is None:
        return Peer(Whose.UNKNOWN, *theirs)
    return Peer(Whose.OURS if uid in (os.geteuid(), ROOT) else Whose.ANOTHER_USER, *theirs, uid)


def keeps_owners() -> bool:
    """Whether this kernel knows the owner of a closed socket while its end has not been delivered."""
    numbers = re.findall(r"\d+", os.uname().release)[:2]
    return tuple(map(int, numbers)) >= (6, 17)


def hold_ends(listener: socket.socket) -> None:
    """Connections of this listener do not see their other end close until `release_end`. Data arrives as usual; the kernel of the
    peer sends the end again.
    """
    program = ctypes.create_string_buffer(_DROP_ENDS)
    with contextlib.suppress(OSError):  # not every sandbox has filters
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 4, ctypes.addressof(program)))


def release_end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # there was no filter
        connection.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def is_own_address(host: str) -> bool:
    """Whether this host has the address: only then can a socket be bound to it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def addresses_of(names: Iterable[str]) -> set[str]:
    """The addresses of hosts, as far as they can be resolved."""
    found: set[str] = set()
    for name in names:
        with contextlib.suppress(OSError):
            found.update(str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
    return found


def owner_of(family: int, local: Address, remote: Address) -> int | None:
    """The uid of the socket on this host that is bound to `local` and connected to `remote`; None: not known."""
    try:
        found = _ask_kernel(family, local, remote)
    except OSError:
        found = _read_table(family, local, remote)  # a container may allow no netlink
    if found is None:
        return None
    uid, inode, state = found
    if uid == ROOT and not inode:
        return ROOT if state == _FIN_WAIT_1 and keeps_owners() else None
    return None if state == _TIME_WAIT else uid


def _address(name: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    return name[0].partition("%")[0], name[1]


def _packed(family: int, host: str) -> bytes:
    return socket.inet_pton(family, host)


def _ask_kernel(family: int, local: Address, remote: Address) -> tuple[int, int, int] | None:
    """(uid, inode, state) by struct inet_diag_req_v2 (linux/inet_diag.h). Raises OSError where netlink is not allowed."""
    sockets = struct.pack(">HH", local[1], remote[1])
    sockets += _packed(family, local[0]).ljust(16, b"\0") + _packed(family, remote[0]).ljust(16, b"\0")
    sockets += struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
    request = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + sockets
    header = struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(header + request)
        answer = kernel.recv(_ANSWER_BYTES)
    kind = struct.unpack_from("=H", answer, 4)[0]
    if kind == _NLMSG_ERROR:
        error = -struct.unpack_from("=i", answer, 16)[0]
        if error == 2:  # ENOENT: there is no such socket
            return None
        raise OSError(error, os.strerror(error))
    state = answer[17]
    uid, inode = struct.unpack_from("=II", answer, 16 + 4 + 48 + 12)
    return uid, inode, state


def _read_table(family: int, local: Address, remote: Address) -> tuple[int, int, int] | None:
    """The same by /proc/net/tcp or tcp6."""
    table = Path("/proc/net/tcp6" if family == socket.AF_INET6 else "/proc/net/tcp")
    wanted = [_as_in_table(family, *local), _as_in_table(family, *remote)]
    try:
        lines = table.read_text("ascii").splitlines()[1:]
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if fields[1:3] == wanted:
            return int(fields[7]), int(fields[9]), int(fields[3], 16)
    return None


def _as_in_table(family: int, host: str, port: int) -> str:
    packed = _packed(family, host)
    words = struct.unpack(f">{len(packed) // 4}I", packed)
    if sys.byteorder == "little":
        words = struct.unpack(f"<{len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
