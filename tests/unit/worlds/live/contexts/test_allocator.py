"""When allocations are ordered, cancelled and let go."""

from __future__ import annotations

import random
from itertools import product

from pilothouse.worlds.live.contexts.allocator import (
    TRANSITIONS,
    AllocationPlan,
    AllocationState,
    AllocationStimulus,
    Allocator,
    Cancel,
    Release,
    Submit,
)


def test_the_table_is_total_and_an_end_is_for_good() -> None:
    assert set(TRANSITIONS) == set(product(AllocationState, AllocationStimulus))
    ended = AllocationState.ENDED
    assert all(TRANSITIONS[ended, stimulus] is ended for stimulus in AllocationStimulus)
    assert all(TRANSITIONS[state, AllocationStimulus.GONE] is ended for state in AllocationState)


def test_waiting_work_orders_one_allocation_at_a_time() -> None:
    allocator = Allocator(AllocationPlan(slots=8, most=3))
    assert allocator.decide(0, waiting=100, free=0, known=[], busy=[]) == [Submit()]
    allocator.submitted("1", 0)
    assert allocator.decide(1, waiting=100, free=0, known=["1"], busy=[]) == []
    allocator.engine_joined("1")
    assert allocator.decide(2, waiting=92, free=0, known=["1"], busy=["1"]) == [Submit()]


def test_no_more_than_the_work_would_fill() -> None:
    allocator = Allocator(AllocationPlan(slots=8, most=9, most_queued=9))
    assert allocator.decide(0, waiting=17, free=0, known=[], busy=[]) == [Submit()] * 3
    assert allocator.decide(0, waiting=8, free=8, known=[], busy=[]) == []
    assert allocator.decide(0, waiting=0, free=0, known=[], busy=[]) == []


def test_queued_ones_are_cancelled_when_nothing_waits() -> None:
    allocator = Allocator(AllocationPlan(slots=8))
    allocator.submitted("1", 0)
    assert allocator.decide(1, waiting=0, free=0, known=["1"], busy=[]) == [Cancel("1")]
    assert allocator.decide(2, waiting=0, free=0, known=[], busy=[]) == []
    assert allocator.failures == 0


def test_idle_ones_are_let_go_after_a_while() -> None:
    allocator = Allocator(AllocationPlan(slots=8, idle_s=60))
    allocator.submitted("1", 0)
    allocator.engine_joined("1")
    assert allocator.decide(10, waiting=0, free=8, known=["1"], busy=[]) == []
    assert allocator.decide(50, waiting=0, free=4, known=["1"], busy=["1"]) == []
    assert allocator.decide(100, waiting=0, free=8, known=["1"], busy=[]) == []
    assert allocator.decide(161, waiting=0, free=8, known=["1"], busy=[]) == [Release("1")]
    assert allocator.allocations["1"].state is AllocationState.LEAVING
    allocator.decide(170, waiting=0, free=0, known=[], busy=[])
    assert allocator.all_present() == []


def test_failures_in_a_row_end_it_with_the_reason() -> None:
    allocator = Allocator(AllocationPlan(slots=8, most=2))
    for number in range(3):
        assert allocator.decide(number, waiting=9, free=0, known=[], busy=[]) == [Submit()]
        allocator.submitted(str(number), number)
    assert allocator.decide(9, waiting=9, free=0, known=[], busy=[]) == []
    assert allocator.hopeless and "batch job 2 ended before" in allocator.stopped_because


def test_a_total_is_kept() -> None:
    allocator = Allocator(AllocationPlan(slots=1, most=9, most_queued=9, total=2))
    assert allocator.decide(0, waiting=9, free=0, known=[], busy=[]) == [Submit(), Submit()]


def test_limits_hold_whatever_happens() -> None:
    rng = random.Random(3)
    plan = AllocationPlan(slots=4, most=3, most_queued=2, total=20, idle_s=5)
    allocator = Allocator(plan)
    alive: dict[str, bool] = {}
    count = 0
    for now in range(2000):
        waiting = rng.choice([0, 0, 3, 50])
        busy = [job for job, running in alive.items() if running and rng.random() < 0.5]
        for order in allocator.decide(now, waiting=waiting, free=rng.randint(0, 4), known=list(alive), busy=busy):
            if isinstance(order, Submit):
                assert waiting > 0
                count += 1
                allocator.submitted(str(count), now)
                alive[str(count)] = False
            else:
                assert waiting == 0 and order.job_id not in busy
                del alive[order.job_id]
        assert len(alive) <= plan.most and count <= 20
        assert sum(not running for running in alive.values()) <= plan.most_queued
        for job in list(alive):
            if not alive[job] and rng.random() < 0.3:
                alive[job] = True
                allocator.engine_joined(job)
            elif alive[job] and rng.random() < 0.02:
                del alive[job]
    assert count == 20
