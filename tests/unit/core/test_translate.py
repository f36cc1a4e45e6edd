"""Deciders that lack a word: what they are told instead, and what becomes of their decisions."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Traits
from pilothouse.core.held_starts import CALL
from pilothouse.core.translate import PATIENCE_S, FullNames, Translation
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState

A, B = Node("a", 0, 2), Node("b", 2, 2)
LOST = e.NodesLeft(5.0, ("a",), IdSet(0b11), may_return=True)
LACKS_LOST = Traits(lost_nodes=False)
LACKS_ALL = Traits(
    withdrawals=False, requeues=False, lost_nodes=False, absent_units=False, feasibility=False, estimates=False
)


class Stage:
    """Two nodes, two jobs that wait, and what goes to and fro."""

    def __init__(self, traits: Traits = LACKS_LOST) -> None:
        self.cluster = Cluster(e.Begins((A, B), time_waits=False), "test")
        self.translation = Translation(traits, self.cluster)
        self.hears(0.0, e.JobSubmitted(0.0, Job("j", 1)), e.JobSubmitted(0.0, Job("k", 1)))

    def hears(self, now: float, *events: e.Event) -> tuple[list[Any], list[Any]]:
        """What the decider is told, and what is decided for it."""
        self.cluster.now = now
        for event in events:
            self.cluster.observe(event)
        batch, own = self.translation.events(e.Batch(now, list(events)))
        assert batch.now == now
        return batch.events, own

    def says(self, *decisions: d.Decision) -> list[Any]:
        return self.translation.reply(d.Reply(0.0, list(decisions))).decisions


def test_a_decider_that_has_all_words_is_left_alone() -> None:
    stage = Stage(Traits())
    events = (LOST, e.UnitsUnavailable(5.0, IdSet(0b100)), e.JobWithdrawn(5.0, "j"))
    batch = e.Batch(5.0, list(events))
    assert stage.translation.events(batch) == (batch, [])
    assert stage.translation.events(batch)[0] is batch
    start = d.StartJob(6.0, "j", IdSet(0b1))
    assert stage.says(start) == [start]


def test_a_start_on_a_lost_node_waits_for_it() -> None:
    stage = Stage()
    told, own = stage.hears(5.0, LOST)
    assert (told, own) == ([], [d.CallAt(5.0, 5.0 + PATIENCE_S, CALL)])
    there, elsewhere = d.StartJob(6.0, "j", IdSet(0b1)), d.StartJob(6.0, "k", IdSet(0b100))
    assert stage.says(there, elsewhere) == [elsewhere]
    told, own = stage.hears(9.0, e.NodesJoined(9.0, (Node("a#2", 0, 2),)))
    assert (told, own) == ([], [d.StartJob(9.0, "j", IdSet(0b1))])
    assert stage.says(there) == [there]
    told, own = stage.hears(5.0 + PATIENCE_S, e.CallArrived(5.0 + PATIENCE_S, CALL))
    assert (told, own) == ([], [])


def test_a_node_that_stays_away_is_told_in_the_end() -> None:
    stage = Stage()
    stage.hears(5.0, LOST)
    assert stage.says(d.StartJob(6.0, "j", IdSet(0b1))) == []
    assert stage.hears(40.0, e.CallArrived(40.0, CALL)) == ([], [])
    end = 5.0 + PATIENCE_S
    told, own = stage.hears(end, e.CallArrived(end, CALL))
    assert told == [e.JobRequeued(end, "j", "its node was lost"), e.NodesLeft(end, ("a",), IdSet(0b11))]
    assert own == [] and stage.cluster.away_mask == 0
    joined = e.NodesJoined(90.0, (Node("a#2", 0, 2),))
    assert stage.hears(90.0, joined) == ([joined], [])


def test_other_nodes_that_come_or_go_are_told() -> None:
    stage = Stage()
    stage.hears(5.0, LOST)
    left, joined = e.NodesLeft(6.0, ("b",), IdSet(0b1100)), e.NodesJoined(7.0, (Node("c", 4, 2), Node("a#2", 0, 2)))
    assert stage.hears(6.0, left) == ([left], [])
    assert stage.hears(7.0, joined) == ([e.NodesJoined(7.0, (Node("c", 4, 2),))], [])


def test_a_job_that_is_withdrawn_while_it_is_held() -> None:
    stage = Stage()
    stage.hears(5.0, LOST)
    stage.says(d.StartJob(6.0, "j", IdSet(0b1)))
    told, own = stage.hears(7.0, e.JobWithdrawn(7.0, "j"))
    assert told == [e.JobEnded(7.0, "j", JobState.KILLED, -1, IdSet(0b1))]
    assert own == [d.ConfirmWithdrawal(7.0, "j")]
    stage.cluster.book(own[0])
    assert stage.hears(9.0, e.NodesJoined(9.0, (Node("a#2", 0, 2),))) == ([], [])


def test_a_job_that_is_killed_while_it_is_held() -> None:
    stage = Stage()
    stage.hears(5.0, LOST)
    stage.says(d.StartJob(6.0, "j", IdSet(0b1)))
    assert stage.says(d.KillJobs(7.0, ("j", "k"))) == [
        d.RejectJob(7.0, "j", "killed while its node was away"),
        d.CallAt(7.0, 7.0, CALL),
        d.KillJobs(7.0, ("k",)),
    ]
    told, _ = stage.hears(7.0, e.CallArrived(7.0, CALL))
    assert told == [e.JobEnded(7.0, "j", JobState.KILLED, -1, IdSet(0b1)), e.JobsKilled(7.0, ("j",), {})]


def test_a_withdrawal_is_confirmed_and_a_late_start_hears_of_the_end() -> None:
    stage = Stage(LACKS_ALL)
    assert stage.hears(3.0, e.JobWithdrawn(3.0, "j")) == ([], [d.ConfirmWithdrawal(3.0, "j")])
    other = d.StartJob(4.0, "k", IdSet(0b1))
    assert stage.says(d.StartJob(4.0, "j", IdSet(0b10)), other) == [d.CallAt(4.0, 4.0, CALL), other]
    assert stage.hears(4.0, e.CallArrived(4.0, CALL)) == ([e.JobEnded(4.0, "j", JobState.KILLED, -1, IdSet())], [])


def test_a_withdrawn_job_may_be_rejected_too() -> None:
    stage = Stage(LACKS_ALL)
    stage.hears(3.0, e.JobWithdrawn(3.0, "j"))
    assert stage.says(d.RejectJob(4.0, "j")) == []
    assert stage.says(d.RejectJob(4.0, "k")) == [d.RejectJob(4.0, "k")]


def test_a_withdrawn_job_that_comes_again_is_told_once_and_can_end_like_any_other() -> None:
    """It still waits in the decider's queue; from then on it is a job like the others."""
    stage = Stage(LACKS_ALL)
    stage.hears(3.0, e.JobWithdrawn(3.0, "j"))
    again = e.JobSubmitted(4.0, Job("j", 1))
    assert stage.hears(4.0, again)[0] == []
    start = d.StartJob(5.0, "j", IdSet(0b1))
    assert stage.says(start) == [start]
    assert stage.hears(6.0, e.JobSubmitted(6.0, Job("l", 1)))[0] != []


