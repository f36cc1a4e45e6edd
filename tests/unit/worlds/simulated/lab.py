"""A small laboratory for physics: a platform, a clock, and jobs of any profile on it."""

from __future__ import annotations

from math import inf
from typing import Any

from pilothouse.formats.platform_xml import parse_platform
from pilothouse.model.decisions import PartPlacement, Placement
from pilothouse.model.events import Progress
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Profile, Spec
from pilothouse.worlds.simulated.physics.agenda import Agenda
from pilothouse.worlds.simulated.physics.execution import Physics, Run
from pilothouse.worlds.simulated.physics.platform import Platform

TWO_HOSTS = """
<host id="a" speed="100f"/><host id="b" speed="50f"/>
<link id="l" bandwidth="10Bps" latency="1s"/>
<route src="a" dst="b"><link_ctn id="l"/></route>
"""

SWITCHABLE = """
<host id="a" speed="100f,50f,1f,0.5f,0.1f">
  <prop id="wattage_per_state" value="10:20:60, 5:10:30, 1:1:1, 7:7:7, 9:9:9"/>
  <prop id="sleep_pstates" value="2:3:4"/>
</host>
<host id="b" speed="100f"><prop id="wattage_per_state" value="10:60"/></host>
"""

WITH_MASTER = """
<host id="master" speed="1f"><prop id="wattage_per_state" value="10:60"/></host>
""" + SWITCHABLE + """
<link id="l" bandwidth="1MBps" latency="1us"/>
<route src="master" dst="master"><link_ctn id="l"/></route>
<route src="master" dst="a"><link_ctn id="l"/></route>
<route src="master" dst="b"><link_ctn id="l"/></route>
"""


def platform_of(body: str, routing: str = "Full", **options: Any) -> Platform:
    """A platform of one zone with this content."""
    text = f'<platform version="4.1"><zone id="z" routing="{routing}">{body}</zone></platform>'
    return Platform.from_file(parse_platform(text.encode(), "test.xml"), **options)


class Lab:
    """Runs jobs and keeps what became of them."""

    def __init__(self, platform: Platform, **options: Any) -> None:
        self.agenda = Agenda()
        self.profiles: dict[str, Profile] = {}
        self.ended: dict[str, tuple[float, JobState, int]] = {}
        self.physics = Physics(self.agenda, self._ended, platform, profiles=self.profiles, **options)

    def _ended(self, run: Run, state: JobState, code: int) -> None:
        self.ended[run.job.id] = (self.agenda.now, state, code)
        if self.physics.machines is not None:
            self.physics.machines.leave(run.units, run.job.id)

    def profile(self, name: str, spec: Spec, return_code: int = 0) -> Profile:
        found = self.profiles[name] = Profile(name, spec, return_code)
        return found

    def start(
        self,
        name: str,
        spec: Spec,
        units: str = "0-1",
        *,
        at: float = 0.0,
        walltime: float = float("inf"),
        placement: Placement | None = None,
        overrides: dict[str, PartPlacement] | None = None,
        storage: dict[str, int] | None = None,
        return_code: int = 0,
    ) -> Run:
        where = IdSet.parse(units)
        job = Job(name, len(where), walltime, profile=self.profile(name, spec, return_code))
        run = Run(job, where, at, placement, overrides or {}, storage or {})

        def begin(_: object) -> None:
            if self.physics.machines is not None:
                self.physics.machines.join(where, name)
            self.physics.start(run)

        self.agenda.at(at, begin)
        return run

    def kill(self, run: Run, at: float) -> list[Progress]:
        """Kills a run at a date; the progress is in the list when that date has passed."""
        told: list[Progress] = []
        self.agenda.at(at, lambda _: told.append(self.physics.kill(run)))
        return told

    def run(self) -> None:
        """Until nothing is left to happen."""
        while (date := self.agenda.next_date()) < inf:
            self.agenda.run_until(date)

    def end(self, name: str) -> float:
        return self.ended[name][0]
