"""`pilothouse flux-module`: a scheduler module of Flux as the scheduler of any world of ours."""

from __future__ import annotations

import click

from pilothouse.cli.options import Seconds


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("module")
@click.argument("arguments", nargs=-1, metavar="[ARGUMENT]...")
@click.option("--socket", required=True, metavar="PATH", help="The socket of the manager: that of --by rfc27:PATH.")
@click.option("--flux", "program", default="flux", show_default=True, help="The command of the Flux installation.")
@click.option(
    "--patience", type=Seconds(), default=30.0, show_default=True, help="How long to wait for the socket, in seconds."
)
def command(module: str, arguments: tuple[str, ...], socket: str, program: str, patience: float) -> None:
    """Run MODULE, a scheduler module of Flux that is written in Python, against our manager.

    Flux 0.84 or later must be installed; no instance of it need run. MODULE is sched-simple, sched-fifo, sched-backfill,
    or the path of your own; ARGUMENTs are those of `flux module load`. It ends when the manager does.

    \b
    Examples:
      pilothouse flux-module sched-backfill --socket /tmp/s.sock
      pilothouse flux-module ./mine.py queue-depth=8 --socket /tmp/s.sock
      pilothouse simulate -p 16x4 -w trace.swf --by rfc27:/tmp/s.sock \\
          --decider-command "pilothouse flux-module sched-backfill --socket /tmp/s.sock"
    """
    from pilothouse.launch.flux_module import start

    start(module, arguments, socket=socket, program=program, patience_s=patience)
