"""`pilothouse convert`: a workload of any format as an SWF log."""

from __future__ import annotations

from typing import Any

import click

from pilothouse.cli.options import workload_options


@click.command()
@click.option(
    "-p", "--platform", default="", metavar="PLATFORM",
    help="The machine: larger jobs are left out. Generators and QCG requests need it.",
)  # fmt: skip
@workload_options
@click.option("-o", "--output", "target", required=True, metavar="FILE", help="The log, .swf or .swf.gz; - is standard output.")
@click.option("--load", "load_factor", type=float, default=1.0, metavar="FACTOR", help="Multiply the arrival rate by FACTOR.")
@click.option(
    "--weeks", metavar="WEEKS",
    help="Only these weeks, from 0, each into a file of its own: all, or 3, or 0,2. {week} in FILE stands for the number.",
)  # fmt: skip
def command(**given: Any) -> None:
    """Write WORKLOADs as logs in the Standard Workload Format.

    What the format has no place for, and what was left out or guessed when the workload was read, is printed and stands in
    the header of the log.

    \b
    Examples:
      pilothouse convert -w sacct.txt -o cluster.swf.gz
      pilothouse convert -p 128 -w lublin:jobs=10000,seed=7 -o lublin.swf
      pilothouse convert -w KTH-SP2.swf.gz --weeks all -o 'weeks/kth-{week}.swf'
    """
    from pilothouse.launch.conversion import convert

    convert(**given)
