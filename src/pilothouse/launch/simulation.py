"""What commands read before they simulate: platform, workloads in any format, external events."""

from __future__ import annotations

from collections.abc import Sequence

from pilothouse.formats.workload import Workload
from pilothouse.worlds.simulated.inputs import Setup
from pilothouse.worlds.simulated.inputs import load as load_setup
from pilothouse.worlds.simulated.physics.platform import Platform


def load(
    platform: str,
    workloads: Sequence[str],
    events: Sequence[str] = (),
    duration: str = "",
    *,
    energy: bool = False,
    solver: str = "fair-bottleneck",
    control_latency: bool = False,
) -> Setup:
    """Reads everything, or raises InputError before anything was written."""

    def read_requests(path: str, name: str, machine: Platform) -> Workload:
        from pilothouse.formats.qcg_workload import Durations, load_workload

        durations = Durations.named(duration) if duration else Durations()
        return load_workload(path, durations, machine.nodes(), name=name)

    return load_setup(
        platform,
        workloads,
        events=events,
        read_other=read_requests,
        energy=energy,
        solver=solver,
        control_latency=control_latency,
    )
