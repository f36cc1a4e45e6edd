"""Who tells the message server of jobs and of external events: one source for each file.

A source says hello, sleeps from date to date, tells everything of one date in one message, and says bye. Its clock is
the date of its last waking, not that of its last message: so a message that takes long does not delay the next date by
more than its own length, and what falls due meanwhile is told together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pilothouse.model import events as e
from pilothouse.model.job import Job
from pilothouse.worlds.simulated.message_server.rounds import Actor, sleep

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Server


class JobSource:
    """The jobs of one workload, by date and, at one date, by full id as text."""

    tells_jobs = True

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.jobs = sorted(jobs, key=lambda job: (job.submitted_at, job.id))

    def actor(self, server: Server) -> Actor:
        agenda = server.agenda
        yield server.send(server.on_hello)
        awake_at = agenda.now
        due: list[Job] = []
        for job in self.jobs:
            if job.submitted_at > awake_at:
                if due:
                    yield server.send(server.on_submitted, (due, None))
                    due = []
                yield sleep(job.submitted_at - awake_at)
                awake_at = agenda.now
            if not due:
                server.watcher.job_due(server)
            due.append(job)
        if due:
            yield server.send(server.on_submitted, (due, None))
        yield server.send(server.on_bye, self)


class EventSource:
    """External events in the order of their dates; their `at` is when they occur."""

    tells_jobs = False

    def __init__(self, facts: Iterable[e.Event]) -> None:
        self.facts = list(facts)

    def actor(self, server: Server) -> Actor:
        agenda = server.agenda
        yield server.send(server.on_hello)
        awake_at = agenda.now
        due: list[e.Event] = []
        for fact in self.facts:
            if fact.at > awake_at:
                if due:
                    yield server.send(server.on_external, due)
                    due = []
                yield sleep(fact.at - awake_at)
                awake_at = agenda.now
            due.append(fact)
        if due:
            yield server.send(server.on_external, due)
        yield server.send(server.on_bye, self)
