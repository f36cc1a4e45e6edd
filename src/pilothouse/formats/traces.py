"""Traces that jobs replay: the list of files, usage traces, and time-independent traces of MPI programs.

In: the path of a list that names one trace per rank, relative to itself. Out: for usage traces the phases of each
rank, for MPI the actions of each rank as words. Bad lines are refused with file and line.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pilothouse.formats.text_input import read_text
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.numerals import whole_number


def trace_files(path: str) -> list[Path]:
    """The traces that a list names, one per line, relative to the list."""
    base = Path(path)
    files = [base.parent / line for _, line in read_lines(base)]
    if not files:
        raise InputError(path, "no trace is listed")
    return files


def read_lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a trace with their numbers, without comments and empty ones."""
    text = read_text(path)
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), start=1))
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


def read_usage(path: Path) -> list[tuple[float, float]]:
    """The (usage, flop) phases of one rank."""
    phases = []
    for number, line in read_lines(path):
        words = line.split()
        where = f"{path}:{number}"
        if len(words) != 4 or words[1] != "m_usage":
            raise InputError(where, "not a phase of usage", expected="RANK m_usage USAGE FLOPS", found=quoted(line))
        try:
            usage, flop = float(words[2]), float(words[3])
        except ValueError:
            usage = flop = -1.0
        if not 0 <= usage <= 1 or not 0 <= flop < float("inf"):
            raise InputError(where, "usage is from 0 to 1, flop 0 or more", found=quoted(line))
        phases.append((usage, flop))
    return phases


class MpiAction(msgspec.Struct, frozen=True):
    """One action of a rank; `where` is its file and line."""

    where: str
    verb: str
    arguments: tuple[str, ...]


def read_mpi(path: Path, rank: int, *, shared: bool) -> list[MpiAction]:
    """The actions of one rank; a file that several ranks share holds the lines of all of them."""
    actions = []
    for number, line in read_lines(path):
        words = line.split()
        where = f"{path}:{number}"
        number_of_rank = whole_number(words[0])
        if len(words) < 2 or number_of_rank is None:
            raise InputError(where, "not an action", expected="RANK ACTION ARGUMENTS", found=quoted(line))
        if number_of_rank == rank:
            actions.append(MpiAction(where, words[1].lower(), tuple(words[2:])))
        elif not shared:
            raise InputError(where, f"an action of rank {words[0]} in the trace of rank {rank}")
    return actions
