"""The loop between a world and a decider: who is asked what, in which order, and how the run is said to have ended."""

from __future__ import annotations

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.contract import WORLD_JUDGES, Judge, Traits
from pilothouse.core.session import Outcome, Session
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node


class Script:
    """A world and a decider in one: batches by script, and everything that is asked of either."""

    name = "script"

    def __init__(self, *batches: e.Batch, traits: Traits | None = None, says: tuple[d.Decision, ...] = ()) -> None:
        self.batches = list(batches)
        self.traits = traits or Traits()
        self.says = says
        self.asked: list[str] = []
        self.applied: list[d.Decision] = []

    # the world

    def begin(self, begins: object, cluster: Cluster | None = None) -> e.Begins:
        """Of the world, with what the decider wants; or of the decider, with the cluster."""
        if cluster is not None:
            self.asked.append(f"begin {cluster.decider}")
            assert isinstance(begins, e.Begins)
            return begins
        self.asked.append("begin")
        assert begins == d.Wants(compute_sharing=True)
        return e.Begins(nodes=(Node("h", 0),), started_at=3.0)

    def advance(self) -> e.Batch | None:
        self.asked.append("advance")
        return self.batches.pop(0) if self.batches else None

    def apply(self, reply: d.Reply) -> None:
        self.asked.append(f"apply {reply.now:g}")
        self.applied += reply.decisions

    def watch(self, fd: int) -> None:
        self.asked.append(f"watch {fd}")

    def close(self) -> None:
        self.asked.append("close")

    # the decider

    def hello(self) -> d.Wants:
        self.asked.append("hello")
        return d.Wants(compute_sharing=True)

    def decide(self, batch: e.Batch) -> d.Reply:
        self.asked.append("decide")
        return d.Reply(batch.now, list(self.says))

    def fileno(self) -> int:
        return 77


def session(script: Script, name: str = "", judge: Judge | None = None) -> Session:
    return Session(script, script, name=name, judge=judge)  # type: ignore[arg-type]


def test_a_run_asks_each_side_in_turn() -> None:
    script, seen = Script(e.Batch(4.0, [e.NoMoreJobs(4.0)]), e.Batch(5.0, [e.Ended(5.0)])), list[float]()
    made = session(script)
    assert made.run(lambda batch: seen.append(batch.now)) == Outcome(5.0, 2)
    turn = ["advance", "decide", "apply"]
    assert [asked.partition(" 5")[0].partition(" 4")[0] for asked in script.asked] == [
        "hello", "begin", "begin script", *turn, *turn, "advance", "close", "close",
    ]  # fmt: skip
    assert seen == [4.0, 5.0] and made.cluster.sharing and made.cluster.now == 5.0


def test_a_decider_that_speaks_unasked_is_watched_and_a_run_may_have_a_name() -> None:
    script = Script(traits=Traits(speaks_unasked=True))
    session(script, "mine").run()
    assert script.asked == ["hello", "begin", "begin mine", "watch 77", "advance", "close", "close"]


@pytest.mark.parametrize(
    ("batches", "outcome", "deadlocked"),
    [
        ([], Outcome(3.0, 0), False),
        ([e.Batch(4.0, [])], Outcome(4.0, 1), False),
        ([e.Batch(4.0, [e.Ended(4.0, ("a",)), e.NoMoreJobs(4.0)])], Outcome(4.0, 1), False),
        ([e.Batch(4.0, []), e.Batch(6.0, [e.NoMoreJobs(6.0), e.Ended(5.0)])], Outcome(6.0, 2), False),
        ([e.Batch(4.0, [e.Ended(4.0, ("a", "b"))])], Outcome(4.0, 1, ("a", "b")), True),
        ([e.Batch(4.0, [e.Ended(4.0, (), "no engine")])], Outcome(4.0, 1, (), "no engine"), True),
    ],
)
def test_how_a_run_ended(batches: list[e.Batch], outcome: Outcome, deadlocked: bool) -> None:
    found = session(Script(*batches)).run()
    assert found == outcome and found.deadlocked is deadlocked


def test_both_sides_are_closed_after_an_error() -> None:
    script = Script(e.Batch(4.0, []), says=(d.RejectJob(4.0, "nobody"),))
    with pytest.raises(DecisionError, match="there is no job 'nobody'"):
        session(script).run()
    assert script.asked[-3:] == ["decide", "close", "close"] and script.applied == []


def test_who_judges_the_decisions() -> None:
    """The cluster, a judge that was named, or the world itself. A decider that decides on the cluster was judged already."""
    wrong = d.StartJob(4.0, "a", IdSet.parse("9"))
    submitted = e.Batch(4.0, [e.JobSubmitted(4.0, Job("a", 1))])

    class Lenient:
        now = 0.0

        def __init__(self) -> None:
            self.heard: list[object] = []

        def observe(self, event: e.Event) -> None:
            self.heard.append(type(event))

        def book(self, decision: d.Decision) -> None:
            self.heard.append(type(decision))

        def take_decisions(self) -> list[d.Decision]:
            return []

    with pytest.raises(DecisionError, match="unknown unit"):
        session(Script(submitted, says=(wrong,))).run()
    judge = Lenient()
    for traits, chosen in ((Traits(), judge), (Traits(), WORLD_JUDGES), (Traits(decides_on_cluster=True), None)):
        script = Script(submitted, says=(wrong,), traits=traits)
        session(script, judge=chosen).run()
        assert script.applied == [wrong]
    assert judge.heard == [e.JobSubmitted, d.StartJob] and judge.now == 4.0
    assert WORLD_JUDGES.take_decisions() == [] and WORLD_JUDGES.now == 0.0
