"""Bundles of tiny jobs: when they are made, how their runner behaves, and what is read of it afterwards."""

from __future__ import annotations

import marshal
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from pilothouse.dropins.qcg.bundle_runner import Spawner
from pilothouse.dropins.qcg.bundles import CUT_S, Bundle, Bundles, Result, is_bundle, is_narrow
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


@pytest.mark.parametrize(
    ("mean_s", "cores", "ready", "size"),
    [
        (1.0, 2, 1000, 1),  # not short
        (0.02, 2, 0, 20), (0.02, 2, 83, 20), (0.02, 2, 84, 21), (0.02, 1, 84, 42), (0.02, 3, 126, 21), (0.02, 2, 10**6, 240),
        (0.00001, 1, 10**6, 2000),
    ],
)  # fmt: skip
def test_how_many_jobs_a_bundle_holds(bundles: Bundles, mean_s: float, cores: int, ready: int, size: int) -> None:
    """About 0.4 s of work, up to twelve times that while many wait; at most half of a core's share."""
    quick(bundles, mean_s)
    assert bundles.size(cores, ready) == size


def test_nothing_is_bundled_where_that_is_not_enabled(tmp_path: Path) -> None:
    bundles = Bundles(tmp_path, sys.executable, session=1, enabled=False)
    quick(bundles)
    assert bundles.size(2, 10**6) == 1


def test_jobs_are_gathered_in_order(bundles: Bundles) -> None:
    wide = Job("wide", 2)
    jobs = [*narrow(3), wide, *narrow(8)[3:]]
    made = list(bundles.gather(jobs, 3, 2, more=True))
    assert [job.id for job in made] == ["::1.1", "wide", "::1.2", "::1.3"]
    assert [bundle.members for bundle in bundles.alive.values()] == [["j0", "j1", "j2"], ["j3", "j4", "j5"], ["j6", "j7"]]
    assert (made[0].units, made[0].submitted_at, made[2].priority) == (1, 5.0, -3)
    again = list(bundles.gather(narrow(4), 3, 2, more=True))
    assert [job.id for job in again] == ["::1.4", "j3"], "a bundle of one is no bundle"
    assert list(bundles.gather(jobs, 1, 2, more=True)) == jobs
    assert [bundles.of(name) for name in ("j0", "wide")] == [bundles.alive["::1.4"], None]


def test_the_last_jobs_are_shared_out_evenly(bundles: Bundles) -> None:
    made = list(bundles.gather(narrow(7), 100, 3, more=False))
    assert [len(bundles.alive[job.id].members) if is_bundle(job.id) else 1 for job in made] == [3, 3, 1]
    assert [job.id for job in bundles.gather(narrow(3), 100, 3, more=False)] == ["j0", "j1", "j2"]


def test_what_a_new_bundle_is(bundles: Bundles, tmp_path: Path) -> None:
    list(bundles.gather(narrow(2), 2, 1, more=True))
    bundle = only(bundles)
    assert (bundle.id, bundle.left, bundle.running, bundle.command, bundle.returned, bundle.bytes_read) == (
        "::1.1", ["j0", "j1"], False, None, [], 0,
    )  # fmt: skip
    files = [bundle.spec_file, bundle.results_file, bundle.members_file, bundle.cancel_file]
    assert [path.name for path in files] == ["1.1.spec", "1.1.results", "1.1.members", "1.1.results.cancel"]
    assert {path.parent for path in files} == {tmp_path / "bundles"}


def test_what_the_runner_is_given(bundles: Bundles, tmp_path: Path) -> None:
    list(bundles.gather(narrow(3), 3, 1, more=True))
    bundle = only(bundles)
    bundle.command = command("old")
    assert not bundles.drop(bundle, "j1")
    assert bundle.command is None
    given = [command("a", "b", cwd="/x", stdin="i{{1}}", stdout="o{{", stderr="e}}"), command("c")]
    runner = bundles.write(bundle, given)
    assert marshal.loads(bundle.spec_file.read_bytes()) == [
        (0, ["a", "b"], {"MINE": "yes"}, "/x", "i{1}", "o{", "e}"), (2, ["c"], {"MINE": "yes"}, "/tmp", "", "", ""),
    ]  # fmt: skip
    assert msgspec.json.decode(bundle.members_file.read_bytes()) == ["j0", "j1", "j2"]
    assert (runner.argv[0], runner.cwd) == (sys.executable, "/x")
    assert runner.argv[1:3] == ("-I", "-S") and runner.argv[-3:] == (str(bundle.spec_file), str(bundle.results_file), str(CUT_S))
    with pytest.raises(ValueError, match="shorter"):
        bundles.write(bundle, given[:1])


