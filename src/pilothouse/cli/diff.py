"""`pilothouse diff`: what changed from one schedule to another."""

from __future__ import annotations

import sys

import click

from pilothouse.cli.options import Seconds


@click.command("diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with every job that moved.")
@click.option(
    "--tolerance", type=Seconds(), default=1e-6, show_default=True, metavar="SECONDS",
    help="Starts that are no further apart count as the same.",
)
@click.option(
    "--tau", type=Seconds(above_zero=True), default=10.0, show_default=True, help="Bound of the bounded slowdown, in seconds."
)  # fmt: skip
def command(a: str, b: str, as_json: bool, tolerance: float, tau: float) -> None:
    """Say what changed from run A to run B: the first decision that differs, which jobs moved by how much, each metric.

    A and B are folders of runs, or what their files begin with (`-e`). Ends with 0 if no decision differs, with 1 if one
    does, with 2 if the input is wrong.

    \b
    Examples:
      pilothouse compare -p 100 -w KTH-SP2.swf.gz --policy easy,easy-sjbf -e runs/
      pilothouse diff runs/easy runs/easy-sjbf
      pilothouse diff runs/easy runs/easy-sjbf --json | jq .first
    """
    from pilothouse.views import documents
    from pilothouse.views.difference import as_text, difference
    from pilothouse.views.read_run import read_runs

    found = difference(*read_runs((a, b)), tolerance_s=tolerance, tau=tau)
    click.echo(documents.text("difference", found) if as_json else as_text(found))
    sys.exit(0 if found.first is None else 1)
