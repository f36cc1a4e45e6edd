"""Behind `pilothouse qcg`: puts a manager (or a governor) together, and runs it to its end."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import random
import socket
import sys
import time
import uuid
from pathlib import Path

import click
import msgspec

from pilothouse import __version__
from pilothouse.access.files import own_folder
from pilothouse.access.user import user_name
from pilothouse.core.session import Session
from pilothouse.dropins.qcg.bundles import Bundles
from pilothouse.dropins.qcg.executor import Executor
from pilothouse.dropins.qcg.files import ManagerFiles, Start, find_folder
from pilothouse.dropins.qcg.job_command import LaunchSettings
from pilothouse.dropins.qcg.job_queue import WINDOW
from pilothouse.dropins.qcg.manager import Manager, System
from pilothouse.dropins.qcg.options import Allocation, QcgOptions, allocation
from pilothouse.dropins.qcg.resume import gone_engines, restore
from pilothouse.dropins.qcg.service import Service
from pilothouse.formats.qcg_dialect import LATER, named
from pilothouse.formats.qcg_requests import FINISH_WHEN_DONE, read_requests
from pilothouse.journal.lock import hold
from pilothouse.journal.store import Journal, undamaged
from pilothouse.launch import naming
from pilothouse.launch.signals import on_signals
from pilothouse.model.errors import InputError, PilothouseError, RunError
from pilothouse.protocols.qcg.client import GovernorLink, Registration, read_key
from pilothouse.protocols.qcg.network import FOLDER_PREFIX, PORTS, Endpoint, Network
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.wire.messages import TaskEnvironment
from pilothouse.worlds.live.world import LiveWorld

DEFAULT_FILE = "qcg_pm_reqs.json"
LOCK_S = 60.0
"""How long a resumed manager waits for the one before it to end."""
OPEN_WARNING = "--open-to-all: everyone who reaches the network interface can run commands as you"
KILL_GRACE_S = 10.0
"""Between TERM and KILL when a job is cancelled, as in 0.14.2."""

LEFT_JOBS = 3
"""The exit code if the end of a request file ended the manager before its jobs."""

log = logging.getLogger("pilothouse.qcg")


def run(options: QcgOptions) -> int:
    """Runs one manager. Returns the exit code: 1 if it could not begin, LEFT_JOBS, or 0."""
    # A list of 100,000 jobs is a million objects that live long: frequent garbage collection costs a quarter.
    gc.set_threshold(200_000, 20, 100)
    starter = Starter(options.address_fd)
    try:
        return _run(options, starter)
    except PilothouseError as problem:
        # qcg-pm-service ends with 1 whatever is wrong at its start.
        click.echo(f"Error: {problem}", err=True)
        starter.tell(error=str(problem))
        return 1


class Starter:
    """The program that started this manager and waits at a descriptor (local_manager.py). It is told one thing."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def tell(self, **what: object) -> None:
        if self._fd is not None:
            with contextlib.suppress(BrokenPipeError), open(self._fd, "w", encoding="utf-8") as waiting:
                json.dump(what, waiting)
            self._fd = None


