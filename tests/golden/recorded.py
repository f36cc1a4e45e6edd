"""Recorded runs of the real Batsim 4 and 5, and our physics replayed over their decisions.

A recording says which job started when and where; we start it at that date on those hosts, kill it or change power
states when the recording does, and compare how long it took, how it ended, and what energy it used.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.formats import dax, profile_json, workload_json
from pilothouse.model.decisions import Placement
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import BATSIM, JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.worlds.simulated.physics.agenda import Agenda
from pilothouse.worlds.simulated.physics.execution import SHORTEST_RUN_S, Physics, Run
from pilothouse.worlds.simulated.physics.platform import Platform

PLACEMENTS = {
    # This decider, a library without a transcript, places three executors for moldable jobs; where, is inferred.
    ("custom_mapping", "w0!2_resources"): Placement(mapping=(0, 0, 1)),
    ("custom_mapping", "w0!4_resources"): Placement(mapping=(0, 1, 3)),
}


@dataclass
class Row:
    """A job as the recording wrote it down."""

    job_id: str
    state: str
    started_at: float
    seconds: float
    units: IdSet
    energy_j: float
    profile: str
    walltime: float


@dataclass
class Recording:
    """The inputs and outputs of one recorded run."""

    name: str
    generation: int
    platform_file: Path
    workload_files: list[Path]
    workflow_files: list[Path]
    rows: list[Row]
    options: str
    pstates: list[tuple[float, IdSet, int]] = field(default_factory=list)
    orders: dict[str, dict[str, Any]] = field(default_factory=dict)
    registered_jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    registered_profiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    messages: list[tuple[float, str, str]] = field(default_factory=list)

    @property
    def has_energy(self) -> bool:
        return bool(re.search(r" (-E|--energy|--energy-host)( |$)", self.options))


@dataclass
class Difference:
    """Something that came out otherwise than recorded."""

    job_id: str
    what: str
    recorded: object
    ours: object

    def __str__(self) -> str:
        return f"job {self.job_id}: {self.what} {self.ours}, recorded {self.recorded}"


def load(directory: Path, generation: int, inputs: Path) -> Recording | None:
    """A recording with at least one job that ran; None for the others (errors, protocol only)."""
    prefix = directory / ("out_jobs.csv" if generation == 4 else "out/jobs.csv")
    rows = _rows(prefix)
    if not rows:
        return None
    command = (directory / ("cmd.txt" if generation == 4 else "command.txt")).read_text()
    line = next(line for line in command.splitlines() if "batsim" in line and " -p " in line)
    platform = _find(re.search(r" -p (\S+)", line)[1], directory, inputs)  # type: ignore[index]
    workloads = [_find(found, directory, inputs) for found in re.findall(r" -w (\S+)", line)]
    workflows = [_find(found, directory, inputs) for found in re.findall(r" -W (\S+)", line)]
    recording = Recording(directory.name, generation, platform, workloads, workflows, rows, line)
    changes = directory / ("out_pstate_changes.csv" if generation == 4 else "out/pstate_changes.csv")
    for change in _table(changes):
        units = IdSet.parse(change["machine_id"])
        recording.pstates.append((float(change["time"]), units, int(change["new_pstate"])))
    _read_orders(directory, recording)
    _sharpen(directory / "out_machine_states.csv", rows)
    return recording


def _sharpen(path: Path, rows: list[Row]) -> None:
    """Early dates have more decimals in the file of machine states: which of two events came first depends on them."""
    dates = [date for state in _table(path) if (date := float(state["time"])) < 1]
    for row in rows:
        near = [date for date in dates if abs(date - row.started_at) < 6e-7]
        row.started_at = near[0] if near else row.started_at


def _table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file that may be compressed, or absent."""
    packed = path.with_name(path.name + ".gz")
    text = (
        gzip.decompress(packed.read_bytes()).decode() if packed.exists() else path.read_text() if path.exists() else ""
    )
    return list(csv.DictReader(text.splitlines()))


def _rows(path: Path) -> list[Row]:
    return [
        Row(
            f"{row['workload_name']}!{row['job_id']}",
            row["final_state"],
            float(row["starting_time"]),
            float(row["execution_time"]),
            IdSet.parse(row["allocated_resources"]),
            float(row["consumed_energy"]),
            row["profile"],
            float(row["requested_time"]),
        )
        for row in _table(path)
        if row["final_state"] != "REJECTED"
    ]


