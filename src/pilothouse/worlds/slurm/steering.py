"""Steers a Slurm: the part of world.SlurmWorld without processes and clock.

In: looks (look.py), answers to commands, decisions. Out: events for the decider, commands for Slurm. What follows from what
is seen of a job is in the table of tracked.py; this file holds the actions. Nothing is kept that Slurm does not know: a new
process that begins with a look goes on where the last one ended.
"""

from __future__ import annotations

from collections import Counter
from math import inf

import msgspec

from pilothouse.core.calls import Calls
from pilothouse.core.kills import PendingKills
from pilothouse.formats import slurm_fields as fields
from pilothouse.formats.slurm_resources import Reservation
from pilothouse.model import events as e
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.slurm import commands, records, requests
from pilothouse.worlds.slurm.book import RETRY_S, Book, Pair
from pilothouse.worlds.slurm.inventory import Inventory
from pilothouse.worlds.slurm.look import JobRow, Look
from pilothouse.worlds.slurm.records import Part, Request
from pilothouse.worlds.slurm.requests import Requests, Wish
from pilothouse.worlds.slurm.tracked import ACTIONS, ENDS, Belief, Seen, Tracked

DEFAULT_PATIENCE_S = 15.0
SOON_S = 1.5
"""Slurm makes a scheduling pass every second: reasons are up to date then."""
TRY_AGAIN = "Resource temporarily unavailable"
MOST_TRIES = 20
FIRST_PAUSE_S = 5.0
MOST_PAUSE_S = 600.0
"""A job whose orders are not taken up is offered again after a pause, doubled each time."""

_HOPELESS = ("BadConstraints", "JobArrayTaskLimit", "PartitionTimeLimit", "PartitionConfig", "PartitionNodeLimit")
_STEADY = frozenset({Belief.WAITING, Belief.RUNNING, Belief.FOREIGN, Belief.REFUSED, Belief.HELD})


