"""A random decision component and random workloads for the drop-in of Batsim 5, and what came of them.

Everything follows from a seed. `python tests/golden/batsim5_fuzz.py` records the outcomes of SEEDS in batsim5/fuzz.json.gz;
test_batsim5_fuzz.py runs them again. They were recorded when 199 of the 200 recorded conversations of the real Batsim 5
with such a component replayed; record them again only for a change that those recordings (or the real one) ask for.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.batsim5_replay import HERE, Recording, SimpleComponent

OUTCOMES = HERE / "fuzz.json.gz"
SEEDS = range(60)
HOSTS = 4
SLEEPS, COMPUTES = 1, 0
"""Power states of energy_platform_homogeneous.xml."""


class RandomComponent(SimpleComponent):
    """Decides at random: sharing hosts, thinking, killing, switching, calling, probing, registering."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = Random(seed)
        self._energy = has_energy(seed)
        self.features = {"dynamic_registration": True, "acknowledge_dynamic_jobs": True, "profile_reuse": True}
        self._waiting: dict[str, int] = {}
        self._running: list[str] = []
        self._used: dict[str, list[int]] = {}
        self._off: set[int] = set()
        self._asleep: set[int] = set()
        self._registered = 0
        self._finished = self._over = False
        self._calls = 0
        self.ended: list[str] = []

    def on(self, kind: str, event: Any) -> None:
        if kind == "JobSubmittedEvent":
            self._waiting[event["job_id"]] = event["job"]["resource_request"]
        elif kind == "JobCompletedEvent":
            self.ended.append(event["job_id"])
            self._used.pop(event["job_id"], None)
            if event["job_id"] in self._running:
                self._running.remove(event["job_id"])
        elif kind == "SimulationEndsEvent":
            self._over = True
        elif kind == "HostsTurnedOnOffEvent":
            host = int(event["host_ids"])
            if event["state"] == SLEEPS:
                self._asleep.add(host)
            else:
                self._off.discard(host)

    def finish(self) -> None:
        dice = self._dice
        if self._over:
            return  # The real one aborts where something is under way after the end.
        if not self._calls:
            self._begin()
        for job_id, count in list(self._waiting.items()):
            choice = dice.random()
            on = [host for host in range(HOSTS) if host not in self._off]
            if choice < 0.1:
                self.say("RejectJobEvent", job_id=job_id)
                self.ended.append(job_id)
            elif choice < 0.8 and count <= len(on):
                self._used[job_id] = sorted(dice.sample(on, count))
                self.execute(job_id, " ".join(map(str, self._used[job_id])))
                self._running.append(job_id)
            else:
                continue
            del self._waiting[job_id]
        if self._running and dice.random() < 0.2:
            self.say("KillJobsEvent", job_ids=[self._running.pop(dice.randrange(len(self._running)))])
        self._switch()
        self._register()
        self.now += dice.choice((0.0, 0.0, 0.25, 1.0))

    def _begin(self) -> None:
        self._calls = 1
        for period in (500, 1000):
            self._every("CallMeLaterEvent", "call_me_later_id", period)
        self.say("CallMeLaterEvent", call_me_later_id="c", when_type="OneShot", when={"time": 3})
        if self._energy:
            mode = {"mode_type": "FinitePeriodNumber", "mode": {"nb_periods": 3}}
            self.say(
                "CreateProbeEvent",
                probe_id="probe",
                metrics="Power",
                resources_type="HostResources",
                resources={"host_ids": "0-3"},
                data_accumulation_strategy_type="ProbeDataAccumulation",
                data_accumulation_strategy={"reset_mode_type": "NoReset", "reset_mode": {}},
                measurement_triggering_policy_type="TemporalTriggerWrapper",
                measurement_triggering_policy={
                    "temporal_trigger_type": "Periodic",
                    "temporal_trigger": {"period": 2000, "time_unit": "Millisecond", **mode},
                },
                resources_aggregation_function_type="Sum",
                resources_aggregation_function={},
            )

    def _switch(self) -> None:
        """Hosts that no job was given go to sleep, and wake up later."""
        for host in sorted(self._asleep):
            self._asleep.discard(host)
            self.say("TurnOnOffHostsEvent", host_ids=str(host), state=COMPUTES)
        used = {host for hosts in self._used.values() for host in hosts}
        idle = [host for host in range(HOSTS) if host not in used | self._off]
        if len(idle) > 1 and self._dice.random() < 0.15:
            host = self._dice.choice(idle)
            self._off.add(host)
            self.say("TurnOnOffHostsEvent", host_ids=str(host), state=SLEEPS)

    def _register(self) -> None:
        dice = self._dice
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

    def _every(self, kind: str, key: str, period_ms: int) -> None:
        mode = {"mode_type": "FinitePeriodNumber", "mode": {"nb_periods": 3}}
        when = {"period": period_ms, "offset": 0, "time_unit": "Millisecond", **mode}
        self.say(kind, **{key: f"every {period_ms}"}, when_type="Periodic", when=when)


def has_energy(seed: int) -> bool:
    return bool(seed % 2)


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
    return {"nb_res": HOSTS, "jobs": jobs, "profiles": profiles}


def run(seed: int, folder: Path, out: Path) -> tuple[RandomComponent, int]:
    """Runs one seed; its files are in `out`. The component, which knows what it heard, and the exit code."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in/w0.json").write_text(json.dumps(workload(seed)))
    energy = "--energy-host" if has_energy(seed) else ""
    command = f"& batsim -p in/energy_platform_homogeneous.xml -w in/w0.json -s x y -e out/ {energy}"
    (folder / "command.txt").write_text(command)
    component = RandomComponent(seed)
    code, _ = Recording(folder, HERE / "inputs").run(component, f"{out}/")
    return component, code


def outcome(component: RandomComponent, code: int, out: Path) -> dict[str, Any]:
    """What is recorded of a run: when it was told what, and how its jobs ended."""
    messages = [
        [message["now"], *(item["event_type"].removesuffix("Event") for item in message["events"])]
        for message in component.heard
    ]
    rows = [line.split(",") for line in (out / "jobs.csv").read_text().splitlines()[1:]]
    jobs = [[f"{row[1]}!{row[0]}", row[7], row[8], row[10], row[14], row[15]] for row in rows]
    return {"code": code, "messages": messages, "jobs": jobs}


def recorded() -> dict[str, Any]:
    """Seed -> its recorded outcome."""
    found: dict[str, Any] = json.loads(gzip.decompress(OUTCOMES.read_bytes()))
    return found


def main() -> None:
    found = {}
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            component, code = run(seed, folder, folder / "out")
            found[str(seed)] = outcome(component, code, folder / "out")
    OUTCOMES.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
    print(f"{OUTCOMES}: {len(found)} outcomes, {OUTCOMES.stat().st_size} bytes")


if __name__ == "__main__":
    main()
