"""`pilothouse explain`: why a task waits, where it runs, how it ended; why a simulated job started when it did."""

from __future__ import annotations

import click


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="[PATH] TASK|JOB")
@click.option("--world", "world_name", help="slurm[:PARTITION] or slurm:QUEUE:GO: a job of a Slurm that runs.")
@click.option(
    "--ask", is_flag=True,
    help="Ask the scheduler of a live run when a waiting task will start (estimate_waiting_time). A scheduler outside of this "
    "program that does not know the question may end, and the run with it.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def command(names: tuple[str, ...], world_name: str | None, ask: bool, as_json: bool) -> None:
    """Say what TASK of a live run waits for, where it runs or how it ended; of a simulation, why JOB started when it did.

    A PATH is the folder of a run, or what its files begin with (`-e`). A live run may be going on: its driver is not disturbed
    (but by --ask).
    Tasks are named as in `pilothouse tasks`. With --world: why a job of a Slurm waits.

    \b
    Examples:
      pilothouse explain tasks.txt.run1 31415
      pilothouse explain tasks.txt.run1 prepare --json
      pilothouse simulate -p 100 -w KTH-SP2.swf.gz --policy easy -e out/
      pilothouse explain out/ 16452
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
    from pilothouse.views.read_run import find

    run = find(names[0])
    if run.journal is not None:
        from pilothouse.launch.explain_task import explain_task

        click.echo(explain_task(run.journal, job, as_json=as_json, ask=ask))
        return
    from pilothouse.views.story import explain

    click.echo(explain(names[0], job, as_json=as_json))
