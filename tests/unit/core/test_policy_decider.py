"""What a policy sees of a batch, which questions are answered for it, and how its mistakes are told."""

from __future__ import annotations

import json
import sys
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import SEE_TRACEBACK, PolicyDecider
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import DecisionError, InputError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.policies.base import Policy


class Watching(Policy):
    """Writes down what it sees, and starts what fits."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, cluster: Cluster) -> None:
        self.seen.append("begin")

    def on_batch(self, ended: list[Job], cluster: Cluster) -> None:
        self.seen.append(f"batch {' '.join(job.id for job in ended)}: {cluster.free} free")

    def on_submitted(self, job: Job, cluster: Cluster) -> None:
        self.seen.append(f"submitted {job.id}")

    def on_ended(self, job: Job, cluster: Cluster) -> None:
        self.seen.append(f"ended {job.id}")

    def on_event(self, event: e.Event, cluster: Cluster) -> None:
        self.seen.append(type(event).__name__)

    def schedule(self, cluster: Cluster) -> None:
        self.seen.append("pass")
        for job in cluster.queue:
            cluster.start(job)


class EachEvent(Watching):
    each_event = True


class Stage:
    """Two hosts. Job a runs on the first."""

    def __init__(self, policy: Policy, **more: object) -> None:
        nodes, running = (Node("h0", 0), Node("h1", 1)), (e.Running(Job("a", 1), IdSet.parse("0"), 0.0),)
        begins = e.Begins(nodes=nodes, running=running, **more)  # type: ignore[arg-type]
        self.decider = PolicyDecider(policy)
        self.cluster = Cluster(begins, "mine")
        self.decider.begin(begins, self.cluster)

    def hears(self, now: float, *events: e.Event) -> d.Reply:
        return self.decider.decide(e.Batch(now, list(events)))


def ended(job_id: str) -> e.JobEnded:
    return e.JobEnded(1.0, job_id, JobState.SUCCEEDED, 0, IdSet())


EVENTS: list[tuple[e.Event, list[str]]] = [
    (e.JobSubmitted(1.0, Job("b", 1)), ["submitted b"]),
    (e.JobSubmitted(1.0, Job("huge", 3)), []),
    (ended("a"), ["ended a"]),
    (ended("nobody"), []),
    (e.JobRequeued(1.0, "a"), ["ended a", "submitted a"]),
    (e.JobRequeued(1.0, "nobody"), []),
    (e.JobWithdrawn(1.0, "waits"), ["ended waits", "JobWithdrawn"]),
    (e.JobWithdrawn(1.0, "nobody"), []),
    (e.NoMoreJobs(1.0), ["NoMoreJobs"]),
    (e.UnitsAvailable(1.0, IdSet.parse("0")), ["UnitsAvailable"]),
]


@pytest.mark.parametrize(("event", "seen"), EVENTS, ids=lambda value: type(value).__name__)
def test_which_hook_sees_an_event_alone_or_among_others(event: e.Event, seen: list[str]) -> None:
    for policy in (Watching(), EachEvent()):
        for others in (0, 1):
            stage = Stage(policy)
            stage.cluster.observe(e.JobSubmitted(0.0, Job("waits", 2)))
            policy.seen.clear()
            reply = stage.hears(1.0, event, *[e.NoMoreExternalEvents(1.0)] * others)
            each = ["pass"] if policy.each_event and others else []
            batch = ["batch a: 2 free"] if each and seen == ["ended a"] else []
            assert policy.seen == [*batch, *seen, *each, *["NoMoreExternalEvents"] * others, "pass"]
            assert reply.now == stage.cluster.now == 1.0
            assert stage.cluster.decisions == []
            rejected = [decision.job_id for decision in reply.decisions if isinstance(decision, d.RejectJob)]
            assert rejected == (["huge"] if isinstance(event, e.JobSubmitted) and event.job.id == "huge" else [])


@pytest.mark.parametrize("others", [0, 1])
def test_the_cluster_sees_each_event_before_the_policy(others: int) -> None:
    more = [e.NoMoreJobs(1.0)] * others
    for policy in (Watching(), EachEvent()):
        stage = Stage(policy)
        assert stage.hears(1.0, e.UnitsUnavailable(1.0, IdSet.parse("1")), *more).decisions == []
        assert stage.hears(2.0, e.JobSubmitted(2.0, Job("b", 1)), *more).decisions == [], "the other unit is off"
        assert stage.hears(3.0, e.JobRequeued(3.0, "a"), *more).decisions == [d.StartJob(3.0, "b", IdSet.parse("0"))]
        assert stage.hears(4.0, e.JobWithdrawn(4.0, "a"), *more).decisions == [] and stage.cluster.withdrawn == {"a"}
        assert list(stage.cluster.queue) == []


def test_all_ends_of_a_date_are_noted_before_the_first_pass() -> None:
    policy = EachEvent()
    stage = Stage(policy)
    stage.cluster.observe(e.JobSubmitted(0.0, Job("b", 1)))
    stage.cluster.start(stage.cluster.waiting["b"])
    stage.cluster.take_decisions()
    policy.seen.clear()
    reply = stage.hears(1.0, e.JobSubmitted(1.0, Job("c", 2)), ended("b"), ended("nobody"), ended("a"))
    assert policy.seen == ["batch b a: 2 free", "submitted c", "pass", "ended b", "pass", "pass", "ended a", "pass"]
    assert reply.decisions == [d.StartJob(1.0, "c", IdSet.parse("0-1"))]
    policy.seen.clear()
    stage.hears(2.0, e.NoMoreJobs(2.0), e.NoMoreExternalEvents(2.0))
    assert policy.seen == ["NoMoreJobs", "pass", "NoMoreExternalEvents", "pass"], "nothing ended"
    assert stage.hears(3.0).decisions == []


def test_a_batch_without_events_is_a_pass() -> None:
    policy = Watching()
    stage = Stage(policy)
    stage.hears(1.0)
    assert policy.seen == ["begin", "pass"]


class WholeTurn(Policy):
    """Says when it is done thinking."""

    def __init__(self, done: float | None) -> None:
        self.done = done
        self.saw: list[str] = []

    def decide(self, batch: e.Batch, cluster: Cluster) -> float | None:
        self.saw = [job.id for job in cluster.queue]
        return self.done

    def schedule(self, cluster: Cluster) -> None:
        raise AssertionError("it decides itself")


@pytest.mark.parametrize(("done", "now"), [(None, 5.0), (4.0, 5.0), (5.0, 5.0), (7.5, 7.5)])
def test_a_policy_that_takes_the_whole_turn_is_done_no_earlier_than_now(done: float | None, now: float) -> None:
    policy = WholeTurn(done)
    stage = Stage(policy)
    assert stage.hears(5.0, e.JobSubmitted(5.0, Job("b", 1))).now == now
    assert policy.saw == ["b"] and stage.cluster.now == 5.0
    assert stage.hears(8.0, e.JobSubmitted(8.0, Job("c", 1)), e.NoMoreJobs(8.0)).now == max(now, 8.0)
    assert policy.saw == ["b", "c"]


class Answering(Watching):
    """Answers questions about one job."""

    def on_event(self, event: e.Event, cluster: Cluster) -> None:
        if isinstance(event, e.EstimateAsked) and event.job.id == "known":
            cluster.book(d.AnswerEstimate(cluster.now, "known", 3.0))


class AnsweringAlone(Answering):
    def decide(self, batch: e.Batch, cluster: Cluster) -> float | None:
        for event in batch.events:
            self.on_event(event, cluster)
        return None


@pytest.mark.parametrize("policy", [Answering, AnsweringAlone])
def test_questions_that_the_policy_has_not_answered_are_answered_for_it(policy: type[Policy]) -> None:
    for more, wait in (((), inf), ((lambda cluster, job: cluster.total + job.units,), 9.0)):
        decider = PolicyDecider(policy(), *more)
        begins = e.Begins(nodes=(Node("h0", 0), Node("h1", 1)))
        cluster = Cluster(begins, "mine")
        decider.begin(begins, cluster)
        asked = [e.EstimateAsked(1.0, Job(name, 7)) for name in ("known", "unknown", "known", "another")]
        assert [decision for decision in decider.decide(e.Batch(1.0, list(asked))).decisions if decision.job_id != "known"] == [  # type: ignore[union-attr]
            d.AnswerEstimate(1.0, "unknown", wait),
            d.AnswerEstimate(1.0, "another", wait),
        ]
        for one in asked[:2]:
            answer = d.AnswerEstimate(1.0, one.job.id, 3.0 if one.job.id == "known" else wait)
            assert decider.decide(e.Batch(1.0, [one])).decisions == [answer]


class Stubborn(Watching):
    """Starts everything on a unit that is not there."""

    def schedule(self, cluster: Cluster) -> None:
        for job in cluster.queue:
            cluster.start(job, IdSet.parse("9"))


class StubbornAlone(Stubborn):
    def decide(self, batch: e.Batch, cluster: Cluster) -> float | None:
        self.schedule(cluster)
        return None


@pytest.mark.parametrize("policy", [Stubborn(), StubbornAlone()])
def test_a_job_that_is_rejected_for_the_policys_mistakes_leaves_its_queue(policy: Stubborn) -> None:
    stage = Stage(policy, survives_refusals=True)
    stage.hears(1.0, e.JobSubmitted(1.0, Job("b", 1)))
    stage.hears(2.0)
    policy.seen.clear()
    stage.hears(3.0, e.NoMoreJobs(3.0))
    assert policy.seen.count("ended b") == 1 and stage.cluster.state_of("b") is JobState.REFUSED
    policy.seen.clear()
    stage.hears(4.0, e.NoMoreJobs(4.0))
    assert "ended b" not in policy.seen


def test_a_policy_says_what_it_wants_and_who_it_is() -> None:
    class Wanting(Watching):
        wants = d.Wants(dynamic_registration=True)

    decider = PolicyDecider(Wanting())
    assert (decider.hello(), decider.name) == (d.Wants(dynamic_registration=True), "Wanting")
    assert decider.traits.decides_on_cluster and not decider.traits.speaks_unasked


# ---- mistakes


def mistake(schedule: Any, *events: e.Event, hook: str = "schedule") -> BaseException:
    """What comes of a policy that does this."""
    policy = type("Mine", (Watching,), {hook: schedule})()
    for batch in ([*events], [*events, e.NoMoreJobs(1.0)]):
        with pytest.raises((Exception, SystemExit)) as found:
            stage = Stage(policy)
            stage.cluster.observe(e.JobSubmitted(0.0, Job("b", 1)))
            stage.decider.decide(e.Batch(1.0, batch))
    return found.value


def line_of(text: str) -> int:
    """The number of the line of this file that holds the text and `# here`."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line and line.endswith("# here"))


