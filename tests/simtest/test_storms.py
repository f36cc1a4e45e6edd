"""Nothing is lost, repeated or out of order, whatever breaks. Replays: `python -m tests.simtest --seeds 1 --first SEED`."""

from __future__ import annotations

import pytest
from tests.simtest.storm import Storm

SEEDS = 500
CHUNK = 50


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_storms(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            Storm(seed).run()
        except AssertionError as problem:
            raise AssertionError(f"{problem} (python -m tests.simtest --seeds 1 --first {seed} --stop)") from problem


def test_storms_do_break_things() -> None:
    """The weather is bad enough for the test to mean something."""
    crashed = retaken = lost = 0
    for seed in range(60):
        storm = Storm(seed)
        storm.run()
        crashed += storm.session > 1
        lost += any(type(record).__name__ == "EngineLeft" and record.lost for record in storm.disk.records)  # type: ignore[union-attr]
        retaken += any(count > 1 for count in storm.executions.values())
    assert crashed > 10
    assert lost > 10
    assert retaken > 3
