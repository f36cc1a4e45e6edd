"""The laws of sharing: capacity, conservation, scale, independence; and the compiled rounds equal the Python ones."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.worlds.simulated.physics import sharing
from pilothouse.worlds.simulated.physics.agenda import Agenda
from pilothouse.worlds.simulated.physics.sharing import SOLVERS, Constraint, Flow, Fluid, Use, solve_rounds

CAPACITY = st.floats(1e3, 1e9)
AMOUNT = st.floats(1e3, 1e10)


Amounts = dict[int, tuple[float, int]]
"""By constraint: an amount, and how many executors have it."""
Problem = tuple[list[tuple[float, bool]], list[tuple[float, Amounts, float]]]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Constraints (capacity, shared), and flows (start, amounts by constraint, bound)."""
    constraints = draw(
        st.lists(st.tuples(CAPACITY, st.sampled_from([True, True, True, False])), min_size=1, max_size=8)
    )
    numbers = st.integers(0, len(constraints) - 1)
    uses = st.dictionaries(numbers, st.tuples(AMOUNT, st.sampled_from([1, 1, 1, 2])), min_size=1, max_size=4)
    bounds = st.sampled_from([inf, inf, 1e-3, 1.0])
    flows = draw(st.lists(st.tuples(st.floats(0, 10), uses, bounds), min_size=1, max_size=10))
    return constraints, flows


class Bench:
    """Flows in a fluid, with the dates at which they end."""

    def __init__(self, solver: str, constraints: list[tuple[float, bool]], speed: float = 1.0) -> None:
        self.agenda = Agenda()
        self.fluid = Fluid(self.agenda, SOLVERS[solver])
        self.constraints = [Constraint(str(i), c * speed, shared=s) for i, (c, s) in enumerate(constraints)]
        self.ends: dict[int, float] = {}
        self.flows: dict[int, Flow] = {}
        self.speed = speed

    def add(self, number: int, start: float, amounts: Amounts, bound: float) -> None:
        uses: dict[Constraint, Use] = {}
        for i, (amount, count) in amounts.items():
            constraint = self.constraints[i]
            uses[constraint] = (amount * count, amount, count) if constraint.shared else (amount, amount, 1)
        flow = Flow(uses, lambda _: self.ends.__setitem__(number, self.agenda.now), bound=bound * self.speed)
        self.flows[number] = flow
        self.agenda.at(start, lambda _: self.fluid.start(flow))


@pytest.mark.parametrize("solver", sorted(SOLVERS))
@given(problem=problems())
def test_no_constraint_is_used_above_its_capacity_and_all_work_is_done(solver: str, problem: Problem) -> None:
    constraints, flows = problem
    bench = Bench(solver, constraints)
    for number, (start, amounts, bound) in enumerate(flows):
        bench.add(number, start, amounts, bound)
    done = dict.fromkeys(bench.flows, 0.0)
    while (date := bench.agenda.next_date()) < inf:
        for number, flow in bench.flows.items():
            done[number] += flow.rate * (date - bench.agenda.now)
        bench.agenda.run_until(date)
        bench.fluid.settle()
        for constraint in bench.constraints:
            if not constraint.shared and solver == "fair-bottleneck":
                continue  # A pipe beside a slower flow: see sharing.py.
            assert constraint.load() <= constraint.capacity * (1 + 1e-9) + 1e-5
        for number, flow in bench.flows.items():
            assert flow.rate <= flow.bound * (1 + 1e-12)
            assert flow.rate > 0 or number in bench.ends or not flow.entry
    assert sorted(bench.ends) == sorted(bench.flows)
    for share in done.values():
        assert share == pytest.approx(1.0, rel=1e-6)


@given(problem=problems(), factor=st.sampled_from([0.5, 2.0, 4.0]))
def test_scaling_all_speeds_scales_all_durations(problem: Problem, factor: float) -> None:
    constraints, flows = problem
    plain, scaled = Bench("max-min", constraints), Bench("max-min", constraints, factor)
    for number, (start, amounts, bound) in enumerate(flows):
        plain.add(number, start, amounts, bound)
        scaled.add(number, start / factor, amounts, bound)
    plain.agenda.run_until(1e300)
    scaled.agenda.run_until(1e300)
    for number, end in plain.ends.items():
        assert scaled.ends[number] * factor == pytest.approx(end, rel=1e-9)


@given(problem=problems(), removed=st.integers(0, 9))
def test_what_shares_nothing_is_not_disturbed(problem: Problem, removed: int) -> None:
    constraints, flows = problem
    removed %= len(flows)
    joined = _connected(flows, removed, set(range(len(constraints))))
    whole, less = Bench("fair-bottleneck", constraints), Bench("fair-bottleneck", constraints)
    for number, (start, amounts, bound) in enumerate(flows):
        whole.add(number, start, amounts, bound)
        if number != removed:
            less.add(number, start, amounts, bound)
    whole.agenda.run_until(1e300)
    less.agenda.run_until(1e300)
    for number, end in less.ends.items():
        if number not in joined:
            assert whole.ends[number] == end


def _connected(flows: list[tuple[float, Amounts, float]], first: int, shared: set[int]) -> set[int]:
    found = {first}
    while True:
        used = {i for number in found for i in flows[number][1] if i in shared}
        more = {number for number, flow in enumerate(flows) if used & set(flow[1])} | found
        if more == found:
            return found
        found = more


@given(
    private=st.lists(st.tuples(CAPACITY, AMOUNT), min_size=1, max_size=12),
    capacities=st.lists(CAPACITY, min_size=1, max_size=6),
    data=st.data(),
)
def test_compiled_rounds_equal_the_python_ones(
    private: list[tuple[float, float]], capacities: list[float], data: st.DataObject
) -> None:
    if sharing._compiled_rounds is None:
        pytest.skip("the compiled solver is not built here")
    bounds = [data.draw(st.sampled_from([inf, 1e-2, 10.0])) for _ in private]
    members = [
        [
            (flow, amount * count, amount, count)
            for flow in sorted(data.draw(st.sets(st.integers(0, len(private) - 1))))
            for amount, count in [data.draw(st.tuples(AMOUNT, st.integers(1, 3)))]
        ]
        for _ in capacities
    ]
    pipes = [data.draw(st.booleans()) for _ in capacities]
    arguments = (private, bounds, capacities, members, pipes, sharing.PRECISION)
    assert sharing._compiled_rounds(*arguments) == solve_rounds(*arguments)


def test_compiled_rounds_refuse_nonsense() -> None:
    if sharing._compiled_rounds is None:
        pytest.skip("the compiled solver is not built here")
    with pytest.raises(IndexError):
        sharing._compiled_rounds([(1.0, 1.0)], [inf], [1.0], [[(5, 1.0, 1.0, 1)]], [False], 1e-5)
    with pytest.raises(ValueError, match="different lengths"):
        sharing._compiled_rounds([(1.0, 1.0)], [], [1.0], [[]], [False], 1e-5)
