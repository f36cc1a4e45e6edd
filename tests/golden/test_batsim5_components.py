"""Components like those of the real Batsim 5's own tests, run on the drop-in: the same files, the same refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golden.batsim5_replay import HERE, OneByOne, Recording, SimpleComponent, difference

pytestmark = pytest.mark.peer("batsim5", "components like those of its own tests, files and refusals")

SPREAD = "PredefinedExecutorPlacementStrategyWrapper"
MAPPED = "CustomExecutorToHostMapping"


def recording(name: str) -> Recording:
    return Recording(HERE / "cases" / name, HERE / "inputs")


def compare(found: Recording, prefix: Path) -> None:
    for file in sorted((found.folder / "out").iterdir()):
        problem = difference(file.name, file.read_text(), (prefix / file.name).read_text())
        assert not problem, problem


def mapped(hosts: str, mapping: list[int], **more: object) -> dict[str, object]:
    return {
        "host_allocation": hosts,
        "executor_placement_type": MAPPED,
        "executor_placement": {"mapping": mapping},
        **more,
    }


class Mapped(OneByOne):
    """One job at a time, with executors placed by hand."""

    def __init__(self, mapping_of_simple: list[int]) -> None:
        super().__init__()
        self._mappings = {"w0!simple": mapping_of_simple, "w0!2_resources": [0, 0, 1], "w0!4_resources": [3, 0, 1]}

    def execute(self, job_id: str, hosts: str) -> None:
        if job_id in self._mappings:
            self.say("ExecuteJobEvent", job_id=job_id, allocation=mapped(hosts, self._mappings[job_id]))
        elif job_id == "w0!seq":
            spread = {"host_allocation": "0-3", "executor_placement_type": SPREAD, "executor_placement": {}}
            overrides = [
                {"profile_id": "w0!simple", **spread},
                mapped("0-3", [3, 0, 2, 1], profile_id="w0!homogeneous"),
            ]
            allocation = {**spread, "host_allocation": hosts}
            self.say("ExecuteJobEvent", job_id=job_id, allocation=allocation, profile_allocation_override=overrides)
        else:
            super().execute(job_id, hosts)


def test_custom_mapping(tmp_path: Path) -> None:
    found = recording("custom_mapping")
    assert found.run(Mapped([2, 1, 3, 0]), f"{tmp_path}/")[0] == 0
    compare(found, tmp_path)


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        (
            [0, 1],
            "inconsistent placement for job='w0!simple': profile 'w0!simple' is rigid (profile_type='PTASK') but "
            "user-given custom mapping has size=2, which is not equal to nb_res=4 requested by the job",
        ),
        ([0, 1, 2, 4], "bad custom mapping at index=3: value=4"),
    ],
)
def test_mapping_that_does_not_fit(
    mapping: list[int], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recording("custom_mapping").run(Mapped(mapping), f"{tmp_path}/")[0] == -6
    assert words in capsys.readouterr().err


def test_part_that_is_rigid_needs_its_executors_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class WrongPart(OneByOne):
        def execute(self, job_id: str, hosts: str) -> None:
            if job_id != "w0!seq":
                super().execute(job_id, hosts)
                return
            overrides = [mapped("0-3", [0, 1, 2], profile_id="w0!simple")]
            allocation = {"host_allocation": hosts, "executor_placement_type": SPREAD, "executor_placement": {}}
            self.say("ExecuteJobEvent", job_id=job_id, allocation=allocation, profile_allocation_override=overrides)

    assert recording("custom_mapping").run(WrongPart(), f"{tmp_path}/")[0] == -6
    assert "job='w0!seq': profile 'w0!simple' is rigid" in capsys.readouterr().err


def mersenne_twister(seed: int) -> Iterator[int]:
    """The numbers of C++'s std::mt19937 with this seed."""
    state = [seed]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
    while True:
        for i in range(624):
            y = (state[i] & 0x80000000) | (state[(i + 1) % 624] & 0x7FFFFFFF)
            state[i] = state[(i + 397) % 624] ^ y >> 1 ^ (0x9908B0DF if y & 1 else 0)
        for y in state:
            y ^= y >> 11
            y ^= y << 7 & 0x9D2C5680
            y ^= y << 15 & 0xEFC60000
            yield y ^ y >> 18


class Dvfs(SimpleComponent):
    """Registers jobs of random work one after the other, each on hosts in random power states, and checks how long they take."""

    def __init__(self, seed: int, count: int) -> None:
        super().__init__()
        self._dice = mersenne_twister(seed)
        for _ in range(count):  # the recorded one prints some numbers first
            next(self._dice)
        self._left = count
        self._made = -1
        self._missing = self._size = 0
        self._speeds: list[list[float]] = []
        self._began = self._expected = 0.0

    def on(self, kind: str, event: Any) -> None:
        if kind == "SimulationBeginsEvent":
            self._speeds = [host["computation_speed"] for host in event["computation_hosts"]]
            assert [(host["pstate"], host["state"]) for host in event["computation_hosts"]] == [(0, "IDLE")] * 4
            self._register()
        elif kind == "JobCompletedEvent":
            assert self.now - self._began == pytest.approx(self._expected, abs=1e-2)
            self._register()
        elif kind == "HostsPStateChangedEvent":
            self._missing -= 1
            if not self._missing:
                self._began = self.now
                self.execute(f"dvfs!{self._made}", "0" if self._size == 1 else f"0-{self._size - 1}")

    def _register(self) -> None:
        if not self._left:
            return
        self._left -= 1
        self._made += 1
        dice = self._dice
        self._size = self._missing = 1 + next(dice) % (len(self._speeds) - 1)
        plan = [(next(dice) % 2, 25.0 * (1 + next(dice) % 10)) for _ in range(self._size)]
        self._expected = max(work / self._speeds[host][state] for host, (state, work) in enumerate(plan))
        name = f"dvfs!{self._made}"
        task = {"computation_vector": [work for _, work in plan]}
        self.say("RegisterProfileEvent", profile={"id": name, "profile_type": "ParallelTaskProfile", "profile": task})
        self.say("RegisterJobEvent", job_id=name, job={"resource_request": self._size, "profile_id": name})
        for host, (state, _) in enumerate(plan):
            self.say("ChangeHostsPStateEvent", host_ids=str(host), pstate=state)


