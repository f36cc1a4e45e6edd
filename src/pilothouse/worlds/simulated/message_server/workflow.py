"""The source of the jobs of a workflow: each is submitted when the last of its parents is done.

The source waits for the server to call it back, submits the tasks that are ready now one message after the other, and
says bye when all are done. A task that is never done (refused, killed) keeps its children from being submitted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Raw

from pilothouse.formats.dax import Task, Workflow
from pilothouse.model.job import Job
from pilothouse.model.profile import Delay, Profile
from pilothouse.worlds.simulated.message_server.rounds import Actor, Mailbox, receive, sleep
from pilothouse.worlds.simulated.message_server.sources import hello

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Server

SLACK_S = 10.0
"""A task may take this much longer than its runtime."""


class WorkflowSource:
    """`limit` is the most tasks of this workflow that may be submitted and not done at once; 0: any number."""

    sends_jobs, is_workflow, is_external = True, True, False

    def __init__(self, workflow: Workflow, starts_at: float = 0.0, limit: int = 0) -> None:
        self.workflow = workflow
        self._starts_at = starts_at
        self._limit = limit

    def actor(self, server: Server) -> Actor:
        mailbox = Mailbox()
        yield server.send(hello)
        if self._starts_at > server.agenda.now:
            yield sleep(self._starts_at - server.agenda.now)
        missing = {task.id: task.parents for task in self.workflow.tasks}
        sources = [task for task in self.workflow.tasks if not task.parents]
        ready = deque(sorted(sources, key=lambda task: task.id.encode()))
        submitted: dict[str, Task] = {}
        number = 0
        while ready or submitted:
            while ready and not (self._limit and len(submitted) >= self._limit):
                task = ready.popleft()
                job = self._job(server, task, number)
                number += 1
                submitted[job.id] = task
                yield server.send(server.on_submitted, ([job], mailbox))
            done = submitted.pop((yield receive(mailbox)))
            for child in done.children:
                missing[child.id] -= 1
                if not missing[child.id]:
                    ready.append(child)
        yield server.send(server.on_bye, self)

    def _job(self, server: Server, task: Task, number: int) -> Job:
        """The job of a task; its profile exists from now on."""
        name = self.workflow.name
        profile = Profile(f"{name}!{name}_{task.id}", Delay(task.runtime_s))
        profile.source = Raw(f'{{"type":"delay","delay":{task.runtime_s!r}}}'.encode())
        server.profiles[profile.name] = profile
        walltime = round(task.runtime_s + SLACK_S, 6)
        # QUIRK: Batsim writes the job down and reads it again, so its date has six decimals (tests/golden).
        submitted_at = round(server.agenda.now, 6)
        return Job(f"{name}!{number}", 1, walltime, submitted_at, profile, runtime=task.runtime_s)