def _find(name: str, directory: Path, inputs: Path) -> Path:
    """An input by its name: beside the recording, or among the common inputs."""
    base = Path(name).name
    for place in (directory / "in", inputs / "platforms", inputs / "workloads", inputs / "extra"):
        if (place / base).exists():
            return place / base
    raise FileNotFoundError(name)


def _read_orders(directory: Path, recording: Recording) -> None:
    for path in sorted(directory.glob("protocol.jsonl*")):
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        for line in text.splitlines():
            message = json.loads(line)
            if message["dir"] == "sched->batsim":
                for event in message["msg"]["events"]:
                    _note(event, recording)
    for path in directory.glob("transcript.jsonl"):
        for line in path.read_text().splitlines():
            message = json.loads(line)
            if message["dir"] == "edc->batsim":
                for event in message["msg"]["events"]:
                    _note_5(event["event_type"], event["event"], recording)


def _note(event: dict[str, Any], recording: Recording) -> None:
    data = event["data"]
    match event["type"]:
        case "EXECUTE_JOB":
            recording.orders[data["job_id"]] = data
        case "REGISTER_JOB" if "job" in data:
            recording.registered_jobs[data["job_id"]] = data["job"]
        case "REGISTER_PROFILE":
            recording.registered_profiles[f"{data['workload_name']}!{data['profile_name']}"] = data["profile"]
        case "TO_JOB_MSG":
            recording.messages.append((event["timestamp"], data["job_id"], data["msg"]))


def _note_5(kind: str, data: dict[str, Any], recording: Recording) -> None:
    if kind == "RegisterProfileEvent":
        profile = data["profile"]
        recording.registered_profiles[profile["id"]] = {"type": profile["profile_type"], **profile["profile"]}
    elif kind == "RegisterJobEvent":
        job = data["job"]
        written = {"res": job["resource_request"], "profile": job["profile_id"], "walltime": job.get("walltime") or -1}
        recording.registered_jobs[data["job_id"]] = written


