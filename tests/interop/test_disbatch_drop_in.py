"""The same task files through the real disBatch and through the drop-in: same results, same files, same exit codes.

The real runs take half a minute each, whatever they do, so all of them are started at once and waited for together.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import components
from disbatch_runs import clean_env
from e2e.live_runs import alive, until
from pilothouse.dropins.disbatch.status_file import HEADER, parse_line

pytestmark = [
    pytest.mark.peer("disbatch", "the command line, files and exit codes of disBatch"),
    # One process runs them all: the real runs are started once.
    pytest.mark.xdist_group("disbatch"),
]

DROP_IN = components.ROOT / "libexec" / "disbatch"

EVERYTHING = rb"""# a comment
#DISBATCH PERENGINE START echo join $DISBATCH_ENGINE_RANK $DISBATCH_CYLINDER_RANK > joined
#DISBATCH PERENGINE STOP echo leave > left
   # another one

echo plain > plain.txt
#DISBATCH PREFIX ( echo begin ; 
#DISBATCH SUFFIX  ; echo end ) > out_${DISBATCH_TASKID_ZP}.txt
echo one two
#DISBATCH REPEAT 3 start 10 step 5 echo $DISBATCH_REPEAT_INDEX
#DISBATCH PREFIX 
#DISBATCH SUFFIX 
#DISBATCH BARRIER
env | grep ^DISBATCH_ | sort > env_$DISBATCH_TASKID
#DISBATCH REPEAT 2 env | grep ^DISBATCH_ | sort > env_$DISBATCH_TASKID
echo leaked; echo complaint >&2; exit 3
kill -9 $$
printf 'x%.0s' {1..50}
printf 'y%.0s' {1..500} >&2
no-such-program-anywhere
echo caf""" + b"\xc3\xa9 \xff > bytes_$DISBATCH_TASKID" + rb"""
#DISBATCH BARRIER some key
#DISBATCH NONSENSE
#DISBATCH REPEAT many x
#DISBATCHED
echo "$0 $BASH_VERSION" > shell.txt; false
"""


@dataclass
class Scenario:
    tasks: bytes
    arguments: list[str] = field(default_factory=list)
    resume: bytes = b""
    """A status file to resume from, whose lines were written by the real one."""
    slots: int = 2
    same_code: bool = True


def generated(seed: int) -> bytes:
    """A correct file with everything in it, by chance."""
    rng = random.Random(seed)
    commands = [
        "true", "exit 7", "false", "echo out", "echo err >&2", "kill -TERM $$", "echo $DISBATCH_REPEAT_INDEX; exit 1",
        " sleep 0.0", "seq 30", "seq 30 >&2; exit 255", "printf '\\000\\377'", "cd /nowhere", "(exit 3) || (exit 4)",
        "echo ${DISBATCH_TASKID_ZP} $DISBATCH_STREAM_INDEX_ZP $DISBATCH_REPEAT_INDEX_ZP",
    ]  # fmt: skip
    lines = []
    for _ in range(rng.randint(0, 2)):
        lines.append(f"#DISBATCH PERENGINE {rng.choice(['START', 'STOP'])} {rng.choice(commands)}")
    for _ in range(30):
        directives = [
            f"#DISBATCH REPEAT {rng.randint(0, 4)} start {rng.randint(0, 9)} step {rng.randint(0, 3)} {rng.choice(commands)}",
            f"#DISBATCH repeat {rng.randint(1, 3)}",
            f"#DISBATCH PREFIX {rng.choice(['', 'true; ', ' '])}",
            f"#DISBATCH SUFFIX {rng.choice(['', ' ; true', ' | cat'])}",
            "#DISBATCH BARRIER" + rng.choice(["", " key", " "]),
            "# comment",
            "",
        ]
        lines.append(rng.choice(commands) if rng.random() < 0.6 else rng.choice(directives))
    return "\n".join(lines).encode()


def status(*rows: tuple[int, int, str]) -> bytes:
    """(task id, code, command), one line of the task file each."""
    lines = []
    for task_id, code, command in rows:
        flags = "R   " if code else "    "
        middle = f"{task_id}\t{task_id + 1}\t-1\told\t7\t{code}\t1.500\t100.000\t101.500\t0\t''\t0\t''"
        lines.append(f"{flags}\t{middle}\t{command}\n")
    return "".join(lines).encode()


SCENARIOS = {
    "everything": Scenario(EVERYTHING, ["--status-header", "-e"]),
    "success": Scenario(b"true\n#DISBATCH BARRIER CHECK\ntrue\n", ["-e"]),
    "check": Scenario(b"false\ntrue\n#DISBATCH BARRIER CHECK\ntouch never\n"),
    "late": Scenario(b"true\n#DISBATCH PERENGINE START touch started\ntouch never\n"),
    "fail-fast": Scenario(b"sleep 1000\nexit 1\ntouch never\n", ["--fail-fast"]),
    "resume": Scenario(
        b"touch a\ntouch b\nexit 4\ntouch d\n", ["-r", "old_status.txt", "-e"],
        status((0, 0, "touch a"), (1, 2, "touch b")),
    ),
    "retry": Scenario(
        b"touch a\ntouch b\ntouch c\n", ["-r", "old_status.txt", "-R", "-e"],
        status((0, 0, "touch a"), (1, 2, "touch b")),
    ),
    "force": Scenario(
        b"touch a\ntouch b\n", ["-r", "old_status.txt", "--force-resume"], status((0, 0, "something else"))
    ),
    "empty": Scenario(b"# nothing\n"),
    # The real one is over before its engine is there, and takes that for a failure.
    "barriers": Scenario(b"#DISBATCH BARRIER\n#DISBATCH BARRIER key\n#DISBATCH BARRIER CHECK\n", same_code=False),
    # Output of the background that comes within five seconds is recorded, and a stream is not waited for any longer.
    "background": Scenario(
        b"(sleep 2; echo late; echo later >&2) & echo now\n(sleep 60; echo late) & echo now\n"
        b"(sleep 60; touch never) > /dev/null 2>&1 & exit 3\n",
        slots=3,
    ),
    "generated-1": Scenario(generated(1), ["-e"], slots=8),
    "generated-2": Scenario(generated(2), ["--status-header"], slots=8),
}  # fmt: skip


@dataclass
class Outcome:
    code: int
    rows: list[tuple[object, ...]]
    header: bool
    files: dict[str, str]
    text: str


def outcome(folder: Path, code: int, text: str) -> Outcome:
    (path,) = (path for path in folder.glob("tasks_disBatch_*_status.txt"))
    lines = path.read_text(encoding="utf-8").splitlines()
    header = lines[:1] == [HEADER]
    rows = []
    for line in lines[header:]:
        read = parse_line(line)
        snippets = (read.out_bytes, read.out_snippet, read.err_bytes, read.err_snippet)
        numbers = (read.task_id, read.line_number, read.repeat_index, read.return_code)
        rows.append((line.split("\t")[0], *numbers, *snippets, line.split("\t", 14)[14]))
    made = {}
    for file in folder.iterdir():
        if file.is_file() and not file.name.startswith(("tasks", "old_status")):
            made[file.name] = _without_chance(file.read_text(encoding="utf-8", errors="surrogateescape"))
    return Outcome(code, sorted(rows, key=str), header, made, text)


def _without_chance(text: str) -> str:
    """What may differ between two runs of one program."""
    lines = (line for line in text.splitlines() if not line.startswith(("DISBATCH_JOBID", "DISBATCH_KVSSTCP_HOST")))
    return "\n".join(line for line in lines if not line.startswith("DISBATCH_CYLINDER_RANK"))


def start(folder: Path, scenario: Scenario, programs: Path) -> subprocess.Popen[str]:
    folder.mkdir()
    (folder / "tasks").write_bytes(scenario.tasks)
    if scenario.resume:
        (folder / "old_status.txt").write_bytes(scenario.resume)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "DISBATCH_"))}
    env["PATH"] = f"{programs}:{env['PATH']}"
    command = ["disBatch", "-s", f"localhost:{scenario.slots}", "--use-address", "localhost:0", *scenario.arguments, "tasks"]
    return subprocess.Popen(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def real_runs(
    client_env: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[Path, subprocess.Popen[str]]]]:
    base = tmp_path_factory.mktemp("real")
    programs = client_env("disbatch").parent
    runs = {name: (base / name, start(base / name, scenario, programs)) for name, scenario in SCENARIOS.items()}
    yield runs
    for _, process in runs.values():
        if process.poll() is None:
            process.kill()
        process.wait()
    _end_whatever_works_in(base)


def _end_whatever_works_in(folder: Path) -> None:
    """The real one leaves an engine and its task behind when it fails fast."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "cwd").resolve().is_relative_to(folder):
                    os.kill(int(entry.name), signal.SIGKILL)


