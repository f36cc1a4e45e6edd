"""Turns of deciders that lack words: what is decided for them and in which order, what is held, and what they hear of it."""

from __future__ import annotations

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import Traits
from pilothouse.core.held_starts import CALL
from pilothouse.core.translate import PATIENCE_S, CheckedTurn, FullNames
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState

NODES = tuple(Node(name, 2 * number, 2) for number, name in enumerate("abc"))


class Said:
    """A decider that answers what it was given to say."""

    name = "said"

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.told: list[e.Event] = []
        self.waits = False
        self.says: list[d.Decision] = []

    def decide(self, batch: e.Batch) -> d.Reply:
        self.told, self.waits = batch.events, batch.waits
        return d.Reply(batch.now, self.says)


class Stage:
    """Three nodes of two units, and jobs j and k that wait."""

    def __init__(self, traits: Traits, **more: object) -> None:
        self.cluster = Cluster(e.Begins(NODES, time_waits=False, **more), "said")  # type: ignore[arg-type]
        self.decider = Said(traits)
        self.turn = CheckedTurn(self.decider, self.cluster, self.cluster)  # type: ignore[arg-type]
        self.hears(0.0, e.JobSubmitted(0.0, Job("j", 1)), e.JobSubmitted(0.0, Job("k", 1)))

    def hears(self, now: float, *events: e.Event, says: list[d.Decision] | None = None, waits: bool = False) -> list[d.Decision]:
        self.decider.says = says or []
        return self.turn(e.Batch(now, list(events), waits)).decisions

    @property
    def told(self) -> list[e.Event]:
        return self.decider.told


def start(at: float, job_id: str, units: str) -> d.StartJob:
    return d.StartJob(at, job_id, IdSet.parse(units))


def away(at: float, node: Node, *, may_return: bool = True) -> e.NodesLeft:
    return e.NodesLeft(at, (node.name,), IdSet(node.mask), may_return)


A, B, C = NODES
WITHOUT_LOST = Traits(lost_nodes=False)


def test_what_is_decided_for_a_decider_comes_before_its_own_decisions() -> None:
    stage = Stage(Traits(withdrawals=False, estimates=False))
    asked = e.EstimateAsked(1.0, Job("x", 1))
    made = stage.hears(1.0, e.JobWithdrawn(1.0, "j"), asked, e.NoMoreJobs(1.0), says=[start(1.0, "k", "0")], waits=True)
    assert [type(decision) for decision in made] == [d.ConfirmWithdrawal, d.AnswerEstimate, d.StartJob]
    assert stage.told == [e.NoMoreJobs(1.0)] and stage.decider.waits
    assert stage.cluster.state_of("j") is JobState.KILLED and stage.cluster.state_of("k") is JobState.RUNNING
    assert stage.cluster.decisions == [] and stage.cluster.now == 1.0


@pytest.mark.parametrize("lacks", [*Traits.__struct_fields__[3:9], ""])
def test_a_decider_that_lacks_one_word_hears_all_others(lacks: str) -> None:
    """The word that it lacks, and those that say what becomes of a held start."""
    stage = Stage(Traits(**({lacks: False} if lacks else {})))
    stage.hears(1.0, says=[start(1.0, "j", "2")])
    events: dict[str, e.Event] = {
        "withdrawals": e.JobWithdrawn(2.0, "k"),
        "requeues": e.JobRequeued(2.0, "j"),
        "lost_nodes": away(2.0, A),
        "absent_units": e.UnitsUnavailable(2.0, IdSet.parse("5")),
        "feasibility": e.FeasibilityAsked(2.0, "q", Job("x", 1)),
        "estimates": e.EstimateAsked(2.0, Job("x", 1)),
    }
    call, own = e.CallArrived(2.0, CALL), e.CallArrived(2.0, "its own")
    made = stage.hears(2.0, *events.values(), call, own)
    translated = {"withdrawals", "requeues", "lost_nodes", "feasibility", "estimates"} & {lacks}
    expected = [event for name, event in events.items() if name not in translated]
    assert [event for event in stage.told if event in expected or isinstance(event, e.CallArrived)] == [
        *expected, *([] if lacks else [call]), own,
    ]  # fmt: skip
    kinds = {
        "withdrawals": [d.ConfirmWithdrawal], "lost_nodes": [d.CallAt], "feasibility": [d.AnswerFeasibility],
        "estimates": [d.AnswerEstimate],
    }  # fmt: skip
    assert [type(decision) for decision in made] == kinds.get(lacks, [])


