"""The tables of the documentation, made from the code: policies, commands, options, states, supported messages.

In: the name of a table as a page writes it, `policies` or `options simulate`. Out: markdown.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import get_args

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
    command = _command(name)
    context = click.Context(command, info_name=f"pilothouse {name}")
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and not record[0].endswith("--help"):
            rows.append((code(record[0]), re.sub(r"\s+", " ", record[1])))
    if not rows:
        return f"It takes the options of the program that it stands in for: see `pilothouse {name} --help`."
    return table(("option", "meaning"), rows)


def manual() -> str:
    """Every command: how it is called, what it does, its options."""
    from pilothouse.cli.main import COMMANDS

    sections = []
    for name in COMMANDS:
        command = _command(name)
        context = click.Context(command, info_name=f"pilothouse {name}")
        usage = " ".join(["pilothouse", name, *command.collect_usage_pieces(context)])
        about, _, examples = inspect.cleandoc(command.help or "").partition("\b\n")
        shown = [line.strip() for line in examples.partition("\n\n")[0].splitlines()[1:] if line.strip()]
        paragraphs = [re.sub(r"\s+", " ", part) for part in about.strip().split("\n\n")]
        body = [f"## {name}", code(usage), *paragraphs, "\n".join(["```text", *shown, "```"]) if shown else ""]
        sections.append("\n\n".join(part for part in [*body, options(name)] if part))
    return "\n\n".join(sections)


def _command(name: str) -> click.Command:
    from pilothouse.cli.main import COMMANDS

    command = importlib.import_module(COMMANDS[name][0]).command
    assert isinstance(command, click.Command)
    return command


def states() -> str:
    from pilothouse.model.lifecycle import BATPROTOCOL, BATSIM, FLUX, QCG, JobState

    rows = [
        (state.value, BATSIM[state], BATPROTOCOL.get(state, "-"), " ".join(FLUX[state]).strip(), QCG[state])
        for state in JobState
    ]
    return table(("a job is", "Batsim 2-4", "batprotocol", "Flux: state, event", "QCG PilotJob"), rows)


def profiles() -> str:
    """The kinds of profiles, with the type names under which workloads may write them."""
    from pilothouse.formats.profile_json import READERS
    from pilothouse.model import profile as model

    kinds = {kind.__name__: vars(kind).get("__doc__") or "" for kind in get_args(model.Spec)}
    names: dict[str, list[str]] = {}
    for name, reader in READERS.items():
        names.setdefault(_result_of(reader), []).append(name)
    rows = [
        (code(kind), about.partition("\n")[0], ", ".join(code(name) for name in names.get(kind, [])))
        for kind, about in kinds.items()
    ]
    return table(("kind", "what it does", "type names"), rows)


def _result_of(reader: Callable[..., object]) -> str:
    """The kind of work that a reader makes: the one that its code, or the function that it calls, names."""
    source = inspect.getsource(reader)
    made = re.findall(r"\bp\.([A-Z]\w+)\(", source)
    if made:
        return str(made[-1])
    module = inspect.getmodule(reader)
    called = [getattr(module, name, None) for name in re.findall(r"return (_\w+)\(", source)]
    return next((_result_of(function) for function in called if callable(function)), "")


def vocabulary(kind: str) -> str:
    """Which events or decisions each adapter and world deals with: those that its code names."""
    source = PACKAGE / "model" / f"{kind}.py"
    words = [node.name for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)]
    module = importlib.import_module(f"pilothouse.model.{kind}")
    union = get_args(module.Event if kind == "events" else module.Decision)
    words = [word for word in words if getattr(module, word) in union]
    known = {room: _names_used(PACKAGE / room, f"pilothouse.model.{kind}") for room in ADAPTERS}
    rows = [(code(word), *(_cell(word, room, known[room]) for room in ADAPTERS)) for word in words]
    return table((kind[:-1], *ADAPTERS.values()), rows)


def _cell(word: str, room: str, known: set[str]) -> str:
    """`yes`; `translated` where core/translate.py speaks for a decider of that protocol."""
    if room in DECIDERS and word in TRANSLATED:
        module, _, name = DECIDERS[room].rpartition(".")
        if not getattr(getattr(importlib.import_module(module), name).traits, TRANSLATED[word]):
            return "translated"
    return "yes" if word in known else ""


def _names_used(folder: Path, module: str) -> set[str]:
    """Names of a module that the code in a folder refers to, by any way of importing them."""
    used: set[str] = set()
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text())
        aliases = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == module:
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and f"{node.module}." == module[: module.rfind(".") + 1]:
                aliases |= {
                    alias.asname or alias.name for alias in node.names if f"{node.module}.{alias.name}" == module
                }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                used.add(node.attr)
    return used


ADAPTERS = {
    "worlds/simulated": "simulated world",
    "worlds/live": "live world",
    "protocols/batsim": "Batsim 2-4",
    "protocols/batprotocol": "Batsim 5",
    "protocols/rfc27": "Flux",
}
DECIDERS = {
    "protocols/batsim": "pilothouse.protocols.batsim.decider.BatsimDecider",
    "protocols/batprotocol": "pilothouse.protocols.batprotocol.decider.EdcDecider",
    "protocols/rfc27": "pilothouse.protocols.rfc27.decider.Rfc27Decider",
}
TRANSLATED = {
    "JobWithdrawn": "withdrawals",
    "JobRequeued": "requeues",
    "UnitsUnavailable": "absent_units",
    "UnitsAvailable": "absent_units",
    "FeasibilityAsked": "feasibility",
    "EstimateAsked": "estimates",
}
"""Event -> the trait of deciders that understand it (core/contract.py)."""
PACKAGE = Path(__file__).resolve().parent.parent / "src" / "pilothouse"

TABLES: dict[str, Callable[..., str]] = {
    "policies": policies,
    "commands": commands,
    "options": options,
    "manual": manual,
    "profiles": profiles,
    "states": states,
    "vocabulary": vocabulary,
}
