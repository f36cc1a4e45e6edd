"""Ten thousand engines: what the driver spends on a task does not grow with them."""

from __future__ import annotations

from tests.simtest.scale import compare


def test_cost_per_task_stays_flat() -> None:
    """Seen: 1.25 to 1.7 (caches hold a hundred engines, not ten thousand), and 2.3 or more where something grows."""
    few = many = float("inf")
    for _ in range(4):
        found = compare([100, 10_000], 15_000, 1)
        few, many = min(few, found[100].task), min(many, found[10_000].task)
    assert many < 2.2 * few, f"{few:.0f} µs a task with 100 engines, {many:.0f} µs with 10,000"
