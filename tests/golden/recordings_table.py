"""Makes docs/reference/recordings.md: which recordings of the real Batsim our physics reproduces, and why others are
not compared.

python tests/golden/recordings_table.py FOLDER      FOLDER holds batsim4/golden, batsim5/golden and inputs
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.recorded import Difference, Replay, load

PAGE = Path(__file__).parents[2] / "docs/reference/recordings.md"

WITHOUT_RUNS = {
    "err-": "the peer refuses a decision; no job ends",
    "errwl-": "the peer refuses the workload; nothing runs",
    "bs-rejecter": "every job is rejected",
    "rejecter": "every job is rejected",
    "bs-wtestimator": "every job is rejected",
    "bs-sleeper-energyhomo": "the decider asks for a power state that does not exist; the peer stops",
    "py-fcfs-small-various": "the decider dies at its first job",
    "dynreg_identical": "the peer refuses a second profile of the same name",
    "machine_switcher_turn_on_fail": "the peer refuses to switch on what is on",
    "storage_staging": "the peer's matrix has 2 entries instead of 4: it always stops; we do the transfer",
    "no_hello": "the decider does not say hello",
    "do_nothing": "there is no workload",
    "call_oneshot": "the decider only calls; it rejects every job",
    "periodic_calls": "the decider only calls; it rejects every job",
}


def why_without_runs(name: str) -> str:
    return next((reason for start, reason in WITHOUT_RUNS.items() if name.startswith(start)), "no job ended")


def recordings(reference: Path) -> list[tuple[int, Path]]:
    return [(number, path) for number in (4, 5) for path in sorted((reference / f"batsim{number}/golden").iterdir())]


def differences(generation: int, path: Path, reference: Path) -> tuple[int, bool, list[Difference]] | None:
    """Jobs that ran, whether energy was recorded, and what differs; None if no job ran."""
    recording = load(path, generation, reference / f"inputs/v{generation}")
    if recording is None:
        return None
    return len(recording.rows), recording.has_energy, Replay(recording).run()


def page(reference: Path) -> str:
    """The whole page."""
    rows, equal, partial, without = [], 0, 0, 0
    for generation, path in recordings(reference):
        found = differences(generation, path, reference)
        if found is None:
            without += 1
            rows.append(f"| {path.name} | {generation} | 0 | - | {why_without_runs(path.name)} |")
            continue
        jobs, energy, diffs = found
        unknown = [one for one in diffs if one.what == "known only to the decider"]
        wrong = len(diffs) - len(unknown)
        if not diffs:
            equal += 1
            rows.append(f"| {path.name} | {generation} | {jobs} | equal | {'energy too' if energy else ''} |")
        elif not wrong:
            partial += 1
            what = f"{len(unknown)} jobs were described in Redis or by a decider whose messages were not recorded"
            rows.append(f"| {path.name} | {generation} | {jobs} | {jobs - len(unknown)} equal | {what} |")
        else:
            rows.append(f"| {path.name} | {generation} | {jobs} | **{wrong} differ** | {diffs[0]} |")
    return HEAD.format(total=len(rows), equal=equal, partial=partial, without=without) + "\n".join(rows) + "\n"


HEAD = """# Recorded runs of the real Batsim, and ours

This page is made by `python tests/golden/recordings_table.py FOLDER`; a test fails when it is out of date.

Each recording is replayed: jobs start when and where the real Batsim started them, and are killed, slowed down and told
messages as recorded; execution time, final state and energy must come out equal (1e-6 relative, or the last of the six
decimals that were written). Of {total} recordings {equal} are equal, {partial} are equal as far as their jobs are
described in the recording, and in {without} no job ran.

Dates are compared by playing whole conversations against the drop-ins, where every message costs time: all 105 runs of
Batsim 4 that ended well, message by message and file by file (`tests/golden/test_batsim4_recordings.py`), and those of
Batsim 5 whose messages were recorded (`tests/golden/test_batsim5.py`).

Where the real Batsim is wrong and we are not: reading and writing a storage in Batsim 5 (it writes `bytes_to_read`
bytes), staging between storages in Batsim 5 (it stops), machines that stay "computing" after a job's end in Batsim 5.

| recording | Batsim | jobs | execution time, state | note |
|---|---|---|---|---|
"""


if __name__ == "__main__":
    PAGE.write_text(page(Path(sys.argv[1])))
    print(PAGE)
