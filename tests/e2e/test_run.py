"""`pilothouse run` with real processes on this host."""

from __future__ import annotations

import os
import shlex
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from e2e.live_runs import COMMAND, alive, finish, rows, run, start, tasks, until


def test_results_outputs_and_exit_codes(tmp_path: Path) -> None:
    file = tasks(
        tmp_path,
        "echo hello\n"
        "echo oops >&2; exit 3\n"
        "#DISBATCH REPEAT 3 start 5 step 2 echo $DISBATCH_REPEAT_INDEX > r$PILOTHOUSE_REPEAT_INDEX\n"
        "no-such-program-here\n"
        "printf '%0100d' 7\n",
    )
    code, said = run(tmp_path, file, "--dir", "R", "--slots", "2")
    assert code == 1
    assert "5 succeeded, 2 failed" in said
    ended = dict(rows(tmp_path / "R", "SELECT task_id, return_code FROM ends"))  # type: ignore[arg-type]
    assert ended == {0: 0, 1: 3, 2: 0, 3: 0, 4: 0, 5: 127, 6: 0}
    assert {path.name for path in tmp_path.glob("r*")} == {"r5", "r7", "r9"}
    output = rows(tmp_path / "R", "SELECT out_bytes, out_snippet, err_bytes, err_snippet FROM ends ORDER BY task_id")
    assert output[0] == (6, b"hello\n", 0, b"")
    assert output[1] == (0, b"", 5, b"oops\n")
    assert output[6] == (100, b"0" * 40 + b"..." + b"0" * 39 + b"7", 0, b"")


def test_success_is_zero_and_the_folder_is_private(tmp_path: Path) -> None:
    assert run(tmp_path, tasks(tmp_path, "true\n" * 20))[0] == 0
    keys = tmp_path / "tasks.txt.run1" / "keys.json"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600


def test_tasks_inherit_no_descriptor_but_the_standard_ones(tmp_path: Path) -> None:
    assert run(tmp_path, tasks(tmp_path, "readlink /proc/$$/fd/* > open; true\n"))[0] == 0
    assert len((tmp_path / "open").read_text().split()) == 3


def test_malformed_file_runs_nothing(tmp_path: Path) -> None:
    file = tasks(tmp_path, "touch ran\n#DISBATCH REPEET 3 x\n")
    code, said = run(tmp_path, file)
    assert code == 2
    assert "tasks.txt:2" in said
    assert not (tmp_path / "ran").exists()
    assert not list(tmp_path.glob("*.run*"))


def test_barrier_holds_back_what_follows(tmp_path: Path) -> None:
    file = tasks(tmp_path, "sleep 0.3; touch first\nsleep 0.1\n#DISBATCH BARRIER\ntest -e first\n")
    assert run(tmp_path, file, "--slots", "4")[0] == 0


def test_per_engine_commands_run_before_and_after(tmp_path: Path) -> None:
    file = tasks(
        tmp_path,
        "#DISBATCH PERENGINE START sleep 0.2; echo start >> log\n"
        "#DISBATCH PERENGINE STOP echo stop >> log\n"
        "echo task >> log\n",
    )
    assert run(tmp_path, file, "--slots", "2")[0] == 0
    assert (tmp_path / "log").read_text().split() == ["start", "task", "stop"]


def test_walltime_ends_a_task_that_ignores_term_and_its_children(tmp_path: Path) -> None:
    file = tasks(tmp_path, "trap '' TERM; (trap '' TERM; echo $BASHPID > child; sleep 300) & sleep 300; sleep 300\n")
    code, said = run(tmp_path, file, "--dir", "R", "--walltime", "0.5", "--grace", "0.3")
    assert code == 1
    assert "timed out" in said
    child = int((tmp_path / "child").read_text())
    until(lambda: not alive(child), "the grandchild is gone")


def test_retries_until_it_works(tmp_path: Path) -> None:
    file = tasks(tmp_path, "test $PILOTHOUSE_ATTEMPT = 3\nfalse\n")
    code, _ = run(tmp_path, file, "--dir", "R", "--retries", "2")
    assert code == 1
    ends = rows(tmp_path / "R", "SELECT task_id, attempt, state, final FROM ends ORDER BY task_id, attempt")
    assert ends == [
        (0, 1, "failed", 0), (0, 2, "failed", 0), (0, 3, "succeeded", 1),
        (1, 1, "failed", 0), (1, 2, "failed", 0), (1, 3, "failed", 1),
    ]  # fmt: skip


def test_output_files_with_placeholders(tmp_path: Path) -> None:
    file = tasks(tmp_path, "echo one\necho two >&2\n")
    assert run(tmp_path, file, "--out", "o/{task:03d}.txt", "--err", "o/{task:03d}.txt")[0] == 0
    assert (tmp_path / "o" / "000.txt").read_text() == "one\n"
    assert (tmp_path / "o" / "001.txt").read_text() == "two\n"


