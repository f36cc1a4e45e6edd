"""Checks before tasks are run: standard streams are open, and the current folder exists."""

from __future__ import annotations

import os
import sys

from pilothouse.model.errors import InputError


def check_surroundings() -> None:
    """Opens standard streams that are closed (`2>&-`, some daemons): otherwise other files would get their descriptors, and
    messages would be written into them. Raises InputError if the current folder was deleted.
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
