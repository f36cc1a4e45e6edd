"""Every kind of profile on small platforms whose results can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilothouse.model.decisions import PartPlacement, Placement, Strategy
from pilothouse.model.errors import InputError, RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import (
    Delay,
    ForkJoin,
    HomogeneousTask,
    Merge,
    ParallelTask,
    Profile,
    ReceiveMessage,
    SendMessage,
    Sequence,
    Spread,
    StagingTask,
    StorageTask,
)
from pilothouse.worlds.simulated.physics.platform import Platform
from unit.worlds.simulated.lab import TWO_HOSTS, Lab, platform_of

STORAGES = """
<host id="a" speed="100f"/><host id="b" speed="100f"/>
<host id="s" speed="100f"><prop id="role" value="storage"/></host>
<host id="t" speed="100f"><prop id="role" value="storage"/></host>
<link id="l" bandwidth="10Bps" latency="0s"/><link id="m" bandwidth="100Bps" latency="0s"/>
<route src="a" dst="b"><link_ctn id="l"/></route>
<route src="a" dst="s"><link_ctn id="l"/></route><route src="b" dst="s"><link_ctn id="m"/></route>
<route src="a" dst="t"><link_ctn id="l"/></route><route src="b" dst="t"><link_ctn id="m"/></route>
<route src="s" dst="t"><link_ctn id="m"/></route>
"""


@pytest.fixture
def lab() -> Lab:
    return Lab(platform_of(TWO_HOSTS))


def test_a_task_takes_its_largest_amount_over_capacity_after_its_latency(lab: Lab) -> None:
    lab.start("j", ParallelTask((100.0, 100.0), (0.0, 50.0, 0.0, 0.0)))
    lab.run()
    assert lab.ended["j"] == (1.0 + 5.0, JobState.SUCCEEDED, 0)


def test_homogeneous_amounts(lab: Lab) -> None:
    lab.start("each", HomogeneousTask(100.0, 5.0))
    lab.run()
    assert lab.end("each") == pytest.approx(1 + 2.0)
    lab.start("total", HomogeneousTask(1000.0, 10.0, Spread.TOTAL), at=10.0)
    lab.run()
    assert lab.end("total") == pytest.approx(10 + 1 + 500 / 50)
    lab.start("uniform", HomogeneousTask(0.0, 300.0, Spread.UNIFORM), at=50.0)
    lab.run()
    assert lab.end("uniform") == pytest.approx(50 + 1 + 300 / 10)


def test_a_task_of_nothing_takes_no_time(lab: Lab) -> None:
    lab.start("j", ParallelTask((0.0, 0.0), (0.0,) * 4), at=3.0)
    lab.run()
    assert lab.ended["j"] == (3.0, JobState.SUCCEEDED, 0)


def test_two_tasks_share_a_host(lab: Lab) -> None:
    lab.start("first", HomogeneousTask(100.0, 0.0), "0")
    lab.start("second", HomogeneousTask(100.0, 0.0), "0")
    lab.run()
    assert lab.end("first") == lab.end("second") == pytest.approx(2.0)


def test_a_second_task_slows_the_first_down_from_then_on(lab: Lab) -> None:
    lab.start("first", HomogeneousTask(100.0, 0.0), "0")
    lab.start("second", HomogeneousTask(100.0, 0.0), "0", at=0.5)
    lab.run()
    assert (lab.end("first"), lab.end("second")) == (pytest.approx(1.5), pytest.approx(2.0))


def test_codes_and_walltime(lab: Lab) -> None:
    lab.start("fails", HomogeneousTask(100.0, 0.0), "0", return_code=3)
    lab.start("exact", Delay(5.0), "1", walltime=5.0)
    lab.start("late", HomogeneousTask(1000.0, 0.0), "1", walltime=4.0)
    lab.start("just", HomogeneousTask(1000.0, 0.0), "0", at=100.1, walltime=10.0)
    lab.run()
    assert lab.ended["fails"] == (1.0, JobState.FAILED, 3)
    assert lab.ended["exact"] == (5.0, JobState.TIMED_OUT, -1)
    assert lab.ended["just"] == (pytest.approx(110.1), JobState.SUCCEEDED, 0), "a task may end at its walltime"
    assert lab.ended["late"] == (4.0, JobState.TIMED_OUT, -1)


def test_a_sequence_shares_its_walltime_and_stops_at_the_first_failure(lab: Lab) -> None:
    lab.profile("five", Delay(5.0))
    lab.profile("bad", Delay(1.0), return_code=7)
    lab.start("twice", Sequence(("five",), 2), "0", walltime=10.0)
    lab.start("fits", Sequence(("five",), 2), "0", walltime=10.001)
    lab.start("stops", Sequence(("five", "bad", "five")), "0")
    lab.profile("inner", Sequence(("five", "five")))
    lab.start("nested", Sequence(("inner", "five"), 3), "0", return_code=2)
    lab.run()
    assert lab.ended["twice"] == (10.0, JobState.TIMED_OUT, -1)
    assert lab.ended["fits"] == (10.0, JobState.SUCCEEDED, 0)
    assert lab.ended["stops"] == (6.0, JobState.FAILED, 7)
    assert lab.ended["nested"] == (45.0, JobState.FAILED, 2)


def test_a_fork_joins_at_its_last_branch(lab: Lab) -> None:
    lab.profile("short", Delay(2.0))
    lab.profile("compute", HomogeneousTask(1000.0, 0.0))
    lab.start("fork", ForkJoin(("short", "compute", "compute")), "0")
    lab.run()
    assert lab.ended["fork"] == (20.0, JobState.SUCCEEDED, 0)


def test_a_fork_ends_with_its_first_failure(lab: Lab) -> None:
    lab.profile("bad", Delay(2.0), return_code=9)
    lab.profile("compute", HomogeneousTask(1000.0, 0.0))
    lab.start("fork", ForkJoin(("compute", "bad")), "0")
    lab.start("after", HomogeneousTask(100.0, 0.0), "0", at=2.0)
    lab.run()
    assert lab.ended["fork"] == (2.0, JobState.FAILED, 9)
    assert lab.end("after") == pytest.approx(3.0), "the other branch still holds the host"


def test_a_merge_adds_amounts_into_one_task(lab: Lab) -> None:
    lab.profile("compute", HomogeneousTask(100.0, 0.0))
    lab.profile("talk", ParallelTask((0.0, 0.0), (0.0, 40.0, 0.0, 0.0)))
    lab.start("merge", Merge(("compute", "talk", "compute")))
    lab.run()
    # 200 flop on b (50 flop/s): 4 s, together with 40 bytes at 10 bytes/s, after 1 s of latency.
    assert lab.end("merge") == pytest.approx(1 + 4.0)


def test_a_merge_does_not_use_more_cores_than_its_parts() -> None:
    lab = Lab(platform_of('<host id="a" speed="100f" core="4"/>'))
    lab.profile("compute", HomogeneousTask(100.0, 0.0))
    lab.start("merge", Merge(("compute", "compute")), "0")
    lab.start("fork", ForkJoin(("compute", "compute")), "0", at=10.0)
    lab.run()
    assert (lab.end("merge"), lab.end("fork")) == (pytest.approx(2.0), pytest.approx(11.0))


def test_an_io_task_runs_along_on_hosts_of_its_own(lab: Lab) -> None:
    run = lab.start("j", HomogeneousTask(100.0, 0.0), "0")
    run.io_job = Profile("io", ParallelTask((0.0, 50.0), (0.0, 40.0, 0.0, 0.0)))
    run.overrides = {"io": PartPlacement(IdSet.parse("0-1"), Placement(mapping=(0, 1)))}
    lab.run()
    assert lab.end("j") == pytest.approx(1 + 4.0), "40 bytes at 10 bytes/s, all in one task"


def test_only_tasks_can_be_merged(lab: Lab) -> None:
    lab.profile("sleep", Delay(1.0))
    lab.start("merge", Merge(("sleep",)))
    with pytest.raises(InputError, match="only parallel tasks"):
        lab.run()


def test_storage_and_staging() -> None:
    lab = Lab(platform_of(STORAGES))
    lab.start("read", StorageTask(20.0, 0.0, "s"))
    lab.run()
    assert lab.end("read") == pytest.approx(2.0)
    lab.start("write", StorageTask(0.0, 30.0, "disk"), at=10.0, storage={"disk": 2})
    lab.run()
    assert lab.end("write") == pytest.approx(13.0)
    lab.start("spread", StorageTask(40.0, 0.0, "t", Spread.UNIFORM), at=20.0)
    lab.run()
    assert lab.end("spread") == pytest.approx(22.0)
    lab.start("stage", StagingTask(500.0, "from", "to"), at=30.0, storage={"from": 2, "to": 3})
    lab.run()
    assert lab.end("stage") == pytest.approx(35.0)


def test_a_label_without_storage_is_refused() -> None:
    lab = Lab(platform_of(STORAGES))
    lab.start("j", StorageTask(20.0, 0.0, "nowhere"))
    with pytest.raises(InputError, match="'nowhere' is not placed"):
        lab.run()
    lab = Lab(platform_of(STORAGES))
    lab.start("j", StorageTask(20.0, 0.0, "s"), storage={"s": 0})
    with pytest.raises(InputError, match="which is no storage"):
        lab.run()


def test_placements() -> None:
    cores = '<host id="a" speed="100f" core="2"/><host id="b" speed="100f" core="2"/>'
    route = '<link id="l" bandwidth="1GBps" latency="0s"/><route src="a" dst="b"><link_ctn id="l"/></route>'
    lab = Lab(platform_of(cores + route))
    work = HomogeneousTask(100.0, 0.0)
    lab.start("mapped", work, placement=Placement(mapping=(0, 0, 0, 1)))
    lab.run()
    assert lab.end("mapped") == pytest.approx(1.5), "three executors on two cores"
    fill = lab.start("fill", work, at=10.0, placement=Placement(Strategy.FILL))
    assert lab.physics.executors(fill, lab.profiles["fill"]) == [0, 0]
    spread = lab.start("spread", work, at=20.0, placement=Placement(Strategy.SPREAD))
    assert lab.physics.executors(spread, lab.profiles["spread"]) == [0, 1]
    lab.profile("part", work)
    lab.start(
        "over",
        Sequence(("part",)),
        at=30.0,
        overrides={"part": PartPlacement(IdSet.parse("1"), Placement(mapping=(0,) * 4))},
    )
    lab.run()
    assert lab.end("over") == pytest.approx(32.0)


def test_a_matrix_for_other_hosts_is_refused(lab: Lab) -> None:
    lab.start("j", ParallelTask((1.0, 1.0, 1.0), ()))
    with pytest.raises(RunError, match="3 executors, but 2 were placed"):
        lab.run()


def test_hosts_of_one_zone_without_a_route_talk_for_nothing_and_those_of_two_are_refused() -> None:
    beside = Lab(platform_of('<host id="a" speed="1f"/><host id="b" speed="1f"/>'))
    beside.start("j", HomogeneousTask(3.0, 1e9))
    beside.run()
    assert beside.end("j") == pytest.approx(3.0)
    zone = '<zone id="{0}z" routing="Full"><host id="{0}" speed="1f"/></zone>'
    apart = Lab(platform_of(zone.format("a") + zone.format("b")))
    apart.start("j", HomogeneousTask(1.0, 1.0))
    with pytest.raises(InputError, match="no route from host a to host b"):
        apart.run()


def test_progress_of_killed_jobs(lab: Lab) -> None:
    lab.profile("compute", HomogeneousTask(1000.0, 0.0))
    lab.profile("sleep", Delay(4.0))
    delay = lab.start("delay", Delay(8.0), "0")
    task = lab.start("task", HomogeneousTask(100.0, 0.0), "1")
    sequence = lab.start("sequence", Sequence(("sleep", "compute"), 2), "0")
    told = [lab.kill(run, 1.0) for run in (delay, task)]
    late = lab.kill(sequence, 9.0)
    lab.run()
    assert lab.ended == {}
    assert told[0][0].done == pytest.approx(1 / 8)
    assert told[1][0].done == pytest.approx(1 / 2)
    assert (delay.kill_code, task.kill_code, sequence.kill_code) == (-1, -2, -2)
    assert (late[0].repetition, late[0].index, late[0].parts[0].profile) == (0, 1, "compute")
    assert late[0].parts[0].done == pytest.approx(0.5)


def test_a_killed_task_frees_its_share(lab: Lab) -> None:
    run = lab.start("killed", HomogeneousTask(1000.0, 0.0), "0")
    lab.start("other", HomogeneousTask(100.0, 0.0), "0")
    lab.kill(run, 1.0)
    lab.run()
    assert lab.end("other") == pytest.approx(1.5)


def test_messages_between_job_and_decider() -> None:
    heard: list[bytes] = []

    def tells(run: object, message: msgspec.Raw, done: object) -> None:
        heard.append(bytes(message))
        done()  # type: ignore[operator]

    lab = Lab(platform_of(TWO_HOSTS), tells=tells)
    lab.profile("say", SendMessage(msgspec.Raw(b'{"x":1}'), 0.5))
    lab.profile("yes", Delay(3.0))
    lab.profile("no", Delay(7.0))
    lab.profile("hear", ReceiveMessage("go.*", "yes", "no", poll_seconds=1.0))
    run = lab.start("j", Sequence(("say", "hear")), "0")
    other = lab.start("k", Sequence(("hear",)), "0")
    lab.start("patient", ReceiveMessage(".*", "yes", "no", poll_seconds=1.0), "0", walltime=4.5)
    lab.start("impatient", ReceiveMessage(".*", "yes", "no", "yes"), "0")
    lab.agenda.at(1.0, lambda _: run.messages.append("gone"))
    lab.agenda.at(1.0, lambda _: other.messages.append("stop"))
    lab.run()
    assert heard == [b'{"x":1}']
    assert lab.end("j") == pytest.approx(0.5 + 1.0 + 3.0)
    assert lab.end("k") == pytest.approx(1.0 + 7.0) or lab.end("k") == pytest.approx(2.0 + 7.0)
    assert lab.ended["patient"] == (4.5, JobState.TIMED_OUT, -1)
    assert lab.end("impatient") == pytest.approx(3.0)


def test_fast_and_slow_way_over_several_clusters() -> None:
    """Hosts in four clusters (graphene), and in a star that is entered through one of its hosts."""
    entered_by_a_host = """
    <cluster id="c" prefix="c" suffix="" radical="0-3" speed="1Gf" bw="125MBps" lat="50us" bb_bw="2GBps" bb_lat="1us"/>
    <cluster id="d" prefix="d" suffix="" radical="0-3" speed="1Gf" bw="125MBps" lat="70us" sharing_policy="SHARED"/>
    <link id="l" bandwidth="1GBps" latency="1ms"/>
    <zoneRoute src="c" dst="d" gw_src="cc_router" gw_dst="{}"><link_ctn id="l"/></zoneRoute>
    """
    graphene = Path(__file__).parents[4] / "golden/physics/inputs/graphs/graphene.xml"
    for platform, hosts in (
        (Platform.load(graphene), [0, 1, 5, 40, 41, 80, 100, 120, 143]),
        (platform_of(entered_by_a_host.format("dd_router")), [0, 1, 4, 5, 7]),
        (platform_of(entered_by_a_host.format("d1")), [0, 1, 4, 5, 7]),
    ):
        demands = Lab(platform).physics.demands
        fast = demands.homogeneous(hosts, 5e9, 1e6, lambda flow: None)
        count = len(hosts)
        matrix = [0.0 if i == j else 1e6 for i in range(count) for j in range(count)]
        slow = demands.task(hosts, [5e9] * count, matrix, lambda flow: None)
        assert fast.uses.keys() == slow.uses.keys()
        for constraint, use in slow.uses.items():
            assert fast.uses[constraint] == pytest.approx(use), constraint
        assert (fast.bound, fast.latency) == (pytest.approx(slow.bound), pytest.approx(slow.latency))


def test_fast_and_slow_way_to_the_same_flow() -> None:
    """A homogeneous task on a cluster takes a shortcut; the matrix gives the same constraints."""
    body = (
        '<cluster id="c" prefix="h" suffix="" radical="0-5" speed="1Gf" bw="125MBps" lat="50us" bb_bw="2GBps" '
        'bb_lat="500us" limiter_link="200MBps" sharing_policy="{}"/>'
    )
    for policy in ("SPLITDUPLEX", "SHARED", "FATPIPE"):
        lab = Lab(platform_of(body.format(policy)))
        hosts = [0, 2, 3, 5]
        demands = lab.physics.demands
        fast = demands.homogeneous(hosts, 5e9, 1e6, lambda flow: None)
        matrix = [0.0 if i == j else 1e6 for i in range(4) for j in range(4)]
        slow = demands.task(hosts, [5e9] * 4, matrix, lambda flow: None)
        assert fast.uses == slow.uses
        assert (fast.bound, fast.latency) == (pytest.approx(slow.bound), pytest.approx(slow.latency))