def test_units_that_are_absent_from_the_start_are_waited_for() -> None:
    cluster = Cluster(e.Begins((A, B), time_waits=False, unavailable=IdSet(0b1)), "test")
    start = d.StartJob(1.0, "j", IdSet(0b1))
    for hides, expected in ((False, []), (True, [start])):
        translation = Translation(LACKS_ALL, cluster, hides_absence=hides)
        assert [each for each in translation.reply(d.Reply(1.0, [start])).decisions if each == start] == expected
    translation = Translation(LACKS_ALL, cluster)
    assert start not in translation.reply(d.Reply(1.0, [start])).decisions


def test_a_requeued_job_ends_and_is_submitted_again() -> None:
    stage = Stage(LACKS_ALL)
    stage.cluster.book(d.StartJob(1.0, "j", IdSet(0b1)))
    told, own = stage.hears(3.0, e.JobRequeued(3.0, "j", "why"))
    assert told[0] == e.JobEnded(3.0, "j", JobState.FAILED, -1, IdSet(), "why")
    assert told[1].job.id == "j" and own == []


def test_a_start_on_unavailable_units_waits_for_them() -> None:
    stage = Stage(LACKS_ALL)
    gone = e.UnitsUnavailable(3.0, IdSet(0b1))
    assert stage.hears(3.0, gone) == ([gone], [])
    assert stage.says(d.StartJob(4.0, "j", IdSet(0b1))) == []
    back = e.UnitsAvailable(5.0, IdSet(0b1))
    assert stage.hears(5.0, back) == ([back], [d.StartJob(5.0, "j", IdSet(0b1))])


