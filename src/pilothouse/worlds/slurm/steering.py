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
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.slurm import commands, records, requests
from pilothouse.worlds.slurm.commands import Command, Mark
from pilothouse.worlds.slurm.inventory import Inventory
from pilothouse.worlds.slurm.look import JobRow, Look
from pilothouse.worlds.slurm.records import Part, Request
from pilothouse.worlds.slurm.requests import Requests, Wish
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
        self._asked: dict[int, str] = {}
        """Questions about jobs that were not answered yet: number -> job id."""
        self._requests_of_arrays: dict[str, Request] = {}
        self._short: set[str] = set()
        """Jobs that hold more than is booked for them: orders are in the way."""
        self._active: Counter[str] = Counter()
        """Array -> elements that run or were offered."""
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

    def begin(self, now: float, look: Look, lines: dict[str, str]) -> tuple[e.Running, ...]:
        """The first look: the jobs that run or are about to, in the order of the list. Then `observe` the same look.
        `lines`: what scontrol shows of each job."""
        self.inventory.update(look.nodes or [])
        running = []
        for row in look.jobs:
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
        self._hold(now, tracked, self._planned_evenly(tracked, held))

    def _planned_evenly(self, tracked: Tracked, held: JobRow) -> dict[str, Part]:
        request = tracked.request
        if request is None:
            return self.inventory.parts(held, {})
        return dict.fromkeys(held.node_names, request.share(max(1, len(held.node_names))))

    def _hold(self, now: float, tracked: Tracked, given: dict[str, Part]) -> None:
        """Books what a job holds that runs, or will hold (`given`), and tells the decider where it knew something else."""
        row, inventory = tracked.row, self.inventory
        parts = inventory.parts(row, given) if row.holds else {name: given[name] for name in given if name in inventory.nodes}
        whole = not inventory.by_cpu or (row.whole_nodes and not row.holds)
        same = {name: part.cpus for name, part in parts.items()} == {
            name: (tracked.units.mask & inventory.nodes[name].mask).bit_count() for name in tracked.node_names
        }
        before, known = tracked.units, tracked.job is not None
        inventory.give_back(tracked.id, before, tracked.parts)
        units = before if same and before else inventory.pick(parts, whole=whole)
        inventory.take(tracked.id, units, parts)
        tracked.units, tracked.parts, tracked.node_names = units, parts, tuple(parts)
        wanted = sum(inventory.nodes[name].count if whole else part.cpus for name, part in parts.items())
        self._short.discard(tracked.id)
        if len(units) < wanted:
            self._short.add(tracked.id)
        if known and units == before:
            return
        shape = None
        gpus = max((records.gpus_of(part.gres) for part in parts.values()), default=0)
        memory_mb = max((part.memory_mb for part in parts.values()), default=0) if inventory.counts_memory else 0
        if inventory.by_cpu and (gpus or memory_mb):
            shape = Shape(chunk=1, gpus_per_node=gpus, memory_mb_per_node=memory_mb)
        job = Job(tracked.id, len(units), row.limit_s, tracked.submitted_at, priority=row.priority, shape=shape)
        job.user = row.user
        tracked.job = job
        started_at = row.begins_at or now if row.holds else now
        self.events.append(e.JobHolds(now, job, units, started_at))

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
        self._active = Counter(
            tracked.id.partition("_")[0]
            for tracked in self.jobs.values()
            if tracked.request is not None
            and tracked.request.most_elements
            and tracked.belief not in (Belief.HELD, Belief.REFUSED)
        )

    def look_failed(self, now: float) -> None:
        """Slurm did not answer: orders get their time from now on."""
        self._blind_until = now

    def answered(self, now: float, number: int, problem: str, shown: str = "") -> None:
        """A command was carried out, or not: the next look that is asked for shows it. `shown`: a job in detail."""
        if number in self._asked:
            self._learn(now, self._asked.pop(number), shown)
            return
        job_id = self._sent.pop(number, "")
        tracked = self.jobs.get(job_id)
        if problem:
            self.warn(f"job {job_id}: {problem}" if job_id else problem)
        if tracked is not None and tracked.command == number:
            tracked.fresh_from = now + (RETRY_S if problem else 0.0)
            if problem:
                tracked.note = f"Slurm refused a command about it: {problem}"

    def _ask(self, tracked: Tracked) -> None:
        """Asks for the whole request, or for what a running job was given."""
        if tracked.id not in self._asked.values():
            self.send(None, commands.show(tracked.id))
            self._asked[self._number] = tracked.id

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

    def _read(self, tracked: Tracked, line: str) -> Request:
        """The request as it was submitted: what an order has changed of it is in the mark."""
        request = records.read_request(line)
        tracked.mark = mark = commands.read_mark(request.comment)
        if mark is not None and self.pair.go not in tracked.row.partitions:
            mark = None
        if mark is not None and mark.node_range:
            least, _, most = mark.node_range.partition("-")
            nodes, most_nodes = fields.count(least) or 1, fields.count(most) or 0
            request = msgspec.structs.replace(request, nodes=nodes, most_nodes=most_nodes)
        if mark is not None and mark.cpus_per_node:
            request = msgspec.structs.replace(request, cpus_per_node=fields.count(mark.cpus_per_node) or 0)
        tracked.request = request
        return request

    def _check_given(self, tracked: Tracked) -> None:
        """Whether Slurm gave a job at least what it asked for."""
        request, parts = tracked.request, tracked.parts.values()
        if request is None or tracked.belief is Belief.FOREIGN or not self.inventory.by_cpu:
            return
        cpus, gpus = sum(part.cpus for part in parts), sum(records.gpus_of(part.gres) for part in parts)
        wanted = records.gpus_of(request.gres_per_job) or request.tasks * records.gpus_of(request.gres_per_task)
        if cpus < request.cpus or gpus < wanted or len(parts) < request.nodes:
            asked = f"{request.cpus} CPUs on {request.nodes} or more nodes" + (f" with {wanted} GPUs" if wanted else "")
            given = f"{cpus} CPUs on {len(parts)} nodes" + (f" with {gpus} GPUs" if wanted else "")
            self.warn(f"job {tracked.id} asked for {asked}, and Slurm gave it {given}")

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
        tracked.wish = self._wish(now, tracked)
        missing = self._missing_licences(tracked) if row.licences else ""
        missing = missing or self._missing_gres(tracked.wish)
        if tracked.request.most_elements and self._active[array] >= tracked.request.most_elements:
            missing = f"its array may run {tracked.request.most_elements} elements at a time"
        if tracked.offer_from > now or missing:
            tracked.note = missing or "Slurm did not start it where it was ordered to: it is tried again later"
            self._again.add(tracked.id)
            return
        self._active[array] += 1
        self._offers.append(tracked)

    def _wish(self, now: float, tracked: Tracked) -> Wish:
        """What the decider is told that a job asks for."""
        assert tracked.request is not None
        ends = now + tracked.row.limit_s
        reserved = [r for r in self._reservations if r.starts_at < ends and r.ends_at > now]
        least = Part(max(1, tracked.request.cpus_per_node))

        def is_free(name: str) -> bool:
            return not self.inventory.shortage({name: least})

        return self._requests.wish(tracked.row, tracked.request, tracked.row.wanted_nodes, reserved, is_free)

    def _missing_gres(self, wish: Wish) -> str:
        """GRES that the decider does not count: other kinds than GPUs, and types of GPUs."""
        share, inventory = wish.share, self.inventory
        if not share.gres or set(share.gres) == {"gpu"} or not inventory.by_cpu:
            return ""
        part = Part(0, 0, share.gres)
        able = [name for name in wish.allowed or inventory.rows if not inventory.shortage({name: part})]
        if len(able) >= max(1, wish.nodes):
            return ""
        wanted = ", ".join(f"{name}:{number}" for name, number in share.gres.items())
        return f"it needs {wanted} on {max(1, wish.nodes)} nodes, and {len(able)} have it free"

    def _offer_all(self, now: float) -> None:
        """In order of submission, whatever the order of squeue. Not while jobs of the same look are asked for."""
        if self._asked:
            return
        self._offers = [tracked for tracked in self._offers if tracked.belief is Belief.HELD and tracked.id in self.jobs]
        self._offers.sort(key=lambda tracked: (tracked.submitted_at, order_of(tracked.id)))
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
        if _request(row) != _request(before):
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
        if self._before is not None and _request(tracked.row) != _request(self._before):
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

    def mark_of(self, tracked: Tracked) -> Mark:
        """What must not be forgotten of a job that is waiting."""
        comment = "" if tracked.request is None else tracked.request.comment
        known = commands.read_mark(comment)
        return Mark(tracked.submitted_at, tracked.row.wanted_nodes, comment=comment if known is None else known.comment)

    def order(self, now: float, tracked: Tracked, units: IdSet) -> None:
        """The decider starts a waiting job."""
        inventory, request, wish = self.inventory, tracked.request, tracked.wish
        assert request is not None and wish is not None
        per_cpu = request.memory_mb_per_cpu
        parts = inventory.planned(units, wish.share, whole=wish.whole, memory_mb_per_cpu=per_cpu)
        missing = inventory.shortage(parts)
        if missing:
            tracked.belief, tracked.job, tracked.note = Belief.HELD, None, missing
            tracked.offer_from = now + RETRY_S
            self.events += [e.JobRequeued(now, tracked.id, missing), e.JobWithdrawn(now, tracked.id)]
            self._again.add(tracked.id)
            return
        tracked.belief, tracked.units, tracked.parts, tracked.node_names = Belief.ORDERED, units, parts, tuple(parts)
        inventory.take(tracked.id, units, parts)
        count = tracked.ordered_nodes = len(parts)
        mark = self.mark_of(tracked)
        # Numbers of nodes are fixed, except for jobs that overcommit: Slurm would forget that they do.
        if not request.overcommits and (request.nodes, request.most_nodes) != (count, count):
            most = request.most_nodes or len(inventory.rows)
            mark = msgspec.structs.replace(mark, node_range=f"{request.nodes}-{most}")
        exact = wish.exact_cpus(request, count) if inventory.by_cpu else 0
        if exact:
            mark = msgspec.structs.replace(mark, cpus_per_node=str(max(1, request.cpus_per_node)))
        tracked.mark = mark
        self.send(tracked, commands.start(tracked.id, self.pair.go, tracked.node_names, mark, exact))

    def _check_orders(self, now: float) -> None:
        """Takes back at once what can no longer be met: another scheduler was quicker."""
        ordered = [tracked for tracked in self.jobs.values() if tracked.belief is Belief.ORDERED]
        ordered.sort(key=lambda tracked: tracked.command)
        later = {tracked.id for tracked in ordered}
        for tracked in ordered:
            missing = self.inventory.shortages(tracked.parts, without=later)
            if not missing:
                later.discard(tracked.id)
                continue
            tracked.note = f"another job was quicker: {next(iter(missing.values()))}"
            self._lose_nodes(now, tracked, frozenset(missing))
        for tracked in ordered:
            if len(tracked.parts) < tracked.ordered_nodes and tracked.fresh_from <= now:
                self.do_take_back(now, tracked, Seen.ORDERED)
        for job_id in self._short.copy():
            if job_id in self.jobs:
                self._hold(now, self.jobs[job_id], self.jobs[job_id].parts)
            else:
                self._short.discard(job_id)

    def _lose_nodes(self, now: float, tracked: Tracked, names: frozenset[str]) -> None:
        """A job will not get these nodes. The others stay booked until it is seen in the queue again."""
        parts = {name: part for name, part in tracked.parts.items() if name not in names}
        units = self._give_back(tracked)
        kept = IdSet(units.mask & sum(self.inventory.nodes[name].mask for name in parts))
        self.inventory.take(tracked.id, kept, parts)
        tracked.units, tracked.parts, tracked.node_names = kept, parts, tuple(parts)
        if tracked.job is not None:
            self.events.append(e.JobHolds(now, tracked.job, kept, now))

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

    def do_take_back(self, now: float, tracked: Tracked, seen: Seen) -> None:
        """Its units stay taken until it is seen in the queue."""
        tracked.belief = Belief.RETURNING
        mark = tracked.mark or Mark(tracked.submitted_at)
        later = tracked.row.begins_at is not None and tracked.row.begins_at > now
        self.send(tracked, commands.take_back(tracked.id, self.pair.queue, mark, starts_later=later))

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

    def _give_back(self, tracked: Tracked) -> IdSet:
        units = tracked.units
        self.inventory.give_back(tracked.id, units, tracked.parts)
        tracked.units, tracked.parts, tracked.node_names = IdSet(), {}, ()
        return units

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

    def send(self, tracked: Tracked | None, line: str = "", program: tuple[str, ...] = ()) -> None:
        self._number += 1
        self.commands.append(Command(self._number, line, program))
        if tracked is not None and line:
            self._sent[self._number] = tracked.id
            tracked.command, tracked.fresh_from = self._number, inf

    def take_commands(self) -> list[Command]:
        taken, self.commands = self.commands, []
        return taken

    def take_events(self) -> list[e.Event]:
        """What is held is unavailable while the decider is told of one event after the other: a job that it starts because
        of the first must not go to units of which it hears later that they are held."""
        taken, self.events = self.events, []
        held = IdSet()
        for event in taken:
            if isinstance(event, e.JobHolds):
                held = held | event.units
        held = held - IdSet(self.inventory.off)
        if held:
            begins = int(isinstance(taken[0], e.Began))
            taken.insert(begins, e.UnitsUnavailable(taken[0].at, held))
            taken.append(e.UnitsAvailable(taken[-1].at, held))
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
