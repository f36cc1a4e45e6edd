"""Behind `pilothouse run`: makes the folder of a run, or goes on with one, and runs its tasks.

In: RunOptions and a task file, or the folder of an earlier run. Out: the exit code; the folder with journal, logs and script.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import click
import msgspec

from pilothouse.access.files import own_folder
from pilothouse.access.interfaces import ALL
from pilothouse.core.session import Session
from pilothouse.formats.task_table import reader_for
from pilothouse.journal.lock import hold, is_free
from pilothouse.journal.read import read_note, read_tasks
from pilothouse.journal.store import FILE_NAME, Journal, undamaged
from pilothouse.launch import naming
from pilothouse.launch.add_engines import JoinInfo, joinable, write_script
from pilothouse.launch.commands import ArgumentCommands
from pilothouse.launch.next_requests import with_measured
from pilothouse.launch.run_options import RunOptions
from pilothouse.launch.run_plan import RunPlan, plan_of
from pilothouse.launch.running import calm_collector, is_alive, supervised
from pilothouse.launch.signals import on_signals
from pilothouse.launch.task_source import TaskSource, digest, show_tasks, task_lines
from pilothouse.model.errors import InputError, RunError
from pilothouse.views.run_progress import RunProgress
from pilothouse.worlds.live.contexts import listening
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.requests import CONTEXT_NOTE, AddContext, EndRun, ask
from pilothouse.worlds.live.services.key_values import KeyValueService
from pilothouse.worlds.live.snapshots import EngineView
from pilothouse.worlds.live.world import LiveWorld

SCRIPT_NAME = "add-engines.sh"
"""In the run's folder: adds engines to the run."""


def start_run(options: RunOptions, given: str | ArgumentCommands, folder: Path | None, *, quiet: bool) -> int:
    """A new run of a task file, or of commands from arguments. The exit code."""
    tasks = TaskSource.named(given, kind=options.task_format or "", lenient=options.lenient)
    options.check()
    options.check_files(tasks.total, tasks.may_repeat)
    folder = _make_folder(folder, tasks.file or "tasks")
    with _locked(folder):
        journal = Journal(folder)
        if journal.noted:  # the plan is the first thing that is noted
            raise InputError(str(folder), "holds a run already", hint=f"go on with it: --resume {folder}")
        source = tasks.settle(folder)
        plan = RunPlan(
            options=options.settled(), source=str(source), cwd=os.getcwd(), total=tasks.total,
            digest=b"" if tasks.stream is not None else digest(source),
        )  # fmt: skip
        journal.put_notes(plan=msgspec.msgpack.encode(plan), started=time.time(), total=plan.total)
        stream = None if tasks.stream is None else tasks.stream(source)
        return _run(plan, folder, journal, stream, quiet=quiet)


def dry_run(options: RunOptions, given: str | ArgumentCommands) -> int:
    """Shows what would run. The exit code."""
    tasks = TaskSource.named(given, kind=options.task_format or "", lenient=options.lenient)
    options.check()
    options.check_files(tasks.total, tasks.may_repeat)
    reader = reader_for(tasks.file or "standard input", kind=options.task_format or "", lenient=options.lenient)
    count = show_tasks(reader.read(tasks.lines()))
    click.echo(f"{count:,} task{'s' if count != 1 else ''}; nothing was run", err=True)
    return 0


def resume_run(options: RunOptions, folder: Path, *, retry_failed: bool, quiet: bool) -> int:
    """Goes on with an earlier run. The exit code."""
    folder = folder.absolute()
    if not (folder / FILE_NAME).exists():
        raise InputError(str(folder), "no run was recorded here", expected=f"a folder with {FILE_NAME}")
    own_folder(folder, ours=True)
    with _locked(folder):
        journal = Journal(folder, must_exist=True)
        if not journal.noted:
            raise InputError(str(folder), "the run ended before it began", hint=f"start it again: --dir {folder}")
        plan = plan_of(folder, journal.note("plan"))
        plan.options = plan.options.on(options)
        if retry_failed:
            journal.reopen_failed(time.time())
        if plan.digest and plan.digest != digest(Path(plan.source)):
            _warn(f"{plan.source} is not as it was when the run began: tasks that have a result are not run again")
        os.chdir(plan.cwd)
        return _run(plan, folder, journal, None, quiet=quiet)


def show_next_requests(folder: Path) -> None:
    """Prints the tasks of a run with requests for what they were measured to use."""
    plan = plan_of(folder, read_note(folder, "plan"))
    lines = task_lines(
        plan.source, None, lambda: None, kind=plan.options.task_format or "", lenient=plan.options.lenient, on_problem=_on_problem
    )
    show_tasks(with_measured(filter(None, lines), read_tasks(folder)))