def test_what_is_held_for_a_node_that_left_for_good_comes_again() -> None:
    stage = Stage(LACKS_ALL)
    stage.hears(3.0, e.UnitsUnavailable(3.0, IdSet(0b1)))
    stage.says(d.StartJob(4.0, "j", IdSet(0b1)))
    left = e.NodesLeft(5.0, ("a",), IdSet(0b11))
    ended, submitted, last = stage.hears(5.0, left)[0]
    assert (ended.job_id, ended.state, submitted.job.id, last) == ("j", JobState.FAILED, "j", left)


def test_questions_are_answered_for_it() -> None:
    stage = Stage(LACKS_ALL)
    asked = [e.FeasibilityAsked(1.0, "q1", Job("x", 2)), e.FeasibilityAsked(1.0, "q2", Job("y", 9))]
    told, (yes, no, never) = stage.hears(1.0, *asked, e.EstimateAsked(1.0, Job("z", 1)))
    assert told == [] and (yes.question_id, yes.refusal) == ("q1", "")
    assert no.question_id == "q2" and "9" in no.refusal
    assert never == d.AnswerEstimate(1.0, "z", inf)


def test_ids_go_out_full_and_come_back_plain() -> None:
    names = FullNames()
    events: list[e.Event] = [
        e.JobSubmitted(1.0, Job("7", 1)),
        e.JobEnded(1.0, "3", JobState.SUCCEEDED, 0, IdSet()),
        e.JobsKilled(1.0, ("4",), {"4": e.Progress("p", 0.5)}),
        e.NoMoreJobs(1.0),
    ]
    submitted, ended, killed, _ = names.out(e.Batch(1.0, events)).events
    assert isinstance(submitted, e.JobSubmitted) and submitted.job.id == "w0!7"
    assert isinstance(ended, e.JobEnded) and ended.job_id == "w0!3"
    assert isinstance(killed, e.JobsKilled) and (killed.job_ids, list(killed.progress)) == (("w0!4",), ["w0!4"])
    reply = names.back(
        d.Reply(1.0, [d.StartJob(1.0, "w0!7", IdSet.parse("0")), d.KillJobs(1.0, ("w0!3",)), d.CallAt(1.0, 2.0)])
    )
    start, kill, _ = reply.decisions
    assert isinstance(start, d.StartJob) and start.job_id == "7"
    assert isinstance(kill, d.KillJobs) and kill.job_ids == ("3",)


@pytest.mark.parametrize("name", ["w0!7", "other!x"])
def test_full_ids_are_left_alone(name: str) -> None:
    names = FullNames()
    batch = e.Batch(1.0, [e.JobSubmitted(1.0, Job(name, 1))])
    assert names.out(batch) is batch
    reply = d.Reply(1.0, [])
    assert names.back(reply) is reply