def test_our_calls_are_not_told_where_starts_may_be_refused_or_placed_for_the_decider() -> None:
    call = e.CallArrived(1.0, CALL)
    for traits, survives, told in ((Traits(), False, [call]), (Traits(), True, []), (Traits(shapes=False), False, [])):
        stage = Stage(traits, survives_refusals=survives)
        stage.hears(1.0, call)
        assert stage.told == told


def test_losses_are_told_each_after_its_own_time() -> None:
    stage = Stage(WITHOUT_LOST)
    assert stage.hears(5.0, away(4.0, A)) == [d.CallAt(5.0, 4.0 + PATIENCE_S, CALL)]
    assert stage.hears(9.0, away(9.0, B)) == [d.CallAt(9.0, 9.0 + PATIENCE_S, CALL)]
    assert stage.hears(10.0, says=[start(10.0, "j", "0"), start(10.0, "k", "3")]) == [] and stage.told == []
    now = 4.0 + PATIENCE_S
    stage.hears(now - 0.5, e.CallArrived(now - 0.5, CALL))
    assert stage.told == []
    stage.hears(now, e.CallArrived(now, CALL))
    assert stage.told == [e.JobRequeued(now, "j", "its node was lost"), away(now, A, may_return=False)]
    assert stage.cluster.away_mask == B.mask
    assert stage.hears(now + 1, e.NodesJoined(now + 1, (Node("b2", 2, 2), A))) == [start(now + 1, "k", "3")]
    assert stage.told == [e.NodesJoined(now + 1, (A,))]
    assert stage.hears(now + 9, e.CallArrived(now + 9, CALL)) == [] and stage.told == []


def test_a_node_takes_the_place_of_those_whose_units_it_has() -> None:
    stage = Stage(WITHOUT_LOST)
    stage.hears(5.0, away(5.0, A), away(5.0, B))
    assert stage.hears(6.0, says=[start(6.0, "j", "1"), start(6.0, "k", "3")]) == []
    stage.hears(7.0, e.NodesJoined(7.0, (Node("half", 0, 1),)))
    assert stage.told == [e.NodesJoined(7.0, (Node("half", 0, 1),))], "it has only one of the units of a"
    made = stage.hears(8.0, e.NodesJoined(8.0, (Node("both", 0, 4),)))
    assert made == [start(8.0, "j", "1"), start(8.0, "k", "3")] and stage.told == []


def test_a_start_waits_until_all_its_units_are_there() -> None:
    stage = Stage(Traits(lost_nodes=False, absent_units=False))
    stage.hears(1.0, e.JobSubmitted(1.0, Job("two", 2)), away(1.0, A), e.UnitsUnavailable(1.0, IdSet.parse("2-3")))
    assert stage.hears(2.0, says=[start(2.0, "two", "1-2"), start(2.0, "k", "4")]) == [start(2.0, "k", "4")]
    assert stage.hears(3.0, e.NodesJoined(3.0, (A,))) == []
    assert stage.hears(4.0, e.UnitsAvailable(4.0, IdSet.parse("3"))) == []
    assert stage.hears(5.0, e.UnitsAvailable(5.0, IdSet.parse("2"))) == [start(5.0, "two", "1-2")]
    assert stage.hears(6.0, says=[start(6.0, "j", "3")]) == [start(6.0, "j", "3")]


