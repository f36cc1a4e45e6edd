"""What is fuzzed: every parser, codec and door, as a function of bytes. A PilothouseError is an answer; all else is a finding."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

import msgspec

from fuzz import seeds
from pilothouse.campaign.grid import Grid
from pilothouse.core.session import Session
from pilothouse.dropins.batsim5 import config as batsim5_config
from pilothouse.dropins.batsim5.options import BY_KEY
from pilothouse.dropins.disbatch.status_file import EarlierRuns
from pilothouse.formats import (
    accounting_logs,
    argument_sources,
    constraint,
    date_text,
    dax,
    duration,
    external_events,
    fluid,
    hostlist,
    jobs_csv,
    jobspec,
    output_pack,
    pbs_log,
    platform_elements,
    platform_xml,
    qcg_requests,
    qcg_workload,
    resource_set,
    slurm_fields,
    slurm_resources,
    swf,
    task_file,
    task_request,
    task_table,
    traces,
    workload_json,
)  # fmt: skip
from pilothouse.formats.command_template import CommandTemplate
from pilothouse.formats.qcg_dialect import DIALECTS, Dialect
from pilothouse.journal.read import read_jobs, read_nodes, read_tasks
from pilothouse.journal.store import Journal
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.errors import PeerError, PilothouseError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.task_request import TaskRequest
from pilothouse.policies import catalog, score
from pilothouse.protocols import zmtp
from pilothouse.protocols.batprotocol import codec as codec5
from pilothouse.protocols.batprotocol.codec import Format
from pilothouse.protocols.batprotocol.decisions import DecisionReader as DecisionReader5
from pilothouse.protocols.batprotocol.hello import read_hello, read_wants
from pilothouse.protocols.batprotocol.wire import Malformed
from pilothouse.protocols.batsim import codec as codec4
from pilothouse.protocols.batsim.decider import BatsimDecider
from pilothouse.protocols.batsim.decision_reader import DecisionReader
from pilothouse.protocols.batsim.event_reader import EventReader, RequestedCalls, read_begins
from pilothouse.protocols.batsim.settings import Settings
from pilothouse.protocols.disbatch import messages as disbatch_messages
from pilothouse.protocols.disbatch import pickles
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.manager import Manager as FluxManager
from pilothouse.protocols.rfc27.scheduler import SchedulerEngine
from pilothouse.views.schedule import Schedule
from pilothouse.views.session_now import PresentJob, SessionNow, add_present
from pilothouse.views.web import http as web_http
from pilothouse.views.web.gate import OPEN_PATHS, Gate
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.contexts.ssh import parse_hosts
from pilothouse.worlds.live.driver.engine_frames import frames as driver_frames
from pilothouse.worlds.live.driver.engine_frames import hear
from pilothouse.worlds.live.driver.flow import settle
from pilothouse.worlds.live.driver.restore import restore
from pilothouse.worlds.live.driver.state import new_state
from pilothouse.worlds.live.engine.spool import Log, read_log
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.requests import decode_request
from pilothouse.worlds.live.services.kvs import KeyValueStore, Value
from pilothouse.worlds.live.services.kvs_wire import Request, RequestReader, WireError, request_bytes
from pilothouse.worlds.live.wire import messages as m
from pilothouse.worlds.simulated import generators
from pilothouse.worlds.simulated.world import SimulatedWorld

NODES = tuple(Node(f"h{i}", i) for i in range(4))
QCG_NODES = tuple(Node(f"q{i}", 4 * i, 4, gpus=1, memory_mb=100) for i in range(3))
MOST_TURNS = 60


@dataclass(frozen=True)
class Target:
    """`run` must end soon, and raise nothing but a PilothouseError; what it returns is held against a record (answers.py).
    `weight`: how often it is drawn."""

    run: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    weight: int = 10


TARGETS: dict[str, Target] = {}


def target(name: str, first: Callable[[], list[bytes]], weight: int = 10) -> Callable[[Callable[[bytes], object]], None]:
    def add(run: Callable[[bytes], object]) -> None:
        TARGETS[name] = Target(run, lambda: [*first(), *seeds.corpus(name)], weight)

    return add


def text_target(name: str, run: Callable[[str], object], *texts: str, weight: int = 10) -> None:
    """For parsers of text, which the command line or a decoder hands over."""
    target(name, lambda: [text.encode() for text in texts], weight)(lambda data: run(data.decode("utf-8", "surrogateescape")))


@cache
def folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="pilothouse-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    atexit.register(shutil.rmtree, made, True)
    return made


def file_target(name: str, suffix: str, run: Callable[[Path], object], *files: str, weight: int = 10) -> None:
    """For readers of files."""

    def read(data: bytes) -> object:
        path = folder() / f"{name}-{os.getpid()}{suffix}"
        path.write_bytes(data)
        return run(path)

    target(name, lambda: seeds.file(*files), weight)(read)


def used_up(values: Iterable[object]) -> list[object]:
    """Lazy results are read to their end, as far as that is not endless."""
    return [value for value, _ in zip(values, range(2000), strict=False)]


def or_problem(run: Callable[[], object], *problems: type[Exception]) -> object:
    """What is returned, or why nothing is."""
    try:
        return run()
    except (PilothouseError, *problems) as problem:
        return problem


# ---- files

TEN_S = qcg_workload.Durations(10.0)
file_target("swf", ".swf", swf.read, "examples/kth-sp2-5000.swf.gz")

def read_accounting(path: Path) -> object:
    reader = accounting_logs.reader(path.read_bytes())
    return None if reader is None else reader(path, units=64)


LOGS = "tests/unit/formats/slurm"
file_target("accounting", ".log", read_accounting, f"{LOGS}/sacct-X-P-D.txt", f"{LOGS}/sacct.json.gz",
            f"{LOGS}/jobcomp-filetxt.txt")  # fmt: skip
file_target("grid", ".toml", lambda path: Grid.read(str(path)).check("grid"), "tests/fuzz/corpus/grid/one.toml")
text_target("generator", generators.check, "lublin:jobs=9,seed=3,load=0.8", "bursts:size=3,runtime=1e3,widest=4")
file_target("workload", ".json", workload_json.read, "examples/tiny.json",
            "batsim4/inputs/workloads/test_various_profile_types.json", "batsim4/inputs/workloads/test_walltime.json",
            "batsim5/inputs/test_delays.json", "batsim4/inputs/extra/par4.json")  # fmt: skip
file_target("platform", ".xml", platform_xml.read_platform, "batsim4/inputs/platforms/small_platform.xml",
            "batsim4/inputs/platforms/energy_platform_homogeneous.xml", "batsim5/inputs/cluster512_pfs.xml")  # fmt: skip
file_target("events", ".txt", external_events.read, "batsim4/inputs/events/test_events_4hosts.txt")
file_target("dax", ".xml", dax.read, "tests/fuzz/corpus/dax/two.xml")
file_target("usage", ".trace", traces.read_usage, "tests/fuzz/corpus/usage/one.trace")
file_target("mpi", ".trace", lambda path: traces.read_mpi(path, 0, shared=True), "tests/fuzz/corpus/mpi/one.trace")
file_target("jobs-csv", ".csv", lambda path: used_up(jobs_csv.read(path)),
            "batsim4/recordings/bs-easy-redis-small-delays/out_jobs.csv")  # fmt: skip
file_target("settings", ".json", Settings.read, "tests/fuzz/corpus/settings/all.json")
file_target("qcg-file", ".json",
            lambda path: [or_problem(lambda n=nodes, d=dialect: qcg_workload.load_workload(path, TEN_S, n, dialect=d))  # type: ignore[misc]
                          for nodes in (NODES, QCG_NODES) for dialect in DIALECTS.values()],
            "examples/requests.json")  # fmt: skip
file_target("status", ".txt", lambda path: EarlierRuns().read(path), "disbatch/disbatch-ssh_status.txt")
file_target("batsim5-config", ".toml", lambda path: batsim5_config.read(str(path), BY_KEY),
            "tests/fuzz/corpus/batsim5-config/all.toml")  # fmt: skip


@target("tasks", lambda: seeds.file("examples/tasks.txt", "tests/fuzz/corpus/tasks/directives.txt"))
def _tasks(data: bytes) -> object:
    def read(lenient: bool) -> object:
        totals = task_file.check_stream(io.BytesIO(data), "tasks", lenient=lenient)
        return totals, used_up(task_file.read_file(io.BytesIO(data), "tasks", lenient=lenient))

    return [or_problem(lambda lenient=lenient: read(lenient)) for lenient in (False, True)]  # type: ignore[misc]


def _disbatch_seeds() -> list[bytes]:
    task = disbatch_messages.TaskInfo(7, 3, -1, b"echo \xff", "P", ".per engine 0", 2, "a key")
    report = disbatch_messages.TaskReport(task, "n1", 99, -9, 1.5, 2.5, 4, "out", 0, "")
    context = disbatch_messages.Context(1, "L", "SSH", ("n1", "n2"), (2, 4), (3, 1), 5, ("A",))
    messages: list[object] = [("register", ("engine", "17")), ("engine heart beats", (2, [(2, 17)])), ("stop context", 2**40)]
    for edition in (2, 3):
        info = disbatch_messages.run_info("tasks", "/x", "/", {"tasksPerNode": 1.5}, edition)
        messages.append(("task done", (disbatch_messages.task_report(report, edition), 0, 1, "k")))
        messages.append(("context info", disbatch_messages.context(context, info, {"context_task_limit": 3}, edition)))
    return [pickles.write(message) for message in messages]


@target("disbatch-messages", _disbatch_seeds)
def _disbatch_messages(data: bytes) -> object:
    try:
        return disbatch_messages.read_controller(data)
    except pickles.UnknownClass as error:
        return str(error)


# ---- texts

text_target("idset", IdSet.parse, "0-3 7", "[0-3,7]", "1,2,3", weight=20)
text_target("rfc22", IdSet.parse_strict, "0-3,7", "[1,3]", weight=20)
text_target("hostlist", hostlist.parse, "n[1-4,7],m12", "a[01-10]b[2-3]", "x", weight=20)
text_target("duration", duration.parse, "5m", "1.5h", "90", "2d", weight=20)
text_target("fluid", fluid.parse, "ƒ2Vvy", "f12345", "0x1f", "1234", "0000.0001.0002.0003", weight=20)
text_target("score", lambda text: _scores(score.Expression(text)), "r*n", "-(w/r)**3*n", "log10(r)*n + 870*log10(s)",
            "min(r, n, 2.5)", "-w/(log2(n)*r)", "sqrt(w)+exp(-w/100)-log(1+w)*p", "abs(w-5)**0.5", "max(w, 2**n)",
            "w*-log10(s)/+r")  # fmt: skip
text_target("command-template", lambda text: [CommandTemplate(text, ("", "b")).fill(row, 3) for row in ROWS],
            "sim --seed {2} < {1} > '{1.}.out' {#}", 'a "$(cat {/.})" {//} \'{%}\' {-1}', "{b} \\{1} {x} ({b/})", "{}",
            'echo "{1/}" $(ls (a) {2}) {%} "{%}"', "plain", "a `b` {b.}")  # fmt: skip
text_target("date", lambda text: date_text.parse(text, datetime(2026, 11, 16, 9, 30), "--until"), "Friday", "mon 18:05",
            "tomorrow", "18:00", "9:30", "2026-11-20", "2026-11-20T08:15", "36h", "today 24:00", "tue 7:07")  # fmt: skip
text_target("request-words", lambda text: task_request.words_of(task_request.parse_words(text, "here") or TaskRequest()),
            "cores=2 mem=1.5G gpus=1 walltime=1:30:00 nodes=2 retries=3 name=a env=X=1 env='Y=b c'",
            "after=a,b walltime=30m mem=512 env=A=", "walltime=inf mem=2T name=x.y", "mem=100M walltime=90")  # fmt: skip
text_target("hosts-written", lambda text: hostlist.encode(text.split()), "n1 n2 n3 n7", "n08 n09 n10 n11",
            "a b1-ib b2-ib b2-ib x01 x1", "n9 n10 n11 m n0 n00")  # fmt: skip
text_target("slurm-fields", lambda text: [read(text) for read in SLURM_FIELDS], "2026-11-15T18:06:44", "1-02:03:04", "30",
            "5:10", "UNLIMITED", "2.5K", "4000M", "cpu=2,mem=4G,gres/gpu=2", "gpu:a100:2(S:0-1),tmp:3", "CANCELLED by 7",
            "JobId=1 Name=a b c=d", "bandwidth:lustre:4G,gpu:2")  # fmt: skip
text_target("pbs-fields", lambda text: (pbs_log.duration(text), [pbs_log.cpus({key: text}) for key in PBS_KEYS]), "100:00:05",
            "1:02:03:04", "30:15", "77", "n1/0*4+n2/0-3,7+n3", "2:ppn=6+1:ppn=2:fat+n7", "2:ncpus=3:mem=4+ncpus=2+3")  # fmt: skip
text_target("qcg-rtime", lambda text: qcg_workload.parse_rtime(text, "here"), "0:00:06.082136", "1 day, 2:03:04.5",
            "12 days, 0:00:01")  # fmt: skip
text_target("quantities", lambda text: [platform_elements.quantity(text, units) for units in UNITS], "1.5Gf", "125MBps", "2KiBps",
            "3Mbps", "50us", "1w", "2kflops", "7", "3kif", "1e-3YiBps")  # fmt: skip
text_target("policy", lambda text: catalog.make(*_named(text)), "priority:score=r*n,backfill=easy", "random:seed=7")
text_target("hosts", lambda text: parse_hosts([text]), "h1:4,h2", "n[1-3]:8", "user@host:2", weight=20)


ROWS = [("data/one.txt", "2"), ("it's.tar.gz", "a b"), ("/", "tab\there")]
SLURM_FIELDS: tuple[Callable[[str], object], ...] = (
    slurm_fields.date, slurm_fields.time_limit, slurm_fields.count, slurm_fields.memory_mb, slurm_fields.tres, slurm_fields.gres,
    slurm_fields.amounts, slurm_fields.fate, slurm_fields.record,
)  # fmt: skip
PBS_KEYS = ("exec_host", *(f"Resource_List.{name}" for name in ("nodes", "select", "ncpus", "procs")), "total_execution_slots")
UNITS = (platform_elements.SPEED_UNITS, platform_elements.BANDWIDTH_UNITS, platform_elements.TIME_UNITS)


def _scores(found: score.Expression) -> object:
    """The values for jobs that were submitted early and late, by the expression and by its program."""
    jobs = [Job("a", 4, 100.0, 0.0, priority=2), Job("b", 1, 0.5, 50.0), Job("c", 3, 7.0, 60.5, priority=-1)]
    values = [found(job, now) for job in jobs for now in (60.5, 100.0)]
    program = found.program
    return values, found.ages, program and (program.operations, program.products, [program.constants(job) for job in jobs])


@target("slurm-resources", list)
def _slurm_resources(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    readers = (slurm_resources.read_nodes, slurm_resources.read_partitions, slurm_resources.read_reservations)
    return [or_problem(lambda read=read: read(text)) for read in readers]  # type: ignore[misc]


@target("task-table", list)
def _task_table(data: bytes) -> object:
    def read(kind: str) -> object:
        return used_up(task_table.reader_for("tasks", kind=kind).read(data.splitlines(keepends=True)))

    return [or_problem(lambda kind=kind: read(kind)) for kind in ("csv", "tsv", "jsonl")]  # type: ignore[misc]


ARGUMENTS = (
    b'[[":::", "a", "b c", "::::", "l", ":::+", "1", "2"], "", false]',
    b'[["::::", "t.csv", ":::", "x:y", "z:w:v", "u"], "", false]',
    b'[["::::", "-", "::::+", "l"], " ", true]',
    b'[[":::", "x,y", "z,w,v", "u", "::::+", "l", "::::", "t.jsonl"], ",", false]',
    b'[["::::", "t.tsv", "e.csv", "::::", "-"], "", true]',
)
LINES = {"l": b"one 1\ntwo 2 3\nthree\n", "-": b"p q\nr s\n", "t.csv": b'\xef\xbb\xbfn, m\n1,"2\n3"\n\n4,5\n', "e.csv": b"",
         "t.tsv": b"n\tm\n1\t2\n3\n", "t.jsonl": b'{"n": 1, "m": null}\n\n{"n": [1], "m": "x"}\n{"m": 2}\n'}  # fmt: skip


@target("arguments", lambda: list(ARGUMENTS))
def _arguments(data: bytes) -> object:
    try:
        words, colsep, header = msgspec.json.decode(data, type=tuple[list[str], str, bool])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not words or words[0] not in argument_sources.MARKS:
        return argument_sources.split_words(words)
    reading = argument_sources.Reading(colsep, header)
    found = argument_sources.read_arguments(words, lambda name: iter(LINES.get(name, b"").splitlines(keepends=True)), reading)
    rows: list[object] = []
    try:
        rows += used_up(found.rows)
    except PilothouseError as problem:
        rows.append(problem)
    return argument_sources.streams(words), found.names, rows


def _named(text: str) -> tuple[str, dict[str, str]]:
    name, _, options = text.partition(":")
    return name, catalog.parse_options(options, name) if options else {}


@target("jobspec", lambda: [text for topic, text in _specs()])
def _jobspec(data: bytes) -> object:
    spec = jobspec.parse(data)
    return spec, spec.total_slots, spec.total_cores, spec.walltime_s, jobspec.encode(spec)


def _specs() -> list[tuple[str, bytes]]:
    found = []
    for topic, text in seeds.flux():
        payload = msgspec.json.decode(text)
        if "jobspec" in payload:
            found.append((topic, msgspec.json.encode(payload["jobspec"])))
    spec = jobspec.Jobspec(slots=2, command=("true",), cores_per_slot=2)
    return [*found, ("", jobspec.encode(spec))]


R = (
    b'{"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}}], '
    b'"nodelist": ["n[0-1]"], "properties": {"fast": "1"}, "starttime": 0, "expiration": 0}}'
)


@target("resource-set", lambda: [R])
def _resources(data: bytes) -> object:
    found = resource_set.parse(data)
    return found, found.rank_ids, found.core_count(), found.only(IdSet(0b10)), resource_set.encode(found)


@target("constraint", lambda: [b'{"and": [{"properties": ["a", "^b"]}, {"not": [{"ranks": ["0-3"]}, {"hostlist": ["n"]}]}]}'])
def _constraint(data: bytes) -> object:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = msgspec.json.decode(data)
        by_host = {"n": ["4"], "m1": ["5", "6"]}
        return [or_problem(lambda ranks=ranks: constraint.normalised(value, ranks)) for ranks in (None, by_host)]  # type: ignore[misc]
    return None


# ---- codecs


@target("batsim-decisions", lambda: seeds.batsim("sched->batsim"))
def _batsim_decisions(data: bytes) -> object:
    return DecisionReader("peer", {"w0!p": Profile("w0!p", Delay(1.0))}).reply(codec4.decode_from_scheduler(data))


@target("batsim-events", lambda: seeds.batsim("batsim->sched"))
def _batsim_events(data: bytes) -> object:
    message = codec4.decode_from_batsim(data)
    begun: list[object] = []
    for event in message.events:
        if type(event).__name__ == "SimulationBegins":
            begun.append(read_begins(event.data, "peer"))  # type: ignore[union-attr]
    begins = e.Begins(NODES, profiles={"w0!delay10": Profile("w0!delay10", Delay(10.0))})
    return begun, EventReader("peer", begins, None, RequestedCalls()).batch(message)


def _batprotocol(data: bytes, form: Format) -> object:
    message = codec5.decode(data, form)
    # The binary form has no room for some numbers.
    written = [or_problem(lambda way=way: codec5.encode(message, way)) for way in Format]  # type: ignore[misc]
    reader = DecisionReader5()
    read = [or_problem(lambda said=said: reader.read(said.event, said.timestamp), Malformed) for said in message.events or ()]  # type: ignore[misc]
    return written, read, or_problem(lambda: read_wants(read_hello(message)), Malformed)


@target("batprotocol-json", seeds.batprotocol)
def _json5(data: bytes) -> object:
    return _batprotocol(data, Format.JSON)


def _binary_seeds() -> list[bytes]:
    found = []
    for text in seeds.batprotocol():
        with contextlib.suppress(PilothouseError):
            found.append(codec5.encode(codec5.decode(text, Format.JSON), Format.BINARY))
    return found


@target("batprotocol-binary", _binary_seeds)
def _binary5(data: bytes) -> object:
    return _batprotocol(data, Format.BINARY)


def _flux_messages() -> list[bytes]:
    return [frames.encode(rpc.request(topic, text, matchtag=n % 3)) for n, (topic, text) in enumerate(seeds.flux())]


@target("flux-frames", _flux_messages)
def _flux_frames(data: bytes) -> object:
    found = list(frames.StreamReader().feed(data))
    return found, [frames.encode(message) for message in found if isinstance(message, frames.Message)]


@target("flux-scheduler", _flux_messages)
def _flux_scheduler(data: bytes) -> object:
    engine = SchedulerEngine()
    engine.begin()
    answers: list[object] = []
    for found in frames.StreamReader().feed(data):
        if isinstance(found, frames.Message):
            found.userid, found.rolemask = 0, frames.ROLE_OWNER
            answers.append(engine.receive(found))
            answers += [frames.encode(answer) for answer in engine.take()]
    return answers


@target("flux-broker", _flux_messages)
def _flux_broker(data: bytes) -> object:
    manager = FluxManager()
    broker = Broker(manager, R, IdSet())
    broker.join(1, "one")
    broker.receive(0.0, 1, rpc.request("service.add", b'{"service":"sched"}', matchtag=1))
    broker.receive(0.0, 1, rpc.request("job-manager.sched-ready", b'{"mode":"unlimited"}', matchtag=1))
    manager.submit(0.0, 1, b"{}")
    broker.dispatch(0.0)
    answers: list[object] = []
    for found in frames.StreamReader().feed(data):
        if isinstance(found, frames.Message):
            broker.receive(1.0, 1, found)
            broker.dispatch(1.0)
            answers += [(place, frames.encode(answer)) for place, answer in broker.take()]
    assert (1 in manager.jobs) != (1 in manager.inactive), "a job was lost"
    return answers, manager.jobs


ZMTP = zmtp.GREETING + b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x03REP" + zmtp.request_of(b"{}") + b"\x04\x07\x04PING\0\0"


@target("zmtp", lambda: [ZMTP], weight=20)
def _zmtp(data: bytes) -> object:
    reader = zmtp.Reader(1 << 20)
    found: list[object] = []
    with contextlib.suppress(zmtp.WireError):
        for start in range(0, len(data), 97):
            reader.feed(data[start : start + 97])
            while (message := reader.message()) is not None:
                found.append(message)
            found.append(reader.missing())
        found.append("whole")
    return found


KVS = [
    request_bytes(Request(b"put_", b"a key", Value(b"ASTR", b"some value"))) + request_bytes(Request(b"get_", b"a key")),
    request_bytes(Request(b"mkey", b"m", Value(b"ASTR", b"a k"))) + request_bytes(Request(b"view", b"a key")) + b"dump",
    request_bytes(Request(b"auth", b"secret")) + b"clos",
]


@target("kvs-wire", lambda: KVS, weight=20)
def _kvs(data: bytes) -> object:
    store = KeyValueStore()
    found: list[object] = []
    with contextlib.suppress(WireError):
        for request in RequestReader().feed(data):
            found.append(request)
            if request.op == b"put_":
                store.put(request.key, request.value)
        found.append("whole")
    return found


# ---- frames of engines


def _engine_frames() -> list[bytes]:
    hello = m.Hello(context="c", node="n", slots=2, pid=1, started_at=0.0, properties={})
    result = m.Result(0, 1, 0, 99, 1.0, 2.0, 3, b"out")
    report = m.Report([m.Finished(1, [result], True)], [])
    bodies: list[list[m.FromEngine]] = [[hello], [report], [m.Bye("done")], [], [m.Output(0, b"OP")]]
    found = []
    for number, said in enumerate(bodies):
        with contextlib.suppress(TypeError):
            found.append(m.encode(m.EngineFrame(m.VERSION, "e0", min(1, number), number, 0, said)))
    return found


@target("engine-frames", _engine_frames)
def _engines(data: bytes) -> object:
    frame = m.read_engine_frame(data)
    if isinstance(frame, str):
        return frame
    driver = new_state(LiveOptions(bundle=1))
    driver.feed(Feeder(task_file.TaskLine(i, i + 1, -1, "true") for i in range(2)))
    hello = m.Hello(context="c", node="n", slots=2, pid=1, started_at=0.0, properties={"key": "k"})
    hear(driver, m.EngineFrame(m.VERSION, "e0", 0, 0, 0, [hello]), 0.0)
    settle(driver, 0.5)
    hear(driver, frame, 1.0)
    settle(driver, 1.5)
    return list(driver_frames(driver, 2.0))


# ---- what engines leave on disk


def _logs() -> list[bytes]:
    path = folder() / f"log-{os.getpid()}"
    log = Log(path)
    for task in range(3):
        log.begin(task + 5)
        log.running(task)
        log.ended(m.Result(task, 1, task, 99, 1.0, 2.0, 3, b"out", reason="walltime"))
    log.running(4)
    log.close()
    data = path.read_bytes()
    path.unlink()
    return [data]


@target("spool-log", _logs)
def _read_log(data: bytes) -> object:
    path = folder() / f"spool-{os.getpid()}"
    path.write_bytes(data)
    return read_log(path)


def _packs() -> list[bytes]:
    first = output_pack.encode(output_pack.Chunk(output_pack.STDOUT, 1, 7, 0, b"line\n" * 200), 0)
    second = output_pack.encode(output_pack.Chunk(output_pack.STDERR, 1, 7, 0, b"bad"), 1)
    return [first + second]


@target("output-pack", _packs)
def _read_pack(data: bytes) -> object:
    pack = io.BytesIO(data)
    found = list(output_pack.scan(pack, 0, "pack"))
    places = [1, *(end + 1 for end, _ in found)]
    return found, [*output_pack.read_backwards(pack, places[max(0, len(places) - 2)], "pack")][::-1]


# ---- schedulers that answer garbage


class Answering:
    """A decider whose every answer is the same bytes, read and judged as those of a real peer."""

    name = "peer"
    traits = BatsimDecider.traits

    def __init__(self, reply: Callable[[float], d.Reply]) -> None:
        self._reply = reply
        self._turns = 0

    def hello(self) -> d.Wants:
        return d.Wants(dynamic_registration=True)

    def begin(self, begins: e.Begins, cluster: object) -> None: ...

    def fileno(self) -> int:
        raise AssertionError("it speaks in turn")

    def decide(self, batch: e.Batch) -> d.Reply:
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise PeerError(self.name, "enough")
        return self._reply(batch.now)

    def close(self) -> None: ...


def play(reply: Callable[[float], d.Reply]) -> object:
    profile = Profile("w0!delay10", Delay(10.0))
    jobs = [Job(f"w0!{n}", 1 + n % 2, 100.0, 3.0 * n, profile) for n in range(4)]
    begins = e.Begins(NODES, profiles={profile.name: profile})
    records: list[object] = []
    try:
        records.append(Session(SimulatedWorld(begins, jobs, record=records.append), Answering(reply)).run())
    except PilothouseError as problem:
        records.append(problem)
    return records


@target("batsim-scheduler", lambda: seeds.batsim("sched->batsim"), weight=5)
def _scheduler4(data: bytes) -> object:
    reader = DecisionReader("peer", {})

    def reply(now: float) -> d.Reply:
        found = reader.reply(codec4.decode_from_scheduler(data))
        found.now = max(found.now, now)
        for decision in found.decisions:
            decision.at = max(decision.at, now)
        return found

    return play(reply)


@target("batprotocol-scheduler", seeds.batprotocol, weight=5)
def _scheduler5(data: bytes) -> object:
    reader = DecisionReader5()

    def reply(now: float) -> d.Reply:
        message = codec5.decode(data, Format.JSON)
        try:
            return d.Reply(now, [reader.read(event.event, now) for event in message.events or ()])
        except Malformed as problem:
            raise PeerError("peer", str(problem)) from None

    return play(reply)


# ---- a QCG manager


@target("qcg-requests", lambda: [*seeds.qcg(), *seeds.file("examples/requests.json")])
def _qcg_requests(data: bytes) -> object:
    variables = qcg_requests.request_variables(7, "uniq", "eagle", "2018-01-12", "14:58:49")

    def read(text: bytes, dialect: Dialect) -> object:
        request = qcg_requests.parse_request(text, lambda: variables, dialect)
        jobs = request.jobs[:20] if isinstance(request, qcg_requests.Submit) else []
        return request, [(job.name, job.after, job.description, job.description.written()) for job in jobs]

    try:
        texts = qcg_requests.split_requests(data, "requests") if data.lstrip().startswith(b"[") else [data]
    except qcg_requests.RequestError as problem:
        return problem
    return [
        or_problem(lambda text=text, dialect=dialect: read(text, dialect), qcg_requests.RequestError)  # type: ignore[misc]
        for text in texts
        for dialect in DIALECTS.values()
    ]


@cache
def _qcg_nodes() -> tuple[Node, ...]:
    return (Node("n0", 0, 4), Node("n1", 4, 4))


@target("qcg-manager", seeds.qcg)
def _qcg_manager(data: bytes) -> object:
    from pilothouse.dropins.qcg.manager import Manager, System

    resources = b'"resources": {"numCores": {"exact": 1}}'
    job = b'{"request": "submit", "jobs": [{"name": "a", "execution": {"exec": "true"}, %b}]}' % resources
    answers = []
    for dialect in DIALECTS.values():
        manager = Manager(System("x", 0.0), _qcg_nodes(), lambda: "id", dialect=dialect)
        manager.handle(job, 0.5)
        answers.append(msgspec.json.encode(manager.handle(data, 1.0)))
        answers.append(msgspec.json.encode(manager.handle(b'{"request": "listJobs"}', 2.0)))
    return answers


# ---- doors: sockets that strangers can reach


def knock(address: tuple[str, int], data: bytes) -> None:
    with socket.create_connection(address, timeout=5) as made, contextlib.suppress(OSError):
        made.sendall(data)


@cache
def _kvs_server() -> tuple[str, int]:
    from pilothouse.worlds.live.services.kvs_server import KvsServer

    server = KvsServer(secret="a secret")
    atexit.register(server.close)
    return server.host, server.port


@target("kvs-door", lambda: KVS, weight=1)
def _kvs_door(data: bytes) -> None:
    """A stranger's bytes; then a client with the secret is served."""
    knock(_kvs_server(), data)
    with socket.create_connection(_kvs_server(), timeout=5) as client:
        client.sendall(request_bytes(Request(b"auth", b"a secret")) + request_bytes(Request(b"put_", b"k", Value(b"ASTR", b"v"))))
        client.sendall(request_bytes(Request(b"get_", b"k")))
        heard = b""
        while b"v" not in heard:
            part = client.recv(100)
            assert part, f"the service hung up after {heard!r}"
            heard += part


