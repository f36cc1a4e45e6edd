"""Jobs submitted while a run goes on: dependencies, cancelling, several nodes, and the pool on top of it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import as_completed
from pathlib import Path

import pytest

from e2e.live_runs import rows, until
from pilothouse.core.cluster import Cluster
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.formats.task_file import NO_REPEAT, LineKind, TaskLine
from pilothouse.journal.store import Journal
from pilothouse.model.errors import InputError
from pilothouse.model.events import Batch
from pilothouse.model.job import Command, Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.policies.base import Policy
from pilothouse.policies.catalog import make
from pilothouse.pool import Pool
from pilothouse.worlds.live.contexts.local import LocalContext
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import Record, TaskEnded
from pilothouse.worlds.live.wire.sockets import DriverSocket
from pilothouse.worlds.live.world import LiveWorld


def run_jobs(
    folder: Path, jobs: list[Job], *, contexts: int = 1, slots: int = 2,
    each_end: Callable[[LiveWorld, TaskEnded], None] | None = None,
) -> dict[str, TaskEnded]:  # fmt: skip
    """Runs all of them under first come, first served; the end of each by its id."""
    names = [f"local{number}" for number in range(contexts)]
    world = LiveWorld(
        LiveOptions(grace_s=0.5), folder=folder, recorder=Journal(folder),
        contexts=[LocalContext(slots, name=name) for name in names],
    )  # fmt: skip
    ends: dict[str, TaskEnded] = {}

    def note(end: TaskEnded) -> None:
        ends[end.job_id] = end
        if each_end is not None:
            each_end(world, end)

    world.on_task.append(note)
    for job in jobs:
        world.submit(job)
    world.no_more()
    Session(world, PolicyDecider(make("fcfs", {}))).run()
    return ends


def job(job_id: str, line: str, **more: object) -> Job:
    return Job(job_id, command=Command(line=line), **{"units": 1, **more})  # type: ignore[arg-type]


def test_dependencies_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ends = run_jobs(
        tmp_path,
        [
            job("c", f"echo c >> {log}", after=("a", "b")),
            job("a", f"sleep 0.2; echo a >> {log}"),
            job("b", f"echo b >> {log}; exit 0"),
            job("bad", "exit 4"),
            job("never", f"echo never >> {log}", after=("bad",)),
            job("nor this", f"echo nor >> {log}", after=("never",)),
        ],
    )
    assert log.read_text().split() == ["b", "a", "c"]
    assert ends["bad"].state is JobState.FAILED and ends["bad"].return_code == 4
    assert ends["never"].state is ends["nor this"].state is JobState.OMITTED


def test_cancel_waiting_and_running(tmp_path: Path) -> None:
    def cancel(world: LiveWorld, end: TaskEnded) -> None:
        if end.job_id == "first":
            assert world.cancel("runs")
            assert world.cancel("waits")
            assert not world.cancel("first")

    jobs = [job("runs", "sleep 100"), job("first", "true"), job("waits", "sleep 100", units=2)]
    ends = run_jobs(tmp_path, jobs, each_end=cancel)
    assert ends["runs"].state is ends["waits"].state is JobState.KILLED


class WatchedJournal(Journal):
    """Notes how records were written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.durable: list[bool] = []

    def write(self, records: list[Record], *, durable: bool = True) -> None:
        super().write(records, durable=durable)
        self.durable.append(durable)


