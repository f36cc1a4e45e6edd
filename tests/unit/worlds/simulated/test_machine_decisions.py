"""The simulated world carries out orders on machines: power states, switches, energy, probes, messages."""

from __future__ import annotations

import msgspec
import pytest

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, HomogeneousTask, Profile, ReceiveMessage, SendMessage, Sequence, Spec
from pilothouse.model.record import JobRecord
from pilothouse.worlds.simulated.world import SimulatedWorld
from unit.worlds.simulated.lab import SWITCHABLE, platform_of

A, B = IdSet.of([0]), IdSet.of([1])


class Play:
    """A world, and a decider that answers what it is told to."""

    def __init__(self, *specs: Spec, parts: dict[str, Spec] | None = None, energy: bool = True) -> None:
        platform = platform_of(SWITCHABLE)
        profiles = {name: Profile(name, spec) for name, spec in (parts or {}).items()}
        begins = e.Begins(platform.nodes(), energy=energy, profiles=profiles)
        jobs = [Job(str(i), 1, profile=Profile(str(i), spec)) for i, spec in enumerate(specs)]
        self.records: dict[str, JobRecord] = {}
        self.world = SimulatedWorld(
            begins, jobs, platform=platform, record=lambda one: self.records.update({one.job.id: one})
        )
        self.world.begin(d.Wants())
        self.now = 0.0
        self.next()

    def next(self) -> list[e.Event]:
        batch = self.world.advance()
        if batch is None:
            return []
        self.now = batch.now
        return list(batch.events)

    def order(self, *orders: d.Decision) -> list[e.Event]:
        self.world.apply(d.Reply(self.now, list(orders)))
        return self.next()

    def until(self, kind: type) -> e.Event:
        """Answers nothing until such a fact is told."""
        for _ in range(20):
            for fact in self.order():
                if type(fact) is kind:
                    return fact
        raise AssertionError(f"no {kind.__name__} was told")


def test_a_slower_machine_and_the_energy_of_a_job() -> None:
    play = Play(HomogeneousTask(1000.0, 0.0))
    play.next()
    (told,) = play.order(d.StartJob(0.0, "0", A), d.SetPowerState(0.0, A, 1))
    assert told == e.PowerStateChanged(0.0, A, 1)
    play.until(e.JobEnded)
    record = play.records["0"]
    assert (record.ended_at, record.state) == (20.0, JobState.SUCCEEDED)
    assert record.energy_j == pytest.approx(20 * 30.0)


def test_switch_and_measure() -> None:
    play = Play(Delay(1.0))
    play.next()
    play.order(d.RejectJob(0.0, "0"), d.SwitchUnits(0.0, A, 2))
    assert play.now == 2.0
    (measured,) = play.order(d.MeasureEnergy(2.0))
    assert measured == e.EnergyMeasured(2.0, pytest.approx(2 * 7.0 + 2 * 10.0))


def test_machines_that_nobody_had_asked_for_know_the_running_jobs() -> None:
    play = Play(Delay(5.0), energy=False)
    play.next()
    play.order(d.StartJob(0.0, "0", A), d.SetPowerState(0.0, B, 0))
    with pytest.raises(RunError, match="jobs are running on machine 0"):
        play.order(d.SwitchUnits(0.0, A, 2))
    assert play.until(e.JobEnded).at == 5.0
    with pytest.raises(RunError, match="energy is not simulated"):
        play.order(d.MeasureEnergy(5.0))


def test_a_probe_tells_until_it_is_stopped() -> None:
    play = Play(Delay(5.0))
    play.next()
    probe = d.CreateProbe(0.0, "p", d.Metric.POWER, units=A, period=2.0)
    (first,) = play.order(d.StartJob(0.0, "0", A), probe)
    assert isinstance(first, e.ProbeData) and (first.at, first.values) == (2.0, (10.0,))
    play.order()
    play.order(d.StopProbe(4.0, "p"))
    assert play.now == 5.0
    assert [type(fact) for fact in play.order()] == [e.Ended]


def test_job_and_decider_talk() -> None:
    parts: dict[str, Spec] = {
        "say": SendMessage(msgspec.Raw(b'"hello"'), 1.0),
        "hear": ReceiveMessage("yes", "short", "long", poll_seconds=1.0),
        "short": Delay(1.0),
        "long": Delay(9.0),
    }
    play = Play(Sequence(("say", "hear")), parts=parts)
    play.next()
    (told,) = play.order(d.StartJob(0.0, "0", A))
    assert isinstance(told, e.JobMessage) and bytes(told.message) == b'"hello"'
    (ended,) = play.order(d.SendToJob(0.0, "0", "yes"))
    assert isinstance(ended, e.JobEnded) and ended.at == 2.0
    with pytest.raises(RunError, match="no receiver"):
        play.order(d.SendToJob(2.0, "0", "yes"))


def test_machines_that_do_not_exist() -> None:
    play = Play(Delay(5.0))
    play.next()
    with pytest.raises(RunError, match="do not all exist"):
        play.order(d.SetPowerState(0.0, IdSet.of([7]), 0))


@pytest.mark.parametrize("units", [IdSet(), IdSet.of([0, 99])])
def test_machines_that_do_not_exist_are_named(units: IdSet) -> None:
    play = Play(Delay(5.0))
    with pytest.raises(RunError, match="do not all exist"):
        play.world.apply(d.Reply(0.0, [d.SetPowerState(0.0, units, 1)]))
