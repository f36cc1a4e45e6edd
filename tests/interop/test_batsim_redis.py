"""Job data through a real Redis server: recorded runs of Batsim 4 with batsched, and a Redis that is gone or wrong."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import components
from golden.batsim4_player import Recording, first_difference, play, run
from peers import Count

HERE = Path(__file__).parent.parent / "golden/batsim4"
COPIED = [
    "bs-easy-redis-small-delays",
    "bs-submitter-same-noack-10jobs-small-one_delay_job-redis",
    "bs-submitter-diff-ack-10jobs-small-various_profile_types-redis",
]


@pytest.fixture
def client(redis_server: components.RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis(host=redis_server.host, port=redis_server.port) as client:
        client.flushall()
        yield client


def put_registered_jobs(recording: Recording, client: redis.Redis, prefix: str) -> None:
    """What the recorded scheduler put into Redis for the jobs that it registers; jobs.csv tells what that was."""
    for row in csv.DictReader((recording.written("jobs") or "").splitlines()):
        if row["workload_name"] == "dynamic":
            job_id = f"dynamic!{row['job_id']}"
            job = {
                "id": job_id,
                "subtime": float(row["submission_time"]),
                "walltime": float(row["requested_time"]),
                "res": int(row["requested_number_of_resources"]),
                "profile": row["profile"],
            }
            client.set(f"{prefix}:job_{job_id}", json.dumps(job))


@pytest.mark.parametrize("name", COPIED)
def test_recorded_runs_with_redis(
    name: str, tmp_path: Path, redis_server: components.RedisServer, client: redis.Redis
) -> None:
    compare(Recording.read(HERE / "recordings" / name, HERE / "inputs"), tmp_path, redis_server, client)


@pytest.mark.peer("batsim4", "recorded runs with Redis")
def test_every_recorded_run_with_redis(
    shared_dir: Path, tmp_path: Path, redis_server: components.RedisServer, client: redis.Redis, peer_count: Count
) -> None:
    folders = sorted((shared_dir / "reference/batsim4/golden").glob("*redis*"))
    for number, folder in enumerate(folders):
        client.flushall()
        place = tmp_path / str(number)
        place.mkdir()
        compare(Recording.read(folder, shared_dir / "reference/inputs/v4"), place, redis_server, client)
    peer_count(len(folders), len(folders))
    assert len(folders) == 8


def compare(
    recording: Recording, tmp_path: Path, redis_server: components.RedisServer, client: redis.Redis
) -> None:
    """The same messages, the same jobs, and in Redis what schedulers look for there."""
    prefix = recording.arguments[recording.arguments.index("--redis-prefix") + 1]
    put_registered_jobs(recording, client, prefix)
    played = play(recording, tmp_path, replaced={"--redis-port": str(redis_server.port)})
    assert played.stderr == ""
    for message in (recording.ours[0], played.sent[0]):
        message["events"][0]["data"]["config"]["redis-port"] = 0
    assert first_difference(recording, played) == ""
    assert client.get(f"{prefix}:nb_res") == b"4"
    static = _static_jobs(recording)
    assert static, "the recording has static jobs"
    for job in static:
        written = json.loads(client.get(f"{prefix}:job_w0!{job['id']}") or b"null")
        assert written == job | {"id": f"w0!{job['id']}"}


def _static_jobs(recording: Recording) -> list[dict[str, object]]:
    path = recording.arguments[recording.arguments.index("-w") + 1].removeprefix("inputs/")
    jobs: list[dict[str, object]] = json.loads((recording.inputs / path).read_text())["jobs"]
    return jobs


def test_profiles_go_through_redis_where_they_are_forwarded(
    tmp_path: Path, redis_server: components.RedisServer, client: redis.Redis
) -> None:
    recording = Recording.read(HERE / "recordings/bs-easy-redis-small-delays", HERE / "inputs")
    port = str(redis_server.port)
    play(recording, tmp_path, "--forward-profiles-on-submission", replaced={"--redis-port": port})
    assert json.loads(client.get("gold3:profile_w0!delay10") or b"null") == {"type": "delay", "delay": 10}


def test_a_job_that_is_not_in_redis_is_the_schedulers_mistake(
    tmp_path: Path, redis_server: components.RedisServer, client: redis.Redis
) -> None:
    recording = Recording.read(HERE / "recordings" / COPIED[1], HERE / "inputs")
    played = play(recording, tmp_path, replaced={"--redis-port": str(redis_server.port)})
    assert played.exit_code == 1
    assert "there is no key gold:job_dynamic!0 in Redis at 127.0.0.1" in played.stderr


def test_rubbish_in_redis_is_named(tmp_path: Path, redis_server: components.RedisServer, client: redis.Redis) -> None:
    recording = Recording.read(HERE / "recordings" / COPIED[1], HERE / "inputs")
    client.set("gold:job_dynamic!0", b'{"res": "many"}')
    played = play(recording, tmp_path, replaced={"--redis-port": str(redis_server.port)})
    assert played.exit_code == 1
    assert "REGISTER_JOB: job dynamic!0: Expected `int`, got `str` - at `$.res`" in played.stderr


def test_no_redis_server(tmp_path: Path) -> None:
    port = str(components.free_port())
    inputs = HERE / "inputs"
    code, stderr = run(
        [
            "-p", str(inputs / "platforms/small_platform.xml"), "-w", str(inputs / "workloads/test_delays.json"),
            "-e", str(tmp_path / "out"), "--enable-redis", "--redis-port", port,
        ]
    )  # fmt: skip
    assert code == 1
    assert f"Redis at 127.0.0.1:{port}: cannot be reached" in stderr
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_no_redis_package(tmp_path: Path) -> None:
    inputs = HERE / "inputs"
    without = "import sys; sys.modules['redis'] = None; from pilothouse.cli.main import main; main()"
    done = subprocess.run(
        [
            sys.executable, "-c", without, "batsim4", "-p", inputs / "platforms/small_platform.xml", "--enable-redis",
            "-w", inputs / "workloads/test_delays.json", "-e", tmp_path / "out",
        ], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "needs the redis client" in done.stderr and "pip install" in done.stderr
    assert not list(tmp_path.iterdir()), "nothing is written"
