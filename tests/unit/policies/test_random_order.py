"""The policy `random`: the shuffle of Python's Random over the jobs that fit."""

from random import Random

from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.model import events as e
from pilothouse.model.decisions import StartJob
from pilothouse.model.job import Job, Node
from pilothouse.policies.random_order import RandomOrder


def order(policy: RandomOrder) -> list[str]:
    begins = e.Begins((Node("n", 0, 50),))
    decider = PolicyDecider(policy)
    decider.begin(begins, Cluster(begins, "random"))
    jobs = [Job(str(number), 51 if number == 7 else 1) for number in range(51)]
    batch = e.Batch(0.0, [e.JobSubmitted(0.0, job) for job in jobs])
    return [decision.job_id for decision in decider.decide(batch).decisions if isinstance(decision, StartJob)]


def test_jobs_that_fit_are_shuffled_by_a_seed_that_is_0_unless_another_is_given() -> None:
    expected = [str(number) for number in range(51) if number != 7]
    Random(0).shuffle(expected)
    assert order(RandomOrder()) == order(RandomOrder(0)) == expected
    assert order(RandomOrder(1)) != expected
