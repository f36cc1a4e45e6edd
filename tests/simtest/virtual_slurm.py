"""A slurmctld on virtual time: two partitions, nodes, jobs, one scheduling pass a second. It is a Link of the Slurm world.

It prints what squeue and sinfo print, takes the lines that scontrol takes, and keeps a list of what a steering program must
never do (`wrongs`). With a `Random` it loses looks, delivers them late, refuses orders, and lets users and nodes misbehave.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from datetime import datetime
from math import inf
from random import Random

import msgspec

from pilothouse.formats.slurm_resources import Reservation
from pilothouse.worlds.slurm.commands import Command
from pilothouse.worlds.slurm.link import Answer, Asked, Facts, Heard, LookFailed
from pilothouse.worlds.slurm.look import SEPARATOR, JobReader, Look, read_nodes

START = 1_800_000_000.0
TICK_S = 1.0
REQUEUE_DELAY_S = 121.0
MIN_JOB_AGE_S = 30.0
"""Ended jobs are listed so long."""


class Killed(Exception):
    """kill -9 of the steering program."""


class VirtualJob(msgspec.Struct):
    id: str
    nodes: int
    run_s: float
    limit_s: float
    priority: int
    submitted_at: float
    partition: str = "queue"
    state: str = "PENDING"
    after: str = ""
    begins_at: float | None = None
    held: bool = False
    wanted: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    note: str = ""
    runs: int = 0
    ended_at: float = 0.0
    most_elements: int = 0
    late: bool = False
    """It was ordered by a command of a steering program that is no more."""
    reason: str = "None"


class VirtualSlurm:
    """`rng` None: nothing goes wrong."""

    def __init__(self, nodes: int, rng: Random | None = None) -> None:
        self.t = START
        self.rng = rng
        self.names = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.down: set[str] = set()
        self.jobs: dict[str, VirtualJob] = {}
        self.jobs_planned: list[str] = []
        self.wrongs: list[str] = []
        self.starts: list[str] = []
        self.began: dict[str, float] = {}
        """Job id -> when it started last."""
        self.orders = 0
        self.busy_answers = 0
        """So many commands are answered that the job is being looked at."""
        self.reservations: list[Reservation] = []
        self.away_until = -inf
        """slurmctld does not answer before."""
        self.kill_at = inf
        self.latest = inf
        """When every job must have ended."""
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._heard: list[Heard] = []
        self._reader = JobReader()
        self._looking = False
        self._last_sent = START
        self._session = 0
        self.at(START + TICK_S, self._tick)

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._count), act))

    # ---- what users and administrators do

    def submit(self, job: VirtualJob) -> None:
        job.submitted_at = self.t
        job.own = job.wanted
        self.jobs[job.id] = job

    def cancel(self, job_id: str) -> None:
        job = self.jobs[job_id]
        if job.state in ("PENDING", "RUNNING"):
            self._end(job, "CANCELLED")

    def requeue(self, job_id: str) -> None:
        job = self.jobs[job_id]
        if job.state == "RUNNING":
            job.state, job.holds = "PENDING", ()
            job.submitted_at, job.begins_at = self.t, self.t + REQUEUE_DELAY_S
            job.runs += 1

    def _end(self, job: VirtualJob, state: str) -> None:
        job.state, job.holds, job.ended_at = state, (), self.t
        job.runs += 1

    # ---- scheduling

    def _tick(self) -> None:
        self.at(self.t + TICK_S, self._tick)
        if self.t < self.away_until:
            return
        for job in sorted(self.jobs.values(), key=lambda job: -job.priority):
            if job.state == "PENDING" and job.partition == "go":
                self._try(job)

    def _ready(self, job: VirtualJob) -> bool:
        early = job.begins_at is not None and job.begins_at > self.t
        return not job.held and not early and not self._depends(job)

    def _depends(self, job: VirtualJob) -> bool:
        return bool(job.after) and self.jobs[job.after].state in ("PENDING", "RUNNING")

    def _busy(self) -> set[str]:
        return {name for job in self.jobs.values() for name in job.holds}

    def _try(self, job: VirtualJob) -> None:
        if not self._ready(job):
            return
        if len(job.wanted) != job.nodes:
            self.wrongs.append(f"job {job.id} was ordered to {job.wanted} and needs {job.nodes} nodes")
        if self.down & set(job.wanted):
            job.reason = "ReqNodeNotAvail, UnavailableNodes"
        elif self._busy() & set(job.wanted):
            job.reason = "Resources"
        else:
            self._run(job, job.wanted)

    def _run(self, job: VirtualJob, names: tuple[str, ...]) -> None:
        job.state, job.holds, job.reason = "RUNNING", names, "None"
        self.starts.append(job.id)
        self.began[job.id] = self.t
        run = job.runs

        def end() -> None:
            if job.state == "RUNNING" and job.runs == run:
                self._end(job, "COMPLETED")

        self.at(self.t + job.run_s, end)

    def run_elsewhere(self, job: VirtualJob) -> None:
        """A job of another partition takes free nodes."""
        free = [name for name in self.names if name not in self._busy() | self.down]
        if len(free) >= job.nodes:
            job.partition = "main"
            self.submit(job)
            self._run(job, tuple(free[-job.nodes :]))

    # ---- commands

    def _update(self, line: str, late: bool = False) -> str:
        fields = dict(word.partition("=")[::2] for word in line.split()[1:])
        if "partitionname" in fields:
            return ""
        job = self.jobs.get(fields["jobid"])
        if job is None or job.state not in ("PENDING", "RUNNING"):
            return "Invalid job id specified"
        if job.state == "RUNNING":
            return "Job is no longer pending execution"
        if self.busy_answers:
            self.busy_answers -= 1
            return f"Resource temporarily unavailable for job {job.id}"
        if fields.get("partition") == "go" and "reqnodelist" in fields:
            self._order(job, tuple(fields["reqnodelist"].split(",")), late)
        elif fields.get("partition") == "queue":
            job.partition, job.begins_at, job.late = "queue", None, False
            job.wanted = tuple(name for name in fields["reqnodelist"].split(",") if name)
            if job.wanted != job.own:
                self.wrongs.append(f"job {job.id} asked for nodes {job.own} and came back with {job.wanted}")
        job.note = fields.get("admincomment", job.note).strip('"')
        return ""

    def _order(self, job: VirtualJob, names: tuple[str, ...], late: bool) -> None:
        self.orders += 1
        if job.partition != "queue" and not job.late and not late:
            self.wrongs.append(f"job {job.id} was ordered while it was in {job.partition}")
        if job.own and not set(job.own) <= set(names):
            self.wrongs.append(f"job {job.id} asked for {job.own} and was ordered to {names}")
        for other in self.jobs.values():
            taken = other.holds or (other.wanted if other.partition == "go" and other.state == "PENDING" else ())
            told = not (late or job.late or other.late)
            if told and other is not job and other.partition == "go" and set(taken) & set(names):
                self.wrongs.append(f"jobs {other.id} and {job.id} are both on {set(taken) & set(names)}")
        job.partition, job.wanted, job.late = "go", names, late or job.late

    # ---- the link

    def now(self) -> float:
        return self.t

    def facts(self) -> Facts:
        shares = {"OverSubscribe": "EXCLUSIVE"}
        lines = {job.id: self._shown(job) for job in self.jobs.values()}
        return Facts({"queue": {"State": "DOWN", **shares}, "go": {"State": "UP", **shares}}, {}, lines)

    def _shown(self, job: VirtualJob) -> str:
        """As `scontrol show job` prints it."""
        fixed = f"{job.nodes}-{job.nodes}"
        note = f" AdminComment={job.note}" if job.note else ""
        if job.most_elements:
            note += f" ArrayTaskThrottle={job.most_elements}"
        return f"JobId={job.id} JobName=wrap NumNodes={fixed} NumCPUs={job.nodes} NumTasks={job.nodes} CPUs/Task=1{note} Power="

    @property
    def looking(self) -> bool:
        return self._looking

    def ask(self, asked: Asked) -> None:
        self._looking = True
        rng, asked_at = self.rng, self.t
        lost = rng is not None and rng.random() < 0.03
        seen_after = rng.uniform(0.0, 0.02) if rng is not None else 0.01
        late = rng.uniform(0.5, 3.0) if rng is not None and rng.random() < 0.03 else 0.03

        def see() -> None:
            away = lost or self.t < self.away_until
            jobs, nodes = self.squeue(), self.sinfo()

            def deliver() -> None:
                self._looking = False
                if away:
                    self._heard.append(LookFailed("Unable to contact slurm controller"))
                    return
                rows, up = read_nodes(nodes) if asked.nodes else (None, frozenset[str]())
                reserved = list(self.reservations) if asked.reservations else None
                self._heard.append(Look(asked_at, self._reader.read(jobs), rows, reservations=reserved, up=up))

            self.at(self.t + late, deliver)

        self.at(self.t + seen_after, see)

    def send(self, commands: list[Command]) -> None:
        rng = self.rng
        for command in commands:
            for job_id in command.program[1:] if command.program[:1] == ("scancel",) else ():
                self.cancel(job_id)
            if not command.line:
                continue
            delay = rng.uniform(0.001, 0.3) if rng is not None else 0.005
            refused = rng is not None and rng.random() < 0.03

            def arrive(command: Command = command, refused: bool = refused, session: int = self._session) -> None:
                late = session != self._session
                if late and self.rng is not None and self.rng.random() < 0.5:
                    return  # scontrol ended with the program that wrote to it.
                problem = "Unable to contact slurm controller" if refused or self.t < self.away_until else ""
                asked = self.jobs.get(command.line.removeprefix("show job "))
                shown = "" if asked is None else self._shown(asked)
                problem = problem or ("" if shown else self._update(command.line, late))
                if not late:
                    self.at(self.t + 0.002, lambda: self._heard.append(Answer(command.number, problem, "" if problem else shown)))

            # scontrol works on one line after the other.
            self._last_sent = max(self._last_sent, self.t) + delay
            self.at(self._last_sent, arrive)

    def wait(self, until: float) -> list[Heard]:
        assert self.t < self.latest, f"forgotten: {[job for job in self.jobs.values() if job.state == 'PENDING']}"
        while not self._heard:
            if self.t >= self.kill_at:
                self.kill_at = inf
                raise Killed
            when = self._agenda[0][0]
            if until < when:
                self.t = max(self.t, until)
                break
            self._next()
        heard, self._heard = self._heard, []
        return heard

    def _next(self) -> None:
        when, _, act = heapq.heappop(self._agenda)
        self.t = max(self.t, when)
        act()

    def pass_time(self, until: float) -> None:
        """Without a steering program."""
        while self._agenda[0][0] <= until:
            self._next()
        self.t = max(self.t, until)

    def restart(self) -> None:
        """A new steering program: what the old one asked for is not heard any more. Its commands may still arrive."""
        self._session += 1
        self._heard = []
        self._looking = False
        self._agenda = [item for item in self._agenda if ".ask." not in item[2].__qualname__]
        heapq.heapify(self._agenda)

    def claim(self, name: str) -> None:
        """There is one program here at a time."""

    def watch(self, fd: int) -> None:
        """No decider here speaks unasked."""

    def close(self) -> None:
        """Nothing to release."""

    # ---- texts

    def squeue(self) -> str:
        oldest = self.t - MIN_JOB_AGE_S
        shown = (job for job in self.jobs.values() if not job.ended_at or job.ended_at > oldest)
        return "\n".join(map(self._line, shown))

    def _line(self, job: VirtualJob) -> str:
        priority = 0 if job.held else job.priority
        depends = f"afterany:{job.after}(unfulfilled)" if self._depends(job) else "(null)"
        begins = "N/A" if job.begins_at is None else _date(job.begins_at)
        cells = [
            job.id, job.partition, job.state, job.reason, str(priority), str(job.nodes), str(job.nodes),
            f"{int(job.limit_s // 60)}:00", ",".join(job.holds), ",".join(job.wanted), "", _date(job.submitted_at), begins,
            depends, "nobody", "(null)", "N/A", "(null)", "(null)", "NO", "0", "1",
        ]  # fmt: skip
        return SEPARATOR.join(cells)

    def sinfo(self) -> str:
        busy = self._busy()
        lines = []
        for name in self.names:
            state = "drained" if name in self.down else "allocated" if name in busy else "idle"
            for partition, up in (("main*", "up"), ("queue", "down"), ("go", "up")):
                lines.append(SEPARATOR.join([name, partition, state, "4", "2000", "(null)", "(null)", up, "1", "0"]))
        return "\n".join(lines)


def _date(when: float) -> str:
    return datetime.fromtimestamp(when).isoformat(timespec="seconds")
