"""A job as the message server keeps it, from its submission until the decider has heard of its end."""

from __future__ import annotations

import msgspec

from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState, Stimulus, launched, step
from pilothouse.worlds.simulated.message_server.rounds import Mailbox
from pilothouse.worlds.simulated.physics.execution import Run


class TrackedJob(msgspec.Struct, eq=False):
    job: Job
    state: JobState = JobState.WAITING
    run: Run | None = None
    ended_at: float = 0.0
    return_code: int = -1
    kill_asked: bool = False
    metadata: str = ""
    energy_j: float | None = None
    origin: Mailbox | None = None
    """Who is told of its end before the decider is (workflows)."""
    messages: list[str] = []
    """What the decider has sent to the job before it ran."""

    def step(self, stimulus: Stimulus) -> None:
        """The only way to another state."""
        self.state = step(self.state, stimulus)

    def launch(self, run: Run | None) -> None:
        """The job runs. None: where the server does not see it."""
        self.run = run
        self.state = launched(self.state)
