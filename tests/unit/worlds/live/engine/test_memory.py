"""Which cgroups of this process may limit memory, as the kernel lists them."""

from __future__ import annotations

from pathlib import Path

from pilothouse.worlds.live.engine import memory


def test_cgroups_of_both_versions_are_found() -> None:
    expected = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if line.startswith("0::"):
            expected.append((2, Path(f"/sys/fs/cgroup{path}")))
        elif "memory" in controllers.split(","):
            expected.append((1, Path(f"/sys/fs/cgroup/memory{path}")))
    assert memory._own_cgroups() == expected
    assert expected
