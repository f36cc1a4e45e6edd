"""Forecasts by name: of a task file on nodes that need not be there, and of a run that goes on.

In: a task file or the folder of a run, and what the command line says. Out: a FileForecast or a RunForecast. `forecast_run` is
the one function for everything that shows the time that a run has left; it reads the journal and disturbs nothing.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path

import msgspec

from pilothouse.campaign.durations import ASSUMED_DRIFT, ASSUMED_SPREAD, GivenDurations, Key, LearnedDurations, Match
from pilothouse.campaign.forecast import (
    ENOUGH_TASKS,
    LEAST_SAMPLES,
    Durations,
    Forecast,
    Quantiles,
    expected_starts,
    forecast,
    nodes_needed,
    nodes_of,
)
from pilothouse.campaign.run_snapshot import observed_tasks, overhead_s, run_start
from pilothouse.formats.task_file import LineKind, TaskLine
from pilothouse.formats.task_table import check_tasks, read_tasks
from pilothouse.journal.read import read_note
from pilothouse.launch import naming
from pilothouse.launch.run_plan import plan_of
from pilothouse.launch.task_source import digest
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.job import Node
from pilothouse.model.task_request import shape_for
from pilothouse.policies.base import Policy
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.task_feed import RunStart
from pilothouse.worlds.simulated.physics.platform import Platform

MOST_UNKNOWN = 0.1
"""If a larger share of the tasks is unlike any task of the run that they are to be learned from, it is refused."""
LEAST_STARTS = 3
"""Simulations that are made for the start of a task, however many are before it."""
MOST_ADDED = 1 << 16
"""Nodes that a run may be said to need."""
_NODES = re.compile(r"([1-9]\d{0,6})(?:x([1-9]\d{0,6}))?")


class FileForecast(msgspec.Struct, frozen=True):
    """What is to be expected of a task file."""

    forecast: Forecast
    nodes: int
    """Nodes, or the slots of one."""
    notes: tuple[str, ...]
    in_time: bool = True
    """With a date: whether so many nodes are enough."""


class RunForecast(msgspec.Struct, frozen=True):
    """What is to be expected of a run that goes on. Dates are seconds since 1970; `forecast` counts from `now` on."""

    now: float
    forecast: Forecast
    running: int
    """Tasks that run."""
    policy: str
    notes: tuple[str, ...]


class RunNow(msgspec.Struct, frozen=True):
    """A run that goes on, copied for simulations."""

    now: float
    start: RunStart
    durations: LearnedDurations
    notes: list[str]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the tasks of a file ask for, where they do not say it themselves, and what nodes have."""

    units: int = 1
    memory_mb: int = 0
    gpus: int = 0
    walltime: float = inf
    node_memory_mb: int = 0
    node_gpus: int = 0


def forecast_file(
    file: Path,
    nodes: str,
    durations: Sequence[str],
    policy: str,
    asked: Asked,
    *,
    within_s: float = inf,
    samples: int = 0,
) -> FileForecast:
    """`durations`: seconds, several numbers of seconds by comma, or folders of runs. With `within_s`: on as few of the nodes as
    are enough. Raises InputError."""
    make_policy = _policy(policy)
    learned, overhead, notes = _durations(durations)
    check_tasks(file)
    with file.open("rb") as stream:
        lines = list(read_tasks(stream, str(file)))
    notes += _matched(learned, lines, ", ".join(durations))
    options = LiveOptions(
        units=asked.units, shape=shape_for(asked.units, 1, asked.gpus, asked.memory_mb), walltime=asked.walltime
    )

    def start(count: int) -> RunStart:
        return RunStart(
            options=options, nodes=_machine(nodes, asked, count), lines=lines, mean_s=learned.mean_s, overhead_s=overhead
        )

    match = _NODES.fullmatch(nodes)
    most = int(match[1]) if match else 1
    if within_s == inf or match is None:
        found = forecast(start(0), learned, make_policy, samples=samples)
        return FileForecast(found, len(start(0).nodes), tuple(notes), found.seconds.high <= within_s)
    enough = nodes_needed(start, learned, make_policy, within_s, most, samples=samples)
    if enough is None:
        return FileForecast(forecast(start(most), learned, make_policy, samples=samples), most, tuple(notes), in_time=False)
    return FileForecast(enough[1], enough[0], tuple(notes))


