"""Jobs that end while the scheduler still speaks of them: withdrawals, kills, late grants, and what the world hears of them."""

from __future__ import annotations

import pytest

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.rfc27 import frames
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.job_states import State
from unit.protocols.rfc27.eventlog import read_log
from unit.protocols.rfc27.pair import body
from unit.protocols.rfc27.test_manager_adapter import Scheduler, core

DIALECTS = pytest.mark.parametrize("strict", [False, True], ids=["today", "specification"])


def free_answered(scheduler: Scheduler, flux_id: int) -> None:
    """The specification's dialect waits for this."""
    if scheduler.strict:
        payload = b'{"id":%d}\0' % flux_id
        scheduler.say(Message(frames.RESPONSE, "sched.free", payload, 0, 0, 0, (b"job-manager",)))


@DIALECTS
def test_notes_about_a_withdrawn_job_are_not_passed_on(strict: bool) -> None:
    scheduler = Scheduler(strict=strict)
    flux_id = scheduler.submit()
    scheduler.happen(1.0, e.JobWithdrawn(1.0, "w!1"))
    scheduler.answer(flux_id, 1, annotations={"sched": {"t_estimate": 9.0}})
    assert not any(isinstance(decision, d.Annotate) for decision in scheduler.decisions())


@pytest.mark.parametrize("kind", [0, 2, 3], ids=["granted", "denied", "canceled"])
def test_any_last_answer_confirms_a_withdrawal(kind: int) -> None:
    """The specification's dialect: the scheduler may have granted or denied before it read the cancel."""
    scheduler = Scheduler(strict=True)
    flux_id = scheduler.submit()
    scheduler.happen(1.0, e.JobWithdrawn(1.0, "w!1"))
    assert scheduler.decisions() == []
    if kind == 0:
        decisions = scheduler.grant(flux_id, core(0, "0"))
        assert scheduler.adapter.manager.holding[flux_id].freeing
        free_answered(scheduler, flux_id)
    else:
        scheduler.answer(flux_id, kind, note="never")
        decisions = scheduler.decisions()
    assert decisions == [d.ConfirmWithdrawal(1.0, "w!1")]
    assert not scheduler.adapter.manager.jobs and scheduler.adapter.manager.find(flux_id) is not None


@DIALECTS
def test_a_withdrawal_that_crosses_a_grant_is_confirmed_and_the_grant_given_back(strict: bool) -> None:
    scheduler = Scheduler(strict=strict)
    flux_id = scheduler.submit()
    scheduler.give(flux_id, core(0, "0"))
    heard = scheduler.happen(1.0, e.JobWithdrawn(1.0, "w!1"))
    assert [m.topic for m in heard] == ["sched.free"]
    assert scheduler.decisions() == [d.ConfirmWithdrawal(1.0, "w!1")]
    assert scheduler.adapter.manager.take_warnings() == []


@DIALECTS
def test_a_withdrawal_of_a_job_that_was_never_asked_for_is_confirmed_at_once(strict: bool) -> None:
    scheduler = Scheduler(strict=strict)
    scheduler.adapter.manager.stop_queue()
    scheduler.happen(0.0, e.JobSubmitted(0.0, Job("w!1", 1)))
    assert scheduler.happen(1.0, e.JobWithdrawn(1.0, "w!1")) == []
    assert scheduler.decisions() == [d.ConfirmWithdrawal(1.0, "w!1")]
    assert not scheduler.adapter.manager.jobs


def test_a_job_that_was_requeued_and_withdrawn_at_once_is_confirmed() -> None:
    """core/translate.py turns the requeue into an end, so the manager has forgotten the job when its withdrawal comes."""
    scheduler = Scheduler()
    flux_id = scheduler.submit()
    scheduler.grant(flux_id, core(0, "0"))
    scheduler.cluster.observe(e.JobRequeued(2.0, "w!1"))
    ended = e.JobEnded(2.0, "w!1", JobState.FAILED, -1, IdSet())
    scheduler.cluster.observe(e.JobWithdrawn(2.0, "w!1"))
    scheduler.adapter.handle(e.Batch(2.0, [ended, e.JobWithdrawn(2.0, "w!1")]))
    assert scheduler.decisions() == [d.ConfirmWithdrawal(2.0, "w!1")]
    scheduler.happen(3.0, e.JobWithdrawn(3.0, "w!unknown"))
    assert scheduler.decisions() == []


def test_a_cancel_that_no_withdrawal_asked_for_confirms_nothing() -> None:
    scheduler = Scheduler()
    flux_id = scheduler.submit()
    scheduler.adapter.manager.stop_queue()
    scheduler.answer(flux_id, 3)
    assert scheduler.decisions() == [] and "w!1" in scheduler.cluster.waiting
    scheduler.adapter.manager.start_queue()
    assert [m.topic for m in scheduler.heard()] == ["sched.alloc"]


