"""Memory of tasks: how much a node has, limits that the kernel enforces (cgroups of version 1 or 2), and watching.

In: a limit for the task that a cylinder is about to start. Out: a `MemoryGuard` that says how to start it, whether it must be
ended, and what it used. A task gets a cgroup of its own where this process may make one. It is watched in any case: the memory of
all processes below the cylinder is summed up now and then, and shared pages are divided among their users before a task is ended.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

PARENT = "PILOTHOUSE_CGROUP"
"""In the environment of an engine: the folder of a cgroup below which tasks get theirs; `no`: they get none. Default: its own."""
LOOK_S = 0.1
LOOK_WITH_CGROUP_S = 1.0
LOOK_PER_PROCESS_S = 0.0005
"""A look costs about a twentieth of this for each process of the host."""
_PREFIX = "pilothouse-"
_UNLIMITED_KB = 2**50
_JOIN = b'echo 0 > "$0" || exit 126; exec "$@"'
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


def memory_of_node_mb() -> int:
    """What this process and its children may use: the memory of the host, or less if its cgroups have limits."""
    try:
        found_kb = os.sysconf("SC_PHYS_PAGES") * _PAGE_KB
    except (ValueError, OSError):
        return 0
    for folder, file in _limit_files():
        while folder.is_dir():
            found_kb = min(found_kb, _number_kb(folder / file))
            if folder.parent == folder or not (folder.parent / "cgroup.procs").exists():
                break
            folder = folder.parent
    return found_kb // 1024


def _limit_files() -> list[tuple[Path, str]]:
    return [(folder, "memory.max" if version == 2 else "memory.limit_in_bytes") for version, folder in _own_cgroups()]


def _own_cgroups() -> list[tuple[int, Path]]:
    """The version and the folder of the cgroups of this process that may limit memory."""
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                found.append((1, Path("/sys/fs/cgroup/memory", path.lstrip("/"))))
            elif number == "0" and not controllers:
                found.append((2, Path("/sys/fs/cgroup", path.lstrip("/"))))
    return found


def _number_kb(path: Path) -> int:
    """A limit in the file of a cgroup; very large where there is none."""
    try:
        text = path.read_text().strip()
        return _UNLIMITED_KB if text == "max" else min(_UNLIMITED_KB, int(text) // 1024)
    except (OSError, ValueError):
        return _UNLIMITED_KB


class MemoryGuards:
    """Makes guards for the tasks of one cylinder."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._parents: list[tuple[int, Path]] | None = None
        self._wanted = environment.get(PARENT, "")
        self._made = 0
        self._left: list[Path] = []
        """Cgroups that processes in the background were left in."""

    def guard(self, limit_mb: int) -> MemoryGuard:
        return MemoryGuard(limit_mb, self._make(limit_mb), self._left)

    def _make(self, limit_mb: int) -> _Cgroup | None:
        self.close()
        if self._parents is None:
            self._parents = self._find_parents()
        for version, parent in self._parents:
            self._made += 1
            made = _Cgroup(version, parent / f"{_PREFIX}{os.getpid()}-{self._made}")
            if made.make(limit_mb):
                return made
        self._parents = []  # what did not work once is not tried again
        return None

    def _find_parents(self) -> list[tuple[int, Path]]:
        if self._wanted == "no":
            return []
        if not self._wanted:
            parents = _own_cgroups()
        else:
            parent = Path(self._wanted)
            parents = [(1 if (parent / "memory.limit_in_bytes").exists() else 2, parent)]
        for _, parent in parents:
            _remove_stale(parent)
        return parents

    def close(self) -> None:
        """Removes cgroups that are empty by now."""
        for folder in list(self._left):
            with contextlib.suppress(OSError):
                folder.rmdir()
                self._left.remove(folder)


def _remove_stale(parent: Path) -> None:
    """Cgroups of cylinders that were killed. One that holds a process cannot be removed."""
    with contextlib.suppress(OSError):
        for folder in parent.glob(f"{_PREFIX}*-*"):
            owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
            if not Path("/proc", owner).exists():
                with contextlib.suppress(OSError):
                    folder.rmdir()


