"""A manager that goes on with the files of an earlier one: every job is where it was, and ends as it would have ended."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual import Outcome, VirtualPilot

from pilothouse.dropins.qcg.files import ManagerFiles
from pilothouse.dropins.qcg.registry import Item, state_name
from pilothouse.dropins.qcg.resume import refill
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import FINAL, JobState

NAMES = ("a", "b", "c", "d#1", "e")
NODES = (2, 1)


def simple(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "execution": {"exec": "/bin/true"}, **more}


@st.composite
def jobs(draw: st.DrawFn, name: str) -> dict[str, object]:
    job = simple(name, resources={"numCores": draw(st.integers(1, 3))})
    others = ["nobody", *NAMES, *(f"{other}:{index}" for other in NAMES for index in (0, 1))]
    if draw(st.booleans()):
        start = draw(st.integers(-1, 1))
        job["iteration"] = {"start": start, "stop": start + draw(st.integers(1, 3))}
        others += [f"{other}:${{it}}" for other in NAMES]
    job["dependencies"] = {"after": draw(st.lists(st.sampled_from(others), max_size=2))}
    return job


@st.composite
def actions(draw: st.DrawFn) -> list[dict[str, object]]:
    """Requests, one for each second: jobs come, some of them are cancelled or removed, and their names come again."""
    found: list[dict[str, object]] = []
    for _ in range(draw(st.integers(1, 5))):
        names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
        kind = draw(st.sampled_from(["submit", "submit", "cancelJob", "removeJob"]))
        if kind == "submit":
            found.append({"request": "submit", "jobs": [draw(jobs(name)) for name in names]})
        else:
            found.append({"request": kind, "jobNames": [*names, f"{names[0]}:0"]})
    return found


class Stage:
    """A pilot with files, and the same pilot after its manager was killed and resumed."""

    def __init__(self, folder: Path, failing: frozenset[str], report_format: str = "json") -> None:
        self.failing = failing
        self.folder = folder
        self.format = report_format
        folder.mkdir()
        self.pilot = VirtualPilot(*NODES, outcome=self.outcome, files=ManagerFiles(folder, report_format=report_format))

    def outcome(self, name: str) -> Outcome:
        return 0.4 + len(name) % 3, int(name.partition(":")[0] in self.failing), ""

    def play(self, requests: list[dict[str, object]]) -> None:
        for second, request in enumerate(requests):
            self.pilot.run(until=1000.25 + second)
            self.pilot.ask(request)
        self.pilot.run(until=1000.75 + len(requests))

    def resumed(self) -> Stage:
        """From a copy of the files: the first one can go on as well."""
        copy = self.folder.with_name(self.folder.name + "-later")
        shutil.copytree(self.folder, copy)
        later = Stage.__new__(Stage)
        later.failing, later.folder, later.format = self.failing, copy, self.format
        files = ManagerFiles(copy, report_format=self.format)
        later.pilot = pilot = VirtualPilot(*NODES, outcome=self.outcome, files=files)
        pilot.now = self.pilot.now
        pilot.rows = list(self.pilot.rows)
        refill(pilot.queue, files, pilot.rows, self.pilot.layout, pilot.now)
        return later

    def run(self) -> None:
        self.pilot.schedule([])
        self.pilot.run()

    def items(self) -> Iterator[Item]:
        for entry in self.pilot.queue.registry.entries.values():
            yield entry, None
            if entry.iterations is not None:
                yield from ((entry, index) for index in range(entry.iterations.loop.start, entry.iterations.loop.stop))

    def ends(self) -> dict[str, object]:
        """All that is known of jobs and iterations that have ended."""
        found: dict[str, object] = {}
        for entry, index in self.items():
            state = entry.state_of(index)
            if state in FINAL:
                status = entry.iterations.shown(index) if index is not None and entry.iterations else entry.status
                ran = status.runtime and (status.runtime, [when for _, when in status.history[-2:]])
                found[entry.full_name(index)] = (state, ran, entry.arrived_at, entry.number)
        return found

    def open(self) -> set[str]:
        return {entry.full_name(index) for entry, index in self.items() if entry.state_of(index) not in FINAL}

    def reported(self) -> Counter[str]:
        lines = (self.folder / "jobs.report").read_text().splitlines()
        return Counter(msgspec.json.decode(line)["name"] for line in lines)

    def counts(self) -> dict[str, object]:
        """What status requests count, whether a job runs or waits."""
        data: Any = self.pilot.ask({"request": "status"}, settle=False)["data"]
        jobs, iterations = self.pilot.queue.registry.statistics()
        for groups in (jobs, iterations):
            groups["InSchedule"] += groups.pop("Executing")
        return {"jobs": jobs, "iterations": iterations, "total": data["JobStats"]["TotalJobs"]}


@settings(max_examples=60)
@given(actions(), st.frozensets(st.sampled_from(NAMES), max_size=2))
def test_a_resumed_manager_is_where_the_earlier_one_was(requests: list[dict[str, object]], failing: frozenset[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first = Stage(Path(folder) / "m", failing)
        first.play(requests)
        later = first.resumed()
        assert later.ends() == first.ends()
        assert later.open() == first.open()
        assert later.counts() == first.counts()
        assert later.pilot.queue.registry.unfinished == first.pilot.queue.registry.unfinished
        assert later.pilot.queue.usage.used == 0, "nothing runs until it is started, or adopted"
        begun = {name for _, name, _ in later.pilot.starts}
        assert not begun
        later.pilot.schedule([])
        again = later.resumed()
        assert again.ends() == later.ends() and again.open() == later.open()
        over = {name for name, end in later.ends().items()}
        for stage in (first, later, again):
            stage.run()
            assert not stage.open() and stage.pilot.queue.all_finished
            assert (stage.pilot.queue.ready, stage.pilot.queue.usage.used) == (0, 0)
        assert not over & {name for _, name, _ in later.pilot.starts}, "what had ended does not run again"
        states = [{name: state_name(end[0]) for name, end in stage.ends().items()} for stage in (first, later, again)]  # type: ignore[index]
        assert states[0] == states[1] == states[2]
        assert first.reported() == later.reported() == again.reported()


def test_jobs_that_still_run_are_adopted_and_not_started_again(tmp_path: Path) -> None:
    first = Stage(tmp_path / "m", frozenset())
    first.pilot.ask({"request": "submit", "jobs": [simple("a"), simple("l", iteration={"stop": 3}), simple("b")]})
    first.pilot.run(until=1000.1)
    assert [name for _, name, _ in first.pilot.starts] == ["a", "l:0", "l:1"]
    later = first.resumed()
    queue, now = later.pilot.queue, later.pilot.now
    assert queue.adopt("a", now, IdSet.of([1])) is not None
    assert queue.adopt("l:1", now, IdSet.of([0, 2])) is not None
    assert queue.adopt("b", now, None) is not None
    assert queue.adopt("nobody", now, None) is None and queue.adopt("a#1", now, None) is None
    for name in ("a", "l:1"):
        queue.launched(name, now, wd="/there", program="true")
    assert queue.usage.used == 3 and queue.busy
    assert [job.id for job in queue.take_ready(10, now)] == ["l:0", "l:2"], "the others are in the world"
    queue.ended("a", JobState.SUCCEEDED, 0, now + 2, pid=7)
    assert queue.adopt("a", now, None) is None, "it has ended"
    info: Any = later.pilot.ask({"request": "jobInfo", "jobNames": ["a"]}, settle=False)
    runtime = info["data"]["jobs"]["a"]["data"]["runtime"]
    assert runtime == {
        "allocation": "n0[1]", "wd": "/there", "rtime": "0:00:02.000000", "exit_code": "0", "pid": "7", "pname": "true",
    }  # fmt: skip


@pytest.mark.parametrize("report_format", ["json", "text", "none"])
def test_a_report_that_was_cut_off_is_completed(tmp_path: Path, report_format: str) -> None:
    first = Stage(tmp_path / "m", frozenset("b"), report_format)
    first.pilot.ask({"request": "submit", "jobs": [simple(name) for name in "abc"]})
    first.run()
    report = tmp_path / "m" / "jobs.report"
    if report_format == "none":
        assert not report.exists()
        assert not first.resumed().open()
        return
    whole = report.read_text()
    report.write_text(whole[:-10])
    later = first.resumed()
    later.run()
    text = (tmp_path / "m-later" / "jobs.report").read_text()
    if report_format == "json":
        assert [msgspec.json.decode(line)["name"] for line in text.splitlines()] == ["a", "b", "c"]
    else:
        names = [line.partition(" (")[0] for line in text.splitlines() if line[0] != "\t"]
        assert names == ["a", "b", "c"]


@pytest.mark.parametrize("launched", [True, False])
def test_what_was_not_begun_waits_again_and_clients_see_nothing(tmp_path: Path, launched: bool) -> None:
    pilot = Stage(tmp_path / "m", frozenset()).pilot
    pilot.ask({"request": "submit", "jobs": [simple("a"), simple("b")]}, settle=False)
    queue = pilot.queue
    assert [job.id for job in queue.take_ready(10, pilot.now)] == ["a", "b"]
    queue.allocated("a", IdSet.of([0]), pilot.now)
    if launched:
        queue.launched("a", pilot.now, wd="/", program="true")
    queue.return_unstarted("a")
    queue.return_unstarted("b")
    assert not queue.busy and queue.ready == 2 and queue.item_of("a") is None
    entry = queue.registry.entries["a"]
    assert [state for state, _ in entry.status.history] == [JobState.WAITING] and entry.status.runtime is None
    assert [job.id for job in queue.take_ready(10, pilot.now)] == ["a", "b"]


def test_what_was_lost_with_its_node_waits_in_the_world(tmp_path: Path) -> None:
    pilot = Stage(tmp_path / "m", frozenset()).pilot
    pilot.ask({"request": "submit", "jobs": [simple("a")]}, settle=False)
    queue = pilot.queue
    queue.take_ready(10, pilot.now)
    queue.allocated("a", IdSet.of([0, 1]), pilot.now)
    queue.launched("a", pilot.now, wd="/", program="true")
    queue.requeued("a", pilot.now)
    assert not queue.busy and queue.usage.used == 0 and queue.item_of("a") is not None
    assert queue.registry.entries["a"].status.state is JobState.WAITING
    queue.allocated("a", IdSet.of([1]), pilot.now)
    assert queue.usage.used == 1
    entry = queue.registry.entries["a"]
    queue.cancel(entry, None, pilot.now)
    queue.cancel(entry, None, pilot.now)
    assert queue.is_cancelling("a") and queue.take_outbox().cancelled == ["a"], "it is killed once"
    queue.ended("a", JobState.FAILED, -15, pilot.now)
    assert entry.status.state is JobState.KILLED and not queue.is_cancelling("a")


def test_files_of_earlier_versions_name_no_numbers(tmp_path: Path) -> None:
    """There the last job of a name is the one that the states are of."""
    first = Stage(tmp_path / "m", frozenset())
    first.pilot.ask({"request": "submit", "jobs": [simple("a"), simple("b"), simple("c")]})
    first.run()
    for name in ("a", "b"):
        first.pilot.ask({"request": "removeJob", "jobNames": [name]})
    first.pilot.ask({"request": "submit", "jobs": [simple("a")]}, settle=False)
    path = tmp_path / "m" / "track.states"
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    kept = [{key: line[key] for key in ("task", "iteration", "state")} for line in lines if line["task"] != "a"]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in kept) + b'{"task": "c", "sta')
    first.pilot.rows.clear()
    later = first.resumed()
    assert later.open() == {"a"} and set(later.ends()) == {"c"}
    assert later.pilot.queue.registry.unfinished == 1
    later.run()
    assert later.pilot.queue.all_finished and [name for _, name, _ in later.pilot.starts] == ["a"]
    again = later.resumed()
    assert not again.open(), "what was cut off did not harm what came after it"
