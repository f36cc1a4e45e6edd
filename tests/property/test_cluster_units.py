"""The Cluster keeps the free units by small steps. After any history they are those that exist, are on, and no job holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pilothouse.core.cluster import Cluster
from pilothouse.model import events as e
from pilothouse.model.decisions import StartJob
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState

SIZES = (7, 40, 1, 64, 30)
NODES = tuple(Node(f"n{index}", sum(SIZES[:index]), size) for index, size in enumerate(SIZES))
UNITS = sum(SIZES)
STEPS = st.tuples(
    st.sampled_from(["start", "start", "lowest", "on these", "end", "end", "freed", "off", "on", "leave", "join"]),
    st.integers(0, UNITS - 1),
    st.integers(1, 50),
)


@given(st.booleans(), st.integers(0, 2**UNITS - 1), st.lists(STEPS, max_size=60))
def test_free_and_busy_units_after_any_history(sharing: bool, off: int, steps: list[tuple[str, int, int]]) -> None:
    ran = e.Running(Job("before", 3), IdSet.span(5, 3), 0.0)
    cluster = Cluster(e.Begins(nodes=NODES, running=(ran,), unavailable=IdSet(off), compute_sharing=sharing), "tester")
    for number, step in enumerate(steps):
        take_step(cluster, number, *step)
        busy = 0
        for run in cluster.running.values():
            busy |= run.units.mask
        assert cluster.busy_mask == busy
        assert cluster.free_mask == cluster.all_mask & ~cluster.off_mask & ~busy
        assert (cluster.free, cluster.free_units) == (cluster.free_mask.bit_count(), IdSet(cluster.free_mask))
        assert cluster.units == IdSet(sum(node.mask for node in cluster.nodes.values()))


def take_step(cluster: Cluster, number: int, what: str, first: int, count: int) -> None:
    span = IdSet.span(first, min(count, UNITS - first))
    node = NODES[first % len(NODES)]
    running = list(cluster.running.values())
    if what in ("start", "lowest", "on these"):
        job = Job(f"j{number}", count)
        cluster.observe(e.JobSubmitted(0.0, job))
        usable = cluster.all_mask & ~cluster.off_mask if cluster.sharing else cluster.free_mask
        if what != "on these":
            expected = IdSet(cluster.free_mask).lowest(count)
            answer = cluster.start(job, lowest=what == "lowest")
            assert bool(answer) == (job.id in cluster.running) == (len(expected) == count)
            assert what == "start" or not answer or cluster.running[job.id].units == expected
        elif usable:
            cluster.count_rule = None
            cluster.book(StartJob(0.0, job.id, IdSet(usable).lowest(count)))
    elif what == "end" and running:
        run = running[first % len(running)]
        cluster.observe(e.JobEnded(0.0, run.job.id, JobState.SUCCEEDED, 0, run.units))
    elif what == "freed" and running:
        run = running[first % len(running)]
        cluster.observe(e.UnitsFreed(0.0, run.job.id, run.units.lowest(count // 5)))
    elif what == "off":
        cluster.observe(e.UnitsUnavailable(0.0, span))
    elif what == "on":
        cluster.observe(e.UnitsAvailable(0.0, span))
    elif what == "leave" and node.name in cluster.nodes:
        cluster.observe(e.NodesLeft(0.0, (node.name,), IdSet(node.mask)))
    elif what == "join" and node.name not in cluster.nodes:
        cluster.observe(e.NodesJoined(0.0, (node,)))
