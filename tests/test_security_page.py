"""docs/security.md and a part of docs/explanation/nothing-is-lost.md: every sentence names tests that exist. Rules of the first
page about the source are tested here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import components

PAGE = components.ROOT / "docs" / "security.md"
PROMISES = components.ROOT / "docs" / "explanation" / "nothing-is-lost.md"
PACKAGE = components.ROOT / "src" / "pilothouse"
NAMED = re.compile(r"\[((?:`[^`]+`(?:,\s+)?)+)\]")


def statements() -> Iterator[str]:
    """Items of lists, rows of tables and paragraphs below the first heading of second level."""
    text = PAGE.read_text().partition("\n## ")[2].partition("\n")[2]
    for block in re.split(r"\n(?=\* |\| |## )|\n\n+", text):
        block = " ".join(block.split())
        if block and not block.startswith(("## ", "|---", "| program ")):
            yield block


def promises() -> Iterator[str]:
    """The list of nothing-is-lost.md."""
    text = PROMISES.read_text().partition("\n## What is promised")[2].partition("\n## ")[0]
    return (" ".join(block.split()) for block in text.split("\n* ")[1:])


def test_every_sentence_names_its_tests() -> None:
    known = {
        name
        for path in (components.ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }
    found = [*statements(), *promises()]
    assert len(found) > 30 and len(list(promises())) > 15
    for statement in found:
        names = [name for group in NAMED.findall(statement) for name in re.findall(r"`([^`]+)`", group)]
        assert names, f"no test is named for: {statement}"
        for name in names:
            assert name in known or (components.ROOT / name).is_file(), f"there is no {name}, which is named for: {statement}"


def test_a_sentence_without_a_test_would_be_seen() -> None:
    assert all(NAMED.search(statement) for statement in statements())
    assert not NAMED.search("* A sentence. [see `code`]")
    assert NAMED.findall("* One. [`test_a`, `test_b`]") == ["`test_a`, `test_b`"]


def calls(*names: str) -> set[str]:
    """Files of the package that call one of these (`eval`, `pickle.loads`)."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in names:
                found.add(str(path.relative_to(PACKAGE)))
    return found


def imported(module: str, *names: str) -> set[str]:
    """Files that import one of these names from a module."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == module and {alias.name for alias in node.names} & set(names):
                found.add(str(path.relative_to(PACKAGE)))
    return found


def test_pickles_are_read_for_calls_alone() -> None:
    readers = ("load", "loads", "Unpickler")
    assert calls(*(f"{module}.{name}" for module in ("pickle", "cloudpickle", "dill") for name in readers)) == {
        "pool.py", "worlds/live/services/call_worker.py"
    }  # fmt: skip
    assert not imported("pickle", *readers)


def test_nothing_is_evaluated_but_scores() -> None:
    assert calls("eval", "exec", "builtins.eval", "builtins.exec") == {"policies/score.py"}