def test_members_that_are_dropped_returned_or_have_ended_are_of_no_bundle(bundles: Bundles) -> None:
    list(bundles.gather(narrow(6), 6, 1, more=True))
    bundle = only(bundles)
    bundles.drop(bundle, "j5")
    bundle.results_file.parent.mkdir()
    bundle.results_file.write_text("0 0 7 1.0 2.0 \n5 0 7 1.0 2.0 \nreturned 1\n2 0 8 2.0 3.0 late\n0 0 7 1.0 2.0 twice\n")
    assert list(bundles.results(bundle)) == [Result("j0", 0, 7, 1.0, 2.0, ""), Result("j2", 0, 8, 2.0, 3.0, "late")]
    assert bundle.returned == ["j2", "j3", "j4"]
    assert bundles.take_returned(bundle) == ["j3", "j4"] and bundles.take_returned(bundle) == []
    assert bundle.left == ["j1"] and bundles.of("j1") is bundle
    assert [bundles.of(name) for name in ("j0", "j2", "j3", "j5")] == [None] * 4
    assert bundles.drop(bundle, "j1"), "nothing is left"
    assert bundles.close(bundle) == [] and not bundles.alive


def test_a_closed_bundle_gives_back_what_has_no_result(bundles: Bundles) -> None:
    list(bundles.gather(narrow(2), 2, 1, more=True))
    bundle = only(bundles)
    bundles.write(bundle, [command("true")] * 2)
    bundles.cancel(bundle, "j1")
    bundles.cancel(bundle, "j0")
    assert bundle.cancel_file.read_text() == "1\n0\n"
    assert bundles.close(bundle) == ["j0", "j1"] and bundles.close(bundle) == ["j0", "j1"]
    assert bundles.of("j0") is None and not list(bundle.spec_file.parent.iterdir())


def test_found_bundles_run_and_are_known_by_their_members(bundles: Bundles, tmp_path: Path) -> None:
    list(bundles.gather(narrow(4), 2, 1, more=True))
    for bundle in bundles.alive.values():
        bundles.write(bundle, [command("true")] * 2)
    later = Bundles(tmp_path, sys.executable, session=2)
    assert later.of("j0") is None
    first, second = later.found()
    assert (first.id, second.id) == ("::1.1", "::1.2") and first.running and second.running
    assert later.of("j0") is first and later.alive == {"::1.1": first, "::1.2": second}
    assert [job.id for job in later.gather(narrow(6)[4:], 2, 1, more=True)] == ["::2.1"]


def test_a_bundle_has_the_place_of_its_first_member(bundles: Bundles) -> None:
    jobs = [Job("a", 1, submitted_at=4.0, priority=9.0), Job("b", 1, submitted_at=5.0, priority=8.0)]
    (made,) = bundles.gather(jobs, 2, 1, more=True)
    assert (made.units, made.submitted_at, made.priority) == (1, 4.0, 9.0)


def test_a_member_that_is_in_another_bundle_by_now_has_no_result_in_the_first(bundles: Bundles) -> None:
    list(bundles.gather(narrow(2), 2, 1, more=True))
    first = only(bundles)
    first.results_file.parent.mkdir()
    first.results_file.write_text("returned 0\n")
    assert list(bundles.results(first)) == [] and bundles.take_returned(first) == ["j1"]
    list(bundles.gather(narrow(3)[1:], 2, 1, more=True))
    with first.results_file.open("a") as stream:
        stream.write("1 0 7 1.0 2.0 \n")
    assert list(bundles.results(first)) == []
    assert bundles.of("j1") is bundles.alive["::1.2"]