class Pumped:
    """A real socket of ours, read by a thread of its own, as a driver or manager would."""

    def __init__(self, port: int, read: Callable[[], object]) -> None:
        self.address = ("127.0.0.1", port)
        self._read = read
        self.failed: BaseException | None = None
        threading.Thread(target=self._pump, daemon=True).start()

    def _pump(self) -> None:
        try:
            while True:
                self._read()
        except BaseException as problem:
            self.failed = problem
            raise

    def check(self, data: bytes) -> None:
        knock(self.address, data)
        assert self.failed is None, f"the reader ended: {self.failed!r}"


@cache
def _driver_socket() -> Pumped:
    from pilothouse.worlds.live.wire.sockets import DriverSocket, Keys

    door = DriverSocket(Keys.make(), "127.0.0.1")

    def read() -> None:
        if door.socket.poll(100):
            assert not door.receive(), "a stranger was heard"

    return Pumped(door.port, read)


CURVE = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x04\xc8\x05HELLO\x01" + bytes(193)


@target("driver-door", lambda: [CURVE, ZMTP], weight=1)
def _driver_door(data: bytes) -> None:
    """Strangers' bytes at the driver's socket: nothing is heard of them."""
    _driver_socket().check(data)


@cache
def _qcg_network() -> Pumped:
    from pilothouse.dropins.qcg.manager import Manager, System
    from pilothouse.protocols.qcg.network import Endpoint, Network

    network = Network(Endpoint(), folder())
    manager = Manager(System("x", 0.0), _qcg_nodes(), lambda: "id")

    def read() -> None:
        network.wait(0.1)
        network.serve(lambda text: manager.handle(text, 1.0))

    return Pumped(int(network.address.rpartition(":")[2]), read)


