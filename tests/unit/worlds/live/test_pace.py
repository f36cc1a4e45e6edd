"""How many tasks make a bundle."""

from __future__ import annotations

from pilothouse.worlds.live.feeder import BUNDLE_BYTES, BUNDLE_S, Pace


def test_long_tasks_are_never_bundled() -> None:
    pace = Pace(1000)
    assert pace.bundle(10_000, 2) == 1  # nothing is known yet
    for _ in range(100):
        pace.note(0.2)
    assert pace.bundle(10_000, 2) == 1


def test_short_tasks_are_bundled_and_bundles_shrink_towards_the_end() -> None:
    pace = Pace(1000)
    for _ in range(100):
        pace.note(0.001)
    assert abs(pace.bundle(None, 2) - BUNDLE_S / 0.001) <= 1
    assert pace.bundle(600, 2) == 150
    assert pace.bundle(10, 2) == 20  # a few milliseconds: not worth shrinking further
    assert Pace(1).bundle(None, 2) == 1
    pace.longest_bytes = BUNDLE_BYTES // 3
    assert pace.bundle(None, 2) == 3
