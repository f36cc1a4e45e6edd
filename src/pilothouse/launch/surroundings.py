"""What a command that runs tasks must find around it: standard streams, and a folder to work in."""

from __future__ import annotations

import os
import sys

from pilothouse.model.errors import InputError


def check_surroundings() -> None:
    """Opens standard streams that are closed (`2>&-`, some daemons): else files would get their numbers, and what is said
    to the user would be written into them. InputError where the current folder is no more.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("the current folder", "is no more", hint="go to one that is there") from None