def _conversations() -> list[bytes]:
    return [zmtp.GREETING + zmtp.READY + zmtp.request_of(request) for request in seeds.qcg()]


@target("qcg-door", _conversations, weight=1)
def _qcg_door(data: bytes) -> None:
    _qcg_network().check(data)


TOKEN = "fuzz-token-fuzz-token"
ASKS = [
    f"GET /events HTTP/1.1\r\nHost: localhost:1\r\nAuthorization: Bearer {TOKEN}\r\nOrigin: http://localhost:1\r\n\r\n".encode(),
    f"POST /requests?a=b HTTP/1.1\r\nHost: [::1]\r\nAuthorization: Bearer {TOKEN}\r\n"
    "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n".encode(),
]


@target("web-request", lambda: ASKS)
def _web_request(data: bytes) -> None:
    """What is let through has the token, a name of this host, and the method of its path."""
    with contextlib.suppress(web_http.BadRequest):
        request = web_http.read_head(data)
        changes = request.path == "/requests"
        Gate(TOKEN).check(request, changes=changes)
        assert request.path in OPEN_PATHS or f"Bearer {TOKEN}".encode() in data
        assert request.method == ("POST" if changes else "GET")
        assert 0 <= request.body_bytes <= web_http.MOST_BODY_BYTES


