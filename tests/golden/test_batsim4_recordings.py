"""Recorded conversations of the real Batsim 4.2.1: the same answers get the same messages and the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden.batsim4_player import FILES, Recording, first_difference, play, table_difference, text
from peers import Count

HERE = Path(__file__).parent / "batsim4"

COPIED = [
    "raw-fcfs-small-same_submit_time",
    "raw-nowpast-small-delays",
    "raw-sendrecv-small",
    "raw-fcfs-energyhomo-par4",
    "bs-killer-after10-2kills-small-various_profile_types",
    "bs-filler-small-various-events",
    "bs-submitter-diff-ack-1jobs-small-one_delay_job",
    "bs-sleeper-energyhomo-delays",
    "py-easy-small-walltime",
]

LONG = ("bs-fcfs-small-long", "schedule")
DVFS = ("raw-dvfs-cluster128-par4", "consumed_energy")
LAST_DIGITS = {
    LONG: "sums of 1e17 seconds, which Batsim keeps with 64 bits of mantissa",
    DVFS: "a power over 8 nanoseconds, the difference of two dates near 10 s",
}
"""Files in which only the last digits of a figure differ, and why."""


@pytest.mark.parametrize("name", COPIED)
def test_same_messages_and_files(name: str, tmp_path: Path) -> None:
    recording = Recording.read(HERE / "recordings" / name, HERE / "inputs")
    played = play(recording, tmp_path)
    assert first_difference(recording, played) == ""
    for file in FILES:
        assert table_difference(recording.written(file), played.files.get(file)) == "", file


@pytest.mark.peer("batsim4", "recorded runs that ended well, message by message and file by file")
@pytest.mark.peer_difference("batsim4", "bs-fcfs-small-long, schedule.csv, last digits: " + LAST_DIGITS[LONG])
@pytest.mark.peer_difference("batsim4", "raw-dvfs-cluster128-par4, consumed_energy.csv, last digits: " + LAST_DIGITS[DVFS])
@pytest.mark.peer_difference(
    "batsim4",
    "bs-sleeper on test_delays (not among the recordings), two cells `epower` of consumed_energy.csv: NA here, a number "
    "there. Both write NA where no time has passed since the row before. So two dates that are one here must differ there in "
    "their last bits, and the number cannot be known without a recording.",
)
def test_every_recording(shared_dir: Path, tmp_path_factory: pytest.TempPathFactory, peer_count: Count) -> None:
    """All that ended with exit code 0, but for Redis (tests/interop) and those without a scheduler."""
    problems = []
    count = 0
    for folder in sorted((shared_dir / "reference/batsim4/golden").iterdir()):
        if text(folder / "protocol.jsonl") is None:
            continue
        recording = Recording.read(folder, shared_dir / "reference/inputs/v4")
        if not recording.succeeded or {"--enable-redis", "--no-sched"} & set(recording.arguments):
            continue
        count += 1
        played = play(recording, tmp_path_factory.mktemp("run"))
        if played.exit_code or (difference := first_difference(recording, played)):
            problems.append(f"{folder.name}: {played.stderr or difference}")
        problems += [
            f"{folder.name} {file}: {difference}"
            for file in FILES
            if (folder.name, file) not in LAST_DIGITS
            and (difference := table_difference(recording.written(file), played.files.get(file)))
        ]
    peer_count(count - len({problem.split()[0].rstrip(":") for problem in problems}), count)
    assert not problems, "\n".join(problems)
    assert count == 105


WRONG = {
    "err-bad_alloc_str": "EXECUTE_JOB: not a set of resources: 'a-b'",
    "err-bad_job": "(EXECUTE_JOB) refused (unknown job): job 'w0!nope'",
    "err-bad_resource": "(EXECUTE_JOB) refused (unknown resource): job w0!0: there is no resource 99",
    "err-bad_workload": "(EXECUTE_JOB) refused (unknown job): job 'zz!0'",
    "err-busy": "event 1 (EXECUTE_JOB) refused (resource in use): job w0!11: 0 computes w0!10",
    "err-call_past": "(CALL_ME_LATER) refused (call in the past)",
    "err-exec_extra_keys": "EXECUTE_JOB: data should have 2 or 3 members",
    "err-exec_on_sleeping": "(EXECUTE_JOB) refused (resource not available): job w0!0: Earth (0)",
    "err-exec_rejected": "(EXECUTE_JOB) refused (job in the wrong state): job w0!0 cannot be executed: it is REJECTED",
    "err-kill_empty": "(KILL_JOB) refused (empty list)",
    "err-kill_not_started": "(KILL_JOB) refused (job in the wrong state): job w0!0",
    "err-no_data": "EXECUTE_JOB: invalid message: Object missing required field `data`",
    "err-no_now": "invalid message: Object missing required field `now`",
    "err-no_ts": "EXECUTE_JOB: invalid message: Object missing required field",
    "err-reg_disabled": "(REGISTER_JOB) refused (dynamic registration)",
    "err-reg_dup_job": "(REGISTER_JOB) refused (duplicate job)",
    "err-reg_no_profile": "(REGISTER_JOB) refused (unknown profile)",
    "err-reg_no_workload": "(REGISTER_JOB) refused (unknown workload)",
    "err-reject_running": "(REJECT_JOB) refused (job in the wrong state): job w0!0 cannot be rejected: it is RUNNING",
    "err-reject_unknown": "(REJECT_JOB) refused (unknown job): job 'w0!nope'",
    "err-set_state_bad": "(SET_RESOURCE_STATE) refused (unknown power state)",
    "err-set_state_noenergy": "(SET_RESOURCE_STATE) refused (energy)",
    "err-state_completed": "(CHANGE_JOB_STATE) refused (change of state)",
    "err-unknown_event": "FOO: unknown type of event",
    "err-wrong_count": "(EXECUTE_JOB) refused (wrong number of resources): job w0!0 requires 1 resources, but 2 were",
}
"""What the real Batsim aborts at, and the line that we print instead."""


@pytest.mark.peer("batsim4", "recorded wrong decisions, at which it aborts: refused at the same message")
@pytest.mark.peer_difference(
    "batsim4", "A wrong decision ends it with SIGABRT; ours ends with one line and exit code 1, and complete files."
)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_decisions_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    recording = Recording.read(HERE / "recordings" / name, HERE / "inputs")
    played = play(recording, tmp_path)
    assert played.exit_code == 1
    assert WRONG[name] in played.stderr
    assert played.stderr.count("\n") == 1 and "Traceback" not in played.stderr
    # Up to the wrong decision all is as recorded, and the files are complete.
    assert len(played.sent) == len(recording.ours)
    assert played.files["jobs"].startswith("job_id,workload_name")
    assert played.files["schedule"].startswith("batsim_version,")


@pytest.mark.peer_difference("batsim4", "A deadlock is silent there; ours prints one line, with the same exit code 0.")
def test_a_deadlock_is_told(tmp_path: Path) -> None:
    """Batsim is silent and exits with 0; scripts may rely on the 0, nobody on the silence."""
    recording = Recording.read(HERE / "recordings/err-never", HERE / "inputs")
    played = play(recording, tmp_path)
    assert played.exit_code == 0
    assert "deadlock at 27.000075: nothing can happen any more; jobs that never ran: w0!0, w0!1" in played.stderr
    (tmp_path / "again").mkdir()
    assert play(recording, tmp_path / "again", "--fail-on-deadlock").exit_code == 1