def test_a_mistake_is_told_with_the_policys_own_line() -> None:
    def schedule(self: Policy, cluster: Cluster) -> None:
        raise KeyError("oh")  # here

    where = f"{__file__}:{line_of('KeyError')}"
    for hook, at in (("schedule", 1), ("begin", 0)):
        error = mistake(schedule, hook=hook)
        assert str(error) == f"mine at {where}: decision 0 refused (the policy raised): KeyError: 'oh' (at {at} s)"


def test_a_wrong_decision_is_told_with_its_line_and_its_rule() -> None:
    def schedule(self: Policy, cluster: Cluster) -> None:
        cluster.call_at(9.0)
        cluster.start(cluster.queue[0], IdSet.parse("7"))  # here

    error = mistake(schedule)
    assert isinstance(error, DecisionError)
    assert (error.index, error.rule) == (1, "unknown unit")
    assert str(error).startswith(f"mine at {__file__}:{line_of('IdSet.parse(')}: decision 1 refused (unknown unit): job b on 7")


def test_a_mistake_inside_a_library_or_inside_us_is_told_with_the_line_that_led_there() -> None:
    def reads(self: Policy, cluster: Cluster) -> None:
        json.loads("{")  # here

    def starts(self: Policy, cluster: Cluster) -> None:
        cluster.start("b")  # type: ignore[arg-type]  # here

    for schedule, text, kind in ((reads, "json.loads", "JSONDecodeError"), (starts, 'cluster.start("b")', "AttributeError")):
        error = str(mistake(schedule))
        assert error.startswith(f"mine at {__file__}:{line_of(text)}: decision 0 refused (the policy raised): {kind}: ")
        assert error.endswith(f"(at 1 s); {SEE_TRACEBACK}")


