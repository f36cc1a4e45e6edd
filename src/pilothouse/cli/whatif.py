"""`pilothouse whatif`: the present queue of a Slurm, run ahead under several policies."""

from __future__ import annotations

import click


@click.command()
@click.option("--world", "world_name", default="slurm", show_default=True, help="slurm[:PARTITION] or slurm:QUEUE:GO.")
@click.option("--policy", "policies", default="fcfs,easy", show_default=True, help="Policies to compare, by comma.")
@click.option("--used", default=1.0, show_default=True, help="The share of its time limit that a job runs.")
@click.option("--user", "only", default="", metavar="NAME", help="Only the jobs of this user.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def command(world_name: str, policies: str, used: float, only: str, as_json: bool) -> None:
    """Say when the jobs that wait now would start under each policy. Nothing is changed, and no right is needed.

    The present state of the cluster is simulated: running jobs end at their time limit (or at --used of it), and no job is
    submitted meanwhile.

    \b
    Examples:
      pilothouse whatif --world slurm:batch --policy fcfs,easy,easy-sjbf
      pilothouse whatif --world slurm --used 0.5 --user alice
    """
    from pilothouse.launch.slurm_whatif import table

    click.echo(table(world_name, policies.split(","), used, only, as_json=as_json))