def test_a_node_that_leaves_for_good_takes_held_starts_along() -> None:
    for requeues, told in ((True, [e.JobRequeued]), (False, [e.JobEnded, e.JobSubmitted])):
        stage = Stage(Traits(absent_units=False, requeues=requeues))
        stage.hears(1.0, e.UnitsUnavailable(1.0, IdSet.parse("0 2")))
        assert stage.hears(2.0, says=[start(2.0, "j", "0"), start(2.0, "k", "2")]) == []
        stage.hears(3.0, left := away(3.0, A, may_return=False))
        assert [type(event) for event in stage.told] == [*told, e.NodesLeft] and stage.told[-1] == left
        assert stage.hears(4.0, says=[start(4.0, "j", "1")]) == [], "its node is not there"
        assert stage.hears(5.0, e.UnitsAvailable(5.0, IdSet.parse("2"))) == [start(5.0, "k", "2")]


def test_a_held_job_is_killed_withdrawn_or_goes_on() -> None:
    stage = Stage(WITHOUT_LOST)
    stage.hears(1.0, away(1.0, A))
    stage.hears(2.0, e.JobSubmitted(2.0, Job("l", 1)), says=[start(2.0, "j", "0"), start(2.0, "k", "1"), start(2.0, "l", "4")])
    made = stage.hears(3.0, says=[d.KillJobs(3.0, ("l",))])
    assert made == [d.KillJobs(3.0, ("l",))], "it was not held"
    made = stage.hears(4.0, says=[d.KillJobs(4.0, ("l", "j", "l"))])
    rejected, kill = d.RejectJob(4.0, "j", "killed while its node was away"), d.KillJobs(4.0, ("l",))
    assert made == [kill, rejected, d.CallAt(4.0, 4.0, CALL), kill]
    assert stage.hears(4.0, e.CallArrived(4.0, CALL)) == []
    assert stage.told == [e.JobEnded(4.0, "j", JobState.KILLED, -1, IdSet.parse("0")), e.JobsKilled(4.0, ("j",), {})]
    assert stage.hears(5.0, e.JobWithdrawn(5.0, "k")) == [d.ConfirmWithdrawal(5.0, "k")]
    assert stage.told == [e.JobEnded(5.0, "k", JobState.KILLED, -1, IdSet.parse("1"))]
    assert stage.hears(6.0, e.NodesJoined(6.0, (A,))) == [] and stage.told == []


def test_other_decisions_go_on_as_they_are_while_a_start_is_held() -> None:
    stage = Stage(WITHOUT_LOST)
    stage.hears(1.0, e.JobSubmitted(1.0, Job("l", 1)), away(1.0, A))
    stage.hears(2.0, says=[start(2.0, "j", "0"), start(2.0, "k", "2"), start(2.0, "l", "4")])
    says: list[d.Decision] = [d.KillJobs(3.0, ("k", "l")), d.CallAt(3.0, 9.0), d.SetMetadata(3.0, "j", "x")]
    assert stage.hears(3.0, says=says) == says


def test_other_jobs_are_told_while_a_withdrawn_one_waits_in_the_deciders_queue() -> None:
    stage = Stage(Traits(withdrawals=False))
    stage.hears(1.0, e.JobWithdrawn(1.0, "j"))
    stage.hears(2.0, new := e.JobSubmitted(2.0, Job("l", 1)))
    assert stage.told == [new]


def test_a_job_that_came_back_and_was_withdrawn_can_be_withdrawn_again() -> None:
    stage = Stage(Traits(withdrawals=False, requeues=False))
    stage.hears(1.0, says=[start(1.0, "j", "0")])
    stage.hears(2.0, e.JobRequeued(2.0, "j"), e.JobWithdrawn(2.0, "j"))
    assert [type(event) for event in stage.told] == [e.JobEnded]
    stage.hears(3.0, e.JobSubmitted(3.0, Job("j", 1)))
    assert [type(event) for event in stage.told] == [e.JobSubmitted]
    assert stage.hears(4.0, e.JobWithdrawn(4.0, "j")) == [d.ConfirmWithdrawal(4.0, "j")]
    assert stage.hears(5.0, says=[start(5.0, "j", "0")]) == [d.CallAt(5.0, 5.0, CALL)], "the decider did not know"


