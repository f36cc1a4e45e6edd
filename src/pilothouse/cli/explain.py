"""`pilothouse explain`: why a job of a finished run started when it did."""

from __future__ import annotations

import click


@click.command()
@click.argument("prefix")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def command(prefix: str, job: str, as_json: bool) -> None:
    """Say why JOB of the run whose files begin with PREFIX started when it did.

    \b
    Examples:
      pilothouse simulate -p 100 -w KTH-SP2.swf.gz --policy easy -e out/
      pilothouse explain out/ 16452
      pilothouse explain out/ w0!16452 --json
    """
    from pilothouse.views.story import explain

    click.echo(explain(prefix, job, as_json=as_json))
