"""Orders on nodes that jobs share by CPUs: what is sent, what is put back, and what Slurm gave in the end."""

from __future__ import annotations

from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.worlds.slurm.book import Pair
from pilothouse.worlds.slurm.inventory import Inventory
from pilothouse.worlds.slurm.look import JobRow, Look
from pilothouse.worlds.slurm.records import Part
from pilothouse.worlds.slurm.requests import Requests
from pilothouse.worlds.slurm.steering import Steering
from pilothouse.worlds.slurm.tracked import Belief
from unit.worlds.slurm.test_requests import NODES, recorded, row

GIVEN = " Nodes=n2 CPU_IDs=0-1 Mem=0 GRES= Nodes=n5 CPU_IDs=0-1 Mem=0 GRES= "


def steering(options: str, *others: JobRow) -> Steering:
    """One job waits. `others`: jobs that hold nodes."""
    inventory = Inventory("go", by_cpu=True)
    made = Steering(Pair(), inventory, Requests(inventory))
    look = Look(1.0, [row(), *others], NODES)
    made.begin(1.0, look, {"1": recorded()[options]})
    made.observe(1.0, look)
    assert made.jobs["1"].belief is Belief.WAITING
    return made


def order(made: Steering, *nodes: tuple[str, int]) -> str:
    """Starts the job on so many CPUs of nodes; the command."""
    mask = 0
    for name, count in nodes:
        mask |= ((1 << count) - 1) << made.inventory.nodes[name].first
    made.take_events()
    made.order(2.0, made.jobs["1"], IdSet(mask))
    (command,) = made.take_commands()
    made.answered(2.0, command.number, "")
    return command.line.partition(" admincomment")[0]


def take_back(made: Steering) -> str:
    ordered = row(partitions=("go",), wanted_nodes=made.jobs["1"].node_names, reason="BadConstraints")
    made.observe(5.0, Look(5.0, [ordered], None))
    (command,) = made.take_commands()
    return command.line


def test_the_request_stays_as_it_was_submitted() -> None:
    """The least number of CPUs of a node was rounded down and sent: Slurm gave 4 CPUs for 5 tasks."""
    made = steering("-N2 -n5")
    assert order(made, ("n2", 3), ("n5", 2)) == "update jobid=1 partition=go reqnodelist=n5,n2"
    assert take_back(made) == "update jobid=1 partition=queue reqnodelist="


def test_numbers_that_an_order_fixes_are_put_back() -> None:
    made = steering("-n10 --mem-per-cpu=100")
    assert order(made, ("n2", 4), ("n3", 6)) == "update jobid=1 partition=go reqnodelist=n2,n3 numnodes=2-2"
    assert take_back(made) == "update jobid=1 partition=queue reqnodelist= numnodes=1-5"


def test_slurm_is_told_how_to_spread_tasks_of_several_cpus() -> None:
    made = steering("-n4 -c3")
    line = "update jobid=1 partition=go reqnodelist=n4,n3 numnodes=2-2 mincpusnode=6"
    assert order(made, ("n3", 6), ("n4", 6)) == line
    assert take_back(made).endswith(" numnodes=1-5 mincpusnode=3")


def test_an_uneven_spread_of_such_tasks_is_not_ordered() -> None:
    made = steering("-n4 -c3")
    made.take_events()
    made.order(2.0, made.jobs["1"], IdSet(made.inventory.nodes["n3"].mask | made.inventory.nodes["n2"].mask))
    assert not made.take_commands() and made.jobs["1"].belief is Belief.HELD and made.jobs["1"].evenly


def test_jobs_that_overcommit_keep_their_number_of_cpus() -> None:
    """Slurm counts a CPU for each task again when the number of nodes is set."""
    assert order(steering("-n12 -O -N1"), ("n5", 1)) == "update jobid=1 partition=go reqnodelist=n5"


def test_what_slurm_gave_is_booked_and_held_against_the_request() -> None:
    made = steering("-N2 -n5")
    order(made, ("n2", 3), ("n5", 2))
    made.take_events()
    runs = row(partitions=("go",), state="RUNNING", node_names=("n2", "n5"), cpus=4, nodes=2)
    made.observe(4.0, Look(4.0, [runs], None))
    (asked,) = made.take_commands()
    assert asked.line == "show job 1"
    made.answered(4.1, asked.number, "", recorded()["-N2 -n5"].replace(" MinCPUsNode", GIVEN + "MinCPUsNode"))
    assert made.warnings == ["job 1 asked for 5 CPUs on 2 or more nodes, and Slurm gave it 4 CPUs on 2 nodes"]
    (holds,) = [event for event in made.take_events() if isinstance(event, e.JobHolds)]
    assert {name: (holds.units.mask & made.inventory.nodes[name].mask).bit_count() for name in ("n2", "n5")} == {"n2": 2, "n5": 2}


def test_what_other_partitions_hold_is_known_before_the_first_offer() -> None:
    foreign = row(id="9", partitions=("main",), state="RUNNING", node_names=("n4",), cpus=16)
    made = steering("-n10 --mem-per-cpu=100", foreign)
    assert not made.inventory.shortage({"n3": Part(8)}) and made.inventory.shortage({"n4": Part(1)})
    assert made.jobs["9"].belief is Belief.FOREIGN and len(made.jobs["9"].units) == 16
