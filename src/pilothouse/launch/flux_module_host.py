"""Runs a scheduler module of Flux outside of a broker, as a client of the socket of `--by rfc27:PATH`.

`flux python THIS_FILE SOCKET SECONDS MODULE [ARGUMENT...]` starts it, so it runs in the Python of a Flux installation, and
uses that and the standard library only. MODULE is a file, or a name that is looked for in FLUX_MODULE_PATH. Ends with 0
when the manager has closed the socket, with 2 if there is no such module, with 1 for everything else.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOOK_S = 0.05
LAST_WORD_S = 3.0
"""A manager that ends closes its connections first, and its socket soon after."""


def find(name: str, folders: str) -> Path | str:
    """The file of a module, or a line that says why there is none."""
    if "/" in name:
        return Path(name) if Path(name).is_file() else f"{name}: no such file"
    places = [Path(folder) for folder in folders.split(":") if folder]
    for place in places:
        if (place / f"{name}.py").is_file():
            return place / f"{name}.py"
    if any((place / f"{name}.so").is_file() for place in places):
        return f"{name} is compiled: only a broker can load it; modules in Python (Flux 0.84 and later) run here"
    return f"{name}: no such module in Python; looked in {':'.join(map(str, places)) or 'no folder'} (FLUX_MODULE_PATH)"


def listens(path: str) -> bool:
    """Whether a manager accepts connections there."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


def becomes(path: str, wanted: bool, seconds: float) -> bool:
    """Waits until a manager listens, or listens no more; False if that took too long."""
    deadline = time.monotonic() + seconds
    while listens(path) is not wanted:
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True


def load(path: Path) -> Callable[..., None]:
    """The entry point of a module."""
    brokermod: Any = importlib.import_module("flux.brokermod")
    # There is no broker to be told that the module runs, and none whose debug bits could be read.
    brokermod.BrokerModule.set_running = lambda self: None
    brokermod.BrokerModule.debug_test = lambda self, flag, clear=False: False
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    entry: Callable[..., None] = brokermod.resolve_entry_point(module)
    return entry


def run(path: str, patience_s: float, name: str, arguments: list[str]) -> int:
    """Runs the module until the manager goes; the exit code."""
    found = find(name, os.environ.get("FLUX_MODULE_PATH", ""))
    if isinstance(found, str):
        return failed(found, 2)
    try:
        entry = load(found)
    except ImportError as problem:
        return failed(f"{name}: {problem} (Flux 0.84 or later is needed)", 2)
    if not becomes(path, True, patience_s):
        return failed(f"{path}: no manager listens there after {patience_s:g} s", 1)
    flux: Any = importlib.import_module("flux")
    try:
        entry(flux.Flux(f"local://{path}"), *arguments)
    except (OSError, ValueError) as problem:
        if isinstance(problem, ValueError) or not becomes(path, False, LAST_WORD_S):
            return failed(f"{name}: {problem}", 1)
    return 0


def failed(problem: str, code: int) -> int:
    print(f"pilothouse flux-module: {problem}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4:]))