class Steering(Book):
    """One pair of partitions."""

    def __init__(self, pair: Pair, inventory: Inventory, requests: Requests, patience_s: float = DEFAULT_PATIENCE_S) -> None:
        super().__init__(pair, inventory)
        self.calls = Calls()
        self.kills = PendingKills()
        self._requests = requests
        self._patience_s = patience_s
        self._requests_of_arrays: dict[str, Request] = {}
        self._limited: set[str] = set()
        """Elements of arrays that may not all run at a time."""
        self._active: Counter[str] = Counter()
        """Array -> elements that run or were offered."""
        self._asked_at = -inf
        self._blind_until = -inf
        self._before: JobRow | None = None
        """The line of the job at hand, as it was in the look before."""
        self._offers: list[Tracked] = []
        self._priorities: dict[str, float] = {}
        self._licences: dict[str, int] = {}
        self._reservations: list[Reservation] = []

    # ---- looks

    def begin(self, now: float, look: Look, lines: dict[str, str]) -> tuple[e.Running, ...]:
        """The first look: the jobs that run or are about to, in the order of the list. Then `observe` the same look.
        `lines`: what scontrol shows of each job."""
        self.inventory.update(look.nodes or [])
        running = []
        for row in sorted(look.jobs, key=lambda row: not row.holds):
            seen = self._seen(now, row)
            if seen in (Seen.OVER, Seen.ELSEWHERE) or (seen is not Seen.RUNS and not self._is_ours(row)):
                continue
            line = records.line_of(lines, row.id)
            tracked = self.jobs[row.id] = Tracked(row.id, row, Belief.HELD, row.submitted_at)
            self._again.add(row.id)
            if line:
                self._read(tracked, line)
            if tracked.mark is not None:
                tracked.submitted_at = min(tracked.mark.submitted_at, row.submitted_at)
            if seen is Seen.RUNS:
                tracked.belief = Belief.RUNNING if self._is_ours(row) else Belief.FOREIGN
                self._hold(now, tracked, records.read_given(line))
            elif seen is Seen.ORDERED:
                self._adopt_order(now, tracked)
            if tracked.units and tracked.job is not None:
                started_at = row.begins_at or now if row.holds else now
                running.append(e.Running(tracked.job, tracked.units, started_at))
        self.events.clear()  # `Begins` says it.
        return tuple(running)

    def _adopt_order(self, now: float, tracked: Tracked) -> None:
        """An earlier process ordered the job to start: Slurm may do so at any moment."""
        row = tracked.row
        if not row.wanted_nodes:
            return  # It was passed on.
        tracked.belief, tracked.fresh_from = Belief.ORDERED, now
        held = msgspec.structs.replace(row, node_names=row.wanted_nodes)
        tracked.ordered_nodes = len(row.wanted_nodes)
        self._orders.add(tracked.id)
        self._hold(now, tracked, self._planned_evenly(tracked, held))

    def observe(self, now: float, look: Look) -> None:
        """Takes note of a look."""
        if look.asked_at < self._asked_at:
            return  # It was overtaken by a later one.
        self._asked_at = look.asked_at
        if look.nodes is not None:
            joined = self.inventory.update(look.nodes)
            if joined:
                self.events.append(e.NodesJoined(now, tuple(joined)))
                for refused in [tracked for tracked in self.jobs.values() if tracked.belief is Belief.REFUSED]:
                    self.do_hold_again(now, refused, Seen.READY)
                    self._again.add(refused.id)
        if look.licences is not None:
            self._licences = look.licences
        if look.reservations is not None:
            changed = bool(self._reservations or look.reservations)
            self._reservations = look.reservations
            self._compare_wishes(now, all_jobs=changed)
        self._tell_units(now)
        self._count_active()
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
        if self._priorities:
            self.events.append(e.PrioritiesChanged(now, self._priorities))
            self._priorities = {}
        self._check_orders(now)
        self._offer_all(now)

    def _count_active(self) -> None:
        self._active.clear()
        for job_id in [job_id for job_id in self._limited if job_id not in self.jobs]:
            self._limited.discard(job_id)
        for job_id in self._limited:
            if self.jobs[job_id].belief not in (Belief.HELD, Belief.REFUSED):
                self._active[job_id.partition("_")[0]] += 1

    def look_failed(self, now: float) -> None:
        """Slurm did not answer: orders get their time from now on."""
        self._blind_until = now

    def answered(self, now: float, number: int, problem: str, shown: str = "") -> None:
        """A command was carried out, or not: the next look that is asked for shows it. `shown`: a job in detail."""
        if number in self._asked:
            self._learn(now, self._asked.pop(number), shown)
            return
        sent = self._sent.pop(number, None)
        job_id = sent.job_id if sent is not None else ""
        tracked = self.jobs.get(job_id)
        if sent is not None and TRY_AGAIN in problem and sent.tries < MOST_TRIES:
            # Slurm 24.11 says so while its scheduler looks at the job.
            self.send(tracked if tracked is not None and tracked.command == number else None, sent.line, tries=sent.tries + 1)
            return
        if problem:
            self.warn(f"job {job_id}: {problem}" if job_id else problem)
        if tracked is not None and tracked.command == number:
            tracked.fresh_from = now + (RETRY_S if problem else 0.0)
            if problem:
                tracked.note = f"Slurm refused a command about it: {problem}"

    def _learn(self, now: float, job_id: str, shown: str) -> None:
        tracked = self.jobs.get(job_id)
        if tracked is not None and shown:
            if tracked.belief in (Belief.RUNNING, Belief.FOREIGN):
                self._hold(now, tracked, records.read_given(shown))
                self._check_given(tracked)
            elif tracked.request is None:
                request = self._read(tracked, shown)
                array, _, element = job_id.partition("_")
                if element and tracked.mark is None:
                    self._requests_of_arrays[array] = request
                if tracked.belief is Belief.HELD and self._seen(now, tracked.row) is Seen.READY:
                    self.do_offer(now, tracked, Seen.READY)
        elif tracked is not None:
            self._again.add(job_id)
        if not self._asked:
            self._requests_of_arrays.clear()
            self._check_orders(now)
            self._offer_all(now)

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
        tracked.note = requests.problem(row)
        if tracked.note:
            return
        if row.reservation:
            self._pass_on(tracked)
            return
        array = tracked.id.partition("_")[0]
        if tracked.request is None:
            tracked.request = self._requests_of_arrays.get(array)
        if tracked.request is None:
            self._ask(tracked)
            return
        reserved = self._reserved(now, row)
        tracked.wish = self._wish(tracked, reserved)
        missing = self._missing_licences(tracked) if row.licences else ""
        missing = missing or self._missing_gres(tracked)
        if reserved and not self._requests.could_hold(tracked.request, tracked.wish):
            names = ", ".join(sorted(reservation.name for reservation in reserved))
            missing = f"nodes that could hold it are reserved before its time limit would end (reservation {names})"
        if tracked.request.most_elements:
            self._limited.add(tracked.id)
            if self._active[array] >= tracked.request.most_elements:
                missing = f"its array may run {tracked.request.most_elements} elements at a time"
        if tracked.offer_from > now or missing:
            tracked.note = missing or "Slurm did not start it where it was ordered to: it is tried again later"
            self._again.add(tracked.id)
            return
        self._active[array] += 1
        self._offers.append(tracked)

    def _reserved(self, now: float, row: JobRow) -> list[Reservation]:
        """The reservations that a job would meet if it started now."""
        ends = now + row.limit_s
        return [r for r in self._reservations if r.starts_at < ends and r.ends_at > now]

    def _compare_wishes(self, now: float, *, all_jobs: bool) -> None:
        """Waiting jobs that may go to other nodes than before are offered anew: because of reservations, or because their
        user named a part of the nodes, and others are free now."""
        waiting = [tracked for tracked in self.jobs.values() if tracked.belief is Belief.WAITING]
        for tracked in waiting if all_jobs else [one for one in waiting if one.row.wanted_nodes or one.row.gres]:
            if tracked.wish != self._wish(tracked, self._reserved(now, tracked.row)):
                self.do_withdraw(now, tracked, Seen.READY)
                self._again.add(tracked.id)

    def _wish(self, tracked: Tracked, reserved: list[Reservation]) -> Wish:
        """What the decider is told that a job asks for."""
        assert tracked.request is not None
        least = Part(max(1, tracked.request.cpus_per_node))

        def is_free(name: str) -> bool:
            return not self.inventory.shortage({name: least})

        row = tracked.row
        return self._requests.wish(row, tracked.request, row.wanted_nodes, reserved, is_free, tracked.evenly)

    def _offer_all(self, now: float) -> None:
        """In order of submission, whatever the order of squeue. Not while jobs of the same look are asked for."""
        if self._asked:
            return
        self._offers = [tracked for tracked in self._offers if tracked.belief is Belief.HELD and tracked.id in self.jobs]
        self._offers.sort(key=lambda tracked: (tracked.submitted_at, tracked.row.number))
        for tracked in self._offers:
            tracked.belief = Belief.WAITING
            tracked.job = self._job(tracked)
            self.events.append(e.JobSubmitted(now, tracked.job))
        self._offers.clear()

    def _job(self, tracked: Tracked) -> Job:
        assert tracked.request is not None and tracked.wish is not None
        return self._requests.job(tracked.row, tracked.request, tracked.wish, tracked.submitted_at)

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
        if row.asks != before.asks:
            self.do_withdraw(now, tracked, Seen.READY)
            tracked.request = None
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
        old = tracked.job
        if self._before is not None and tracked.row.asks != self._before.asks:
            tracked.request = None
        if old is None or tracked.request is None or tracked.row.limit_s != old.walltime:
            tracked.belief, tracked.job = Belief.HELD, None
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
        if len(tracked.parts) < tracked.ordered_nodes:
            pass  # Another job was quicker.
        elif away:
            tracked.note = f"node {away[0]} is {self.inventory.rows[away[0]].state if away[0] in self.inventory.rows else 'gone'}"
        elif (not row.priority or row.depends) and not row.reason.startswith("BadConstraints"):
            tracked.note = "it was held after it had been ordered to start"
        elif waited > self._patience_s or not row.priority or (waited > SOON_S and row.reason.startswith(_HOPELESS)):
            tracked.refusals += 1
            tracked.note = f"Slurm did not start it where it was ordered to ({row.reason})"
            self.warn(f"job {tracked.id} on {','.join(tracked.node_names)}: {tracked.note}; taken back")
        else:
            return
        self.do_take_back(now, tracked, seen)

    def do_launched(self, now: float, tracked: Tracked, seen: Seen) -> None:
        tracked.belief, tracked.refusals, tracked.note = Belief.RUNNING, 0, ""
        if set(tracked.row.node_names) != set(tracked.node_names):
            # A late order of an earlier process, or an administrator.
            self.warn(f"job {tracked.id} was ordered to {tracked.node_names} and runs on {tracked.row.node_names}")
        mark = tracked.mark
        if mark is not None and mark.comment and not (mark.own_nodes or mark.node_range or mark.cpus_per_node):
            self.send(None, program=commands.put_back_comment(tracked.id, mark.comment))
        self.do_compare_running(now, tracked, seen)
        if self.inventory.by_cpu:
            self._ask(tracked)

    def do_compare_running(self, now: float, tracked: Tracked, seen: Seen) -> None:
        row, job = tracked.row, tracked.job
        if job is not None and row.limit_s != job.walltime:
            self.events.append(e.WalltimeChanged(now, tracked.id, row.limit_s))
        wanted = sum(part.cpus for part in tracked.parts.values()) if self.inventory.by_cpu else len(tracked.parts)
        if row.node_names and (set(row.node_names) != set(tracked.node_names) or len(tracked.units) < wanted):
            self._hold(now, tracked, tracked.parts)

    def do_came_back(self, now: float, tracked: Tracked, seen: Seen) -> None:
        """It waits in the queue again: after a requeue, or because its order was not taken up."""
        if tracked.belief is Belief.ORDERED:
            tracked.refusals += 1  # The order itself was lost or refused.
        if tracked.refusals > 1:
            tracked.offer_from = now + min(MOST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (tracked.refusals - 2))
        known, units = tracked.job, self._give_back(tracked)
        tracked.belief, tracked.job = Belief.HELD, None
        if seen is Seen.READY:
            self.do_offer(now, tracked, seen)
        else:
            self._again.add(tracked.id)
        if known is None:
            return
        if tracked not in self._offers:
            self.events += [e.JobRequeued(now, tracked.id, tracked.note), e.JobWithdrawn(now, tracked.id)]
            return
        # It keeps its place in the decider's queue, with its request as it is now.
        self._offers.remove(tracked)
        tracked.belief, tracked.job = Belief.WAITING, self._job(tracked)
        if (tracked.job.units, tracked.job.shape) != (known.units, known.shape):
            self.events.append(e.JobHolds(now, tracked.job, units, now))
        self.events.append(e.JobRequeued(now, tracked.id, tracked.note))

    def do_ended(self, now: float, tracked: Tracked, seen: Seen) -> None:
        row = tracked.row
        state = ENDS.get(row.state, JobState.KILLED if seen is Seen.ELSEWHERE else JobState.SUCCEEDED)
        units = self._give_back(tracked)
        self.do_forget(now, tracked, seen)
        if tracked.job is None:
            return
        reason = row.state if row.over else "no longer listed"
        self.events.append(e.JobEnded(now, tracked.id, state, 0 if state is JobState.SUCCEEDED else 1, units, reason))
        self.events += self.kills.ended(tracked.id, now)

    # ---- jobs that Slurm started itself

    def do_became_foreign(self, now: float, tracked: Tracked, seen: Seen) -> None:
        """Its units are taken at once. What it holds in detail is asked for."""
        tracked.belief, tracked.job = Belief.FOREIGN, None
        self._hold(now, tracked, {})
        if self.inventory.by_cpu and tracked.units:
            self._ask(tracked)

    def do_foreign_came_back(self, now: float, tracked: Tracked, seen: Seen) -> None:
        units = self._give_back(tracked)
        if tracked.job is not None and units:
            self.events.append(e.JobEnded(now, tracked.id, JobState.KILLED, 1, units, "requeued"))
        tracked.belief, tracked.job, tracked.request = Belief.HELD, None, None
        self._act(now, tracked, seen)

    # ---- commands

    @property
    def idle(self) -> bool:
        """No job waits or runs in the pair of partitions."""
        return not any(map(self._is_ours, (tracked.row for tracked in self.jobs.values())))
