"""The state machine of the Slurm world, one situation at a time, on a virtual slurmctld."""

from __future__ import annotations

import pytest
from tests.simtest.virtual_slurm import START, VirtualJob, VirtualSlurm

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.formats.slurm_resources import Reservation
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.decisions import Wants
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.policies.catalog import make
from pilothouse.worlds.slurm import commands
from pilothouse.worlds.slurm.book import Pair
from pilothouse.worlds.slurm.steering import Steering
from pilothouse.worlds.slurm.tracked import ACTIONS, Belief, Seen
from pilothouse.worlds.slurm.world import SlurmWorld, pair_of, slurm_world
from unit.worlds.test_simulated_world import Script


def job(number: int, nodes: int = 1, run_s: float = 2.0, **more: object) -> VirtualJob:
    return VirtualJob(str(number), nodes, run_s, 60.0, 1000 - number, START, **more)  # type: ignore[arg-type]


def steer(slurm: VirtualSlurm, policy: str = "easy", patience_s: float = 10.0) -> SlurmWorld:
    world = SlurmWorld(Pair(), slurm=slurm, once=True, patience_s=patience_s)
    Session(world, PolicyDecider(make(policy, {}))).run()
    assert not slurm.wrongs
    return world


def test_the_table_is_total_and_its_actions_exist() -> None:
    assert set(ACTIONS) == {(belief, seen) for belief in Belief for seen in Seen}
    assert all(callable(getattr(Steering, "do_" + action)) for action in ACTIONS.values())


def test_jobs_start_in_order_of_submission() -> None:
    slurm = VirtualSlurm(4)
    for number in range(1, 9):
        slurm.submit(job(number, 3))
    steer(slurm, "fcfs")
    assert slurm.starts == [str(number) for number in range(1, 9)]


def test_a_requeued_job_keeps_its_place_and_its_first_date() -> None:
    slurm = VirtualSlurm(2)
    for number in range(1, 5):
        slurm.submit(job(number, 2, 5.0))
    first = slurm.jobs["1"].submitted_at
    slurm.at(START + 3.0, lambda: slurm.requeue("1"))
    steer(slurm, "fcfs")
    assert slurm.starts == ["1", "1", "2", "3", "4"]
    mark = commands.read_mark(slurm.jobs["1"].note)
    assert mark is not None and abs(mark.submitted_at - first) < 1 and slurm.jobs["1"].submitted_at > first + 2


def test_a_job_that_is_held_after_its_order_is_taken_back() -> None:
    slurm = VirtualSlurm(2)
    slurm.submit(job(1, 2))

    def hold() -> None:
        slurm.jobs["1"].held = True
        slurm.submit(job(2, 2))

    slurm.at(START + 0.1, hold)
    slurm.at(START + 20.0, lambda: setattr(slurm.jobs["1"], "held", False))
    steer(slurm)
    assert slurm.starts == ["2", "1"]


def test_an_order_to_a_drained_node_is_given_to_another() -> None:
    slurm = VirtualSlurm(3)
    slurm.submit(job(1))
    slurm.at(START + 0.1, lambda: slurm.down.add("n1"))
    steer(slurm)
    assert slurm.jobs["1"].state == "COMPLETED" and slurm.orders == 2


def test_orders_that_slurm_does_not_take_up_are_taken_back_and_tried_less_and_less_often() -> None:
    slurm = VirtualSlurm(2)
    slurm.submit(job(1, 2))
    slurm.jobs["1"].begins_at = None
    refused: list[float] = []
    ready = slurm._ready

    def never(waiting: VirtualJob) -> bool:
        if waiting.id == "1" and slurm.t < START + 200:
            refused.append(slurm.t)
            return False
        return ready(waiting)

    slurm._ready = never  # type: ignore[method-assign]
    slurm.at(START + 1.0, lambda: slurm.submit(job(2, 1)))
    steer(slurm, patience_s=5.0)
    assert slurm.starts[0] == "2" and slurm.starts[-1] == "1"
    assert 4 <= slurm.orders <= 9


def test_a_job_that_starts_on_other_nodes_than_ordered_is_left_there() -> None:
    slurm = VirtualSlurm(2)
    slurm.submit(job(1, 1, 30.0))
    slurm.at(START + 0.5, lambda: setattr(slurm.jobs["1"], "wanted", ("n2",)))
    slurm.at(START + 3.0, lambda: slurm.submit(job(2, 1, 2.0)))
    slurm.at(START + 3.0, lambda: slurm.submit(job(3, 1, 2.0)))
    steer(slurm, patience_s=5.0)
    assert slurm.orders == 3 and slurm.starts == ["1", "2", "3"]
    assert slurm.began["3"] < START + 20


def test_nodes_of_jobs_of_other_partitions_are_left_alone() -> None:
    slurm = VirtualSlurm(3)
    slurm.run_elsewhere(job(90, 2, 30.0))
    slurm.submit(job(1, 2))
    slurm.submit(job(2, 1, 1.0))
    steer(slurm)
    assert slurm.starts == ["90", "2", "1"]


def test_no_order_names_a_node_that_another_partition_holds() -> None:
    """Not at the beginning, and not when its job starts together with the end of one of ours."""
    slurm = VirtualSlurm(3)
    slurm.run_elsewhere(job(90, 2, 12.0))
    slurm.submit(job(1, 1, 4.5))
    slurm.submit(job(2, 3, 1.0))
    slurm.at(START + 6.0, lambda: slurm.run_elsewhere(job(91, 1, 3.0)))
    for number in (3, 4):
        slurm.submit(job(number, 1, 1.0))
    steer(slurm, "fcfs")
    assert slurm.orders == 4 and slurm.starts == ["90", "1", "91", "2", "3", "4"]


