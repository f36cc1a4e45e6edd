"""Writes a schedule as a Pajé trace (`_schedule.trace`), with the names and numbers of Batsim 4, for viewers such as ViTE.

In: machines, and when which job computes where. Out: lines of text. Batsim shuffles the colours of jobs; ours go around
the colour circle in a fixed order, so that the same run gives the same file.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TextIO

COLOURS = 64
CONTAINER_TYPE, CREATE, DESTROY, STATE_TYPE, VALUE = range(1, 6)
SET_STATE, EVENT_TYPE, EVENT, VARIABLE_TYPE, SET_VARIABLE = range(6, 11)

_DEFINITIONS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("DefineContainerType", CONTAINER_TYPE, ("Type string", "Alias string", "Name string")),
    ("CreateContainer", CREATE, ("Time date", "Type string", "Alias string", "Name string", "Container string")),
    ("DestroyContainer", DESTROY, ("Time date", "Name string", "Type string")),
    ("DefineStateType", STATE_TYPE, ("Alias string", "Type string", "Name string")),
    ("DefineEntityValue", VALUE, ("Alias string", "Type string", "Name string", "Color color")),
    ("SetState", SET_STATE, ("Time date", "Type string", "Container string", "Value string")),
    ("DefineEventType", EVENT_TYPE, ("Type string", "Alias string", "Name string")),
    ("NewEvent", EVENT, ("Time date", "Type string", "Container string", "Value string")),
    ("DefineVariableType", VARIABLE_TYPE, ("Type string", "Alias string", "Name string", "Color string")),
    ("SetVariable", SET_VARIABLE, ("Time date", "Type string", "Container string", "Value double")),
)


_COLOURS = [
    f"{red:f} {green:f} {blue:f}"
    for red, green, blue in (colorsys.hsv_to_rgb(i / COLOURS, 1.0, 1.0) for i in range(COLOURS))
]


@lru_cache(maxsize=4096)
def _lines_of(machines: tuple[int, ...]) -> str:
    """A line for each machine, with `@` and `#` in place of the text before and after its number."""
    return "".join([f"@{machine}#" for machine in machines])


class PajeTrace:
    """Writes each change at once. `close` ends the containers; viewers complain about traces without that."""

    def __init__(self, stream: TextIO, machines: Sequence[str]) -> None:
        self._stream = stream
        self._count = len(machines)
        self._named: set[str] = set()
        for name, number, fields in _DEFINITIONS:
            lines = "".join(f"% {field}\n" for field in fields)
            stream.write(f"%EventDef Paje{name} {number}\n{lines}%EndEventDef\n\n")
        stream.write(
            "# Container types creation\n"
            f'{CONTAINER_TYPE} 0 root_ct "Machines"\n'
            f'{CONTAINER_TYPE} root_ct machine_ct "Machine"\n'
            f'{CONTAINER_TYPE} 0 scheduler_ct "Scheduler"\n'
            f'{CONTAINER_TYPE} scheduler_ct killer_ct "Killer"\n\n'
            "# Event types creation\n"
            f'{EVENT_TYPE} killer_ct kk "Job kill"\n'
            f'{EVENT_TYPE} machine_ct km "Job kill"\n\n'
            "# Variable types creation\n"
            f'{VARIABLE_TYPE} scheduler_ct vu_vt "Utilization" "0.0 0.5 0.0"\n\n'
            "# Containers creation\n"
            f'{CREATE} {0:f} root_ct root "Machines" 0\n'
        )
        stream.writelines(f'{CREATE} {0:f} machine_ct m{i} "{name}" root\n' for i, name in enumerate(machines))
        stream.write(
            f'{CREATE} {0:f} scheduler_ct sc "Scheduler" 0\n'
            f'{CREATE} {0:f} killer_ct k "Killer" sc\n\n'
            "# States creation\n"
            f'{STATE_TYPE} machine_state machine_ct "Machine state"\n\n'
            "# Creation of the different values the machine state can be\n"
            f'{VALUE} w machine_state "Waiting" "0.0 0.0 0.0"\n'
            f'{VALUE} l machine_state "Launching" "0.3 0.3 0.3"\n\n'
            "# Begin of events\n"
        )
        self.wait(0.0, range(self._count))

    def wait(self, now: float, machines: Iterable[int]) -> None:
        """Machines compute nothing."""
        head = f"{SET_STATE} {now:f} machine_state m"
        self._stream.write(_lines_of(tuple(machines)).replace("@", head).replace("#", " w\n"))

    def compute(self, now: float, job_id: str, machines: Iterable[int]) -> None:
        """Machines compute a job."""
        head, tail = f"{SET_STATE} {now:f} machine_state m", f" j{job_id}\n"
        lines = _lines_of(tuple(machines)).replace("@", head).replace("#", tail)
        if job_id not in self._named:
            colour = _COLOURS[len(self._named) % COLOURS]
            self._named.add(job_id)
            lines = f'{VALUE} j{job_id} machine_state "{job_id}" "{colour}"\n{lines}'
        self._stream.write(lines)

    def kill(self, now: float, job_id: str, machines: Iterable[int]) -> None:
        """A job is killed: one event for the killer, one for each machine."""
        self._stream.write(f'{EVENT} {now:f} kk k "{job_id}"\n')
        self._stream.writelines(f'{EVENT} {now:f} km m{i} "{job_id}"\n' for i in machines)

    def close(self, now: float) -> None:
        self._stream.write("\n# End of events, containers destruction\n")
        self._stream.writelines(f"{DESTROY} {now:f} m{i} machine_ct\n" for i in range(self._count))
        self._stream.write(f"{DESTROY} {now:f} root root_ct\n")
        self._stream.close()
