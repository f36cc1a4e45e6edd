"""The tables of statements (tests/statements): every statement has a test, and every test that is named exists."""

from __future__ import annotations

import ast
import functools
from dataclasses import replace

import pytest

import components
import statements
from statements import Statement


@functools.cache
def known_tests(path: str) -> frozenset[str]:
    """The tests of a file, as the part of a node id after the path."""
    file = components.ROOT / path
    if not file.is_file():
        return frozenset()
    found = set()
    for node in ast.parse(file.read_text()).body:
        inside = [node, *node.body] if isinstance(node, ast.ClassDef) else [node]
        for one in inside:
            if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"):
                found.add(one.name if one is node else f"{inside[0].name}::{one.name}")  # type: ignore[attr-defined]
    return frozenset(found)


def mistakes(statement: Statement) -> list[str]:
    """What is wrong with a statement; empty if nothing is."""
    wrong = []
    if not statement.section or not statement.says:
        wrong.append("it has no section or no words")
    if not statement.tests and not statement.no_behaviour:
        wrong.append("no test is named for it")
    if statement.tests and statement.no_behaviour:
        wrong.append("it has tests, and is said to be no behaviour")
    for node_id in statement.tests:
        path, _, name = node_id.partition("::")
        if name not in known_tests(path):
            wrong.append(f"there is no test {node_id}")
    return wrong


@pytest.mark.parametrize("name", statements.DOCUMENTS)
def test_every_statement_has_a_test_that_exists(name: str) -> None:
    document = statements.load(name)
    said = [statement.says for statement in document.statements]
    assert len(said) == len(set(said)), "a statement stands there twice"
    wrong = {one.says: found for one in document.statements if (found := mistakes(one))}
    assert not wrong, "\n".join(f"{says}: {', '.join(found)}" for says, found in wrong.items())


def test_a_statement_without_a_test_or_with_one_that_does_not_exist_is_noticed() -> None:
    here = "tests/test_statements.py::test_every_statement_has_a_test_that_exists"
    good = Statement("Hello", "it is so", tests=(here,))
    assert mistakes(good) == []
    assert mistakes(replace(good, tests=())) == ["no test is named for it"]
    assert mistakes(replace(good, tests=(), no_behaviour="a wish")) == []
    assert mistakes(replace(good, no_behaviour="a wish")) == ["it has tests, and is said to be no behaviour"]
    assert mistakes(replace(good, tests=(f"{here}s",))) == [f"there is no test {here}s"]
    assert mistakes(replace(good, tests=("tests/nowhere.py::test_x",))) == ["there is no test tests/nowhere.py::test_x"]
    assert mistakes(replace(good, says="")) == ["it has no section or no words"]
