"""Behind `pilothouse run`: making a run's folder, going on with one, and telling how it goes."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from math import inf
from pathlib import Path

import click
import msgspec

from pilothouse.core.session import Session
from pilothouse.formats.task_file import TaskLine, TaskReader, check_file, read_file
from pilothouse.journal.lock import hold
from pilothouse.journal.store import FILE_NAME, Journal
from pilothouse.launch.add_engines import JoinInfo, joinable, write_script
from pilothouse.launch.running import calm_collector, is_alive, supervised
from pilothouse.launch.signals import on_signals
from pilothouse.model.errors import InputError, RunError, quoted
from pilothouse.model.job import Shape
from pilothouse.views.run_progress import RunProgress
from pilothouse.worlds.live.contexts.allocator import AllocationPlan
from pilothouse.worlds.live.contexts.programs import ProgramContext
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import Note
from pilothouse.worlds.live.services.key_values import KeyValueService
from pilothouse.worlds.live.snapshots import EngineView
from pilothouse.worlds.live.stream_lines import StreamLines
from pilothouse.worlds.live.wire.messages import TaskEnvironment
from pilothouse.worlds.live.world import LiveWorld

TASKS_FILE = "tasks.txt"
SCRIPT_NAME = "add-engines.sh"
"""In the run's folder: adds engines to the run."""


class Choices(msgspec.Struct, kw_only=True):
    """The options of the command, by their names."""

    file: str | None
    folder: Path | None
    resume: Path | None
    slots: int | None
    hosts: tuple[str, ...]
    slurm: bool
    units: int
    gpus_per_task: int
    gpu_list: str | None
    bind: bool
    walltime: float | None
    grace: float
    retries: int
    reissue: bool
    once: str
    fail_fast: bool
    out: str
    err: str
    by: str
    bundle: int
    window: int | None
    wait_for_driver: float
    lost_after: float
    lenient: bool
    quiet: bool
    retry_failed: bool = False
    service: bool = False
    redis: str = ""
    auto_slurm: int = 0
    auto_slots: int = 0
    auto_idle: float = 300.0
    sbatch_options: str = ""
    decider_command: str | None = None
    decider_timeout: float | None = None


class RunPlan(msgspec.Struct, kw_only=True):
    """What a run must remember to be resumed; noted in its journal."""

    options: LiveOptions
    source: str
    cwd: str
    by: str
    lenient: bool
    hosts: tuple[str, ...] = ()
    slurm: bool = False
    slots: int = 1
    gpus: tuple[str, ...] = ()
    total: int | None = None
    digest: bytes = b""
    """Of the task file as it was in the beginning."""
    from_stdin: bool = False
    service: bool = False
    redis: str = ""
    auto: AllocationPlan | None = None
    decider_command: str | None = None
    decider_timeout: float | None = None


def start_run(choices: Choices) -> int:
    """A new run. The exit code."""
    assert choices.file is not None
    if _put_on_standard_input(choices.file):
        choices = msgspec.structs.replace(choices, file="-")
    assert choices.file is not None
    stdin = choices.file == "-"
    total = None
    if not stdin:
        path = Path(choices.file)
        if not choices.lenient:
            total = check_file(path).tasks
        elif not path.is_file():
            raise InputError(choices.file, "no such task file")
    options = _options(choices)
    _check_names(choices)
    folder = _make_folder(choices)
    source = folder / TASKS_FILE if stdin else Path(choices.file).absolute()
    plan = RunPlan(
        options=options, source=str(source), cwd=os.getcwd(), by=choices.by, lenient=choices.lenient,
        hosts=choices.hosts, slurm=_in_slurm(choices), slots=choices.slots or len(os.sched_getaffinity(0)),
        gpus=_gpus(choices), total=total, digest=b"" if stdin else _digest(source), from_stdin=stdin,
        service=choices.service, redis=choices.redis,
        auto=_auto(choices), decider_command=choices.decider_command, decider_timeout=choices.decider_timeout,
    )  # fmt: skip
    with _locked(folder):
        journal = Journal(folder)
        journal.write([Note("plan", msgspec.msgpack.encode(plan)), Note("started", str(time.time()).encode())])
        if total is not None:
            journal.write([Note("total", str(total).encode())])
        return _run(plan, folder, journal, choices)


def _put_on_standard_input(name: str) -> bool:
    """A pipe that has a name, as `<(command)` has, can be read once only: it takes the place of standard input. False for all
    that is no pipe.
    """
    try:
        mode = os.stat(name).st_mode
        if name == "-" or stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            return False
        pipe = os.open(name, os.O_RDONLY)
    except OSError:
        return False  # whoever reads it says why it cannot be read
    os.dup2(pipe, 0)
    os.close(pipe)
    return True


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "blake2b").digest()
    except OSError as error:
        raise InputError(str(path), f"cannot read the task file: {error.strerror}") from error


