"""`pilothouse explain`: why a job of a finished run started when it did."""

from __future__ import annotations

import click


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="[PATH] JOB")
@click.option("--world", "world_name", help="slurm[:PARTITION] or slurm:QUEUE:GO: a job of a Slurm that runs.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def command(names: tuple[str, ...], world_name: str | None, as_json: bool) -> None:
    """Say why JOB of the run at PATH started when it did; with --world, why it waits.

    A PATH is the folder of a run, simulated or live, or what its files begin with (`-e`).

    \b
    Examples:
      pilothouse simulate -p 100 -w KTH-SP2.swf.gz --policy easy -e out/
      pilothouse explain out/ 16452
      pilothouse explain out/ w0!16452 --json
      pilothouse explain --world slurm 4711
    """
    if len(names) != (2 if world_name is None else 1):
        raise click.UsageError("give a run and a job (PATH JOB), or --world and a job")
    job = names[-1]
    if world_name is not None:
        from pilothouse.campaign.slurm_present import why
        from pilothouse.launch.slurm_whatif import look

        click.echo(why(look(world_name), job))
        return
    from pilothouse.views.story import explain

    click.echo(explain(names[0], job, as_json=as_json))
