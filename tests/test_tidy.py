"""The rules of the house, as tests: who may import whom, what stays free of input and output, how modules look.

In: the source tree, parsed. Out: one failure per broken rule, each naming the file and line.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import resource
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import components

ROOT = components.ROOT
PACKAGE = ROOT / "src" / "pilothouse"
MODULE_LINES_MAX = 500

BELOW_WORLDS = {"model", "formats", "policies", "core", "access"}
UP_TO_VIEWS = BELOW_WORLDS | {"worlds", "protocols", "journal", "views", "campaign"}
MAY_IMPORT: dict[str, set[str]] = {
    "model": {"model"},
    "access": {"model", "access"},
    "formats": {"model", "formats"},
    "policies": {"model", "policies"},
    "core": {"model", "policies", "core"},
    "worlds": BELOW_WORLDS | {"worlds"},
    "protocols": BELOW_WORLDS | {"protocols"},
    "journal": BELOW_WORLDS | {"worlds", "protocols", "journal"},
    "views": UP_TO_VIEWS - {"campaign"},
    "campaign": UP_TO_VIEWS,
    "launch": UP_TO_VIEWS | {"launch"},
    "pool": UP_TO_VIEWS | {"launch"},
    "joblib_backend": {"pool"},
    "qcg": UP_TO_VIEWS | {"launch", "dropins"},
    "dropins": UP_TO_VIEWS | {"launch", "dropins"},
    "cli": UP_TO_VIEWS | {"launch", "dropins", "cli"},
}
# Rooms that take events and a `now` and return what to do; whatever waits, runs or guesses is outside.
SANS_IO = ("model", "policies", "core", "formats", "worlds/simulated")
IO_MODULES = {
    *("socket", "selectors", "select", "ssl", "zmq", "redis", "asyncio", "http", "urllib.request"),
    *("subprocess", "multiprocessing", "threading", "concurrent", "signal", "fcntl", "pty"),
    *("time", "secrets", "uuid", "tempfile"),
}
# In the rooms where sockets and processes are needed they stay in thin shells; a new shell is added here on purpose.
MIXED = ("protocols", "worlds/live", "worlds/slurm", "worlds/slurm_commands", "dropins", "journal")
SHELLS = {
    *(f"protocols/{name}.py" for name in ("process", "process_guard", "request_socket")),
    *(f"protocols/batprotocol/{name}.py" for name in ("channel", "library_host", "world")),
    *(f"protocols/batsim/{name}.py" for name in ("redis_store", "world")),
    *(f"protocols/rfc27/{name}.py" for name in ("decider", "server", "unix_socket", "world", "zmq_link")),
    *(f"worlds/live/{name}.py" for name in ("attached", "request_desk", "requests", "run_clock", "stream_lines", "world")),
    *(f"worlds/live/contexts/{name}.py" for name in ("auto_allocation", "nodes", "programs")),
    "worlds/slurm_commands.py",
    *(f"worlds/slurm/{name}.py" for name in ("daemons", "lab", "link", "watchdog")),
    *(f"worlds/live/engine/{name}.py" for name in ("cylinder", "output", "process", "spool", "task_processes")),
    *(f"worlds/live/services/{name}.py" for name in ("call_server", "call_worker")),
    *(f"worlds/live/services/{name}.py" for name in ("key_values", "kvs_client", "kvs_server", "redis_shelf")),
    "worlds/live/wire/sockets.py",
    *(f"journal/{name}.py" for name in ("lock",)),
    *(f"dropins/{name}.py" for name in ("batsim_decider", "batsim4/run")),
    *(f"dropins/batsim5/{name}.py" for name in ("guard", "run")),
    *(f"dropins/disbatch/{name}.py" for name in ("batcher", "bridge", "foreign_engines", "kvs_engine", "names", "run")),
    *(f"protocols/qcg/{name}.py" for name in ("client", "network")),
    *(f"dropins/qcg/{name}.py" for name in ("bundle_runner", "governor_service", "options", "resume", "run", "service")),
    "dropins/qcg/local_manager.py",
}
GENERATED = {f"protocols/batprotocol/{name}.py" for name in ("binary", "messages", "text")}
"""Made from a schema when the package is built (setup.py); never committed."""
# What the rest of the package may import from worlds/live.
LIVE_FACE = (
    *("world", "options", "records", "snapshots", "feeder", "requests", "stream_lines", "contexts", "services"),
    *("attached", "run_clock", "task_feed"),
    *("wire.messages", "wire.sockets"),
)
OF_USERS = {"mine.py", "file.py", "shortest_first.py", "sitecustomize.py"}
"""Files of users and of Python's, which docstrings name."""
FOREIGN_WORDS = {"alloc", "allocs", "res", "subtime", "nb_res", "msg_par", "msg_par_hg"}
FOREIGN_FREE = ("model", "policies", "core", "worlds", "journal", "views")


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its path below src/pilothouse, parsed."""
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"), str(path))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def within(path: str, rooms: tuple[str, ...]) -> bool:
    return any(path == f"{room}.py" or path.startswith(f"{room}/") for room in rooms)


def imports(path: str, tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """(line, full module name, only for type checking) of every import, relative ones resolved."""
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    here = ["pilothouse", *Path(path).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, node in typing_only
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, source, node in typing_only
            for alias in node.names:
                yield node.lineno, f"{source}.{alias.name}", node in typing_only


def complain(found: list[str], rule: str) -> None:
    assert not found, rule + ":\n  " + "\n  ".join(found)


def test_imports_point_one_way() -> None:
    found = set()
    for path, tree in modules().items():
        room = Path(path).parts[0].removesuffix(".py")
        if room not in MAY_IMPORT:
            continue
        for line, name, typing_only in imports(path, tree):
            parts = name.split(".")
            if parts[0] != "pilothouse" or len(parts) < 2 or parts[1] not in MAY_IMPORT:
                continue
            if parts[1] not in MAY_IMPORT[room] and not (typing_only and {room, parts[1]} == {"policies", "core"}):
                found.add(f"{path}:{line}: {room} imports {'.'.join(parts[1:3])}")
    complain(sorted(found), "imports point one way, from model to cli")


def test_worlds_never_meet() -> None:
    found = []
    worlds = sorted(path.name for path in (PACKAGE / "worlds").iterdir() if (path / "__init__.py").exists())
    for path, tree in modules().items():
        for one in worlds:
            if path.startswith(f"worlds/{one}/"):
                others = tuple(f"pilothouse.worlds.{other}." for other in worlds if other != one)
                found += [
                    f"{path}:{line}: imports {name}"
                    for line, name, _ in imports(path, tree)
                    if f"{name}.".startswith(others)
                ]
    complain(found, "the worlds never import each other")


def test_the_live_world_is_used_by_its_face_alone() -> None:
    found = []
    for path, tree in modules().items():
        if path.startswith("worlds/live/"):
            continue
        for line, name, _ in imports(path, tree):
            inside = name.removeprefix("pilothouse.worlds.live.")
            if inside != name and not f"{inside}.".startswith(tuple(f"{part}." for part in LIVE_FACE)):
                found.append(f"{path}:{line}: imports {name}")
    for path, text in tracked_texts():
        if path.endswith(".py") and not path.startswith(("src/pilothouse/worlds/live/world.py", "tests/test_tidy.py")):
            lines = text.splitlines()
            found += [f"{path}:{number}: ._driver" for number, line in enumerate(lines, 1) if "._driver" + "." in line]
    complain(sorted(set(found)), "front ends use LiveWorld's methods and what LIVE_FACE lists; the driver is behind them")


def test_deciding_parts_have_no_input_or_output() -> None:
    found = []
    for path, tree in modules().items():
        if not within(path, SANS_IO):
            continue
        for line, name, typing_only in imports(path, tree):
            if not typing_only and is_io(name):
                found.append(f"{path}:{line}: imports {name}")
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                text = ast.unparse(node)
                if text in ("os.environ", "os.getenv", "datetime.now", "datetime.datetime.now", "datetime.today"):
                    found.append(f"{path}:{node.lineno}: uses {text}")
                if isinstance(node.value, ast.Name) and node.value.id == "random" and node.attr != "Random":
                    found.append(f"{path}:{node.lineno}: uses {text}; a seeded random.Random is passed in instead")
    complain(found, "no sockets, processes, threads, clocks, environment or chance here")


def test_io_stays_in_thin_shells() -> None:
    found = []
    used = set()
    for path, tree in modules().items():
        if within(path, MIXED):
            doing_io = {name for _, name, typing_only in imports(path, tree) if not typing_only and is_io(name)}
            if doing_io and path not in SHELLS:
                found.append(f"{path}: imports {', '.join(sorted(doing_io))}")
            elif doing_io:
                used.add(path)
    complain(found, "sockets, processes, threads and clocks stay in the shells that are listed")
    complain(sorted(SHELLS - used), "listed as shells, but do no such thing (any more)")


def is_io(name: str) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in IO_MODULES)


def test_foreign_words_stay_at_the_border() -> None:
    found = []
    for path, tree in modules().items():
        if not within(path, FOREIGN_FREE):
            continue
        for node in ast.walk(tree):
            name = None
            if isinstance(node, ast.Name):
                name = node.id
            elif isinstance(node, ast.Attribute):
                name = node.attr
            elif isinstance(node, ast.arg):
                name = node.arg
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                name = node.name
            if name in FOREIGN_WORDS:
                found.append(f"{path}:{getattr(node, 'lineno', 0)}: {name}")
    complain(found, "words of one protocol stay in protocols/ and formats/")


def test_modules_say_what_they_hold_and_stay_small() -> None:
    found = []
    for path, tree in modules().items():
        if not tree.body and path.endswith("__init__.py"):
            continue
        if not ast.get_docstring(tree):
            found.append(f"{path}: no docstring")
        lines = len((PACKAGE / path).read_text(encoding="utf-8").splitlines())
        if lines > MODULE_LINES_MAX and path not in GENERATED:
            found.append(f"{path}: {lines} lines, more than {MODULE_LINES_MAX}")
    complain(found, "a module has a docstring and one noun")


def test_generated_modules_are_built_and_not_committed() -> None:
    """They are there after `./do setup` and git ignores them by name."""
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    found = [f"{path}: not there" for path in sorted(GENERATED) if not (PACKAGE / path).is_file()]
    found += [f"{path}: not in .gitignore" for path in sorted(GENERATED) if f"/src/pilothouse/{path}" not in ignored]
    found += [f"{path}: tracked" for path, _ in tracked_texts() if path.removeprefix("src/pilothouse/") in GENERATED]
    complain(found, "generated modules are made when the package is built, and are named in GENERATED and .gitignore")


def test_no_error_is_swallowed() -> None:
    found = []
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                caught = ast.unparse(node.type) if node.type else "everything"
                silent = all(isinstance(statement, ast.Pass) for statement in node.body)
                if node.type is None or (caught in ("Exception", "BaseException") and silent):
                    found.append(f"{path}:{node.lineno}: catches {caught}")
    complain(found, "never a bare except, never a swallowed error")


def test_nothing_is_left_unfinished() -> None:
    marks = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
    found = [
        f"{path}:{number}: {line.strip()[:100]}"
        for path, text in tracked_texts()
        if path.endswith(".py")
        for number, line in enumerate(text.splitlines(), 1)
        if marks.search(line)
    ]
    complain(found, "finished, or not there")


def test_the_project_speaks_of_itself_alone() -> None:
    """No absolute path of somebody's machine, no address of a package index, in any tracked file."""
    words = ["/wo" + "rk/", "/fa" + "rm/", "sub" + "agent", "before" + "-stop", r"py" + r"pi\.org"]
    strangers = re.compile("|".join(words))
    found = [
        f"{path}:{number}: {line.strip()[:100]}"
        for path, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), 1)
        if strangers.search(line)
    ]
    complain(found, "paths and hosts that only exist elsewhere")


