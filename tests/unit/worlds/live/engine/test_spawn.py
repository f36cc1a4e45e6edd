"""Starting programs: when a shell is needed, and the compiled way and the plain one do the same."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest

import components
from pilothouse.worlds.live.engine.cylinder import Cylinder, Inbox, decode_finished, send
from pilothouse.worlds.live.engine.output import PackWriter
from pilothouse.worlds.live.engine.spool import Log, LogContent, read_log
from pilothouse.worlds.live.engine.task_processes import Launcher, find_native, find_shell
from pilothouse.worlds.live.wire.messages import (
    LINGER_S,
    Assignment,
    Finished,
    Prepare,
    Result,
    Stop,
    Task,
    TaskEnvironment,
    Work,
)


@pytest.mark.parametrize(
    ("line", "direct"),
    [
        ("/bin/true", True),
        ("true", True),
        ("sleep 0.1 ", True),
        ("ls -l --color=never /tmp", True),
        ("echo a b", True),
        ("A=1 env", False),
        ("echo $HOME", False),
        ("echo 'a b'", False),
        ("true; false", False),
        ("cat < x", False),
        ("ls *.txt", False),
        ("echo ~", False),
        ("cd /tmp", False),
        ("exit 3", False),
        ("kill 1", False),
        ("no-such-program-here", False),
        ("", False),
        ("echo {a,b}", False),
        ("true # comment", False),
    ],
)
def test_a_shell_only_where_it_is_needed(line: str, direct: bool) -> None:
    argv = Launcher(os.environ["PATH"]).argv(line)
    assert (argv[0] != b"/bin/bash") is direct
    if not direct:
        assert argv == [b"/bin/bash", b"-c", line.encode()]


def test_direct_words_are_what_the_shell_makes_of_them() -> None:
    launcher = Launcher(os.environ["PATH"])
    for line in ("echo a  b\tc", "echo --x=1 a,b:c @d %e +f"):
        argv = launcher.argv(line)
        shell = subprocess.run(["/bin/bash", "-c", line], capture_output=True, check=True).stdout
        assert subprocess.run(argv, capture_output=True, check=True).stdout == shell


def test_a_node_without_bash_uses_its_plain_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bash").symlink_to("/bin/bash")
    assert find_shell(str(tmp_path)) == "/bin/bash"
    monkeypatch.setattr("pilothouse.worlds.live.engine.task_processes.BASH", str(tmp_path / "none"))
    assert find_shell(str(tmp_path)) == str(tmp_path / "bash")
    argv = Launcher(str(tmp_path / "empty")).argv("echo $((6 * 7)); exit 3")
    assert argv[0] == b"/bin/sh"
    ran = subprocess.run(argv, capture_output=True, check=False)
    assert (ran.stdout, ran.returncode) == (b"42\n", 3)


Run = Callable[..., list[Finished]]
WAYS = ["compiled", "plain"]


@pytest.fixture(params=WAYS)
def cylinder(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs tasks in a cylinder process, and returns all that it reported."""
    if request.param == "compiled" and find_native() is None:
        pytest.skip("the compiled twin is not built")

    def run(
        *lines: str, environment: TaskEnvironment | None = None, stop_after: str = "", cut_after: float = 1e9,
        linger_s: float = LINGER_S, begin: Callable[[], None] = lambda: None, beside: Callable[[int], None] = lambda pid: None,
    ) -> list[Finished]:
        ours, theirs = socket.socketpair()
        log = Log(tmp_path / "log")
        pid = os.fork()
        if pid == 0:
            try:
                ours.close()
                begin()
                Cylinder(theirs, log, PackWriter(log.path.with_name("pack")), native=request.param == "compiled").run()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        theirs.close()
        send(ours, Prepare({"COMMON": "c"}, "TASK={task:03d}\0TRY={attempt}", 0.3, linger_s))
        tasks = [Task(index, line=line.encode()) for index, line in enumerate(lines)]
        work = Assignment(7, (0,), tasks, environment or TaskEnvironment(), cut_after=cut_after)
        send(ours, Work(work, {"PLACE": "p"}))
        beside(pid)
        watcher = None
        if stop_after:
            watcher = threading.Thread(target=_stop_when, args=(ours, Path(stop_after)))
            watcher.start()
        inbox, reports = Inbox(ours), []
        while not reports or not reports[-1].closed:
            messages = inbox.receive()
            assert messages is not None, "the cylinder died"
            reports += [decode_finished(data) for data in messages]
        if watcher is not None:
            watcher.join()
        ours.close()
        os.waitpid(pid, 0)
        return reports

    return run


