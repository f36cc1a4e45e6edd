"""Behind `pilothouse flux-module`: becomes the Python of a Flux installation, which runs the module (flux_module_host.py)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from pilothouse.model.errors import InputError, quoted

HOST = Path(__file__).with_name("flux_module_host.py")


def start(module: str, arguments: Sequence[str], *, socket: str, program: str, patience_s: float) -> NoReturn:
    """Replaces this process. Raises InputError if there is no such program."""
    found = shutil.which(program)
    if found is None:
        hint = "install Flux, or name its command with --flux"
        raise InputError("flux-module", "no such program", found=quoted(program), hint=hint)
    path = os.path.abspath(socket)
    os.execv(found, [found, "python", str(HOST), path, f"{patience_s:g}", module, *arguments])
