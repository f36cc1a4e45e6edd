"""The World around a message server: how a Session runs it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.simulated.message_server.jobs import TrackedJob
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.physics.execution import Run


class MessageServerWorld:
    """The World around a Server. Same input, same events, same dates."""

    name = "sim"

    def __init__(self, server: Server) -> None:
        self.server = server
        self._advance = server.rounds.advance
        self._reply: d.Reply | None = None
        self._begun = self._over = False

    def begin(self, wants: d.Wants) -> e.Begins:
        """Agrees with the decider on what the run is like."""
        server, rules = self.server, self.server.rules
        names = ["dynamic_registration", "acknowledge_registration", "profile_reuse", "forward_profiles"]
        if rules.holds_dependents:
            names += ["compute_sharing", "storage_sharing"]
        wishes = {name: wish for name in names if (wish := getattr(wants, name)) is not None}
        begins = server.begins = msgspec.structs.replace(server.begins, **wishes)
        server.registering = begins.dynamic_registration
        if rules.judges_sharing:
            server.constraints = d.Wants(
                exact_count=rules.exact_count,
                compute_sharing=begins.compute_sharing,
                storage_sharing=begins.storage_sharing,
            )
        elif server.strict:
            server.constraints = wants
        return begins

    def advance(self) -> e.Batch | None:
        """The next message to the decider. A run that can go nowhere ends with a batch that names the jobs that wait."""
        if not self._begun:
            self._begun = True
            self._start()
        reply, self._reply = self._reply, None
        batch = self._advance(reply)
        return self._end() if batch is None else batch

    def _start(self) -> None:
        server = self.server
        server.trace()
        for source in server.sources:
            server.rounds.start(source.actor(server))
        server.rounds.start(server.serve())

    def _end(self) -> e.Batch | None:
        server = self.server
        if self._over or server.ended:
            return None
        self._over = True
        now = server.agenda.now
        waiting = (*(name for name, job in server.jobs.items() if job.state is JobState.WAITING), *server.held)
        reason = "registration was never finished" if server.registering else "nothing can happen any more"
        return e.Batch(now, [e.Ended(now, waiting, reason)])

    def apply(self, reply: d.Reply) -> None:
        self._reply = reply

    def watch(self, fd: int) -> None:
        """Simulated time waits for the decider, so there is nothing to watch."""

    def close(self) -> None:
        """Nothing is held open."""


def run_without_decider(server: Server, jobs: Iterable[Job]) -> None:
    """No decider and no messages: every job starts at 0 on the first machines, whatever runs there already."""
    server.trace()
    for job in jobs:
        tracked = server.jobs[job.id] = TrackedJob(job)
        for actor in server.start(tracked, Run(job, IdSet.span(0, job.units), 0.0)):
            server.rounds.start(actor)
    batch = server.rounds.advance(None)
    assert batch is None, "no decider is asked here"
