"""`pilothouse compare`: the same workload under several policies, side by side."""

from __future__ import annotations

import sys
from typing import Any

import click

from pilothouse.cli.options import (
    Seconds,
    complete_policy,
    platform_option,
    report_option,
    shaping_options,
    workload_options,
)


@click.command()
@platform_option
@workload_options
@shaping_options
@click.option(
    "--policy", "policies", multiple=True, default=("fcfs,easy,easy-sjbf",), show_default=True,
    shell_complete=complete_policy, help="Policies with commas between them (repeatable).",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
@click.option(
    "--tau", type=Seconds(above_zero=True), default=10.0, show_default=True,
    help="Bound of the bounded slowdown, in seconds.",
)  # fmt: skip
@click.option("-e", "--export", "prefix", help="Keep each run's files as PREFIX + policy + / + name.")
@click.option("-j", "--workers", type=click.IntRange(min=1), metavar="N", help="Processes.  [default: all cores]")
@click.option("--plot", metavar="FILE", help="Draw the runs into one figure (.png, .svg or .pdf).")
@report_option
def command(**given: Any) -> None:
    """Run WORKLOADs on a simulated PLATFORM under each of several policies.

    The best value of each row has a star (and is green on a terminal; the worst is red).

    \b
    Examples:
      pilothouse compare -p 100 -w KTH-SP2.swf.gz --policy fcfs,easy,easy-sjbf
      pilothouse compare -p 100 -w KTH-SP2.swf.gz --policy easy --policy 'priority:score=r*n,backfill=easy' --json
      pilothouse compare -p 100 -w KTH-SP2.swf.gz --policy fcfs,easy --plot comparison.png
      pilothouse compare -p nodes.txt -w sacct.txt --policy fcfs,easy --report report.html
    """
    from pilothouse.launch.comparison import compare

    sys.exit(compare(**given))
