"""`pilothouse steer`: any world, any decider."""

from __future__ import annotations

import sys

import click

from pilothouse.cli.options import decider_options


@click.command()
@click.option(
    "--world",
    "world_name",
    required=True,
    help="sim, batsim:ENDPOINT, batprotocol:ENDPOINT, flux[:URI], slurm[:QUEUE:GO].",
)
@decider_options("easy")
@click.option("-p", "--platform", help="With --world sim: as in simulate.")
@click.option("-w", "--workload", "workloads", multiple=True, metavar="FILE", help="With --world sim: as in simulate.")
@click.option(
    "-e", "--export", "prefix", metavar="PREFIX",
    help="Where files for views go: jobs as they end, and what runs and waits now. [default with --world sim: out/; else none]",
)
@click.option("--restart", is_flag=True, help="With --world flux or slurm: start again after a crash, with a back-off.")
@click.option(
    "--dry-run", is_flag=True, help="With --world slurm[:PARTITION]: change nothing, and print what the policy would start."
)
@click.option("--looks", default=0, metavar="N", help="With --dry-run: end after N looks.")
@click.option(
    "--fail-open/--fail-closed",
    default=False,
    help="With --world slurm: give the queue back to Slurm when this program stops or is gone, or leave it (default).",
)
def command(
    world_name: str,
    by: str,
    platform: str | None,
    workloads: tuple[str, ...],
    prefix: str | None,
    timeout: float | None,
    decider_command: str | None,
    restart: bool,
    fail_open: bool,
    dry_run: bool,
    looks: int,
) -> None:
    """Join a WORLD (where jobs run) to a DECIDER (what schedules).

    Worlds: sim (with -p and -w), batsim:ENDPOINT (we are the scheduler of a real Batsim 2 to 4),
    batprotocol:ENDPOINT (of a real Batsim 5), flux[:URI] (of a Flux instance), slurm[:QUEUE:GO] (of a Slurm cluster: users
    submit into partition QUEUE, jobs start in partition GO). Real tasks: see `pilothouse run`.

    \b
    Examples:
      pilothouse steer --world sim -p 100 -w trace.swf --by easy
      pilothouse steer --world batsim:tcp://127.0.0.1:28000 --by conservative
      pilothouse steer --world flux --by easy
      pilothouse steer --world flux --by edc:./libfcfs.so
      pilothouse steer --world slurm --by easy --fail-open
      pilothouse steer --world slurm:batch --by easy --dry-run
    """
    from pilothouse.core.session import Session
    from pilothouse.launch import naming
    from pilothouse.launch.running import supervised

    if world_name == "sim":
        from pilothouse.cli.simulate import command as simulate

        if platform is None or not workloads:
            raise click.UsageError("--world sim needs -p and -w")
        chosen = {"platform": platform, "workloads": workloads, "by": by, "prefix": prefix or "out/"}
        click.get_current_context().invoke(simulate, **chosen, timeout=timeout, decider_command=decider_command)
    if restart:
        from pilothouse.launch.restart import is_child, run_with_restarts

        if not is_child():
            sys.exit(run_with_restarts([sys.executable, "-m", "pilothouse", *sys.argv[1:]]))
    if dry_run:
        from pilothouse.launch.slurm_whatif import dry_run_lines

        for line in dry_run_lines(world_name, by, looks):
            click.echo(line)
        return
    if fail_open:
        world_name += f"{'&' if '?' in world_name else '?'}fail=open"
    decider = naming.decider(by, timeout=timeout)
    with supervised(decider_command):
        session = Session(naming.world(world_name), decider, name=by, around=naming.notes(world_name, by))
        if prefix is None:
            outcome = session.run()
        else:
            from pilothouse.launch.session_files import run_recorded

            outcome = run_recorded(session, prefix)
    click.echo(f"{world_name} by {by}: ended at {outcome.ended_at:g} s after {outcome.turns:,} turns")
    if outcome.deadlocked:
        sys.exit(1)
