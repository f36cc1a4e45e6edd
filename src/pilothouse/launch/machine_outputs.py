"""The files of machines: PREFIX + machine_states.csv, pstate_changes.csv and, with energy, consumed_energy.csv.

In: what a Tracer is told. Out: the three tables as Batsim writes them, except that machines return to idle when their
last job ends, and the figures of machines for schedule.json.
"""

from __future__ import annotations

from typing import TextIO

from pilothouse.launch.outputs import opened
from pilothouse.model.idset import IdSet
from pilothouse.worlds.simulated.physics.machines import Machines, MachineState, Tracer

COUNTED = (
    MachineState.SLEEPING,
    MachineState.SWITCHING_ON,
    MachineState.SWITCHING_OFF,
    MachineState.IDLE,
    MachineState.COMPUTING,
)


class MachineOutputs(Tracer):
    """Writes rows as things happen."""

    def __init__(self, prefix: str, *, energy: bool) -> None:
        states = ",".join(f"nb_{state.name.lower()}" for state in COUNTED)
        self._states = self._table(prefix, "machine_states", f"time,{states}")
        self._pstates = self._table(prefix, "pstate_changes", "time,machine_id,new_pstate")
        self._energy = self._table(prefix, "consumed_energy", "time,energy,event_type,wattmin,epower") if energy else None
        self._last = (0.0, 0.0)
        self._machines: Machines | None = None

    def _table(self, prefix: str, name: str, columns: str) -> TextIO:
        stream = opened(f"{prefix}{name}.csv")
        stream.write(columns + "\n")
        return stream

    def began(self, machines: Machines) -> None:
        self._machines = machines
        groups: dict[int, int] = {}
        for number, pstate in enumerate(machines.pstates):
            groups[pstate] = groups.get(pstate, 0) | 1 << number
        for pstate, mask in sorted(groups.items()):
            self._pstates.write(f"0,{IdSet(mask)},{pstate}\n")

    def machines_changed(self, machines: Machines) -> None:
        numbers = ",".join(str(machines.counts[state]) for state in COUNTED)
        self._states.write(f"{machines.now:g},{numbers}\n")

    def power_state_changed(self, now: float, units: IdSet, pstate: int) -> None:
        self._pstates.write(f"{now:g},{units},{pstate}\n")
        self._meter("p")

    def job_started(self, machines: Machines) -> None:
        self._meter("s")

    def job_ended(self, machines: Machines) -> None:
        self._meter("e")

    def _meter(self, kind: str) -> None:
        machines = self._machines
        if self._energy is None or machines is None:
            return
        now, joules = machines.now, machines.energy_j()
        before, had = self._last
        power = f"{(joules - had) / (now - before):f}" if now > before else "NA"
        self._energy.write(f"{now:f},{joules:f},{kind},{machines.least_power_w():f},{power}\n")
        self._last = (now, joules)

    def close(self) -> dict[str, float | int | str]:
        """Flushes the tables; what schedule.json says of machines."""
        for stream in (self._states, self._pstates, self._energy):
            if stream is not None:
                stream.close()
        machines = self._machines
        if machines is None:
            return {}
        figures: dict[str, float | int | str] = {
            "nb_grouped_switches": machines.switched_groups,
            "nb_machine_switches": machines.switches,
        }
        figures |= {f"time_{state.name.lower()}": seconds for state, seconds in zip(MachineState, machines.spent(), strict=True)}
        if machines.meters:
            figures["consumed_joules"] = machines.energy_j()
        return figures
