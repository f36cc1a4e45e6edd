"""Behind `pilothouse qcg`: putting a manager together, going on with an earlier one, and ending in order."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import getpass
import logging
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec

from pilothouse import __version__
from pilothouse.core.session import Session
from pilothouse.dropins.qcg.answers import System
from pilothouse.dropins.qcg.bundles import Bundle, Bundles, is_bundle
from pilothouse.dropins.qcg.choices import Allocation, Choices, allocation
from pilothouse.dropins.qcg.client import read_key
from pilothouse.dropins.qcg.folder import PREFIX, Folder, find_folder
from pilothouse.dropins.qcg.launch import Surroundings
from pilothouse.dropins.qcg.layout import Layout
from pilothouse.dropins.qcg.network import PORTS, Endpoint, Network
from pilothouse.dropins.qcg.nodes import VirtualNodes
from pilothouse.dropins.qcg.parent import Parent, Registration
from pilothouse.dropins.qcg.registry import split_name
from pilothouse.dropins.qcg.service import Service
from pilothouse.dropins.qcg.work import WINDOW, Past
from pilothouse.formats.qcg_description import Dialect
from pilothouse.formats.qcg_requests import RequestError, preferred_dialect, split_requests
from pilothouse.journal.store import FILE_NAME, Journal
from pilothouse.launch import naming
from pilothouse.launch.running import is_alive
from pilothouse.model.errors import InputError, PilothouseError, RunError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Node
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import JobKnown, Note, TaskEnded
from pilothouse.worlds.live.snapshots import EngineView
from pilothouse.worlds.live.wire.messages import TaskEnvironment
from pilothouse.worlds.live.world import LiveWorld

DEFAULT_FILE = "qcg_pm_reqs.json"
LOCK_S = 60.0
"""How long a resumed manager waits for the one before it to end."""
KILL_GRACE_S = 10.0
"""Between TERM and KILL when a job is cancelled, as in 0.14.2."""

_ALLOCATION = re.compile(r"J\d+")

log = logging.getLogger("pilothouse.qcg")


def run(choices: Choices) -> int:
    """Runs one manager. The exit code: 1 where it could not begin, else 0."""
    # A list of 100,000 jobs is a million objects that live on: looking through them again and again costs a quarter.
    gc.set_threshold(200_000, 20, 100)
    try:
        _run(choices)
    except PilothouseError as problem:
        # qcg-pm-service ends with 1 for every kind of wrong beginning.
        click.echo(f"Error: {problem}", err=True)
        return 1
    return 0


def _run(choices: Choices) -> None:
    if choices.parent and choices.governs:
        raise InputError("--parent", "a governor has no governor", hint="leave out --parent or --governor")
    if choices.governs and choices.resume is not None:
        raise InputError("--resume", "a governor cannot be resumed", hint="resume the managers of its partitions")
    if choices.file and not choices.file_path:
        choices.file_path = DEFAULT_FILE
    if not choices.file_path and not choices.networked and choices.resume is None:
        raise InputError("", "no interface enabled - finishing", hint="name a request file, or use --net")
    requests = _read_requests(choices.file_path) if choices.file_path else None
    wd = Path(choices.wd).absolute()
    instance = choices.instance or f"{socket.gethostname()}.{random.randrange(10_000)}"
    if choices.resume is not None:
        path = find_folder(Path(choices.resume).absolute())
        instance = path.name.removeprefix(PREFIX)
    else:
        path = wd / f"{PREFIX}{instance}"
    where = allocation(choices) if not choices.governs else None
    # Jobs that asked for GPUs are told theirs; the others must not see those of everybody.
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    path.mkdir(parents=True, exist_ok=True)
    _log_into(path / "service.log", choices.level)
    tags = ",".join([instance, *(choices.tags.split(",") if choices.tags else [])])
    log.info("service %s version %s started @ %s (with tags %s)", instance, __version__, socket.gethostname(), tags)
    for line in choices.without_effect:
        log.warning("%s", line)
        click.echo(line, err=True)
    with _lock(path):
        if where is not None:
            _manage(choices, path, wd=wd, instance=instance, allocation=where, requests=requests)
            return
        from pilothouse.dropins.qcg.govern import govern

        network = _network(choices, path)
        govern(choices, path, network, _system(instance, wd, network, file=requests is not None), requests or [])


def _manage(
    choices: Choices, path: Path, *, wd: Path, instance: str, allocation: Allocation, requests: list[bytes] | None
) -> None:
    journal = Journal(path)
    session = int(journal.note("session") or b"0") + 1
    live = LiveWorld(
        LiveOptions(
            window=WINDOW, grace_s=KILL_GRACE_S, bundle=1, task_env="", environment=TaskEnvironment(bind=allocation.slurm),
            engines_within_s=choices.nl_init_timeout, enough_engines=choices.nl_ready_threshold,
        ),
        folder=path, recorder=journal, session=session, port=int(journal.note("port") or b"0"),
        remote=allocation.context.remote, warn=log.warning,
    )  # fmt: skip
    journal.write([Note("port", str(live.port).encode()), Note("session", str(session).encode())])
    known: list[str] = []
    if session > 1:
        known = _known_jobs(journal)
        live.restore(journal.replay())
    live.adopt([allocation.context], _gone_engines(allocation.context.name))
    specified = requests is not None and preferred_dialect(requests) is Dialect.SPECIFICATION
    folder = Folder(path, choices.report_file, choices.report_format or _report_format(path, choices, specified))
    folder.write_environment(os.environ)
    network = _network(choices, path) if choices.networked else None
    if specified:
        folder.link_into(wd)
    service = Service(
        live,
        _system(instance, wd, network, file=requests is not None),
        folder,
        Surroundings(
            root_wd=str(wd),
            address=network.address if network is not None else None,
            slurm=allocation.slurm,
            slurm_variables=choices.envschema == "slurm" or (choices.envschema == "auto" and allocation.slurm),
            binding=allocation.slurm,
        ),
        clock=time.time,
        network=network,
        requests=requests,
        node_order=allocation.names,
        cluster=allocation.cluster,
        # Over ssh the folder need not be the same everywhere.
        bundles=Bundles(path, sys.executable, session) if not choices.hosts else None,
        # A folder without a session of ours was that of a qcg-pm-service: it tracks jobs in the same files.
        restore=(lambda service: _restore(service, path, known)) if choices.resume is not None or session > 1 else None,
        progress=click.echo if choices.show_progress else None,
        parent=_parent(choices, instance, network, allocation),
        reserved=allocation.reserved,
    )
    if network is not None:
        folder.write_address(network.address)
        log.info("network interface @ %s, events @ %s", network.address, network.events_address)
    _end_on_signals(service)
    Session(service, naming.decider(choices.by), name=choices.by).run()


def _report_format(path: Path, choices: Choices, specified: bool) -> str:
    """What was begun is gone on with; else the form of the dialect that the requests are written in."""
    report = path / choices.report_file
    begun = report.read_bytes()[:1] if report.exists() else b""
    if begun:
        return "json" if begun == b"{" else "text"
    return "text" if specified else "json"


def _parent(choices: Choices, instance: str, network: Network | None, allocation: Allocation) -> Parent | None:
    """The governor, if there is one."""
    if not choices.parent or network is None:
        return None
    registration = Registration(
        instance, network.address, allocation.nodes, allocation.reserved, allocation.slurm, network.key
    )
    parent = Parent(choices.parent, registration, key=read_key(choices.parent_key))
    if not allocation.context.remote:
        # Nodes on this host are at work in a moment. Others register when they are.
        parent.register()
    return parent


def _read_requests(path: str) -> list[bytes]:
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise InputError(path, "cannot be read", found=error.strerror or "") from None
    try:
        return split_requests(text, path)
    except RequestError as error:
        raise InputError("", str(error)) from None


def _network(choices: Choices, path: Path) -> Network:
    low = choices.net_port_min or PORTS.start
    high = choices.net_port_max or PORTS.stop - 1
    if low > high:
        raise InputError("--net-port-min", f"no port between {low} and {high}")
    former = (path / "address").read_text(encoding="utf-8") if (path / "address").exists() else ""
    endpoint = Endpoint(
        choices.net_address,
        choices.net_port,
        choices.net_pub_port,
        range(low, high + 1),
        not choices.disable_pub,
        int(former.rpartition(":")[2]) if former else None,
    )
    return Network(endpoint, path)


def _system(instance: str, wd: Path, network: Network | None, *, file: bool) -> System:
    return System(
        instance,
        time.time(),
        host=socket.gethostname(),
        account=getpass.getuser(),
        wd=str(wd),
        python_version=sys.version.replace("\n", " "),
        python=sys.executable,
        platform=sys.platform,
        address=network.address if network is not None else None,
        publisher=network.events_address if network is not None else None,
        interfaces=tuple(name for name, on in (("FILE", file), ("ZMQ", network is not None)) if on),
    )


def _log_into(path: Path, level: str) -> None:
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s: %(message)s"))
    log.handlers[:] = [handler]
    log.setLevel(level.upper())
    log.propagate = False


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One manager at a time in one folder; one that is being terminated is waited for."""
    until = time.monotonic() + LOCK_S
    with (path / "lock").open("w") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise RunError(f"{path}: a manager is at work in this folder") from None
                time.sleep(0.1)
        yield