def _run(options: QcgOptions, starter: Starter) -> int:
    if options.parent and options.governs:
        raise InputError("--parent", "a governor has no governor", hint="leave out --parent or --governor")
    if options.governs and options.resume is not None:
        raise InputError("--resume", "a governor cannot be resumed", hint="resume the managers of its partitions")
    if options.parent or options.governs:
        if "dialect" in options.given and options.dialect != LATER.name:
            raise InputError("--dialect", "a governor and its managers speak 0.14", found=options.dialect)
        options.dialect = LATER.name
    file_path = options.file_path or (DEFAULT_FILE if options.file else None)
    if not file_path and not options.networked and options.resume is None:
        raise InputError("", "no interface enabled - finishing", hint="name a request file, or use --net")
    given = read_requests(file_path) if file_path else None
    wd = Path(options.wd).absolute()
    if options.resume is not None:
        folder = find_folder(Path(options.resume).absolute())
        wd = wd if "wd" in options.given else folder.parent
        options = _resumed(options, folder)
    else:
        folder = wd / f"{FOLDER_PREFIX}{options.instance or f'{socket.gethostname()}.{random.randrange(10_000)}'}"
    instance = folder.name.removeprefix(FOLDER_PREFIX)
    nodes = allocation(options) if not options.governs else None
    # Jobs that ask for GPUs get a variable of their own; the others must not see the manager's.
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    own_folder(folder, ours=True)
    _log_into(folder / "service.log", options.level)
    tags = ",".join([instance, *(options.tags.split(",") if options.tags else [])])
    log.info("service %s version %s started @ %s (with tags %s)", instance, __version__, socket.gethostname(), tags)
    for line in options.without_effect:
        log.warning("%s", line)
        click.echo(line, err=True)
    with hold(folder, RunError(f"{folder}: a manager is at work in this folder"), wait_s=LOCK_S):
        if nodes is not None:
            requests = _requests(folder, given)
            Start(options.kept(), [msgspec.Raw(text) for text in requests]).write(folder)
            try:
                return _manage(options, folder, wd, instance, nodes, requests, starter)
            except FileNotFoundError:
                if folder.exists():
                    raise
                raise RunError(f"{folder} was removed while the manager was at work") from None
        from pilothouse.dropins.qcg.governor_service import govern

        network = _network(options, folder, starter)
        govern(options, folder, network, _system(instance, wd, network, file=bool(file_path)), given or [])
        return 0


def _resumed(options: QcgOptions, folder: Path) -> QcgOptions:
    """The options of a manager that goes on with an earlier one."""
    earlier = Start.read(folder)
    if earlier is not None:
        return options.resumed(earlier.options)
    if not (folder / "track.reqs").exists():
        problem = "its manager was killed before it had kept its requests"
        raise InputError(str(folder), problem, hint="start it again without --resume")
    if "dialect" not in options.given:
        options.dialect = LATER.name  # the folder of a qcg-pm-service, or of one of our earlier versions
    return options


def _requests(folder: Path, given: list[bytes] | None) -> list[bytes]:
    """The requests of the file: the given one, or that which an earlier manager of this folder has kept."""
    earlier = Start.read(folder)
    kept = [bytes(text) for text in earlier.requests] if earlier is not None else []
    if given is None or given == kept:
        return kept
    left = len(kept) - ManagerFiles.requests_taken(folder)
    if left > 0:
        problem = f"{left} requests of its file are not taken yet"
        raise InputError(str(folder), problem, hint="resume it without a file first")
    (folder / "track.taken").unlink(missing_ok=True)
    return given


