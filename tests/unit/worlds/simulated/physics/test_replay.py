"""Replays of traces: MPI programs as SMPI times them, usage of processors, and traces that make no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pilothouse.model.decisions import Placement, Strategy
from pilothouse.model.errors import InputError
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import TraceKind, TraceReplay
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.physics.replay_smpi import MpiReplay
from unit.worlds.simulated.lab import Lab, platform_of

FIXTURES = Path(__file__).parents[4] / "golden/physics"
CASES = json.loads((FIXTURES / "smpi.json").read_text())
HOST = '<host id="a" speed="100f" core="10"/><host id="b" speed="100f"/>'
LINK = '<link id="l" bandwidth="1MBps" latency="0s"/><route src="a" dst="b"><link_ctn id="l"/></route>'


def write(folder: Path, programs: list[list[str]]) -> TraceReplay:
    for rank, actions in enumerate(programs):
        (folder / f"{rank}.txt").write_text("".join(f"{rank} {action}\n" for action in actions))
    (folder / "list.txt").write_text("".join(f"{rank}.txt\n" for rank in range(len(programs))))
    return TraceReplay(TraceKind.SMPI, str(folder / "list.txt"))


class Watched(MpiReplay):
    """Notes when ranks end, and lets none report: the oracle has no reports."""

    __slots__ = ("ends",)

    def rank_is_over(self, rank: int) -> None:
        self.ends[rank] = self.physics.agenda.now


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['name']}-{len(case['programs'])}")
def test_ranks_end_when_smpi_says(case: dict[str, Any], tmp_path: Path) -> None:
    """Recorded from SMPI 3.32: programs of computation, messages and collectives on small_platform."""
    spec = write(tmp_path, [["init", *actions, "finalize"] for actions in case["programs"]])
    lab = Lab(Platform.load(FIXTURES / "inputs/v4/platforms/small_platform.xml", generation=4))
    ranks = len(case["programs"])
    run = lab.start("never started", spec, f"0-{min(ranks, 4) - 1}", at=1e300)
    replay = Watched(lab.physics, run, lab.profiles["never started"], spec)
    replay.ends = {}
    replay.begin(float("inf"), lambda code, left: None)
    while (date := lab.agenda.next_date()) < 1e299:
        lab.agenda.run_until(date)
    assert [replay.ends[rank] for rank in range(ranks)] == [pytest.approx(end, abs=2e-9) for end in case["ends"]]


def test_reports_come_one_after_the_other(tmp_path: Path) -> None:
    lab = Lab(platform_of(HOST + LINK))
    lab.start("j", write(tmp_path, [["compute 100"], ["compute 100"]]))
    lab.run()
    assert lab.end("j") == pytest.approx(1 + 4 / 10e9 + 4 / 1e6)


def test_ranks_are_placed_and_report_to_the_first_host(tmp_path: Path) -> None:
    lab = Lab(platform_of(HOST + LINK))
    spec = write(tmp_path, [["compute 100"], ["compute 100"], ["compute 100"]])
    lab.start("spread", spec, placement=Placement(Strategy.SPREAD))
    lab.run()
    # Ranks 0 and 2 on a, which has cores for both; rank 1 on b; two reports over the loopback, one over the link.
    assert lab.end("spread") == pytest.approx(1 + 2 * 4 / 10e9 + 4 / 1e6)
    lab.start("fill", spec, at=10.0, placement=Placement(Strategy.FILL))
    lab.run()
    assert lab.end("fill") == pytest.approx(11 + 3 * 4 / 10e9), "all on the ten cores of a"
    lab.start("elsewhere", spec, at=20.0, placement=Placement(mapping=(1, 1, 1)))
    lab.run()
    assert lab.end("elsewhere") == pytest.approx(23 + 3 * 4 / 1e6)


def test_walltime_and_kill(tmp_path: Path) -> None:
    lab = Lab(platform_of(HOST + LINK))
    spec = write(tmp_path, [["compute 1000", "compute 1000"], ["recv 0 0 5"]])
    lab.start("late", spec, walltime=3.0)
    run = lab.start("killed", spec, at=10.0)
    told = lab.kill(run, 25.0)
    lab.start("after", spec, at=30.0, walltime=1.0)
    lab.run()
    assert lab.ended["late"] == (3.0, JobState.TIMED_OUT, -1)
    assert "killed" not in lab.ended and told[0].done == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ([["dance 3"]], r"0\.txt:1: unknown action 'dance'"),
        ([["compute"]], r"0\.txt:1: bad arguments of 'compute'"),
        ([["compute -5"]], r"0\.txt:1: bad arguments of 'compute': -5 is not an amount"),
        ([["compute nan"]], r"0\.txt:1: bad arguments of 'compute'"),
        ([["send 7 0 1"]], r"0\.txt:1: bad arguments of 'send': there is no rank 7"),
        ([["bcast 1 0 999"]], r"0\.txt:1: bad arguments of 'bcast': unknown datatype 999"),
    ],
)
def test_bad_mpi_traces(programs: list[list[str]], message: str, tmp_path: Path) -> None:
    lab = Lab(platform_of(HOST))
    lab.start("j", write(tmp_path, programs), "0")
    with pytest.raises(InputError, match=message):
        lab.run()


def usage(folder: Path, *traces: str) -> TraceReplay:
    for rank, text in enumerate(traces):
        (folder / f"{rank}.txt").write_text(text)
    (folder / "list.txt").write_text("".join(f"{rank}.txt\n" for rank in range(len(traces))))
    return TraceReplay(TraceKind.USAGE, str(folder / "list.txt"))


def test_usage_takes_a_share_of_the_cores(tmp_path: Path) -> None:
    body = HOST.replace('core="10"/>', 'core="10"><prop id="wattage_per_state" value="10:20:120"/></host>')
    lab = Lab(
        platform_of(body.replace('speed="100f"/>', 'speed="100f"><prop id="wattage_per_state" value="0:0"/></host>')),
        energy=True,
    )
    lab.start("j", usage(tmp_path, "0 m_usage 0.5 300\n0 m_usage 0.01 100\n"), "0")
    lab.agenda.run_until(1.0)
    assert lab.physics.machines is not None
    assert lab.physics.machines.power_w(0) == pytest.approx(20 + 100 * 0.5)
    lab.agenda.run_until(3.5)
    assert lab.physics.machines.power_w(0) == pytest.approx(20 + 100 * 0.1), "at least one core"
    lab.run()
    assert lab.end("j") == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 usage 1 1", r"0\.txt:1: not a phase of usage"),
        ("0 m_usage 2 1", r"0\.txt:1: usage is from 0 to 1"),
        ("0 m_usage 1 -1", "flop 0 or more"),
        ("\n0 m_usage x 1", r"0\.txt:2: usage is from 0 to 1"),
    ],
)
def test_bad_usage_traces(text: str, message: str, tmp_path: Path) -> None:
    lab = Lab(platform_of(HOST))
    lab.start("j", usage(tmp_path, text), "0")
    with pytest.raises(InputError, match=message):
        lab.run()


def test_missing_traces(tmp_path: Path) -> None:
    lab = Lab(platform_of(HOST))
    lab.start("j", TraceReplay(TraceKind.SMPI, str(tmp_path / "none.txt")), "0")
    with pytest.raises(InputError, match="no such file"):
        lab.run()
    (tmp_path / "empty.txt").write_text("\n")
    lab = Lab(platform_of(HOST))
    lab.start("j", TraceReplay(TraceKind.USAGE, str(tmp_path / "empty.txt")), "0")
    with pytest.raises(InputError, match="no trace is listed"):
        lab.run()
