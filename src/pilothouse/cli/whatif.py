"""`pilothouse whatif`: a run, or the present queue of a Slurm, under other policies or on more nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pilothouse.cli.options import complete_policy
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.idset import MOST_ID

if TYPE_CHECKING:
    from pilothouse.model.job import Job
    from pilothouse.views.documents import WhatIfDocument


@click.command()
@click.argument("run", required=False)
@click.option("--world", "world_name", metavar="WORLD", help="slurm[:PARTITION] or slurm:QUEUE:GO, instead of a run.")
@click.option(
    "--policy", default="", metavar="POLICY", shell_complete=complete_policy,
    help="The policy to try; for a Slurm several by comma (by default fcfs,easy).",
)  # fmt: skip
@click.option("--add-nodes", type=click.IntRange(0), default=0, metavar="N", help="So many nodes more, as large as the largest.")
@click.option(
    "--submit", metavar="UNITS[:TIME]",
    help="Say when one more job would start that asks for UNITS and TIME (3600, 30m, 2h). A Slurm may be asked with "
    "foreign schedulers too (--policy batsim:ENDPOINT).",
)
@click.option("--used", default=1.0, show_default=True, help="Slurm: the share of its time limit that a job runs.")
@click.option("--user", "only", default="", metavar="NAME", help="Slurm: only the jobs of this user.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def command(
    run: str | None, world_name: str | None, policy: str, add_nodes: int, submit: str | None, used: float, only: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Say what another policy, or more nodes, would have done to RUN, or what policies would do to the jobs that wait in a Slurm.

    A run that is over (live or simulated) is replayed: its jobs take as long as they took. Of a run that goes on the present
    state is simulated, as it is and otherwise. Of a Slurm the present queue is simulated: running jobs end at their time limit
    (or at --used of it), and no job is submitted meanwhile. Nothing is changed, and no right is needed.

    \b
    Examples:
      pilothouse whatif tasks.txt.run1 --policy easy --add-nodes 2
      pilothouse whatif out/ --policy conservative
      pilothouse whatif --world slurm:batch --policy fcfs,easy,easy-sjbf
      pilothouse whatif --world slurm --used 0.5 --user alice
      pilothouse whatif --world slurm --submit 16:2h --policy fcfs,easy
    """
    job = _potential(submit) if submit else None
    if run is None or world_name is not None:
        if run is not None or add_nodes:
            raise InputError("whatif", "a run, or --world", expected="one of them; --add-nodes is for runs")
        from pilothouse.launch.slurm_whatif import submitted, table

        names, world = (policy or "fcfs,easy").split(","), world_name or "slurm"
        if job is not None:
            click.echo(submitted(world, names, job, as_json=as_json))
        else:
            click.echo(table(world, names, used, only, as_json=as_json))
        return
    from pilothouse.launch.run_whatif import start_in_run, whatif_run
    from pilothouse.views import documents

    if job is not None and add_nodes:
        raise InputError("whatif", "--submit or --add-nodes", expected="one of them")
    found = whatif_run(run, policy, add_nodes) if job is None else start_in_run(run, policy, job)
    click.echo(documents.text("whatif", found) if as_json else _text(found))


def _potential(text: str) -> Job:
    """`16:2h`: a job of 16 units with a time limit of two hours."""
    from math import inf

    from pilothouse.formats import duration
    from pilothouse.model.job import Job

    units, colon, limit = text.partition(":")
    walltime = duration.parse(limit, where="--submit") if colon else inf
    if not (units.isascii() and units.isdecimal() and 0 < int(units) <= MOST_ID and walltime > 0):
        raise InputError("--submit", "not a job", expected="UNITS[:TIME], such as 16:2h", found=quoted(text))
    return Job("submitted", int(units), walltime)


def _text(found: WhatIfDocument) -> str:
    from pilothouse.cli.forecast import in_words, spread
    from pilothouse.views.difference import as_text

    lines = []
    if found.difference is not None:
        lines.append(as_text(found.difference))
    if found.now is not None and found.otherwise is not None:
        for label, one in (("as it is", found.now), ("otherwise", found.otherwise)):
            lines.append(f"{label:<10} {one.policy}, {one.slots:,} slots: done in {spread(one.low, one.seconds, one.high)}")
        sooner = found.sooner_s or 0.0
        low, high = sorted((found.sooner_low or 0.0, found.sooner_high or 0.0))
        between = f"(nine in ten simulations: {_signed(low)} to {_signed(high)})"
        lines.append(f"it would be done {in_words(abs(sooner))} {'sooner' if sooner >= 0 else 'later'} {between}")
    if (waits := found.submitted) is not None:
        lines.append(f"it would start in {spread(waits.low, waits.seconds, waits.high)} ({waits.policy}, {waits.slots:,} slots)")
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def _signed(seconds: float) -> str:
    from pilothouse.cli.forecast import in_words

    return f"{in_words(abs(seconds))} {'sooner' if seconds >= 0 else 'later'}"
