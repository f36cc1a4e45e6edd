"""`pilothouse simulate`: one workload, one platform, one decider; Batsim's files out."""

from __future__ import annotations

import sys
from typing import Any

import click

from pilothouse.cli.options import (
    Latency,
    Seconds,
    decider_options,
    platform_option,
    report_option,
    shaping_options,
    workload_options,
)


@click.command()
@platform_option
@workload_options
@shaping_options
@decider_options("easy")
@click.option("-e", "--export", "prefix", default="out/", show_default=True, help="Files are called PREFIX + name.")
@click.option(
    "--format", "exports", multiple=True, type=click.Choice(["swf", "jsonl"]), help="Also write jobs.swf, jobs.jsonl."
)
@click.option("--energy", is_flag=True, help="Simulate the energy of hosts (property wattage_per_state of the platform).")
@click.option(
    "--solver", type=click.Choice(["fair-bottleneck", "max-min"]), default="fair-bottleneck", show_default=True,
    help="How parallel tasks share hosts and links.",
)
@click.option("--trace-machines", is_flag=True, help="Also write machine_states.csv and pstate_changes.csv (--energy does).")
@click.option(
    "--control-latency", type=Latency(), is_flag=False, flag_value=Latency.MESSAGES, metavar="[DURATION]",
    help="Without a value: charge simulated time for each message to the master host (if there is none: the first), as "
    "Batsim. Without this option, start times under a Batsim scheduler may differ from those of a real Batsim. "
    "With one, such as 1s: jobs start at the next scheduling pass, and there is one each second, as in Slurm.",
)  # fmt: skip
@click.option(
    "--ask-estimates", metavar="WORKLOAD",
    help="Ask the scheduler, at the date of each job of this workload, how long the job would wait. The jobs are not submitted; "
    "PREFIX + estimates.csv has the answers.",
)
@report_option
@click.option("--plot", is_flag=True, help="Also draw utilisation, queue and Gantt chart (PNG and SVG).")
@click.option(
    "--tau", type=Seconds(above_zero=True), default=10.0, show_default=True,
    help="Bound of the bounded slowdown, in seconds.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, for programs, with every metric.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def command(**given: Any) -> None:
    """Run WORKLOADs on a simulated PLATFORM under one policy or foreign scheduler.

    Writes PREFIX + jobs.csv (a row for each job as it ends), schedule.json and run.json.
    Ends with 0, with 1 if jobs were left waiting for ever, with 2 if the input is wrong.

    \b
    Examples:
      pilothouse simulate -p 100 -w KTH-SP2.swf.gz --policy easy -e out/
      pilothouse simulate -p cluster.xml -w workload.json --policy easy-sjbf:estimate=clairvoyant --plot
      pilothouse simulate -p 64 -w trace.swf --policy mine.py:ShortestFirst
      pilothouse simulate -p nodes.txt -w sacct.txt --policy easy --report report.html
      pilothouse simulate -p 100 -w trace.swf --json | jq .metrics.bounded_slowdown.p95
      pilothouse simulate -p 4x28 -w requests.json --policy qcg --duration 300
      pilothouse simulate -p 100 -w trace.swf --by batsim:tcp://localhost:28000
      pilothouse simulate -p cluster.xml -w workload.json --by 'edc:./libfcfs.so?init={}' --control-latency
      pilothouse simulate -p nodes.txt -w sacct.txt --policy easy --control-latency 1s
      pilothouse simulate -p 100 -w trace.swf --policy easy --ask-estimates potential.json
    """
    from pilothouse.launch.simulation import simulate

    latency = given.pop("control_latency")
    messages = latency == Latency.MESSAGES
    sys.exit(simulate(**given, control_latency=messages, pass_every_s=0.0 if messages else latency or 0.0))
