"""Records which functions and lines of the package a process runs, for the test that the environment names.

Every Python process that a test starts imports this module by its name. The lines of a function are traced until some calls
ran no line that the test had not run before: a test takes about twice its usual time, and a line that runs rarely may be
missing. Nothing happens without the environment variables.
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

MOST_QUIET = 8
"""Calls of a function without a new line, after which its lines are no longer traced."""

known: set[CodeType] = set()
"""Functions that need no more tracing: of other packages, or with all their lines recorded."""
lines: dict[CodeType, set[int]] = {}
fresh: dict[CodeType, list[int]] = {}
"""Lines that are not written down yet."""
quiet: dict[CodeType, int] = {}


def forget() -> None:
    """Another test begins."""
    for kept in (known, lines, fresh, quiet):
        kept.clear()


def trace(frame: FrameType, event: str, _: Any) -> Any:
    code = frame.f_code
    if code in known:
        return None
    if code not in lines:
        source = os.environ.get(SOURCE, "")
        if not (source and code.co_filename.startswith(source) and code.co_flags & CO_OPTIMIZED):
            known.add(code)
            return None
        lines[code], fresh[code], quiet[code] = set(), [], 0
        write(code)
    return trace_lines


def trace_lines(frame: FrameType, event: str, _: Any) -> Any:
    code = frame.f_code
    if code not in lines:  # of a test that ended
        return None
    if event == "line":
        if frame.f_lineno not in lines[code]:
            lines[code].add(frame.f_lineno)
            fresh[code].append(frame.f_lineno)
    elif event == "return":
        if fresh[code]:
            write(code)
            quiet[code] = 0
        else:
            quiet[code] += 1
            if quiet[code] >= MOST_QUIET:
                known.add(code)
    return trace_lines


def write(code: CodeType) -> None:
    name = code.co_qualname.replace(".<locals>", "")
    while name.rpartition(".")[2].startswith("<"):  # lambdas and comprehensions
        name = name.rpartition(".")[0]
    path = os.path.relpath(code.co_filename, os.environ[SOURCE])
    append({"test": os.environ.get(TEST, ""), "path": path, "function": name, "lines": fresh[code]})
    fresh[code] = []


def append(record: dict[str, object]) -> None:
    with open(os.environ[FILE], "ab", buffering=0) as file:
        file.write(json.dumps(record).encode() + b"\n")


def begin() -> None:
    threading.settrace(trace)
    sys.settrace(trace)


if FILE in os.environ:
    begin()
