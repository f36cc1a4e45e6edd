"""Steers a Slurm: the part of world.SlurmWorld without processes and clock.

In: looks (look.py), answers to commands, decisions. Out: events for the decider, commands for Slurm. What follows from what
is seen of a job is in the table of tracked.py; this file holds the actions. Nothing is kept that Slurm does not know: a new
process that begins with a look goes on where the last one ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import msgspec

from pilothouse.core.calls import Calls
from pilothouse.core.kills import PendingKills
from pilothouse.formats import slurm_fields as fields
from pilothouse.formats.slurm_resources import Reservation
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.slurm import commands, requests
from pilothouse.worlds.slurm.commands import Command
from pilothouse.worlds.slurm.inventory import Inventory
from pilothouse.worlds.slurm.look import JobRow, Look
from pilothouse.worlds.slurm.requests import Requests
from pilothouse.worlds.slurm.tracked import ACTIONS, Belief, Seen, Tracked

DEFAULT_PATIENCE_S = 15.0
SOON_S = 1.5
"""Slurm makes a scheduling pass every second: reasons are up to date then."""
RETRY_S = 1.0
"""A command that Slurm refused is not repeated earlier."""
FIRST_PAUSE_S = 5.0
MOST_PAUSE_S = 600.0
"""A job whose orders are not taken up is offered again after a pause, doubled each time."""
MOST_WARNINGS = 1000

ENDS: dict[str, JobState] = {
    "COMPLETED": JobState.SUCCEEDED,
    "TIMEOUT": JobState.TIMED_OUT,
    "DEADLINE": JobState.TIMED_OUT,
    "CANCELLED": JobState.KILLED,
    "PREEMPTED": JobState.KILLED,
    "REVOKED": JobState.KILLED,
    "NODE_FAIL": JobState.LOST,
    "BOOT_FAIL": JobState.LOST,
    "FAILED": JobState.FAILED,
    "OUT_OF_MEMORY": JobState.FAILED,
}
_HOPELESS = ("BadConstraints", "JobArrayTaskLimit", "PartitionTimeLimit", "PartitionConfig", "PartitionNodeLimit")
_STEADY = frozenset({Belief.WAITING, Belief.RUNNING, Belief.FOREIGN, Belief.REFUSED, Belief.HELD})


class Pair(msgspec.Struct, frozen=True):
    """Users submit into `queue`, which is DOWN; jobs that are to start are moved into `go`, over the same nodes."""

    queue: str = "queue"
    go: str = "go"


class Steering:
    """One pair of partitions. `events` collects what the decider has to be told, `commands` what Slurm has to do."""

    def __init__(self, pair: Pair, inventory: Inventory, requests: Requests, patience_s: float = DEFAULT_PATIENCE_S) -> None:
        self.pair = pair
        self.inventory = inventory
        self.jobs: dict[str, Tracked] = {}
        self.events: list[e.Event] = []
        self.commands: list[Command] = []
        self.warnings: list[str] = []
        self.calls = Calls()
        self.kills = PendingKills()
        self._requests = requests
        self._patience_s = patience_s
        self._sent: dict[int, str] = {}
        """Commands that were not answered yet: number -> job id."""
        self._number = 0
        self._asked_at = -inf
        self._blind_until = -inf
        self._again: set[str] = set()
        """Held jobs that may become ready without a change of their line."""
        self._before: JobRow | None = None
        """The line of the job at hand, as it was in the look before."""
        self._offers: list[Tracked] = []
        self._priorities: dict[str, float] = {}
        self._licences: dict[str, int] = {}
        self._reservations: list[Reservation] = []

    # ---- looks

    def begin(self, now: float, look: Look, notes: Mapping[str, str]) -> tuple[e.Running, ...]:
        """The first look: the jobs that run or are about to, in the order of the list. Then `observe` the same look."""
        self.inventory.update(look.nodes or [])
        running = []
        for row in look.jobs:
            note = notes.get(row.id)
            if note is None and row.state == "PENDING" and self.pair.go not in row.partitions:
                continue  # Most rows.
            mark = None if note is None else commands.read_mark(note)
            seen = self._seen(now, row)
            known = seen in (Seen.RUNS, Seen.ORDERED) or (mark is not None and seen is not Seen.OVER)
            if not known or not self._is_ours(row):
                continue
            tracked = self.jobs[row.id] = Tracked(row.id, row, Belief.HELD, row.submitted_at)
            self._again.add(row.id)
            if mark is not None:
                tracked.submitted_at = min(mark.submitted_at, row.submitted_at)
                tracked.own_nodes = mark.own_nodes
            if seen in (Seen.RUNS, Seen.ORDERED):
                held = row if row.holds else msgspec.structs.replace(row, node_names=row.wanted_nodes)
                job = self._adopt(now, tracked, held)
                if job is not None:
                    started_at = row.begins_at or now if row.holds else now
                    running.append(e.Running(job, tracked.units, started_at))
        return tuple(running)

    def _adopt(self, now: float, tracked: Tracked, held: JobRow) -> Job | None:
        """A job that runs, or that an earlier process ordered to start. None: that order cannot be met."""
        units = self.inventory.units_of(held)
        runs = tracked.row.holds
        wanted = sum(self.inventory.counts(held).values())
        if not units or (not runs and len(units) < wanted):
            if not runs:
                self.do_take_back(now, tracked, Seen.ORDERED)
            return None
        tracked.belief = Belief.RUNNING if runs else Belief.ORDERED
        tracked.units, tracked.node_names, tracked.fresh_from = units, held.node_names, now
        self.inventory.take(units)
        tracked.job = Job(tracked.id, len(units), held.limit_s, tracked.submitted_at, priority=held.priority)
        tracked.job.user = held.user
        return tracked.job

    def observe(self, now: float, look: Look) -> None:
        """Takes note of a look."""
        if look.asked_at < self._asked_at:
            return  # It was overtaken by a later one.
        self._asked_at = look.asked_at
        if look.nodes is not None:
            joined = self.inventory.update(look.nodes)
            if joined:
                self.events.append(e.NodesJoined(now, tuple(joined)))
        if look.licences is not None:
            self._licences = look.licences
        if look.reservations is not None:
            self._reservations = look.reservations
        self._tell_units(now)
        jobs, again, asked_at = self.jobs, self._again, look.asked_at
        gone = dict.fromkeys(jobs)
        for row in look.jobs:
            tracked = jobs.get(row.id)
            if tracked is None:
                if not row.over and (row.holds or self._is_ours(row)):
                    tracked = jobs[row.id] = Tracked(row.id, row, Belief.HELD, row.submitted_at)
                    self._step(now, tracked, row)
                continue
            del gone[row.id]
            if tracked.row is row and tracked.belief in _STEADY and row.id not in again:
                continue
            if asked_at >= tracked.fresh_from:
                self._step(now, tracked, row)
        for job_id in gone:
            tracked = jobs[job_id]
            if asked_at >= tracked.fresh_from:
                self._act(now, tracked, Seen.OVER)
        self._offer_all(now)
        if self._priorities:
            self.events.append(e.PrioritiesChanged(now, self._priorities))
            self._priorities = {}
        self._tell_units(now)

    def look_failed(self, now: float) -> None:
        """Slurm did not answer: orders get their time from now on."""
        self._blind_until = now

    def answered(self, now: float, number: int, problem: str) -> None:
        """A command was carried out, or not: the next look that is asked for shows it."""
        job_id = self._sent.pop(number, "")
        tracked = self.jobs.get(job_id)
        if problem:
            self.warn(f"job {job_id}: {problem}" if job_id else problem)
        if tracked is not None and tracked.command == number:
            tracked.fresh_from = now + (RETRY_S if problem else 0.0)
            if problem:
                tracked.note = f"Slurm refused a command about it: {problem}"

    def _is_ours(self, row: JobRow) -> bool:
        return self.pair.queue in row.partitions or self.pair.go in row.partitions

    def _seen(self, now: float, row: JobRow) -> Seen:
        if row.state != "PENDING":
            if row.over:
                return Seen.OVER
            if row.holds:
                return Seen.RUNS
        if self.pair.go in row.partitions:
            return Seen.ORDERED
        if self.pair.queue not in row.partitions:
            return Seen.ELSEWHERE
        # Reasons are as old as the last scheduling pass: readiness is judged by fields.
        early = row.begins_at is not None and row.begins_at > now
        blocked = row.state != "PENDING" or not row.priority or row.depends or early
        return Seen.BLOCKED if blocked else Seen.READY

    def _step(self, now: float, tracked: Tracked, row: JobRow) -> None:
        self._before, tracked.row = tracked.row, row
        self._again.discard(tracked.id)
        seen = self._seen(now, row)
        if seen is Seen.BLOCKED and row.begins_at is not None and row.begins_at > now:
            self._again.add(tracked.id)
        self._act(now, tracked, seen)

    def _act(self, now: float, tracked: Tracked, seen: Seen) -> None:
        getattr(self, "do_" + ACTIONS[tracked.belief, seen])(now, tracked, seen)

    def _tell_units(self, now: float) -> None:
        came, went = self.inventory.refresh()
        if went:
            self.events.append(e.UnitsUnavailable(now, went))
        if came:
            self.events.append(e.UnitsAvailable(now, came))

    # ---- jobs that wait

    def do_offer(self, now: float, tracked: Tracked, seen: Seen) -> None:
        row = tracked.row
        tracked.own_nodes = row.wanted_nodes
        tracked.note = requests.problem(row, row.wanted_nodes)
        if tracked.note:
            return
        if row.reservation:
            self._pass_on(tracked)
            return
        missing = self._missing_licences(tracked) if row.licences else ""
        if tracked.offer_from > now or missing:
            tracked.note = missing or "Slurm did not start it where it was ordered to: it is tried again later"
            self._again.add(tracked.id)
            return
        self._offers.append(tracked)

    def _offer_all(self, now: float) -> None:
        """In order of submission, whatever the order of squeue."""
        self._offers.sort(key=lambda tracked: (tracked.submitted_at, order_of(tracked.id)))
        for tracked in self._offers:
            tracked.belief = Belief.WAITING
            tracked.job = self._job(now, tracked)
            self.events.append(e.JobSubmitted(now, tracked.job))
        self._offers.clear()

    def _job(self, now: float, tracked: Tracked) -> Job:
        ends = now + tracked.row.limit_s
        reserved = [r for r in self._reservations if r.starts_at < ends and r.ends_at > now]
        return self._requests.job(tracked.row, tracked.submitted_at, tracked.own_nodes, reserved)

    def _pass_on(self, tracked: Tracked) -> None:
        """Jobs in reservations are placed by Slurm itself, on the reserved nodes."""
        tracked.note = f"it waits for reservation {tracked.row.reservation}, whose nodes Slurm gives out itself"
        if not tracked.command:
            self.send(tracked, f"update jobid={tracked.id} partition={self.pair.go}")

    def _missing_licences(self, tracked: Tracked) -> str:
        wanted = fields.amounts(tracked.row.licences)
        for name, number in wanted.items():
            promised = sum(
                fields.amounts(other.row.licences).get(name, 0)
                for other in self.jobs.values()
                if other.belief is Belief.ORDERED and other.row.licences
            )
            free = self._licences.get(name, number) - promised
            if free < number:
                return f"it needs {number} licences of {name}, and {max(0, free)} are free"
        return ""

    @property
    def wants_licences(self) -> bool:
        return any(tracked.row.licences for tracked in self.jobs.values())

    def do_note_block(self, now: float, tracked: Tracked, seen: Seen) -> None:
        row = tracked.row
        if row.depends:
            tracked.note = "it waits for another job"
        elif not row.priority:
            tracked.note = "it is held (scontrol release)"
        elif row.begins_at is not None and row.begins_at > now:
            tracked.note = "its begin time has not come"
        else:
            tracked.note = f"Slurm says {row.state}"

    def do_compare(self, now: float, tracked: Tracked, seen: Seen) -> None:
        """A waiting job whose line has changed."""
        row, before, job = tracked.row, self._before, tracked.job
        assert job is not None and before is not None
        if _request(row) != _request(before):
            self.do_withdraw(now, tracked, Seen.READY)
            self._again.add(tracked.id)
            return
        if row.limit_s != job.walltime:
            self.events.append(e.WalltimeChanged(now, tracked.id, row.limit_s))
        if row.priority != before.priority:
            self._priorities[tracked.id] = row.priority

    def do_withdraw(self, now: float, tracked: Tracked, seen: Seen) -> None:
        tracked.belief, tracked.job = Belief.HELD, None
        self.events.append(e.JobWithdrawn(now, tracked.id))
        if seen is Seen.BLOCKED:
            self.do_note_block(now, tracked, seen)

    def do_withdraw_running(self, now: float, tracked: Tracked, seen: Seen) -> None:
        self.do_withdraw(now, tracked, seen)
        self.do_became_foreign(now, tracked, seen)

    def do_withdraw_forget(self, now: float, tracked: Tracked, seen: Seen) -> None:
        self.do_withdraw(now, tracked, seen)
        self.do_forget(now, tracked, seen)

    def do_offer_if_changed(self, now: float, tracked: Tracked, seen: Seen) -> None:
        job = self._job(now, tracked)
        old = tracked.job
        if old is None or (job.units, job.walltime, job.shape) != (old.units, old.walltime, old.shape):
            self.do_offer(now, tracked, seen)

    def do_hold_again(self, now: float, tracked: Tracked, seen: Seen) -> None:
        tracked.belief, tracked.job = Belief.HELD, None

    def do_nothing(self, now: float, tracked: Tracked, seen: Seen) -> None:
        """Nothing follows."""

    def do_forget(self, now: float, tracked: Tracked, seen: Seen) -> None:
        del self.jobs[tracked.id]
        self._again.discard(tracked.id)

    # ---- jobs that were ordered to start, or run

    def do_check_order(self, now: float, tracked: Tracked, seen: Seen) -> None:
        """An order that Slurm has not taken up yet."""
        row = tracked.row
        waited = now - max(tracked.fresh_from, self._blind_until)
        away = [name for name in tracked.node_names if not self.inventory.usable(name)]
        if away:
            tracked.note = f"node {away[0]} is {self.inventory.rows[away[0]].state if away[0] in self.inventory.rows else 'gone'}"
        elif not row.priority or row.depends:
            tracked.note = "it was held after it had been ordered to start"
        elif waited > self._patience_s or (waited > SOON_S and row.reason.startswith(_HOPELESS)):
            tracked.refusals += 1
            tracked.note = f"Slurm did not start it where it was ordered to ({row.reason})"
            self.warn(f"job {tracked.id} on {','.join(tracked.node_names)}: {tracked.note}; taken back")
        else:
            return
        self.do_take_back(now, tracked, seen)

    def do_take_back(self, now: float, tracked: Tracked, seen: Seen) -> None:
        """Its units stay taken until it is seen in the queue."""
        tracked.belief = Belief.RETURNING
        self.send(tracked, commands.take_back(tracked.id, self.pair.queue, tracked.own_nodes))

    def do_launched(self, now: float, tracked: Tracked, seen: Seen) -> None:
        tracked.belief, tracked.refusals, tracked.note = Belief.RUNNING, 0, ""
        elsewhere = set(tracked.row.node_names) != set(tracked.node_names)
        if elsewhere and tracked.job is not None:
            # A late order of an earlier process, or an administrator: the decider only hears that its units are free again.
            self.warn(f"job {tracked.id} was ordered to {tracked.node_names} and runs on {tracked.row.node_names}")
            self._give_back(tracked, tracked.units)
            self.events += [e.JobRequeued(now, tracked.id, "it runs elsewhere"), e.JobWithdrawn(now, tracked.id)]
        if elsewhere or tracked.job is None:
            self.do_became_foreign(now, tracked, seen)
        else:
            self.do_compare_running(now, tracked, seen)

    def do_compare_running(self, now: float, tracked: Tracked, seen: Seen) -> None:
        row, job = tracked.row, tracked.job
        if job is not None and row.limit_s != job.walltime:
            self.events.append(e.WalltimeChanged(now, tracked.id, row.limit_s))
        left = [name for name in tracked.node_names if name not in row.node_names]
        if left and len(left) < len(tracked.node_names):
            freed = IdSet(sum(self.inventory.nodes[name].mask for name in left)) & tracked.units
            self._give_back(tracked, freed)
            tracked.node_names = tuple(name for name in tracked.node_names if name not in left)
            self.events.append(e.UnitsFreed(now, tracked.id, freed))

    def _give_back(self, tracked: Tracked, units: IdSet) -> None:
        self.inventory.give_back(units)
        tracked.units = tracked.units - units

    def do_came_back(self, now: float, tracked: Tracked, seen: Seen) -> None:
        """It waits in the queue again: after a requeue, or because its order was not taken up."""
        if tracked.belief is Belief.ORDERED:
            tracked.refusals += 1  # The order itself was lost or refused.
        if tracked.refusals > 1:
            tracked.offer_from = now + min(MOST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (tracked.refusals - 2))
        known = tracked.job
        self._give_back(tracked, tracked.units)
        tracked.belief, tracked.node_names = Belief.HELD, ()
        if known is None:
            self._again.add(tracked.id)
            return
        self.events.append(e.JobRequeued(now, tracked.id, tracked.note))
        ready = seen is Seen.READY and tracked.offer_from <= now and not self._missing_licences(tracked)
        if ready:
            tracked.own_nodes = tracked.row.wanted_nodes
            job = self._job(now, tracked)
            if (job.units, job.walltime, job.shape) == (known.units, known.walltime, known.shape):
                tracked.belief = Belief.WAITING
                return
        tracked.job = None
        self.events.append(e.JobWithdrawn(now, tracked.id))
        self._again.add(tracked.id)

    def do_ended(self, now: float, tracked: Tracked, seen: Seen) -> None:
        row = tracked.row
        state = ENDS.get(row.state, JobState.KILLED if seen is Seen.ELSEWHERE else JobState.SUCCEEDED)
        units = tracked.units
        self._give_back(tracked, units)
        self.do_forget(now, tracked, seen)
        if tracked.job is None:
            return
        reason = row.state if row.over else "no longer listed"
        self.events.append(e.JobEnded(now, tracked.id, state, 0 if state is JobState.SUCCEEDED else 1, units, reason))
        self.events += self.kills.ended(tracked.id, now)

    # ---- jobs that Slurm started itself

    def do_became_foreign(self, now: float, tracked: Tracked, seen: Seen) -> None:
        tracked.belief, tracked.job = Belief.FOREIGN, None
        self.inventory.hold(tracked.row)

    def do_hold_units(self, now: float, tracked: Tracked, seen: Seen) -> None:
        self.inventory.hold(tracked.row)

    def do_foreign_came_back(self, now: float, tracked: Tracked, seen: Seen) -> None:
        self.inventory.release(tracked.id)
        tracked.belief = Belief.HELD
        self._act(now, tracked, seen)

    def do_foreign_ended(self, now: float, tracked: Tracked, seen: Seen) -> None:
        self.inventory.release(tracked.id)
        self.do_forget(now, tracked, seen)

    # ---- commands

    def send(self, tracked: Tracked | None, line: str, cancels: tuple[str, ...] = ()) -> None:
        self._number += 1
        self.commands.append(Command(self._number, line, cancels))
        if tracked is not None and line:
            self._sent[self._number] = tracked.id
            tracked.command, tracked.fresh_from = self._number, inf

    def take_commands(self) -> list[Command]:
        taken, self.commands = self.commands, []
        return taken

    def take_events(self) -> list[e.Event]:
        taken, self.events = self.events, []
        return taken

    def warn(self, text: str) -> None:
        if len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(text)

    @property
    def idle(self) -> bool:
        """No job waits or runs in the pair of partitions."""
        return not any(map(self._is_ours, (tracked.row for tracked in self.jobs.values())))


def order_of(job_id: str) -> tuple[int, ...]:
    """`17_3` as numbers."""
    if job_id.isdigit():
        return (int(job_id),)
    return tuple([int(part) for part in job_id.replace("+", "_").split("_") if part.isdigit()])


def _request(row: JobRow) -> tuple[object, ...]:
    return (
        *(row.nodes, row.cpus, row.cpus_per_node, row.memory_mb, row.whole_nodes, row.wanted_nodes, row.excluded_nodes),
        *(row.features, row.gres, row.licences, row.reservation, row.heterogeneous),
    )
