"""Sources: actors that send jobs or external events to the message server, one source for each file.

A source says hello, sleeps from date to date, sends everything of one date in one message, and says bye. Its clock is the
date of its last waking, not that of its last message: so a message that takes long does not delay the next date by more
than its own length, and what falls due meanwhile is sent together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from pilothouse.model import events as e
from pilothouse.model.job import Job
from pilothouse.worlds.simulated.message_server.meter_readings import read_meters_of
from pilothouse.worlds.simulated.message_server.rounds import Actor, sleep

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Server


def hello(_: object) -> None:
    """A source is there. Only the message itself counts: it takes time."""


class Source(Protocol):
    @property
    def sends_jobs(self) -> bool: ...

    @property
    def is_workflow(self) -> bool: ...

    @property
    def is_external(self) -> bool:
        """Whether it sends external events, the last of which is told."""

    def actor(self, server: Server) -> Actor: ...


class JobSource:
    """The jobs of one workload, by date and, at one date, by full id as text."""

    sends_jobs, is_workflow, is_external = True, False, False

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.jobs = sorted(jobs, key=lambda job: (job.submitted_at, job.id))

    def actor(self, server: Server) -> Actor:
        agenda = server.agenda
        yield server.send(hello)
        asks_hosts = server.rules.hosts_asked_first
        awake_at = agenda.now
        singly = server.rules.submits_singly
        due: list[Job] = []
        for job in self.jobs:
            is_later = job.submitted_at > awake_at
            if due and (is_later or singly):
                yield server.send(server.on_submitted, (due, None))
                due = []
            if is_later:
                yield sleep(job.submitted_at - awake_at)
                awake_at = agenda.now
            if not due and not asks_hosts:
                server.job_due()
            elif asks_hosts and job is self.jobs[0] and not server.submission_noted:
                # QUIRK: each question takes a turn, so at one date the jobs come behind what the decider decides first.
                if server.begins.energy:
                    yield from read_meters_of(server, range(len(server.machines)))
                server.job_due()
            due.append(job)
        if due:
            yield server.send(server.on_submitted, (due, None))
        yield server.send(server.on_bye, self)


class EventSource:
    """External events, or questions about potential jobs, in the order of their dates; their `at` is when they occur."""

    sends_jobs, is_workflow = False, False

    def __init__(self, events: Iterable[e.Event]) -> None:
        self.events = list(events)
        self.is_external = any(type(event) is not e.EstimateAsked for event in self.events)

    def actor(self, server: Server) -> Actor:
        agenda = server.agenda
        yield server.send(hello)
        awake_at = agenda.now
        due: list[e.Event] = []
        for event in self.events:
            if event.at > awake_at:
                if due:
                    yield server.send(server.on_external, due)
                    due = []
                yield sleep(event.at - awake_at)
                awake_at = agenda.now
            due.append(event)
        if due:
            yield server.send(server.on_external, due)
        yield server.send(server.on_bye, self)
