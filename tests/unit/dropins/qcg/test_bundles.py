"""Bundles of tiny jobs: when they are made, how their runner behaves, and what is read of it afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pilothouse.dropins.qcg.bundle_runner import Spawner
from pilothouse.dropins.qcg.bundles import Bundle, Bundles, Result, is_bundle, is_narrow
from pilothouse.model.job import Command, Job, Shape
from pilothouse.model.lifecycle import JobState


@pytest.fixture
def bundles(tmp_path: Path) -> Bundles:
    return Bundles(tmp_path, sys.executable, session=1)


def narrow(count: int) -> list[Job]:
    return [Job(f"j{number}", 1, submitted_at=5.0, priority=-number) for number in range(count)]


def quick(bundles: Bundles, seconds: float = 0.002) -> None:
    bundles.pace.note(seconds)


def only(bundles: Bundles) -> Bundle:
    (bundle,) = bundles.alive.values()
    return bundle


def command(*argv: str, **more: str) -> Command:
    fields: dict[str, str] = {"cwd": "/tmp", **more}
    return Command(argv=argv, env={"MINE": "yes"}, **fields)  # type: ignore[arg-type]


def started(bundles: Bundles, bundle: Bundle, commands: list[Command]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(bundles.write(bundle, commands).argv)


def gathered(bundles: Bundles, jobs: list[Job], cores: int) -> list[Job]:
    return list(bundles.gather(jobs, bundles.size(cores, len(jobs)), cores, more=False))


def bundle_of(bundles: Bundles, count: int) -> Bundle:
    quick(bundles, 0.0001)
    gathered(bundles, narrow(count), 1)
    return only(bundles)


def test_nothing_is_bundled_before_jobs_are_known_to_be_short(bundles: Bundles) -> None:
    jobs = narrow(10)
    assert gathered(bundles, jobs, 2) == jobs
    quick(bundles, 1.0)
    assert gathered(bundles, jobs, 2) == jobs


def test_short_jobs_are_shared_among_the_cores(bundles: Bundles) -> None:
    quick(bundles)
    made = gathered(bundles, narrow(11), 2)
    assert [is_bundle(job.id) for job in made] == [True, True]
    sizes = [len(bundle.members) for bundle in bundles.alive.values()]
    assert sizes == [6, 5]
    assert (made[0].submitted_at, made[0].priority, made[1].priority) == (5.0, 0, -6), "the place of its first member"


def test_bundles_get_smaller_towards_the_end(bundles: Bundles) -> None:
    quick(bundles, 0.001)
    sizes = [bundles.size(2, ready) for ready in (100_000, 6_000, 4_000, 100, 0)]
    assert sizes[0] > sizes[1] == 1500 > sizes[2] == 1000 > sizes[3] == sizes[4] > 1


@pytest.mark.parametrize(
    "job",
    [Job("two", 2), Job("range", 1, most_units=3), Job("limit", 1, walltime=5.0), Job("node", 1, shape=Shape(nodes=1))],
)
def test_other_jobs_stay_single(bundles: Bundles, job: Job) -> None:
    assert not is_narrow(job)
    quick(bundles)
    assert job in gathered(bundles, [*narrow(4), job], 1)


def test_members_run_in_order_with_their_own_surroundings(bundles: Bundles, tmp_path: Path) -> None:
    bundle = bundle_of(bundles, 4)
    out = str(tmp_path / "o{1}")
    commands = [
        command("sh", "-c", "echo $MINE; echo err >&2", stdout=out.replace("{", "{{").replace("}", "}}"),
                stderr=out.replace("{", "{{").replace("}", "}}")),
        command("/no/such/program"),
        command("sh", "-c", "exit 3"),
        command("pwd", cwd="/no/such/place"),
    ]  # fmt: skip
    assert started(bundles, bundle, commands).wait(20) == 0
    results = list(bundles.results(bundle))
    assert [result.job_id for result in results] == ["j0", "j1", "j2", "j3"]
    assert [result.return_code for result in results] == [0, 127, 3, 127]
    assert results[1].reason == "/no/such/program: No such file or directory" and results[1].pid == 0
    assert results[0].pid > 0 and results[0].ended_at >= results[0].started_at
    assert (tmp_path / "o{1}").read_text() == "yes\nerr\n"
    assert bundle.left == [] and bundles.close(bundle) == []
    assert not list((tmp_path / "bundles").iterdir()), "nothing is left behind"


@pytest.mark.parametrize("quick", [True, False])
def test_both_ways_to_start_a_program_do_the_same(quick: bool, tmp_path: Path) -> None:
    spawner = Spawner(quick=quick)
    with (tmp_path / "out").open("w") as out, open(os.devnull) as null:
        fds = [null.fileno(), out.fileno(), out.fileno()]

        def code(*argv: str, **env: str) -> int:
            return os.waitstatus_to_exitcode(os.waitpid(spawner.start(list(argv), env, fds), 0)[1])

        assert code("sh", "-c", 'echo "$MINE $HOME" $(ps -o sid= -p $$) $$; exit 7', MINE="x y", HOME="/h") == 7
        assert code("sh", "-c", "echo $MINE; kill -TERM $$", MINE="z") == -15
        assert code("sh", "-c", "exit 255") == 255 and spawner.failure() == ""
        for program in ("/no/such/program", "no-such-program-anywhere"):
            try:
                assert code(program) == 255
                assert spawner.failure() == "No such file or directory"
            except FileNotFoundError:
                assert not quick
    first, second = (tmp_path / "out").read_text().splitlines()
    *words, session, pid = first.split()
    assert words == ["x", "y", "/h"] and session == pid, "it leads a session of its own"
    assert second == "z"


def test_what_a_slow_member_would_hold_up_is_given_back(bundles: Bundles, tmp_path: Path) -> None:
    bundle = bundle_of(bundles, 3)
    argv = list(bundles.write(bundle, [command("true"), command("sleep", "0.4"), command("touch", "never")]).argv)
    argv[-1] = "0.2"
    assert subprocess.run(argv, check=False, timeout=20).returncode == 0
    assert [result.job_id for result in bundles.results(bundle)] == ["j0", "j1"]
    assert bundles.take_returned(bundle) == ["j2"]
    assert bundles.of("j2") is None


def test_term_ends_the_job_that_runs_and_returns_the_rest(bundles: Bundles, tmp_path: Path) -> None:
    bundle = bundle_of(bundles, 3)
    mark = tmp_path / "runs"
    runner = started(
        bundles, bundle, [command("sh", "-c", f"touch {mark}; exec sleep 60"), command("true"), command("true")]
    )
    while not mark.exists():
        assert runner.poll() is None
        time.sleep(0.01)
    runner.send_signal(signal.SIGTERM)
    runner.wait(20)
    (result,) = bundles.results(bundle)
    assert (result.job_id, result.return_code, result.reason) == ("j0", -15, "killed")
    assert bundles.take_returned(bundle) == ["j1", "j2"]


def test_a_cancelled_member_is_not_begun(bundles: Bundles, tmp_path: Path) -> None:
    bundle = bundle_of(bundles, 3)
    argv = bundles.write(bundle, [command("true"), command("touch", str(tmp_path / "no")), command("true")]).argv
    bundles.cancel(bundle, "j1")
    subprocess.run(argv, check=True, timeout=20)
    assert [result.job_id for result in bundles.results(bundle)] == ["j0", "j2"]
    assert bundle.left == ["j1"] and not (tmp_path / "no").exists()


def test_a_member_can_be_dropped_before_the_bundle_begins(bundles: Bundles) -> None:
    bundle = bundle_of(bundles, 2)
    assert not bundles.drop(bundle, "j0")
    subprocess.run(bundles.write(bundle, [command("true")]).argv, check=True, timeout=20)
    assert [result.job_id for result in bundles.results(bundle)] == ["j1"]
    assert bundles.of("j0") is None


def test_results_are_read_once_and_only_whole_lines(bundles: Bundles, tmp_path: Path) -> None:
    bundle = bundle_of(bundles, 2)
    path = bundle.results_file
    path.parent.mkdir()
    assert list(bundles.results(bundle)) == []
    path.write_text("0 0 77 1.5 2.5 \n1 0 78 2.5")
    assert list(bundles.results(bundle)) == [Result("j0", 0, 77, 1.5, 2.5, "")]
    with path.open("a") as stream:
        stream.write(" 3.5 x y: no\n")
    assert list(bundles.results(bundle)) == [Result("j1", 0, 78, 2.5, 3.5, "x y: no")]
    assert list(bundles.results(bundle)) == []


def test_a_later_manager_finds_bundles_by_their_files(bundles: Bundles, tmp_path: Path) -> None:
    bundle = bundle_of(bundles, 2)
    subprocess.run(bundles.write(bundle, [command("true"), command("false")]).argv, check=True, timeout=20)
    later = Bundles(tmp_path, sys.executable, session=2)
    (found,) = later.found()
    assert found.id == bundle.id and found.members == ["j0", "j1"]
    assert [result.return_code for result in later.results(found)] == [0, 1]


def test_a_bundle_whose_node_is_lost_begins_anew(bundles: Bundles) -> None:
    bundle = bundle_of(bundles, 3)
    bundles.write(bundle, [command("true")] * 3)
    bundle.running, bundle.command = True, command("runner")
    bundle.results_file.write_text("0 0 77 1.5 2.5 \n1 9 78 2.5 3.5 \n")
    assert [result.state for result in bundles.results(bundle)] == [JobState.SUCCEEDED, JobState.FAILED]
    bundles.lost(bundle)
    bundles.lost(bundle)
    assert not bundle.running and bundle.command is None and bundle.left == ["j2"]
    assert not bundle.results_file.exists()
    bundle.results_file.write_text("2 0 79 4.5 5.5 \n")
    assert [result.job_id for result in bundles.results(bundle)] == ["j2"]