def _run(plan: RunPlan, folder: Path, journal: Journal, stream: Iterable[bytes] | None, *, quiet: bool) -> int:
    """`stream`: the task lines, if they come from standard input."""
    calm_collector()
    options = plan.options
    session, resumed = journal.begin_session(time.time())
    contexts = options.contexts()
    with undamaged(journal.path):
        contexts += [
            options.context_for(msgspec.json.decode(asked, type=AddContext), name)
            for name, asked in journal.notes(CONTEXT_NOTE).items()
            if asked
        ]
    # Engines that are added later may come from anywhere.
    listens = (ALL,) if options.service or options.auto else listening(contexts)
    service = KeyValueService(folder, listens=listens, redis=options.redis)
    world = LiveWorld(
        options.live_options(service.env), folder=folder, recorder=journal, total=plan.total, session=session,
        port=journal.number("port"), listens=listens, warn=_warn,
    )  # fmt: skip
    journal.put_notes(port=world.port, decider=options.by)
    if resumed:
        with undamaged(journal.path):
            world.restore(journal.replay())
    world.adopt(contexts, _is_gone)
    world.take_contexts(options.context_for)
    lines = task_lines(
        plan.source, stream, world.ring, kind=options.task_format or "", lenient=options.lenient, on_problem=_on_problem
    )
    world.feed(Feeder(lines, world.known))
    progress = RunProgress(world, plan.total, quiet=quiet, folder=folder)
    world.on_tick.append(progress.show)
    world.on_task.append(service.task_ended)
    if options.service or options.auto:
        world.no_more()
    decider = naming.decider(options.by, timeout=options.timeout)
    interrupts = Interrupts(world)
    added = str(folder / "added")
    try:
        with on_signals(interrupts, again=True), joinable(folder, JoinInfo(world.launch(), added)):
            script = write_script(folder / SCRIPT_NAME, added, folder, service.address)
            if options.service and not quiet:
                _warn(f"no engine is started here; add some: {script} -s HOST:SLOTS, or {script} in a batch job (-h: help)")
            with _allocations(options, world, script), supervised(options.decider_command):
                outcome = Session(world, decider, name=options.by).run()
    except RunError as error:
        if not interrupts.exit_code:
            raise
        _warn(str(error))
        return interrupts.exit_code
    finally:
        service.close()
    if not (folder / FILE_NAME).exists():
        raise RunError(f"{folder}: was removed while the run went on; its results are lost")
    code = progress.finish(outcome)
    return interrupts.exit_code or code


class Interrupts:
    """What signals do to a run. The first Ctrl-C lets running tasks end, the second ends them, the third kills them. Other
    signals come from programs, which may not wait: the first ends tasks, the second kills them."""

    def __init__(self, world: LiveWorld) -> None:
        self.exit_code = 0
        """As shells have it for Ctrl-C; 0: there was none."""
        self._world = world
        self._seen = 0

    def __call__(self, number: int) -> None:
        if number == signal.SIGINT:
            self.exit_code = 128 + number
        self._seen += 1 if number == signal.SIGINT or self._seen else 2
        if self._seen > 2:
            self._world.abandon()
            raise SystemExit(self.exit_code or 1)  # through every `finally`, wherever the run is
        self._world.call(self._finish if self._seen == 1 else self._stop)

    def _finish(self) -> None:
        _warn(f"{self._world.obey(EndRun('finish', 'interrupted'))}; Ctrl-C again ends what runs")

    def _stop(self) -> None:
        _warn(f"{self._world.obey(EndRun('stop', 'interrupted'))}; one more signal kills what runs")


def finish_run(folder: Path) -> None:
    """Asks the run of this folder to begin nothing more and to end when its running tasks have ended."""
    if not (folder / FILE_NAME).exists() or is_free(folder):
        raise InputError(str(folder), "no run goes on here")
    ask(folder, EndRun("finish", "asked to finish"))
    _warn(f"{folder}: asked to finish what runs; it begins nothing more")


def _is_gone(engine: EngineView) -> bool:
    """Whether an engine of an earlier driver is gone for sure: it was on this host, and its process has ended."""
    return engine.host == os.uname().nodename and not is_alive(engine.pid)


@contextmanager
def _allocations(options: RunOptions, world: LiveWorld, script: Path) -> Iterator[None]:
    """With --auto: batch jobs come and go with the work, and none outlives the run."""
    plan = options.allocation_plan()
    if plan is None:
        yield
        return
    from pilothouse.worlds.live.contexts.auto_allocation import AutoAllocation

    with closing(AutoAllocation(world, plan, script, _warn)):
        yield


def _on_problem(number: int, problem: str) -> None:
    _warn(f"line {number}: {problem}")


# ---- the folder


def _make_folder(folder: Path | None, file: str) -> Path:
    """The run's folder: as given, or the next free one beside the file."""
    if folder is not None:
        return own_folder(folder.absolute())
    stem = Path(file).absolute()
    number = 1
    while True:
        folder = stem.with_name(f"{stem.name}.run{number}")
        try:
            folder.mkdir(mode=0o700)
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise InputError(str(folder), f"cannot be made: {error.strerror}", hint="see --dir") from error


def _locked(folder: Path) -> AbstractContextManager[None]:
    return hold(folder, RunError(f"{folder}: a driver is at work on this run"))


def _warn(text: str) -> None:
    click.echo(f"pilothouse: {text}", err=True, file=sys.stderr)
