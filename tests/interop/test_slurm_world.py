"""The Slurm world on a real loopback Slurm of 8 nodes: single promises. test_slurm_trials.py: many jobs, disturbed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.slurm_options import plan, run_steered

from pilothouse.worlds.slurm.daemons import wait_until
from pilothouse.worlds.slurm.lab import Lab
from pilothouse.worlds.slurm.lab_files import parse_shape
from pilothouse.worlds.slurm.records import read_request


@pytest.fixture(scope="module")
def slurm_lab(slurm_programs: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("lab"), parse_shape("8x4"))
    lab.start()
    yield lab
    lab.stop()


def slurm(lab: Lab, *command: str) -> str:
    done = subprocess.run(command, env=lab.env, capture_output=True, text=True, timeout=60, check=False, cwd="/tmp")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def pilothouse(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pilothouse", *arguments]
    return subprocess.run(command, env=lab.env, capture_output=True, text=True, timeout=60, check=False)


def submit(lab: Lab, *options: str, queue: str = "queue") -> str:
    return slurm(lab, "sbatch", "--parsable", "-o", "/dev/null", "-p", queue, "-t1", *options, "--wrap", "sleep 0.3")


def nodes_of(lab: Lab, job: str) -> str:
    return slurm(lab, "squeue", "-h", "-a", "-t", "all", "-j", job, "-o", "%N")


def test_features_named_nodes_gres_and_licences(slurm_lab: Lab) -> None:
    high = submit(slurm_lab, "-N2", "-C", "high")
    named = submit(slurm_lab, "-N1", "-w", "n6")
    excluded = submit(slurm_lab, "-N2", "-x", "n[1-6]")
    gres = submit(slurm_lab, "-N3", "--gres=fpga:2")
    licences = [submit(slurm_lab, "-N1", "-L", "matlab:2") for _ in range(2)]
    done = pilothouse(slurm_lab, "steer", "--world", "slurm?once=1", "--by", "easy")
    assert done.returncode == 0, done.stderr
    assert nodes_of(slurm_lab, high) == "n[5-6]"
    assert nodes_of(slurm_lab, named) == "n6"
    assert nodes_of(slurm_lab, excluded) == "n[7-8]"
    assert nodes_of(slurm_lab, gres) == "n[1-3]"
    ended = slurm(slurm_lab, "squeue", "-h", "-a", "-t", "all", "-j", ",".join(licences), "-o", "%T %r")
    assert ended.splitlines() == ["COMPLETED None"] * 2


def test_jobs_share_nodes_by_cpus(slurm_lab: Lab) -> None:
    jobs = [submit(slurm_lab, "-n1", "-c2", queue="cpuqueue") for _ in range(4)]
    wide = submit(slurm_lab, "-n6", queue="cpuqueue")
    whole = submit(slurm_lab, "-N1", "--exclusive", queue="cpuqueue")
    done = pilothouse(slurm_lab, "steer", "--world", "slurm:cpuqueue:cpugo?once=1", "--by", "easy")
    assert done.returncode == 0, done.stderr
    assert [nodes_of(slurm_lab, job) for job in jobs] == ["n1", "n1", "n2", "n2"]
    assert nodes_of(slurm_lab, wide) == "n[3-4]"
    assert nodes_of(slurm_lab, whole) == "n5"


def test_mistakes_are_one_line(slurm_lab: Lab) -> None:
    for world, words in (
        ("slurm:nothing:go", "there is no partition 'nothing'"),
        ("slurm:main:go", "partition main is UP"),
        ("slurm:queue:cpuqueue", "partition cpuqueue is not UP"),
        ("slurm:queue", "not a pair of partitions"),
    ):
        done = pilothouse(slurm_lab, "steer", "--world", world)
        assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_the_queue_is_given_back_when_the_program_is_killed(slurm_lab: Lab) -> None:
    command = [sys.executable, "-m", "pilothouse", "steer", "--world", "slurm", "--fail-open"]
    for number, guard_too in ((signal.SIGKILL, False), (signal.SIGTERM, False), (signal.SIGTERM, True)):
        steer = subprocess.Popen(command, env=slurm_lab.env, stdout=subprocess.DEVNULL)
        wait_until(lambda: partition_state(slurm_lab) == "DOWN", "the queue to be taken")
        first = submit(slurm_lab, "-N1")
        wait_until(lambda: state_of(slurm_lab, first) == "COMPLETED", "the first job")  # noqa: B023
        children = Path(f"/proc/{steer.pid}/task/{steer.pid}/children").read_text().split() if guard_too else []
        for child in children:  # as `systemctl stop` does
            os.kill(int(child), number)
        steer.send_signal(number)
        steer.wait()
        second = submit(slurm_lab, "-N1")
        wait_until(lambda: partition_state(slurm_lab) == "UP", "the queue to be given back")
        wait_until(lambda: state_of(slurm_lab, second) == "COMPLETED", "Slurm to start it itself")  # noqa: B023
    slurm(slurm_lab, "scontrol", "update", "partitionname=queue", "state=DOWN")


def test_one_program_steers_at_a_time_and_ends_with_the_one_that_restarts_it(slurm_lab: Lab) -> None:
    command = [sys.executable, "-m", "pilothouse", "steer", "--world", "slurm", "--restart"]
    first = subprocess.Popen(command, env=slurm_lab.env, stdout=subprocess.DEVNULL)
    job = submit(slurm_lab, "-N1")
    wait_until(lambda: state_of(slurm_lab, job) == "COMPLETED", "the job")
    second = pilothouse(slurm_lab, "steer", "--world", "slurm", "--by", "fcfs")
    assert second.returncode == 2 and "is steered already, by process" in second.stderr
    (child,) = map(int, Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split())
    assert f"process {child}" in second.stderr
    first.kill()
    first.wait()
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the end of the child")


def test_users_see_their_jobs_and_sites_keep_their_comments(slurm_lab: Lab) -> None:
    command = ["sbatch", "--parsable", "-o", "/dev/null", "-p", "queue", "-N1", "--wrap", "sleep 30"]
    job = slurm(slurm_lab, *command)
    slurm(slurm_lab, "scontrol", "update", f"jobid={job}", "admincomment=the site's own text")
    steer = subprocess.Popen([sys.executable, "-m", "pilothouse", "steer", "--world", "slurm"], env=slurm_lab.env)
    wait_until(lambda: slurm(slurm_lab, "squeue", "-h", "-t", "R", "-o", "%i").split() == [job], "plain squeue to show it")
    wait_until(lambda: admin_comment(slurm_lab, job) == "the site's own text", "the comment to be put back")
    steer.kill()
    steer.wait()
    slurm(slurm_lab, "scancel", job)


def test_jobs_get_what_they_ask_for_on_unlike_nodes(tmp_path: Path) -> None:
    """`python -m tests.interop.slurm_options` runs 1,000, beside a plain Slurm."""
    run = run_steered(tmp_path, plan(24, seed=3, between_s=0.1), kills=1, limit_s=120.0)
    assert run.judge() == [] and len(run.ids) == 24


def admin_comment(lab: Lab, job: str) -> str:
    return read_request(slurm(lab, "scontrol", "-o", "show", "job", job)).comment


def test_looking_changes_nothing(slurm_lab: Lab) -> None:
    wide, other = submit(slurm_lab, "-N8"), submit(slurm_lab, "-N2")
    held = submit(slurm_lab, "-N1", "-H")
    shown = ["squeue", "-h", "-a", "-j", f"{wide},{other},{held}", "-O", "jobid,partition,state,reqnodes,numnodes,admin_comment"]
    before = slurm(slurm_lab, *shown)
    dry = pilothouse(slurm_lab, "steer", "--world", "slurm", "--by", "easy", "--dry-run", "--looks", "2")
    assert dry.stdout.count("\n") == 1 and f"job {wide}: the policy would start it on n[1-8]; Slurm:" in dry.stdout
    starts = json.loads(pilothouse(slurm_lab, "whatif", "--policy", "fcfs,easy", "--json").stdout)["jobs"]
    assert [(row["job"], row["starts_in_s"]) for row in starts] == [
        (wide, {"fcfs": 0.0, "easy": 0.0}),
        (other, {"fcfs": 60.0, "easy": 60.0}),
    ]
    table = pilothouse(slurm_lab, "whatif", "--used", "0.5").stdout
    assert "0:00:30" in table
    asked = json.loads(pilothouse(slurm_lab, "whatif", "--submit", "4:1m", "--policy", "fcfs", "--json").stdout)
    assert (asked["units"], asked["starts_in_s"]) == (4, {"fcfs": pytest.approx(60.0)}), "behind the job that needs all"
    for job, words in ((held, "it is held"), (other, "would fit now"), ("999", "neither waits nor runs")):
        assert words in pilothouse(slurm_lab, "explain", "--world", "slurm", job).stdout
    assert slurm(slurm_lab, *shown) == before
    slurm(slurm_lab, "scancel", wide, other, held)


def test_a_partition_that_slurm_schedules_can_be_looked_at(slurm_lab: Lab) -> None:
    busy, waits = submit(slurm_lab, "-N8", "--exclusive", queue="main"), submit(slurm_lab, "-N8", "--exclusive", queue="main")
    wait_until(lambda: state_of(slurm_lab, busy) in ("RUNNING", "COMPLETED"), "the first job")
    done = pilothouse(slurm_lab, "steer", "--world", "slurm:main", "--by", "easy", "--dry-run", "--looks", "1")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: state_of(slurm_lab, waits) == "COMPLETED", "the second job")


def test_set_up_is_checked_and_undone(slurm_lab: Lab) -> None:
    done = pilothouse(slurm_lab, "slurm-setup", "--check")
    assert done.returncode == 0, done.stdout
    assert pilothouse(slurm_lab, "slurm-setup", "--go", "main", "--check").returncode == 1
    ordered = submit(slurm_lab, "-N1", "-w", "n2")
    slurm(slurm_lab, "scontrol", "update", "nodename=n3", "state=drain", "reason=test")
    note = "admincomment=pilothouse/2026-01-01T00:00:00/n2"
    slurm(slurm_lab, "scontrol", "update", f"jobid={ordered}", "partition=go", "reqnodelist=n3", note)
    done = pilothouse(slurm_lab, "slurm-setup", "--undo")
    assert done.returncode == 0 and f"job {ordered} is back in queue" in done.stdout
    wait_until(lambda: state_of(slurm_lab, ordered) == "COMPLETED", "Slurm to start it itself")
    assert nodes_of(slurm_lab, ordered) == "n2"
    slurm(slurm_lab, "scontrol", "update", "nodename=n3", "state=resume")
    slurm(slurm_lab, "scontrol", "update", "partitionname=queue", "state=DOWN")


def test_why_a_job_waits_is_in_its_admin_comment(slurm_lab: Lab) -> None:
    first, second = submit(slurm_lab, "-N8"), submit(slurm_lab, "-N8")
    done = pilothouse(slurm_lab, "steer", "--world", "slurm?once=1&notes=1", "--by", "easy")
    assert done.returncode == 0, done.stderr
    log = (slurm_lab.folder / "slurmctld.log").read_text()
    assert re.search(rf'setting admin_comment to "pilothouse/\S+ waits: .*" for JobId={second}', log)
    assert state_of(slurm_lab, first) == state_of(slurm_lab, second) == "COMPLETED"


def state_of(lab: Lab, job: str) -> str:
    return slurm(lab, "squeue", "-h", "-a", "-t", "all", "-j", job, "-o", "%T")


def partition_state(lab: Lab) -> str:
    found = re.search(r"State=(\w+)", slurm(lab, "scontrol", "show", "partition", "queue"))
    assert found is not None
    return found[1]
