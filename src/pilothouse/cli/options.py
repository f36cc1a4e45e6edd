"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import inf, isnan
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A length of time: a number that is not negative (`above_zero`: nor zero); inf is for ever, and nan is refused."""

    name = "seconds"

    def __init__(self, *, above_zero: bool = False) -> None:
        super().__init__(min=0.0, min_open=above_zero)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if isnan(seconds):
            self.fail(f"{value!r} is not a length of time.", param, ctx)
        return seconds


class Latency(click.ParamType[float | str]):
    """`messages`, or a length of time above zero: 1s, 500ms."""

    name = "latency"
    MESSAGES = "messages"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        from pilothouse.formats import duration
        from pilothouse.model.errors import InputError

        if value == self.MESSAGES:
            return self.MESSAGES
        try:
            seconds = duration.parse(value)
        except InputError as problem:
            self.fail(str(problem), param, ctx)
        if not 0.0 < seconds < inf:
            self.fail(f"{value!r} is not a time from one scheduling pass to the next.", param, ctx)
        return seconds


class Walltime(Seconds):
    """A length of time above zero: seconds, 30m, 2h, 1:30:00."""

    def __init__(self) -> None:
        super().__init__(above_zero=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from pilothouse.formats.task_request import walltime_s
        from pilothouse.model.errors import InputError

        if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
            try:
                value = walltime_s(value, "")
            except InputError as problem:
                self.fail(problem.problem, param, ctx)
        return super().convert(value, param, ctx)


class Memory(click.ParamType[int]):
    """An amount of memory in MB: 512M, 8G."""

    name = "memory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from pilothouse.formats.task_request import memory_mb
        from pilothouse.model.errors import InputError

        try:
            return value if isinstance(value, int) else memory_mb(value, "")
        except InputError as problem:
            self.fail(f"{value!r} is {problem.problem}.", param, ctx)


class Factor(click.ParamType[float]):
    """x2, x1.5: a number above one."""

    name = "factor"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            found = float(str(value).removeprefix("x"))
        except ValueError:
            found = 0.0
        if not 1 < found <= 100:
            self.fail(f"{value!r} is not a factor such as x2.", param, ctx)
        return found


platform_option = click.option(
    "-p", "--platform", required=True, help="A SimGrid file, a number of hosts (100), or nodes x cores (4x28)."
)


def complete_policy(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of policies, for the shell; the part after the last comma is completed."""
    from pilothouse.policies.catalog import CATALOG

    done, comma, last = incomplete.rpartition(",")
    return [done + comma + name for name in CATALOG if name.startswith(last)]


def _together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator; --help shows them in this order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


workload_options = _together(
    click.option(
        "-w", "--workload", "workloads", multiple=True, required=True, metavar="FILE",
        help="A Batsim workload, a log (SWF, Slurm, PBS, LSF, Flux; may be gzipped), QCG requests, or a generator such as "
        "lublin:jobs=5000,seed=1 (repeatable).",
    ),
    click.option("--events", multiple=True, metavar="FILE", help="External events, one JSON object a line (repeatable)."),
    click.option(
        "--duration", default="", metavar="SECONDS|FILE",
        help="How long jobs without a known duration take (QCG requests): seconds, or a file of name,seconds.",
    ),
)  # fmt: skip


shaping_options = _together(
    click.option(
        "--load", "load_factor", type=float, default=1.0, metavar="FACTOR", help="Multiply the arrival rate by FACTOR."
    ),
    click.option("--week", type=click.IntRange(min=0), metavar="N", help="Only the jobs of week N of the workload, from 0."),
    click.option(
        "--warm-up", type=Seconds(), default=0.0, metavar="SECONDS",
        help="Leave jobs submitted in the first SECONDS out of the metrics.",
    ),
    click.option(
        "--cool-down", type=Seconds(), default=0.0, metavar="SECONDS",
        help="Leave jobs submitted in the last SECONDS out of the metrics.",
    ),
)  # fmt: skip


report_option = click.option(
    "--report", metavar="FILE", help="Also write one HTML file to look at, as `pilothouse report` does."
)


def decider_options(default: str) -> Callable[[Command], Command]:
    """--policy or --by (one of them), --decider-timeout, --decider-command."""
    return _together(
        click.option(
            "--policy", "by", default=default, show_default=True, metavar="POLICY", shell_complete=complete_policy,
            help="Who decides: see `pilothouse policies`.",
        ),
        click.option(
            "--by", "by", metavar="DECIDER",
            help="The same for any decider: batsim:ENDPOINT, edc:LIB[?init=STRING], rfc27:PATH.",
        ),
        click.option(
            "--decider-timeout", "timeout", type=Seconds(), metavar="SECONDS", help="How long a foreign scheduler may think."
        ),
        click.option("--decider-command", metavar="COMMAND", help="Start this scheduler, wait for it, and end it."),
    )
