"""The inputs of a simulation: platforms, workloads of any format, events; what is refused, and which world is made of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError
from pilothouse.model.events import Begins
from pilothouse.model.job import Job, Node, Shape
from pilothouse.worlds.simulated.inputs import Setup, join, load, oddities_of, read_workloads
from pilothouse.worlds.simulated.message_server.world import MessageServerWorld
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.scheduling_passes import SimulatedPasses
from pilothouse.worlds.simulated.world import SimulatedWorld
from unit.worlds.simulated.lab import SWITCHABLE, platform_of

BATSIM = {
    "nb_res": 4,
    "jobs": [{"id": "1", "subtime": 0, "walltime": 10, "res": 4, "profile": "d"}],
    "profiles": {"d": {"type": "delay", "delay": 5}},
}
SWF = "; MaxProcs: 4\n1 0 0 5 2 -1 -1 2 10 -1 1 1 1 1 1 1 -1 -1\n"


@pytest.mark.parametrize("sizes", [(3,), (2, 1), (1, 0, 2)])
def test_jobs_of_several_workloads(sizes: tuple[int, ...]) -> None:
    workloads = []
    for number, size in enumerate(sizes):
        jobs = [Job(f"w{number}!{index}", 1) for index in range(size)]
        workloads.append(Workload(f"w{number}", f"w{number}.json", 4, jobs))
    setup = Setup(platform_of(SWITCHABLE), workloads, [], Begins((Node("n", 0),)))
    assert [job.id for job in setup.jobs] == [job.id for workload in workloads for job in workload.jobs]
    assert len(setup.jobs) == sum(sizes)


def test_oddities_are_a_line_for_each_kind_and_file() -> None:
    first = Workload("w0", "/some/where/a.swf", 4, [], {}, {"left out": 1, "guessed": 1200})
    other = Workload("w1", "", 4, [], {}, {"cut": 2})
    assert oddities_of(first) == ["a.swf: 1 job left out", "a.swf: 1,200 jobs guessed"]
    setup = Setup(platform_of(SWITCHABLE), [first, other], [], Begins(()))
    assert setup.oddities == [*oddities_of(first), "workload: 2 jobs cut"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "batsim.json").write_text("  \n" + json.dumps(BATSIM))
    (tmp_path / "log.swf").write_text(SWF)
    (tmp_path / "list.json").write_text('[{"request": "submit"}]')
    (tmp_path / "request.json").write_text('{"request": "submit"}')
    (tmp_path / "poisson:jobs=3").write_text(json.dumps(BATSIM))
    return tmp_path


def other(path: str, name: str, dialect: str) -> Workload:
    return Workload(name, f"other {path}", 0, [])


def test_each_workload_is_read_in_its_format(files: Path) -> None:
    paths = ["batsim.json", "log.swf", "list.json", "request.json", "poisson:jobs=5", "poisson:jobs=3"]
    found = read_workloads(paths, 4, other)
    assert [workload.name for workload in found] == ["w0", "w1", "w2", "w3", "w4", "w5"]
    assert [len(workload.jobs) for workload in found] == [1, 1, 0, 0, 5, 1], "a file comes before a generator of its name"
    assert [workload.path for workload in found[2:4]] == ["other list.json", "other request.json"]
    assert found[0].jobs[0].id == "w0!1" and found[1].jobs[0].units == 2
    for path in ("list.json", "request.json"):
        with pytest.raises(InputError):
            read_workloads([path], 4)


def test_a_job_that_is_larger_than_the_machine_is_refused() -> None:
    machine = Platform.named("4")
    fits = [Job("w0!fits", 4, runtime=1.0), Job("w0!shaped", 9, runtime=1.0, shape=Shape(nodes=1))]
    assert join(machine, [Workload("w0", "a.swf", 4, fits)]).jobs == fits
    with pytest.raises(InputError, match=r"a\.swf: job large is larger than the machine; expected at most 4 units, found 5"):
        join(machine, [Workload("w0", "a.swf", 4, [*fits, Job("w0!large", 5)])])


def test_what_the_decider_is_told(files: Path) -> None:
    (files / "e.txt").write_text('{"timestamp": 3, "type": "machine_unavailable", "resources": "0"}\n')
    setup = load("4", ["batsim.json", "log.swf"], events=["e.txt"])
    begins = setup.begins
    assert len(begins.nodes) == 4 and begins.workloads == {"w0": str(files / "batsim.json"), "w1": str(files / "log.swf")}
    assert begins.external_event_lists == {"ee0": str(files / "e.txt")}
    assert [event.at for event in setup.external_events] == [3.0]
    assert "w0!d" in begins.profiles and any(name.startswith("w1!") for name in begins.profiles)
    assert (setup.solver, setup.control_latency, setup.pass_every_s) == ("fair-bottleneck", False, 0.0)
    assert not begins.energy and not load("4", ["log.swf"]).external_events
    chosen = load("4", ["log.swf"], solver="max-min", control_latency=True)
    assert (chosen.solver, chosen.control_latency) == ("max-min", True)


def test_energy_needs_hosts_with_wattages() -> None:
    assert join(platform_of(SWITCHABLE), [], energy=True).begins.energy
    with pytest.raises(InputError):
        join(platform_of('<host id="a" speed="1f"/>'), [], energy=True)


@pytest.mark.parametrize(
    ("control_latency", "every_s", "kind"),
    [(False, 0.0, SimulatedWorld), (False, 1.0, SimulatedPasses), (True, 0.0, MessageServerWorld)],
)
def test_the_world_that_is_made(files: Path, control_latency: bool, every_s: float, kind: type) -> None:
    setup = load("4", ["log.swf"], control_latency=control_latency)
    setup.pass_every_s = every_s
    assert type(setup.world(lambda record: None)) is kind
