"""What `pilothouse run` says: a line that is rewritten while it goes on, and a summary with failed tasks at the end."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import click

from pilothouse.core.session import Outcome
from pilothouse.model.lifecycle import JobState
from pilothouse.views.failures import Failures
from pilothouse.views.time_left import TimeLeft
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.world import LiveWorld

SHOWN_FAILURES = 10
MOST_TEXT = 240
_BAD = (JobState.FAILED, JobState.TIMED_OUT, JobState.KILLED, JobState.LOST, JobState.REFUSED, JobState.OMITTED)


class RunProgress:
    """Counts come from the driver; this only remembers the first failures and the rate."""

    def __init__(self, world: LiveWorld, total: int | None, *, quiet: bool, folder: Path) -> None:
        self._world = world
        self._total = total
        self._quiet = quiet
        self._folder = folder
        self._line = not quiet and sys.stderr.isatty()
        self._left = TimeLeft(folder) if self._line else None
        self._began = time.monotonic()
        self._already = self._ended()
        self._failed_before = self._failed()
        self._failures = Failures()
        self._cut_outputs = 0
        self._host = os.uname().nodename
        world.on_task.append(self._task)

    def _task(self, end: r.TaskEnded) -> None:
        self._cut_outputs += end.final and end.left_out > 0
        if end.state is not JobState.SUCCEEDED and end.final:
            elsewhere = end.node if end.node != self._host else ""
            self._failures.add(
                end.task_id, end.line_number, end.return_code, end.reason, elsewhere, end.ended_at - end.started_at, end.command,
                end.last_line,
            )  # fmt: skip

    def _failed(self) -> int:
        return sum(self._world.counts[state] for state in _BAD)

    def _ended(self) -> int:
        return sum(self._world.counts.values())

    def show(self) -> None:
        """Rewrites the line."""
        if not self._line:
            return
        world = self._world
        ended = self._ended()
        failed = self._failed()
        rate = (ended - self._already) / max(1e-6, time.monotonic() - self._began)
        text = f"{ended:,}"
        if self._total is not None:
            text += f" of {self._total:,}"
        text += f" done, {world.running:,} in hand, {failed:,} failed, {rate:,.1f}/s"
        if self._total is not None and ended < self._total:
            left = None if self._left is None else self._left.now(self._total - ended)
            if left is not None:
                text += f", {_duration(left.seconds)} left ({_duration(left.low)} to {_duration(left.high)})"
            elif rate > 0:
                text += f", {_duration((self._total - ended) / rate)} left"
        slots = world.slots
        text += f", {slots} slot{'s' if slots != 1 else ''}"
        # A line that is wider than the terminal would not be rewritten but repeated.
        text = text[: max(1, shutil.get_terminal_size().columns - 1)]
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)

    def finish(self, outcome: Outcome) -> int:
        """The summary; the exit code of the command."""
        if self._left is not None:
            self._left.close()
            click.echo("\r\x1b[K", nl=False, err=True)
        world = self._world
        failed = self._failed()
        not_run = 0 if self._total is None else max(0, self._total - self._ended())
        good = not failed and not not_run and not world.stopped_because and not outcome.deadlocked
        if not self._quiet:
            self._summary(failed, not_run)
        return 0 if good else 1

    def _summary(self, failed: int, not_run: int) -> None:
        world = self._world
        parts = [f"{world.counts[JobState.SUCCEEDED]:,} succeeded"]
        parts += [f"{world.counts[state]:,} {state.value}" for state in _BAD if world.counts[state]]
        if not_run:
            parts.append(f"{not_run:,} not run")
        took = _duration(time.monotonic() - self._began)
        click.echo(f"{', '.join(parts)} in {took}  ({self._folder})", err=True)
        groups = self._failures.groups()
        for group in groups[:SHOWN_FAILURES]:
            click.echo(f"  {group.text()[:MOST_TEXT]}", err=True)
        more = failed - self._failed_before - sum(group.count for group in groups[:SHOWN_FAILURES])
        if more > 0:
            click.echo(f"  ... and {more:,} more: pilothouse tasks {self._folder} --failed", err=True)
        if groups:
            click.echo(f"what task {groups[0].task} wrote: pilothouse output {self._folder} {groups[0].task} --both", err=True)
        if self._failed_before:
            what = f"{self._failed_before:,} did not succeed before and {'was' if self._failed_before == 1 else 'were'} left"
            click.echo(f"{what} alone: pilothouse run --resume {self._folder} --retry-failed", err=True)
        if self._cut_outputs:
            what = f"output of {self._cut_outputs:,} task{'s' * (self._cut_outputs != 1)}"
            click.echo(f"the {what} was not kept whole (--output-limit, or a full disk)", err=True)
        never = world.never_started
        if never:
            shown = ", ".join(never[:SHOWN_FAILURES]) + (", ..." if len(never) > SHOWN_FAILURES else "")
            click.echo(f"never started: task{'s' if len(never) != 1 else ''} {shown}", err=True)
        if world.stopped_because:
            again = f"; go on with: pilothouse run --resume {self._folder}" if not_run else ""
            click.echo(f"stopped: {world.stopped_because}{again}", err=True)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