def test_a_policy_that_leaves_the_program_is_a_mistake() -> None:
    def schedule(self: Policy, cluster: Cluster) -> None:
        sys.exit("bye")  # here

    assert f"{__file__}:{line_of('sys.exit')}: decision 0 refused (the policy raised): SystemExit: bye" in str(mistake(schedule))


def test_errors_for_the_user_go_on_as_they_are() -> None:
    def schedule(self: Policy, cluster: Cluster) -> None:
        raise InputError("options", "wrong")

    error = mistake(schedule)
    assert isinstance(error, InputError) and str(error) == "options: wrong"


def test_the_last_line_of_the_users_files_is_told_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the policy's module, even if its name is none of a file; of another that is neither ours nor a library's."""
    module = ModuleType("a_policy")
    module.__file__ = "<a policy>"
    monkeypatch.setitem(sys.modules, "a_policy", module)
    helper: dict[str, Any] = {}
    exec(compile("def help():\n    return 1 / 0\n", "/home/somebody/helper.py", "exec"), helper)
    exec(compile("def named(self, cluster):\n    1 / 0\n", "<a policy>", "exec"), module.__dict__)
    named, helped = module.__dict__["named"], lambda *_: helper["help"]()
    for method, where in ((named, "<a policy>:2"), (helped, "/home/somebody/helper.py:2")):
        policy = type("Mine", (Watching,), {"schedule": method, "__module__": "a_policy"})()
        with pytest.raises(DecisionError) as found:
            Stage(policy).hears(1.0)
        assert str(found.value).startswith(f"mine at {where}: ")
        assert SEE_TRACEBACK not in str(found.value)


def test_a_policy_without_a_method_or_with_another_signature_is_named() -> None:
    class Nothing(Policy):
        pass

    class Other(Policy):
        def schedule(self) -> None:  # type: ignore[override]
            pass

    for policy, kind in ((Nothing(), "NotImplementedError: Nothing must define"), (Other(), "TypeError: ")):
        for events in ([], [e.NoMoreJobs(1.0)]):
            with pytest.raises(DecisionError) as found:
                Stage(policy).hears(1.0, *events)
            said = f"mine at {type(policy).__qualname__}: decision 0 refused (the policy raised): {kind}"
            assert str(found.value).startswith(said)


def test_our_own_mistakes_are_not_blamed_on_a_policy() -> None:
    """No line of the user was reached, so the error goes on as it is."""
    for events in ([], [e.NoMoreJobs(0.0)]):
        decider = PolicyDecider(Policy())
        begins = e.Begins(nodes=(Node("h", 0),))
        decider.begin(begins, Cluster(begins, "mine"))
        with pytest.raises(TypeError):
            decider.decide(e.Batch(0.0, [e.JobSubmitted(0.0, Job("a", "one")), *events]))  # type: ignore[arg-type]
