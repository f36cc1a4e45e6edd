"""A forecast is what the arithmetic says, honours what tasks ask for, and is as uncertain as what it was learned from."""

from __future__ import annotations

from math import ceil, inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.campaign.durations import GivenDurations, LearnedDurations, Observed
from pilothouse.campaign.forecast import (
    Forecast,
    Quantiles,
    expected_starts,
    forecast,
    nodes_needed,
    nodes_of,
    simulate,
)
from pilothouse.formats.task_file import TaskReader
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.task_request import shape_for
from pilothouse.policies.catalog import make
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.task_feed import RunningGroup, RunStart
from pilothouse.worlds.live.wire.messages import Task


def start_of(text: str, nodes: tuple[Node, ...], units: int = 1, **fields: object) -> RunStart:
    lines = list(TaskReader("tasks").read(text.encode().splitlines(keepends=True)))
    options = LiveOptions(units=units, shape=shape_for(units, 1, 0, 0))
    return RunStart(options=options, nodes=nodes, lines=lines, **fields)  # type: ignore[arg-type]


def told(start: RunStart, *seconds: float, policy: str = "fcfs", **options: object) -> Forecast:
    return forecast(start, GivenDurations(seconds), lambda: make(policy, {}), **options)  # type: ignore[arg-type]


def starts(start: RunStart, *names: str, seconds: float = 10) -> dict[str, float]:
    found = expected_starts(start, GivenDurations([seconds]), lambda: make("fcfs", {}), names)
    return {name: dates.median for name, dates in found.items()}