def _end_on_signals(service: Service) -> None:
    """The first signal ends the manager in order, a second one at once."""

    def on_signal(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        service.live.call(service.terminate)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)


# ---- going on with an earlier manager


def _known_jobs(journal: Journal) -> list[str]:
    """Jobs that the live world had been given and that had not ended."""
    known: dict[str, None] = {}
    for record in journal.replay():
        if isinstance(record, JobKnown):
            known[record.job_id] = None
        elif isinstance(record, TaskEnded) and record.final:
            known.pop(record.job_id, None)
    return list(known)


def _gone_engines(here: str) -> Callable[[EngineView], bool]:
    """Engines that are gone for sure need not be waited for: on this host those without a process, in Slurm those of an
    allocation that is over. Others may yet be heard of."""
    is_over = functools.cache(_is_over)

    def is_gone(engine: EngineView) -> bool:
        if engine.context == VirtualNodes.NAME:
            return not is_alive(engine.pid)
        return engine.context != here and is_over(engine.context)

    return is_gone


def _is_over(context: str) -> bool:
    """Whether this is a Slurm allocation (`J4711`) that does not run any more."""
    if not _ALLOCATION.fullmatch(context) or shutil.which("squeue") is None:
        return False
    command = ["squeue", "--noheader", f"--jobs={context[1:]}", "--states=running,suspended", "--format=%i"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    # A job that is long over is not known any more.
    return not told.stdout.strip() and (told.returncode == 0 or "Invalid job id" in told.stderr)


def _restore(service: Service, path: Path, known: list[str]) -> None:
    """The registry as it was: accepted jobs, how they ended, and what the live world still has."""
    folder, work, now = service.folder, service.manager.work, time.time()
    folder.read_reported()
    ended, where = _ends(path)
    states = folder.tracked_states()
    for planned, arrived in folder.tracked_jobs():
        if planned.name in work.registry:
            work.replace(planned.name)
        work.enter([planned], arrived or now)
    work.outbox.accepted.clear()
    for job_id, past in ended.items():
        job, index = split_name(job_id.partition("#")[0])
        entry = work.registry.entries.get(job)
        if entry is None or (
            past.state is JobState.KILLED and states.get(entry.full_name(index)) is not JobState.KILLED
        ):
            continue  # ended with the manager, not by anybody's wish: it runs again
        work.restore((entry, index), past, now)
    bundles = list(service.executor.bundles.found()) if service.executor.bundles is not None else []
    for bundle in bundles:
        _restore_results(service, bundle, where.get(bundle.id, ("", "")), now)
    for name, state in states.items():
        job, index = split_name(name)
        entry = work.registry.entries.get(job)
        if entry is None:
            continue
        if state is None:
            work.remove(entry)
        elif index is None or (entry.parts is not None and index in entry.parts.iteration):
            work.restore((entry, index), Past(state), now)
    work.outbox.removed.clear()
    service.executor.adopt(known)
    for bundle in bundles:
        service.executor.adopt_bundle(bundle)
    log.info("resumed: %d jobs, %d of them unfinished", len(work.registry), work.registry.unfinished)


def _restore_results(service: Service, bundle: Bundle, where: tuple[str, str], now: float) -> None:
    """The members of a bundle that had ended, by its results file."""
    assert service.executor.bundles is not None
    for result in service.executor.bundles.results(bundle):
        job, index = split_name(result.job_id.partition("#")[0])
        entry = service.manager.work.registry.entries.get(job)
        if entry is None or result.reason == "killed":
            continue
        state = JobState.SUCCEEDED if result.return_code == 0 else JobState.FAILED
        past = Past(state, *where, result.started_at, result.ended_at, result.return_code, result.pid)
        service.manager.work.restore((entry, index), past, now)


def _wd_of(data: bytes) -> str:
    """The directory of a job in the journal."""
    job = msgspec.msgpack.decode(data)
    command = job.get("command") if isinstance(job, dict) else None
    return str(command.get("cwd", "")) if isinstance(command, dict) else ""


def _ends(path: Path) -> tuple[dict[str, Past], dict[str, tuple[str, str]]]:
    """By the journal: how jobs ended (the last word about each), and where jobs ran (in both dialects' words)."""
    with contextlib.closing(sqlite3.connect(f"file:{path / FILE_NAME}?mode=ro", uri=True)) as db:
        nodes = [Node(*row) for row in db.execute("SELECT node, first_unit, slots FROM engines ORDER BY first_unit")]
        wds = {job_id: _wd_of(data) for job_id, data in db.execute("SELECT job_id, data FROM jobs")}
        units = dict(db.execute("SELECT job_id, units FROM assignments ORDER BY id"))
        rows = db.execute(
            "SELECT job_id, state, started_at, ended_at, return_code, pid"
            " FROM ends WHERE final AND job_id != '' ORDER BY rowid"
        ).fetchall()
    layout = Layout(tuple(nodes))
    where = {}
    for job_id, text in units.items():
        cores = IdSet.parse(text)
        where[job_id] = (layout.named_cores(cores), layout.counted_cores(cores))
    states = {state.value: state for state in JobState}
    ends = {
        job_id: Past(
            states[state],
            *(where.get(job_id, ("", "")) if pid > 0 else ("", "")),
            started,
            ended,
            code,
            pid,
            wds.get(job_id, ""),
        )
        for job_id, state, started, ended, code, pid in rows
        if not is_bundle(job_id)
    }
    return ends, where