def test_unknown_placeholder_is_a_mistake(tmp_path: Path) -> None:
    code, said = run(tmp_path, tasks(tmp_path, "true\n"), "--out", "{id}.txt")
    assert code == 2
    assert "--out" in said and "{task}" in said
    assert run(tmp_path, "tasks.txt", "--policy", "no-such-policy")[0] == 2
    assert run(tmp_path, "tasks.txt", "--ssh", "host")[0] == 2
    assert not list(tmp_path.glob("*.run*"))


def test_tasks_from_standard_input(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "run", "-", "--dir", "R"], cwd=tmp_path, input=b"echo a > a\necho b > b", check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "a").exists() and (tmp_path / "b").exists()
    assert (tmp_path / "R" / "tasks.txt").read_bytes() == b"echo a > a\necho b > b"


@pytest.mark.parametrize("pipe", ["<(echo touch a; echo touch b)", "named"])
def test_tasks_from_a_pipe_that_has_a_name(tmp_path: Path, pipe: str) -> None:
    """It can be read only once, and neither found again nor have a folder beside it."""
    os.mkfifo(tmp_path / "named")
    script = f"(echo touch a; echo touch b) > named & exec {shlex.join([*COMMAND, 'run'])} {pipe} --slots 1"
    ran = subprocess.run(
        ["bash", "-c", script if pipe == "named" else script.partition("&")[2]], cwd=tmp_path, check=False,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "2 succeeded" in ran.stderr and (tmp_path / "tasks.run1").is_dir()
    assert (tmp_path / "a").exists() and (tmp_path / "b").exists()


def test_many_short_tasks_in_bundles(tmp_path: Path) -> None:
    """A slow task in a bundle does not hold up what comes behind it: here it even waits for it."""
    (tmp_path / "d").mkdir()
    slow = "until [ $(ls d | wc -l) = 60 ]; do sleep 0.1; done\n"
    file = tasks(tmp_path, "true\n" * 300 + slow + "".join(f"touch d/{i}\n" for i in range(60)))
    assert run(tmp_path, file, "--dir", "R", "--slots", "2")[0] == 0
    assert rows(tmp_path / "R", "SELECT count(*), count(DISTINCT task_id), sum(final) FROM ends") == [(361, 361, 361)]
    (assignments,) = rows(tmp_path / "R", "SELECT count(*) FROM assignments")[0]
    assert int(assignments) < 200, "nothing was bundled"  # type: ignore[call-overload]


def test_any_policy_places_tasks_of_several_slots(tmp_path: Path) -> None:
    file = tasks(tmp_path, "sleep 0.1\n" * 6)
    code, _ = run(tmp_path, file, "--dir", "R", "--slots", "4", "--units", "2", "--policy", "easy", "--walltime", "30")
    assert code == 0
    units = {row[0] for row in rows(tmp_path / "R", "SELECT units FROM assignments")}
    assert units == {"0-1", "2-3"}


def test_binding_and_gpus(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    file = tasks(
        tmp_path,
        "echo $CUDA_VISIBLE_DEVICES >> gpus; grep Cpus_allowed_list /proc/self/status >> cores; sleep 0.2\n" * 2,
    )
    count = str(len(os.sched_getaffinity(0)))
    assert run(tmp_path, file, "--slots", count, "--bind", "--gpus", "1", "--gpu-list", "4,7", "--bundle", "1")[0] == 0
    assert sorted((tmp_path / "gpus").read_text().split()) == ["4", "7"]
    cores = {line.split()[1] for line in (tmp_path / "cores").read_text().splitlines()}
    assert str(core) in cores and all("-" not in entry for entry in cores)


def test_interrupted_run_is_resumed(tmp_path: Path) -> None:
    file = tasks(tmp_path, "echo a >> log\ntouch long; sleep 300\necho c >> log\n")
    process = start(tmp_path, file, "--dir", "R", "--slots", "1", "--bundle", "1")
    until((tmp_path / "long").exists, "the long task began")
    process.send_signal(signal.SIGTERM)
    code, said = finish(process)
    assert code == 1
    assert "pilothouse run --resume" in said
    assert (tmp_path / "log").read_text() == "a\n"
    listed = subprocess.run([*COMMAND, "tasks", "R"], check=True, cwd=tmp_path, capture_output=True, text=True)
    states = {words[0]: words[2] for words in map(str.split, listed.stdout.splitlines()[1:])}
    assert states == {"0": "succeeded", "1": "unfinished"}
    assert listed.stderr == "1 more has not been begun (see --waiting)\n"
    text = (tmp_path / "tasks.txt").read_text()
    (tmp_path / "tasks.txt").write_text(text.replace("touch long; sleep 300", "echo b >> log"))
    code, said = run(tmp_path, "--resume", "R")
    assert code == 0 and "tasks.txt is not as it was when the run began" in said
    assert sorted((tmp_path / "log").read_text().split()) == ["a", "b", "c"]


def test_only_what_failed_runs_again(tmp_path: Path) -> None:
    file = tasks(tmp_path, "echo a >> log\ntest -e fixed && echo b >> log\n#DISBATCH BARRIER\necho c >> log\n")
    assert run(tmp_path, file, "--dir", "R")[0] == 1
    code, said = run(tmp_path, "--resume", "R")  # nothing is left to do, and one had failed
    assert code == 1
    assert "1 did not succeed before and was left alone: pilothouse run --resume" in said
    (tmp_path / "fixed").touch()
    code, said = run(tmp_path, "--resume", "R", "--retry-failed", "--slots", "1")
    assert code == 0, said
    assert (tmp_path / "log").read_text().split() == ["a", "c", "b"]


LAZY = """
from pilothouse import Policy
class Lazy(Policy):
    def schedule(self, cluster):
        for job in cluster.queue:
            if int(job.id) < 2:
                cluster.start(job)
"""


def test_a_policy_that_starts_nothing_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text(LAZY)
    file = tasks(tmp_path, "true\n" * 5)
    code, said = run(tmp_path, file, "--policy", "lazy.py:Lazy", "--slots", "2", "--dir", "R", "--bundle", "1")
    assert code == 1
    assert "2 succeeded, 3 not run" in said
    assert "never started: tasks 2, 3, 4\n" in said
    assert "pilothouse run --resume" in said
    assert run(tmp_path, "--resume", "R")[0] == 1  # the run remembers who decides


def test_per_engine_commands_without_any_task(tmp_path: Path) -> None:
    file = tasks(tmp_path, "#DISBATCH PERENGINE START echo start >> log\n#DISBATCH PERENGINE STOP echo stop >> log\n")
    assert run(tmp_path, file, "--slots", "2")[0] == 0
    assert (tmp_path / "log").read_text().split() == ["start", "stop"]


def test_fail_fast_stops_the_rest(tmp_path: Path) -> None:
    file = tasks(tmp_path, "false\n" + "sleep 30\n" * 3)
    code, said = run(tmp_path, file, "--fail-fast", "--slots", "2")
    assert code == 1
    assert "3 not run" in said


def test_list_of_tasks(tmp_path: Path) -> None:
    run(tmp_path, tasks(tmp_path, "true\nfalse\n"), "--dir", "R")
    listed = subprocess.run(
        [*COMMAND, "tasks", "R", "--failed"], check=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert "false" in listed.stdout and "true" not in listed.stdout
    as_json = subprocess.run(
        [*COMMAND, "tasks", "R", "--json"], check=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert len(as_json.stdout.splitlines()) == 2
    assert '"exit_code":1' in as_json.stdout


def test_a_scheduler_is_started_beside_the_run_and_its_death_is_told(tmp_path: Path) -> None:
    """--decider-command means what it means for a simulation."""
    socket = f"ipc://{tmp_path}/decider"
    mine = " ".join(f"'{word}'" for word in COMMAND)
    scheduler = f"{mine} steer --world batsim:{socket} --by fcfs"
    file = tasks(tmp_path, "true\n" * 5)
    by = ("--by", f"batsim:{socket}", "--slots", "2", "--bundle", "1")
    code, said = run(tmp_path, file, *by, "--decider-command", scheduler)
    assert (code, "5 succeeded" in said) == (0, True), said
    code, said = run(tmp_path, tasks(tmp_path, "sleep 30\n"), *by, "--decider-command", "sh -c 'exit 3'")
    assert code == 1
    assert "pilothouse: --decider-command: its process ended (exit code 3)" in said


def test_standard_streams_that_are_closed(tmp_path: Path) -> None:
    """Else the journal would get the number of one of them, and messages would be written into it."""
    file = tasks(tmp_path, "touch done\n")
    shell = f"exec {shlex.join([*COMMAND, 'run', file, '--dir', 'R', '--slots', '1'])} <&- >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", shell], cwd=tmp_path, check=False, timeout=60).returncode == 0
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize(("command", "code"), [(["run"], 2), (["disbatch", "-s", "localhost:1"], 1)])
def test_a_folder_that_is_no_more(tmp_path: Path, command: list[str], code: int) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "tasks.txt").write_text("true\n")
    shell = f"rmdir ../gone && exec {shlex.join([*COMMAND, *command, str(tmp_path / 'tasks.txt')])}"
    ran = subprocess.run(
        ["/bin/sh", "-c", shell], cwd=tmp_path / "gone", capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == code
    assert ran.stderr.splitlines()[-1].endswith("the current folder: is no more (go to one that is there)"), ran.stderr


def test_interrupted_before_any_engine_has_joined(tmp_path: Path) -> None:
    """Here an engine that never comes: its program is ended as well, and nobody is sent to look into logs."""
    slow = tmp_path / "bin" / "ssh"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\necho $$ > began\nexec sleep 100\n")
    slow.chmod(0o755)
    env = {"PATH": f"{slow.parent}:{os.environ['PATH']}"}
    process = start(tmp_path, tasks(tmp_path, "true\n"), "--ssh", "elsewhere:2", env=env)
    until(lambda: (tmp_path / "began").exists() and (tmp_path / "began").read_text(), "ssh was started")
    process.send_signal(signal.SIGINT)
    code, said = finish(process)
    assert code == 130 and "pilothouse: interrupted; no task had begun\n" in said
    until(lambda: not alive(int((tmp_path / "began").read_text())), "the program of the engine is gone")
