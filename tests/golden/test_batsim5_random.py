"""Random conversations: recorded ones of the real Batsim 5 with a random component, and a random component of ours.

`batsim5/random` holds a few small recordings, one or two for each class of mistakes that the whole set found; the whole set
is used where it is at hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from golden.batsim5_replay import HERE, RecordedComponent, Recording, SimpleComponent, difference, same
from pilothouse.worlds.simulated.message_server import rounds, server
from pilothouse.worlds.simulated.physics.agenda import PlainSteppedAgenda

SHARED = Path(__file__).resolve().parents[3] / "shared/reference"
OWN = {folder.name: folder for folder in sorted((HERE / "random").iterdir())}
FOUND = SHARED / "batsim5/random"
ALL = {folder.name: folder for folder in sorted(FOUND.iterdir()) if folder.is_dir()} if FOUND.is_dir() else OWN
NEAR_TIE = "0386_ties"
"""A job ends 2e-15 s before a message arrives, and in the real one with it: the last bits of a rate that changes twice."""


def plain(message: Any) -> Any:
    """Without the order of lists that have none of their own; no profiles are the same as an empty list of them."""
    for item in message["events"]:
        event = item["event"]
        event["profiles"] = sorted(event.get("profiles") or [], key=lambda profile: str(profile["id"]))
        if "progresses" in event:
            event["progresses"].sort(key=lambda progress: str(progress["job_id"]))
    return message


@pytest.mark.parametrize("name", sorted(ALL.keys() - {NEAR_TIE}))
def test_a_recorded_random_component_hears_and_leaves_the_same(name: str, tmp_path: Path) -> None:
    found = Recording(ALL[name], HERE / "inputs" if name in OWN else SHARED / "inputs/v5")
    sent, answered = found.messages()
    component = RecordedComponent(answered)
    code, _ = found.run(component, f"{tmp_path}/")
    for number, (want, got) in enumerate(zip(sent, component.heard, strict=False)):
        assert same(plain(want), plain(got)), f"message {number}: {got}, expected {want}"
    assert len(component.heard) == len(sent)
    assert code == (-6 if found.exit_code == 134 else found.exit_code)
    if found.exit_code:
        return
    for file in sorted((found.folder / "out").iterdir()):
        kind = file.name.removesuffix(".gz")
        want = (found.text(f"out/{kind}") or "").replace('"5.0.0-rc2"', '"v5.0.0-rc2"')  # another build of it
        problem = difference(kind, want, (tmp_path / kind).read_text())
        assert not problem, problem


class RandomComponent(SimpleComponent):
    """Decides at random: sharing hosts, thinking, killing, switching, calling, probing, registering."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = Random(seed)
        self.features = {"dynamic_registration": True, "acknowledge_dynamic_jobs": True, "profile_reuse": True}
        self._waiting: dict[str, int] = {}
        self._running: list[str] = []
        self._registered = 0
        self._finished = False
        self._calls = 0
        self.ended: list[str] = []

    def on(self, kind: str, event: Any) -> None:
        if kind == "JobSubmittedEvent":
            self._waiting[event["job_id"]] = event["job"]["resource_request"]
        elif kind == "JobCompletedEvent":
            self.ended.append(event["job_id"])
            if event["job_id"] in self._running:
                self._running.remove(event["job_id"])

    def finish(self) -> None:
        dice = self._dice
        if not self._calls:
            for period in (500, 1000):
                self._every("CallMeLaterEvent", "call_me_later_id", period)
            self.say("CallMeLaterEvent", call_me_later_id="c", when_type="OneShot", when={"time": 3})
            self._calls = 1
        for job_id, count in list(self._waiting.items()):
            choice = dice.random()
            if choice < 0.1:
                self.say("RejectJobEvent", job_id=job_id)
                self.ended.append(job_id)
            elif choice < 0.8:
                self.execute(job_id, " ".join(map(str, sorted(dice.sample(range(4), count)))))
                self._running.append(job_id)
            else:
                continue
            del self._waiting[job_id]
        if self._running and dice.random() < 0.2:
            self.say("KillJobsEvent", job_ids=[self._running.pop(dice.randrange(len(self._running)))])
        if self._registered < 3 and dice.random() < 0.5:
            name = f"new!{self._registered}"
            parts = ["w0!delay"] * dice.randrange(3)
            profile = {"profile_ids": parts, "repetition_count": dice.randrange(3)}
            self.say("RegisterProfileEvent", profile={
                "id": name, "profile_type": "SequentialCompositionProfile", "profile": profile,
            })  # fmt: skip
            self.say("RegisterJobEvent", job_id=name, job={"resource_request": 1, "walltime": -1, "profile_id": name})
            self._registered += 1
        elif self._registered == 3 and not self._finished:
            self.say("FinishRegistrationEvent")
            self._finished = True
        elif not self._finished or self._waiting:
            self.say("CallMeLaterEvent", call_me_later_id="c", when_type="OneShot", when={"time": int(self.now) + 1})
        self.now += dice.choice((0.0, 0.0, 0.25, 1.0))

    def _every(self, kind: str, key: str, period_ms: int) -> None:
        mode = {"mode_type": "FinitePeriodNumber", "mode": {"nb_periods": 3}}
        when = {"period": period_ms, "offset": 0, "time_unit": "Millisecond", **mode}
        self.say(kind, **{key: f"every {period_ms}"}, when_type="Periodic", when=when)


