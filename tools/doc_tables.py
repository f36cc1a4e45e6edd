"""The tables of the documentation, made from the code: policies, commands, options, states, supported messages.

In: the name of a table as a page writes it, `policies` or `options simulate`. Out: markdown.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import click


def make(name: str) -> str:
    """The table of that name; KeyError if there is none."""
    kind, *arguments = name.split()
    return TABLES[kind](*arguments)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def policies() -> str:
    from pilothouse.policies.catalog import CATALOG

    rows = [
        (code(name), listing.summary, "<br>".join(code(f"{key}={value}") for key, value in listing.options.items()))
        for name, listing in CATALOG.items()
    ]
    return table(("policy", "what it does", "options"), rows)


def commands() -> str:
    from pilothouse.cli.main import COMMANDS

    return table(
        ("command", "what it does"), [(code(f"pilothouse {name}"), line) for name, (_, line) in COMMANDS.items()]
    )


def options(name: str) -> str:
    """The options of one command, as its own --help has them."""
    from pilothouse.cli.main import COMMANDS

    command = importlib.import_module(COMMANDS[name][0]).command
    context = click.Context(command, info_name=f"pilothouse {name}")
    rows = []
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Argument):
            rows.append((code(parameter.make_metavar(context)), ""))
        else:
            record = parameter.get_help_record(context)
            if record:
                rows.append((code(record[0]), re.sub(r"\s+", " ", record[1])))
    return table(("option", "meaning"), rows)


def states() -> str:
    from pilothouse.model.lifecycle import BATPROTOCOL, BATSIM, FLUX, QCG, JobState

    rows = [
        (state.value, BATSIM[state], BATPROTOCOL.get(state, "-"), " ".join(FLUX[state]).strip(), QCG[state])
        for state in JobState
    ]
    return table(("a job is", "Batsim 2-4", "batprotocol", "Flux: state, event", "QCG PilotJob"), rows)


TABLES: dict[str, Callable[..., str]] = {
    "policies": policies,
    "commands": commands,
    "options": options,
    "states": states,
}
