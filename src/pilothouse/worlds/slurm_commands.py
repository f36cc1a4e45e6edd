"""Runs Slurm's commands and waits for them. In: a command line. Out: what it printed; PeerError if it fails.

Used by the live world (allocations of our own) and by the Slurm world (a Slurm that is steered).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from pilothouse.model.errors import PeerError

COMMAND_TIMEOUT_S = 60.0
"""A batch system that does not answer within this time is asked again later."""


def run(command: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(command[0], str(error)) from error
    if ran.returncode != 0:
        raise PeerError(command[0], ran.stderr.strip() or f"ended with code {ran.returncode}")
    return ran.stdout
