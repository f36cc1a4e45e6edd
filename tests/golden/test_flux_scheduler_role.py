"""Every recorded conversation, with our scheduler in the place of the recorded one: same answers, same resources."""

from __future__ import annotations

import msgspec
import pytest

from golden.flux_replay import WHOLE, SchedulerReplay, encoded, in_the_specifications_words, load
from pilothouse.formats import fluid
from pilothouse.protocols.rfc27 import frames
from pilothouse.protocols.rfc27.frames import Message

pytestmark = pytest.mark.peer("flux", "recorded conversations, ours as the scheduler")

HOLDS_ALL = {
    "05_cancel_pending.jsonl": 145273913344,
    "06_prioritize_hold_expedite.jsonl": 145273913344,
    "07_crash_and_recover.jsonl": 145273913344,
    "12_queue_stop_start.jsonl": 439881826304,
}
"""Recordings that begin while a job holds the whole machine."""

REPLAYED = [
    "01_hello_ready_fresh.jsonl",
    "02_alloc_success_free.jsonl",
    "03_annotate_then_success.jsonl",
    "04_deny.jsonl",
    "05_cancel_pending.jsonl",
    "06_prioritize_hold_expedite.jsonl",
    "07_crash_and_recover.jsonl",
    "08_free_while_scheduler_absent.jsonl",
    "09_limited_mode_2.jsonl",
    "10_expiration.jsonl",
    "12_queue_stop_start.jsonl",
    "15_partial_free_and_hello_free.jsonl",
    "22_real_flux_0.21.0.jsonl.gz",
]


def replayed(name: str, *, strict: bool = False) -> SchedulerReplay:
    held = HOLDS_ALL.get(name)
    replay = SchedulerReplay(load(name), {held: WHOLE} if held else {}, strict=strict)
    if strict:
        in_the_specifications_words(replay)
    replay.run()
    return replay


@pytest.mark.parametrize("name", REPLAYED)
def test_the_recorded_manager_gets_the_recorded_answers(name: str) -> None:
    replay = replayed(name)
    assert replay.answers == replay.recorded()
    assert not [warning for warning in replay.engine.warnings if "second sched.alloc" in warning]


@pytest.mark.parametrize("name", [name for name in REPLAYED if not name.startswith("15")])
def test_the_same_in_the_specifications_dialect(name: str) -> None:
    """All but 15: the specification cannot free a part of a job."""
    replay = replayed(name, strict=True)
    assert replay.answers == replay.recorded()
    freed = [line.payload["id"] for line in replay.lines if line.topic == "sched.free" and not line.to_manager]
    assert replay.frees == freed


def test_transcript_10_the_expiration_is_accepted_and_known() -> None:
    replay = replayed("10_expiration.jsonl")
    assert [(topic, errnum) for topic, errnum, _ in replay.others] == [("sched.expiration", 0)] * 2


def test_transcript_11_feasibility() -> None:
    lines = load("11_feasibility.jsonl")
    replay = SchedulerReplay(lines, {})
    replay.run()
    recorded = [line.errnum for line in lines if line.topic == "feasibility.check" and line.to_manager]
    assert [errnum for topic, errnum, _ in replay.others if topic == "feasibility.check"] == recorded == [0, 75]


def test_transcript_13_a_drained_node_gets_no_job_until_it_is_back() -> None:
    lines = [line for line in load("13_drain_undrain.jsonl") if not line.to_manager]
    replay = SchedulerReplay(lines[:1], {})
    replay.run()
    cluster = replay.cluster
    assert cluster.off_mask == ((1 << 16) - 1) << 48
    up = (encoded(lines[1].payload) or b"") + b"\0"
    replay.hear(Message(frames.RESPONSE, "resource.acquire", up, replay.acquire_tag, 0, frames.STREAMING))
    assert cluster.off_mask == 0


def test_transcript_16_a_module_reload_finds_the_running_job() -> None:
    lines = load("16_module_remove_reload.jsonl")
    replay = SchedulerReplay(lines, {})
    two_cores = {"version": 1, "execution": {"R_lite": [{"rank": "0", "children": {"core": "0-1"}}], "nslots": 2,
                                             "starttime": 1.0, "expiration": 0.0, "nodelist": ["node0"]}}  # fmt: skip
    replay.hold({297678143488: two_cores})
    replay.run()
    assert replay.answers == replay.recorded()


def test_transcript_20_the_specifications_dialect() -> None:
    lines = load("20_own_manager_2021_dialect.jsonl")
    recorded = _with_specs(SchedulerReplay(lines, {}, strict=False))
    recorded.run()
    assert recorded.answers == recorded.recorded()
    # it is found out from the manager's `alloc` array, and every free is answered
    assert recorded.engine.strict
    assert recorded.frees == [16777216, 33554432, 50331648]


def test_transcript_21_the_present_dialect() -> None:
    lines = load("21_own_manager_present_dialect.jsonl")
    for line in lines:
        if line.topic == "sched.alloc" and not line.to_manager:
            line.payload["jobspec"] = _slots(line.payload["id"])
    replay = SchedulerReplay(lines, {})
    replay.run()
    assert replay.answers == replay.recorded()
    assert not replay.engine.strict
    assert replay.frees == []


def test_transcript_22_a_real_flux_of_2020_with_the_specifications_hello() -> None:
    """The same conversation when we are told to speak the specification's dialect from the first word."""
    lines = load("22_real_flux_0.21.0.jsonl.gz")
    replay = SchedulerReplay(lines, {}, strict=False)
    replay.run()
    assert replay.engine.strict
    recorded_frees = [line.payload["id"] for line in lines if line.topic == "sched.free" and line.to_manager]
    assert replay.frees == recorded_frees
    assert len(replay.answers) == 54


def _slots(job_id: int) -> dict[str, object]:
    count = {16777216: 1, 33554432: 2, 50331648: 3, 67108864: 1000}[job_id]
    slot = {"type": "slot", "count": count, "label": "task", "with": [{"type": "core", "count": 1}]}
    task = {"command": ["true"], "slot": "task", "count": {"per_slot": 1}}
    return {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": {"duration": 60}}}


def _with_specs(replay: SchedulerReplay) -> SchedulerReplay:
    for job_id in (16777216, 33554432, 50331648, 67108864):
        replay.values[fluid.kvs_key(job_id, "jobspec")] = msgspec.json.encode(_slots(job_id))
    return replay
