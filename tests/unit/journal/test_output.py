"""Outputs of tasks: found by the journal, read from packs and from the files that were asked for."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from pilothouse.formats.output_pack import STDERR, STDOUT, Chunk, encode, pack_path
from pilothouse.journal.output import TaskOutput, open_outputs
from pilothouse.journal.plan import Plan, PlanOptions
from pilothouse.journal.store import FILE_NAME, Journal
from pilothouse.model.errors import InputError
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.wire.messages import Task


class Run:
    """A run whose tasks have written; packs are named by engines' keys."""

    def __init__(self, folder: Path, plan: Plan | None = None) -> None:
        self.folder = folder
        self.journal = Journal(folder)
        self.journal.put_notes(plan=msgspec.msgpack.encode(plan or Plan()))
        for rank, key in enumerate(("k0", "k1")):
            joined = r.EngineJoined(f"e{rank}", rank, "local", f"n{rank}", 2, rank * 2, 77, 1.0, key, (), 512, 4)
            self.journal.write([joined])

    def write(self, rank: int, task: int, *parts: tuple[int, bytes], attempt: int = 1) -> int:
        """Chunks in a pack; the place of the last one."""
        path = pack_path(self.folder, f"k{rank}")
        place = 0
        for stream, data in parts:
            with path.open("ab") as pack:
                at = pack.tell()
                pack.write(encode(Chunk(stream, attempt, task, 0, data), place))
            place = at + 1
        return place

    def ended(
        self, task: int, place: int, *, rank: int = 0, attempt: int = 1, final: bool = True, code: int = 0, name: str = ""
    ) -> None:
        state = JobState.SUCCEEDED if code == 0 else JobState.FAILED
        record = r.TaskEnded(
            task, task + 1, -1, attempt, "N", state, code, rank, f"n{rank}", 5, 1.0, 2.0, 3, b"", 4, b"", b"x", "", final,
            str(task), name=name, output=place, left_out=2,
        )  # fmt: skip
        self.journal.write([record])

    def read(self, *tasks: int, after: int = 0) -> list[TaskOutput]:
        with open_outputs(self.folder) as outputs:
            return [found for _, found in outputs.read(tasks or None, after)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_each_task_has_what_it_wrote_on_its_engine(run: Run) -> None:
    run.ended(3, run.write(0, 3, (STDOUT, b"one "), (STDERR, b"oops"), (STDOUT, b"two")))
    run.ended(1, run.write(1, 1, (STDOUT, b"elsewhere")), rank=1, code=9)
    run.ended(2, 0)
    outputs = {found.task: found for found in run.read()}
    assert list(outputs) == [1, 2, 3], "in the order of the tasks"
    assert [outputs[3].text(stream) for stream in (STDOUT, STDERR)] == [b"one two", b"oops"]
    assert (outputs[1].text(STDOUT), outputs[1].state, outputs[1].exit_code) == (b"elsewhere", "failed", 9)
    assert (outputs[2].chunks, outputs[2].left_out, outputs[2].attempt) == ([], 2, 1)


def test_the_last_attempt_counts_and_rows_before_a_place_are_left_out(run: Run) -> None:
    run.ended(0, run.write(0, 0, (STDOUT, b"first")), final=False, code=1)
    run.ended(1, 0)
    run.ended(0, run.write(0, 0, (STDOUT, b"second"), attempt=2), attempt=2)
    assert [found.text(STDOUT) for found in run.read(0)] == [b"second"]
    assert [found.task for found in run.read()] == [0, 1]
    assert [found.task for found in run.read(after=2)] == [0] and not run.read(after=3)
    assert [found.task for found in run.read(0, 1, 7, after=2)] == [0]
    with open_outputs(run.folder) as outputs:
        assert [row for row, _ in outputs.read([1, 0])] == [2, 3]


def test_an_output_whose_pack_is_gone_is_left_out_as_a_whole(run: Run) -> None:
    run.ended(0, run.write(0, 0, (STDOUT, b"abc")))
    pack_path(run.folder, "k0").unlink()
    (found,) = run.read(0)
    assert (found.chunks, found.left_out) == ([], 7)


def test_a_damaged_pack_hides_no_other_output(run: Run) -> None:
    """The first engine's pack has a flipped byte in the first chunk of task 1; the second engine's pack is zeroed."""
    run.ended(0, run.write(0, 0, (STDOUT, b"before")))
    damaged_at = pack_path(run.folder, "k0").stat().st_size + 50
    run.ended(1, run.write(0, 1, (STDOUT, b"first part"), (STDOUT, b"second part")))
    run.ended(2, run.write(0, 2, (STDOUT, b"after")))
    run.ended(3, run.write(1, 3, (STDOUT, b"zeroed")), rank=1)
    with pack_path(run.folder, "k0").open("r+b") as pack:
        pack.seek(damaged_at)
        pack.write(b"\xff")
    size = pack_path(run.folder, "k1").stat().st_size
    pack_path(run.folder, "k1").write_bytes(bytes(size))
    with open_outputs(run.folder) as outputs:
        found = {output.task: output for _, output in outputs.read(None)}
        assert [found[task].text(STDOUT) for task in range(4)] == [b"before", b"second part", b"after", b""]
        assert [bool(found[task].damage) for task in range(4)] == [False, True, False, True]
        with pytest.raises(InputError, match=r"the output of 2 tasks is damaged \(1, 3\), the rest is whole"):
            outputs.check()


def test_tasks_by_name_and_by_number(run: Run) -> None:
    run.ended(0, 0, name="mine")
    run.ended(1, 0, name="mine")
    with open_outputs(run.folder) as outputs:
        assert outputs.numbers(["mine", "4", "1"]) == [0, 1, 4]
        for name in ("yours", "4" * 5000):
            with pytest.raises(InputError, match=f"no task {name[:9]}"):
                outputs.numbers([name])


def test_nothing_is_left_out_where_nothing_is_said_of_it(run: Run) -> None:
    end = r.TaskEnded(0, 1, -1, 1, "N", JobState.SUCCEEDED, 0, 0, "n0", 5, 1.0, 2.0, 3, b"", 4, b"", b"x")
    run.journal.write([end])
    (found,) = run.read(0)
    assert (found.left_out, found.chunks, found.text(STDOUT)) == (0, [], b"")


def test_packs_are_closed_with_the_reader(run: Run) -> None:
    run.ended(0, run.write(0, 0, (STDOUT, b"abc")))

    def packs() -> list[str]:
        links = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
        return [target for link in links if (target := str(link.readlink() if link.is_symlink() else "")).endswith(".output")]

    with open_outputs(run.folder) as outputs:
        assert [found.text(STDOUT) for _, found in outputs.read([0, 0])] == [b"abc", b"abc"]
        assert len(packs()) == 1
    assert not packs() and outputs is not None


def test_outputs_of_a_run_of_an_earlier_version(tmp_path: Path) -> None:
    Journal(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        db.execute("ALTER TABLE ends DROP COLUMN output")
    with pytest.raises(InputError, match="was not kept: an earlier version made this run"):
        open_outputs(tmp_path)


def test_what_runs_has_written_so_far(run: Run) -> None:
    task = Task(5, line=b"x", attempt=2)
    run.journal.write([r.Assigned(1, "j1", "e1", "2", 1.0, [task, Task(6, line=b"y")])])
    run.write(1, 5, (STDOUT, b"of an earlier attempt"))
    run.write(1, 6, (STDOUT, b"of another"))
    run.write(1, 5, (STDOUT, b"so "), (STDOUT, b"far"), attempt=2)
    with open_outputs(run.folder) as outputs:
        (found,) = outputs.read_running([5])
        assert (found.task, found.attempt, found.state, found.exit_code) == (5, 2, "running", None)
        assert found.text(STDOUT) == b"so far"
        assert not list(outputs.read_running([9]))


@pytest.mark.parametrize(("out", "err"), [("o.{task}.{line}.{repeat}.{attempt}", "e.{task}"), ("both.{task}", "both.{task}")])
def test_files_that_were_asked_for_are_read_once(tmp_path: Path, out: str, err: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    run = Run(folder, Plan(PlanOptions(out=out, err=err), cwd=str(tmp_path)))
    run.ended(4, 0, attempt=2)
    run.ended(5, 0)
    both = out == err
    (tmp_path / ("both.4" if both else "o.4.5.-1.2")).write_bytes(b"out")
    if not both:
        (tmp_path / "e.4").write_bytes(b"err")
    found, nothing = run.read(4, 5)
    assert [found.text(stream) for stream in (STDOUT, STDERR)] == [b"out", b"" if both else b"err"]
    assert not nothing.chunks