def _manage(
    options: QcgOptions, folder: Path, wd: Path, instance: str, nodes: Allocation, requests: list[bytes], starter: Starter
) -> int:
    dialect = named(options.dialect)
    journal = Journal(folder)
    session, earlier = journal.begin_session(time.time())
    live = LiveWorld(
        LiveOptions(
            window=WINDOW, grace_s=KILL_GRACE_S, bundle=1, task_env="", environment=TaskEnvironment(bind=nodes.slurm),
            engines_within_s=options.nl_init_timeout, enough_engines=options.nl_ready_threshold,
        ),
        folder=folder, recorder=journal, contexts=[] if earlier else [nodes.context], session=session,
        port=journal.number("port"), listens=nodes.context.listens(), warn=log.warning,
    )  # fmt: skip
    journal.put_notes(port=live.port, decider=options.by)
    if earlier:
        with undamaged(journal.path):
            live.restore(journal.replay())
        live.adopt([nodes.context], gone_engines(nodes.context.name))
    report_format = options.report_format or _report_format(folder / options.report_file) or dialect.report_format
    files = ManagerFiles(folder, options.report_file, report_format, requests=len(requests))
    files.write_environment(os.environ)
    network = _network(options, folder, starter) if options.networked else None
    files.link_into(wd, dialect)
    manager = Manager(
        _system(instance, wd, network, file=bool(requests)), (), lambda: uuid.uuid4().hex,
        cluster=nodes.cluster, reserved=nodes.reserved, dialect=dialect,
    )  # fmt: skip
    settings = LaunchSettings(
        root_wd=str(wd),
        address=network.address if network is not None else None,
        slurm=nodes.slurm,
        slurm_variables=options.envschema == "slurm" or (options.envschema == "auto" and nodes.slurm),
        binding=nodes.slurm,
    )
    # Over ssh the manager's folder need not be the same on every node.
    bundles = Bundles(folder, sys.executable, session, enabled=not options.hosts)
    executor = Executor(live, manager.queue, settings, bundles)
    # The folder of a qcg-pm-service has no journal of ours, but tracks jobs in the same files.
    resumed = options.resume is not None or earlier
    service = Service(
        live, manager, executor, files, network=network, requests=requests, node_order=nodes.names,
        restore=(lambda: restore(executor, files)) if resumed else None,
        progress=click.echo if options.show_progress else None,
        governor=_governor_link(options, instance, network, nodes),
    )  # fmt: skip
    if network is not None:
        files.write_address(network.address)
        log.info("network interface @ %s, events @ %s", network.address, network.events_address)
    with on_signals(lambda _number: live.call(service.terminate)):
        Session(service, naming.decider(options.by), name=options.by).run()
    if not service.left:
        return 0
    jobs = len(manager.registry.entries)
    click.echo(
        f"{service.left} of {jobs} jobs did not run to their end, because the manager finishes at the end of the request file; "
        f'add {{"request": "control", "command": "{FINISH_WHEN_DONE}"}} to the file, or go on with --resume {folder}', err=True
    )  # fmt: skip
    return LEFT_JOBS


def _report_format(report: Path) -> str:
    """The format that an earlier manager has begun the report in; "" if there is none."""
    begun = report.read_bytes()[:1] if report.exists() else b""
    return {b"": "", b"{": "json"}.get(begun, "text")


def _governor_link(
    options: QcgOptions, instance: str, network: Network | None, nodes: Allocation
) -> GovernorLink | None:
    if not options.parent or network is None:
        return None
    registration = Registration(instance, network.address, nodes.nodes, nodes.reserved, nodes.slurm, network.key)
    link = GovernorLink(options.parent, registration, key=read_key(options.parent_key))
    if not nodes.context.remote:
        # Nodes on this host are ready in a moment. Others register when they are.
        link.register()
    return link


def _network(options: QcgOptions, folder: Path, starter: Starter) -> Network:
    low = options.net_port_min or PORTS.start
    high = options.net_port_max or PORTS.stop - 1
    if low > high:
        raise InputError("--net-port-min", f"no port between {low} and {high}")
    former = (folder / "address").read_text(encoding="utf-8") if (folder / "address").exists() else ""
    if options.open_to_all:
        log.warning("%s", OPEN_WARNING)
        click.echo(f"Warning: {OPEN_WARNING}", err=True)
    endpoint = Endpoint(
        options.net_address, options.net_port, options.net_pub_port, range(low, high + 1), not options.disable_pub,
        int(former.rpartition(":")[2]) if former else None, options.open_to_all,
    )  # fmt: skip
    network = Network(endpoint, folder)
    starter.tell(zmq_addresses=[network.address])
    return network


def _system(instance: str, wd: Path, network: Network | None, *, file: bool) -> System:
    return System(
        instance,
        time.time(),
        host=socket.gethostname(),
        account=user_name(),
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
    logging.getLogger("pilothouse.access").handlers[:] = [handler]
    log.setLevel(level.upper())
    log.propagate = False
