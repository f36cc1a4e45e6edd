"""One run of the drop-in: a live world fed by a task file, with disBatch's files, messages and exit codes around it.

In: RunOptions. Out: the exit code; status file, logs, utility script, key-value service.
Mistakes in directives are logged and passed over, as disBatch does; `pilothouse run` is the strict way.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from pilothouse.access.files import open_shared, write_whole
from pilothouse.access.interfaces import ALL, towards_by_ssh
from pilothouse.access.peer import Peer, Whose
from pilothouse.core.session import Session
from pilothouse.dropins.disbatch.bridge import Bridge, Kvs, KvsTasks, RemoteKvs, status_line
from pilothouse.dropins.disbatch.foreign_engines import ForeignEngines, PerEngine, fed, info_of_line
from pilothouse.dropins.disbatch.mail import Mailer
from pilothouse.dropins.disbatch.names import hold_folder, run_folder, source_name, unique_id
from pilothouse.dropins.disbatch.options import RunOptions
from pilothouse.dropins.disbatch.status_file import EarlierRuns, StatusLine, StatusWriter
from pilothouse.formats.task_file import LineKind, TaskLine, TaskReader, check_stream
from pilothouse.journal.store import Journal
from pilothouse.launch import naming
from pilothouse.launch.add_engines import JoinInfo, claim_rank, joinable, open_context, open_log, write_script
from pilothouse.launch.signals import on_signals
from pilothouse.model.errors import InputError
from pilothouse.model.lifecycle import JobState
from pilothouse.model.numerals import whole_number
from pilothouse.protocols.disbatch import messages as d
from pilothouse.protocols.disbatch import pickles
from pilothouse.worlds.live.contexts.layout import NoContext, only_here
from pilothouse.worlds.live.contexts.nodes import NodesContext
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.records import NO_ENGINE, EngineJoined, EngineLeft, Record, TaskEnded, barrier_passed
from pilothouse.worlds.live.services.kvs_client import SECRET_VARIABLE
from pilothouse.worlds.live.services.kvs_server import KvsServer, everyone, only_us
from pilothouse.worlds.live.services.redis_shelf import RedisShelf
from pilothouse.worlds.live.stream_lines import StreamLines
from pilothouse.worlds.live.world import LiveWorld

POLICY = "fcfs"
LINGER_S = 5.0
"""disBatch's: a slot is held until the output of background commands is closed, at most so long for each stream."""
FOREIGN_S = 15.0
"""How long real engines of disBatch may take to stop when all work is done: they need the key-value service until then."""
DRIVER_GONE_S = 10.0
"""A disBatch that was killed does not come back: -r is a new run, which repeats tasks without a result. Engines that do not
hear their driver for so long end their tasks and go."""
_MOST_SKIPPED_AT_ONCE = 1000
"""Lines of skipped tasks that are kept before they are written."""
REDIS_VARIABLE = "PILOTHOUSE_KVS_REDIS"
"""A `redis://` address: where the values of the key-value service are kept (disBatch has no option for it)."""

log = logging.getLogger("disBatch.driver")


