"""Holds a loopback Slurm: until a signal, the end of a command, or the end of another process."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from pilothouse.launch.signals import leave, on_signals
from pilothouse.model.errors import InputError, RunError
from pilothouse.worlds.slurm.daemons import MissingComponent
from pilothouse.worlds.slurm.lab import Lab
from pilothouse.worlds.slurm.lab_files import parse_shape

READY = "ready.json"
"""Written into the folder when all nodes are idle."""


def hold_lab(shape_text: str, command: list[str], folder: str | None, until_ended: int | None) -> int:
    """Returns the exit code of the command."""
    shape = parse_shape(shape_text)
    with contextlib.ExitStack() as stack:
        place = Path(folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="pilothouse-slurm-"))).absolute()
        try:
            lab = Lab(place, shape)
        except MissingComponent as missing:
            raise InputError("slurm-lab", str(missing), hint="apt-get install slurmctld slurmd slurm-client munge") from None
        stack.enter_context(on_signals(leave))
        owner = _pidfd(until_ended)
        stack.callback(lab.stop)
        try:
            lab.start()
        except (RuntimeError, TimeoutError, OSError, subprocess.CalledProcessError) as problem:
            raise RunError(f"Slurm did not start: {problem}") from None
        cpus = sum(kind.cpus for kind in shape.kinds)
        stack.callback((place / READY).unlink, missing_ok=True)
        partial = place / "ready.partial"
        partial.write_text(json.dumps({"pid": os.getpid(), "nodes": len(shape.kinds), "cpus": cpus}))
        partial.rename(place / READY)
        if command:
            return _run(command, lab)
        print(f"Slurm runs: {len(shape.kinds)} nodes, {cpus} CPUs in all. In another shell:", file=sys.stderr)
        print(f"export SLURM_CONF={lab.conf}", flush=True)
        if owner is None:
            signal.pause()
        else:
            select.select([owner], [], [])
    return 0


def _run(command: list[str], lab: Lab) -> int:
    try:
        return subprocess.run(command, env=lab.env, check=False).returncode
    except OSError as problem:
        raise InputError("slurm-lab", f"{command[0]} cannot be run: {problem.strerror}") from None


def _pidfd(pid: int | None) -> int | None:
    if pid is None:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as problem:
        raise InputError("--until-ended", f"process {pid}: {problem.strerror}") from None
