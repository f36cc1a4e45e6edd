"""The commands of qcg-pm, which ask a running manager: status, list, cancel, finish."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pilothouse.protocols.qcg.client import QcgClient


@click.group()
@click.option("-p", "--path", envvar="QCG_PJM_DIR", metavar="DIR", help="Working directory of the manager.")
@click.option("-a", "--address", envvar="QCG_PJM_ADDRESS", metavar="ADDRESS", help="Its network interface.")
@click.option("-k", "--key", metavar="FILE", help="Its network.key, if it listens beyond loopback.")
@click.option("-d", "--debug", is_flag=True, envvar="QCG_CLIENT_DEBUG", hidden=True, help="Accepted for compatibility.")
@click.pass_context
def client(ctx: click.Context, path: str | None, address: str | None, key: str | None, debug: bool) -> None:
    """Ask a QCG PilotJob Manager."""
    from pilothouse.protocols.qcg.client import QcgClient, read_key

    if address:
        ctx.obj = QcgClient(address, key=read_key(key), timeout_s=10)
    else:
        ctx.obj = QcgClient.of_folder(Path(path or ".").absolute(), timeout_s=10)
    ctx.call_on_close(ctx.obj.close)


@client.command()
@click.pass_obj
def status(manager: QcgClient) -> None:
    """Show the manager's system, resources and job counts."""
    for section, values in manager.ask("status").items():
        click.echo(f"[{section}]")
        if isinstance(values, dict):
            for name, value in values.items():
                click.echo(f"{name}={value}")


@client.command("list")
@click.pass_obj
def list_jobs(manager: QcgClient) -> None:
    """List the jobs and their states."""
    listed = manager.ask("listJobs")
    jobs = listed.get("jobs")
    if jobs is None and listed["length"]:  # the specification's list has no states
        jobs = manager.ask("jobStatus", jobNames=listed["names"])["jobs"]
    for name, job in jobs.items() if isinstance(jobs, dict) else ():
        click.echo(f"{name} {job['data']['status'] if 'data' in job else job['status']}")


@client.command()
@click.argument("names", nargs=-1, required=True)
@click.pass_obj
def cancel(manager: QcgClient, names: tuple[str, ...]) -> None:
    """Cancel jobs or iterations."""
    answer = manager.ask("cancelJob", jobNames=list(names))
    errors = answer.get("errors")
    for name, problem in errors.items() if isinstance(errors, dict) else ():
        click.echo(f"{name}: {problem}", err=True)
    click.echo(f"{answer['canceled']} canceled")


@client.command()
@click.pass_obj
def finish(manager: QcgClient) -> None:
    """End the manager and what it runs."""
    click.echo(f"finishes in {manager.ask('finish')['when']}")