class DisbatchRun:
    """Everything of one run. `run` returns the exit code."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self.failed = 0
        self._source = source_name(options.task_file)
        self._id = unique_id(options.prefix, self._source, time.time(), random.randrange(1000))
        self._folder = run_folder(self._id)
        self._log_path = options.log_file or f"{self._id}_driver.log"
        self._host = socket.gethostname()
        self._secret = secrets.token_urlsafe(24)
        """Of the key-value service, for our own clients."""
        self._kvs: Kvs | None = None
        self._per_engine: PerEngine | None = None
        self._foreign: ForeignEngines | None = None
        self._world: LiveWorld | None = None
        self._skipped: list[StatusLine] = []
        self._ranks: dict[str, int] = {}
        """Of all engines that have joined, by their ids."""
        self._interrupted = 0
        self._total: int | None = None
        """Tasks to run, where that can be known beforehand."""
        self._kvs_tasks: KvsTasks | None = None
        self._task_program: subprocess.Popen[bytes] | None = None
        self._tasks_at = _regular_from(options.task_file) if options.task_file else None
        """Where the tasks begin in a regular file, which can be read more than once; None: a pipe, or no file."""

    def run(self) -> int:
        with hold_folder(self._folder):
            return self._run()

    def _run(self) -> int:
        self._open_log()
        if self.options.web:
            print(f"--web: there is no web interface; see this run with: pilothouse watch {self._folder}", file=sys.stderr)
        earlier = self._earlier_runs()
        kvs, kvs_info = self._open_kvs()
        self._kvs = kvs
        status_path = Path(f"{self._id}_status.txt")
        if earlier is not None and status_path.is_file():
            status_path.unlink()  # A run may resume from the file that it replaces: `earlier` reads on in the old one.
        status = StatusWriter(status_path, header=self.options.status_header, edition=self.options.edition)
        try:
            bridge = Bridge(kvs, self._common_env(), run_info=self._run_info(), edition=self.options.edition)
            feeder = self._feeder(kvs, earlier, status, bridge)
            bridge.tasks = self._kvs_tasks
            script = write_script(Path(f"{self._id}_dbUtil.sh"), self._id, self._folder, kvs.address)
            self._touch_context_files()
            if feeder.over and not (feeder.engine_start or feeder.engine_stop):
                barriers = [barrier_passed(line, time.time()) for line in feeder.passed()]
                if not (feeder.skipped or barriers):
                    print("No tasks to run.", file=sys.stderr)
                elif self.options.edition == 2:
                    print("No task is left to run; --dialect 2021 ends with code 1 then.", file=sys.stderr)
                # QUIRK: in 2021 this was an error, as its context found the run over (test_disbatch2021).
                self._interrupted = 1 if self.options.edition == 2 else 0
                bridge.write([*barriers])
                lines = [*self._take_skipped(), *(status_line(barrier, self.options.edition) for barrier in barriers)]
                status.write(sorted(lines, key=lambda line: line.task_id))
                return self._exit_code()
            return self._run_world(feeder, bridge, kvs, status, script)
        finally:
            if earlier is not None:
                earlier.close()
            status.close()
            kvs.close()
            if isinstance(kvs, KvsServer) and kvs.refused:
                print(
                    f"disBatch: {kvs.refused} connections to the key-value service closed before their owner was known, and what"
                    f" they had put is lost (keys: {self._log_path}); a client that reads something before it closes is served",
                    file=sys.stderr,
                )
            if kvs_info is not None:
                kvs_info.unlink(missing_ok=True)

    # ---- before anything runs

    def _open_log(self) -> None:
        options = self.options
        open_log(self._log_path, options.log_level, "disBatch", "pilothouse", mode="w")
        log.info("%s (%d) on %s in %s: %r", self._source, os.getpid(), self._host, os.getcwd(), sys.argv)

    def _earlier_runs(self) -> EarlierRuns | None:
        if not self.options.resume_from:
            return None
        earlier = EarlierRuns(
            retry=self.options.retry, force=self.options.force_resume, edition=self.options.edition
        )
        for name in self.options.resume_from:
            earlier.read(Path(name))
        if earlier.unreadable:
            log.warning("%d lines of status files could not be read and were passed over", earlier.unreadable)
        return earlier

    def _open_kvs(self) -> tuple[Kvs, Path | None]:
        options = self.options
        if options.kvs_server is not None:
            return RemoteKvs(options.kvs_server or os.environ.get("DISBATCH_KVSSTCP_HOST", "")), None
        host, port, shown = "127.0.0.1", 0, ""
        if options.use_address:
            shown, _, number = options.use_address.rpartition(":")
            known_port = whole_number(number)
            if not shown or known_port is None:
                raise InputError("--use-address", "not an address", expected="HOST:PORT", found=options.use_address)
            host, port = shown, known_port
        elif options.startup_only or not only_here(self._ssh_nodes(), self._host):
            names = [word.rpartition(":")[0] for word in self._ssh_nodes().split(",") if word]
            listens = (ALL,) if options.startup_only or not names else towards_by_ssh(names)
            host, shown = (listens[0], "") if len(listens) == 1 and listens[0] != ALL else (ALL, self._host)
        redis = os.environ.get(REDIS_VARIABLE)
        shelf = RedisShelf(redis, os.path.basename(self._id)) if redis else None
        if options.open_to_all:
            print("disBatch: --open-to-all: everyone who reaches the key-value service may use it", file=sys.stderr)
        trusts = everyone if options.open_to_all else self._trusts
        server = KvsServer(host, port, secret=self._secret, trusts=trusts, advertised_host=shown, shelf=shelf)
        info = Path(f"{self._id}_kvsinfo.txt")
        write_whole(info, server.address.encode(), mode=0o644)
        log.info("KVS Server: %s", server.address)
        return server, info

    def _trusts(self, peer: Peer) -> bool:
        """disBatch's own clients know no secret: they are trusted on this host if they are ours, and on hosts of engines."""
        if peer.whose is Whose.ELSEWHERE:
            return self._world is not None and peer.host in self._world.engine_hosts
        return only_us(peer)

    def _ssh_nodes(self) -> str:
        return ",".join(self.options.context.ssh_nodes) or os.environ.get("DISBATCH_SSH_NODELIST", "")

    def _feeder(self, kvs: Kvs, earlier: EarlierRuns | None, status: StatusWriter, bridge: Bridge) -> Feeder:
        def problem(number: int, text: str) -> None:
            log.error("line %d: %s", number, text)

        edition = self.options.edition
        reader = TaskReader(self.options.task_file, lenient=True, on_problem=problem, edition=edition)
        lines: Iterator[TaskLine | None]
        if self.options.task_file and self._tasks_at is not None:
            known_already = self._check_resume(earlier) if earlier is not None else 0
            with self._open_tasks() as counted:
                found = check_stream(counted, self.options.task_file, lenient=True, edition=edition)
                self._total = found.tasks - known_already
            lines = reader.read(self._open_tasks())
        elif self.options.task_file:
            lines = iter(StreamLines(self._open_tasks(), reader, self._ring))
        else:
            self._kvs_tasks = KvsTasks(kvs, self._ring, reader)
            lines = iter(self._kvs_tasks)
            self._start_task_program(kvs)

        def known(line: TaskLine) -> bool | None:
            assert earlier is not None
            found = earlier.result_of(line)
            if found is None:
                return None
            self._skipped.append(found.skipped())
            if edition == 2:
                bridge.say("task skipped", d.task_info(info_of_line(line, kind="S"), 2))
            if len(self._skipped) >= _MOST_SKIPPED_AT_ONCE:
                status.write(self._take_skipped())
            return found.return_code != 0

        # In the design notes the feeder hands tasks to the driver through the service.
        said = iter(fed(lines, bridge.say, 2)) if edition == 2 else lines
        return Feeder(said, known if earlier is not None else None)

    def _open_tasks(self) -> BinaryIO:
        """At its first task. Standard input is one description for all who open it: one reader at a time."""
        stdin = self.options.task_file == "-"
        stream = open(os.dup(0) if stdin else self.options.task_file, "rb")  # noqa: SIM115 - the caller's
        if self._tasks_at is not None:
            stream.seek(self._tasks_at)
        return stream

    def _check_resume(self, earlier: EarlierRuns) -> int:
        """All of the file is compared with the earlier results before anything runs. How many tasks have one."""
        with self._open_tasks() as stream:
            lines = TaskReader(self.options.task_file, lenient=True, edition=self.options.edition).read(stream)
            return sum(line.kind is LineKind.TASK and earlier.result_of(line) is not None for line in lines)

    def _start_task_program(self, kvs: Kvs) -> None:
        if self.options.task_command:
            host, _, port = kvs.address.rpartition(":")
            env = {**os.environ, "KVSSTCP_HOST": host, "KVSSTCP_PORT": port, "DISBATCH_KVSSTCP_HOST": kvs.address}
            command = ["/bin/sh", "-c", self.options.task_command]
            self._task_program = subprocess.Popen(command, env=env, start_new_session=True)

    # ---- while it runs

    def _run_world(self, feeder: Feeder, bridge: Bridge, kvs: Kvs, status: StatusWriter, script: Path) -> int:
        options = self.options
        contexts: list[NodesContext] = []
        limits: dict[str, int] = {}
        if not options.startup_only:
            try:
                context = self._first_context()
            except NoContext:
                print("Cannot determine batch execution environment.", file=sys.stderr)
                return 1
            contexts.append(context)
            if options.context.task_limit:
                limits[context.name] = options.context.task_limit
        journal = _ReportedJournal(self._folder, self._on_records(bridge, status))
        journal.put_notes(started=time.time(), total=self._total, decider=POLICY)
        live = LiveOptions(
            env={**self._common_env(), "DISBATCH_KVSSTCP_HOST": kvs.address, SECRET_VARIABLE: self._secret},
            fail_fast=options.fail_fast,
            service=options.startup_only,
            retire_idle=True,
            context_limits=limits,
            bundle=1 if options.startup_only else LiveOptions().bundle,
            grace_s=2.0,
            linger_s=LINGER_S,
            wait_for_driver_s=DRIVER_GONE_S,
        )
        world = LiveWorld(
            live, folder=self._folder, recorder=journal, contexts=contexts, feeder=feeder, total=self._total,
            listens=(ALL,) if options.startup_only else (), warn=lambda text: log.warning("%s", text),
            logs=f"{self._id}_*_engine_wrap.log",
        )  # fmt: skip
        self._world = world
        if options.startup_only:
            world.no_more()
        foreign = self._let_engines_join(bridge, kvs, world)
        join = JoinInfo(world.launch(), self._id, options.log_level, options.context)
        world.on_tick.append(lambda: self._beat(bridge, feeder, status))
        try:
            with joinable(self._folder, join), on_signals(self._interrupt):
                if options.startup_only:
                    print(f"Run this script to add compute contexts:\n   {script}", flush=True)
                Session(world, naming.decider(POLICY)).run()
        finally:
            foreign.over = True
            if self._task_program is not None and self._task_program.poll() is None:
                self._task_program.terminate()
            status.write(self._take_skipped())
        until = time.monotonic() + FOREIGN_S
        while foreign.working and time.monotonic() < until and not self._interrupted:
            time.sleep(0.05)  # they read and write values until they have stopped
        log.info("%d tasks are done, %d failed", world.done, self.failed)
        if world.stopped_because == NO_ENGINE:
            print("all engines have gone before the work was done; see the logs", file=sys.stderr)
            return 1
        return self._exit_code()

    def _let_engines_join(self, bridge: Bridge, kvs: Kvs, world: LiveWorld) -> ForeignEngines:
        """Real contexts and engines of disBatch, through the key-value service."""
        edition = self.options.edition
        self._per_engine = PerEngine(kvs.put, edition)
        foreign = ForeignEngines(
            world.attached, kvs.put, partial(claim_rank, self._folder), self._per_engine, edition
        )
        world.on_tick.append(foreign.tick)
        bridge.work_with(foreign, self._per_engine)
        self._foreign = foreign
        return foreign

    def _run_info(self) -> pickles.Instance:
        options, context = self.options, self.options.context
        args = {
            "cpusPerTask": -1.0 if context.cpus_per_task is None else context.cpus_per_task,
            "tasksPerNode": -1 if context.tasks_per_node is None else context.tasks_per_node,
            "env_resource": list(context.env_resources), "gpu": context.gpu, "fill": context.fill, "label": context.label or None,
            "context_task_limit": context.task_limit, "retire_cmd": context.retire_command,
            "ssh_node": list(context.ssh_nodes) or None, "loglevel": options.log_level, "logfile": options.log_file or None,
            "mailFreq": options.mail_every if options.mail_to else None, "mailTo": options.mail_to or None,
            "prefix": options.prefix, "startup_only": options.startup_only, "resume_from": list(options.resume_from) or None,
            "retry": options.retry, "force_resume": options.force_resume, "exit_code": options.exit_code, "web": options.web,
            "fail_fast": options.fail_fast, "status_header": options.status_header, "kvsserver": True,
            "taskcommand": options.task_command or None, "taskserver": options.task_server, "taskfile": options.task_file or None,
        }  # fmt: skip
        return d.run_info(self._source, self._id, os.getcwd(), args, options.edition)

    def _common_env(self) -> dict[str, str]:
        return {"DISBATCH_JOBID": os.path.basename(self._id), "DISBATCH_NAMETASKS": self._source}

    def _touch_context_files(self) -> None:
        """disBatch starts its first context as a program with these output files; ours is part of the driver. Scripts that
        tidy up after a run, or look for errors, expect the files.
        """
        names = ["context_wrap.out", f"{os.getpid()}_context_launch.log"]
        if self.options.edition == 2:
            names.append("context_wrap.err")
        for name in names if not self.options.startup_only else ():
            open_shared(f"{self._id}_{name}", "ab").close()

    def _first_context(self) -> NodesContext:
        context = open_context(self._folder, self.options.context, self._id, self.options.log_level)
        for warning in context.layout.warnings:
            print(f"disBatch: {warning}", file=sys.stderr)
        return context

    def _on_records(self, bridge: Bridge, status: StatusWriter) -> Callable[[list[Record]], None]:
        mailer = Mailer(self.options.mail_to, self.options.mail_every, os.path.basename(self._id))

        def report(records: list[Record]) -> None:
            lines = self._take_skipped()
            for record in records:
                # A task that the end of the run cut short has no line: a later run must not take it for done.
                if type(record) is TaskEnded and record.final and record.state is not JobState.KILLED:
                    line = status_line(record, self.options.edition)
                    lines.append(line)
                    if record.kind not in "BC":
                        self.failed += line.return_code != 0
                    else:
                        log.info("passed barrier %d of line %d", record.task_id, record.line_number)
                elif type(record) is EngineJoined:
                    self._note_engine(record)
                elif type(record) is EngineLeft and record.lost:
                    log.warning("engine %d was lost: %s", self._ranks[record.engine], record.reason)
                elif type(record) is EngineLeft:
                    log.info("engine %d left: %s", self._ranks[record.engine], record.reason)
            if not status.write(lines):
                log.error("%s: the disk takes no more; trying again later", status.path)
            bridge.write(records)
            mailer.note(lines)

        return report

    def _note_engine(self, record: EngineJoined) -> None:
        self._ranks[record.engine] = record.rank
        host = record.node.partition("#")[0]
        text = f"engine {record.rank} on {record.node}, pid {record.pid}, {record.context}, {record.slots} slots"
        log.info("%s joined", text)
        if self._foreign is not None and self._foreign.is_one(record.rank):
            return  # it has a log of its own
        with open_shared(f"{self._id}_{record.context}_{host}_engine_{record.rank}.log", "ab") as file:
            file.write(f"{time.strftime('%F %T')} {text}\n".encode())

    def _take_skipped(self) -> list[StatusLine]:
        lines, self._skipped = self._skipped, []
        self.failed += sum(line.return_code != 0 for line in lines)
        return lines

    def _beat(self, bridge: Bridge, feeder: Feeder, status: StatusWriter) -> None:
        """Twice a second."""
        world = self._world
        assert world is not None
        status.write(self._take_skipped())
        if self._per_engine is not None:
            self._per_engine.post_lists(feeder.engine_start, feeder.engine_stop, complete=feeder.engine_lists_complete)
        bridge.answer_requests(world.stop_engine, world.stop_context)
        bridge.board.no_more_tasks = feeder.state.name in ("EXHAUSTED", "STOPPED")
        bridge.update()
        if self.options.fail_fast and self.failed:
            world.stop("a task failed")
        if isinstance(self._kvs, RemoteKvs) and self._kvs.gone and self._kvs_tasks is not None and not self._interrupted:
            print(f"disBatch: {self._kvs.gone}; tasks that it has given are finished", file=sys.stderr)
            self._kvs_tasks.finish()
            self._interrupted = 1
        program = self._task_program
        if program is not None and program.poll() is not None and self._kvs_tasks is not None:
            log.info("the command that gives tasks ended with code %d", program.returncode)
            self._kvs_tasks.finish()
            self._task_program = None
            if program.returncode:
                self._interrupted = program.returncode
                world.stop("the command that gives tasks failed")

    def _interrupt(self, number: int) -> None:
        self._interrupted = 128 + number
        world = self._world
        assert world is not None
        world.call(lambda: world.stop(f"signal {number}"))

    def _ring(self) -> None:
        if self._world is not None:
            self._world.ring()

    def _exit_code(self) -> int:
        if self._interrupted:
            return self._interrupted
        if self.options.fail_fast and self.failed:
            print("ended early: a task failed (--fail-fast)", file=sys.stderr)
            return 1
        if self.options.exit_code and self.failed:
            print(f"{self.failed} tasks failed; see {self._id}_status.txt", file=sys.stderr)
            return 1
        return 0


def _regular_from(task_file: str) -> int | None:
    """The position from which a regular file is read: standard input may have been read in part. None: not regular."""
    if task_file == "-":
        return os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(os.fstat(0).st_mode) else None
    return 0 if Path(task_file).is_file() else None


class _ReportedJournal(Journal):
    """A journal that hands records to `report` when it has kept them."""

    def __init__(self, folder: Path, report: Callable[[list[Record]], None]) -> None:
        super().__init__(folder)
        self._report = report

    def write(self, records: list[Record], *, durable: bool = True) -> None:
        super().write(records, durable=durable)
        self._report(records)
