"""The grid of a sweep: workloads x platforms x loads x weeks x policies x options x seeds, as cells in a fixed order.

In: a TOML file, or values from the command line. Out: `Cell`s. A cell says all that its result depends on besides the
contents of files, as text and numbers, so that it can be hashed, kept, and sent to another machine.

    platforms = ["100"]
    workloads = ["KTH-SP2.swf.gz", "lublin:jobs=5000"]
    policies = ["fcfs", "easy", "random"]
    loads = [1.0, 1.2]          # arrivals so many times as dense
    weeks = "all"               # each week of a workload apart; or numbers from 0
    seeds = [1, 2, 3]           # of generated workloads and of policies that have one; or a number: 1 to that

    [options.easy]              # every combination is a policy of its own
    estimate = ["requested", "2x"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from itertools import product
from math import isfinite
from typing import Any

import msgspec

from pilothouse.formats.text_input import read_text
from pilothouse.model.errors import InputError, quoted, suggestion

MOST_CELLS = 1_000_000


class Cell(msgspec.Struct, frozen=True):
    """One simulation of a sweep. Names are as in the grid."""

    workload: str
    platform: str
    load: float
    week: int | None
    """None: the whole workload."""
    seed: int | None
    """None: nothing in it is random."""
    policy: str
    """With options, without the seed."""
    tau: float = 10.0
    warm_up: float = 0.0
    cool_down: float = 0.0

    @property
    def case(self) -> tuple[str, str, float]:
        """What policies are compared on; weeks and seeds are its repetitions."""
        return self.workload, self.platform, self.load

    @property
    def repetition(self) -> tuple[int | None, int | None]:
        return self.week, self.seed


class Grid(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a user wants to try."""

    workloads: list[str] = []
    platforms: list[str | int] = []
    policies: list[str] = msgspec.field(default_factory=lambda: ["fcfs", "easy", "easy-sjbf"])
    options: dict[str, dict[str, list[Any] | str | float | int | bool]] = {}
    loads: list[float] = msgspec.field(default_factory=lambda: [1.0])
    seeds: list[int] | int = []
    weeks: list[int] | str = []
    tau: float = 10.0
    warm_up: float = 0.0
    cool_down: float = 0.0

    @classmethod
    def read(cls, path: str) -> Grid:
        """A grid from a TOML file. Raises InputError."""
        try:
            table = tomllib.loads(read_text(path))
        except (ValueError, RecursionError) as problem:  # of TOML's syntax, and of numbers and dates in it
            raise InputError(path, f"not TOML: {problem}") from None
        fields = cls.__struct_fields__
        for key in table:
            if key not in fields:
                raise InputError(path, f"unknown key {key!r}", expected=", ".join(fields), hint=suggestion(key, fields))
        try:
            return msgspec.convert(table, cls)
        except msgspec.ValidationError as problem:
            raise InputError(path, f"not a grid: {problem}") from None

    def check(self, where: str) -> None:
        """InputError for a grid that makes no sense."""
        for name in ("workloads", "platforms", "policies", "loads"):
            if not getattr(self, name):
                raise InputError(where, f"{name}: none is named", expected="one at least")
        for name, value in (("tau", self.tau), *(("loads", load) for load in self.loads)):
            if not (isfinite(value) and value > 0):
                raise InputError(where, name, expected="numbers above 0", found=str(value))
        for name in ("warm_up", "cool_down"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(where, name, expected="seconds", found=str(getattr(self, name)))
        if isinstance(self.weeks, str) and self.weeks != "all":
            raise InputError(where, "weeks", expected='numbers from 0, or "all"', found=quoted(self.weeks))
        for name in ("weeks", "seeds"):
            values = getattr(self, name)
            if isinstance(values, list) and any(value < 0 for value in values):
                raise InputError(where, name, expected="numbers from 0", found=str(min(values)))
        if isinstance(self.seeds, int) and not 0 < self.seeds <= MOST_CELLS:
            raise InputError(where, "seeds", expected=f"a list, or a number from 1 to {MOST_CELLS:,}", found=str(self.seeds))
        for name in self.options:
            if name not in self.policies:
                known = ", ".join(self.policies)
                raise InputError(where, f"options for {name!r}, which is not among the policies", expected=known)

    def variants(self) -> dict[str, dict[str, str]]:
        """The policies with every combination of their options: full name -> the options that were chosen."""
        found: dict[str, dict[str, str]] = {}
        for policy in self.policies:
            choices = [
                [(key, _text(value)) for value in (values if isinstance(values, list) else [values])]
                for key, values in self.options.get(policy, {}).items()
            ]
            for chosen in product(*choices):
                found.setdefault(with_options(policy, [f"{key}={text}" for key, text in chosen]), dict(chosen))
        return found

    def seed_numbers(self) -> Sequence[int]:
        return range(1, self.seeds + 1) if isinstance(self.seeds, int) else self.seeds

    def cells(self, weeks_of: Callable[[str, str], Sequence[int]], seeded: Callable[[str], bool]) -> list[Cell]:
        """All cells, in the order of the file. `weeks_of(workload, platform)`: its whole weeks; `seeded(name)`: whether a
        seed makes a difference to this workload or policy. Where it makes none to either there is one cell for all seeds.
        """
        seeds: list[int | None] = list(self.seed_numbers())
        policies = self.variants()
        cells: list[Cell] = []
        for workload, platform in product(self.workloads, map(str, self.platforms)):
            weeks: list[int | None] = [None]
            if self.weeks:
                weeks = list(weeks_of(workload, platform) if isinstance(self.weeks, str) else self.weeks)
            for load, week, policy in product(self.loads, weeks, policies):
                random = seeded(workload) or seeded(policy)
                chosen = (seeds or [None]) if random else [None]
                if len(cells) + len(chosen) > MOST_CELLS:
                    raise InputError("grid", "too many cells", expected=f"at most {MOST_CELLS:,}")
                cells += [
                    Cell(workload, platform, load, week, seed, policy, self.tau, self.warm_up, self.cool_down)
                    for seed in chosen
                ]
        return list(dict.fromkeys(cells))


def with_options(policy: str, options: Sequence[str]) -> str:
    """`easy` with estimate=2x is `easy:estimate=2x`; a class of the user's (`mine.py:Mine`) has a colon before them."""
    if not options:
        return policy
    of_user = policy.endswith(".py") or ".py:" in policy or "." in policy.partition(":")[0]
    first = policy.count(":") == (1 if of_user else 0)
    return policy + (":" if first else ",") + ",".join(options)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