@pytest.mark.parametrize(
    "environment", [{"stdout": "a\0b"}, {"stdin": "a\0b"}, {"cwd": "a\0b"}, {"env": {"A": "a\0b"}}, {"env": {"=": "\0"}}]
)
def test_names_that_no_system_knows_are_the_end_of_their_task_only(cylinder: Run, environment: dict[str, Any]) -> None:
    ended = results(cylinder("true", "true", environment=TaskEnvironment(**environment)))
    assert [result.return_code for result in ended] == [127, 127]
    assert all(result.reason for result in ended)


@pytest.mark.parametrize("line", ["kill $PPID $$", "kill $PPID; exit 143"])
@pytest.mark.parametrize("native", [True, False])
def test_a_task_that_the_owner_of_the_node_ends_with_its_engine_has_no_end(tmp_path: Path, line: str, native: bool) -> None:
    """A batch system ends all processes of its job; the engine goes a moment after the task."""
    ours, theirs = socket.socketpair()
    log = Log(tmp_path / "log")
    if (pid := os.fork()) == 0:
        try:
            ours.close()
            cylinder = Cylinder(theirs, log, PackWriter(log.path.with_name("pack")), native=native)
            signal.signal(signal.SIGTERM, cylinder.note_signal)
            cylinder.run()
        finally:
            os._exit(0)
    theirs.close()
    tasks = [Task(5, line=f"echo $$ > pid; {line}".encode()), Task(6, line=b"touch next")]
    send(ours, Work(Assignment(7, (0,), tasks, TaskEnvironment(cwd=str(tmp_path))), {}))
    components.wait_until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()), "the task began")
    task = int((tmp_path / "pid").read_text())
    components.wait_until(lambda: not Path(f"/proc/{task}").exists(), "the end of the task")
    ours.close()
    os.waitpid(pid, 0)
    content = read_log(tmp_path / "log")
    assert content.running == 5 and not content.last_results
    assert not (tmp_path / "next").exists()


def _stop_when(link: socket.socket, sign: Path) -> None:
    while not sign.exists():
        pass
    send(link, Stop(7, "killed"))


def results(reports: list[Finished]) -> list[Result]:
    return [result for report in reports for result in report.results]


@pytest.mark.parametrize("linger_s", [60.0, inf])
def test_last_words_of_background_commands(linger_s: float, cylinder: Run) -> None:
    """They come after the end of the shell, and the slot is held for them."""
    lines = ("(sleep 0.1; echo late; exec >&-; date +%s.%N >&2) & echo soon", "echo next")
    first, second = results(cylinder(*lines, linger_s=linger_s))
    assert first.out_snippet == b"soon\nlate\n"
    assert second.out_snippet == b"next\n" and second.started_at > float(first.err_snippet)


def test_background_commands_are_waited_for_no_longer_than_told(cylinder: Run, tmp_path: Path) -> None:
    """Those that closed the task's output not at all; a walltime and a kill end those that are waited for."""
    quiet = "sleep 60 > /dev/null 2>&1 & echo $!"
    loud = "sleep 60 & echo $!"
    first, after = results(cylinder(quiet, "true", linger_s=60.0))
    assert after.started_at < first.ended_at + 30
    second, after = results(cylinder(loud, "true", linger_s=0.5))
    assert after.started_at > second.ended_at + 1.0, "stdout, then stderr"
    environment = TaskEnvironment(walltime=0.5)
    timed, after = results(cylinder(loud, "true", environment=environment, linger_s=60.0))
    assert timed.return_code == 0 and after.started_at < timed.started_at + 5
    stopped = results(cylinder(f"{loud}; touch {tmp_path}/sign", stop_after=f"{tmp_path}/sign", linger_s=60.0))
    assert stopped[0].ended_at < time.time()
    for end in (first, second):
        os.kill(int(end.out_snippet), signal.SIGKILL)
    for end in (timed, stopped[0]):
        components.wait_until(partial(_is_over, int(end.out_snippet)), "the background to be ended")


