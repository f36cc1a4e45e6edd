"""The drop-in for Batsim 5 under a random component: recorded outcomes, from the compiled kernel and from the plain one."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden.batsim5_fuzz import SEEDS, outcome, recorded, run
from golden.batsim5_replay import same
from pilothouse.worlds.simulated.message_server import rounds, server
from pilothouse.worlds.simulated.physics.agenda import PlainSteppedAgenda

RECORDED = recorded()


def test_there_is_an_outcome_for_each_seed() -> None:
    assert [*RECORDED] == [str(seed) for seed in SEEDS]


@pytest.fixture(params=["compiled", "plain"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(rounds, "_rounds", None)
        monkeypatch.setattr(server, "SteppedAgenda", PlainSteppedAgenda)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_component_has_its_recorded_outcome(seed: int, tmp_path: Path) -> None:
    component, code = run(seed, tmp_path, tmp_path / "out")
    found, expected = outcome(component, code, tmp_path / "out"), RECORDED[str(seed)]
    for number, (want, got) in enumerate(zip(expected["messages"], found["messages"], strict=False)):
        assert same(want, got), f"seed {seed}, message {number}: {got}, expected {want}"
    assert len(found["messages"]) == len(expected["messages"]), f"seed {seed}"
    assert found["jobs"] == expected["jobs"], f"seed {seed}"
    assert found["code"] == expected["code"] == 0, f"seed {seed}"
    submitted = [item["event"]["job_id"] for message in component.heard for item in message["events"]
                 if item["event_type"] == "JobSubmittedEvent"]  # fmt: skip
    assert sorted(component.ended) == sorted(submitted), f"seed {seed}: each job ends once"
