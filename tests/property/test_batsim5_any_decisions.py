"""Whatever a component orders, the drop-in for Batsim 5 ends in one of its ways: done, deadlocked, or a refusal in words.

A component that draws its orders from dice: jobs and hosts that exist or not, at good and at bad moments. A failure names
its seed; `pytest tests/property/test_batsim5_any_decisions.py -k SEED` repeats it.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from golden.batsim5_replay import HERE, SimpleComponent
from pilothouse.dropins.batsim5.inputs import Batsim5Inputs
from pilothouse.dropins.batsim5.options import parse
from pilothouse.dropins.batsim5.outputs import Batsim5Outputs
from pilothouse.dropins.batsim5.run import ABORTED, Log, run
from pilothouse.protocols.batprotocol.decider import EdcDecider

INPUTS = HERE / "inputs"
MOST_MESSAGES = 150
"""A component that never stops ordering calls is stopped after so many messages."""


class Dice(SimpleComponent):
    """Mostly sensible, now and then not."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = random.Random(seed)
        self.features = {
            name: self._dice.random() < 0.5
            for name in ("dynamic_registration", "profile_reuse", "acknowledge_dynamic_jobs", "forward_profiles_on_jobs_killed")
        }
        self._waiting: list[str] = []
        self._running: list[str] = []
        self._made = 0

    def on(self, kind: str, event: Any) -> None:
        if kind == "JobSubmittedEvent":
            self._waiting.append(event["job_id"])
        elif kind == "JobCompletedEvent" and event["job_id"] in self._running:
            self._running.remove(event["job_id"])

    def finish(self) -> None:
        dice = self._dice
        if len(self.heard) > MOST_MESSAGES:
            self.say("ForceSimulationStopEvent")
            return
        if len(self.heard) == 1 and self.features["dynamic_registration"] and dice.random() < 0.8:
            self._register()
            self.say("FinishRegistrationEvent")
        while self._waiting and dice.random() < 0.9:
            self._handle_job(self._waiting.pop(0))
        if dice.random() < 0.25:
            dice.choice((self._kill, self._call, self._power, self._register, self._probe, self._stop_calls))()

    def _handle_job(self, job_id: str) -> None:
        if self._dice.random() < 0.15:
            self.say("RejectJobEvent", job_id=job_id)
            return
        self.execute(job_id, self._hosts())
        self._running.append(job_id)

    def _hosts(self) -> str:
        first = self._dice.randrange(4)
        last = min(first + self._dice.randrange(3), 3 if self._dice.random() < 0.98 else 9)
        return f"{first}-{max(first, last)}"

    def _kill(self) -> None:
        victims = [job for job in self._running if self._dice.random() < 0.5]
        self.say("KillJobsEvent", job_ids=victims or ["w0!0"])

    def _call(self) -> None:
        dice = self._dice
        name = f"call{dice.randrange(50)}"
        if dice.random() < 0.6:
            self.say("CallMeLaterEvent", call_me_later_id=name, when_type="OneShot", when={"time": dice.randrange(60)})
        else:
            mode = {"mode_type": "FinitePeriodNumber", "mode": {"nb_periods": dice.randint(1, 5)}}
            when = {"period": dice.choice((5, 10, 20)), **mode}
            self.say("CallMeLaterEvent", call_me_later_id=name, when_type="Periodic", when=when)

    def _stop_calls(self) -> None:
        self.say("StopCallMeLaterEvent", call_me_later_id=f"call{self._dice.randrange(50)}")

    def _power(self) -> None:
        kind = self._dice.choice(("ChangeHostsPStateEvent", "TurnOnOffHostsEvent"))
        self.say(kind, host_ids=self._hosts(), **{"pstate" if "PState" in kind else "state": self._dice.randrange(4)})

    def _register(self) -> None:
        self._made += 1
        profile = {"id": f"d!p{self._made}", "profile_type": "DelayProfile", "profile": {"delay": self._dice.randint(1, 9)}}
        self.say("RegisterProfileEvent", profile=profile)
        job_id = f"d!{self._made}"
        self.say("RegisterJobEvent", job_id=job_id, job={"resource_request": 1, "profile_id": f"p{self._made}"})
        if not self.features["acknowledge_dynamic_jobs"]:
            self._waiting.append(job_id)

    def _probe(self) -> None:
        trigger = {"period": 10, "mode_type": "FinitePeriodNumber", "mode": {"nb_periods": 2}}
        self.say(
            "CreateProbeEvent",
            probe_id=f"probe{self._dice.randrange(5)}",
            metrics="Power",
            resources_type="HostResources",
            resources={"host_ids": self._hosts()},
            data_accumulation_strategy_type="ProbeDataAccumulation",
            data_accumulation_strategy={"reset_mode_type": "NoReset", "reset_mode": {}},
            measurement_triggering_policy_type="TemporalTriggerWrapper",
            measurement_triggering_policy={"temporal_trigger_type": "Periodic", "temporal_trigger": trigger},
        )


@pytest.mark.parametrize("seed", range(80))
def test_it_always_ends_in_words(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-p", str(INPUTS / "energy_platform_homogeneous.xml"), "-w", str(INPUTS / "test_delays.json")]
    arguments += ["-s", "inproc://dice", "", "-e", f"{tmp_path}/", "--energy-host", "--trace-machine-state"]
    arguments += ["--trace-pstate-changes"]
    options = parse(arguments)
    outputs = Batsim5Outputs(options.export, energy=True, machine_states=True, pstate_changes=True)
    server = Batsim5Inputs(options, arguments).server(outputs)
    code = run(server, outputs, EdcDecider(Dice(seed)), Log("quiet"))
    words = capsys.readouterr().err
    assert code in (0, 1, ABORTED)
    assert bool(words) == (code != 0), words
    assert len(words.splitlines()) <= 1
    rows = (tmp_path / "jobs.csv").read_text().splitlines()[1:]
    names = [tuple(row.split(",")[:2]) for row in rows]
    assert len(names) == len(set(names)), "no job ends twice"
    assert (tmp_path / "schedule.json").exists() == (code == 0)
