"""Inputs and situations that once ended in a traceback or did not end at all: one line, an exit code, in time."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shlex
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.storms.processes import working_in

import components
from e2e.live_runs import COMMAND, finish, rows, run, start, tasks, until
from pilothouse.dropins.qcg.manager import Manager, System
from pilothouse.formats.task_file import check_stream, read_file
from pilothouse.model.errors import PeerError
from pilothouse.protocols.batsim.codec import decode_from_scheduler
from pilothouse.worlds.live.wire.messages import VERSION, EngineFrame, Hello, encode
from pilothouse.worlds.live.wire.sockets import Credentials, EngineSocket, Keys

LIMIT_S = 40


def said(folder: Path, *arguments: str, limit: Callable[[], None] | None = None) -> tuple[int, str]:
    ran = subprocess.run(
        [*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, preexec_fn=limit, check=False
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("template", ["{task.x}", "{task:>999999999}", "{task!r}", "{", "{0}", "{task[0]}", "{task:{line}}"])
def test_names_of_outputs_are_checked_before_anything_runs(tmp_path: Path, template: str) -> None:
    code, line = said(tmp_path, "run", "--out", template, tasks(tmp_path, "true\n"))
    assert code == 2 and line.count("\n") == 1


def test_widths_of_placeholders_stay(tmp_path: Path) -> None:
    assert run(tmp_path, "--out", "{task:04d}.{attempt}", tasks(tmp_path, "echo hi\n"))[0] == 0
    assert (tmp_path / "0000.1").read_text() == "hi\n"


def test_sbatch_options_that_no_shell_reads(tmp_path: Path) -> None:
    code, line = said(
        tmp_path, "run", "--auto-slurm", "1", "--auto-slots", "1", "--sbatch-options", "'", tasks(tmp_path, "true\n")
    )
    assert code == 2 and "--auto-options" in line


def test_a_device_is_no_workload(tmp_path: Path) -> None:
    code, line = said(tmp_path, "simulate", "-p", "4", "-w", "/dev/zero", "--policy", "fcfs")
    assert code == 2 and "device" in line


def test_a_trace_that_does_not_fit_into_memory(tmp_path: Path) -> None:
    packed = tmp_path / "z.swf.gz"
    packed.write_bytes(gzip.compress(bytes(1 << 30), 1))
    few = 600 << 20
    code, _ = said(
        tmp_path, "simulate", "-p", "4", "-w", str(packed), "--policy", "fcfs",
        limit=lambda: resource.setrlimit(resource.RLIMIT_AS, (few, few)),
    )  # fmt: skip
    assert code in (1, 2)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"jobs": ' + "[" * 100_000])
def test_deep_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "deep.json").write_text(text)
    assert said(tmp_path, "simulate", "-p", "4", "-w", "deep.json", "--policy", "fcfs")[0] == 2


def test_deep_xml(tmp_path: Path) -> None:
    (tmp_path / "deep.xml").write_text('<platform version="4.1">' + '<zone id="a" routing="Full">' * 20_000)
    example = components.ROOT / "examples" / "tiny.json"
    assert said(tmp_path, "simulate", "-p", "deep.xml", "-w", str(example), "--policy", "fcfs")[0] == 2


@pytest.mark.parametrize(
    "request_text",
    [
        b'{"request": "submit", "jobs": [{"name": "a", "execution": {"exec": "true", "wd": "a\\u0000b"}}]}',
        b'{"request": "submit", "jobs": [{"name": "a", "execution": {"exec": "true"}, "resources": {"numCores": 1e999}}]}',
        b'{"request": "submit", "jobs": [{"name": "a", "execution": {"exec": "\xff"}}]}',
        b'{"request": "submit", "jobs": ' + b"[" * 100_000,
        b'{"request": "jobInfo", "jobNames": ["a"], "params": {"x": 1e999}}',
    ],
)
def test_no_request_ends_a_qcg_manager(request_text: bytes) -> None:
    manager = Manager(System("x", 0.0), (), lambda: "id")
    assert manager.handle(request_text, 1.0)["code"] == 1


def test_a_line_that_no_system_executes_is_refused_at_once(tmp_path: Path) -> None:
    code, line = said(tmp_path, "run", tasks(tmp_path, "echo " + "x" * 80_000_000 + "\ntrue\n"))
    assert code == 2 and "bytes, more than a command can have" in line


def test_a_long_line_of_standard_input_is_read_in_proportion(tmp_path: Path) -> None:
    from pilothouse.launch.task_source import _standard_input

    (tmp_path / "in").write_bytes(b"x" * 80_000_000 + b"\nlast")
    kept = os.dup(0)
    with (tmp_path / "in").open("rb") as stream:
        os.dup2(stream.fileno(), 0)
    try:
        before = time.process_time()
        assert [len(line) for line in _standard_input(tmp_path / "copy")] == [80_000_000, 4]
        assert time.process_time() - before < 10
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_an_early_kill_leaves_a_folder_that_can_be_used_again(tmp_path: Path) -> None:
    from pilothouse.journal.store import Journal

    (tmp_path / "r").mkdir()
    Journal(tmp_path / "r").close()
    code, line = said(tmp_path, "run", "--resume", "r")
    assert code == 2 and "--dir" in line
    assert run(tmp_path, "--dir", "r", tasks(tmp_path, "true\n"))[0] == 0


def test_a_folder_that_is_removed_is_not_a_success(tmp_path: Path) -> None:
    process = start(tmp_path, "--dir", "r", tasks(tmp_path, "touch began; while [ ! -e go ]; do sleep 0.05; done\n"))
    until((tmp_path / "began").exists, "the task began")
    shutil.rmtree(tmp_path / "r")
    (tmp_path / "go").touch()
    code, line = finish(process)
    assert code == 1 and "removed" in line and "Traceback" not in line


def test_the_folder_of_a_run_is_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        assert run(tmp_path, "--dir", "r", tasks(tmp_path, "true\n"))[0] == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o700
    for path in (tmp_path / "r").iterdir():
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_planted_files_are_refused(tmp_path: Path) -> None:
    name = tasks(tmp_path, "true\n")
    target = tmp_path / "precious"
    target.write_text("precious")
    for planted in ("lock", "keys.json", "journal.sqlite"):
        folder = tmp_path / f"with-{planted}"
        folder.mkdir(mode=0o700)
        (folder / planted).symlink_to(target)
        code, line = said(tmp_path, "run", "--dir", str(folder), name)
        assert code == 2 and "symbolic link" in line
    assert target.read_text() == "precious"
    if os.getuid() == 0:
        folder = tmp_path / "theirs"
        folder.mkdir(mode=0o700)
        (folder / "keys.json").write_text(json.dumps({}))
        os.chown(folder / "keys.json", 65534, 65534)
        code, line = said(tmp_path, "run", "--dir", str(folder), name)
        assert code == 2 and "another user" in line


def test_a_pipe_among_the_requests_stops_nothing(tmp_path: Path) -> None:
    requests = tmp_path / "r" / "requests"
    requests.mkdir(parents=True, mode=0o700)
    os.mkfifo(requests / "1.json")
    process = start(tmp_path, "--dir", "r", tasks(tmp_path, "while [ -e r/requests/1.json ]; do sleep 0.05; done\n"))
    assert finish(process)[0] == 0


def test_a_closed_terminal_ends_a_run_in_order_and_nohup_does_not(tmp_path: Path) -> None:
    name = tasks(tmp_path, "touch began; while [ ! -e go ]; do sleep 0.05; done\n")
    process = start(tmp_path, "--dir", "r", name)
    until((tmp_path / "began").exists, "the task began")
    process.send_signal(signal.SIGHUP)
    code, line = finish(process)
    assert code == 1 and "interrupted" in line
    (tmp_path / "began").unlink()
    ignoring = subprocess.Popen(["nohup", *COMMAND, "run", "--dir", "n", name], cwd=tmp_path, stderr=subprocess.DEVNULL)
    until((tmp_path / "began").exists, "the task began again")
    ignoring.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()
    assert ignoring.wait(LIMIT_S) == 0


def test_an_engine_that_does_not_answer_cannot_keep_a_stopped_run(tmp_path: Path) -> None:
    """The engine is frozen: it neither ends its task nor says goodbye."""
    name = tasks(tmp_path, "touch began; sleep 100\n")
    process = start(tmp_path, "--dir", "r", "--grace", "1", name)
    until((tmp_path / "began").exists, "the task began")
    ((engine,),) = rows(tmp_path / "r", "SELECT pid FROM engines")
    assert isinstance(engine, int)
    os.kill(engine, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    code, line = finish(process)
    assert code == 1 and "waiting for" in line and "Traceback" not in line
    assert not working_in(tmp_path), "the engine was killed"


def test_a_full_disk_does_not_keep_a_stopped_run(tmp_path: Path) -> None:
    """Every write to the journal fails (a limit on the size of files) when the run is told to stop, and goes on failing."""
    name = tasks(tmp_path, "".join(f"echo {i} >> begun\n" for i in range(300)))
    command = shlex.join([*COMMAND, "run", name, "--dir", "r", "--slots", "2", "--bundle", "1", "--grace", "1"])
    process = subprocess.Popen(
        ["bash", "-c", f"ulimit -f 150; exec {command}"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "cannot write" in line:
            break
    process.send_signal(signal.SIGTERM)
    code, said_last = finish(process)
    assert code == 1 and "Traceback" not in said_last


def test_a_device_is_no_trace(tmp_path: Path) -> None:
    profile = {"type": "usage_trace", "trace": "list"}
    job = {"id": "1", "subtime": 0, "res": 1, "profile": "p"}
    (tmp_path / "w.json").write_text(json.dumps({"nb_res": 1, "jobs": [job], "profiles": {"p": profile}}))
    for text in ("/dev/zero\n", "zero\n"):
        (tmp_path / "list").write_text(text)
        (tmp_path / "zero").unlink(missing_ok=True)
        (tmp_path / "zero").symlink_to("/dev/zero")
        code, line = said(tmp_path, "simulate", "-p", "4", "-w", "w.json", "--policy", "fcfs")
        assert code == 2 and "device" in line
    (tmp_path / "list").unlink()
    (tmp_path / "list").symlink_to("/dev/zero")
    assert said(tmp_path, "simulate", "-p", "4", "-w", "w.json", "--policy", "fcfs")[0] == 2


def test_no_descriptor_is_left_for_an_engine(tmp_path: Path) -> None:
    """EMFILE when the run starts its engine: one line, and no run that waits for ever."""
    name = tasks(tmp_path, "true\n")
    for most in (10, 12, 14, 18, 22, 26):

        def limit(most: int = most) -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

        code, line = said(tmp_path, "run", "--dir", f"r{most}", name, limit=limit)
        assert code == 1 and "open files" in line and line.count("\n") == 1


def test_bad_text_from_an_engine_with_the_key_is_dropped(tmp_path: Path) -> None:
    """Frames with the run's key that hold bad UTF-8, too deep nesting or nonsense: the run goes on."""
    name = tasks(tmp_path, "touch began; while [ ! -e go ]; do sleep 0.05; done\n" + "true\n" * 5)
    process = start(tmp_path, "--dir", "r", name)
    until((tmp_path / "began").exists, "the task began")
    keys = msgspec.json.decode((tmp_path / "r" / "keys.json").read_bytes(), type=Keys)
    ((port,),) = rows(tmp_path / "r", "SELECT value FROM notes WHERE name = 'port'")
    assert isinstance(port, bytes)
    address = f"tcp://127.0.0.1:{int(port)}"
    engine = EngineSocket(Credentials((address,), keys.server_public, keys.client_public, keys.client_secret), "stranger")
    good = encode(EngineFrame(VERSION, "strange", 0, 0, 0, [Hello(context="c", node="n\0ode", slots=1, pid=1, started_at=0.0)]))
    bad = good.replace(b"n\0ode", b"n\xff\xfe\x80")
    for frame in (bad, b"\x91" * 100_000, b"", b"\xff" * 50, good[:-3], b"\x96" + good[1:5]):
        engine.send(frame)
    engine.close()
    (tmp_path / "go").touch()
    code, line = finish(process)
    assert code == 0 and "dropped a malformed message" in line and "Traceback" not in line


def test_a_scheduler_that_answers_deep_json(tmp_path: Path) -> None:
    begins = b'{"now": 1, "events": '
    for text in (b"[" * 200_000, begins + b"[" * 200_000, begins + b'[{"data": ' + b'{"a":' * 100_000):
        with pytest.raises(PeerError, match="peer: "):
            decode_from_scheduler(text, "peer")


def test_a_long_line_of_a_lenient_task_file_is_read_in_proportion(tmp_path: Path) -> None:
    path = tmp_path / "tasks"
    path.write_bytes(b"echo " + b"x" * 80_000_000 + b"\n#DISBATCH " + b"y" * 80_000_000 + b"\ntrue\n")
    before = time.process_time()
    with path.open("rb") as stream:
        assert check_stream(stream, "tasks", lenient=True).tasks >= 2
    with path.open("rb") as stream:
        assert sum(1 for _ in read_file(stream, "tasks", lenient=True)) >= 2
    assert time.process_time() - before < 10