@target("run-request", lambda: [b'{"ask": "cancel", "task": 7}', b'{"ask": "add-context", "hosts": "a:1", "slots": 2}'])
def _run_request(data: bytes) -> object:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_request(data)
    return None


@target("now-json", lambda: [msgspec.json.encode(SessionNow(1.0, 4, 2, 1, 1, [PresentJob("a", 0.0, 2, None, "", 1.0, "0-1")]))])
def _now_json(data: bytes) -> None:
    (folder() / "now.json").write_bytes(data)
    add_present(Schedule(name="", path="", live=False), f"{folder()}/")


# ---- what a run leaves behind


@cache
def _journal() -> bytes:
    """The journal of a run with an engine, ends, refusals, and an assignment that is still open."""
    home = folder() / "run"
    home.mkdir()
    journal = Journal(home)
    task = m.Task(3, 4, -1, "true")
    end = r.TaskEnded(
        0, 1, -1, 1, "N", JobState.SUCCEEDED, 0, 0, "n", 9, 1.0, 2.0, 3, b"out", 0, b"", b"true", "", True, ""
    )  # fmt: skip
    journal.write([
        r.EngineJoined("e0", 0, "local", "n", 2, 0, 7, 0.0, "", (), 100, 2), r.Note("tasks", b"4"), end,
        r.Assigned(1, "j1", "e0", "0", 1.0, [task]), r.Refused("j9", 2.0, "never"),
    ])  # fmt: skip
    journal.close()
    return (home / "journal.sqlite").read_bytes()


@target("journal", lambda: [_journal()], weight=1)
def _damaged_journal(data: bytes) -> None:
    home = folder() / f"damaged-{os.getpid()}"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700)
    (home / "journal.sqlite").write_bytes(data)
    for read in (read_jobs, read_nodes, lambda home: used_up(read_tasks(home))):
        with contextlib.suppress(PilothouseError):
            read(home)
    with contextlib.closing(Journal(home, must_exist=True)) as journal:
        restore(new_state(LiveOptions()), list(journal.replay()), 0.0)
