"""The book of the Slurm world: what jobs hold or were ordered to, and the commands that follow.

In: jobs, the units that a decider chose for them, and what Slurm says that they were given. Out: events for the decider,
commands for Slurm. An order that another job has made impossible is taken back. steering.py decides what follows from looks.
"""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.formats import slurm_fields as fields
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Shape
from pilothouse.worlds.slurm import commands, records
from pilothouse.worlds.slurm.commands import Command, Mark
from pilothouse.worlds.slurm.inventory import Inventory
from pilothouse.worlds.slurm.look import JobRow
from pilothouse.worlds.slurm.records import Part, Request
from pilothouse.worlds.slurm.tracked import Belief, Seen, Tracked

RETRY_S = 1.0
"""A command that Slurm refused is not repeated earlier."""
MOST_WARNINGS = 1000


class Pair(msgspec.Struct, frozen=True):
    """Users submit into `queue`, which is DOWN; jobs that are to start are moved into `go`, over the same nodes."""

    queue: str = "queue"
    go: str = "go"


class Sent(msgspec.Struct, frozen=True):
    """A command that was not answered yet."""

    job_id: str
    line: str
    tries: int


class Book:
    """The jobs of one pair of partitions. `events` collects what the decider has to be told, `commands` what Slurm has to do."""

    def __init__(self, pair: Pair, inventory: Inventory) -> None:
        self.pair = pair
        self.inventory = inventory
        self.jobs: dict[str, Tracked] = {}
        self.events: list[e.Event] = []
        self.commands: list[Command] = []
        self.warnings: list[str] = []
        self._sent: dict[int, Sent] = {}
        """Commands that were not answered yet."""
        self._asked: dict[int, str] = {}
        """Questions about jobs that were not answered yet: number -> job id."""
        self._number = 0
        self._orders: set[str] = set()
        """Jobs that were ordered to start, and some that no longer are."""
        self._short: set[str] = set()
        """Jobs that hold more than is booked for them: orders are in the way."""
        self._again: set[str] = set()
        """Held jobs that may become ready without a change of their line."""

    # ---- what jobs hold

    def _is_ours(self, row: JobRow) -> bool:
        return self.pair.queue in row.partitions or self.pair.go in row.partitions

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

    def _planned_evenly(self, tracked: Tracked, held: JobRow) -> dict[str, Part]:
        request = tracked.request
        if request is None:
            return self.inventory.parts(held, {})
        return dict.fromkeys(held.node_names, request.share(max(1, len(held.node_names))))

    def _give_back(self, tracked: Tracked) -> IdSet:
        units = tracked.units
        self.inventory.give_back(tracked.id, units, tracked.parts)
        tracked.units, tracked.parts, tracked.node_names = IdSet(), {}, ()
        return units

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

    def _missing_gres(self, tracked: Tracked) -> str:
        """GRES that the decider does not count: other kinds than GPUs, and GPUs of nodes that have several types. Such a job
        may go to the nodes that have them free now."""
        wish, inventory = tracked.wish, self.inventory
        assert wish is not None
        share, nodes = wish.share, wish.allowed or tuple(inventory.rows)
        if not inventory.by_cpu or all(name.partition(":")[0] == "gpu" for name in share.gres):
            kinds = (sum(kind.startswith("gpu") for kind in inventory.rows[name].gres) for name in nodes)
            if not inventory.by_cpu or not share.gres or max(kinds, default=0) <= 1:
                return ""
        part = Part(0, 0, share.gres)
        able = tuple(name for name in nodes if not inventory.shortage({name: part}))
        if len(able) >= max(1, wish.nodes):
            tracked.wish = msgspec.structs.replace(wish, allowed=able)
            return ""
        wanted = ", ".join(f"{name}:{number}" for name, number in share.gres.items())
        return f"it needs {wanted} on {max(1, wish.nodes)} nodes, and {len(able)} have it free"

    # ---- orders

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
        exact = wish.exact_cpus(request, [part.cpus for part in parts.values()]) if inventory.by_cpu else 0
        if exact is None:
            tracked.evenly, missing = True, "Slurm gives tasks of several CPUs too few where they are spread unevenly"
        elif missing:
            tracked.offer_from = now + RETRY_S
        if missing:
            tracked.belief, tracked.job, tracked.note = Belief.HELD, None, missing
            self.events += [e.JobRequeued(now, tracked.id, missing), e.JobWithdrawn(now, tracked.id)]
            self._again.add(tracked.id)
            return
        tracked.belief, tracked.units, tracked.parts, tracked.node_names = Belief.ORDERED, units, parts, tuple(parts)
        inventory.take(tracked.id, units, parts)
        self._orders.add(tracked.id)
        count = tracked.ordered_nodes = len(parts)
        mark = self.mark_of(tracked)
        # Numbers of nodes are fixed, except for jobs that overcommit: Slurm would forget that they do.
        if not request.overcommits and (request.nodes, request.most_nodes) != (count, count):
            most = request.most_nodes or len(inventory.rows)
            mark = msgspec.structs.replace(mark, node_range=f"{request.nodes}-{most}")
        if exact:
            mark = msgspec.structs.replace(mark, cpus_per_node=str(max(1, request.cpus_per_node)))
        tracked.mark = mark
        self.send(tracked, commands.start(tracked.id, self.pair.go, tracked.node_names, mark, exact or 0))

    def do_take_back(self, now: float, tracked: Tracked, seen: Seen) -> None:
        """Its units stay taken until it is seen in the queue."""
        tracked.belief = Belief.RETURNING
        mark = tracked.mark or Mark(tracked.submitted_at)
        later = tracked.row.begins_at is not None and tracked.row.begins_at > now
        self.send(tracked, commands.take_back(tracked.id, self.pair.queue, mark, starts_later=later))

    def _check_orders(self, now: float) -> None:
        """Takes back at once what can no longer be met: another scheduler was quicker."""
        known = (self.jobs.get(job_id) for job_id in self._orders)
        ordered = [tracked for tracked in known if tracked is not None and tracked.belief is Belief.ORDERED]
        self._orders = {tracked.id for tracked in ordered}
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

    # ---- commands and events

    def _ask(self, tracked: Tracked) -> None:
        """Asks for the whole request, or for what a running job was given."""
        if tracked.id not in self._asked.values():
            self.send(None, commands.show(tracked.id))
            del self._sent[self._number]
            self._asked[self._number] = tracked.id

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

    def send(self, tracked: Tracked | None, line: str = "", program: tuple[str, ...] = (), tries: int = 0) -> None:
        self._number += 1
        self.commands.append(Command(self._number, line, program))
        if line:
            self._sent[self._number] = Sent(tracked.id if tracked is not None else "", line, tries)
        if tracked is not None and line:
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
