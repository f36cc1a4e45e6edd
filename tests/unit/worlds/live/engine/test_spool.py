"""What an engine leaves behind when it is killed."""

from __future__ import annotations

import os
import resource
import signal
import threading
from pathlib import Path

import pytest

from pilothouse.worlds.live.engine.spool import Log, Spool, boot_id, is_unlocked, read_log, read_spool, remains_of
from pilothouse.worlds.live.wire.messages import Result


def result(task_id: int, size: int = 0) -> Result:
    return Result(task_id, 1, 0, 99, 1.0, 2.0, size, b"x" * size)


def test_killed_writers_are_read(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "s"), "engine")
    if (pid := os.fork()) == 0:
        log = spool.new_log(0)
        log.begin(5)
        log.running(1)
        log.ended(result(1))
        log.running(2)
        other = spool.new_log(1)
        other.begin(6)
        other.running(3)
        other.ended(result(3))
        other.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    remains = read_spool(tmp_path / "s")
    assert remains.identity.engine == "engine"
    assert [(entry.assignment, [end.task_id for end in entry.results]) for entry in remains.finished] == [(5, [1]), (6, [3])]
    assert remains.begun == {2}


def test_results_of_any_size_and_number_are_kept(tmp_path: Path) -> None:
    log = Log(tmp_path / "0.0")
    log.begin(5)
    for task_id in range(5000):
        log.running(task_id)
        log.ended(result(task_id, 83))
    log.running(5000)
    content = read_log(tmp_path / "0.0")
    assert content.assignment == 5
    assert [end.task_id for end in content.last_results] == list(range(5000))
    assert content.running == 5000


def test_a_log_is_emptied_only_by_the_next_assignment(tmp_path: Path) -> None:
    log = Log(tmp_path / "0.0")
    for assignment in range(4):
        log.begin(assignment)
        for task_id in range(1000):
            log.running(task_id)
            log.ended(result(task_id, 83))
        log.flush()
    content = read_log(tmp_path / "0.0")
    assert list(content.results) == [3]
    assert len(content.last_results) == 1000


@pytest.mark.parametrize("cut", range(1, 60))
def test_the_last_record_may_be_incomplete(tmp_path: Path, cut: int) -> None:
    log = Log(tmp_path / "0.0")
    log.begin(5)
    log.running(1)
    log.ended(result(1, 10))
    log.flush()
    data = (tmp_path / "0.0").read_bytes()
    (tmp_path / "0.0").write_bytes(data[:-cut])
    content = read_log(tmp_path / "0.0")
    assert not content.last_results
    assert content.running in (1, None)


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    """A limit on the size of files stands in for it. The rest of a record follows what was written of it."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    log = Log(tmp_path / "0.0")
    log.begin(5)
    log.running(1)
    log.ended(result(1, 80))
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
    timer = threading.Timer(0.2, resource.setrlimit, (resource.RLIMIT_FSIZE, (soft, hard)))
    timer.start()
    log.flush()
    timer.join()
    assert [end.task_id for end in read_log(tmp_path / "0.0").last_results] == [1]


def test_remains_are_read_only_when_all_holders_of_the_lock_are_gone(tmp_path: Path) -> None:
    gate, release = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(release)
        Spool(str(tmp_path / "s"), "engine")
        (tmp_path / "made").touch()
        os.read(gate, 1)
        os._exit(0)
    os.close(gate)
    while not (tmp_path / "made").exists():
        pass
    assert not is_unlocked(tmp_path / "s")
    assert remains_of(tmp_path / "s", "engine") is None
    os.close(release)
    os.waitpid(pid, 0)
    assert remains_of(tmp_path / "s", "another") is None
    assert remains_of(tmp_path / "s", "engine") is not None


def test_after_a_restart_of_the_host_it_is_unknown_what_had_begun(tmp_path: Path) -> None:
    """What was written last may be lost with the power; what is there is true."""
    spool = Spool(str(tmp_path / "s"), "engine")
    log = spool.new_log(0)
    log.begin(5)
    log.running(1)
    log.ended(result(1))
    log.running(2)
    spool.release()
    identity = tmp_path / "s" / "identity"
    identity.write_text(identity.read_text().replace(boot_id(), "another"))
    remains = remains_of(tmp_path / "s", "engine")
    assert remains is not None and remains.begun is None
    assert [[end.task_id for end in entry.results] for entry in remains.finished] == [[1]]
