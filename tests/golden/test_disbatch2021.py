"""Recorded runs of disBatch of November 2021 (the version that the specification describes), replayed with `--dialect 2021`.

Same end, same rows of the status file, same files, but for the cases in DIFFERENCES. There the text of the specification wins
where it is explicit, and what loses no work where it is silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from golden.disbatch2021_replay import Replay, comparable, load, recorded_rows, replay
from peers import Count
from pilothouse.protocols.disbatch import messages as d
from pilothouse.protocols.disbatch import pickles
from pilothouse.protocols.disbatch.pickles import Instance

pytestmark = pytest.mark.xdist_group("disbatch2021")
FOLDER = Path(__file__).resolve().parents[3] / "shared/reference/spec-versions/disbatch2021"
RECORDINGS = load(FOLDER)
AT_ONCE = 5


@dataclass
class Difference:
    why: str
    code: int | None = None
    """Ours, where it is another one."""
    without: tuple[str, ...] = ()
    """Columns that are not compared."""
    more_rows: bool = False
    """Ours has all recorded rows, and others."""
    files: bool = True
    """Whether what tasks wrote is compared."""


_WAITS = "There the context ends and the driver waits for ever. Ours ends with one line and code 1."
_HANGS = "There a task below PERENGINE never runs unless a BARRIER is between. The text lets it run when its engine is ready."
_WHERE = "Which engine gets a task depends on when it has joined."
DIFFERENCES = {
    "bad_node": Difference(_WAITS, 1),
    "no_context": Difference(_WAITS, 1),
    "perengine": Difference(_HANGS, 0, more_rows=True),
    "startup": Difference(_HANGS, 0, more_rows=True),
    "taskcommand": Difference("There --taskcommand fails and the driver waits for ever. Ours takes its tasks.", 0),
    "weird": Difference("There an unknown message ends the driver. Ours logs it and goes on.", 0, more_rows=True),
    "engine_term": Difference(f"{_WHERE} There an engine that ended is not replaced.", without=("node", "out")),
    "stop_context": Difference(_WHERE, without=("node", "out")),
    "environment": Difference("Tasks see the variables of 3.0 as well, and no DISBATCH_ROOT.", files=False),
}  # fmt: skip


@pytest.fixture(scope="module")
def replays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Replay]]:
    base = tmp_path_factory.mktemp("disbatch2021")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {name: pool.submit(replay, recording, base / name) for name, recording in RECORDINGS.items()}
        yield {name: run.result() for name, run in runs.items()}


@pytest.mark.skipif(not RECORDINGS, reason=f"the recordings are not beside the repository ({FOLDER})")
@pytest.mark.peer("disbatch2021", "recorded runs: the end, rows of the status file, files")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.peer_difference("disbatch2021", f"{name}: {DIFFERENCES[name].why}"))
        if name in DIFFERENCES
        else name
        for name in RECORDINGS
    ],
)
def test_ends_alike(name: str, replays: dict[str, Replay], peer_count: Count) -> None:
    peer_count(int(name not in DIFFERENCES), 1)
    recording, ours, known = RECORDINGS[name], replays[name], DIFFERENCES.get(name, Difference(""))
    assert ours.exit_code == (recording["exit_code"] if known.code is None else known.code), ours.text
    theirs = recorded_rows(recording, without=known.without)
    rows = comparable(ours.rows, without=known.without)
    if known.more_rows:
        rows = [row for row in rows if row in theirs]
    assert rows == theirs
    for file, content in recording["files_written"].items() if recording["exit_code"] == 0 else ():
        if file.startswith("T_disBatch_ID"):
            assert known.without or file in ours.files
        elif known.files:
            assert ours.files[file] == content


def test_every_difference_is_one_of_a_recording(shared_dir: Path) -> None:
    assert set(DIFFERENCES) <= set(RECORDINGS)


@pytest.mark.skipif(not RECORDINGS, reason=f"the recordings are not beside the repository ({FOLDER})")
def test_per_engine_commands_and_barriers_take_task_ids(replays: dict[str, Replay]) -> None:
    """Also those that stand below tasks: every engine runs them once, before tasks that stand below them."""
    rows: list[dict[str, Any]] = replays["perengine"].rows
    per_engine = sorted((row["id"], row["node"]) for row in rows if row["flags"].endswith("P"))
    assert per_engine == [("0", "nodeA"), ("0", "nodeB"), ("4", "nodeA"), ("4", "nodeB")]
    assert [row["id"] for row in rows if row["flags"].startswith("B")] == ["3"]
    for node in {row["node"] for row in rows}:
        here = [row for row in rows if row["node"] == node]
        for command in (row for row in here if row["flags"].endswith("P")):
            later = [row for row in here if int(row["id"]) > int(command["id"]) and row["flags"] == "    "]
            assert all(float(row["start"]) >= float(command["end"]) for row in later)


def test_barriers_with_keys_in_any_case_and_all_tasks_known(tmp_path: Path) -> None:
    tasks = "#DISBATCH barrier check\ntrue\n#DISBATCH BARRIER \n"
    base: dict[str, Any] = {"input_files": {"T": tasks}, "env": {}, "steps": [], "args": ["-p", "x", "-s", "localhost:1", "T"]}
    ended = replay(base, tmp_path / "once")
    assert ended.exit_code == 0 and [row["flags"] for row in ended.rows] == ["B    ", "    ", "B    "]
    status = (tmp_path / "once" / "work" / "x_status.txt").read_text()
    again = replay(
        {**base, "input_files": {"T": tasks, "old": status}, "args": ["-r", "old", *base["args"]]}, tmp_path / "again"
    )
    # As in 2021: its context found the run over.
    assert again.exit_code == 1 and sorted(row["flags"] for row in again.rows) == ["   S", "B    ", "B    "]


@pytest.mark.parametrize("slurm", [False, True])
def test_every_engine_that_ends_is_retired_the_last_one_too(slurm: bool, tmp_path: Path) -> None:
    """Also with nodes that are reached by ssh. In Slurm by default, not with -K."""
    run: dict[str, Any] = {"input_files": {"T": "sleep 2\ntrue\n"}, "env": {}, "steps": []}
    if slurm:
        run["env"] = {
            "SLURM_JOBID": "7", "SLURM_JOB_ID": "7", "SLURM_NODELIST": "n1,n2", "SLURM_TASKS_PER_NODE": "1,1",
        }  # fmt: skip
        run["args"] = ["T"]
        kept = replay({**run, "args": ["-K", "T"]}, tmp_path / "kept")
        assert kept.exit_code == 0 and "scontrol.args" not in kept.files
    else:
        run["args"] = ["-k", "echo $NODE $RETCODE $ACTIVE/$RETIRED >> retired", "-s", "n1:1", "-s", "n2:1", "T"]
    ended = replay(run, tmp_path / "retired")
    assert ended.exit_code == 0
    (last,) = {row["node"] for row in ended.rows if row["id"] == "0"}
    (first,) = {"n1", "n2"} - {last}
    if slurm:
        assert ended.files["scontrol.args"].splitlines() == [f"update JobId=7 NodeList={last}", "update JobId=7 NodeList="]
    else:
        assert ended.files["retired"].splitlines() == [f"{first} 0 {last}/{first}", f"{last} 0 /n1,n2"]
    assert ended.wall_s < 11, "nodes are not kept for ten seconds"


def _as_instances(value: Any) -> Any:
    """A recorded value as our reader gives it."""
    if isinstance(value, dict) and "class" in value:
        module, _, name = value["class"].rpartition(".")
        return Instance(module, name, {key: _as_instances(item) for key, item in value.items() if key != "class"})
    if isinstance(value, dict):
        return {key: _as_instances(item) for key, item in value.items()}
    return [_as_instances(item) for item in value] if isinstance(value, list) else value


@pytest.mark.skipif(not RECORDINGS, reason=f"the recordings are not beside the repository ({FOLDER})")
def test_every_recorded_message_to_the_driver_is_understood() -> None:
    seen: Counter[str] = Counter()
    for recording in RECORDINGS.values():
        for _, act, key, *rest in recording["kvs"]:
            if act == "put" and key == ".controller":
                word, value = rest[1]
                plain = _as_instances(value)
                message = (word, tuple(plain) if isinstance(plain, list) else plain)
                assert (d.read_controller(pickles.write(message)) is None) == (word == "hello"), (word, value)
                seen[word] += 1
            elif act == "put" and key.startswith(".cylinder "):
                word, value = rest[1]
                assert word == "stop" or d.read_task_info(_as_instances(value)).kind == "N"
    engines = {"register", "context info", "engine started", "engine stopped", "cylinder available", "cylinder stopped"}
    assert engines | {"task", "task done", "special task", "no more tasks", "stop context", "driver heart beat"} <= set(seen)
