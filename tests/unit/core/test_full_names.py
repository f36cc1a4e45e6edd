"""Jobs with plain names, for schedulers that know `workload!name`."""

from pilothouse.core.full_names import Names
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState


def test_ids_go_out_full_and_come_back_plain() -> None:
    names = Names()
    told = names.out(
        e.Batch(
            1.0,
            [
                e.JobSubmitted(1.0, Job("7", 1)),
                e.JobEnded(1.0, "3", JobState.SUCCEEDED, 0, IdSet()),
                e.JobsKilled(1.0, ("4",), {"4": e.Progress("p", 0.5)}),
                e.NoMoreJobs(1.0),
            ],
        )
    )
    submitted, ended, killed, _ = told.events
    assert isinstance(submitted, e.JobSubmitted) and submitted.job.id == "w0!7"
    assert isinstance(ended, e.JobEnded) and ended.job_id == "w0!3"
    assert isinstance(killed, e.JobsKilled) and (killed.job_ids, list(killed.progress)) == (("w0!4",), ["w0!4"])
    reply = names.back(
        d.Reply(1.0, [d.StartJob(1.0, "w0!7", IdSet.parse("0")), d.KillJobs(1.0, ("w0!3",)), d.CallAt(1.0, 2.0)])
    )
    start, kill, _ = reply.decisions
    assert isinstance(start, d.StartJob) and start.job_id == "7"
    assert isinstance(kill, d.KillJobs) and kill.job_ids == ("3",)


def test_full_ids_are_left_alone() -> None:
    names = Names()
    batch = e.Batch(1.0, [e.JobSubmitted(1.0, Job("w0!7", 1))])
    assert names.out(batch) is batch
    reply = d.Reply(1.0, [])
    assert names.back(reply) is reply
