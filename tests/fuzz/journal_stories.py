"""Stories of journals: random runs as their records, and what every reader of the journal says of them on the way.

In: a seeded Random. Out: what the readers said, moment by moment (see stories.py). The records are those of a possible run: an
engine has no more tasks than slots, a task ends where it was assigned, and an assignment is closed when its tasks have ended.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from math import inf
from pathlib import Path
from random import Random

import msgspec

from fuzz.targets import folder, or_problem
from pilothouse.formats.output_pack import STDERR, STDOUT, Chunk, encode, pack_path
from pilothouse.formats.task_file import LineKind, TaskLine
from pilothouse.journal import read
from pilothouse.journal.lock import hold
from pilothouse.journal.output import open_outputs
from pilothouse.journal.plan import Plan, PlanOptions
from pilothouse.journal.present import read_present, read_waiting
from pilothouse.journal.run_reader import RunReader
from pilothouse.journal.run_state import RunState
from pilothouse.journal.store import FILE_NAME, Journal
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live import requests as q
from pilothouse.worlds.live.wire.messages import Task

STEPS = 40
_NAMED = (
    "#PILOTHOUSE cores=2 name=a\nprepare\n",
    "#PILOTHOUSE name=a\nprepare more\n",
    "#PILOTHOUSE after=a name=b\nanalyse 1\nanalyse 2\n",
    "#PILOTHOUSE after=b,a walltime=60 nodes=2\npublish\n",
)
"""In this order: a name is given before it is waited for."""
_OTHERS = (
    "true",
    "sleep 1",
    "#PILOTHOUSE mem=300M gpus=1\ntrain\n",
    "#DISBATCH BARRIER",
    "#DISBATCH BARRIER CHECK",
    "#DISBATCH REPEAT 3 start 4 step 2 again",
)
_COLUMNS = {
    "ends": ("cpu_s", "memory_kb", "name", "last_line", "output", "left_out"),
    "assignments": ("gpus", "memory_mb", "submitted_at"),
}
"""What journals of earlier versions had not."""


class _Engine(msgspec.Struct):
    joined: r.EngineJoined
    free: set[int]
    key: str


class _Group(msgspec.Struct):
    """An open assignment."""

    number: int
    job_id: str
    engine: _Engine
    units: list[int]
    tasks: list[Task]


class RandomRun:
    """A run as its records, written to a journal one step after the other."""

    def __init__(self, random: Random, home: Path) -> None:
        self.random, self.home = random, home
        self.now = 1000.0
        self.engines: list[_Engine] = []
        self.groups: list[_Group] = []
        self.attempts: dict[int, int] = {}
        self.failed: list[int] = []
        self.jobs: dict[int, Job] = {}
        self.numbers = {"engine": 0, "group": 0, "answer": 0, "job": 100}
        parts = list(_NAMED) if random.random() < 0.8 else []
        for other in random.choices(_OTHERS, k=8):
            parts.insert(random.randrange(len(parts) + 1), other)
        (home / "tasks.txt").write_text("\n".join(("#DISBATCH PERENGINE START setup", *parts, "last", "")))
        options = PlanOptions(
            units=random.choice((1, 1, 2)), gpus_per_task=random.choice((0, 0, 1)), mem=random.choice((0, 100)),
            walltime=random.choice((None, 30.0)), out=random.choice(("", "{task}-{line}-{repeat}-{attempt}.out")),
            err=random.choice(("", "{task}.err")), lenient=random.random() < 0.2,
        )  # fmt: skip
        self.plan = Plan(options, str(home / "tasks.txt") if random.random() < 0.9 else "", str(home))
        lines = [line for line in self.plan.lines() if line.kind in (LineKind.TASK, LineKind.BARRIER, LineKind.CHECK)]
        self.lines: dict[int, TaskLine] = {line.task_id: line for line in lines}
        self.waiting = [line.task_id for line in lines if line.kind is LineKind.TASK]
        self.barriers = [line for line in lines if line.kind is not LineKind.TASK]
        self.journal = Journal(home)
        self.journal.put_notes(
            plan=msgspec.msgpack.encode(self.plan) if random.random() < 0.9 else None, decider=random.choice(("easy", None)),
            started=random.choice((1000.0, None)), total=random.choice((len(self.waiting), len(self.waiting), None)),
        )  # fmt: skip

    def step(self) -> None:
        self.now += self.random.choice((0.0, 0.5, 3.25))
        some: dict[Callable[[], None], int] = {
            self.join: 3, self.leave: 1, self.assign: 8, self.end: 9, self.give_back: 1, self.submit: 1, self.refuse: 1,
            self.reopen: 2, self.answer: 1, self.pass_barrier: 1, self.skip: 1, self.set_up: 1,
        }  # fmt: skip
        self.random.choices(list(some), list(some.values()))[0]()

    def next(self, what: str) -> int:
        self.numbers[what] += 1
        return self.numbers[what] - 1

    def join(self) -> None:
        rank = self.next("engine")
        first = max((engine.joined.first_unit + engine.joined.slots for engine in self.engines), default=0)
        slots = self.random.choice((1, 2, 4))
        gpus = self.random.choice(((), ("0",), ("0", "1")))
        joined = r.EngineJoined(
            f"e{rank}", rank, self.random.choice(("local", "ssh")), f"n{rank}", slots, first, 70 + rank, self.now,
            self.random.choice((f"k{rank}", "")), gpus, self.random.choice((0, 500)), self.random.choice((0, 2)),
        )  # fmt: skip
        self.engines.append(_Engine(joined, set(range(first, first + slots)), joined.key))
        self.journal.write([joined])

    def leave(self) -> None:
        if self.engines:
            engine = self.engines[self.random.randrange(len(self.engines))]
            lost = self.random.random() < 0.5
            for group in [group for group in self.groups if group.engine is engine]:
                ends = [self.ended(task, engine, JobState.LOST, -1, final=False) for task in group.tasks]
                self.close(group, ends)
            self.engines.remove(engine)
            self.journal.write([r.EngineLeft(engine.joined.engine, self.now, "gone" if lost else "", lost)])

    def assign(self) -> None:
        free = [engine for engine in self.engines if engine.free]
        if not free:
            return
        engine = self.random.choice(free)
        jobs = [
            task for task in self.jobs if not any(task == held.task_id for group in self.groups for held in group.tasks)
        ]
        if jobs and self.random.random() < 0.5:
            task_id = jobs[0]
            job = self.jobs[task_id]
            argv = tuple(map(str.encode, job.command.argv)) if job.command else ()
            tasks, job_id = [Task(task_id, attempt=self.attempts.get(task_id, 0) + 1, argv=argv)], job.id
        elif self.waiting:
            count = self.random.choice((1, 1, 2, 3))
            ids, self.waiting = self.waiting[:count], self.waiting[count:]
            tasks, job_id = [self.order(self.lines[task_id]) for task_id in ids], str(ids[0])
        else:
            return
        units = sorted(engine.free)[: self.random.choice((1, 1, 2))]
        engine.free -= set(units)
        group = _Group(self.next("group"), job_id, engine, units, tasks)
        self.groups.append(group)
        gpus = r.text_of_gpus({engine.joined.engine: engine.joined.gpus[:1]}) if engine.joined.gpus else ""
        came = self.random.choice((0.0, self.now - 0.25))
        memory_mb = self.random.choice((0, 100))
        text = IdSet.of(units).to_text()
        self.journal.write(
            [r.Assigned(group.number, job_id, engine.joined.engine, text, self.now, tasks, gpus, memory_mb, came)]
        )

    def order(self, line: TaskLine) -> Task:
        attempt = self.attempts.get(line.task_id, 0) + 1
        return Task(line.task_id, line.line_number, line.repeat_index, attempt, line.command.encode(), (), line.request)

    def ended(self, task: Task, engine: _Engine, state: JobState, code: int, *, final: bool) -> r.TaskEnded:
        self.attempts[task.task_id] = task.attempt
        job_id = next(group.job_id for group in self.groups if task in group.tasks)
        out, err = self.random.choice((b"", b"out\xff\n")), b"one\n last \n\n" if code else b""
        output = self.write_output(engine, task, out, err)
        chance = self.random
        if final and code and task.line_number:
            self.failed.append(task.task_id)
        if not final and task.line_number:
            self.waiting.append(task.task_id)
        if final:
            self.jobs.pop(task.task_id, None)
        name = task.request.name if task.request is not None else ""
        return r.TaskEnded(
            task.task_id, task.line_number, task.repeat_index, task.attempt, "N", state, code, engine.joined.rank,
            engine.joined.node, 7, self.now - chance.choice((0.0, 0.5, 3.0)), self.now, len(out), out[:4], len(err), err[:8],
            task.line or b" ".join(task.argv), chance.choice(("", "why")), final, job_id, chance.choice((0.0, 1.5)),
            chance.choice((0, 77)), name, b"last" if code else b"", output, chance.choice((0, 0, 9)),
        )  # fmt: skip

    def write_output(self, engine: _Engine, task: Task, out: bytes, err: bytes) -> int:
        place = 0
        for stream, data in ((STDOUT, out), (STDERR, err)):
            if data and engine.key:
                with pack_path(self.home, engine.key).open("ab") as pack:
                    at = pack.tell()
                    pack.write(encode(Chunk(stream, task.attempt, task.task_id, 0, data), place))
                place = at + 1
        if self.random.random() < 0.3:
            name = f"{task.task_id}-{task.line_number}-{task.repeat_index}-{task.attempt}.out"
            (self.home / name).write_bytes(out)
            (self.home / f"{task.task_id}.err").write_bytes(err)
        return place

    def end(self) -> None:
        if not self.groups:
            return
        group = self.random.choice(self.groups)
        state, code = self.random.choice((
            (JobState.SUCCEEDED, 0), (JobState.SUCCEEDED, 0), (JobState.FAILED, 3), (JobState.TIMED_OUT, -15)
        ))  # fmt: skip
        task = group.tasks[0]
        end = self.ended(task, group.engine, state, code, final=not code or self.random.random() < 0.7)
        del group.tasks[0]
        if group.tasks:
            self.journal.write([end], durable=False)
        else:
            self.close(group, [end])

    def close(self, group: _Group, ends: list[r.TaskEnded]) -> None:
        group.engine.free |= set(group.units)
        self.groups.remove(group)
        if self.random.random() < 0.8:
            self.journal.write([*ends, r.Closed(group.number, self.now)])
        else:
            self.journal.write([*ends])
            self.journal.write([r.Closed(group.number, self.now + 0.5)])

    def give_back(self) -> None:
        for group in self.groups:
            if len(group.tasks) > 1:
                task = group.tasks.pop()
                self.waiting.insert(0, task.task_id)
                self.journal.write([r.Returned(group.number, (task.task_id,))])

    def submit(self) -> None:
        number = self.next("job")
        shape = self.random.choice((None, Shape(gpus_per_node=1), Shape(nodes=2, most_nodes=2)))
        command = self.random.choice((Command(argv=("run", "it"), cwd="/there"), Command(line="run it"), None))
        after = self.random.choice(((), (f"j{number - 1}",)))
        job = Job(f"j{number}", self.random.choice((1, 3)), self.random.choice((inf, 9.0)), shape=shape, command=command,
                  after=after, submitted_at=self.now - 1000.0)  # fmt: skip
        self.jobs[number] = job
        self.journal.write([r.JobKnown(job.id, number, msgspec.msgpack.encode(job))])

    def refuse(self) -> None:
        if self.jobs:
            self.journal.write([r.Refused(next(iter(self.jobs.values())).id, self.now, "never")])

    def reopen(self) -> None:
        if self.failed:
            task_id = self.failed.pop()
            self.waiting.append(task_id)
            self.journal.write([r.Reopened(task_id, self.now)])

    def answer(self) -> None:
        number = self.next("answer")
        request = self.random.choice((
            q.StopEngine("e0"), q.StopContext("ssh"), q.CancelTask(3), q.RetryTask(2), q.AddContext(slots=2)
        ))  # fmt: skip
        answer = q.Answer(number + 1, self.now, request, self.random.random() < 0.7, "said")
        self.journal.write([r.Note(f"{q.ANSWER_NOTE}{number}", msgspec.json.encode(answer))])

    def pass_barrier(self) -> None:
        if self.barriers:
            self.journal.write([r.barrier_passed(self.barriers.pop(0), self.now)])

    def skip(self) -> None:
        if self.waiting:
            line = self.lines[self.waiting.pop(0)]
            end = r.barrier_passed(line, self.now)
            skipped = msgspec.structs.replace(end, kind="S", state=JobState.FAILED, return_code=1, reason="skipped")
            self.journal.write([skipped])

    def set_up(self) -> None:
        """A command that each engine runs once: its numbers are not those of tasks."""
        for engine in self.engines[:1]:
            rank, node, code = engine.joined.rank, engine.joined.node, self.random.choice((0, 2))
            times = self.now - 2.0, self.now
            end = r.TaskEnded(0, 1, -1, 1, "P", JobState.FAILED, code, rank, node, 7, *times, 0, b"", 0, b"", b"setup")
            self.journal.write([end])


def steady(state: RunState) -> RunState:
    """Without what the clock says."""
    began = 0.0 if state.started_at == state.now else state.started_at
    return msgspec.structs.replace(state, now=0.0, started_at=began)


def state_of(home: Path) -> object:
    with closing(RunReader(home)) as reader:
        return steady(reader.read()), (state := reader.read()).unfinished, state.slots, sorted(state.contexts)


def present_of(home: Path) -> object:
    with read.reading(home) as db:
        present = read_present(db, home)
    return msgspec.structs.replace(present, now=0.0, progress=vars(present.progress))  # type: ignore[arg-type]


def shown_notes(notes: dict[str, bytes]) -> dict[str, bytes]:
    """Without the plan, which names the folder."""
    return {name: value for name, value in notes.items() if name != "plan"}


def outputs_of(home: Path) -> object:
    with open_outputs(home) as outputs:
        return list(outputs.read(None)), list(outputs.read(range(1, 20), 3)), list(outputs.read_running(range(20)))


VIEWS: tuple[Callable[[Path], object], ...] = (
    lambda home: list(read.read_tasks(home)),
    lambda home: list(read.read_tasks(home, failed=True)),
    lambda home: [(row.task, row.state, row.slots) for row in read.read_tasks(home, last=3)],
    lambda home: [read.read_attempts(home, task) for task in (0, 1, 2, 3, 101)],
    lambda home: [read.numbers_of(home, name) for name in ("a", "b", "j100", "")],
    read.read_jobs,
    read.read_nodes,
    read.never_begun,
    read.read_engines,
    lambda home: shown_notes(read.read_notes(home)),
    read.read_submissions,
    lambda home: (read.read_note(home, "decider"), read.is_over(home)),
    lambda home: list(read_waiting(home)),
    lambda home: [row.task for row in read_waiting(home, tried=False)],
    state_of,
    present_of,
    outputs_of,
)


def new_folder() -> Path:
    home = folder() / f"journal-{os.getpid()}" / "story_run"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    return home


def journals(random: Random) -> Iterator[object]:
    home = new_folder()
    run = RandomRun(random, home)
    with ExitStack() as until_the_end:
        until_the_end.callback(run.journal.close)
        if random.random() < 0.8:
            until_the_end.enter_context(hold(home, AssertionError("it is free")))
        growing = until_the_end.enter_context(closing(RunReader(home)))
        run.join()
        for step in range(STEPS):
            run.step()
            if step % 10 == 3:
                yield steady(growing.read())
        yield from told(home)
        yield [record for record in run.journal.replay() if type(record) is not r.Note]
        yield (
            run.journal.notes("answer "),
            shown_notes(run.journal.notes("")),
            run.journal.number("total"),
            run.journal.noted,
        )
        if random.random() < 0.3:
            run.journal.put_notes(ended_at=run.now)
        if random.random() < 0.3:
            run.journal.reopen_failed(run.now)
            yield from told(home)
    with closing(sqlite3.connect(home / FILE_NAME)) as db:
        for table, columns in _COLUMNS.items():
            for (index,) in db.execute(
                "SELECT name FROM sqlite_master WHERE type='index' AND sql IS NOT NULL"
            ).fetchall():
                db.execute(f"DROP INDEX {index}")
            for column in columns:
                db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    yield "as an earlier version kept it"
    yield from told(home)


def told(home: Path) -> Iterator[object]:
    for view in VIEWS:
        found = or_problem(lambda view=view: view(home))  # type: ignore[misc]
        yield str(found).replace(str(home), "") if isinstance(found, Exception) else found
