"""The physics of running jobs: a Run is a job on its units; Physics starts, kills and ends runs.

A plain delay is the fast path: one agenda entry, about 1 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import msgspec

from pilothouse.model.decisions import PartPlacement, Placement
from pilothouse.model.errors import RunError
from pilothouse.model.events import Progress
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.worlds.simulated.agenda import Agenda


class Run(msgspec.Struct, eq=False):
    """A job that runs on its units."""

    job: Job
    units: IdSet
    started_at: float
    placement: Placement | None = None
    overrides: dict[str, PartPlacement] = {}
    storage: dict[str, int] = {}
    io_job: Profile | None = None
    end_entry: int = 0
    ends_at: float = inf


Ended = Callable[[Run, JobState, int], None]


class Physics:
    """Runs profiles on hosts; tells `ended(run, state, return_code)` when a job is over by itself."""

    def __init__(self, agenda: Agenda, ended: Ended) -> None:
        self._agenda = agenda
        self._ended = ended

    def start(self, run: Run) -> None:
        job = run.job
        profile = job.profile
        if profile is None:
            raise RunError(f"job {job.id} has no profile to simulate")
        spec = profile.spec
        if type(spec) is not Delay:
            raise RunError(f"job {job.id}: cannot simulate {type(spec).__name__} yet")
        # A delay equal to the walltime is cut: only a shorter one succeeds.
        seconds = spec.seconds if spec.seconds < job.walltime else job.walltime
        run.ends_at = self._agenda.now + seconds
        run.end_entry = self._agenda.at(run.ends_at, self._delay_is_over, run)

    def kill(self, run: Run) -> Progress:
        """Stops the run now; `ended` is not called."""
        self._agenda.cancel(run.end_entry)
        profile = run.job.profile
        assert profile is not None and type(profile.spec) is Delay
        return Progress(profile.name, min(1.0, (self._agenda.now - run.started_at) / profile.spec.seconds))

    def _delay_is_over(self, run: Run) -> None:
        profile = run.job.profile
        assert profile is not None
        if profile.spec.seconds >= run.job.walltime:  # type: ignore[union-attr]
            self._ended(run, JobState.TIMED_OUT, -1)
        elif profile.return_code:
            self._ended(run, JobState.FAILED, profile.return_code)
        else:
            self._ended(run, JobState.SUCCEEDED, 0)
