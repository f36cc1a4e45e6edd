"""The tasks of a live run in simulated time: what a driver hands to its decider, on simulated nodes.

In: a `RunStart` (nodes, running tasks, the lines that are left, submitted jobs) and how long each task takes. Out: a World for a
Session; when each task started and ended. Requests, dependencies, barriers, bundles and the number of jobs that the decider
sees at once are those of a live run: feeder and backlog are the driver's own. Tasks succeed, and no engine is lost.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pilothouse.campaign.durations import Draw
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.record import JobRecord
from pilothouse.worlds.live.task_feed import RunningGroup, RunStart, TaskFeed
from pilothouse.worlds.live.wire.messages import Task
from pilothouse.worlds.simulated.world import SimulatedWorld


class TaskTimes(msgspec.Struct, frozen=True, gc=False):
    """When a task started and ended in a simulation; a running one has started at 0."""

    name: str
    """Its number in the file, or the id of a submitted job."""
    line_number: int
    age: int
    """Barriers and per-engine commands before it."""
    started_at: float
    ended_at: float
    units: IdSet
    job: Job
    """As the decider knew it: it may have held other tasks as well."""


class TaskWorld:
    """A simulated world that is fed as a live one."""

    name = "sim"

    def __init__(self, start: RunStart, seconds: Draw, told: Callable[[TaskTimes], None]) -> None:
        self._start = start
        self._seconds = seconds
        self._told = told
        self.refused: list[tuple[Task, str]] = []
        """Tasks that the decider will never start, and why."""
        self._groups: dict[str, list[tuple[Task, float]]] = {}
        """The tasks of each job that has not ended, and how long each takes."""
        self._ages = {line.task_id: line.age for line in start.lines}
        self._feed = TaskFeed(start)
        running = tuple(self._running(group) for group in start.running)
        self._busy = len(running)
        self._waiting = len(start.jobs)
        self._no_more = False
        self._begun = False
        self._now = 0.0
        begins = e.Begins(start.nodes, running=running, config={"world": "live"})
        self._world = SimulatedWorld(begins, [self._submitted(*job) for job in start.jobs], record=self._record)

    # ---- the contract

    def begin(self, wants: d.Wants) -> e.Begins:
        return self._world.begin(wants)

    def advance(self) -> e.Batch | None:
        # As a driver does: what was started leaves room for other jobs, which the decider hears of at once.
        jobs = self._next_jobs(self._now) if self._begun else []
        batch = e.Batch(self._now, []) if jobs else self._world.advance()
        self._begun = True
        if batch is None or (batch.events and type(batch.events[-1]) is e.Ended):
            return batch
        self._now = batch.now
        jobs = jobs or self._next_jobs(batch.now)
        if jobs:
            self._world.apply(d.Reply(batch.now, [d.RegisterJob(batch.now, job) for job in jobs]))
            more = self._world.advance()
            assert more is not None and more.now == batch.now
            batch.events.extend(more.events)
        if not self._no_more and self._feed.nothing_more:
            self._no_more = True
            batch.events.append(e.NoMoreJobs(batch.now))
        return batch

    def apply(self, reply: d.Reply) -> None:
        for decision in reply.decisions:
            if type(decision) is d.StartJob:
                self._busy += 1
                self._waiting -= 1
            elif type(decision) is d.RejectJob:
                self._waiting -= 1
        self._world.apply(reply)

    def watch(self, fd: int) -> None:
        """Simulated time waits for the decider."""

    def close(self) -> None:
        """Nothing is held open."""

    # ---- jobs

    def _next_jobs(self, now: float) -> list[Job]:
        found = self._feed.next_jobs(self._waiting, self._busy, now)
        self._waiting += len(found)
        return [self._job(job, [(task, self._seconds(task, 0.0)) for task in tasks]) for job, tasks in found]

    def _job(self, job: Job, timed: list[tuple[Task, float]], spent_s: float = 0.0, held_s: float = 0.0) -> Job:
        """What the decider is told of a job, and how long it takes from now on. `spent_s`: its first task has run so long."""
        self._groups[job.id] = timed
        seconds = max(0.0, sum(seconds for _, seconds in timed) - spent_s) + self._start.overhead_s
        seconds = min(seconds, max(0.0, job.walltime - held_s))
        profile = Profile(f"{seconds:g}s", Delay(seconds))
        return msgspec.structs.replace(job, profile=profile, runtime=held_s + seconds)

    def _submitted(self, job: Job, task: Task) -> Job:
        return self._job(job, [(task, self._seconds(task, 0.0))])

    def _running(self, group: RunningGroup) -> e.Running:
        timed = [(task, self._seconds(task, 0.0 if number else group.age_s)) for number, task in enumerate(group.tasks)]
        job = self._job(group.job, timed, group.age_s, group.held_s)
        return e.Running(job, group.units, -group.held_s)

    def _record(self, record: JobRecord) -> None:
        timed = self._groups.pop(record.job.id)
        if record.started_at is None:
            self.refused += [(task, record.metadata) for task, _ in timed]
        else:
            self._busy -= 1
        at = max(0.0, record.started_at or 0.0)
        for number, (task, seconds) in enumerate(timed, 1):
            if record.started_at is not None:
                ended_at = record.ended_at if number == len(timed) else at + seconds
                name = str(task.task_id) if task.line_number else record.job.id
                age = self._ages.get(task.task_id, 0)
                self._told(TaskTimes(name, task.line_number, age, at, ended_at, record.units, record.job))
                at = ended_at
            self._feed.ended(task, record.state, seconds)
