"""What a workload file becomes: its jobs and profiles, how many units its machine had, and what was odd about it."""

from __future__ import annotations

import msgspec

from pilothouse.model.job import Job
from pilothouse.model.profile import Profile


class Workload(msgspec.Struct):
    name: str
    path: str
    units: int
    """The size of the machine that the file speaks of; 0: it does not say."""
    jobs: list[Job]
    """In order of submission."""
    profiles: dict[str, Profile] = {}
    """Full name -> profile; those that no job needs are left out."""
    oddities: dict[str, int] = {}
    """What was changed or left out, and how often: shown to the user, never silent."""
