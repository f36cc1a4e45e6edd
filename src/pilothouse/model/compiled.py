"""Finds the compiled form of a module that is written in Python and may have been compiled by Cython (setup.py).

The compiled form of `agenda` is `_agenda`, beside it. It holds the checksum of the source that it was made from: after an
edit of agenda.py it is not used until it is built again (`./do setup`).
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32


def compiled(module: str, name: str) -> Any:
    """What the module calls `name`: compiled, if that was built from the source as it is now, or else as it is."""
    plain = sys.modules[module]
    package, _, last = module.rpartition(".")
    try:
        found = import_module(f"{package}._{last}")
        current = crc32(Path(plain.__file__ or "").read_bytes()) == found.SOURCE
    except (ImportError, OSError):
        current = False
    return getattr(found if current else plain, name)