@pytest.fixture(scope="module")
def our_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    base = tmp_path_factory.mktemp("ours")
    outcomes = {}
    for name, scenario in SCENARIOS.items():
        process = start(base / name, scenario, DROP_IN)
        text, _ = process.communicate(timeout=120)
        outcomes[name] = outcome(base / name, process.returncode, text)
    return outcomes


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_as_disbatch(
    name: str, our_runs: dict[str, Outcome], real_runs: dict[str, tuple[Path, subprocess.Popen[str]]]
) -> None:
    folder, process = real_runs[name]
    text, _ = process.communicate(timeout=200)
    theirs = outcome(folder, process.returncode, text)
    ours = our_runs[name]
    assert ours.rows == theirs.rows
    assert ours.header == theirs.header
    assert ours.files == theirs.files
    assert ours.code == (theirs.code if SCENARIOS[name].same_code else 0), ours.text
    assert ("No tasks to run." in ours.text) == ("No tasks to run." in theirs.text)


def test_its_own_files_are_there(our_runs: dict[str, Outcome], tmp_path: Path) -> None:
    process = start(tmp_path / "run", Scenario(b"cat $0 > /dev/null\n#DISBATCH BARRIER\n", ["-l", "here"]), DROP_IN)
    process.communicate(timeout=60)
    names = sorted(path.name.split("_disBatch_")[1][17:] for path in (tmp_path / "run").glob("tasks_disBatch_*"))
    host = os.uname().nodename
    wanted = {"dbUtil.sh", "driver.log", "status.txt", "here.context.log", f"here_{host}_engine_0.log"}
    wanted |= {"context_wrap.out", f"here_{host}_engine_wrap.log", f"{process.pid}_context_launch.log"}
    assert wanted <= set(names), names
    log = next((tmp_path / "run").glob("*_driver.log")).read_text()
    assert all(text in log for text in ("engine 0 on", "passed barrier 1 of line 2", "engine 0 left", "2 tasks are done"))
    assert "kvsinfo.txt" not in names
    script = next((tmp_path / "run").glob("*_dbUtil.sh"))
    assert script.stat().st_mode & 0o777 == 0o700


