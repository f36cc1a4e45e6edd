"""The content of a workload file: jobs, profiles, the size of the machine, and what was changed or left out."""

from __future__ import annotations

import msgspec

from pilothouse.model.job import Job
from pilothouse.model.profile import Profile


class Workload(msgspec.Struct):
    name: str
    path: str
    units: int
    """The size of the machine; 0 if the file does not say."""
    jobs: list[Job]
    """In order of submission."""
    profiles: dict[str, Profile] = {}
    """Full name -> profile. Profiles that no job needs are left out."""
    oddities: dict[str, int] = {}
    """What was changed or left out -> how often. It is shown to the user."""