def workload(seed: int) -> dict[str, Any]:
    dice = Random(seed)
    profiles = {
        "delay": {"type": "DelayProfile", "delay": 1.5},
        "task": {"type": "ParallelTaskHomogeneousProfile", "cpu": 1e8, "com": dice.choice((0, 5e6))},
        "parts": {"type": "SequentialCompositionProfile", "seq": ["delay", "task"], "repeat": 2},
    }
    jobs = []
    for number in range(dice.randint(3, 12)):
        subtime = dice.choice((0, 1, 2, dice.random() * 5))
        job = {"id": str(number), "subtime": subtime, "res": dice.randint(1, 4), "profile": dice.choice([*profiles])}
        jobs.append({**job, "walltime": dice.choice((0.5, 2, 4.0))} if dice.random() < 0.7 else job)
    return {"nb_res": 4, "jobs": jobs, "profiles": profiles}


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    def both() -> Iterator[str]:
        yield "compiled"
        monkeypatch.setattr(rounds, "_rounds", None)
        monkeypatch.setattr(server, "SteppedAgenda", PlainSteppedAgenda)
        yield "plain"

    return both()


@pytest.mark.parametrize("seed", range(25))
def test_a_random_component_gets_the_same_run_from_both_kernels(
    seed: int, kernels: Iterator[str], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/w0.json").write_text(json.dumps(workload(seed)))
    energy = "--energy-host" if seed % 2 else ""
    command = f"& batsim -p in/energy_platform_homogeneous.xml -w in/w0.json -s x y -e out/ {energy}"
    (tmp_path / "command.txt").write_text(command)
    runs = []
    for kernel in kernels:
        component = RandomComponent(seed)
        out = tmp_path / kernel
        code, _ = Recording(tmp_path, HERE / "inputs").run(component, f"{out}/")
        assert code == 0, f"seed {seed}"
        runs.append((component.heard[1:], (out / "jobs.csv").read_text(), component.ended))
    assert runs[0] == runs[1], f"seed {seed}"
    heard, table, ended = runs[0]
    submitted = [item["event"]["job_id"] for message in heard for item in message["events"]
                 if item["event_type"] == "JobSubmittedEvent"]  # fmt: skip
    assert sorted(ended) == sorted(submitted), f"seed {seed}: each job ends once"
    assert len(table.splitlines()) == 1 + len(submitted)
