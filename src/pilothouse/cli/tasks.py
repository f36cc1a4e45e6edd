"""`pilothouse tasks`: what became of the tasks of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pilothouse.model.errors import InputError

if TYPE_CHECKING:
    from pilothouse.journal.read import TaskRow


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--failed", is_flag=True, help="Only those that did not succeed.")
@click.option("--waiting", is_flag=True, help="Only those that wait, and what for.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, with everything that is known.")
@click.option("--requests", is_flag=True, help="As a task file with requests for what each task used.")
def command(folder: Path, failed: bool, waiting: bool, as_json: bool, requests: bool) -> None:
    """List the tasks of the run in DIR: those that ended, were cut off (unfinished), or are in hand.

    With --waiting or --json also those that wait, each with what it waits for.

    \b
    Examples:
      pilothouse tasks tasks.txt.run1
      pilothouse tasks tasks.txt.run1 --failed --json | jq -r .command
      pilothouse tasks tasks.txt.run1 --waiting
      pilothouse tasks tasks.txt.run1 --requests > next.txt
    """
    if requests:
        from pilothouse.launch.live_run import show_next_requests

        show_next_requests(folder)
        return
    if failed and waiting:
        raise click.UsageError("--failed and --waiting do not go together")
    from pilothouse.journal.read import never_begun
    from pilothouse.views import documents
    from pilothouse.views.failures import code_text

    if not as_json:
        click.echo(
            f"{'task':>8} {'line':>7} {'state':<10} {'exit':>5} {'try':>3} {'node':<12} {'start':<8} "
            f"{'took':>9} {'CPU':>8} {'memory':>7}  command"
        )
    for row in _rows(folder, failed=failed, waiting=waiting, all_of_them=as_json):
        if as_json:
            click.echo(documents.encode("task", row))
            continue
        began = "" if row.started is None else time.strftime("%H:%M:%S", time.localtime(row.started))
        took = "" if row.ended is None or row.started is None else f"{row.ended - row.started:.3f}"
        cpu = f"{row.cpu_s:.3f}" if row.memory_kb else ""
        memory = f"{row.memory_kb // 1024:,}M" if row.memory_kb else ""
        code = "" if row.exit_code is None else code_text(row.exit_code)
        shown = row.command if row.repeat_index < 0 else f"[{row.repeat_index}] {row.command}"
        why = f"  ({row.reason})" if row.reason else ""
        click.echo(
            f"{row.task:>8} {row.line:>7} {row.state:<10} {code:>5} {row.attempts:>3} {row.node[:12]:<12} {began:<8} "
            f"{took:>9} {cpu:>8} {memory:>7}  {shown}{why}"
        )
    if not as_json and not failed and not waiting and (rest := never_begun(folder)):
        click.echo(f"{rest:,} more {'has' if rest == 1 else 'have'} not been begun (see --waiting)", err=True)


def _rows(folder: Path, *, failed: bool, waiting: bool, all_of_them: bool) -> Iterator[TaskRow]:
    from pilothouse.journal.present import read_waiting
    from pilothouse.journal.read import never_begun, read_tasks

    if waiting:
        yield from read_waiting(folder)
        return
    yield from read_tasks(folder, failed=failed)
    if all_of_them and not failed and never_begun(folder) != 0:
        try:
            yield from read_waiting(folder, tried=False)
        except InputError as problem:  # the task file may be gone long since
            click.echo(f"pilothouse: tasks that wait are left out: {problem}", err=True)