def _check_names(choices: Choices) -> None:
    """Mistakes in names are told before anything is made."""
    from pilothouse.launch import naming

    if choices.hosts:
        from pilothouse.worlds.live.contexts.ssh import parse_hosts

        parse_hosts(choices.hosts)
    if choices.by.partition(":")[0] not in ("batsim", "edc", "rfc27"):
        naming.policy(choices.by)


def resume_run(choices: Choices) -> int:
    """Goes on with an earlier run. The exit code."""
    assert choices.resume is not None
    folder = choices.resume.absolute()
    with _locked(folder):
        journal = Journal(folder, must_exist=True)
        noted = journal.note("plan")
        if noted is None:
            raise InputError(str(folder), "its journal is not one of `pilothouse run`")
        plan = msgspec.msgpack.decode(noted, type=RunPlan)
        if choices.slots or choices.hosts or choices.slurm:
            hosts = choices.hosts or (() if choices.slots else plan.hosts)
            plan = msgspec.structs.replace(plan, slots=choices.slots or plan.slots, hosts=hosts, slurm=choices.slurm)
        if choices.decider_command:
            plan = msgspec.structs.replace(plan, decider_command=choices.decider_command)
        if choices.retry_failed:
            journal.reopen_failed()
        if plan.digest and plan.digest != _digest(Path(plan.source)):
            _warn(f"{plan.source} is not as it was when the run began: what has a result is not run again, whatever it says now")
        os.chdir(plan.cwd)
        return _run(plan, folder, journal, choices)


def _run(plan: RunPlan, folder: Path, journal: Journal, choices: Choices) -> int:
    from pilothouse.launch import naming

    calm_collector()
    session = int(journal.note("session") or b"0") + 1
    remote = bool(plan.hosts) or plan.slurm or plan.service or plan.auto is not None
    service = KeyValueService(folder, remote=remote, redis=plan.redis)
    options = msgspec.structs.replace(plan.options, env={**plan.options.env, **service.env})
    world = LiveWorld(
        options, folder=folder, recorder=journal, total=plan.total, session=session,
        port=int(journal.note("port") or b"0"), remote=remote, warn=_warn,
    )  # fmt: skip
    journal.write([Note("port", str(world.port).encode()), Note("session", str(session).encode())])
    if session > 1:
        world.restore(journal.replay())
    world.adopt(_contexts(plan), _is_gone)
    world.feed(Feeder(_lines(plan, world, fresh=session == 1), world.known))
    progress = RunProgress(world, plan.total, quiet=choices.quiet, folder=folder)
    world.on_tick.append(progress.show)
    world.on_task.append(service.task_ended)
    if plan.options.service:
        world.no_more()
    decider = naming.decider(plan.by, timeout=plan.decider_timeout)
    interrupt = on_signals(lambda _number: world.call(lambda: world.stop("interrupted")))
    try:
        added = str(folder / "added")
        with interrupt, joinable(folder, JoinInfo(world.launch(), added)):
            script = write_script(folder / SCRIPT_NAME, added, folder, service.address)
            with _allocations(plan, world, script), supervised(plan.decider_command):
                outcome = Session(world, decider, name=plan.by).run()
    finally:
        service.close()
    return progress.finish(outcome)


@contextmanager
def _allocations(plan: RunPlan, world: LiveWorld, script: Path) -> Iterator[None]:
    """With --auto-slurm: batch jobs come and go with the work, and none outlives the run."""
    if plan.auto is None:
        yield
        return
    from pilothouse.worlds.live.contexts.allocator import Allocator
    from pilothouse.worlds.live.contexts.auto_allocation import AutoAllocation
    from pilothouse.worlds.live.contexts.slurm_queue import SlurmQueue

    name = f"pilothouse-{world.folder.name}"[:60]
    log = str(world.folder / "allocation-%j.log")
    queue = SlurmQueue(str(script), name=name, log=log)
    allocation = AutoAllocation(world, Allocator(plan.auto), queue, _warn)
    world.on_tick.append(allocation.look)
    try:
        yield
    finally:
        allocation.close()


def _auto(choices: Choices) -> AllocationPlan | None:
    if not choices.auto_slurm:
        return None
    if not choices.auto_slots:
        raise InputError("--auto-slurm", "how many slots does one allocation bring?", expected="--auto-slots N")
    return AllocationPlan(
        slots=choices.auto_slots, most=choices.auto_slurm, idle_s=choices.auto_idle,
        options=tuple(shlex.split(choices.sbatch_options)) or (f"--ntasks={choices.auto_slots}",),
    )  # fmt: skip


