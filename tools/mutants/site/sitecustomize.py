"""Records which functions of the package a process runs, for the test that the environment names.

Every Python process that a test starts imports this module by its name. Calls are traced, not lines: a test takes about
twice its usual time. Nothing happens without the environment variables.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any

FILE = "PILOTHOUSE_MUTANTS_RECORD"
"""The file that records are appended to."""
SOURCE = "PILOTHOUSE_MUTANTS_SOURCE"
"""The folder of the package."""
TEST = "PILOTHOUSE_MUTANTS_TEST"
CO_OPTIMIZED = 1
"""Set for functions. Modules and classes run where they are imported first, which says nothing about a test."""

seen: set[CodeType] = set()


def trace(frame: FrameType, event: str, _: Any) -> None:
    code = frame.f_code
    if code in seen:
        return
    seen.add(code)
    source = os.environ.get(SOURCE, "")
    if source and code.co_filename.startswith(source) and code.co_flags & CO_OPTIMIZED:
        name = code.co_qualname.replace(".<locals>", "")
        while name.rpartition(".")[2].startswith("<"):  # lambdas and comprehensions
            name = name.rpartition(".")[0]
        append(
            {"test": os.environ.get(TEST, ""), "path": os.path.relpath(code.co_filename, source), "function": name}
        )


def append(record: dict[str, object]) -> None:
    with open(os.environ[FILE], "ab", buffering=0) as file:
        file.write(json.dumps(record).encode() + b"\n")


def begin() -> None:
    threading.settrace(trace)
    sys.settrace(trace)


if FILE in os.environ:
    begin()
