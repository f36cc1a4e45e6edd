"""What commands print with --json: one versioned schema. Every document says its `kind` and the `schema` it follows.

A new field does not change the number of the schema; a field that goes, or means something else, does. Numbers that are
not known, or infinite, are null. docs/reference/json.md is made from these classes.
"""

from __future__ import annotations

import msgspec

from pilothouse.views.metrics import Metrics

SCHEMA = 1


class RunDocument(msgspec.Struct, kw_only=True):
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


class ComparisonDocument(msgspec.Struct, kw_only=True):
    """`pilothouse compare --json`: a workload under several policies."""

    units: int
    """The units of the machine."""
    runs: list[ComparedRun]
    """In the order in which the policies were named."""
    notes: list[str] = []
    """What was odd about the input."""


class StartedJob(msgspec.Struct, kw_only=True):
    """A job that one run started and the other did not, or elsewhere."""

    job: str
    units: int
    """Units that it asked for."""
    allocated: str
    """Units that it was given: `0-3 7`."""
    submitted: float
    walltime: float | None
    """Null: no limit."""


class WaitingJob(msgspec.Struct, kw_only=True):
    """A job that waited at a date."""

    job: str
    units: int
    """Units that it asks for."""
    submitted: float


class FirstDifference(msgspec.Struct, kw_only=True):
    """The first decision that differs. Before it, both runs are in the same state."""

    at: float
    """Its date, in seconds."""
    only_a: list[StartedJob]
    """What A started then and B did not, or on other units."""
    only_b: list[StartedJob]
    free: int
    """Units that were free."""
    waiting: list[WaitingJob]
    """Jobs that waited, in the order of their submission."""


class MovedJob(msgspec.Struct, kw_only=True):
    """A job that started at another date."""

    job: str
    units: int
    """Units that it asked for."""
    start_a: float | None
    """Null: it never started in A."""
    start_b: float | None
    delta: float | None
    """start_b - start_a."""


class MetricDifference(msgspec.Struct, kw_only=True):
    """One metric of both runs."""

    metric: str
    """As in the table of `compare`: `wait mean`, `bounded slowdown p95`, ..."""
    a: float
    b: float
    difference: float
    """b - a."""


class DifferenceDocument(msgspec.Struct, kw_only=True):
    """`pilothouse diff --json`: what changed from run A to run B."""

    a: str
    """The path of A."""
    b: str
    policy_a: str
    """The name of A: its policy, or the folder of a live run."""
    policy_b: str
    jobs: int
    """Jobs that are in both runs."""
    only_a: list[str]
    """Jobs that are in A only."""
    only_b: list[str]
    first: FirstDifference | None
    """Null: no decision differs."""
    earlier: int
    """Jobs that start earlier in B."""
    later: int
    metrics: list[MetricDifference]
    moves: list[MovedJob]
    """Every job that started at another date, by its delta."""


class Decided(msgspec.Struct, kw_only=True):
    """A job that was started at a moment."""

    job: str
    units: int
    """Units that it was given."""
    allocated: str
    """Which ones: `0-3 7`."""
    waited: float
    walltime: float | None
    """Null: no limit."""
    why: str
    """What can be seen of the reason."""
    passed: list[str]
    """Jobs that came earlier and still wait."""


class Queued(msgspec.Struct, kw_only=True):
    """A job that waits at a moment."""

    job: str
    units: int
    """Units that it asks for."""
    waited: float
    """Seconds, so far."""
    walltime: float | None
    why: str
    """What can be seen of the reason."""
    starts: float | None
    """When it will start; null: it has not."""


class Running(msgspec.Struct, kw_only=True):
    """A job that runs at a moment."""

    job: str
    units: int
    allocated: str
    started: float
    expected_end: float | None
    """By its walltime."""
    ends: float | None
    """When it will end; null: it has not."""


class MomentDocument(msgspec.Struct, kw_only=True):
    """`pilothouse step --json`: a run at one date, after what was decided then. One line each."""

    run: str
    """The path of the run."""
    number: int
    """From 0 on."""
    moments: int
    """How many there are."""
    date: float
    units: int
    free: int
    """Free units, after the decisions."""
    submitted: list[str]
    """Jobs that came at this date."""
    ended: list[str]
    refused: list[str]
    """Jobs that will never start."""
    decided: list[Decided]
    """Jobs that were started."""
    waiting: list[Queued]
    """In the order of their submission."""
    running: list[Running]
    """The one that ends next first."""


class ForecastPhase(msgspec.Struct, kw_only=True):
    """The tasks between two barriers."""

    tasks: int
    ends_at: float
    """Seconds after the beginning: the median."""
    low: float
    high: float
    """Nine in ten simulations lie between these."""


class ForecastDocument(msgspec.Struct, kw_only=True):
    """`pilothouse forecast --json`: when the tasks of a file, or of a run that goes on, are done."""

    tasks: int
    """Tasks that have not ended."""
    slots: int
    nodes: int
    """Nodes, or with `--nodes N` the slots of one. With `--until` as many as are enough; of a run the nodes to add."""
    policy: str
    seconds: float
    """From the beginning (of a run that goes on: from now) to the end: the median."""
    low: float
    high: float
    """Nine in ten simulations lie between these."""
    samples: int
    """Simulations."""
    utilisation: float
    """Busy slot-seconds over all slot-seconds."""
    phases: list[ForecastPhase]
    done_at: float | None = None
    """Of a run that goes on: the median of the end, in seconds since 1970."""
    until: float | None = None
    """The date that was asked for, in seconds since 1970."""
    in_time: bool | None = None
    """Whether all but one in twenty simulations are done by then."""
    notes: list[str] = []
    """What was assumed."""


class WhatIfForecast(msgspec.Struct, kw_only=True):
    """When a run that goes on would be done."""

    policy: str
    slots: int
    seconds: float
    """From now: the median."""
    low: float
    high: float
    """Nine in ten simulations lie between these."""


class WhatIfDocument(msgspec.Struct, kw_only=True):
    """`pilothouse whatif RUN --json`: a run otherwise. Of a run that goes on `now` and `otherwise`, of one that is over
    `difference`; with `--submit` when a further job would start."""

    now: WhatIfForecast | None = None
    otherwise: WhatIfForecast | None = None
    sooner_s: float | None = None
    """By how much it would be done sooner: the median."""
    sooner_low: float | None = None
    sooner_high: float | None = None
    """Nine in ten simulations lie between these."""
    difference: DifferenceDocument | None = None
    submitted: WhatIfForecast | None = None
    notes: list[str] = []
    """What was assumed."""


class ListedPolicy(msgspec.Struct, kw_only=True):
    """One policy of the catalog."""

    name: str
    summary: str
    options: dict[str, str]
    """Their names, and what they may be."""


class PoliciesDocument(msgspec.Struct, kw_only=True):
    """`pilothouse policies --json`: what there is to choose from."""

    policies: list[ListedPolicy]


def encode(kind: str, document: msgspec.Struct) -> bytes:
    """The document under its kind, on one line."""
    return msgspec.json.encode({"kind": kind, "schema": SCHEMA, **msgspec.structs.asdict(document)})


def text(kind: str, document: msgspec.Struct) -> str:
    """The same, for people too."""
    return msgspec.json.format(encode(kind, document)).decode()
