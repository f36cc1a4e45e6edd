"""Commands from arguments (`pilothouse run 'cmd {}' ::: a b`): which lines a template and its sources give.

In: the words of the command line. Out: task lines, all at once or as standard input gives the arguments.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from pilothouse.formats.argument_sources import STANDARD_INPUT, Reading, read_arguments, streams
from pilothouse.formats.command_template import CommandTemplate
from pilothouse.model.errors import InputError, quoted


class ArgumentCommands(msgspec.Struct, frozen=True):
    """A template, and the words that name its sources."""

    template: str
    sources: tuple[str, ...]
    reading: Reading

    @property
    def streams(self) -> bool:
        """Whether its arguments come from standard input while the run goes on."""
        return streams(self.sources)

    def lines(self, standard_input: Iterable[bytes]) -> Iterator[bytes]:
        """The task lines. Raises InputError, for the template at once and for values when they come."""

        def lines_of(name: str) -> Iterator[bytes]:
            return iter(standard_input) if name == STANDARD_INPUT else _lines_of_file(name)

        arguments = read_arguments(self.sources, lines_of, self.reading)
        template = CommandTemplate(self.template, arguments.names)
        numbered = enumerate(arguments.rows, 1)
        return (template.fill(row, number).encode("utf-8", "surrogateescape") for number, row in numbered)


def commands_of(words: Sequence[str], sources: Sequence[str], reading: Reading) -> ArgumentCommands | None:
    """What the words of `pilothouse run` ask for; None if they name a task file.

    Without sources a template that is not the name of a file takes its arguments from standard input, if that is not a terminal.
    """
    text = " ".join(words)
    if sources:
        return ArgumentCommands(text, tuple(sources), reading)
    if "{" not in text or os.path.exists(text):
        if len(words) > 1:
            raise InputError(quoted(text), "more than one task file", expected="one, or a command with {}")
        return None
    if sys.stdin.isatty():
        raise InputError(quoted(text), "no arguments", expected="::: VALUE... or :::: FILE behind the command")
    return ArgumentCommands(text, ("::::", STANDARD_INPUT), reading)


def _lines_of_file(name: str) -> Iterator[bytes]:
    try:
        with Path(name).open("rb") as stream:
            for line in stream:
                yield line.removesuffix(b"\n")
    except OSError as error:
        hint = "options come before `::::`" if name.startswith("-") else ""
        raise InputError(name, f"cannot read the arguments: {error.strerror}", hint=hint) from error