def test_engines_are_told_nothing_before_all_records_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What engines report from the middle of a bundle need not wait for the disk: nothing is answered to it at once."""
    journal = WatchedJournal(tmp_path)
    lines = (TaskLine(number, number + 1, NO_REPEAT, "sleep 0.01", LineKind.TASK, 0) for number in range(160))
    world = LiveWorld(
        LiveOptions(), folder=tmp_path, recorder=journal, contexts=[LocalContext(2)], feeder=Feeder(lines), total=160
    )
    sent: list[bool] = []

    def send(peer: bytes, message: bytes) -> None:
        sent.append(journal.durable[-1])
        DriverSocket.send(world._wire, peer, message)

    monkeypatch.setattr(world._wire, "send", send)
    world.no_more()
    Session(world, PolicyDecider(make("fcfs", {}))).run()
    assert all(sent) and not all(journal.durable)
    assert rows(tmp_path, "SELECT count(*), sum(state = 'succeeded') FROM ends") == [(160, 160)]


class KillAtOnce(Policy):
    """Starts everything, and in the same breath ends it."""

    def schedule(self, cluster: Cluster) -> None:
        for waiting in cluster.queue:
            if cluster.start(waiting):
                cluster.kill(waiting)


def test_a_kill_right_after_the_start(tmp_path: Path) -> None:
    """Both reach the engine in one message, and the cylinder with one read: neither may get lost."""
    world = LiveWorld(LiveOptions(), folder=tmp_path, recorder=Journal(tmp_path), contexts=[LocalContext(2)])
    ends: dict[str, TaskEnded] = {}
    world.on_task.append(lambda end: ends.__setitem__(end.job_id, end))
    for number in range(6):
        world.submit(job(f"j{number}", "sleep 100"))
    world.no_more()
    Session(world, PolicyDecider(KillAtOnce())).run()
    assert {name: end.state for name, end in ends.items()} == {f"j{number}": JobState.KILLED for number in range(6)}


def test_a_job_over_several_nodes(tmp_path: Path) -> None:
    shape = Shape(nodes=2, most_nodes=2)
    ends = run_jobs(
        tmp_path, [job("wide", "echo $PILOTHOUSE_NODES", units=2, shape=shape), job("next", "true")], contexts=2
    )
    host = os.uname().nodename
    assert ends["wide"].out_snippet.decode().strip() == f"{host}:2,{host}#2:2"
    assert ends["next"].state is JobState.SUCCEEDED


def test_what_can_never_run_is_refused(tmp_path: Path) -> None:
    ends = run_jobs(tmp_path, [job("huge", "true", units=99), job("fine", "true")])
    assert ends["huge"].state is JobState.REFUSED
    assert "99" in ends["huge"].reason
    assert ends["fine"].state is JobState.SUCCEEDED


def test_words_and_surroundings(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("text")
    command = Command(
        argv=("sh", "-c", 'cat; echo "$1 $OWN $(pwd)"', "sh", "a b"), env={"OWN": "o"}, cwd=str(tmp_path), stdin="in",
        stdout="out",
    )  # fmt: skip
    ends = run_jobs(tmp_path, [Job("w", 1, command=command), Job("none", 1, command=Command(argv=("no-such-thing",)))])
    assert (tmp_path / "out").read_text() == f"texta b o {tmp_path}\n"
    assert ends["none"].return_code == 127
    assert "no such program" in ends["none"].reason


def test_session_turns_see_every_end(tmp_path: Path) -> None:
    batches: list[Batch] = []
    world = LiveWorld(LiveOptions(), folder=tmp_path, recorder=Journal(tmp_path), contexts=[LocalContext(2)])
    for number in range(5):
        world.submit(job(f"j{number}", "true"))
    world.no_more()
    Session(world, PolicyDecider(make("easy", {}))).run(batches.append)
    kinds = [type(event).__name__ for batch in batches for event in batch.events]
    assert kinds[0] == "Began" and kinds[-1] == "Ended"
    assert kinds.count("JobSubmitted") == kinds.count("JobEnded") == 5
    assert [batch.now for batch in batches] == sorted(batch.now for batch in batches)


class LastFirst(Policy):
    def schedule(self, cluster: Cluster) -> None:
        for waiting in reversed(list(cluster.queue)):
            if not cluster.start(waiting):
                break


def test_pool_with_a_policy_of_your_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Pool(1, policy=LastFirst(), options=LiveOptions(bundle=1)) as pool:
        gate = pool.submit(f"touch {tmp_path}/began; until [ -e {tmp_path}/go ]; do sleep 0.01; done")
        until((tmp_path / "began").exists, "the gate began")
        futures = [pool.submit(f"echo {number} >> {log}") for number in range(3)]
        until(lambda: len(rows(pool.folder, "SELECT 1 FROM jobs")) == 4, "all were submitted")
        (tmp_path / "go").touch()
        assert all(future.result() for future in [gate, *futures])
    assert log.read_text().split() == ["2", "1", "0"]


def test_pool_with_a_policy_by_its_name(tmp_path: Path) -> None:
    """Names are those of the command line, so that what was tried there is used as it is."""
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\n"
        "from pilothouse import Cluster, Policy\n"
        "class Mine(Policy):\n"
        "    def schedule(self, cluster: Cluster) -> None:\n"
        f"        Path({str(tmp_path / 'asked')!r}).touch()\n"
        "        for job in cluster.queue:\n"
        "            cluster.start(job)\n"
    )
    with Pool(1, policy=f"{tmp_path}/mine.py:Mine") as pool:
        assert pool.submit("true").result()
    assert (tmp_path / "asked").exists()
    with pytest.raises(InputError, match="no class 'Yours'"):
        Pool(1, policy=f"{tmp_path}/mine.py:Yours")


def test_pool() -> None:
    with Pool(2) as pool:
        square = pool.submit(pow, 7, 2)
        line = pool.submit("echo $((6 * 7)); exit 5")
        words = pool.submit(["printf", "%s", "a b"])
        after = pool.command("echo later", after=[words])
        assert square.result() == 49
        assert (line.result().return_code, line.result().out_snippet) == (5, b"42\n")
        assert words.result().out_snippet == b"a b" and words.result()
        assert {future.result().state for future in as_completed([after])} == {JobState.SUCCEEDED}
        assert list(pool.map(math.factorial, range(6), chunksize=2)) == [1, 1, 2, 6, 24, 120]
        with pytest.raises(ValueError, match="invalid literal"):
            pool.submit(int, "x").result()
        long = pool.submit("sleep 100")
        assert long.cancel()
        folder = pool.folder
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit("true")