class Replay:
    """Our physics, driven by a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        roles = {}
        for hosts, role in re.findall(r" -r (\S+):(\S+)", recording.options):
            roles.update(dict.fromkeys(hosts.split(","), role))
        found = re.search(r"--mmax (\d+)", recording.options)
        most = int(found[1]) if found else 0
        generation = recording.generation
        platform = Platform.load(recording.platform_file, generation=generation, roles=roles, most_hosts=most)
        self.platform = platform
        self.profiles: dict[str, Profile] = {}
        self.jobs: dict[str, Job] = {}
        for number, path in enumerate(recording.workload_files):
            workload = workload_json.read(path, f"w{number}", sources=True)
            self.profiles.update(workload.profiles)
            self.jobs.update((job.id, job) for job in workload.jobs)
        self._register()
        for number, path in enumerate(recording.workflow_files):
            self._add_workflow(dax.read(path, f"wf{number}"))
        self.agenda = Agenda()
        self.physics = Physics(
            self.agenda,
            self._ended,
            platform,
            profiles=self.profiles,
            energy=recording.has_energy,
            machines=bool(recording.pstates),
            tells=self._tell,
        )
        self.runs: dict[str, Run] = {}
        self.energy_before: dict[str, float] = {}
        self.differences: list[Difference] = []
        self.rows = {row.job_id: row for row in recording.rows}

    def _register(self) -> None:
        for name, written in self.recording.registered_profiles.items():
            place = profile_json.Place(name, name.partition("!")[0], Path())
            raw = msgspec.Raw(json.dumps(written).encode())
            self.profiles[name] = profile_json.parse(raw, name.partition("!")[2], place)
        for job_id, written in self.recording.registered_jobs.items():
            profile = self.profiles.get(profile_json.full_name(job_id.partition("!")[0], written["profile"]))
            walltime = written.get("walltime", -1)
            self.jobs[job_id] = Job(job_id, written["res"], inf if walltime == -1 else walltime, profile=profile)

    def _add_workflow(self, workflow: dax.Workflow) -> None:
        runtimes = {f"{workflow.name}_{task.id}": task.runtime_s for task in workflow.tasks}
        for row in self.recording.rows:
            if row.profile in runtimes:
                profile = Profile(row.profile, Delay(runtimes[row.profile]))
                self.jobs[row.job_id] = Job(row.job_id, len(row.units), row.walltime, profile=profile)

    def run(self) -> list[Difference]:
        """Everything that differs by more than 1e-6 (relative, or absolute for what was rounded to six decimals)."""
        agenda = self.agenda
        for row in self.recording.rows:
            if row.job_id in self.jobs:
                agenda.at(row.started_at, self._start, row)
            else:
                self.differences.append(Difference(row.job_id, "known only to the decider", row.state, None))
        for date, units, pstate in self.recording.pstates:
            if date > 0:
                agenda.at(date, self._change, (units, pstate))
        for date, job_id, text in self.recording.messages:
            # The order costs one message to the server before the job can hear it.
            agenda.at(date + self.platform.route(-1, -1).message_cost(), self._say, (job_id, text))
        agenda.run_until(1e300)
        for job_id in self.runs:
            self.differences.append(Difference(job_id, "never ended", self.rows[job_id].state, None))
        return self.differences

    def _change(self, change: tuple[IdSet, int]) -> None:
        units, pstate = change
        machines = self.physics.machines
        assert machines is not None
        if machines.meters:
            machines.energy_j()
        first = units.first()
        sleeps = machines[first].sleep_states
        if pstate >= 0 and pstate not in sleeps and machines[first].power_state not in sleeps:
            machines.set_pstate(units, pstate)

    def _say(self, message: tuple[str, str]) -> None:
        if message[0] in self.runs:
            self.runs[message[0]].messages.append(message[1])

    def _tell(self, run: Run, message: msgspec.Raw, heard: Any) -> None:
        # The server first hears that the decider is ready again.
        ready = self.platform.route(-1, -1).message_cost()
        cost = self.platform.route(run.units.first(), -1).message_cost() + ready
        self.agenda.at(self.agenda.now + cost, lambda _: heard())

    def _start(self, row: Row) -> None:
        order = self.recording.orders.get(row.job_id, {})
        placement = PLACEMENTS.get((self.recording.name, row.job_id))
        if order.get("mapping"):
            mapping = {int(key): int(value) for key, value in order["mapping"].items()}
            placement = Placement(mapping=tuple(mapping[i] for i in range(len(mapping))))
        run = Run(self.jobs[row.job_id], row.units, self.agenda.now, placement)
        run.storage = {label: int(number) for label, number in order.get("storage_mapping", {}).items()}
        self.runs[row.job_id] = run
        machines = self.physics.machines
        if machines is not None:
            machines.occupy(row.units, row.job_id, self.agenda.now)
            if machines.meters:
                machines.energy_j()
                self.energy_before[row.job_id] = machines.energy_j(row.units)
        self.physics.start(run)
        if row.state == BATSIM[JobState.KILLED]:
            # Half of the last decimal earlier: what was killed had not ended by itself at the same date.
            self.agenda.at(row.started_at + row.seconds - 5e-7, self._kill, run)

    def _kill(self, run: Run) -> None:
        if run.job.id in self.runs:
            self.physics.kill(run)
            self._ended(run, JobState.KILLED, run.kill_code)

    def _ended(self, run: Run, state: JobState, return_code: int) -> None:
        del self.runs[run.job.id]
        row = self.rows[run.job.id]
        seconds = self.agenda.now - run.started_at or SHORTEST_RUN_S
        machines = self.physics.machines
        if machines is not None:
            machines.release(run.units, run.job.id, self.agenda.now)
        if BATSIM[state] != row.state:
            self.differences.append(Difference(row.job_id, "final state", row.state, BATSIM[state]))
        elif abs(seconds - row.seconds) > max(1.1e-6, 1e-6 * row.seconds, 4e-16 * row.started_at):
            self.differences.append(Difference(row.job_id, "execution time", row.seconds, seconds))
        if self.recording.has_energy:
            assert machines is not None
            machines.energy_j()
            energy = machines.energy_j(run.units) - self.energy_before[row.job_id]
            # Dates are rounded to a microsecond; so is the energy of that time at full power.
            slack = 1e-6 * machines.meters[0].range(0).full * len(run.units)
            if abs(energy - row.energy_j) > max(1e-6 * row.energy_j, slack):
                self.differences.append(Difference(row.job_id, "energy", row.energy_j, energy))
