"""The catalog of policies: how a policy is named, which options it takes, and which variant of its algorithm it is."""

import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import InputError
from pilothouse.model.job import Job, Node, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.policies.base import Policy
from pilothouse.policies.catalog import CATALOG, make, parse_options
from pilothouse.policies.variants import Variant


@pytest.mark.parametrize("name", CATALOG)
def test_every_choice_is_a_sentence(name: str) -> None:
    for field in Variant.__struct_fields__:
        assert getattr(CATALOG[name].variant, field).endswith("."), field


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        (" a = 1 , b = 2 ", {"a": "1", "b": "2"}),
        ("a=,b==c", {"a": "", "b": "=c"}),
        ("score=max(r,n),backfill=easy", {"score": "max(r,n)", "backfill": "easy"}),
        ("score=max(min(r,1),n),x=[1,2]", {"score": "max(min(r,1),n)", "x": "[1,2]"}),
    ],
)
def test_options_are_names_and_values(text: str, options: dict[str, str]) -> None:
    assert parse_options(text, "p") == options


@pytest.mark.parametrize("text", ["", "a", "=1", " =1", "a=1,", ",a=1", "a=1,,b=2", "a=1,b"])
def test_what_is_no_option_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected name=value"):
        parse_options(text, "p")


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("esay", {}, "no such policy.*did you mean easy"),
        ("easy", {"estimat": "2x"}, "no option 'estimat'; expected estimate.*did you mean estimate"),
        ("fcfs", {"seed": "1"}, "no option 'seed'; expected none"),
        ("easy", {"estimate": "3x"}, "unknown estimate; expected one of requested, 2x, clairvoyant"),
        ("saf", {"backfill": "some"}, "unknown way to backfill; expected none, fill or easy"),
        ("priority", {"backfill": "easy"}, "option 'score' is missing"),
        ("random", {"seed": "1.5"}, "not a seed; expected a whole number"),
    ],
)
def test_mistakes_are_one_line(name: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        make(name, options)


class Four:
    """Four units under a policy. Three are busy until 10; the other one is until `end_brief`."""

    def __init__(self, policy: Policy) -> None:
        begins = e.Begins((Node("n", 0, 4),))
        self.cluster = Cluster(begins, "p")
        self.decider = PolicyDecider(policy)
        self.decider.begin(begins, self.cluster)
        assert self.submit(Job("busy", 3, 10.0), Job("brief", 1, 5.0)) == ["busy", "brief"]

    def submit(self, *jobs: Job) -> list[str]:
        return self.hears(0.0, *(e.JobSubmitted(0.0, job) for job in jobs))

    def end_brief(self) -> list[str]:
        return self.hears(1.0, e.JobEnded(1.0, "brief", JobState.SUCCEEDED, 0, self.cluster.running["brief"].units))

    def hears(self, now: float, *events: e.Event) -> list[str]:
        """The jobs that start."""
        reply = self.decider.decide(e.Batch(now, list(events)))
        return [one.job_id for one in reply.decisions if isinstance(one, d.StartJob)]


@pytest.mark.parametrize(
    ("name", "options", "started"),
    [
        ("fcfs", {}, []),
        ("filler", {}, ["long"]),
        ("easy", {}, ["short"]),
        ("easy", {"estimate": "2x"}, ["long"]),
        ("easy-sjbf", {}, ["shortest"]),
        ("conservative", {}, ["short"]),
        ("saf", {}, ["shortest"]),
        ("priority", {"score": "saf"}, ["shortest"]),
        ("priority", {"score": "-r*n"}, []),
        ("priority", {"score": "-r*n", "backfill": "easy"}, ["short"]),
        ("priority", {"score": "-r*n", "backfill": "fill"}, ["long"]),
        ("qcg", {}, ["long"]),
    ],
)
def test_each_starts_what_its_rule_says(name: str, options: dict[str, str], started: list[str]) -> None:
    """One unit becomes free. The head needs all four; behind it wait jobs of one unit."""
    four = Four(make(name, options))
    jobs = [Job("head", 4, 30.0), Job("long", 1, 11.0), Job("short", 1, 9.0), Job("shortest", 1, 8.0)]
    if options.get("estimate") == "2x":
        jobs[1].walltime = 9.5
    assert four.submit(*jobs) == []
    assert four.end_brief() == started


def test_a_job_that_no_state_of_the_cluster_could_hold_is_refused() -> None:
    four = Four(make("easy", {}))
    assert four.submit(Job("all", 4, 5.0)) == []
    assert set(four.cluster.waiting) == {"all"}
    for number, job in enumerate((Job("more", 5, 5.0), Job("none", 0, 5.0), Job("nodes", 1, 5.0, shape=Shape(nodes=2)))):
        four.submit(job)
        assert set(four.cluster.waiting) == {"all"}, number
        assert four.cluster.state_of(job.id) is not None
    four.submit(Job("node", 4, 5.0, shape=Shape(nodes=1)))
    assert set(four.cluster.waiting) == {"all", "node"}
