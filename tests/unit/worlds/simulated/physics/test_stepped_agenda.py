"""The clock that steps as SimGrid's does: alarms beside actions."""

from __future__ import annotations

from math import inf

import pytest

from pilothouse.worlds.simulated.physics.agenda import SteppedAgenda


def run(agenda: SteppedAgenda) -> list[list[str]]:
    """What ends in each step."""
    seen: list[list[str]] = []
    while agenda.next_date() < inf:
        seen.append([entry[3] for entry in agenda.step()])
    return seen


def nothing(_: object) -> None:
    """A callback."""


def test_an_alarm_comes_before_what_ends_in_its_step() -> None:
    agenda = SteppedAgenda()
    agenda.after(1.0, nothing, "timer")
    agenda.alarm(1.0, nothing, "alarm")
    agenda.after(0.25, nothing, "early")
    assert run(agenda) == [["early"], ["alarm", "timer"]]
    assert agenda.now == 1.0


def test_an_alarm_waits_for_its_date_and_a_timer_does_not() -> None:
    agenda = SteppedAgenda()
    agenda.after(1.0, nothing, "timer")
    agenda.after(1.0 + 5e-10, nothing, "timer a little later")  # less than a nanosecond: over in the same step
    agenda.alarm(1.0 + 5e-10, nothing, "alarm")
    assert run(agenda) == [["timer", "timer a little later"], ["alarm"]]
    assert agenda.now == 1.0 + 5e-10


def test_no_step_leads_past_an_alarm() -> None:
    agenda = SteppedAgenda()
    agenda.transfer(1e-5, 1e9, nothing, "message")
    agenda.alarm(1e-5 + 5e-10, nothing, "alarm")  # while the byte is under way
    assert not agenda.passes(1e-5, 1e9)
    assert run(agenda) == [["alarm"], ["message"]]
    assert agenda.now == pytest.approx(1e-5 + 1e-9, rel=1e-12)


def test_cancelled_alarms_and_work_beside_alarms() -> None:
    agenda = SteppedAgenda()
    taken_back = agenda.alarm(0.5, nothing, "taken back")
    agenda.alarm(3.0, nothing, "last")
    agenda.work(1.0, 0.5, nothing, "work")
    agenda.cancel(taken_back)
    assert agenda.next_date() == 2.0
    assert run(agenda) == [["work"], ["last"]]
    assert agenda.passes(1e-5, 1e9)