@DIALECTS
def test_an_exception_of_the_scheduler_kills_a_running_job_and_its_end_frees_the_resources(strict: bool) -> None:
    scheduler = Scheduler(strict=strict)
    flux_id = scheduler.submit()
    scheduler.grant(flux_id, core(0, "0"))
    assert [m.topic for m in scheduler.raises(flux_id)] == ["job-manager.raise"]
    assert scheduler.decisions() == [d.KillJobs(0.0, ("w!1",))]
    assert scheduler.adapter.manager.jobs[flux_id].state is State.CLEANUP
    # a time limit that changes now is of no use
    assert scheduler.happen(1.0, e.WalltimeChanged(1.0, "w!1", 50.0)) == []
    heard = scheduler.happen(2.0, e.JobEnded(2.0, "w!1", JobState.KILLED, -9, IdSet.of([0])))
    assert [m.topic for m in heard] == ["sched.free"] and body(heard[0])["id"] == flux_id
    free_answered(scheduler, flux_id)
    assert scheduler.adapter.manager.inactive[flux_id].state is State.INACTIVE


def test_an_exception_for_a_job_that_was_started_in_the_same_turn_kills_it() -> None:
    scheduler = Scheduler()
    flux_id = scheduler.submit()
    scheduler.give(flux_id, core(1, "0"))
    scheduler.adapter.process_answers()
    scheduler.raises(flux_id)
    assert scheduler.decisions() == [d.StartJob(0.0, "w!1", IdSet.of([4])), d.KillJobs(0.0, ("w!1",))]


@DIALECTS
def test_an_exception_before_the_start_rejects_the_job_and_gives_its_resources_back(strict: bool) -> None:
    scheduler = Scheduler(strict=strict)
    flux_id = scheduler.submit()
    scheduler.give(flux_id, core(1, "0"))
    assert [m.topic for m in scheduler.raises(flux_id)] == ["sched.free", "job-manager.raise"]
    assert scheduler.decisions() == [d.RejectJob(0.0, "w!1", "no more")]


@DIALECTS
def test_an_exception_for_a_waiting_job_rejects_it_and_cancels_its_request(strict: bool) -> None:
    scheduler = Scheduler(strict=strict)
    flux_id = scheduler.submit()
    assert [m.topic for m in scheduler.raises(flux_id)] == ["sched.cancel", "job-manager.raise"]
    assert scheduler.decisions() == [d.RejectJob(0.0, "w!1", "no more")]
    job = scheduler.adapter.manager.find(flux_id)
    assert job is not None
    (exception,) = [entry for entry in read_log(job.log) if entry.name == "exception"]
    assert exception.context == {"type": "x", "severity": 0, "note": "no more", "userid": 0}
    # one that is over already is only noted
    if strict:
        scheduler.raises(flux_id)
        assert scheduler.decisions() == []
        assert [entry.name for entry in read_log(job.log)].count("exception") == 2


def test_an_exception_that_is_not_fatal_is_only_noted() -> None:
    scheduler = Scheduler()
    flux_id = scheduler.submit()
    (answer,) = scheduler.raises(flux_id, 1)
    assert answer.errnum == 0 and scheduler.decisions() == []
    job = scheduler.adapter.manager.jobs[flux_id]
    assert job.state is State.SCHED
    assert read_log(job.log)[-1].context == {"type": "x", "severity": 1, "note": "no more"}


@pytest.mark.parametrize(
    ("state", "code", "kind", "status"),
    [
        (JobState.SUCCEEDED, 0, None, 0), (JobState.FAILED, 3, None, 768), (JobState.FAILED, -9, None, 9),
        (JobState.KILLED, -15, "cancel", 15), (JobState.TIMED_OUT, -15, "timeout", 15), (JobState.LOST, -1, "node-failure", 1),
    ],
)  # fmt: skip
def test_the_end_of_a_job_is_told_with_its_wait_status_and_why(state: JobState, code: int, kind: str | None, status: int) -> None:
    scheduler = Scheduler()
    flux_id = scheduler.submit()
    scheduler.grant(flux_id, core(0, "0"))
    scheduler.happen(7.0, e.JobEnded(7.0, "w!1", state, code, IdSet.of([0]), "so it was"))
    log = read_log(scheduler.adapter.manager.inactive[flux_id].log)
    exceptions = [entry.context for entry in log if entry.name == "exception"]
    assert exceptions == ([] if kind is None else [{"type": kind, "severity": 0, "note": "so it was", "userid": 0}])
    (finish,) = [entry for entry in log if entry.name == "finish"]
    assert finish.context == {"status": status} and finish.timestamp == 7.0


@DIALECTS
@pytest.mark.parametrize("state", [JobState.KILLED, JobState.TIMED_OUT, JobState.LOST])
def test_a_waiting_job_that_is_ended_by_the_world_is_canceled(strict: bool, state: JobState) -> None:
    scheduler = Scheduler(strict=strict)
    flux_id = scheduler.submit()
    heard = scheduler.happen(2.0, e.JobEnded(2.0, "w!1", state, -1, IdSet(), "gone"))
    assert [m.topic for m in heard] == ["sched.cancel"]
    scheduler.answer(flux_id, 3)
    assert scheduler.decisions() == [] and not scheduler.adapter.manager.jobs