def test_a_mismatch_ends_it_before_anything_runs(tmp_path: Path) -> None:
    scenario = Scenario(b"touch a\ntouch b\n", ["-r", "old_status.txt"], status((1, 0, "something else")))
    process = start(tmp_path / "run", scenario, DROP_IN)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "--force-resume" in text
    assert not (tmp_path / "run" / "a").exists()


def test_the_version_is_that_of_the_one_stood_in_for_and_old_options_are_told(
    tmp_path: Path, client_env: Callable[[str], Path]
) -> None:
    real = client_env("disbatch").with_name("disBatch")
    said = [
        subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
        for program in (real, DROP_IN / "disBatch")
    ]
    assert said[0] == said[1]
    (tmp_path / "tasks").write_text("true\n")
    command = [DROP_IN / "disbatch", "-g", "-s", "localhost:2", "tasks"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert "-g/--gpu is not needed any more" in ran.stderr


def test_interrupted_once_it_ends_in_order_and_twice_at_once(tmp_path: Path) -> None:
    tasks = "trap '' TERM; touch began; until [ -e go ]; do sleep 0.05; done\n"
    for times in (1, 2):
        folder = tmp_path / str(times)
        process = start(folder, Scenario(tasks.encode()), DROP_IN)
        components.wait_until((folder / "began").exists, "the task to begin")
        process.send_signal(signal.SIGINT)
        if times == 1:
            text, _ = process.communicate(timeout=60)
            assert process.returncode == 128 + signal.SIGINT, text
            assert "touch began" not in next(folder.glob("*_status.txt")).read_text()
            continue
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == -signal.SIGINT
    _end_whatever_works_in(tmp_path)


def test_no_context_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("true\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "DISBATCH_"))}
    ran = subprocess.run(
        [DROP_IN / "disbatch", "tasks"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 1
    assert "Cannot determine batch execution environment." in ran.stderr


def test_a_host_that_cannot_be_reached_is_told_with_the_place_of_its_complaints(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("true\n")
    command = [DROP_IN / "disBatch", "-s", "nowhere.invalid:1", "-l", "there", "-p", "mine", "tasks"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    assert ran.stderr.endswith(f"no engine is left; see {tmp_path}/mine_*_engine_wrap.log\n")
    assert (tmp_path / "mine_there_nowhere.invalid_engine_wrap.log").read_text()


def test_tasks_from_a_pipe_start_before_it_ends(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [DROP_IN / "disBatch", "-s", "localhost:2", "-"], cwd=tmp_path, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(b"touch first\n")
    components.wait_until((tmp_path / "first").exists, "the first task to run while the pipe is open")
    process.stdin.write(b"touch second\n")
    process.stdin.close()
    assert process.wait(60) == 0
    assert (tmp_path / "second").exists()
    assert list(tmp_path.glob("stdin_disBatch_*_status.txt"))
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_tasks_from_a_file_on_standard_input(name: str, tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("not a task\necho one\n#DISBATCH BARRIER\necho two\n")
    program = f"{DROP_IN / 'disBatch'} -s localhost:2 -p mine"
    whole = subprocess.run(
        ["/bin/sh", "-c", f"{program} {name} < tasks"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (whole.returncode, whole.stderr) == (0, "")
    assert len((tmp_path / "mine_status.txt").read_text().splitlines()) == 4
    if name != "-":
        return
    again = f"{{ read first; {program} -r mine_status.txt --force-resume -; }} < tasks"
    part = subprocess.run(["/bin/bash", "-c", again], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (part.returncode, part.stderr) == (0, "")
    lines = [parse_line(line) for line in (tmp_path / "mine_status.txt").read_text().splitlines()]
    assert sorted(line.task_id for line in lines) == [0, 1, 2], "what another program has read is not read again"


def test_a_slot_is_held_until_the_output_of_the_background_is_closed(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("(until [ -e go ]; do sleep 0.05; done; echo late) & true\ntouch second\n")
    process = subprocess.Popen([DROP_IN / "disBatch", "-s", "localhost:1", "-p", "mine", "tasks"], cwd=tmp_path)
    components.wait_until((tmp_path / "mine_status.txt").exists, "the run")
    (tmp_path / "go").touch()
    assert process.wait(60) == 0
    first, second = sorted(
        (parse_line(line) for line in (tmp_path / "mine_status.txt").read_text().splitlines()),
        key=lambda line: line.task_id,
    )
    assert first.out_snippet == "late\n" and first.out_bytes == 5
    assert second.start >= first.finish


def test_without_a_web_interface_the_run_goes_on(tmp_path: Path) -> None:
    """disBatch 3.0 has the option and not the module: it dies of it."""
    (tmp_path / "tasks").write_text("true\n")
    command = [DROP_IN / "disBatch", "-s", "localhost:1", "-p", "mine", "--web", "tasks"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0
    assert f"pilothouse watch {tmp_path}/mine_run" in ran.stderr


def test_a_prefix_names_all_files(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("true\n")
    (tmp_path / "logs").mkdir()
    command = [DROP_IN / "disBatch", "-s", "localhost:1", "-p", "logs/mine", "tasks"]
    assert subprocess.run(command, cwd=tmp_path, check=False, timeout=60).returncode == 0
    assert (tmp_path / "logs" / "mine_status.txt").read_text().endswith("\ttrue\n")
    shutil.rmtree(tmp_path / "logs")
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1 and "no folder" in ran.stderr


def test_a_second_run_with_the_same_prefix_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("while [ ! -e enough ]; do sleep 0.05; done\n")
    command = [DROP_IN / "disBatch", "-s", "localhost:1", "-p", "mine", "tasks"]
    first = subprocess.Popen(command, cwd=tmp_path)
    components.wait_until((tmp_path / "mine_run" / "journal.sqlite").exists, "the first run")
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1 and "another run with this prefix" in ran.stderr
    (tmp_path / "enough").touch()
    assert first.wait(60) == 0
    assert subprocess.run(command, cwd=tmp_path, check=False, timeout=60).returncode == 0
    assert len((tmp_path / "mine_status.txt").read_text().splitlines()) == 1


def test_per_engine_commands_from_a_slow_pipe_are_not_missed(tmp_path: Path) -> None:
    command = [DROP_IN / "disBatch", "-s", "localhost:1", "-p", "x", "-"]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    log = tmp_path / "x_SSH0.context.log"
    components.wait_until(lambda: log.exists() and "launch" in log.read_text(), "the engine to be started")
    process.stdin.write(b"#DISBATCH PERENGINE START echo start >> said\n")
    process.stdin.write(b"#DISBATCH PERENGINE STOP echo stop >> said\n")
    process.stdin.write(b"echo task >> said\n")
    process.stdin.close()
    assert process.wait(60) == 0
    assert (tmp_path / "said").read_text().split() == ["start", "task", "stop"]


def test_killed_driver_leaves_no_engine(tmp_path: Path) -> None:
    """It cannot come back: -r is a new run, which repeats its tasks."""
    (tmp_path / "tasks").write_text("echo $$ > pid; echo $PPID > cylinder; sleep 300\n")
    running = subprocess.Popen(["disBatch", "-s", "localhost:1", "-p", "mine", "tasks"], cwd=tmp_path, env=clean_env())
    until(lambda: (tmp_path / "cylinder").exists() and (tmp_path / "cylinder").read_text(), "the task began")
    pids = [int((tmp_path / name).read_text()) for name in ("pid", "cylinder")]
    running.kill()
    running.wait()
    until(lambda: not any(alive(pid) for pid in pids), "engine and task are gone")


def test_options_that_do_not_go_together_print_the_help_as_disbatch_does(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("true\n")
    command = ["disBatch", "-S", "-s", "localhost:1", "tasks"]
    ran = subprocess.run(command, cwd=tmp_path, env=clean_env(), capture_output=True, text=True, check=False, timeout=30)
    assert ran.returncode == 1 and ran.stdout.startswith("usage: disBatch") and not ran.stderr
