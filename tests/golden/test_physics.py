"""Our physics against recorded runs of the real Batsim 4 and 5: execution times, final states, energy."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden import recordings_table
from golden.recorded import Replay, load
from peers import Count

HERE = Path(__file__).with_name("physics")
SMALL = [(number, path) for number in (4, 5) for path in sorted((HERE / f"batsim{number}").iterdir())]


@pytest.mark.parametrize(("generation", "path"), SMALL, ids=lambda value: getattr(value, "name", str(value)))
def test_replayed_as_recorded(generation: int, path: Path) -> None:
    recording = load(path, generation, HERE / f"inputs/v{generation}")
    assert recording is not None and recording.rows
    assert [str(one) for one in Replay(recording).run()] == []


@pytest.mark.peer("batsim5", "recorded execution times, states and energy, of Batsim 4 and 5")
@pytest.mark.peer_difference(
    "batsim5",
    "Reading and writing a storage: it writes `bytes_to_read` bytes. Staging between storages: it always stops. Ours do what the "
    "profiles say.",
)
def test_all_recordings(shared_dir: Path, peer_count: Count) -> None:
    """All of them, also the large ones; what is not described in the recording cannot be compared."""
    reference = shared_dir / "reference"
    compared = 0
    for generation, path in recordings_table.recordings(reference):
        found = recordings_table.differences(generation, path, reference)
        if found is not None:
            wrong = [f"{path.name}: {one}" for one in found[2] if one.what != "known only to the decider"]
            assert wrong == []
            compared += 1
    peer_count(compared, compared)
    assert compared >= 140


def test_the_table_in_the_docs_is_up_to_date(shared_dir: Path) -> None:
    made = recordings_table.page(shared_dir / "reference")
    assert recordings_table.PAGE.read_text() == made, "run: python tests/golden/recordings_table.py ../shared/reference"


def test_a_wrong_speed_would_be_noticed() -> None:
    """The comparison itself can fail: a host that is a thousandth faster is seen."""
    recording = load(HERE / "batsim4/raw-fcfs-share-small-par4", 4, HERE / "inputs/v4")
    assert recording is not None
    replay = Replay(recording)
    for processor in replay.physics.demands.processors:
        processor.speed *= 1.001
        processor.capacity *= 1.001
    assert any(one.what == "execution time" for one in replay.run())