def _is_over(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


def test_codes_and_outputs(cylinder: Run) -> None:
    ended = results(cylinder("true", "exit 7", "kill -9 $$", "echo out; echo err >&2", "seq 100000", "/etc"))
    assert [end.return_code for end in ended[:5]] == [0, 7, -9, 0, 0]
    assert (ended[3].out_bytes, ended[3].out_snippet, ended[3].err_snippet) == (4, b"out\n", b"err\n")
    assert ended[4].out_bytes == 588_895
    assert ended[4].out_snippet.startswith(b"1\n2\n") and ended[4].out_snippet.endswith(b"99999\n100000\n")
    assert ended[5].return_code in (126, 127)


def test_tasks_of_all_kinds_in_one_bundle(cylinder: Run, tmp_path: Path) -> None:
    """Those that need no look run in one call of the compiled twin; each other one is in its place among them."""
    lines = ["true"] * 40 + ["echo a\0b", "true", "no-such-program-here", "true", "echo out", "exit 3"] + ["true"] * 40
    ended = results(cylinder(*lines))
    assert [end.task_id for end in ended] == list(range(len(lines)))
    assert [end.return_code for end in ended] == [0] * 40 + [127, 0, 127, 0, 0, 3] + [0] * 40
    assert ended[44].out_snippet == b"out\n"
    assert all(end.cpu_s >= 0 and end.memory_kb > 0 for end in ended if not end.return_code)
    assert all(early.started_at <= late.started_at for early, late in pairwise(ended))
    content = read_log(tmp_path / "log")
    assert (content.last_results, content.running) == (ended, None)


@pytest.mark.parametrize("native", [True, False])
def test_the_log_says_which_tasks_of_a_bundle_have_ended(tmp_path: Path, native: bool) -> None:
    ours, theirs = socket.socketpair()
    log = Log(tmp_path / "log")
    if (pid := os.fork()) == 0:
        ours.close()
        Cylinder(theirs, log, PackWriter(log.path.with_name("pack")), native=native).run()
    lines = [b"true"] * 5 + [b"kill -9 $PPID", b"true"]
    tasks = [Task(index, index + 1, 0, 2, line) for index, line in enumerate(lines)]
    send(ours, Work(Assignment(7, (0,), tasks), {}))
    os.waitpid(pid, 0)
    content = read_log(tmp_path / "log")
    assert (content.assignment, content.running) == (7, 5)
    assert [(end.task_id, end.attempt, end.return_code) for end in content.last_results] == [(i, 2, 0) for i in range(5)]


def test_a_task_begins_only_when_the_log_says_so(cylinder: Run, tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk."""
    known: list[LogContent] = []
    had_room_at: list[float] = []

    def begin() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))

    def make_room(pid: int) -> None:
        components.wait_until(lambda: (tmp_path / "log").stat().st_size == 300, "the disk to be full")
        known.append(read_log(tmp_path / "log"))
        had_room_at.append(time.time())
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    ended = results(cylinder(*["true"] * 40, begin=begin, beside=make_room))
    assert [(end.task_id, end.return_code) for end in ended] == [(index, 0) for index in range(40)]
    assert 0 < len(known[0].last_results) < 10
    assert ended[len(known[0].last_results) + 1].started_at > had_room_at[0]
    assert read_log(tmp_path / "log").last_results == ended


def test_environment(cylinder: Run) -> None:
    (end,) = results(cylinder('echo "$COMMON $PLACE $TASK $TRY $OWN"', environment=TaskEnvironment(env={"OWN": "o"})))
    assert end.out_snippet == b"c p 000 1 o\n"


def test_session_and_signals_are_clean(cylinder: Run) -> None:
    (end,) = results(cylinder("test $(ps -o sid= -p $$) = $$ && grep SigIgn /proc/self/status"))
    assert end.return_code == 0, end
    ignored = int(end.out_snippet.split()[1], 16)
    # What Python ignores for itself is no concern of a task's; what whoever started us chose (nohup, say) is.
    status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    of_python = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    of_glibc = 1 << 31 | 1 << 32  # its own signals 32 and 33, which posix_spawn leaves ignored
    assert not ignored & (of_python | ~int(status["SigIgn"], 16)) & ~of_glibc, f"{ignored:x}"


def test_files_and_folder(cylinder: Run, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("text")
    environment = TaskEnvironment(cwd=str(tmp_path), stdin="in", stdout="o/{task}", stderr="o/{task}.err")
    cylinder("cat; echo e >&2; pwd >> where", environment=environment)
    assert (tmp_path / "o" / "0").read_text() == "text"
    assert (tmp_path / "o" / "0.err").read_text() == "e\n"
    assert (tmp_path / "where").read_text().strip() == str(tmp_path)


def test_what_cannot_be_opened_is_said(cylinder: Run) -> None:
    (end,) = results(cylinder("true", environment=TaskEnvironment(stdin="/no/such/file")))
    assert end.return_code == 127
    assert "/no/such/file" in end.reason
    (end,) = results(cylinder("true", environment=TaskEnvironment(cwd="/no/such/folder")))
    assert "/no/such/folder" in end.reason


def test_walltime(cylinder: Run) -> None:
    first, second = results(cylinder("sleep 100", "true", environment=TaskEnvironment(walltime=0.2)))
    assert (first.return_code, first.reason) == (-15, "walltime")
    assert second.return_code == 0


def test_stop_ends_the_running_task_and_returns_the_rest(cylinder: Run, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    reports = cylinder(f"touch {sign}; sleep 100", "true", "true", stop_after=str(sign))
    (end,) = results(reports)
    assert (end.return_code, end.reason) == (-15, "killed")
    assert reports[-1].returned == (1, 2)


def test_slow_task_gives_back_what_is_behind_it(cylinder: Run) -> None:
    reports = cylinder("true", "sleep 0.6", "true", "true", cut_after=0.2)
    assert [end.task_id for end in results(reports)] == [0, 1]
    given_back = [report for report in reports if report.returned]
    assert [report.returned for report in given_back] == [(2, 3)]
    assert not given_back[0].closed  # at once, not when the slow one is done


def test_survivors_do_not_write_into_the_next_tasks_output(cylinder: Run, tmp_path: Path) -> None:
    go = tmp_path / "go"
    ended = results(cylinder(f"(until [ -e {go} ]; do sleep 0.02; done; echo late) & echo now", f"touch {go}; sleep 0.5"))
    assert ended[0].out_snippet == b"now\n"
    assert ended[1].out_bytes == 0


def test_where_no_process_is_left_a_program_is_started_again(cylinder: Run) -> None:
    """EAGAIN at fork: the task waits until its user may have another process, and then runs."""
    if os.getuid() != 0:
        pytest.skip("only root can act as a user with a limit")

    user = 50_000 + os.getpid() % 10_000  # with no other process
    ready, says_ready = os.pipe()
    holder = os.fork()
    if holder == 0:
        os.setuid(user)
        os.close(says_ready)
        signal.pause()
        os._exit(0)
    os.close(says_ready)
    os.read(ready, 1)  # the end of the pipe: from now on the user has one process
    os.close(ready)

    def begin() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
        os.setuid(user)

    def make_room(_: int) -> None:
        threading.Timer(0.5, os.kill, (holder, signal.SIGKILL)).start()
        threading.Timer(0.6, os.waitpid, (holder, 0)).start()

    began = time.monotonic()
    (ended,) = results(cylinder("true", begin=begin, beside=make_room))
    assert (ended.return_code, ended.reason) == (0, "") and time.monotonic() - began > 0.4
