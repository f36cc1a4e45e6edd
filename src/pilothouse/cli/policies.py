"""`pilothouse policies`: what there is to choose from."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def command(as_json: bool) -> None:
    """List the policies, with one line and the options of each.

    \b
    Examples:
      pilothouse policies
      pilothouse simulate -p 100 -w trace.swf --policy easy:estimate=clairvoyant
      pilothouse simulate -p 100 -w trace.swf --policy 'priority:score=r*n,backfill=easy'
      pilothouse simulate -p 100 -w trace.swf --policy mine.py:ShortestFirst
    """
    from pilothouse.policies.catalog import CATALOG

    if as_json:
        from pilothouse.views import documents

        listed = [
            documents.ListedPolicy(name=name, summary=entry.summary, options=dict(entry.options))
            for name, entry in CATALOG.items()
        ]
        click.echo(documents.text("policies", documents.PoliciesDocument(policies=listed)))
        return
    width = max(map(len, CATALOG))
    for name, entry in CATALOG.items():
        click.echo(f"{name:<{width}}  {entry.summary}")
        for option, values in entry.options.items():
            click.echo(f"{'':<{width}}    {option}={values}")
    click.echo(f"{'file.py:Class':<{width}}  a policy of your own (also package.module:Class)")
