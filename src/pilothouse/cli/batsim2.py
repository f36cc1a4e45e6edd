"""`pilothouse batsim2`: stands in for the command line of Batsim 2, which the specification of its protocol describes."""

from __future__ import annotations

import click

from pilothouse.cli.batsim4 import parameters, wrong
from pilothouse.dropins.batsim2.options import EARLIER_NAMES, LATER, Batsim2Options

EXAMPLES = """
\b
Examples:
  pilothouse batsim2 -p cluster.xml -w workload.json -e out/run
  pilothouse batsim2 -p cluster.xml -w w.json --config-file redis.json --decider-command "pybatsim fillerSched"

Options and files are Batsim 2.0's; those named --decider-... are ours. A wrong decision, or a run that can go nowhere, ends
with one line and exit code 1; what was written so far is kept.
"""


def run(**given: object) -> None:
    import msgspec

    options = msgspec.convert(given, Batsim2Options)
    if options.version:
        click.echo("v2.0.0")
        return
    if options.simgrid_version:
        click.echo("3.25.0")
        return
    code = wrong(options)
    if code:
        raise click.exceptions.Exit(code)
    from pilothouse.dropins.batsim2.run import simulate_as_2

    raise click.exceptions.Exit(simulate_as_2(options))


command = click.Command(
    "batsim2",
    callback=run,
    params=parameters(Batsim2Options, LATER, EARLIER_NAMES),
    help="Simulate jobs under a scheduler that speaks the protocol of Batsim 2: a drop-in for Batsim 2.0.0.",
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
