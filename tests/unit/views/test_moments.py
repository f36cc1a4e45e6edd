"""Stepping through a schedule: every moment agrees with the records, and the screen fits."""

from __future__ import annotations

import pytest

import components
from pilothouse.core.session import Session
from pilothouse.launch import naming
from pilothouse.launch.simulation import load
from pilothouse.views.metrics import Collector
from pilothouse.views.moments import Moments
from pilothouse.views.schedule import Schedule
from pilothouse.views.step_screen import StepScreen, moment_lines


def simulated(workload: str, platform: str) -> Moments:
    setup = load(platform, [str(components.ROOT / "examples" / workload)])
    schedule = Schedule(name="easy", path="", live=False, policy="easy", units=setup.begins.units)
    collector = Collector(10.0, schedule.take)
    Session(setup.world(collector.add), naming.decider("easy"), name="easy").run()
    collector.flush()
    return Moments(schedule)


@pytest.fixture(scope="module")
def tiny() -> Moments:
    return simulated("tiny.json", "4")


@pytest.fixture(scope="module")
def trace() -> Moments:
    return simulated("kth-sp2-5000.swf.gz", "100")


def test_moments_agree_with_the_timelines(trace: Moments) -> None:
    busy, waiting = trace.schedule.busy(), trace.schedule.waiting()
    for index in range(0, len(trace), 97):
        moment = trace[index]
        assert moment.units - moment.free == busy.at(moment.date)
        assert len(moment.waiting) == waiting.at(moment.date)
        assert sum(job.units for job in moment.running) == busy.at(moment.date)


def test_every_start_is_decided_once(tiny: Moments) -> None:
    decided = [(moment.date, job.job) for moment in tiny for job in moment.decided]
    schedule = tiny.schedule
    assert sorted(decided) == sorted(zip(schedule.started, schedule.ids, strict=True))
    assert [job.why for moment in tiny for job in moment.decided if job.job == "w0!3"] == ["backfilled past 2"]
    assert {job for moment in tiny for job in moment.ended} == set(schedule.ids)


def test_keys_go_forwards_and_backwards(tiny: Moments) -> None:
    screen = StepScreen(tiny)
    for _ in range(3):
        screen.press("right")
    assert screen.index == 3
    screen.press("left")
    assert screen.index == 2
    assert screen.press("end") and screen.index == len(tiny) - 1
    assert screen.press("right") and screen.index == len(tiny) - 1
    screen.press("home")
    screen.press("n")
    assert tiny[screen.index].decided
    for key in ("j", "5", "enter"):
        screen.press(key)
    assert [job.job for job in tiny[screen.index].decided] == ["w0!5"]
    for key in ("t", "1", "0", "6", "enter"):
        screen.press(key)
    assert tiny[screen.index].date == 105
    for key in ("j", "x", "enter"):
        screen.press(key)
    assert screen.message == "there is no job 'x'"
    assert not screen.press("q")


def test_every_moment_fits_on_80_by_24(trace: Moments) -> None:
    screen = StepScreen(trace)
    most = max(range(0, len(trace), 31), key=lambda index: len(trace[index].waiting))
    for index in (0, most, len(trace) - 1):
        screen.index = index
        for scroll in (0, 5, 1000):
            screen.scroll = scroll
            lines = screen.lines(80, 24)
            assert len(lines) == 24
            assert all(len(line) <= 80 for line in lines)
    assert len(trace[most].waiting) > 24
    assert len([line for line in moment_lines(trace[most], "easy", 80) if "needs" in line or "held back" in line]) > 24
