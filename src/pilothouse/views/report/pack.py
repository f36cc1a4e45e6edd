"""A run as the report's page takes it: one block of bytes, gzipped.

The block is the length of a JSON header (4 bytes, little-endian), the header, and columns one after the other. The header
names each column with its type, length and encoding. Numbers that are whole go as variable-length deltas, others as they are:
a job of CEA-Curie takes 10 bytes of the page.
"""

from __future__ import annotations

import gzip
import sys
from array import array
from collections.abc import Iterable, Sequence
from math import inf, isinf, isnan
from typing import Any

import msgspec

from pilothouse.model.lifecycle import JobState
from pilothouse.views.difference import as_text, difference
from pilothouse.views.metrics import TAU, Metrics, metrics_of
from pilothouse.views.report.groups import Table, tables
from pilothouse.views.schedule import Schedule, Steps, intervals, overtakers
from pilothouse.views.tables import ROWS

MOST_TEXT = 200
"""Characters of a command that the page has."""
MOST_TEXTS = 50_000
"""Jobs above which the page has no commands."""
_LARGEST = 1 << 52


class Column(msgspec.Struct, frozen=True):
    """Where a column is and how it is read. `scale` 0: doubles as they are; otherwise deltas of value * scale."""

    offset: int
    size_bytes: int
    length: int
    scale: int = 0


class Run(msgspec.Struct):
    """What the header says of one run."""

    name: str
    path: str
    live: bool
    over: bool
    policy: str
    now: float
    began: float
    units: int
    total: int | None
    tau: float
    users: list[str]
    states: list[str]
    ids: list[str]
    columns: dict[str, Column]
    summary: list[tuple[str, float | None]]
    tables: list[Table]
    nodes: list[tuple[str, int, int]]
    machine_states: list[str]
    commands: list[str]
    places: list[str]
    reasons: dict[str, str]
    last_words: dict[str, str]
    changed: str = ""
    """What changed from the first run to this one, in words."""


class Block:
    """Columns one after the other."""

    def __init__(self) -> None:
        self.data = bytearray()

    def reals(self, values: array[float]) -> Column:
        """Whole multiples of 1, 1/1000 or 1/1,000,000 as deltas; anything else as doubles."""
        for scale in (1, 1000, 1_000_000):
            if (whole := _scaled(values, scale)) is not None:
                return self._deltas(whole, scale)
        # The page reads doubles in place: they begin at multiples of eight.
        self.data += b"\0" * (-len(self.data) % 8)
        return self._put(_little(values), len(values))

    def integers(self, values: Iterable[int]) -> Column:
        return self._deltas(list(values), 1)

    def _deltas(self, values: Sequence[int | None], scale: int) -> Column:
        """Zigzag varints of differences to the value before, plus one; 0 is no value (NaN)."""
        made = bytearray()
        last = 0
        for value in values:
            if value is None:
                made.append(0)
                continue
            delta = value - last
            last = value
            rest = (delta << 1 if delta >= 0 else (-delta << 1) - 1) + 1
            while rest > 127:
                made.append(rest & 127 | 128)
                rest >>= 7
            made.append(rest)
        return self._put(bytes(made), len(values), scale)

    def _put(self, data: bytes, length: int, scale: int = 0) -> Column:
        column = Column(len(self.data), len(data), length, scale)
        self.data += data
        return column