def test_power_states_of_registered_jobs(tmp_path: Path) -> None:
    found = recording("dvfs_169")
    assert found.run(Dvfs(169, 10), f"{tmp_path}/")[0] == 0
    compare(found, tmp_path)


class Registering(SimpleComponent):
    """Registers jobs and profiles of several kinds when the first job arrives, and starts them in order."""

    def __init__(self, *, acknowledged: bool) -> None:
        super().__init__()
        self.features = {"dynamic_registration": True, "acknowledge_dynamic_jobs": acknowledged}
        self._acknowledged = acknowledged
        self._met = False
        self._queue: list[tuple[str, int]] = []
        self._free = set(range(4))
        self._held: dict[str, list[int]] = {}

    def on(self, kind: str, event: Any) -> None:
        if kind == "JobSubmittedEvent":
            if self._met:
                self._queue.append((event["job_id"], event["job"]["resource_request"]))
            else:
                self._met = True
                self._register(event["job_id"], event["job"]["profile_id"])
        elif kind == "JobCompletedEvent":
            self._free.update(self._held.pop(event["job_id"]))

    def _job(self, job_id: str, size: int, profile: str, walltime: float | None = None) -> None:
        job = {"resource_request": size, "profile_id": profile, "walltime": walltime}
        self.say("RegisterJobEvent", job_id=job_id, job=job)
        if not self._acknowledged:
            self._queue.append((job_id, size))

    def _profile(self, name: str, kind: str, **fields: object) -> None:
        self.say("RegisterProfileEvent", profile={"id": name, "profile_type": kind, "profile": fields})

    def _register(self, first: str, first_profile: str) -> None:
        self._job("dyn!j1", 2, first_profile, 5.0)
        amounts = {"computation_amount": 1e9, "communication_amount": 5e4}
        self._profile("dyn!profile2", "ParallelTaskHomogeneousProfile", **amounts)
        self._job("w0!j2", 4, "dyn!profile2")
        self._profile("dyn!delay10", "DelayProfile", delay=5.0)  # the same name in another workload
        self.say("RejectJobEvent", job_id=first)
        flop, matrix = [100.0] * 4, [50.0] * 16
        self._profile("dyn!task", "ParallelTaskProfile", computation_vector=flop, communication_matrix=matrix)
        self._profile("dyn!silent", "ParallelTaskProfile", computation_vector=flop)
        self._profile("dyn!idle", "ParallelTaskProfile", communication_matrix=matrix)
        self.say("FinishRegistrationEvent")

    def finish(self) -> None:
        while self._queue and self._queue[0][1] <= len(self._free):
            job_id, size = self._queue.pop(0)
            hosts = sorted(self._free)[:size]
            self._free.difference_update(hosts)
            self._held[job_id] = hosts
            self.execute(job_id, f"{hosts[0]}-{hosts[-1]}")


@pytest.mark.parametrize("acknowledged", [True, False])
def test_registration(acknowledged: bool, tmp_path: Path) -> None:
    found = recording(f"dynreg_{'' if acknowledged else 'no'}ack_jobs_ok")
    assert found.run(Registering(acknowledged=acknowledged), f"{tmp_path}/")[0] == 0
    compare(found, tmp_path)


def test_replays_end_with_their_last_rank(tmp_path: Path) -> None:
    (tmp_path / "traces.txt").write_text("0.txt\n1.txt\n")
    (tmp_path / "0.txt").write_text("0 m_usage 1.0 1000\n")
    (tmp_path / "1.txt").write_text("1 m_usage 0.5 500\n")
    replay = {"type": "TraceReplayProfile", "trace_type": "FractionalComputation", "filename": "traces.txt"}
    job = {"id": "j", "subtime": 0, "walltime": 100, "res": 2, "profile": "usage"}
    workload = tmp_path / "workload.json"
    workload.write_text(json.dumps({"nb_res": 2, "jobs": [job], "profiles": {"usage": replay}}))
    found = recording("periodic_calls")
    found.replacing = {"in/test_delays.json": str(workload)}
    assert found.run(OneByOne(), f"{tmp_path}/")[0] == 0
    line = (tmp_path / "jobs.csv").read_text().splitlines()[1].split(",")
    assert (line[7], line[9]) == ("COMPLETED_SUCCESSFULLY", "10.000000")  # 1000 flop at 100 flop/s, and not a µs more