class _Cgroup:
    """One cgroup with a limit."""

    def __init__(self, version: int, folder: Path) -> None:
        self.folder = folder
        self._new = version == 2

    def make(self, limit_mb: int) -> bool:
        """False if we may not, or the limit would not hold."""
        limit = limit_mb * 2**20
        try:
            if self._new:
                with contextlib.suppress(OSError):
                    (self.folder.parent / "cgroup.subtree_control").write_text("+memory")
            self.folder.mkdir()
            name = "memory.max" if self._new else "memory.limit_in_bytes"
            (self.folder / name).write_text(str(limit))
            for other, text in self._others(limit):
                with contextlib.suppress(OSError):
                    (self.folder / other).write_text(text)
            if int((self.folder / name).read_text()) <= limit:
                return True
        except (OSError, ValueError):
            pass
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        return False

    def _others(self, limit: int) -> list[tuple[str, str]]:
        """No swap instead of memory; and the whole task ends, not one process of it."""
        if self._new:
            return [("memory.swap.max", "0"), ("memory.oom.group", "1")]
        return [("memory.memsw.limit_in_bytes", str(limit))]

    @property
    def peak_kb(self) -> int:
        found = _number_kb(self.folder / ("memory.peak" if self._new else "memory.max_usage_in_bytes"))
        return 0 if found == _UNLIMITED_KB else found

    @property
    def killed(self) -> bool:
        """Whether the kernel ended a process for its memory."""
        try:
            text = (self.folder / ("memory.events" if self._new else "memory.oom_control")).read_text()
        except OSError:
            return False
        return any(line.split() != ["oom_kill", "0"] for line in text.splitlines() if line.startswith("oom_kill "))


class MemoryGuard:
    """The limit of one task."""

    def __init__(self, limit_mb: int, cgroup: _Cgroup | None, left: list[Path]) -> None:
        self._limit_kb = limit_mb * 1024
        self._cgroup = cgroup
        self._left = left
        self._peak_kb = 0
        self.exceeded = False
        self.pause_s = LOOK_S if cgroup is None else LOOK_WITH_CGROUP_S
        """How long after the start, or after the last look, to look again."""

    def argv(self, argv: list[bytes]) -> list[bytes]:
        """How to start the task."""
        if self._cgroup is None:
            return argv
        return [b"/bin/sh", b"-c", _JOIN, os.fsencode(self._cgroup.folder / "cgroup.procs"), *argv]

    def look(self) -> bool:
        """Whether the processes below this one use more than they may."""
        processes, count = descendants_kb(os.getpid())
        least_s = LOOK_S if self._cgroup is None else LOOK_WITH_CGROUP_S
        self.pause_s = max(least_s, LOOK_PER_PROCESS_S * count)
        used_kb = sum(processes.values())
        if used_kb > self._limit_kb:
            used_kb = sum(_own_share_kb(pid, resident_kb) for pid, resident_kb in processes.items())
        self._peak_kb = max(self._peak_kb, used_kb)
        self.exceeded = self.exceeded or used_kb > self._limit_kb
        return self.exceeded

    def finish(self, largest_kb: int) -> tuple[int, bool]:
        """When the task has ended: the most that it used, and whether it was ended for that. `largest_kb` is the most that one of
        its processes used, as the kernel says."""
        peak_kb = max(self._peak_kb, largest_kb)
        if self._cgroup is not None:
            peak_kb = max(peak_kb, self._cgroup.peak_kb)
            self.exceeded = self.exceeded or self._cgroup.killed
            try:
                self._cgroup.folder.rmdir()
            except OSError:
                self._left.append(self._cgroup.folder)  # until the processes in it have ended
        return peak_kb, self.exceeded


def descendants_kb(ancestor: int) -> tuple[dict[int, int], int]:
    """The resident memory of all processes that descend from one, and how many processes the host has."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
                parents[int(entry)] = (int(fields[1]), int(fields[21]) * _PAGE_KB)
    found: dict[int, int] = {}
    below = {ancestor}
    while below:
        below = {pid for pid, (parent, _) in parents.items() if parent in below and pid not in found}
        found.update((pid, parents[pid][1]) for pid in below)
    return found, len(parents)


def _own_share_kb(pid: int, resident_kb: int) -> int:
    """Memory of a process with shared pages divided among those that share them; all of it where that is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc", str(pid), "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return resident_kb
