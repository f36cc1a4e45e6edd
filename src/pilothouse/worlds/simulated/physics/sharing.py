"""How concurrent activities share hosts and links: a fluid model, solved again only where something changed.

A Flow is one parallel task in progress: it uses each of its Constraints (a host's speed in flop/s, a link's bandwidth
in bytes/s) with an amount, its work is 1, and all its amounts progress together at one rate (work per second).
`Fluid` keeps the flows, gives them their rates and tells when each is done.

The default rule is SimGrid's *fair bottleneck* (not textbook max-min; rates differ by up to 81 %). Each round gives
every constraint's remainder in equal shares to its active flows; a flow grows by what its tightest share allows; what
all flows of a constraint took in their last active round is then subtracted, and a constraint with nothing left stops
its flows.

Only flows that are connected through common constraints influence each other, so a change solves its own component
again. A constraint with a single flow matters only if it is that flow's tightest: the others are left out of the
rounds.

A pipe offers all that remains of it to each of its flows, and loses in a round what the slowest of them took: so a flow
may exceed a pipe's capacity when a slower flow is on it too, as in SimGrid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf

from pilothouse.worlds.simulated.physics.agenda import Agenda

try:
    from pilothouse.worlds.simulated.physics import _sharing
except ImportError:
    _compiled_rounds = None
else:
    _compiled_rounds = _sharing.solve_rounds

PRECISION = 1e-5
"""What remains of a constraint below this is nothing (SimGrid's precision of work amounts)."""

WORK_PRECISION = 1e-14
"""A flow with less work than this is done."""

MOST_ROUNDS = 1000
"""A flow on a pipe beside one that stands still would grow for ever, and does in SimGrid. Here it stops."""

COMPILED_FROM = 40
"""With fewer amounts than this in a component the Python rounds are faster than handing arrays to C."""

UNUSED = (inf, 1.0)
"""The private constraint of a flow that has none, and of a slot without a flow."""


class Constraint:
    """A capacity that flows share; a pipe (shared False) gives its whole capacity to each of them."""

    __slots__ = ("_rows", "capacity", "name", "shared", "users")

    def __init__(self, name: str, capacity: float, *, shared: bool = True) -> None:
        self.name = name
        self.capacity = capacity
        self.shared = shared
        self.users: dict[Flow, Use] = {}
        self._rows: list[Row] | None = None

    def rows(self) -> list[Row]:
        """The amounts of its users as the solver takes them, kept until `touch`."""
        if self._rows is None:
            # The last one first: so SimGrid subtracts, and dates depend on it to the last bit.
            self._rows = [(flow.slot, *use) for flow, use in reversed(self.users.items())]
        return self._rows

    def touch(self) -> None:
        """Its users have changed."""
        self._rows = None

    def load(self) -> float:
        """How much of the capacity is in use now, per second."""
        if self.shared:
            return sum(flow.rate * use[0] for flow, use in self.users.items())
        return max((flow.rate * use[0] for flow, use in self.users.items()), default=0.0)

    def __repr__(self) -> str:
        return f"Constraint({self.name}, {self.capacity})"


Use = tuple[float, float, int]
"""The amounts of one flow on one constraint: their sum, the largest, and how many (executors on one host count apart)."""

Row = tuple[int, float, float, int]
"""A Use with the slot of its flow in front."""


class Flow:
    """A parallel task in progress. `bound` caps its rate (a single core's speed; TCP's window over a long route)."""

    __slots__ = (
        "bound", "common", "done", "entry", "hosts", "latency", "network_bound", "place", "private", "rate", "since",
        "slot", "uses", "work",
    )  # fmt: skip

    def __init__(
        self,
        uses: dict[Constraint, Use],
        done: Callable[[Flow], None],
        *,
        bound: float = inf,
        latency: float = 0.0,
    ) -> None:
        self.uses = uses
        self.done = done
        self.bound = bound
        self.network_bound = inf
        self.hosts: Sequence[int] = ()
        """Where its executors are, also those that compute nothing."""
        self.latency = latency
        self.work = 1.0
        self.rate = 0.0
        self.since = 0.0
        self.entry = 0
        self.place = 0
        """In the order in which flows and other entries of the agenda began."""
        self.slot = -1
        """Its number among the flows in progress; given back when it ends."""
        self.common: dict[Constraint, Use] = {}
        self.private: tuple[float, float] | None = None
        """Capacity and amount of the tightest constraint that it has for itself; None: not known at present."""

    def tightest_private(self) -> tuple[float, float]:
        private = self.private
        if private is None:
            best, private = inf, UNUSED
            common = self.common
            for constraint, use in self.uses.items():
                if constraint not in common:
                    capacity = constraint.capacity
                    if capacity < best * use[0]:
                        best = capacity / use[0]
                        private = (capacity, use[0])
            self.private = private
        return private


Solver = Callable[[list[Flow], Collection[Constraint]], None]
"""Sets the rates of flows that are connected; the constraints are those that several of them share."""


class Fluid:
    """All flows in progress. `changing(flows)` is called before their rates change, `ending(flow)` before one ends."""

    def __init__(self, agenda: Agenda, solver: Solver | None = None) -> None:
        self._agenda = agenda
        self._solver = fair_bottleneck if solver is None else solver
        self.changing: Callable[[Iterable[Flow]], None] | None = None
        self.ending: Callable[[Flow], None] | None = None
        self._dirty: dict[Flow, None] = {}
        self._flush_due = False
        self._active: dict[Flow, None] = {}
        self._latent: dict[Flow, None] = {}
        """Flows that wait for their latency."""
        self._contended: dict[Constraint, None] = {}
        self._free_slots: list[int] = []
        self.solves = 0

    def start(self, flow: Flow) -> None:
        """The flow begins now: it first waits for its latency, then progresses. Amounts of zero must be left out of
        `uses`.
        """
        agenda = self._agenda
        flow.since = agenda.now
        flow.place = agenda.place()
        if flow.latency > 0:
            flow.entry = agenda.after(flow.latency, self._activate, flow)
            self._latent[flow] = None
        else:
            self._activate(flow)

    def stop(self, flow: Flow) -> float:
        """Takes the flow out; returns what part of its work was left."""
        left = self.left(flow)
        if flow.entry:
            self._agenda.cancel(flow.entry)
            flow.entry = 0
        if self.ending is not None:
            self.ending(flow)
        self._leave(flow)
        return left

    def left(self, flow: Flow) -> float:
        """What part of the flow's work is left now."""
        return max(0.0, self._agenda.work_left(flow.entry, flow.work, flow.rate, flow.since))

    def set_capacity(
        self, constraint: Constraint, capacity: float, bounds: Callable[[Flow], float] | None = None
    ) -> None:
        """A host changes its speed; `bounds` gives the flows on it their new caps."""
        constraint.capacity = capacity
        for flow in constraint.users:
            flow.private = None
            if bounds is not None:
                flow.bound = bounds(flow)
            self._mark(flow)
        if bounds is not None:
            for flow in self._latent:
                if constraint in flow.uses:
                    flow.bound = bounds(flow)

    @property
    def busy(self) -> bool:
        """Whether anything is in progress."""
        return bool(self._active)

    def settle(self) -> None:
        """Gives all flows their rates now, for those who must read them before the agenda goes on."""
        if self._dirty:
            self._solve_dirty()

    def _activate(self, flow: Flow) -> None:
        flow.entry = 0
        flow.since = self._agenda.now
        self._latent.pop(flow, None)
        if not flow.uses:  # Nothing to share: over at once, unless something else bounds it.
            flow.rate = flow.bound
            flow.entry = self._agenda.work(1.0, flow.bound, self._finish, flow, place=flow.place)
            return
        flow.slot = self._free_slots.pop() if self._free_slots else len(self._active)
        self._active[flow] = None
        common, contended = flow.common, self._contended
        for constraint, use in flow.uses.items():
            users = constraint.users
            if users:
                common[constraint] = use
                constraint.touch()
                if len(users) == 1:
                    contended[constraint] = None
                    for other, its_use in users.items():
                        other.common[constraint] = its_use
                        other.private = None
            elif use[2] > 1:  # Several executors of one flow on a host: takes part in the rounds.
                common[constraint] = use
                constraint.touch()
                contended[constraint] = None
            users[flow] = use
        self._mark(flow)

    def _leave(self, flow: Flow) -> None:
        self._dirty.pop(flow, None)
        self._latent.pop(flow, None)
        if flow not in self._active:
            return
        del self._active[flow]
        self._free_slots.append(flow.slot)
        for constraint in flow.uses:
            del constraint.users[flow]
        contended = self._contended
        for constraint in flow.common:
            users = constraint.users
            constraint.touch()
            if len(users) == 1:
                for other, use in users.items():
                    if use[2] == 1:
                        del other.common[constraint], contended[constraint]
                        other.private = None
                    self._mark(other)
            elif users:
                self._mark(next(iter(users)))
            else:
                del contended[constraint]
        flow.common.clear()
        flow.rate = 0.0

    def _mark(self, flow: Flow) -> None:
        self._dirty[flow] = None
        if not self._flush_due:
            self._flush_due = True
            self._agenda.soon(self._flush)

    def _flush(self, _: object) -> None:
        self._flush_due = False
        if self._dirty:
            self._solve_dirty()

    def _solve_dirty(self) -> None:
        dirty = self._dirty
        while dirty:
            first = next(iter(dirty))
            if any(len(constraint.users) == len(self._active) for constraint in first.common):
                component, constraints = list(self._active), self._contended  # All meet there: no need to look.
                dirty.clear()
            else:
                component, constraints = _component(first)
                for flow in component:
                    dirty.pop(flow, None)
            self._solve(component, constraints)

    def _solve(self, component: list[Flow], constraints: Collection[Constraint]) -> None:
        self.solves += 1
        now, agenda = self._agenda.now, self._agenda
        if self.changing is not None:
            self.changing(component)
        before = [flow.rate for flow in component]
        self._solver(component, constraints)
        for flow, old in zip(component, before, strict=True):
            rate = flow.rate
            if rate != old or not flow.entry:
                flow.work = agenda.work_left(flow.entry, flow.work, old, flow.since)
                if flow.work < WORK_PRECISION:
                    flow.work = 0.0
                flow.since = now
                if flow.entry:
                    agenda.cancel(flow.entry)
                flow.entry = agenda.work(flow.work, rate, self._finish, flow, place=flow.place) if rate > 0 else 0

    def _finish(self, flow: Flow) -> None:
        flow.entry = 0
        if self.ending is not None:
            self.ending(flow)
        self._leave(flow)
        flow.work = 0.0
        flow.done(flow)


def _component(flow: Flow) -> tuple[list[Flow], dict[Constraint, None]]:
    """The flow and all that are connected with it through common constraints, and these constraints."""
    found = {flow: None}
    seen: dict[Constraint, None] = {}
    queue = [flow]
    for one in queue:
        for constraint in one.common:
            if constraint not in seen:
                seen[constraint] = None
                for other in constraint.users:
                    if other not in found:
                        found[other] = None
                        queue.append(other)
    return queue, seen


def fair_bottleneck(flows: list[Flow], constraints: Collection[Constraint]) -> None:
    """SimGrid's rule."""
    if not constraints:
        assert len(flows) == 1
        flow = flows[0]
        capacity, amount = flow.tightest_private()
        flow.rate = min(capacity / amount, flow.bound)
        return
    capacities = [constraint.capacity for constraint in constraints]
    members = [constraint.rows() for constraint in constraints]
    pipes = [not constraint.shared for constraint in constraints]
    slots = max(flow.slot for flow in flows) + 1
    private, bounds = [UNUSED] * slots, [0.0] * slots
    for flow in flows:
        private[flow.slot] = flow.tightest_private()
        bounds[flow.slot] = flow.bound
    if _compiled_rounds is not None and (len(members) >= COMPILED_FROM or sum(map(len, members)) >= COMPILED_FROM):
        rates = _compiled_rounds(private, bounds, capacities, members, pipes, PRECISION)
    else:
        rates = solve_rounds(private, bounds, capacities, members, pipes, PRECISION)
    for flow in flows:
        flow.rate = rates[flow.slot]


def solve_rounds(
    private: list[tuple[float, float]],
    bounds: list[float],
    capacities: list[float],
    members: list[list[Row]],
    pipes: list[bool],
    precision: float,
) -> list[float]:
    """The rounds of the fair bottleneck over plain numbers; the C twin does the same.

    `private[slot]`: capacity and amount of a constraint that the flow has for itself; `bounds[slot]`: its highest rate (0
    where there is no flow). `members[c]`: (slot, sum, largest, count) of the amounts on constraint c; `pipes[c]`: whether it is
    a pipe.
    """
    count = len(private)
    rates = [0.0] * count
    growth = [0.0] * count
    active = [True] * count
    left = [capacity for capacity, _ in private]
    remaining = list(capacities)
    of_flow: list[list[tuple[int, float]]] = [[] for _ in private]
    for number, uses in enumerate(members):
        for flow, _, largest, _ in uses:
            of_flow[flow].append((number, largest))
    share = [0.0] * len(members)
    in_play = list(range(len(members)))
    running = list(range(count))
    rounds = 0
    while running and rounds < MOST_ROUNDS:
        rounds += 1
        kept = []
        for number in in_play:
            users = 0
            for flow, _, _, times in members[number]:
                if active[flow]:
                    users += times
            if users:
                share[number] = remaining[number] / (1 if pipes[number] else users)
                kept.append(number)
            else:
                share[number] = 0.0
        in_play = kept
        for flow in running:
            step = left[flow] / private[flow][1]
            for number, largest in of_flow[flow]:
                step = min(step, share[number] / largest)
            rate = rates[flow]
            step = min(step, bounds[flow] - rate)
            growth[flow] = step
            rates[flow] = rate + step
            if rates[flow] == bounds[flow]:
                active[flow] = False
            rest = left[flow] - private[flow][1] * step
            if rest < precision:
                rest = 0.0
                active[flow] = False
            left[flow] = rest
        kept = []
        for number in in_play:
            rest = remaining[number]
            # QUIRK: also of flows that are no longer active, with their last growth; SimGrid does so, and dates depend
            # on it (tests/golden/test_physics.py).
            taken = [amount * growth[flow] for flow, amount, _, _ in members[number]]
            for amount in [min(share[number], *taken)] if pipes[number] else taken:
                rest -= amount
                if rest < precision:
                    rest = 0.0
            remaining[number] = rest
            if rest > 0.0:
                kept.append(number)
            else:
                for flow, _, _, _ in members[number]:
                    active[flow] = False
        in_play = kept
        running = [flow for flow in running if active[flow]]
    return rates


def max_min(flows: list[Flow], shared: Collection[Constraint]) -> None:
    """Textbook max-min fairness of rates: all grow alike until a constraint is full, whose flows then stop."""
    constraints = {constraint: constraint.capacity for constraint in shared}
    for flow in flows:
        flow.rate = 0.0
        for constraint in flow.uses:
            constraints[constraint] = constraint.capacity
    active = dict.fromkeys(flows)
    while active:
        step = min(flow.bound - flow.rate for flow in active)
        for constraint, rest in constraints.items():
            if constraint.shared:
                load = sum(use[0] for flow, use in constraint.users.items() if flow in active)
            else:
                load = max((use[0] for flow, use in constraint.users.items() if flow in active), default=0.0)
            if load > 0:
                step = min(step, rest / load)
        full: set[Flow] = set()
        for flow in active:
            flow.rate += step
            if flow.rate >= flow.bound:
                full.add(flow)
        for constraint, rest in constraints.items():
            users = [(flow, use[0]) for flow, use in constraint.users.items() if flow in active]
            if not users:
                continue
            taken = step * (sum(amount for _, amount in users) if constraint.shared else max(a for _, a in users))
            rest -= taken
            constraints[constraint] = rest
            if rest <= constraint.capacity * 1e-12:
                constraints[constraint] = 0.0
                full.update(flow for flow, _ in users)
        for flow in full:
            del active[flow]


SOLVERS: dict[str, Solver] = {"fair-bottleneck": fair_bottleneck, "max-min": max_min}
