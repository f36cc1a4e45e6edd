"""Which tasks are done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pilothouse.worlds.live.feeder import DoneIds


@given(st.permutations(range(40)), st.sets(st.integers(0, 39)))
def test_done_ids_against_a_set(order: list[int], failed: set[int]) -> None:
    done, model = DoneIds(), set()
    for task_id in order:
        done.add(task_id, failed=task_id in failed)
        model.add(task_id)
        assert all((other in done) == (other in model) for other in range(41))
    assert done.failed == failed
    assert done.count == 40
