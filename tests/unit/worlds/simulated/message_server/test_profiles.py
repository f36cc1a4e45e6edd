"""Profiles and jobs that the decider registers: what is taken, what is refused, and how long profiles live."""

from __future__ import annotations

from math import inf

import pytest

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.profile import Delay, ForkJoin, HomogeneousTask, Merge, ParallelTask, Profile, Sequence
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.message_server.generations import BATSIM4, BATSIM5, OURS
from pilothouse.worlds.simulated.message_server.rules import Rules
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

    def __init__(self, rules: Rules = BATSIM4, *, reuse: bool = False) -> None:
        options = {"generation": 4} if rules is BATSIM4 else {"needs_master": True}
        platform = platform_of(HOSTS, master_host="master", **options)
        begins = e.Begins(
            platform.nodes(),
            dynamic_registration=True,
            acknowledge_registration=False,
            profile_reuse=reuse,
            workloads={"w0": ""},
        )
        self.records: list[JobRecord] = []
        self.server = Server(begins, [], platform, rules, record=self.records.append)
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


GENERATIONS = pytest.mark.parametrize("rules", [BATSIM4, BATSIM5, OURS], ids=["4", "5", "ours"])


def until_ended(stage: Stage) -> None:
    for _ in range(10):
        if stage.ended():
            return
        stage.answer()
    raise AssertionError("no job has ended")


def profile(name: str, seconds: float = 5.0) -> d.RegisterProfile:
    return d.RegisterProfile(0.0, Profile(name, Delay(seconds)))


@GENERATIONS
def test_a_profile_may_be_made_of_profiles_that_exist(rules: Rules) -> None:
    stage = Stage(rules)
    stage.answer(d.RegisterProfile(0.0, PART), d.RegisterProfile(0.0, WHOLE), *stage.job("1", WHOLE, 0))
    until_ended(stage)
    assert [(record.job.id, record.ended_at) for record in stage.records] == [("w0!1", pytest.approx(5.0, abs=0.1))]
    with pytest.raises(DecisionError) as refused:
        stage.answer(d.RegisterProfile(0.0, Profile("w0!other", Sequence(("w0!nothing",)))))
    assert refused.value.rule == "unknown profile" and "w0!nothing" in refused.value.detail


def test_batsim_5_lets_a_profile_that_is_gone_be_registered_again_and_nothing_be_made_of_it() -> None:
    stage = Stage(BATSIM5)
    stage.answer(d.RegisterProfile(0.0, PART), *stage.job("1", PART, 0))
    until_ended(stage)
    stage.answer(d.RegisterProfile(0.0, PART), *stage.job("2", PART, 0))
    until_ended(stage)
    assert [record.job.id for record in stage.records] == ["w0!1", "w0!2"]
    with pytest.raises(DecisionError) as refused:
        stage.answer(d.RegisterProfile(0.0, WHOLE))
    assert refused.value.rule == "unknown profile"


@GENERATIONS
def test_a_name_stands_for_one_profile(rules: Rules) -> None:
    stage = Stage(rules, reuse=True)
    stage.answer(profile("w0!p"), d.CallAt(0.0, 1.0, "c"))
    if rules is not BATSIM5:  # the same content may be said twice
        stage.answer(profile("w0!p"), d.CallAt(0.0, 2.0, "c"))
    with pytest.raises(DecisionError) as refused:
        stage.answer(profile("w0!p", 5.0 if rules is BATSIM5 else 6.0))
    assert refused.value.rule == "duplicate profile"


@pytest.mark.parametrize("spec", [ForkJoin(("w0!c",)), Merge(("w0!c",))])
def test_compositions_that_batsim_5_does_not_have(spec: ForkJoin | Merge) -> None:
    part = d.RegisterProfile(0.0, Profile("w0!c", HomogeneousTask(1.0, 0.0)))
    for rules in (BATSIM4, OURS):
        Stage(rules).answer(part, d.RegisterProfile(0.0, Profile("w0!whole", spec)), d.CallAt(0.0, 1.0, "c"))
    with pytest.raises(DecisionError) as refused:
        Stage(BATSIM5).answer(part, d.RegisterProfile(0.0, Profile("w0!whole", spec)))
    assert refused.value.rule == "profile"


@pytest.mark.parametrize(
    ("job_id", "refused_by"),
    [("w0!1", ""), ("new!1", "4"), ("w0!a!b", "5"), ("alone", "4 5")],
)
@GENERATIONS
def test_names_of_registered_jobs(rules: Rules, job_id: str, refused_by: str) -> None:
    stage = Stage(rules)
    wanted = (d.RegisterProfile(0.0, PART), d.RegisterJob(0.0, Job(job_id, 1, inf, 0.0, PART)))
    if ("4" in refused_by and rules is BATSIM4) or ("5" in refused_by and rules is BATSIM5):
        with pytest.raises(DecisionError):
            stage.answer(*wanted)
    else:
        stage.answer(*wanted, d.StartJob(0.0, job_id, IdSet.span(0, 1)))
        until_ended(stage)
        assert [record.job.id for record in stage.records] == [job_id]


@GENERATIONS
def test_a_job_is_as_large_as_its_parallel_task(rules: Rules) -> None:
    for spec in (ParallelTask((1.0, 1.0), ()), ParallelTask((), (0.0, 1.0, 1.0, 0.0))):
        two = Profile("w0!two", spec)
        for units in (1, 2, 3):
            wanted = (
                d.RegisterProfile(0.0, two),
                d.RegisterJob(0.0, Job("w0!1", units, inf, 0.0, two)),
                d.CallAt(0.0, 1.0, "c"),
            )
            if units == 2:
                Stage(rules).answer(*wanted)
                continue
            with pytest.raises(DecisionError) as refused:
                Stage(rules).answer(*wanted)
            assert refused.value.rule == "wrong number of resources"


@GENERATIONS
def test_a_job_is_registered_once_and_with_a_profile_that_exists(rules: Rules) -> None:
    stage = Stage(rules)
    register, _ = stage.job("1", PART, 0)
    with pytest.raises(DecisionError) as refused:
        stage.answer(register)
    assert refused.value.rule == "unknown profile"
    stage = Stage(rules)
    with pytest.raises(DecisionError) as refused:
        stage.answer(d.RegisterProfile(0.0, PART), register, register)
    assert refused.value.rule == "duplicate job"
