"""`pilothouse edc-library`: a policy as a shared library that Batsim 5 can load (extra [edc])."""

from __future__ import annotations

import click


@click.command()
@click.argument("policy")
@click.option("-o", "--output", required=True, metavar="FILE", help="The library to write, e.g. libmine.so.")
@click.option("--json", "as_json", is_flag=True, help="Speak JSON instead of FlatBuffers (to read along).")
def command(policy: str, output: str, as_json: bool) -> None:
    """Build POLICY into a library that the real Batsim 5 (or ours) loads as its decision component.

    The library runs this Python, with this installation of pilothouse: it works on this machine, as long as both stay
    where they are. A C compiler and cffi (pip install pilothouse[edc]) are needed to build it. A non-empty init string
    given to Batsim names another policy than the one that was built in.

    \b
    Examples:
      pilothouse edc-library easy -o libeasy.so
      pilothouse edc-library mine.py:ShortestFirst -o libmine.so
      batsim -p platform.xml -w workload.json -l ./libmine.so ''
    """
    from pilothouse.launch import naming
    from pilothouse.launch.edc_build import build

    naming.policy(policy)  # refuses a wrong name now, not inside Batsim
    build(policy, output, as_json=as_json)
    click.echo(f"{output}: {policy} as a decision component; batsim -l {output} '' -p ... -w ...")
