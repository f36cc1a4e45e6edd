"""Readers of journals: the last tasks, places of tasks, runs that grow, plans, damaged notes."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from math import inf
from pathlib import Path
from random import Random

import msgspec
import pytest

from fuzz.journal_stories import RandomRun, steady
from pilothouse.formats.task_file import TaskReader
from pilothouse.journal.output import TaskOutput
from pilothouse.journal.plan import Plan, PlanOptions, plan_of
from pilothouse.journal.present import read_present, read_waiting
from pilothouse.journal.read import (
    EngineSpan,
    JobRow,
    Submission,
    TaskRow,
    last_line,
    never_begun,
    read_attempts,
    read_note,
    read_tasks,
    reading,
)
from pilothouse.journal.run_reader import RunReader
from pilothouse.journal.run_state import EngineRow, RunningTask, RunState, Wait, behind_others
from pilothouse.journal.store import FILE_NAME, Journal
from pilothouse.journal.waiting import HeldTask, Progress
from pilothouse.model.errors import InputError, RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Node, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.run_clock import clock_note, date_now
from pilothouse.worlds.live.wire.messages import Task


def joined(rank: int, slots: int = 2) -> r.EngineJoined:
    return r.EngineJoined(f"e{rank}", rank, "local", f"n{rank}", slots, rank * 2, 7, 1.0)


def ended(task_id: int, state: JobState = JobState.SUCCEEDED, *, at: float = 5.0, final: bool = True) -> r.TaskEnded:
    code = int(state is not JobState.SUCCEEDED)
    return r.TaskEnded(
        task_id, task_id + 1, -1, 1, "N", state, code, 0, "n0", 7, at - 1.0, at, 0, b"", 0, b"", b"x", "", final, str(task_id)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("last", "tasks"), [(None, [0, 1, 2]), (0, []), (1, [2]), (2, [1, 2]), (3, [0, 1, 2]), (9, [0, 1, 2])]
)
def test_the_last_tasks_that_ended(tmp_path: Path, last: int | None, tasks: list[int]) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.write([joined(0), *(ended(number) for number in range(3))])
    assert [row.task for row in read_tasks(tmp_path, last=last)] == tasks


def test_units_of_a_task_and_the_slots_of_its_engine_among_them(tmp_path: Path) -> None:
    """A task of several nodes has one engine that begins it."""
    with closing(Journal(tmp_path)) as journal:
        journal.write([joined(0), joined(1), joined(2), r.Assigned(0, "0", "e1", "1-4", 3.5, [Task(0, 1)])])
        journal.write([r.Assigned(1, "1", "e9", "0", 9.0, [Task(1, 2)]), ended(0, at=5.5), ended(1), r.Closed(0, 6.0)])
    first, second = read_tasks(tmp_path)
    assert (first.units, first.slots, first.engine, first.rank, first.submitted) == ("1-4", "0-1", "e1", 1, None)
    assert (second.units, second.engine, second.rank) == ("", "", -1), "its assignment came after it"


def test_a_task_began_with_the_last_assignment_before_it_whatever_the_clocks(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.write([joined(0), joined(1)])
        journal.write(
            [
                r.Assigned(0, "0", "e0", "0", 1.0, []),
                r.Assigned(1, "0", "e1", "2", 5.0, []),
                r.Assigned(2, "0", "e0", "1", 5.1, []),
            ]
        )
        journal.write([ended(0, at=5.0)])  # it began at 4
    (row,) = read_tasks(tmp_path)
    assert (row.engine, row.units) == ("e1", "2")


def test_what_a_restarted_driver_is_told_of_assignments_and_ends(tmp_path: Path) -> None:
    """Of an end only what it needs: the sum of what was written, and no node, dates or command."""
    given = [
        r.Assigned(3, "a", "e0", "0", 1.5, [Task(0, 1, line=b"x")], "e0=0,1", 100, 1.0),
        r.Assigned(4, "b", "e0", "1", 2.5, [Task(1, 2)]),
    ]
    end = r.TaskEnded(
        7, 8, 9, 2, "N", JobState.KILLED, -9, 0, "n0", 7, 1.0, 2.0, 3, b"", 4, b"", b"", "y", False, "j", 1.5, 6, "n", b"l", 5, 6
    )  # fmt: skip
    told = r.TaskEnded(7, 0, -1, 2, "N", JobState.KILLED, -9, -1, "", -1, 0.0, 0.0, 7, b"", 0, b"", b"", "", False, "j")
    with closing(Journal(tmp_path)) as journal:
        journal.write([*given, end, r.EngineLeft("e0", 1.0, "", False)])
        found = list(journal.replay())
    assert found == [
        r.Assigned(4, "", "", "", 0.0, []), r.Closed(4, 0.0), msgspec.structs.replace(given[0], submitted_at=0.0), given[1],
        msgspec.structs.replace(told, output=5, left_out=6),
    ]  # fmt: skip


def test_an_assignment_whose_engine_is_not_known(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.write([joined(0), r.Assigned(0, "0", "e9", "2-3", 1.0, [Task(0, 1, line=b"x")])])
    with reading(tmp_path) as db:
        (held,) = read_present(db, tmp_path).held.values()
    assert (held.node, held.slots) == ("", "2-3")
    with closing(RunReader(tmp_path)) as reader:
        (task,) = reader.read().running_tasks
    assert (task.rank, task.node, task.slots) == (-1, "", "2-3")
    with closing(Journal(tmp_path)) as journal:
        journal.write([ended(0)])
    (row,) = read_tasks(tmp_path)
    assert (row.engine, row.rank, row.units, row.slots) == ("e9", -1, "2-3", "")


def test_a_task_that_fails_is_reopened_and_fails_again_between_two_looks(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal, closing(RunReader(tmp_path)) as growing:
        journal.write([joined(0), ended(0, JobState.FAILED)])
        assert growing.read().failed == 1
        again = msgspec.structs.replace(ended(0, JobState.FAILED, at=9.0), attempt=2)
        journal.write(
            [r.Reopened(0, 6.0), again, r.Reopened(0, 10.0), msgspec.structs.replace(again, attempt=3, ended_at=11.0)]
        )
        state = growing.read()
        assert [(failure.task_id, failure.ended_at) for failure in state.failures] == [(0, 11.0)]
        assert (state.finished, state.failed, state.engines[0].failed) == (1, 1, 1)
        journal.write([r.Reopened(0, 12.0)])
        state = growing.read()
        assert (state.finished, state.failed, state.engines[0].failed, state.failures) == (0, 0, 0, ())
        assert [(row.task, row.state, row.attempts) for row in read_tasks(tmp_path)] == [(0, "unfinished", 3)]
        attempts, final = read_attempts(tmp_path, 0)
        assert ([(row.attempts, row.state, row.ended) for row in attempts], final) == (
            [(1, "failed", 5.0), (2, "failed", 9.0), (3, "failed", 11.0)], False
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(100, 104))
def test_a_reader_of_a_growing_journal_sees_what_a_fresh_one_sees(tmp_path: Path, seed: int) -> None:
    run = RandomRun(Random(seed), tmp_path)
    with closing(run.journal), closing(RunReader(tmp_path)) as growing:
        for step in range(50):
            run.step()
            if step % 7 == 0:
                found = steady(growing.read())
                with closing(RunReader(tmp_path)) as fresh:
                    assert steady(fresh.read()) == found
                rows = list(read_tasks(tmp_path))
                assert found.running == len(run.groups)
                assert found.finished - found.skipped == sum(row.state not in ("running", "unfinished") for row in rows)
                assert {task.task_id for task in found.running_tasks} <= {
                    row.task for row in rows if row.state == "running"
                }


def test_what_a_task_waits_for_behind_others() -> None:
    assert behind_others(0, "n") is None
    assert behind_others(1, "n") == Wait("slot", "its slot on n: 1 task of its bundle is before it")
    assert str(behind_others(2000, "n")) == "waits for its slot on n: 2,000 tasks of its bundle are before it"


def test_numbers_of_a_run() -> None:
    engines = tuple(
        EngineRow(n, f"e{n}", "ab"[n % 2], "n", 2 + n, 0, 0, 0, state)
        for n, state in enumerate(("running", "leaving", "lost"))
    )
    run = RunState("r", 10.0, 15.0, 3, 1, 0, engines=engines)
    assert (run.elapsed_s, run.unfinished, run.slots, run.barriers, run.skipped, run.unattended) == (
        5.0,
        None,
        2,
        0,
        0,
        False,
    )
    assert {name: [row.rank for row in rows] for name, rows in run.contexts.items()} == {"a": [0, 2], "b": [1]}
    assert [engine.present for engine in engines] == [True, True, False]
    assert msgspec.structs.replace(run, ended_at=12.5, total=7).elapsed_s == 2.5
    assert msgspec.structs.replace(run, ended_at=9.5, total=7).elapsed_s == 0.0
    assert [msgspec.structs.replace(run, total=total).unfinished for total in (7, 3, 2)] == [4, 0, 0]


def test_what_is_not_said_of_rows() -> None:
    row = TaskRow(1, 2, -1, "running", None, 1, "n", None, None, "", "x", last_line=last_line(b""))
    assert (row.out_bytes, row.err_bytes, row.rank, row.cpu_s, row.memory_kb, row.submitted) == (0, 0, -1, 0.0, 0, None)
    assert (Submission(1).submitted_at, Submission(1).walltime) == (0.0, inf)
    assert EngineSpan("e", 0, "c", "n", 0, 1, 1.0).lost is False
    job = JobRow("j", IdSet())
    assert (job.state, job.started, job.ended, job.exit_code, job.pid) == (None, 0.0, 0.0, 0, -1)
    engine, task = EngineRow(0, "e", "c", "n", 1, 0, 0, 0, "gone"), RunningTask(0, 1, 0.0, 0, "n", "0", "x")
    assert (engine.present, engine.joined_at, task.attempt) == (False, 0.0, 1)
    output, held = TaskOutput(0, 1, "running", None, []), HeldTask(0, 1, "j", "n", "0", 0.0)
    assert (output.text(0), output.left_out, held.wait, held.line, held.before) == (b"", 0, None, 0, 0)


def test_plans() -> None:
    plan = Plan()
    assert list(plan.lines()) == []
    first, second = TaskReader("t").read([b"a\n", b"#PILOTHOUSE cores=3 mem=5M\n", b"b\n"])
    assert (plan.job_of(first).id, plan.job_of(first).units, plan.job_of(first).walltime, plan.job_of(first).shape) == (
        "0",
        1,
        inf,
        None,
    )
    assert plan.job_of(second).units == 3
    assert plan.job_of(second).shape == Shape(1, 1, memory_mb_per_node=5)
    other = Plan(PlanOptions(units=2, gpus_per_task=1, mem=7, walltime=9.0))
    assert other.job_of(first).walltime == 9.0
    assert other.job_of(first).shape == Shape(1, 1, gpus_per_node=1, memory_mb_per_node=7)
    assert other.job_of(second).shape == Shape(1, 1, gpus_per_node=1, memory_mb_per_node=5)
    assert plan_of({}) == plan == plan_of({"plan": msgspec.msgpack.encode(plan)})
    assert plan_of({"plan": msgspec.msgpack.encode(other)}) == other
    with pytest.raises(InputError, match="/none/tasks: cannot read the task file: No such file"):
        Plan(source="/none/tasks").lines()


def test_the_form_of_a_task_file_is_kept_in_its_plan(tmp_path: Path) -> None:
    path = tmp_path / "tasks"
    path.write_text('{"command": "a"}\n')
    assert [line.command for line in Plan(PlanOptions(task_format="jsonl"), str(path)).lines()] == ["a"]
    path.write_text("#DISBATCH x\na\n")
    assert [line.command for line in Plan(PlanOptions(lenient=True), str(path)).lines()] == ["a"]
    with pytest.raises(InputError, match="unknown directive"):
        list(Plan(source=str(path)).lines())


def test_notes_of_a_wrong_kind_are_damage(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        assert (journal.noted, journal.note("a"), journal.number("a"), journal.notes("a")) == (False, None, 0, {})
        journal.put_notes(a=5, ab=b"x", b=None, c=1.5)
        assert (journal.noted, journal.note("a"), journal.number("a"), journal.notes("a")) == (
            True,
            b"5",
            5,
            {"": b"5", "b": b"x"},
        )
        assert (journal.note("b"), journal.note("c")) == (None, b"1.5")
        assert (read_note(tmp_path, "a"), read_note(tmp_path, "b")) == (b"5", None)
        with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as db:
            for value in ("text", 7, None):
                db.execute("UPDATE notes SET value=? WHERE name='a'", (value,))
                for read in (journal.note, journal.number):
                    with pytest.raises(InputError, match="the journal is damaged"):
                        read("a")
        with pytest.raises(InputError, match="the journal is damaged"):
            journal.number("ab")


def test_a_journal_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not SQLite" * 500)
    with pytest.raises(RunError, match="cannot open the journal"):
        Journal(tmp_path)
    with pytest.raises(InputError, match="the journal is damaged"):
        list(read_tasks(tmp_path))


def test_tasks_that_have_not_been_begun(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.put_notes(total=6)
        assert never_begun(tmp_path) == 6
        tasks = [Task(0, 1, attempt=2), Task(1, 2), Task(2, 3)]
        journal.write(
            [joined(0), ended(0, JobState.FAILED, final=False), ended(3), r.Assigned(0, "0", "e0", "0", 1.0, tasks)]
        )
        assert never_begun(tmp_path) == 2  # one was tried, one has ended, two are held for the first time
        journal.put_notes(total=3)
        assert never_begun(tmp_path) == 0


def test_the_last_line() -> None:
    assert [last_line(data) for data in (None, b"", b" \n", b"a\n b \n\n", b"\xff")] == [
        "",
        "",
        "",
        "b",
        "\N{REPLACEMENT CHARACTER}",
    ]


def test_progress_of_tasks() -> None:
    progress = Progress()
    assert (progress.has_ended(1, 1), progress.tried_until(1), progress.free_since) == (False, 0.0, 0.0)
    progress.note(1, 2, "N", "failed", 5.0, 0, "a", "", 1)
    assert [progress.has_ended(1, attempt) for attempt in (1, 2, 3)] == [True, True, False]
    assert (progress.tried_until(1), progress.names_ended, progress.bad_names) == (5.0, {"a": 5.0}, {})
    progress.note(1, 3, "N", "failed", 9.0, 1, "a", "", 1)
    progress.note(2, 1, "N", "succeeded", 8.0, 1, "a", "", 2)
    progress.note(3, 1, "N", "killed", 8.5, 1, "b", "j", 0)
    progress.note(0, 1, "P", "failed", 99.0, 1, "p", "p", 0)
    assert progress.has_ended(1, 4)
    assert (progress.tried_until(1), progress.names_ended, progress.bad_names) == (
        0.0,
        {"a": 9.0, "b": 8.5},
        {"a": {1}, "b": {3}},
    )
    assert progress.jobs_ended == {"j": (False, 8.5)}
    progress.reopened(1, 9.0)
    assert (progress.bad_names, progress.tried, progress.has_ended(1, 3), progress.has_ended(1, 4)) == (
        {"b": {3}},
        {1: (3, 9.0)},
        True,
        False,
    )
    progress.note(4, 1, "B", "succeeded", 7.0, 1, "", "", 4)
    progress.note(5, 1, "C", "succeeded", 6.0, 1, "", "", 5)
    assert progress.free_since == 7.0


def test_tasks_of_a_bundle_and_nodes_that_are_there(tmp_path: Path) -> None:
    gpus = r.EngineJoined("e1", 1, "local", "n1", 2, 2, 7, 1.0, "", ("0", "1"), 500, 4)
    tasks = [Task(number, number + 1, line=b"x") for number in range(3)]
    with closing(Journal(tmp_path)) as journal:
        journal.put_notes(started=1.0, decider="easy", plan=msgspec.msgpack.encode(Plan()))
        journal.write([joined(0), gpus, joined(2), r.EngineLeft("e0", 2.0, "", False)])
        journal.write([r.Assigned(0, "0", "e1", "2-3", 4.0, tasks, "e1=0,1 e2=0", 100), ended(0, at=6.0)])
    with reading(tmp_path) as db:
        found = read_present(db, tmp_path)
    assert found.nodes == (Node("n1", 2, 2, 2, 500, 4), Node("n2", 4, 2, 0, 0, 1))
    assert (found.started_at, found.decider, found.driven) == (1.0, "easy", True)
    assert [(task.task_id, task.since, task.before, task.slots) for task in found.held.values()] == [
        (1, 6.0, 0, "0-1"),
        (2, 4.0, 1, "0-1"),
    ]
    (running,) = found.running
    assert (running.job.units, running.job.shape, running.started_at) == (
        2,
        Shape(gpus_per_node=2, memory_mb_per_node=100),
        4.0,
    )
    assert list(read_waiting(tmp_path)) == []
    assert [row.reason for row in read_tasks(tmp_path)] == [
        "",
        "",
        "waits for its slot on n1: 1 task of its bundle is before it",
    ]


def test_a_jump_of_the_clock_does_not_make_a_run_days_old(tmp_path: Path) -> None:
    """The driver began 7 s ago by the monotonic clock; the system's clock was set three days ahead meanwhile."""
    started_at = time.time() - 3 * 86400
    with closing(Journal(tmp_path)) as journal:
        journal.put_notes(started=started_at)
        journal.write([clock_note(started_at, time.monotonic() - 7.0), joined(0)])
    with closing(RunReader(tmp_path)) as reader:
        assert 7.0 <= reader.read().elapsed_s < 60.0
    with reading(tmp_path) as db:
        assert read_present(db, tmp_path).now - started_at < 60.0


def test_on_another_host_or_after_a_restart_the_clock_of_the_system_counts(tmp_path: Path) -> None:
    for note in (b"", b"12.5 another-boot", b"x", b"\xff"):
        assert abs(date_now({"clock": note}) - time.time()) < 60.0
