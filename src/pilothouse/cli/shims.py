"""`pilothouse shims`: the drop-ins under the names of the programs that they replace."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("shims")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--disbatch", is_flag=True, help="disBatch and disbatch.")
@click.option("--batsim", is_flag=True, help="batsim, of generation 5.")
@click.option("--batsim4", is_flag=True, help="batsim, of generation 4.")
@click.option("--batsim2", is_flag=True, help="batsim, of generation 2.")
@click.option("--qcg", is_flag=True, help="qcg-pm-service, qcg-pm, and python/ for programs that use LocalManager.")
@click.option("--remove", "removing", is_flag=True, help="Remove what an earlier call wrote into DIR.")
def command(folder: Path, removing: bool, **chosen: bool) -> None:
    """Write commands named as the programs that the drop-ins replace into DIR, besides `pilothouse` itself, and a modulefile.

    Without options: disBatch, batsim (generation 5) and QCG PilotJob. The commands start this installation, from any place. Put
    DIR first in PATH, or use the modulefile.

    \b
    Examples:
      pilothouse shims ~/shims --disbatch && PATH=~/shims:$PATH disBatch -s localhost:4 tasks.txt
      pilothouse shims /opt/pilothouse && module use /opt/pilothouse/modulefiles && module load pilothouse
      pilothouse shims ~/shims --remove
    """
    from pilothouse.launch import shims

    names = [name for name, wanted in chosen.items() if wanted]
    if removing:
        if names:
            raise click.UsageError("--remove removes all commands; it takes no names.")
        for path in shims.remove(folder):
            click.echo(f"removed {path}")
        return
    for path in shims.write(folder, names or ("disbatch", "batsim", "qcg")):
        click.echo(path)
