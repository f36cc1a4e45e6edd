"""Forecasts: the tasks that are left of a run, simulated many times with lengths that are drawn anew each time.

In: a RunStart (a task file before its run, or a run in its middle), how long tasks take, a policy. Out: a `Forecast` with
quantiles. One simulation is one World with the policy that decides in the run; they differ in how long tasks take, and in
nothing else. Forecasts with the same seed draw the same lengths, so that two policies can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random

import msgspec

from pilothouse.campaign.durations import Draw, GivenDurations, LearnedDurations
from pilothouse.campaign.run_ahead import run_ahead
from pilothouse.campaign.task_world import TaskTimes, TaskWorld
from pilothouse.formats.task_file import LineKind
from pilothouse.model.errors import InputError
from pilothouse.model.job import Node
from pilothouse.policies.base import Policy
from pilothouse.worlds.live.task_feed import RunStart

LEAST_SAMPLES = 20
MOST_SAMPLES = 200
ENOUGH_TASKS = 20_000
"""Fewer simulations are made of more tasks, down to LEAST_SAMPLES."""
LOW, HIGH = 0.05, 0.95
MOST_NODES = 100_000

Durations = GivenDurations | LearnedDurations


class Quantiles(msgspec.Struct, frozen=True):
    """Nine in ten outcomes lie between `low` and `high`; half of them below `median`."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Quantiles:
        known = sorted(values)
        return cls(*(quantile(known, share) for share in (LOW, 0.5, HIGH)))


def quantile(values: Sequence[float], share: float) -> float:
    """Of sorted values: a further one lies below with this probability. With few values it is the least or the largest."""
    place = share * (len(values) + 1) - 1
    below = min(max(int(place), 0), len(values) - 1)
    above = min(below + 1, len(values) - 1)
    part = min(max(place - below, 0.0), 1.0)
    return values[below] + part * (values[above] - values[below])


class Phase(msgspec.Struct, frozen=True):
    """The tasks between two barriers, and when they are done."""

    tasks: int
    ends: Quantiles


class Forecast(msgspec.Struct, frozen=True):
    """When the tasks are done, in seconds from the beginning of the simulation."""

    units: int
    tasks: int
    samples: int
    seconds: Quantiles
    phases: tuple[Phase, ...]
    utilisation: float
    """Busy slot-seconds over all slot-seconds, on average."""
    outcomes: tuple[float, ...]
    """The end in each simulation."""

    def chance(self, within_s: float) -> float:
        """The share of simulations that are done by then."""
        return sum(end <= within_s for end in self.outcomes) / len(self.outcomes)


class Outcome(msgspec.Struct, frozen=True):
    """One simulation."""

    times: list[TaskTimes]
    ended_at: float


def simulate(start: RunStart, seconds: Draw, policy: Policy, wanted: Collection[str] = ()) -> Outcome:
    """Runs to the end, or until these tasks have ended. Raises InputError if a task can never start."""
    times: list[TaskTimes] = []
    missing = set(wanted)

    def told(task: TaskTimes) -> None:
        times.append(task)
        missing.discard(task.name)

    world = TaskWorld(start, seconds, told)
    outcome = run_ahead(world, policy, (lambda reply: not missing) if wanted else None)
    if wanted and not missing:
        return Outcome(times, max(task.ended_at for task in times))
    if world.refused:
        task, why = world.refused[0]
        where = f"task {task.task_id} (line {task.line_number})" if task.line_number else "a job"
        raise InputError(where, f"will never start on these nodes: {why}")
    if outcome.waiting:
        raise InputError(f"job {outcome.waiting[0]}", f"will never start on these nodes; {len(outcome.waiting):,} jobs wait")
    return Outcome(times, max((task.ended_at for task in times), default=0.0))


def forecast(
    start: RunStart,
    durations: Durations,
    policy: Callable[[], Policy],
    *,
    samples: int = 0,
    seed: int = 0,
) -> Forecast:
    """`samples` 0: as many as are quick."""
    tasks = sum(line.kind is LineKind.TASK and line.task_id not in start.failed for line in start.lines) + len(start.jobs)
    count = samples or max(LEAST_SAMPLES, min(MOST_SAMPLES, ENOUGH_TASKS // max(1, tasks)))
    if durations.certain:
        count = 1
    ends: list[float] = []
    phases: dict[int, list[float]] = {}
    sizes: dict[int, int] = {}
    used: list[float] = []
    for number in range(count):
        outcome = simulate(start, durations.draw(Random(f"{seed} {number}")), policy())
        ends.append(outcome.ended_at)
        last: dict[int, float] = {}
        sizes = {}
        for task in outcome.times:
            last[task.age] = max(last.get(task.age, 0.0), task.ended_at)
            sizes[task.age] = sizes.get(task.age, 0) + 1
        for age, ended_at in last.items():
            phases.setdefault(age, []).append(ended_at)
        busy = sum(len(task.units) * (task.ended_at - task.started_at) for task in outcome.times)
        used.append(busy / (start.units * outcome.ended_at) if outcome.ended_at else 0.0)
    return Forecast(
        units=start.units, tasks=tasks, samples=count, seconds=Quantiles.of(ends),
        phases=tuple(Phase(sizes.get(age, 0), Quantiles.of(phases[age])) for age in sorted(phases)),
        utilisation=sum(used) / len(used), outcomes=tuple(ends),
    )  # fmt: skip


def expected_starts(
    start: RunStart,
    durations: Durations,
    policy: Callable[[], Policy],
    names: Collection[str],
    *,
    samples: int = LEAST_SAMPLES,
    seed: int = 0,
) -> dict[str, Quantiles]:
    """When these tasks (their numbers in the file, or ids of jobs) start; 0: they run. Raises InputError if one never starts."""
    dates: dict[str, list[float]] = {name: [] for name in names}
    for number in range(1 if durations.certain else samples):
        for task in simulate(start, durations.draw(Random(f"{seed} {number}")), policy(), names).times:
            if task.name in dates:
                dates[task.name].append(task.started_at)
    return {name: Quantiles.of(found) for name, found in dates.items() if found}


def nodes_needed(
    start_on: Callable[[int], RunStart],
    durations: Durations,
    policy: Callable[[], Policy],
    within_s: float,
    most: int,
    *,
    least: int = 1,
    samples: int = 0,
) -> tuple[int, Forecast] | None:
    """The least number of nodes with which 95 of 100 simulations are done in time, and their forecast; None: not with `most`.

    More nodes are taken to be never slower: the search halves the range."""

    def on(nodes: int) -> Forecast | None:
        try:
            found = forecast(start_on(nodes), durations, policy, samples=samples)
        except InputError:
            return None  # so few nodes do not hold the largest task
        return found if found.seconds.high <= within_s else None

    best, answer = most, forecast(start_on(most), durations, policy, samples=samples)
    if answer.seconds.high > within_s:
        return None
    while least < best:
        middle = (least + best) // 2
        found = on(middle)
        if found is None:
            least = middle + 1
        else:
            best, answer = middle, found
    return best, answer


def nodes_of(count: int, slots: int, gpus: int = 0, memory_mb: int = 0) -> tuple[Node, ...]:
    """So many equal nodes."""
    return tuple(Node(f"n{i}", i * slots, slots, gpus=gpus, memory_mb=memory_mb, cores=slots) for i in range(count))
