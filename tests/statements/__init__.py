"""The statements of the five specifications, in our words, each with the tests that hold it.

One TOML file for each document. `[[statement]]` has

    section        where it stands in the document
    says           the statement
    dialect        where it holds: a command, an option; the file's own where it is left out
    tests          pytest node ids (without parameters)
    program        what the released program does instead, and which of ours do as it does
    contradiction  the text contradicts itself or its program: what, and what we do
    no_behaviour   the sentence says nothing that a program could do or leave: why it has no test

`python -m pytest tests/test_statements.py` holds them; docs/reference/specifications.md is made of them.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
DOCUMENTS = ("batsim2", "batprotocol", "rfc27", "qcg", "disbatch")


@dataclass(frozen=True)
class Statement:
    """One statement of a document."""

    section: str
    says: str
    dialect: str = ""
    tests: tuple[str, ...] = ()
    program: str = ""
    contradiction: str = ""
    no_behaviour: str = ""


@dataclass(frozen=True)
class Document:
    """One specification."""

    title: str
    version: str
    dialect: str
    statements: tuple[Statement, ...]


def load(name: str) -> Document:
    """The document of that name. TypeError for a key that no statement has."""
    written = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    listed = written.pop("statement")
    statements = tuple(
        Statement(**{key: tuple(value) if key == "tests" else value for key, value in one.items()}) for one in listed
    )
    return Document(**written, statements=statements)