def _is_gone(engine: EngineView) -> bool:
    """Whether an engine of an earlier driver is gone for sure: it was on this host, and its process has ended."""
    return engine.host == os.uname().nodename and not is_alive(engine.pid)


def _lines(plan: RunPlan, world: LiveWorld, *, fresh: bool) -> Iterator[TaskLine | None]:
    if plan.from_stdin and fresh:
        reader = TaskReader("standard input", lenient=plan.lenient, on_problem=_on_problem)
        return iter(StreamLines(_kept_input(plan.source), reader, world.ring))
    try:
        stream = open(plan.source, "rb")  # noqa: SIM115 - read until the end of the run
    except OSError as error:
        raise InputError(plan.source, f"cannot read the task file: {error.strerror}") from error
    return read_file(stream, plan.source, lenient=plan.lenient, on_problem=_on_problem)


def _kept_input(source: str) -> Iterator[bytes]:
    """The lines of standard input, each kept in the run's folder first, so that the run can be resumed."""
    with open(0, "rb", closefd=False) as stream, open(source, "ab", buffering=0) as copy:
        for line in stream:
            copy.write(line)
            yield line


def _on_problem(number: int, problem: str) -> None:
    _warn(f"line {number}: {problem}")


def _options(choices: Choices) -> LiveOptions:
    for option, template in (("--out", choices.out), ("--err", choices.err)):
        try:
            template.format(task=0, line=0, repeat=0, attempt=0)
        except (KeyError, IndexError, ValueError):
            raise InputError(
                option, "not a file name with placeholders", expected="{task}, {line}, {repeat} or {attempt}",
                found=quoted(template),
            ) from None  # fmt: skip
    environment = TaskEnvironment(stdout=choices.out, stderr=choices.err, bind=choices.bind)
    shape = None
    if choices.gpus_per_task:
        shape = Shape(nodes=1, most_nodes=1, gpus_per_node=choices.gpus_per_task)
    return LiveOptions(
        units=choices.units, shape=shape, walltime=inf if choices.walltime is None else choices.walltime,
        environment=environment, retries=choices.retries, reissue=choices.reissue,
        at_most_once=choices.once == "at-most", fail_fast=choices.fail_fast, bundle=choices.bundle,
        window=choices.window or 0, lost_after_s=choices.lost_after, wait_for_driver_s=choices.wait_for_driver,
        grace_s=choices.grace, service=choices.service or bool(choices.auto_slurm),
    )  # fmt: skip


def _contexts(plan: RunPlan) -> list[ProgramContext]:
    if plan.service or plan.auto is not None:
        return []
    if plan.hosts:
        from pilothouse.worlds.live.contexts.ssh import SshContext, parse_hosts

        return [SshContext(parse_hosts(plan.hosts))]
    if plan.slurm:
        from pilothouse.worlds.live.contexts.slurm import SlurmContext

        return [SlurmContext.of_environment(os.environ)]
    from pilothouse.worlds.live.contexts.local import LocalContext

    return [LocalContext(plan.slots, gpus=plan.gpus)]


def _in_slurm(choices: Choices) -> bool:
    """Asked for, or inside an allocation with nothing else asked for."""
    elsewhere = choices.hosts or choices.slots or choices.service or choices.auto_slurm
    return choices.slurm or ("SLURM_JOB_ID" in os.environ and not elsewhere)


def _gpus(choices: Choices) -> tuple[str, ...]:
    text = choices.gpu_list if choices.gpu_list is not None else os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _make_folder(choices: Choices) -> Path:
    """The run's folder: as given, or the next free one beside the file."""
    assert choices.file is not None
    if choices.folder is not None:
        if (choices.folder / FILE_NAME).exists():
            raise InputError(
                str(choices.folder), "holds a run already", hint=f"go on with it: --resume {choices.folder}"
            )
        try:
            choices.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(str(choices.folder), f"cannot be made: {error.strerror}") from error
        return choices.folder.absolute()
    stem = Path("tasks" if choices.file == "-" else choices.file).absolute()
    number = 1
    while True:
        folder = stem.with_name(f"{stem.name}.run{number}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise InputError(str(folder), f"cannot be made: {error.strerror}", hint="see --dir") from error


def _locked(folder: Path) -> AbstractContextManager[None]:
    return hold(folder, RunError(f"{folder}: a driver is at work on this run"))


def _warn(text: str) -> None:
    click.echo(f"pilothouse: {text}", err=True, file=sys.stderr)