def _little(values: array[float]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _scaled(values: array[float], scale: int) -> list[int | None] | None:
    """The values times the scale where all of them are whole then; None for NaN. None if they are not."""
    made: list[int | None] = []
    for value in values:
        if isnan(value):
            made.append(None)
            continue
        if isinf(value) or abs(value) * scale > _LARGEST:
            return None
        whole = round(value * scale)
        if whole / scale != value:
            return None
        made.append(whole)
    return made


def pack(runs: Sequence[Schedule], tau: float = TAU) -> bytes:
    """The block of these runs, gzipped. All but the first are compared with the first."""
    block = Block()
    header = {"schema": 1, "runs": [_run(run, runs[0] if place else None, block, tau) for place, run in enumerate(runs)]}
    text = msgspec.json.encode(header)
    text += b" " * (-(4 + len(text)) % 8)
    return gzip.compress(len(text).to_bytes(4, "little") + text + bytes(block.data), 6, mtime=0)


def _run(run: Schedule, first: Schedule | None, block: Block, tau: float) -> Run:
    users: dict[str, int] = {}
    states: dict[JobState, int] = {}
    columns = {
        "submitted": block.reals(run.submitted),
        "started": block.reals(run.started),
        "ended": block.reals(run.ended),
        "walltimes": block.reals(array("d", [-1.0 if wall == inf else wall for wall in run.walltimes])),
        "requested": block.integers(run.requested),
        "widths": block.integers(run.widths),
        "users": block.integers([users.setdefault(user, len(users)) for user in run.users]),
        "states": block.integers([states.setdefault(state, len(states)) for state in run.states]),
        "codes": block.integers(run.exit_codes),
        "backfilled": block.integers(_marks(len(run), overtakers(run.submitted, run.started, run.ran()))),
    }
    _put_boxes(run, block, columns)
    for name, steps in (("capacity", run.capacity), ("energy", run.energy)):
        _put_steps(name, steps, block, columns)
    for place, steps in enumerate(run.machine_states.values()):
        _put_steps(f"machines{place}", steps, block, columns)
    changed = ""
    if first is not None:
        rows = {job_id: row for row, job_id in enumerate(first.ids)}
        columns["partners"] = block.integers([rows.get(job_id, -1) for job_id in run.ids])
        changed = as_text(difference(first, run, tau=tau))
    texts = len(run) <= MOST_TEXTS
    return Run(
        name=run.name, path=run.path, live=run.live, over=run.over, policy=run.policy, now=run.now, began=run.clock_began,
        units=run.units, total=run.total, tau=tau, users=list(users), states=[state.value for state in states],
        ids=run.ids, columns=columns, summary=_summary(run, metrics_of(run, tau)), tables=tables(run, tau),
        nodes=[(node.name, node.first, node.count) for node in run.nodes] if run.live else [],
        machine_states=list(run.machine_states),
        commands=[command[:MOST_TEXT] for command in run.commands] if texts else [], places=run.places if texts else [],
        reasons={str(row): text[:MOST_TEXT] for row, text in run.reasons.items()},
        last_words={str(row): text[:MOST_TEXT] for row, text in run.last_words.items()}, changed=changed,
    )  # fmt: skip


def _marks(count: int, rows: Iterable[int]) -> bytearray:
    marks = bytearray(count)
    for row in rows:
        marks[row] = 1
    return marks


def _put_boxes(run: Schedule, block: Block, columns: dict[str, Column]) -> None:
    """Runs of neighbouring units: how many each job has; where each begins; how long it is."""
    counts, firsts, lengths = [], [], []
    for text in run.allocated:
        found = intervals(text)
        counts.append(len(found))
        for first, last in found:
            firsts.append(first)
            lengths.append(last - first + 1)
    columns["boxes"] = block.integers(counts)
    columns["firsts"] = block.integers(firsts)
    columns["lengths"] = block.integers(lengths)


def _put_steps(name: str, steps: Steps | None, block: Block, columns: dict[str, Column]) -> None:
    if steps is not None and len(steps.dates):
        columns[f"{name}_dates"] = block.reals(steps.dates)
        columns[f"{name}_values"] = block.reals(steps.values)


def _summary(run: Schedule, metrics: Metrics) -> list[tuple[str, float | None]]:
    """The rows of `compare`, and what else is known."""
    rows: list[tuple[str, Any]] = [(f"{heading} {statistic}".strip(), value(metrics)) for heading, statistic, value, _ in ROWS]
    if run.energy is not None and len(run.energy.values):
        rows.append(("energy J", run.energy.values[-1]))
    if run.live and run.capacity is not None:
        end = run.now
        offered, used = run.capacity.integral(0.0, end), run.busy().integral(0.0, end)
        rows.append(("idle slot hours", (offered - used) / 3600))
    return [(name, None if isnan(value) or isinf(value) else value) for name, value in rows]
