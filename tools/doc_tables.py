"""The tables of the documentation, made from the code: policies, commands, options, states, supported messages.

In: the name of a table as a page writes it, `policies` or `options simulate`. Out: markdown.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import click
import msgspec


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


def variants() -> str:
    """The choices of each policy; policies that make the same ones stand together."""
    from pilothouse.policies.catalog import CATALOG
    from pilothouse.policies.variants import Variant

    names: dict[Variant, list[str]] = {}
    for name, listing in CATALOG.items():
        names.setdefault(listing.variant, []).append(code(name))
    sections = []
    for variant, same in names.items():
        rows = [(field.replace("_", " "), getattr(variant, field)) for field in Variant.__struct_fields__]
        sections.append(f"### {', '.join(same)}\n\n{table(('choice', 'what it does'), rows)}")
    return "\n\n".join(sections)


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


def peers() -> str:
    """What the tests held against peers, as tests/peers.json has it."""
    known = _peers_module().PEERS
    rows = [
        (known[one["peer"]][0], known[one["peer"]][1], one["suite"], f"{one['passed']} of {one['all']}" + _skipped(one))
        for one in _peer_counts()["suites"]
    ]
    return table(("peer", "version", "suite or client", "passed of all"), rows)


def peer_differences() -> str:
    known = _peers_module().PEERS
    rows = [(" ".join(known[peer]), text) for peer, texts in _peer_counts()["differences"].items() for text in texts]
    return table(("peer", "what differs, and why"), rows)


def _skipped(one: dict[str, Any]) -> str:
    return f" ({one['skipped']} not run: not installed)" if one["skipped"] else ""


def _peer_counts() -> Any:
    return json.loads(_peers_module().FILE.read_text())


def _peers_module() -> ModuleType:
    return _tests_module("peers", "peers.py")


@functools.cache
def _tests_module(name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "tests" / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


def statements(name: str = "") -> str:
    """The statements of one specification and the tests that hold them; without a name, how many each has."""
    known = _tests_module("statements", "statements/__init__.py")
    if name:
        document = known.load(name)
        rows = [
            (one.section, one.says, one.dialect, _held_by(one), one.program or one.contradiction)
            for one in document.statements
        ]
        head = ("section", "statement", "holds in", "held by", "where text or program differ, and what we do")
        return f"A statement holds in {document.dialect}, unless its row says where.\n\n{table(head, rows)}"
    rows = []
    for document in map(known.load, known.DOCUMENTS):
        contradictions = sum(bool(one.contradiction) for one in document.statements)
        without = sum(bool(one.no_behaviour) for one in document.statements)
        count = len(document.statements)
        held = count - contradictions - without
        rows.append((document.title, document.version, *map(str, (count, held, contradictions, without))))
    return table(("document", "version", "statements", "held", "contradictions named", "no behaviour"), rows)


def _held_by(one: Any) -> str:
    if one.no_behaviour:
        return f"says nothing about behaviour: {one.no_behaviour}"
    return "<br>".join(code(test.removeprefix("tests/").replace("::", " ")) for test in one.tests)


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
    called = [getattr(module, name, None) for name in re.findall(r"(?:return|place:) (_\w+)\(", source)]
    return next((_result_of(function) for function in called if callable(function)), "")


def api() -> str:
    """The public Python names: each class with its signature, its fields and its methods, from the docstrings."""
    import pilothouse

    parts = []
    for name in pilothouse.__all__:
        if name.startswith("__"):
            continue
        thing = getattr(pilothouse, name)
        parts.append(f"## {name}\n\n`from pilothouse import {name}`\n\n{inspect.cleandoc(thing.__doc__ or '')}\n")
        if inspect.isfunction(thing):
            parts.append(code(f"{name}{_signature(thing)}") + "\n")
            continue
        rows = [*_fields(thing), *_methods(thing)]
        parts.append(table(("name", "what it is"), rows) + "\n")
    return "\n".join(parts).rstrip()


def documents() -> str:
    """What --json prints: each kind of document, its fields, and those of the structures in it."""
    from pilothouse.journal.read import TaskRow
    from pilothouse.journal.run_state import RunState
    from pilothouse.views import documents as known
    from pilothouse.views.story import Story
    from pilothouse.views.task_story import TaskStory

    kinds = {
        "run": known.RunDocument, "comparison": known.ComparisonDocument, "difference": known.DifferenceDocument,
        "moment": known.MomentDocument, "explanation": Story, "task_story": TaskStory, "task": TaskRow, "watch": RunState,
        "forecast": known.ForecastDocument, "whatif": known.WhatIfDocument, "policies": known.PoliciesDocument,
    }  # fmt: skip
    parts, inside = [], {}
    for kind, thing in kinds.items():
        inside |= _structures(thing)
        parts.append(_structure(kind, thing))
    parts.append("## Structures inside\n")
    for name, thing in sorted(inside.items()):
        parts.append(_structure(name, thing))
    return "\n".join(parts).rstrip()


def _structure(name: str, thing: type) -> str:
    return f"### {name}\n\n{inspect.cleandoc(thing.__doc__ or '')}\n\n{table(('field', 'what it is'), _fields(thing))}\n"


def _structures(thing: object) -> dict[str, type]:
    """The structures that the fields of one are made of."""
    found: dict[str, type] = {}
    for kind in get_type_hints(thing).values():
        for part in (kind, *get_args(kind), *(inner for outer in get_args(kind) for inner in get_args(outer))):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                found |= {part.__name__: part, **_structures(part)}
    return found


def _fields(thing: type) -> list[tuple[str, str]]:
    """Class-level annotations, with the string that follows each."""
    body = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    assert isinstance(body, ast.ClassDef)
    rows = []
    for node, after in zip(body.body, [*body.body[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            default = f" = {ast.unparse(node.value)}" if node.value is not None else ""
            signature = f"{node.target.id}: {ast.unparse(node.annotation)}{default}"
            rows.append((code(signature), inspect.cleandoc(str(said)).partition("\n\n")[0]))
    return rows


def _methods(thing: type) -> list[tuple[str, str]]:
    rows = []
    for name, member in vars(thing).items():
        if name.startswith("_"):
            continue
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if isinstance(function, property | functools.cached_property):
            rows.append((code(name), inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0]))
        elif inspect.isfunction(function):
            rows.append((code(f"{name}{_signature(function)}"), inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0]))
    return rows


def _signature(function: Callable[..., object]) -> str:
    signature = re.sub(r"^\((self|cls)(, )?", "(", str(inspect.signature(function)))
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)


def rooms() -> str:
    """Lines of *.py and *.c of each room, beside the number before the rooms were put in order."""
    rows, total = [], 0
    for room, about in ROOMS.items():
        lines = sum(_lines(path) for path in sorted((PACKAGE / room).rglob("*")) if _counts(path))
        total += lines
        rows.append((code(room + "/"), about, f"{LINES_BEFORE.get(room, 0):,}", f"{lines:,}"))
    others = sum(_lines(path) for path in PACKAGE.iterdir() if _counts(path))
    rows.append(("files beside them", "the public names, `Pool`, `python -m pilothouse`", "299", f"{others:,}"))
    rows.append(("all", "", f"{sum(LINES_BEFORE.values()) + 299:,}", f"{total + others:,}"))
    return table(("room", "what is in it", "lines before", "lines now"), rows)


def _counts(path: Path) -> bool:
    """Source that is written by hand: generated modules are made when the package is built."""
    return path.suffix in (".py", ".c") and str(path.relative_to(PACKAGE)) not in GENERATED


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


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
            elif isinstance(node, ast.ImportFrom) and node.module in HELPERS:
                used.add(HELPERS[node.module])
            elif isinstance(node, ast.ImportFrom) and f"{node.module}." == module[: module.rfind(".") + 1]:
                aliases |= {
                    alias.asname or alias.name for alias in node.names if f"{node.module}.{alias.name}" == module
                }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                used.add(node.attr)
    return used


HELPERS = {"pilothouse.core.calls": "CallArrived", "pilothouse.core.kills": "JobsKilled"}
"""Modules that make an event for the worlds that use them."""
ADAPTERS = {
    "worlds/simulated": "simulated world",
    "worlds/live": "live world",
    "worlds/slurm": "Slurm",
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
GENERATED = {f"protocols/batprotocol/{name}.py" for name in ("binary", "messages", "text")}
ROOMS = {
    "model": "words: jobs, profiles, IdSet, events, decisions, states, errors. Nothing that waits",
    "policies": "the policies and the toolkit that they share",
    "core": "the contract, the loop, the Cluster, checks, placement, translation, tables and helpers for worlds",
    "access": "who may connect to a run, and who may read its files",
    "formats": "files in and out: platforms, workloads, task files, requests, jobspecs, jobs.csv",
    "worlds/simulated": "physics/, message_server/ (Batsim's server) and the world without messages",
    "worlds/live": "driver/, engine/, wire/, contexts/, services/ and the face in world.py",
    "worlds/slurm": "a real Slurm: looks, the state machine (steering.py, tracked.py), orders; a loopback Slurm (lab.py)",
    "protocols": "wires and adapters: batsim, batprotocol, rfc27, qcg, disbatch",
    "journal": "the record of a live run: write, read, resume",
    "views": "metrics, tables, plots, report/ (the HTML page), explanations, progress, the monitors: terminal and web/",
    "campaign": "many simulations: grids of sweeps, their results and what is significant in them; forecasts, replays",
    "launch": "from names and options to a run: deciders by name, run folders, signals, output files; new projects and shims",
    "dropins": "programs that replace another program: its options, files and habits",
    "cli": "one thin file per command",
}
LINES_BEFORE = {
    "model": 1571, "policies": 1630, "core": 1448, "access": 0, "formats": 4443, "worlds/simulated": 9434, "worlds/live": 6134,
    "worlds/slurm": 0, "protocols": 15803,
    "journal": 281, "views": 1103, "campaign": 136, "launch": 1070, "dropins": 8744, "cli": 1455,
}  # fmt: skip
"""Lines of what is in each room now as it was before the rooms were put in order; 5,428 generated lines included."""
PACKAGE = Path(__file__).resolve().parent.parent / "src" / "pilothouse"

def bench(which: str = "") -> str:
    """The last record of each bench in bench/history.jsonl. `peers`: only what is held against other programs."""
    history = Path(__file__).resolve().parent.parent / "bench" / "history.jsonl"
    last = {(record := json.loads(line))["bench"]: record for line in history.read_text().splitlines()}
    rows = []
    for record in last.values():
        for figure in record["figures"]:
            if which == "peers" and figure["peer"].startswith(("the ", "our ", "a ")):
                continue
            ours, theirs = (f"{figure[key]:,.10g}" for key in ("ours", "theirs"))
            rows.append((figure["what"], ours, figure["peer"], theirs, f"{figure['ratio']:.2f}"))
    newest = max(last.values(), key=lambda record: str(record["date"]))
    about, known = newest["machine"], newest["versions"]
    where = f"{about['cores']} cores of {about['processor']}, load {about['load']}, Python {about['python']}, {newest['date']}"
    peers = ", ".join(f"{name} {version}" for name, version in known.items() if name != "pilothouse")
    return f"{table(('', 'ours', 'beside', 'theirs', 'ratio'), rows)}\n\nMeasured on {where} UTC. Versions: {peers}."


def pairs() -> str:
    """Every world and every decider, as tests/interop/test_every_pair.py tries them."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    tried = importlib.import_module("interop.test_every_pair")
    reasons = sorted(set(tried.EMPTY.values()))
    rows = []
    for world in tried.WORLDS:
        empty = [tried.EMPTY.get((world, decider)) for decider in tried.DECIDERS]
        rows.append((world, *("yes" if reason is None else f"no ({reasons.index(reason) + 1})" for reason in empty)))
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join([table(("world", *tried.DECIDERS), rows), *([""] if notes else []), *notes])


def requests() -> str:
    """The requests that a live run obeys: an example of each, and what it does."""
    asked = importlib.import_module("pilothouse.worlds.live.requests")
    samples = {"engine": "a1b2c3d4e5f60718", "context": "added1", "task": 17, "hosts": "node7:8,node8:8", "slots": 4,
               "how": "finish", "reason": "the nodes are needed"}  # fmt: skip
    rows = []
    for kind in get_args(asked.Request):
        example = {"ask": kind.__struct_config__.tag} | {name: samples[name] for name in kind.__struct_fields__}
        rows.append((code(json.dumps(example)), " ".join(kind.__doc__.split())))
    return table(("request", "what happens"), rows)


TABLES: dict[str, Callable[..., str]] = {
    "policies": policies,
    "variants": variants,
    "commands": commands,
    "options": options,
    "manual": manual,
    "profiles": profiles,
    "states": states,
    "vocabulary": vocabulary,
    "api": api,
    "bench": bench,
    "pairs": pairs,
    "documents": documents,
    "rooms": rooms,
    "requests": requests,
    "peers": peers,
    "peer_differences": peer_differences,
    "statements": statements,
}
