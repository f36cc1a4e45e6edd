"""What commands print with --json: one versioned schema. Every document says its `kind` and the `schema` it follows.

A new field does not change the number of the schema; a field that goes, or means something else, does. Numbers that are
not known, or infinite, are null. docs/reference/json.md is made from these classes.
"""

from __future__ import annotations

import msgspec

from pilothouse.views.metrics import Metrics

SCHEMA = 1


class Document(msgspec.Struct, kw_only=True, tag_field="kind"):
    """The base of all documents."""

    schema: int = SCHEMA
    """The version of this schema."""


class RunDocument(Document, tag="run"):
    """`pilothouse simulate --json`: one simulated run."""

    policy: str
    """The policy or decider, as it was named."""
    units: int
    """The units of the machine."""
    metrics: Metrics
    waiting: list[str] = []
    """Jobs that will never start: a deadlock if there are any."""
    files: list[str] = []
    """The files that were written."""
    notes: list[str] = []
    """What was odd about the input."""


class ComparedRun(msgspec.Struct, kw_only=True):
    """One policy of a comparison."""

    policy: str
    metrics: Metrics | None = None
    """Null if the policy did not come to the end."""
    waiting: int = 0
    """Jobs that never started: a deadlock if there are any."""
    problem: str = ""
    """Why the policy did not come to the end."""


class ComparisonDocument(Document, tag="comparison"):
    """`pilothouse compare --json`: a workload under several policies."""

    units: int
    """The units of the machine."""
    runs: list[ComparedRun]
    """In the order in which the policies were named."""
    notes: list[str] = []
    """What was odd about the input."""


def text(document: Document) -> str:
    """The document, for people and programs."""
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def line(document: Document) -> str:
    """The document as one line, for commands that print many."""
    return msgspec.json.encode(document).decode()