@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 3))
def test_equal_tasks_come_in_rounds_and_barriers_add_up(counts: list[int], slots: int, units: int) -> None:
    start = start_of("#DISBATCH BARRIER\n".join("true\n" * count for count in counts), nodes_of(1, slots), units)
    if units > slots:
        with pytest.raises(InputError, match="will never start"):
            told(start, 7)
        return
    found = told(start, 7)
    rounds = [ceil(count / (slots // units)) for count in counts]
    assert [phase.tasks for phase in found.phases] == counts
    assert found.seconds == Quantiles(*3 * [7 * sum(rounds)]), "nothing varies"
    assert found.utilisation == pytest.approx(sum(counts) * units / (sum(rounds) * slots))


def test_an_empty_file_is_done_at_once() -> None:
    found = told(start_of("# nothing\n", nodes_of(1, 4)), 5)
    assert (found.tasks, found.seconds.high, found.utilisation) == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "node", "seconds"),
    [
        ("#PILOTHOUSE cores=3\na\nb\n", Node("n", 0, 4, cores=4), 20),
        ("#PILOTHOUSE mem=6G\na\nb\nc\n", Node("n", 0, 4, memory_mb=12288), 20),
        ("#PILOTHOUSE gpus=1\na\nb\nc\n", Node("n", 0, 4, gpus=1), 30),
        ("#PILOTHOUSE name=x\na\n\n#PILOTHOUSE after=x\nb\n\nc\n", Node("n", 0, 4), 20),
        ("a\n#DISBATCH BARRIER\nb\n", Node("n", 0, 4), 20),
        ("#PILOTHOUSE walltime=4\na\n", Node("n", 0, 4), 4),
    ],
    ids=["cores", "memory", "GPUs", "after", "barrier", "walltime"],
)
def test_what_tasks_ask_for_is_honoured(text: str, node: Node, seconds: float) -> None:
    assert told(start_of(text, (node,)), 10).seconds.median == seconds


def test_a_request_that_no_node_holds_is_refused_with_its_line() -> None:
    with pytest.raises(InputError, match=r"task 0 \(line 2\): will never start .* 2 GPUs|gpus"):
        told(start_of("#PILOTHOUSE gpus=2\na\n", nodes_of(2, 4)), 10)


def test_the_policy_decides_in_the_simulation() -> None:
    """One long task of two slots waits for both; under easy a short one behind it starts at once."""
    text = "#PILOTHOUSE walltime=100\na\n\n#PILOTHOUSE cores=2 walltime=100\nb\n\n#PILOTHOUSE walltime=50\nc\n"
    start = start_of(text, nodes_of(1, 2))
    lengths = {b"a": 60.0, b"b": 60.0, b"c": 40.0}
    ends = {}
    for name in ("fcfs", "easy"):
        outcome = simulate(start, lambda task, age: lengths[task.line], make(name, {}))
        ends[name] = {task.name: task.ended_at for task in outcome.times}
    assert ends == {"fcfs": {"0": 60, "1": 120, "2": 160}, "easy": {"0": 60, "2": 40, "1": 120}}


def test_a_run_goes_on_from_where_it_is() -> None:
    """Two slots: task 0 has run for 4 of 10 s, task 1 failed before, tasks 2 and 3 wait, and 3 comes after a barrier."""
    running = RunningGroup(Job("0", 1), IdSet(1), (Task(0, 1, line=b"a"),), 4.0, 4.0)
    start = start_of("a\nb\nc\n#DISBATCH BARRIER\nd\n", nodes_of(1, 2), running=(running,), failed=frozenset({1}))
    found = told(start, 10)
    assert found.tasks == 3
    assert found.seconds.median == 20, "c ends at 10, and d comes after it"
    assert starts(start, "0", "2", "4") == {"0": 0, "2": 0, "4": 10}
    assert [(phase.tasks, phase.ends.median) for phase in found.phases] == [(2, 10), (1, 20)]


def test_submitted_jobs_wait_for_those_that_run() -> None:
    running = RunningGroup(Job("x", 1), IdSet(1), (Task(0, argv=(b"a",)),), 1.0, 1.0)
    jobs = ((Job("y", 1, after=("x",)), Task(1, argv=(b"a",))), (Job("z", 2, shape=shape_for(2, 1, 0, 0)), Task(2)))
    start = start_of("", nodes_of(1, 4), running=(running,), jobs=jobs)
    assert told(start, 5).seconds.median == 9
    assert starts(start, "y", seconds=5) == {"y": 4}


def test_jobs_take_the_place_of_started_ones_at_once() -> None:
    """The driver keeps eight jobs waiting here. As soon as the first has started, the decider hears of the ninth, which fits
    beside it: it need not wait for an end."""
    text = "#PILOTHOUSE cores=3 walltime=100\na\n\n#PILOTHOUSE cores=4 walltime=100\n" + "b\n" * 7
    start = start_of(f"{text}\n#PILOTHOUSE walltime=50\nc\n", nodes_of(1, 4))
    outcome = simulate(start, lambda task, age: 50.0, make("easy", {}))
    assert {task.name: task.started_at for task in outcome.times}["8"] == 0


def test_how_many_nodes_are_enough() -> None:
    start = [start_of("a\n" * 100, nodes_of(count, 4)) for count in range(30)]
    durations, policy = GivenDurations([10]), lambda: make("fcfs", {})
    needed = nodes_needed(start.__getitem__, durations, policy, 50, 29)
    assert needed is not None and needed[0] == 5 and needed[1].seconds.high == 50
    assert nodes_needed(start.__getitem__, durations, policy, 9, 29) is None


def test_quantiles_of_few_values_are_the_extremes_and_of_many_those_of_the_distribution() -> None:
    assert Quantiles.of([3, 1, 2]) == Quantiles(1, 2, 3)
    many = Quantiles.of(range(1, 200))
    assert (many.low, many.median, many.high) == pytest.approx((10, 100, 190))


def test_the_interval_is_wider_where_tasks_vary_more() -> None:
    start = start_of("a 1\n" * 40, nodes_of(1, 4))

    def width(*lengths: float) -> float:
        known = LearnedDurations([[Observed(f"a {n}", -1, length) for n, length in enumerate(lengths, 2)]])
        seconds = forecast(start, known, lambda: make("fcfs", {}), samples=40).seconds
        assert seconds.low < 10 * 10 < seconds.high
        return seconds.high - seconds.low

    assert width(*[9.0, 11.0] * 10) < width(*[5.0, 15.0] * 10) < width(*[1.0, 1.0, 28.0] * 7)


REPETITIONS = 12


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_the_stated_interval_holds_in_nine_of_ten_repetitions(policy: str) -> None:
    """Three programs whose tasks vary, learned from 40 tasks of an earlier run, forecast for 60 others (virtual time; the full
    version is bench/fidelity.py)."""
    means = {"a": 20.0, "b": 60.0, "c": 5.0}
    text = "".join(f"#PILOTHOUSE cores={1 + n % 3} walltime=600\n{'abc'[n % 3]} {n}\n" for n in range(60))
    start = start_of(text, nodes_of(2, 4))
    holds = 0
    for repetition in range(REPETITIONS):
        random = Random(repetition)
        earlier = [(program, means[program] * random.lognormvariate(0, 0.5)) for program in "abc" * 40]
        known = LearnedDurations([[Observed(f"{name} {1000 + n}", -1, took) for n, (name, took) in enumerate(earlier)]])
        truth = {line.task_id: means[line.command[0]] * random.lognormvariate(0, 0.5) for line in start.lines}
        really = simulate(start, lambda task, age, truth=truth: truth[task.task_id], make(policy, {})).ended_at
        told = forecast(start, known, lambda: make(policy, {}), samples=20, seed=repetition).seconds
        holds += told.low <= really <= told.high
    assert holds >= REPETITIONS - 3, f"{holds} of {REPETITIONS}"


def test_no_task_has_ended() -> None:
    assert LearnedDurations([[Observed("a", -1, 5.0, ended=False)]]).mean_s == inf
