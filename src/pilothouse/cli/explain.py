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
    from pathlib import Path

    import msgspec

    from pilothouse.formats import jobs_csv
    from pilothouse.formats.text_input import JSON_PROBLEMS, json_error, read_bytes
    from pilothouse.model.errors import InputError
    from pilothouse.views.story import story

    rows = list(jobs_csv.read(prefix + "jobs.csv"))
    total = max((last + 1 for row in rows for _, last in row.allocated.intervals()), default=0)
    decider = ""
    if Path(prefix + "run.json").exists():
        data = read_bytes(prefix + "run.json")
        try:
            facts = msgspec.json.decode(data, type=dict[str, object])
        except JSON_PROBLEMS as problem:
            raise json_error(prefix + "run.json", data, problem) from None
        units = facts.get("units")
        total = units if isinstance(units, int) else total
        decider = str(facts.get("decider", ""))
    found = story(rows, job, total)
    if found is None:
        raise InputError(prefix + "jobs.csv", f"there is no job {job!r} in it")
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        click.echo(found.sentence + (f" (policy {decider})" if decider else ""))
