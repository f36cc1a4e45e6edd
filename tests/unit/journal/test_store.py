"""The journal: what is written comes back, a batch is all or nothing, readers see a run that goes on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from pilothouse.journal.read import JobRow, never_begun, read_jobs, read_nodes, read_submissions, read_tasks
from pilothouse.journal.run_reader import RunReader
from pilothouse.journal.store import FILE_NAME, VERSION, Journal, undamaged
from pilothouse.model.errors import InputError, PeerError, RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.wire.messages import Task


def joined(engine: str, rank: int) -> r.EngineJoined:
    return r.EngineJoined(engine, rank, "local", f"n{rank}", 2, rank * 2, 77, 1.0, "key", ("0", "1"), 512, 4)


def ended(task_id: int, state: JobState = JobState.SUCCEEDED, *, final: bool = True, attempt: int = 1) -> r.TaskEnded:
    code = 0 if state is JobState.SUCCEEDED else 1
    return r.TaskEnded(
        task_id,
        1,
        -1,
        attempt,
        "N",
        state,
        code,
        0,
        "n0",
        5,
        1.0,
        2.0,
        3,
        b"out",
        0,
        b"",
        b"caf\xe9",
        "",
        final,
        str(task_id),
    )


def assigned(number: int, *task_ids: int) -> r.Assigned:
    return r.Assigned(number, f"j{number}", "e0", "0", 1.0, [Task(task_id, line=b"x") for task_id in task_ids])


def test_what_a_restarted_driver_is_told(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write([joined("e0", 0), joined("e1", 1), assigned(1, 0), assigned(2, 1, 2, 3)])
    journal.write([ended(0), r.Closed(1, 2.0), r.Returned(2, (3,)), r.EngineLeft("e1", 3.0, "lost", True)])
    journal.write([ended(1, JobState.FAILED, final=False), r.JobKnown("mine", 9, b"data"), r.Note("name", b"value")])
    journal.close()
    again = Journal(tmp_path, must_exist=True)
    told = list(again.replay())
    assert told[:2] == [joined("e0", 0), joined("e1", 1)]
    assert r.EngineLeft("e1", 3.0, "lost", True) in told
    assert r.JobKnown("mine", 9, b"data") in told
    (still_open,) = [record for record in told if type(record) is r.Assigned and record.tasks]
    assert still_open == r.Assigned(2, "j2", "e0", "0", 1.0, [Task(1, line=b"x"), Task(2, line=b"x")])
    ends = [(end.task_id, end.state, end.final) for end in told if type(end) is r.TaskEnded]
    assert ends == [(0, JobState.SUCCEEDED, True), (1, JobState.FAILED, False)]
    assert again.note("name") == b"value"
    again.close()


def test_a_batch_is_all_or_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write([assigned(1, 0)])
    with pytest.raises(RunError, match="cannot write"):
        journal.write([joined("e0", 0), assigned(1, 0)])  # that number is taken
    assert [record for record in journal.replay() if type(record) is r.EngineJoined] == []
    journal.write([joined("e0", 0)])
    journal.close()


def test_rows_of_a_run_that_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write([joined("e0", 0), ended(0), ended(1, JobState.FAILED), assigned(3, 2), ended(4, final=False)])
    rows = list(read_tasks(tmp_path))
    assert [(row.task, row.state, row.exit_code) for row in rows] == [
        (0, "succeeded", 0), (1, "failed", 1), (4, "unfinished", 0), (2, "running", None),
    ]  # fmt: skip
    assert rows[0].command == "caf\N{REPLACEMENT CHARACTER}"
    assert [row.task for row in read_tasks(tmp_path, failed=True)] == [1, 4]
    assert never_begun(tmp_path) is None
    journal.write([r.Note("total", b"9")])
    assert never_begun(tmp_path) == 5
    journal.close()


def test_what_a_task_used_and_its_last_words(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    used = msgspec.structs.replace(ended(0), cpu_s=1.5, memory_kb=7, name="n")
    failed = msgspec.structs.replace(ended(1, JobState.FAILED), err_snippet=b"first\nmiddle", last_line=b"boom")
    snippet = msgspec.structs.replace(ended(2, JobState.FAILED), err_snippet=b"only this")
    journal.write([joined("e0", 0), used, failed, snippet])
    rows = list(read_tasks(tmp_path))
    assert [(row.cpu_s, row.memory_kb, row.name) for row in rows] == [(1.5, 7, "n"), (0.0, 0, ""), (0.0, 0, "")]
    assert [row.last_line for row in rows[:2]] == ["", "boom"]
    journal.close()


def test_jobs_and_nodes_of_a_run(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    job = msgspec.msgpack.encode(Job("j", 2, command=Command(argv=("true",), cwd="/there")))
    known = [r.JobKnown(name, number, job) for number, name in enumerate(("waits", "runs", "done"), 1)]
    done = msgspec.structs.replace(ended(3, JobState.FAILED), job_id="done")
    starts = [r.Assigned(number, name, "e0", "0-1", 1.0, []) for number, name in ((1, "runs"), (2, "done"))]
    journal.write([joined("e0", 0), joined("e1", 1), *known, *starts, done])
    assert read_jobs(tmp_path) == [
        JobRow("done", IdSet.span(0, 2), "/there", JobState.FAILED, done.started_at, done.ended_at, 1, done.pid),
        JobRow("waits", IdSet(), "/there"),
        JobRow("runs", IdSet.span(0, 2), "/there"),
    ]
    assert read_nodes(tmp_path) == (Node("n0", 0, 2), Node("n1", 2, 2))
    journal.close()


def test_jobs_that_came_one_by_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    data = msgspec.msgpack.encode(Job("x", 2, command=Command(argv=("true",))))
    journal.write([r.JobKnown("second", 2, data), r.JobKnown("first", 1, data)])
    assert [(job.id, job.refused) for job in read_submissions(tmp_path)] == [("first", None), ("second", None)]
    journal.close()


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run was recorded"):
        Journal(tmp_path, must_exist=True)
    with pytest.raises(InputError, match="no run was recorded"):
        list(read_tasks(tmp_path))


def test_a_broken_rule_is_not_called_damage_alone(tmp_path: Path) -> None:
    """A damaged journal and a defect of ours look alike: the line names both, and the place."""
    with pytest.raises(InputError, match=r"\(test_store.py:\d+\): it is damaged, or"), undamaged(tmp_path):
        raise AssertionError("a rule")
    with pytest.raises(InputError, match="the journal is damaged: KeyError"), undamaged(tmp_path):
        raise KeyError("x")


def test_sessions_ascend_even_if_their_note_was_lost(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.begin_session(1000.9) == (1000, False)
    assert journal.begin_session(1000.9) == (1001, True)
    assert journal.begin_session(5.0) == (1002, True)
    assert journal.begin_session(2000.0) == (2000, True)


def test_a_driver_that_was_replaced_writes_nothing_any_more(tmp_path: Path) -> None:
    """Two drivers on hosts whose file system does not share locks."""
    former, present = Journal(tmp_path), Journal(tmp_path)
    former.begin_session(1000.0)
    former.write([joined("e0", 0)])
    present.begin_session(1000.0)
    with pytest.raises(PeerError, match="another driver has taken over"):
        former.write([assigned(1, 0)])
    present.write([assigned(2, 0)])
    assert [row.id for row in present.replay() if type(row) is r.Assigned and row.tasks] == [2]


def test_what_was_written_is_durable(tmp_path: Path) -> None:
    """Messages that depend on a record are sent after `write`: it must not be lost with the power."""
    assert Journal(tmp_path)._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_what_may_wait_for_the_disk_is_on_it_with_the_next_that_may_not(tmp_path: Path) -> None:
    """A commit in NORMAL mode does not wait for the disk; one in FULL mode does, for the whole log, if it changes anything."""
    journal = Journal(tmp_path)
    log = journal.path.with_name(f"{journal.path.name}-wal")
    journal.write([ended(0)], durable=False)
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (1,)
    size = log.stat().st_size
    journal.write([])
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert log.stat().st_size > size
    journal.write([ended(1)], durable=False)
    journal.begin_session(1000.0)
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_journal_of_an_earlier_version_is_migrated(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write([joined("e0", 0), assigned(1, 0), ended(0), r.Closed(1, 2.0)])
    journal.close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:  # as it was before versions were kept
        for (index,) in db.execute("SELECT name FROM sqlite_master WHERE type='index' AND sql IS NOT NULL").fetchall():
            db.execute(f"DROP INDEX {index}")
        for column in ("cpu_s", "memory_kb", "name", "last_line", "output", "left_out"):
            db.execute(f"ALTER TABLE ends DROP COLUMN {column}")
        db.execute("PRAGMA user_version=0")
    assert [row.state for row in read_tasks(tmp_path)] == ["succeeded"], "readers do not change it"
    again = Journal(tmp_path, must_exist=True)
    again.write([ended(1)])
    again.close()
    assert [row.cpu_s for row in read_tasks(tmp_path)] == [0.0, 0.0]
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_a_journal_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    Journal(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        db.execute("PRAGMA user_version=99")
    before = (tmp_path / FILE_NAME).read_bytes()
    for use in (lambda: Journal(tmp_path), lambda: list(read_tasks(tmp_path)), lambda: RunReader(tmp_path)):
        with pytest.raises(InputError, match=r"a newer pilothouse made this journal; expected schema \d or older, found 99"):
            use()
    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize("there", [True, False])
def test_a_journal_is_its_owners_alone(tmp_path: Path, there: bool) -> None:
    path = tmp_path / FILE_NAME
    if there:
        path.touch(mode=0o644)
    Journal(tmp_path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_note_that_is_no_text_is_damage(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.put_notes(tasks=4)
        assert journal.note("tasks") == b"4"
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        db.execute("UPDATE notes SET value=7 WHERE name='tasks'")
        db.commit()
    with closing(Journal(tmp_path)) as journal, pytest.raises(InputError, match="note tasks"):
        journal.note("tasks")
