"""`pilothouse slurm-setup`: the configuration of a Slurm that is to be steered."""

from __future__ import annotations

import sys

import click


@click.command()
@click.option("--queue", default="queue", show_default=True, help="The partition into which users submit.")
@click.option("--go", default="go", show_default=True, help="The partition in which jobs start.")
@click.option("--nodes", default="ALL", show_default=True, metavar="HOSTLIST", help="The nodes of both partitions.")
@click.option("--cpus", "by_cpu", is_flag=True, help="Jobs share nodes by CPUs; otherwise they get whole nodes.")
@click.option("--user", "uids", type=int, multiple=True, metavar="UID", help="Who steers, besides root.")
@click.option("--check", "act", flag_value="check", help="Check the Slurm that runs, and say what is missing.")
@click.option("--undo", "act", flag_value="undo", help="Give the queue back to Slurm.")
def command(queue: str, go: str, nodes: str, by_cpu: bool, uids: tuple[int, ...], act: str | None) -> None:
    """Print the lines for slurm.conf and the job_submit.lua that steering needs; check them; undo.

    Steering needs Operator rights, not root, and no plugin of ours. --check ends with code 1 if something is wrong. --undo
    takes back what was ordered and not started, and sets the queue UP: Slurm schedules its jobs itself from then on.

    \b
    Examples:
      pilothouse slurm-setup --nodes n[1-64]
      pilothouse slurm-setup --check
      pilothouse slurm-setup --undo
    """
    from pilothouse.launch import slurm_setup
    from pilothouse.worlds.slurm.book import Pair

    pair = Pair(queue, go)
    if act == "check":
        found = slurm_setup.check_here(pair)
        for finding in found:
            click.echo(f"{finding.level:5}  {finding.text}" + (f"\n       do: {finding.do}" if finding.do else ""))
        sys.exit(any(finding.level == "wrong" for finding in found))
    if act == "undo":
        for line in slurm_setup.undo(pair):
            click.echo(line)
        return
    click.echo(slurm_setup.texts(pair, nodes, whole_nodes=not by_cpu, uids=uids), nl=False)