def test_a_withdrawn_job_waits_in_the_deciders_queue_until_it_decides_about_it() -> None:
    for last in (start(3.0, "j", "0"), d.RejectJob(3.0, "j")):
        stage = Stage(Traits(withdrawals=False))
        stage.hears(1.0, e.JobWithdrawn(1.0, "j"))
        assert stage.told == []
        told_soon = isinstance(last, d.StartJob)
        assert stage.hears(3.0, says=[last]) == ([d.CallAt(3.0, 3.0, CALL)] if told_soon else [])
        stage.hears(3.0, e.CallArrived(3.0, CALL))
        assert stage.told == ([e.JobEnded(3.0, "j", JobState.KILLED, -1, IdSet())] if told_soon else [])
        again = e.JobSubmitted(4.0, Job("j", 1))
        assert stage.hears(4.0, again, says=[start(4.0, "j", "0")]) == [start(4.0, "j", "0")]
        assert stage.told == [again], "it is gone from the queue, and told as new"


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("requeues", [True, False])
def test_refused_starts_are_told_at_once(requeues: bool, both: bool) -> None:
    """The job failed and waits again; after the third time it is over. One call makes the decider hear of all of them."""
    stage = Stage(Traits(requeues=requeues), survives_refusals=True)
    names = ["j", "k"] if both else ["j"]
    for now in (1.0, 2.0, 3.0):
        wrong: list[d.Decision] = [start(now, name, "9") for name in names]
        made = stage.hears(now, says=[*wrong, d.CallAt(now, 50.0)])
        kind = d.RejectJob if now == 3.0 else d.Annotate
        assert [type(decision) for decision in made] == [*[kind] * len(names), d.CallAt, d.CallAt]
        assert made[-1] == d.CallAt(now, now, CALL)
        assert stage.hears(now, e.CallArrived(now, CALL)) == []
        why = "the decision was refused"
        failed = [[e.JobEnded(now, name, JobState.FAILED, -1, IdSet(), why), "submitted"] for name in names]
        again = [[e.JobRequeued(now, name, why)] for name in names] if requeues else failed
        over = [[e.JobEnded(now, name, JobState.KILLED, -1, IdSet.parse("9"))] for name in names]
        told = ["submitted" if isinstance(event, e.JobSubmitted) else event for event in stage.told]
        assert told == [event for events in (over if now == 3.0 else again) for event in events]
    assert [job.id for job in stage.cluster.queue] == ([] if both else ["k"])


def test_other_wrong_decisions_are_dropped_and_the_rest_is_done() -> None:
    stage = Stage(Traits(), survives_refusals=True)
    made = stage.hears(1.0, says=[d.KillJobs(1.0, ("nobody",)), start(1.0, "j", "0"), d.RejectJob(1.0, "nobody")])
    assert made == [start(1.0, "j", "0")]


def test_names_are_full_from_the_first_plain_one_on() -> None:
    names = FullNames()
    full, ended = e.Batch(1.0, [e.JobSubmitted(1.0, Job("w!1", 1))]), e.Batch(1.0, [e.JobWithdrawn(1.0, "7")])
    assert names.out(full) is full and names.out(ended) is ended
    reply = d.Reply(2.0, [d.KillJobs(2.0, ("w0!7", "w!1"))])
    assert names.back(reply) is reply
    for event in (e.EstimateAsked(2.0, Job("7", 1)), e.FeasibilityAsked(2.0, "7", Job("7", 1)), e.JobSubmitted(2.0, Job("7", 1))):
        names = FullNames()
        made = names.out(e.Batch(2.0, [e.NoMoreJobs(2.0), full.events[0], event], True))
        assert (made.now, made.waits, names.active) == (2.0, True, True)
        assert [one.job.id for one in made.events[1:]] == ["w!1", "w0!7"]  # type: ignore[union-attr]
    priorities = e.PrioritiesChanged(3.0, {"7": 1.0, "w!1": 2.0})
    assert names.out(e.Batch(3.0, [priorities])).events == [e.PrioritiesChanged(3.0, {"w0!7": 1.0, "w!1": 2.0})]
    back = names.back(reply)
    assert back == d.Reply(2.0, [d.KillJobs(2.0, ("7", "w!1"))]) and reply.decisions == [d.KillJobs(2.0, ("w0!7", "w!1"))]
