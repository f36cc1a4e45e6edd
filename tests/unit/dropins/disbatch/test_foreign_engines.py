"""A real engine of disBatch at our driver, message by message, on virtual time: it joins, works, is lost, leaves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from msgspec import structs

from pilothouse.dropins.disbatch.foreign_engines import JOIN_AFTER_S, SILENT_S, ForeignEngines, PerEngine
from pilothouse.formats.task_file import TaskReader
from pilothouse.model.decisions import StartJob
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import JobState
from pilothouse.protocols.disbatch import messages as d
from pilothouse.protocols.disbatch import pickles
from pilothouse.worlds.live.attached import AttachedEngines
from pilothouse.worlds.live.driver import decisions, engine_frames, flow
from pilothouse.worlds.live.driver.state import new_state
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import TaskEnded

CONTEXT = d.Context(4, "real", "SSH", ("n1",), (2,), (1,))


class Lab:
    """A driver, its clock and what was put for foreign engines. Jobs are started on the first free unit."""

    def __init__(self, tasks: str, edition: int = 3) -> None:
        self.now = 0.0
        self.put: dict[str, list[Any]] = defaultdict(list)
        self.driver = new_state(LiveOptions(bundle=1))
        lines = TaskReader("tasks", lenient=True, edition=edition).read(tasks.encode().splitlines())
        self.driver.feed(Feeder(lines))
        self._calls: list[Callable[[], object]] = []
        attached = AttachedEngines(self.driver, lambda: self.now, self._calls.append)
        self.told = PerEngine(self._put, edition)
        self.foreign = ForeignEngines(attached, self._put, lambda: 4, self.told, edition)

    def _put(self, key: str, data: bytes, coding: bytes) -> None:
        self.put[key].append(pickles.read(data))

    def hear(self, *messages: d.ControllerMessage) -> None:
        for message in messages:
            self.foreign.hear(message)
        self.turn()

    def join(self, rank: int = 0) -> None:
        self.hear(d.Register("engine", "k"), d.ContextInfo(CONTEXT), d.EngineStarted(rank, 4, "host", 9, 1.0))
        self.hear(*(d.CylinderAvailable(rank, 9, 9, f".cylinder {rank} {number}") for number in (0, 1)))

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        if seconds:
            self.foreign.tick()
            engine_frames.tick(self.driver, self.now)
        for _ in range(20):
            while self._calls:
                self._calls.pop(0)()
            if not self.driver.begun and self.driver.engines.present:
                flow.begins(self.driver, self.now)
            flow.settle(self.driver, self.now)
            self._start_jobs()
            for frame in engine_frames.frames(self.driver, self.now):
                self.foreign.attached.take(frame)
            if not self._calls:
                break

    def _start_jobs(self) -> None:
        groups = self.driver.groups.values()
        free = sum(proxy.node.mask for proxy in self.driver.engines.present.values() if not proxy.closed_for)
        free &= ~sum(group.units.mask for group in groups if group.state is not JobState.WAITING)
        for group in [group for group in groups if group.state is JobState.WAITING]:
            if free:
                unit = free & -free
                free &= ~unit
                decisions.apply(self.driver, StartJob(self.now, group.job.id, IdSet(unit)), self.now)

    def tasks_given(self, key: str) -> list[int]:
        return [d.read_task_info(value).task_id for word, value in self.put[key] if word == "task"]

    def done(self, key: str, task: int, code: int = 0, kind: str = "N", task_key: str = ".task") -> None:
        info = d.TaskInfo(task, task + 1, -1, b"x", kind, task_key)
        rank, cylinder = (int(word) for word in key.split()[1:])
        self.hear(d.TaskDone(d.TaskReport(info, "n1", 5, code, 1.0, 2.0, 3, "out"), rank, cylinder if kind == "N" else -1, key))

    def ends(self) -> list[tuple[int, JobState, bool]]:
        return [(end.task_id, end.state, end.final) for end in self.driver.records if isinstance(end, TaskEnded)]


def test_it_joins_works_and_is_told_to_stop_when_nothing_is_left() -> None:
    lab = Lab("a\nb\nc\n")
    lab.join()
    assert lab.put["k"] == [0]
    (proxy,) = lab.driver.engines.present.values()
    assert (proxy.joined.rank, proxy.joined.slots, proxy.joined.node, proxy.joined.context) == (0, 2, "n1", "real")
    assert (lab.tasks_given(".cylinder 0 0"), lab.tasks_given(".cylinder 0 1")) == ([0], [1])
    lab.done(".cylinder 0 1", 1, code=3)
    assert lab.tasks_given(".cylinder 0 1") == [1, 2]
    lab.done(".cylinder 0 0", 0)
    assert lab.ends() == [(1, JobState.FAILED, True), (0, JobState.SUCCEEDED, True)]
    assert ("stop", None) not in lab.put[".cylinder 0 0"]
    lab.done(".cylinder 0 1", 2)
    assert lab.driver.over
    assert all(lab.put[f".cylinder 0 {number}"][-1] == ("stop", None) for number in (0, 1))
    assert lab.foreign.working
    lab.foreign.note_stopped(0)
    assert not lab.foreign.working


def test_ranks_and_numbers_are_given_once() -> None:
    lab = Lab("a\n")
    lab.hear(d.Register("engine", "one"), d.Register("engine", "two"), d.Register("context", "three"))
    assert [lab.put[key] for key in ("one", "two", "three")] == [[0], [1], [4]]
    lab.foreign.over = True
    lab.hear(d.Register("engine", "late"))
    assert lab.put["late"] == [-1]


def test_an_engine_with_fewer_cylinders_than_its_context_says_joins_a_little_later() -> None:
    lab = Lab("a\nb\n")
    lab.hear(d.Register("engine", "k"), d.ContextInfo(CONTEXT), d.EngineStarted(0, 4, "host", 9, 1.0))
    lab.hear(d.CylinderAvailable(0, 9, 9, ".cylinder 0 0"))
    assert not lab.driver.engines.present
    lab.turn(JOIN_AFTER_S)
    assert lab.tasks_given(".cylinder 0 0") == [0]


def test_tasks_of_an_engine_that_is_silent_run_elsewhere() -> None:
    lab = Lab("a\nb\n")
    lab.join(0)
    for _ in range(int(SILENT_S / 10)):
        lab.turn(10.0)
        lab.hear(d.HeartBeat(None, (1,)))
    for _ in range(12):
        lab.turn(10.0)
    assert lab.driver.engines.present, "it was heard, as one of its tasks was"
    lab.turn(10.0)
    assert not lab.driver.engines.present
    assert lab.ends() == [(0, JobState.LOST, False), (1, JobState.LOST, False)]
    lab.join(1)
    assert sorted(lab.tasks_given(".cylinder 1 0") + lab.tasks_given(".cylinder 1 1")) == [0, 1]
    lab.done(".cylinder 0 0", 0)
    assert len(lab.ends()) == 2, "a late report of a task that was given up counts for nothing"


def test_an_engine_that_stops_with_an_error_gives_its_tasks_back() -> None:
    lab = Lab("a\n")
    lab.join()
    lab.hear(d.EngineStopped("it broke", 0))
    assert lab.ends() == [(0, JobState.LOST, False)] and not lab.driver.engines.present


def test_start_and_stop_commands_are_run_by_the_engine_itself() -> None:
    lab = Lab("#DISBATCH PERENGINE START s\n#DISBATCH PERENGINE STOP t\na\n")
    lab.hear(d.Register("engine", "k"), d.ContextInfo(CONTEXT), d.EngineStarted(0, 4, "host", 9, 1.0))
    lab.done(".x 0 0", 0, kind="P", task_key=".per engine START 0")
    lab.hear(*(d.CylinderAvailable(0, 9, 9, f".cylinder 0 {number}") for number in (0, 1)))
    assert lab.tasks_given(".cylinder 0 0") == [0]
    lab.done(".cylinder 0 0", 0)
    assert lab.put[".cylinder 0 0"][-1] == ("stop", None) and not lab.driver.over
    lab.done(".x 0 0", 0, code=2, kind="P", task_key=".per engine STOP 0")
    assert lab.driver.over
    ends = [(end.kind, end.return_code) for end in lab.driver.records if isinstance(end, TaskEnded)]
    assert ends == [("P", 0), ("N", 0), ("P", 2)]


def test_a_task_that_our_driver_ends_is_not_waited_for() -> None:
    lab = Lab("a\nb\n")
    lab.join()
    flow.stop(lab.driver, "a user", lab.now)
    lab.turn()
    lab.turn(1.0)
    assert lab.driver.over and lab.put[".cylinder 0 0"][-1] == ("stop", None)


def test_messages_that_make_no_sense_change_nothing() -> None:
    lab = Lab("a\nb\n")
    lab.hear(d.ContextInfo(CONTEXT), d.EngineStarted(7, 4, "host", 9, 1.0), d.CylinderAvailable(7, 9, 9, ".cylinder 7 0"))
    lab.turn(10 * JOIN_AFTER_S)
    assert not lab.driver.engines.present, "nobody gave it this rank"
    lab.hear(d.Register("engine", "k"), d.EngineStarted(0, 99, "host", 9, 1.0))
    lab.join(1)
    lab.hear(d.CylinderAvailable(1, 9, 9, ".cylinder 1 0"), d.CylinderAvailable(1, 9, 9, ".cylinder 1 5"))
    assert lab.put[".cylinder 1 5"] == [("stop", None)]
    info = d.TaskInfo(0, 1, -1, b"x")
    report = d.TaskReport(info, "n1", 5, 0, 1.0, 2.0)
    for task in (0, 1, 17):
        for key in (".cylinder 1 1", ".cylinder 9 9", ""):
            if (task, key) != (1, ".cylinder 1 1"):
                lab.hear(d.TaskDone(structs.replace(report, task=structs.replace(info, task_id=task)), 1, 3, key))
    lab.hear(d.CylinderStopped(3, "x"), d.EngineStopped("?", 44), d.HeartBeat(9, (1, 2)), d.TaskDone(report, 55, 0, "k"))
    assert lab.ends() == [] and len(lab.driver.engines.present) == 1