def test_an_order_that_another_partition_made_impossible_is_taken_back_at_once() -> None:
    slurm = VirtualSlurm(2)
    slurm.submit(job(1, 2))
    slurm.at(START + 0.1, lambda: slurm.run_elsewhere(VirtualJob("90", 1, 5.0, 300.0, 1, START)))
    slurm.at(START + 0.5, lambda: slurm.submit(job(2, 1, 1.0)))
    steer(slurm, "easy", patience_s=60.0)
    assert slurm.starts == ["90", "2", "1"] and slurm.began["2"] < START + 3.0


def test_a_command_is_repeated_while_slurm_looks_at_the_job() -> None:
    slurm = VirtualSlurm(2)
    slurm.submit(job(1, 2))
    slurm.busy_answers = 3
    world = steer(slurm)
    assert slurm.began["1"] < START + 3.0 and not world.steering.warnings


def test_an_array_runs_no_more_elements_than_it_may() -> None:
    slurm = VirtualSlurm(4)
    for element in range(1, 5):
        slurm.submit(VirtualJob(f"7_{element}", 1, 3.0, 60.0, 1000 - element, START, most_elements=2))
    steer(slurm)
    assert slurm.orders == 4
    assert slurm.began["7_2"] < START + 3.0 < slurm.began["7_3"]


def test_a_job_waits_for_the_end_of_a_reservation_of_its_nodes() -> None:
    slurm = VirtualSlurm(2)
    slurm.reservations = [Reservation("week", START - 10.0, START + 100.0, frozenset(("n1", "n2")))]
    slurm.submit(job(1, 2))
    world = SlurmWorld(Pair(), slurm=slurm, once=True)
    world.begin(Wants())
    assert "are reserved" in world.steering.jobs["1"].note and world.steering.jobs["1"].belief is Belief.HELD
    slurm.at(START + 100.0, slurm.reservations.clear)
    slurm.restart()
    steer(slurm)
    assert slurm.began["1"] > START + 100.0 and slurm.orders == 1


def test_named_nodes_are_honoured_and_put_back() -> None:
    slurm = VirtualSlurm(4)
    slurm.submit(job(1, 2, wanted=("n3", "n4")))
    slurm.submit(job(2, 2))
    slurm.at(START + 2.5, lambda: slurm.requeue("1"))
    steer(slurm)
    assert all(one.state == "COMPLETED" for one in slurm.jobs.values())


def test_a_job_that_waits_for_another_is_not_told_before() -> None:
    slurm = VirtualSlurm(4)
    slurm.submit(job(1, 1, 10.0))
    slurm.submit(job(2, 1, after="1"))
    slurm.submit(job(3, 1, begins_at=START + 5.0))
    world = steer(slurm)
    assert slurm.starts == ["1", "3", "2"] and not world.steering.jobs


def test_a_kill_of_a_running_and_an_ended_job_is_confirmed_once() -> None:
    """Job 1 ends after a second; then it and job 2 are killed."""
    slurm = VirtualSlurm(2)
    slurm.submit(job(1, 1, 1.0))
    slurm.submit(job(2, 1, 500.0))

    def answer(script: Script, batch: e.Batch) -> list[d.Decision]:
        made: list[d.Decision] = [d.StartJob(batch.now, one.id, IdSet.of([int(one.id) - 1])) for one in script.cluster.queue]
        ended = [event.job_id for event in batch.events if isinstance(event, e.JobEnded)]
        return [*made, d.KillJobs(batch.now, ("1", "2"))] if ended == ["1"] else made

    script = Script(answer)
    Session(SlurmWorld(Pair(), slurm=slurm, once=True), script).run()
    kinds = [type(event).__name__ for _, event in script.told]
    assert [kind for kind in kinds if kind in ("JobEnded", "JobsKilled")] == ["JobEnded", "JobEnded", "JobsKilled"]
    ((_, killed),) = script.of(e.JobsKilled)
    assert isinstance(killed, e.JobsKilled) and killed.job_ids == ("1", "2")
    assert slurm.jobs["2"].state == "CANCELLED"


def test_a_slurmctld_that_is_away_is_waited_for() -> None:
    slurm = VirtualSlurm(2)
    slurm.submit(job(1))
    slurm.away_until = START + 20.0
    steer(slurm)
    assert slurm.jobs["1"].state == "COMPLETED"


def test_what_cannot_be_steered_says_so() -> None:
    slurm = VirtualSlurm(4)
    slurm.submit(VirtualJob("1+0", 1, 2.0, 60.0, 1000, START))
    world = SlurmWorld(Pair(), slurm=slurm)
    world.begin(Wants())
    assert "left to Slurm" in world.steering.jobs["1+0"].note


def test_a_user_may_name_a_part_of_the_nodes() -> None:
    slurm = VirtualSlurm(4)
    slurm.submit(job(1, 2, wanted=("n3",)))
    steer(slurm)
    assert slurm.starts == ["1"]


@pytest.mark.parametrize("text", ["queue", "a:b:c", ":go", "same:same"])
def test_pairs_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="pair of partitions"):
        pair_of(text)


def test_options() -> None:
    with pytest.raises(InputError, match="unknown option 'onc'"):
        slurm_world("", {"onc": "1"})
    with pytest.raises(InputError, match="fail=open"):
        slurm_world("", {"fail": "maybe"})


def test_marks() -> None:
    for mark in (
        commands.Mark(1_800_000_000.0, ("n1", "n2")),
        commands.Mark(1_800_000_000.0, (), "2-4", "3", "the site's own text"),
    ):
        assert commands.read_mark(mark.text + " waits: for long") == mark
    for other in ("", "steered", "pilothouse/never/n1", "pilothouse/2026"):
        assert commands.read_mark(other) is None