@functools.cache
def tracked_texts() -> list[tuple[str, str]]:
    """Every tracked text file that is still there, with its contents."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git clone: which files belong to the project is not known")
    texts = []
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if name and path.is_file():
            data = path.read_bytes()
            if b"\0" not in data[:4096]:
                texts.append((name, data.decode("utf-8", errors="replace")))
    return texts


def command_names() -> list[str]:
    return sorted(path.stem for path in (PACKAGE / "cli").glob("*.py") if is_command(path))


def is_command(path: Path) -> bool:
    """A file of cli/ that holds `command` is a command."""
    tree = modules()[str(path.relative_to(PACKAGE))]
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    defined |= {ast.unparse(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    return "command" in defined and path.stem != "main"


@pytest.mark.parametrize("name", command_names())
def test_every_command_shows_examples(name: str) -> None:
    import importlib

    from click.testing import CliRunner

    command = importlib.import_module(f"pilothouse.cli.{name}").command
    shown = CliRunner().invoke(command, ["--help"])
    assert shown.exit_code == 0, shown.output
    examples = re.split(r"(?im)^\s*examples?:?", shown.output, maxsplit=1)
    assert len(examples) == 2, f"pilothouse {name} --help has no examples:\n{shown.output}"
    spoken = f"pilothouse {name.replace('_', '-')}"
    assert spoken in examples[1], f"the examples do not show {spoken!r}"


def test_commands_and_their_list_agree() -> None:
    from pilothouse.cli.main import AIMS, COMMANDS

    assert sorted(name for names in AIMS.values() for name in names) == sorted(COMMANDS), "every command has one aim"
    listed = {module for module, _ in COMMANDS.values()}
    there = {f"pilothouse.cli.{name}" for name in command_names()}
    assert listed == there, f"listed only: {sorted(listed - there)}; there only: {sorted(there - listed)}"


def test_help_is_quick_and_imports_little() -> None:
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    heavy = ("matplotlib", "rich", "redis", "zmq", "numpy", "cffi", "distributed", "asyncio")
    probe = (
        "import sys; from pilothouse.cli.main import main; sys.argv[1:] = ['--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print('HEAVY', [name for name in {heavy!r} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", probe], env=env, capture_output=True, text=True, check=True)
    assert "HEAVY []" in shown.stdout, shown.stdout.splitlines()[-1]
    start = "from pilothouse.cli.main import main; main()"
    best_s = min(cpu_of([sys.executable, "-c", start, "--help"], env) for _ in range(5))
    assert best_s < 0.150, f"pilothouse --help takes {best_s * 1000:.0f} ms of CPU"


def cpu_of(command: list[str], env: dict[str, str]) -> float:
    """CPU seconds of one command: what the machine does besides does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def named_files(path: Path) -> Iterator[tuple[int, str]]:
    """Names of Python files in docstrings and comments."""
    with tokenize.open(path) as stream:
        for token in tokenize.generate_tokens(stream.readline):
            if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith(('"""', '"'))):
                for name in re.findall(r"(?<![\w./{}*-])(?:[a-z_0-9]+/)*[a-z_][a-z_0-9]*\.py\b(?!:)", token.string):
                    yield token.start[0], name


def test_files_that_docstrings_name_exist() -> None:
    """By the end of their path in the repository."""
    paths = [path for folder in ("src", "tests", "tools", "bench") for path in (ROOT / folder).rglob("*.py")]
    known = [f"/{path.relative_to(ROOT)}" for path in (*paths, *ROOT.glob("*.py"))]
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, name in named_files(path)
        if Path(name).name not in OF_USERS and not any(file.endswith(f"/{name}") for file in known)
    ]
    assert not wrong, "files that do not exist:\n  " + "\n  ".join(wrong)
