"""kill -9 of what a run consists of: nothing is lost, nothing is run twice that must not be."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from tests.storms.processes import working_in

from e2e.live_runs import (
    COMMAND,
    alive,
    engine_pid,
    finish,
    gated,
    kill_engine_while_two_run,
    lines,
    rows,
    run,
    start,
    tasks,
    until,
)

EIGHT = "".join(f"echo {i} >> begun; sleep 0.7; echo {i} >> ended\n" for i in range(8))

WAITING = "".join(f"echo {i} >> begun; until [ -e go ]; do sleep 0.05; done; echo {i} >> ended\n" for i in range(8))
"""They end when there is a file `go`."""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_killed_engine_tasks_are_reissued(tmp_path: Path) -> None:
    process = start(tmp_path, tasks(tmp_path, gated(2)), "--dir", "R", "--slots", "2")
    kill_engine_while_two_run(tmp_path)
    code, said = finish(process)
    assert code == 0
    assert "starting another" in said
    assert lines(tmp_path / "ended") == [str(i) for i in range(8)]
    lost = rows(tmp_path / "R", "SELECT task_id, final FROM ends WHERE state = 'lost'")
    assert len(lost) == 2
    assert all(final == 0 for _, final in lost)


def test_killed_engine_without_reissue_reports_exactly_what_was_cut_off(tmp_path: Path) -> None:
    process = start(tmp_path, tasks(tmp_path, gated(2)), "--dir", "R", "--slots", "2", "--once", "at-most")
    kill_engine_while_two_run(tmp_path)
    code, said = finish(process)
    assert code == 1
    lost = {str(row[0]) for row in rows(tmp_path / "R", "SELECT task_id FROM ends WHERE state = 'lost' AND final")}
    assert "lost" in said
    begun, ended = lines(tmp_path / "begun"), lines(tmp_path / "ended")
    assert len(begun) == len(set(begun)), "none is begun twice"
    # A task may have been cut off before its first word, or between its last word and its result.
    assert set(begun) - set(ended) <= lost
    assert set(ended) | lost == {str(i) for i in range(8)}


def test_killed_engine_leaves_no_orphans(tmp_path: Path) -> None:
    file = tasks(tmp_path, "echo $$ > pid; setsid sleep 300 & echo $! >> pid; wait\n")
    process = start(tmp_path, file, "--dir", "R", "--slots", "1", "--once", "at-most")
    until(lambda: len(lines(tmp_path / "pid")) == 2, "the task began")
    pids = [int(text) for text in lines(tmp_path / "pid")]
    os.kill(engine_pid(tmp_path / "R"), signal.SIGKILL)
    assert finish(process)[0] == 1
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("victim", ["warden", "cylinder"])
def test_whatever_part_of_an_engine_is_killed(tmp_path: Path, victim: str) -> None:
    begun = tmp_path / "begun"
    file = tasks(tmp_path, "echo $$ >> begun; test $(wc -l < begun) -gt 1 || sleep 300\n")
    process = start(tmp_path, file, "--dir", "R", "--slots", "1")
    until(lambda: lines(begun), "the task began")
    task, engine = int(lines(begun)[0]), engine_pid(tmp_path / "R")
    os.kill(parent(engine) if victim == "warden" else parent(task), signal.SIGKILL)
    code, said = finish(process)
    assert code == 0, said
    assert len(lines(begun)) == 2
    assert not alive(task), "the first attempt must not go on"


def offspring(pid: int) -> set[int]:
    return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def test_a_cylinder_that_is_killed_while_its_engine_is_stopped_does_not_end_that(tmp_path: Path) -> None:
    """The engine finds the end of the old cylinder and its successor in one round."""
    file = tasks(tmp_path, WAITING.replace("echo 0 >> begun", "echo 0 >> begun; echo $$ >> pid"))
    process = start(tmp_path, file, "--dir", "R", "--slots", "4", "--bundle", "1")
    until(lambda: len(lines(tmp_path / "begun")) == 4, "four tasks began")
    engine = engine_pid(tmp_path / "R")
    warden = parent(engine)
    os.kill(engine, signal.SIGSTOP)
    before = offspring(warden)
    os.kill(parent(int(lines(tmp_path / "pid")[0])), signal.SIGKILL)
    until(lambda: offspring(warden) - before, "the warden has forked another")
    os.kill(engine, signal.SIGCONT)
    (tmp_path / "go").touch()
    assert finish(process)[0] == 0
    assert lines(tmp_path / "begun") == sorted(["0", *(str(i) for i in range(8))]), "only its task began again"
    assert len(rows(tmp_path / "R", "SELECT 1 FROM engines")) == 1


def test_slots_beyond_what_a_host_may_have_are_refused(tmp_path: Path) -> None:
    file = tasks(tmp_path, "true\n")
    for option in (("--ssh", "h1:99999999999"), ("--slots", "99999999999"), ("--ssh", "h1,h2:2", "--slots", "1025")):
        code, said = run(tmp_path, file, "--dir", "R", *option)
        assert code == 2 and "1,024 or fewer" in said and "--most-slots" in said and said.count("\n") == 1, said
    assert not (tmp_path / "R").exists()


def test_slots_that_have_no_task_have_no_process(tmp_path: Path) -> None:
    text = "echo $PPID > cylinder; until [ -e go ]; do sleep 0.02; done\n"
    process = start(tmp_path, tasks(tmp_path, text), "--dir", "R", "--slots", "100000", "--most-slots", "100000")
    until(lambda: lines(tmp_path / "cylinder"), "the task began")
    engine, cylinder = engine_pid(tmp_path / "R"), int(lines(tmp_path / "cylinder")[0])
    assert offspring(parent(engine)) == {engine, cylinder}
    (tmp_path / "go").touch()
    assert finish(process)[0] == 0


@pytest.mark.parametrize("resumed", [False, True])
def test_nothing_of_a_run_is_alive_when_it_returns(tmp_path: Path, resumed: bool) -> None:
    process = start(tmp_path, tasks(tmp_path, WAITING), "--dir", "R", "--slots", "2")
    until(lambda: len(lines(tmp_path / "begun")) == 2, "two tasks began")
    if resumed:
        process.kill()
        finish(process)
        process = start(tmp_path, "--resume", "R")
    (tmp_path / "go").touch()
    process.wait()
    assert not working_in(tmp_path) and not list((tmp_path / "R").glob("*.spool"))
    assert finish(process)[0] == 0


def test_a_task_that_kills_its_engines_does_not_end_the_run(tmp_path: Path) -> None:
    file = tasks(tmp_path, "kill -9 $PPID\necho fine > fine\n")
    code, said = run(tmp_path, file, "--dir", "R", "--slots", "1", "--bundle", "1")
    assert code == 1 and "no engine is left" not in said
    assert rows(tmp_path / "R", "SELECT state FROM ends WHERE task_id = 0 AND final") == [("lost",)]
    assert (tmp_path / "fine").exists()


def test_killed_driver_takes_its_engines_back(tmp_path: Path) -> None:
    process = start(tmp_path, tasks(tmp_path, WAITING), "--dir", "R", "--slots", "2")
    until(lambda: len(lines(tmp_path / "begun")) == 2, "two tasks began")
    process.kill()
    finish(process)
    (tmp_path / "go").touch()
    until(lambda: len(lines(tmp_path / "ended")) == 2, "they ended while there was no driver")
    code, said = run(tmp_path, "--resume", "R")
    assert code == 0, said
    assert lines(tmp_path / "begun") == lines(tmp_path / "ended") == [str(i) for i in range(8)]
    assert len(rows(tmp_path / "R", "SELECT * FROM engines")) == 1


def test_killed_driver_and_engine(tmp_path: Path) -> None:
    process = start(tmp_path, tasks(tmp_path, EIGHT), "--dir", "R", "--slots", "2")
    until(lambda: len(rows(tmp_path / "R", "SELECT task_id FROM ends")) >= 2, "two ends were noted")
    process.kill()
    finish(process)
    os.kill(engine_pid(tmp_path / "R"), signal.SIGKILL)
    code, said = run(tmp_path, "--resume", "R")
    assert code == 0, said
    assert lines(tmp_path / "ended") == [str(i) for i in range(8)]


def test_engine_that_dies_after_a_resume_is_replaced(tmp_path: Path) -> None:
    first = WAITING.replace("go", "resumed").splitlines()[:2]
    text = "\n".join([*first, *gated(2).splitlines()[2:]]) + "\n"
    process = start(tmp_path, tasks(tmp_path, text), "--dir", "R", "--slots", "2")
    until(lambda: len(lines(tmp_path / "begun")) == 2, "two tasks began")
    process.kill()
    finish(process)
    process = start(tmp_path, "--resume", "R")
    (tmp_path / "resumed").touch()
    until(lambda: len(lines(tmp_path / "begun")) == 4, "the engine was taken back and works")
    (tmp_path / "go").touch()
    os.kill(engine_pid(tmp_path / "R"), signal.SIGKILL)
    code, said = finish(process)
    assert code == 0, said
    assert "starting another" in said
    assert sorted(set(lines(tmp_path / "ended"))) == [str(i) for i in range(8)]


def test_engine_without_a_driver_ends_its_tasks_and_leaves(tmp_path: Path) -> None:
    file = tasks(tmp_path, "echo $$ > pid; sleep 300\n")
    process = start(tmp_path, file, "--dir", "R", "--slots", "1", "--wait-for-driver", "1")
    until(lambda: lines(tmp_path / "pid"), "the task began")
    engine, task = engine_pid(tmp_path / "R"), int(lines(tmp_path / "pid")[0])
    process.kill()
    finish(process)
    until(lambda: not alive(engine) and not alive(task), "engine and task are gone")


def test_two_drivers_cannot_work_on_one_run(tmp_path: Path) -> None:
    process = start(tmp_path, tasks(tmp_path, "sleep 300\n"), "--dir", "R")
    engine_pid(tmp_path / "R")
    code, said = run(tmp_path, "--resume", "R")
    assert code == 1
    assert "a driver is at work" in said
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 1


def test_silent_engine_is_given_up_and_joins_anew(tmp_path: Path) -> None:
    file = tasks(tmp_path, EIGHT)
    process = start(tmp_path, file, "--dir", "R", "--slots", "2", "--lost-after", "1")
    until(lambda: len(lines(tmp_path / "begun")) >= 3, "the third task began")
    engine = engine_pid(tmp_path / "R")
    os.kill(engine, signal.SIGSTOP)
    until(lambda: rows(tmp_path / "R", "SELECT 1 FROM engines WHERE lost"), "the engine was given up")
    os.kill(engine, signal.SIGCONT)
    code, said = finish(process)
    assert code == 0, said
    assert len(rows(tmp_path / "R", "SELECT 1 FROM engines")) >= 2  # the same process, under new names
    assert rows(tmp_path / "R", "SELECT count(*) FROM ends WHERE final AND state = 'succeeded'") == [(8,)]


def test_full_disk_stops_everything_until_there_is_room(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a disk that is full: every write to the journal fails."""
    file = tasks(tmp_path, "".join(f"echo {i} >> begun\n" for i in range(300)))
    command = shlex.join([*COMMAND, "run", file, "--dir", "R", "--slots", "2", "--bundle", "1"])
    process = subprocess.Popen(
        ["bash", "-c", f"ulimit -S -f 150; exec {command}"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "cannot write" in line:
            break
    else:
        raise AssertionError("it never ran out of space")
    assert len(lines(tmp_path / "begun")) < 300
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2.5)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    code, said = finish(process)
    assert code == 0, said
    assert "cannot write" not in said and said.count("can be written again") == 1
    assert lines(tmp_path / "begun") == sorted(str(i) for i in range(300))


@pytest.mark.parametrize("tasks_that_write", [1, 3])
def test_outputs_that_a_full_disk_did_not_keep_are_in_the_summary(tmp_path: Path, tasks_that_write: int) -> None:
    """A limit on the size of files, which the pack of the engine reaches and the log of its cylinder does not."""
    limit = "prlimit --fsize=20000 --pid $PPID"
    file = tasks(tmp_path, f"{limit}\n#DISBATCH BARRIER\n" + "head -c 30000 /dev/urandom\n" * tasks_that_write)
    code, said = run(tmp_path, file, "--dir", "R", "--slots", "1")
    assert code == 0, said
    what = "1 task" if tasks_that_write == 1 else "3 tasks"
    assert f"the output of {what} was not kept whole (--output-limit, or a full disk)" in said
