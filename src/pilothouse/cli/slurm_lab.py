"""`pilothouse slurm-lab`: a real Slurm on this machine."""

from __future__ import annotations

import sys

import click


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("shape", metavar="NODESxCPUS[,...]")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--dir", "folder", metavar="DIR", help="Where its files go; a temporary folder unless given.")
@click.option("--until-ended", type=int, metavar="PID", help="End when this process has ended.")
def command(shape: str, command_line: tuple[str, ...], folder: str | None, until_ended: int | None) -> None:
    """Start a real Slurm with emulated nodes on loopback, until Ctrl-C or until COMMAND has ended.

    Nodes may be of several kinds: `4x4,2x16:gpu=2:memory=8000:disk=500` (MB). Where one kind has an amount of memory, Slurm
    gives out memory as well.

    Needs the Debian packages slurmctld, slurmd, slurm-client and munge, and no root. Partitions: main (Slurm schedules),
    queue and go (steered, whole nodes), cpuqueue and cpugo (steered, CPUs).

    \b
    Examples:
      pilothouse slurm-lab 8x4
      pilothouse slurm-lab 4x4,2x16:gpu=2
      pilothouse slurm-lab 8x4 -- sh -c 'sbatch -p queue -N2 --wrap "sleep 5"; pilothouse steer --world slurm?once=1'
    """
    from pilothouse.launch.slurm_lab import hold_lab

    sys.exit(hold_lab(shape, list(command_line), folder, until_ended))
