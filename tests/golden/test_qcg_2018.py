"""Recorded runs of the QCG PilotJob Manager of February 2018, which is the specification's, against `pilothouse qcg`.

Same end, same replies, same states, same report, same files, except for what DIFFERENCES names. Each has a rule, and the
rules are a table of docs/reference/qcg.md.
"""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from golden import qcg2018_player as player

NAMES = (
    "args_wrong", "bac16_nologs", "control_first", "control_twice", "deps_empty", "deps_unknown", "env_slurm", "finish", "io",
    "iterate_bad", "msleep2", "names", "net_control", "no_control", "no_file_nodes", "nodes_cores_min", "nodes_entire",
    "null_request", "range_open", "split", "split_wrong", "status_failed", "too_big_nodes", "wrong",
)  # fmt: skip

DIFFERENCES: dict[str, dict[str, str]] = {
    "args_wrong": {"reply 4": "numbers", "state a[23]": "numbers"},
    "bac16_nologs": {"state *": "folders", "file logs/*": "folders", "machine files": "machine-files"},
    "deps_empty": {"end": "half-requests", "reply 4": "half-requests"},
    "deps_unknown": {
        "end": "unknown-after", "reply [01234]": "unknown-after", "state x[23]": "unknown-after",
    },
    "env_slurm": {"file srun.args": "srun", "file sub/.s2.runconfig": "quotes"},
    "finish": {"reply [12]": "finish", "state *": "finish", "file *": "finish"},
    "io": {"state badout": "folders", "file nodir/x.txt": "folders", "report nostdin": "wd-in-report"},
    "iterate_bad": {"end": "half-requests", "state same": "half-requests"},
    "msleep2": {"machine files": "machine-files"},
    "no_control": {"end": "end-of-file", "state slow": "end-of-file", "file done.txt": "end-of-file"},
    "no_file_nodes": {"end": "outside-slurm", "reply 0": "outside-slurm"},
    "nodes_cores_min": {"machine files": "machine-files"},
    "nodes_entire": {"machine files": "machine-files"},
    "null_request": {"end": "null", "reply *": "null", "state after": "null"},
    "range_open": {
        "end": "open-ranges", "reply *": "open-ranges", "state m[nx]": "open-ranges", "machine files": "machine-files",
    },
    "split": {"machine files": "machine-files"},
    "split_wrong": {
        "end": "open-ranges", "reply 1": "open-ranges", "state w0": "open-ranges", "machine files": "machine-files",
    },
    "too_big_nodes": {"end": "too-large", "reply 1": "too-large", "state big": "too-large"},
}  # fmt: skip
"""Recording -> what differs -> the rule by which it does."""


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run_of_2018(name: str, shared_dir: Path, tmp_path: Path) -> None:
    recording = player.load(shared_dir / f"reference/spec-versions/qcg2018/{name}.json")
    played = player.play(recording, tmp_path)
    found = player.differences(recording, played)
    known = DIFFERENCES.get(name, {})
    assert [one for one in sorted(found) if not any(fnmatch(one, pattern) for pattern in known)] == [], played
    assert [pattern for pattern in known if not any(fnmatch(one, pattern) for one in found)] == [], "it is the same now"


def test_every_recording_is_named_here(shared_dir: Path) -> None:
    there = {path.stem for path in (shared_dir / "reference/spec-versions/qcg2018").glob("*.json")}
    assert there == set(NAMES)


def test_every_rule_is_in_the_docs_and_used() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/qcg.md").read_text()
    rules = {rule for known in DIFFERENCES.values() for rule in known.values()}
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rules <= {row.split("`")[1] for row in rows}
