"""Behind the message server of Batsim 4, registered profiles live as long as jobs need them."""

from __future__ import annotations

from math import inf

import pytest

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.profile import Delay, Profile, Sequence
from pilothouse.worlds.simulated.message_server.generations import BATSIM4
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.message_server.world import MessageServerWorld
from unit.worlds.simulated.lab import platform_of

HOSTS = """
<host id="master" speed="1f"/><host id="a" speed="1f"/><host id="b" speed="1f"/>
<link id="l" bandwidth="1MBps" latency="1ms"/>
<route src="master" dst="master"><link_ctn id="l"/></route>
<route src="master" dst="a"><link_ctn id="l"/></route>
<route src="master" dst="b"><link_ctn id="l"/></route>
"""

PART = Profile("w0!part", Delay(5.0))
WHOLE = Profile("w0!whole", Sequence(("w0!part",)))


class Stage:
    """A world to which jobs are registered, and what it tells."""

    def __init__(self, *, reuse: bool = False) -> None:
        platform = platform_of(HOSTS, generation=4, master_host="master")
        begins = e.Begins(
            platform.nodes(),
            dynamic_registration=True,
            acknowledge_registration=False,
            profile_reuse=reuse,
            workloads={"w0": ""},
        )
        self.server = Server(begins, [], platform, BATSIM4)
        self.world = MessageServerWorld(self.server)
        self.world.begin(d.Wants())
        self.advance()

    def advance(self) -> None:
        batch = self.world.advance()
        assert batch is not None
        self.batch = batch

    def answer(self, *orders: d.Decision) -> None:
        self.world.apply(d.Reply(self.batch.now, list(orders)))
        self.advance()

    def job(self, name: str, profile: Profile, unit: int) -> tuple[d.Decision, d.Decision]:
        now = self.batch.now
        job = Job(f"w0!{name}", 1, inf, now, profile)
        return d.RegisterJob(now, job), d.StartJob(now, job.id, IdSet.span(unit, 1))

    def ended(self) -> list[str]:
        return [fact.job_id for fact in self.batch.events if isinstance(fact, e.JobEnded)]


def test_profiles_are_forgotten_when_no_job_needs_them() -> None:
    stage = Stage()
    registered = [d.RegisterProfile(0.0, PART), d.RegisterProfile(0.0, WHOLE)]
    stage.answer(*registered, *stage.job("1", WHOLE, 0), *stage.job("2", WHOLE, 1))
    assert stage.ended() == ["w0!1"]
    stage.answer()
    assert set(stage.server.profiles) == {"w0!part", "w0!whole"}, "the other job runs"
    assert stage.ended() == ["w0!2"]
    stage.answer(d.CallAt(stage.batch.now, stage.batch.now + 1))
    assert not stage.server.profiles and not stage.server.profile_users and not stage.server.hidden_profiles


@pytest.mark.parametrize("profile", [PART, WHOLE])
def test_a_profile_is_gone_for_new_jobs_when_one_that_had_it_is_over(profile: Profile) -> None:
    """QUIRK of Batsim 4, which goes for the parts of the profile as well."""
    stage = Stage()
    registered = [d.RegisterProfile(0.0, PART), d.RegisterProfile(0.0, WHOLE)]
    stage.answer(*registered, *stage.job("1", WHOLE, 0), *stage.job("2", WHOLE, 1))
    assert stage.ended() == ["w0!1"]
    with pytest.raises(DecisionError, match=r"profile that is gone.*is over, and --enable-profile-reuse was not given"):
        stage.answer(*stage.job("3", profile, 0))


def test_profiles_stay_where_they_may_be_used_again() -> None:
    stage = Stage(reuse=True)
    stage.answer(d.RegisterProfile(0.0, PART), *stage.job("1", PART, 0))
    assert stage.ended() == ["w0!1"]
    stage.answer(*stage.job("2", PART, 0))
    assert stage.ended() == ["w0!2"] and set(stage.server.profiles) == {"w0!part"}