def forecast_run(
    folder: Path,
    *,
    policy: str = "",
    add_nodes: int = 0,
    learn_from: Iterable[str] = (),
    samples: int = 0,
) -> RunForecast:
    """The driver's state, as the journal has it, is copied into a simulated world and run ahead under the run's policy.

    `policy` and `add_nodes` (as large as the largest): as if it were otherwise from now on. Raises InputError where nothing can
    be said yet.
    """
    run = run_now(folder, learn_from)
    name, make_policy = policy_of_run(folder, policy, run.notes)
    start = with_nodes(run.start, add_nodes)
    found = forecast(start, run.durations, make_policy, samples=samples)
    return RunForecast(run.now, found, sum(len(group.tasks) for group in start.running), name, tuple(run.notes))


def forecast_start(folder: Path, name: str, ahead: int) -> tuple[float, Quantiles]:
    """Now, and the seconds from now on until a waiting task of a run starts: the same simulations, cut when it has ended.

    `name`: its number in the file, or the id of a job. `ahead`: tasks before it; the more, the fewer simulations are made.
    Raises InputError where nothing can be said."""
    run = run_now(folder)
    _, make_policy = policy_of_run(folder, "", run.notes)
    samples = max(LEAST_STARTS, min(LEAST_SAMPLES, ENOUGH_TASKS // max(1, ahead)))
    found = expected_starts(run.start, run.durations, make_policy, [name], samples=samples)
    if name not in found:
        raise InputError(str(folder), f"{name} has just ended")
    return run.now, found[name]


def nodes_to_add(folder: Path, within_s: float, *, policy: str = "", samples: int = 0) -> tuple[int, Forecast] | None:
    """How many nodes a run needs besides those that it has to be done in time; None: more do not help."""
    run = run_now(folder)
    start = run.start
    _, make_policy = policy_of_run(folder, policy, run.notes)
    most = 1
    while True:
        enough = nodes_needed(
            lambda count: with_nodes(start, count), run.durations, make_policy, within_s, most, least=0, samples=samples
        )
        if enough is not None or most >= min(MOST_ADDED, len(start.lines) + len(start.jobs)):
            return enough
        most *= 4


def with_nodes(start: RunStart, count: int) -> RunStart:
    """The same with more nodes, as large as the largest that it has."""
    if not count:
        return start
    largest = max(start.nodes, key=lambda node: node.count)
    first = max(node.first + node.count for node in start.nodes)
    added = tuple(
        msgspec.structs.replace(largest, name=f"added{i}", first=first + i * largest.count) for i in range(count)
    )
    return msgspec.structs.replace(start, nodes=start.nodes + added)


def run_now(folder: Path, learn_from: Iterable[str] = ()) -> RunNow:
    """Raises InputError where nothing can be said yet."""
    now = time.time()
    observed = [observed_tasks(Path(other)) for other in learn_from] + [observed_tasks(folder, now)]
    learned = LearnedDurations(observed)
    notes: list[str] = []
    options, lines = lines_of_run(folder, notes)
    start = run_start(folder, options, lines, now, learned.mean_s)
    left = start.running or start.jobs or any(line.kind is LineKind.TASK for line in start.lines)
    if left and not start.nodes:
        raise InputError(str(folder), "the run has no engine", hint=f"if it was ended: pilothouse run --resume {folder}")
    if left and learned.mean_s == inf:
        raise InputError(str(folder), "no task has ended yet, so that nothing is known of how long tasks take")
    return RunNow(now, start, learned, notes)


def lines_of_run(folder: Path, notes: list[str]) -> tuple[LiveOptions, list[TaskLine]]:
    """The options of a run, and its task file; of a run of submitted jobs there is none. Raises InputError."""
    noted = read_note(folder, "plan")
    if noted is None:
        if read_note(folder, "total") is not None:
            raise InputError(str(folder), "its journal does not say where its task file is")
        return LiveOptions(), []
    plan = plan_of(folder, noted)
    if plan.digest and plan.digest != digest(Path(plan.source)):
        raise InputError(plan.source, "is not as it was when the run began: nothing can be said about the run")
    if plan.total is None:
        notes.append("its tasks come from a stream: those that are still to come are not known")
    kind, lenient = plan.options.task_format or "", plan.options.lenient
    try:
        with open(plan.source, "rb") as stream:
            return plan.options.live_options({}), list(read_tasks(stream, plan.source, kind=kind, lenient=lenient))
    except OSError as error:
        raise InputError(plan.source, f"cannot read the task file: {error.strerror}") from error


def _policy(name: str) -> Callable[[], Policy]:
    made = naming.policy_maker(name)
    made()  # a mistake is told at once
    return made


def policy_of_folder(name: str, cwd: str) -> Callable[[], Policy]:
    """As a run made it in this folder: a policy of the user's may be named by a path."""

    def make() -> Policy:
        with contextlib.chdir(cwd or "."):
            return naming.policy(name)

    return make


def policy_of_run(folder: Path, given: str, notes: list[str]) -> tuple[str, Callable[[], Policy]]:
    if given:
        return given, _policy(given)
    name = (read_note(folder, "decider") or b"fcfs").decode("utf-8", "replace")
    plan = read_note(folder, "plan")
    make_policy = policy_of_folder(name, plan_of(folder, plan).cwd if plan is not None else "")
    try:
        make_policy()
        return name, make_policy
    except (InputError, OSError):
        notes.append(f"{name} decides in the run and cannot be simulated here: fcfs is taken")
        return "fcfs", _policy("fcfs")


def _durations(given: Sequence[str]) -> tuple[Durations, float, list[str]]:
    """How long tasks take, for how long their jobs hold units besides, and what is to be said about that."""
    folders = [text for text in given if Path(text).is_dir()]
    if not folders:
        if len(given) != 1:
            raise InputError("--duration", "several are for folders of runs", found=quoted(" ".join(given)))
        return GivenDurations([_seconds(part, given[0]) for part in given[0].split(",")]), 0.0, []
    if len(folders) < len(given):
        found = quoted(" ".join(given))
        raise InputError("--duration", "seconds beside folders of runs", expected="one or the other", found=found)
    runs = [observed_tasks(Path(folder)) for folder in folders]
    for folder, tasks in zip(folders, runs, strict=True):
        if not tasks:
            raise InputError(folder, "no task of this run has ended")
    return LearnedDurations(runs), overhead_s(Path(folders[-1])), []


def _seconds(text: str, whole: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < inf:
        raise InputError("--duration", "no duration", expected="seconds, or a run's folder", found=quoted(whole))
    return seconds


def _matched(durations: Durations, lines: Iterable[TaskLine], learned_from: str) -> list[str]:
    """What is to be said about how well the file matches the runs that it is learned from. Raises InputError if it does not."""
    if isinstance(durations, GivenDurations):
        return []
    keys: list[Key] = [(line.command, line.repeat_index) for line in lines if line.kind is LineKind.TASK]
    match: Match = durations.match(keys)
    if match.unknown > MOST_UNKNOWN * match.tasks:
        raise InputError(
            learned_from, f"does not match: {match.unknown:,} of {match.tasks:,} tasks are unlike any task that ran there",
            expected="a run of this file, or of the same programs", hint="--duration SECONDS needs no run",
        )  # fmt: skip
    notes = []
    if match.same and not durations.measured_spread:
        varies = f"{ASSUMED_SPREAD:.0%}, and all together by {ASSUMED_DRIFT:.0%}"
        notes.append(f"the same task is taken to vary by {varies}: two runs would tell (--duration twice)")
    if match.similar:
        notes.append(f"{match.similar:,} tasks are not in {learned_from}: they are taken to be like similar ones")
    if match.unknown:
        notes.append(f"{match.unknown:,} tasks are unlike those of {learned_from}: any of its tasks stands for them")
    return notes


def _machine(text: str, asked: Asked, count: int) -> tuple[Node, ...]:
    """`N` is one node of N slots, `NxM` N nodes of M. `count`: so many slots or nodes instead."""
    match = _NODES.fullmatch(text)
    if match is None:
        return Platform.named(text).nodes()
    number = count or int(match[1])
    nodes, slots = (number, int(match[2])) if match[2] else (1, number)
    return nodes_of(nodes, slots, asked.node_gpus, asked.node_memory_mb)
