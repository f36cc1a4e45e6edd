"""`pilothouse explain` for a task of a live run: what it waits for, where it runs, how it ended."""

from __future__ import annotations

import time

import msgspec

from pilothouse.journal.read import TaskRow
from pilothouse.journal.waiting import HeldTask, WaitingTask
from pilothouse.views.clock import clock
from pilothouse.views.failures import why


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a task that has ended."""

    attempt: int
    state: str
    how: str
    """`exit code 3`, `ended by SEGV`, or the reason that is known."""
    node: str
    slots: str
    started: float | None
    ended: float | None
    last_line: str
    """The last line that it wrote to standard error, if it did not succeed."""

    @property
    def took_s(self) -> float:
        return max(0.0, (self.ended or 0.0) - (self.started or self.ended or 0.0))

    def text(self) -> str:
        where = f" on {self.node}" if self.node else ""
        said = f"; its last line on stderr: {self.last_line}" if self.last_line else ""
        how = "" if self.state == "succeeded" else f" ({self.how})"
        at = f" at {_date(self.ended)}" if self.ended is not None else ""
        return f"{self.state}{how}{where} after {self.took_s:.3f} s{at}{said}"


class TaskStory(msgspec.Struct, frozen=True, kw_only=True):
    """`pilothouse explain --json` for a task of a live run. Dates are seconds since 1970; null: not known (yet)."""

    task: int
    line: int
    """Of the task file; 0: it was submitted as a job."""
    name: str
    command: str
    state: str
    """`waiting`, `running`, or how it ended."""
    waits_for: str = ""
    """One of cores, memory, gpus, node, engine, barrier, dependency, slot, policy, driver."""
    reason: str = ""
    """The same in words, as `tasks` and `watch` have it."""
    since: float | None = None
    """When it began to wait for a decision, or to run."""
    ahead: int = 0
    """Tasks before it that wait as well."""
    expected_start: float | None = None
    expected_low: float | None = None
    """It starts between this date and the next in nine of ten simulations."""
    expected_high: float | None = None
    expected_why: str = ""
    """What this rests on, or why none can be told."""
    node: str = ""
    slots: str = ""
    """Of its engine, counted from 0."""
    attempts: list[Attempt] = []
    """Those that have ended; the last one is the result of a task that has one."""

    def text(self, now: float) -> str:
        """A sentence, and a line for every earlier attempt."""
        title = f"task {self.task}" + (f" ({self.name})" if self.name else "") + (f", line {self.line}," if self.line else "")
        earlier = self.attempts
        for_s = f"since {_date(self.since)} ({clock(max(0.0, now - self.since))})" if self.since is not None else ""
        if self.state == "waiting":
            text = f"{title} waits for {self.reason}; it waits {for_s}"
            if self.ahead:
                others = "1 task before it waits" if self.ahead == 1 else f"{self.ahead:,} tasks before it wait"
                text += f", and {others} as well"
            text += f"\nexpected start: {self._expected(now)}"
        elif self.state == "running":
            text = f"{title} runs on {self.node} (slot {self.slots}) {for_s}"
        else:
            text = f"{title} {self.attempts[-1].text()}"
            earlier = self.attempts[:-1]
        tried = f"; attempt {len(self.attempts)}" if earlier and len(earlier) != len(self.attempts) else ""
        return "\n".join([text + tried, *(f"attempt {one.attempt}: {one.text()}" for one in earlier)])

    def _expected(self, now: float) -> str:
        if self.expected_start is None:
            return f"cannot be told: {self.expected_why}"
        low, median, high = (
            clock(max(0.0, (date or 0.0) - now)) for date in (self.expected_low, self.expected_start, self.expected_high)
        )
        spread = f"; nine in ten: {low} to {high}" if low != high else ""
        return f"{_date(self.expected_start)} (in {median}{spread}), {self.expected_why}"


def attempts_of(rows: list[TaskRow]) -> list[Attempt]:
    return [
        Attempt(
            attempt=row.attempts, state=row.state, how=why(row.exit_code or 0, row.reason), node=row.node, slots=row.slots,
            started=row.started, ended=row.ended, last_line=row.last_line,
        )
        for row in rows
    ]  # fmt: skip


def ended_story(rows: list[TaskRow]) -> TaskStory:
    last = rows[-1]
    return TaskStory(
        task=last.task, line=last.line, name=last.name, command=last.command, state=last.state, node=last.node, slots=last.slots,
        since=last.started, attempts=attempts_of(rows),
    )  # fmt: skip


def held_story(task: HeldTask, rows: list[TaskRow]) -> TaskStory:
    """A task that an engine has: it runs, or waits behind others of its bundle."""
    wait = task.wait
    return TaskStory(
        task=task.task_id, line=task.line, name=task.name, command=task.command, state="running" if wait is None else "waiting",
        waits_for=wait.what if wait is not None else "", reason=wait.text if wait is not None else "", since=task.since,
        ahead=task.before, node=task.node, slots=task.slots, attempts=attempts_of(rows),
        expected_why="" if wait is None else f"when those before it have ended, on {task.node}",
    )  # fmt: skip


class ExpectedStart(msgspec.Struct, frozen=True):
    """Dates; None: none can be told."""

    at: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""
    """What they rest on, or why none can be told."""


def waiting_story(task: WaitingTask, rows: list[TaskRow], expected: ExpectedStart) -> TaskStory:
    line, command = task.line, task.job.command
    request = line.request if line is not None else None
    shown = line.command if line is not None else command.line or " ".join(command.argv) if command is not None else ""
    return TaskStory(
        task=task.task_id, line=line.line_number if line is not None else 0,
        name=request.name if request is not None else "" if line is not None else task.job.id, command=shown, state="waiting",
        waits_for=task.wait.what, reason=task.wait.text, since=task.since, ahead=task.ahead, expected_start=expected.at,
        expected_low=expected.low, expected_high=expected.high, expected_why=expected.why, attempts=attempts_of(rows),
    )  # fmt: skip


def _date(at: float | None) -> str:
    if at is None:
        return "an unknown date"
    far = abs(time.time() - at) > 12 * 3600
    return time.strftime("%Y-%m-%d %H:%M:%S" if far else "%H:%M:%S", time.localtime(at))
