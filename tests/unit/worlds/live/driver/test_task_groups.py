"""Which tasks are done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live.feeder import DoneIds


@given(st.permutations(range(40)), st.sets(st.integers(0, 39)), st.lists(st.integers(0, 39)))
def test_done_ids_against_a_set(order: list[int], failed: set[int], again: list[int]) -> None:
    """Tasks end in any order; some that failed are opened again in between, and end later."""
    done, model, attempts = DoneIds(), set(), dict.fromkeys(range(40), 1)
    left = list(order)
    while left:
        task_id = left.pop(0)
        done.add(task_id, JobState.FAILED if task_id in failed else JobState.SUCCEEDED, attempts[task_id])
        model.add(task_id)
        if again and again[-1] in failed & model:
            reopened = again.pop()
            assert done.reopen(reopened) == (JobState.FAILED, attempts[reopened])
            attempts[reopened] += 1
            model.discard(reopened)
            left.append(reopened)
        assert all((other in done) == (other in model) for other in range(41))
        assert done.count == len(model)
    assert set(done.failed) == failed
    assert done.count == 40
