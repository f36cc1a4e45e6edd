"""Values at bounds and beside them."""

from __future__ import annotations

import io
import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from pilothouse.formats import (
    accounting_logs,
    dax,
    fluid,
    flux_jobs,
    lsf_log,
    pbs_log,
    slurm_jobcomp,
    slurm_sacct,
)
from pilothouse.formats.accounting import AccountedJob, Fate, workload
from pilothouse.formats.command_template import CommandTemplate
from pilothouse.formats.platform_elements import BANDWIDTH_UNITS, SPEED_UNITS, TIME_UNITS, quantity
from pilothouse.formats.slurm_fields import count, gres, memory_mb
from pilothouse.formats.task_file import LineKind, TaskLine, TaskReader, check_stream, read_file
from pilothouse.formats.task_request import from_columns, parse_words, walltime_s, words_of
from pilothouse.formats.task_request import memory_mb as task_memory_mb
from pilothouse.model.errors import InputError
from pilothouse.model.task_request import TaskRequest

# ---- requests of tasks


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        ("cores=1 nodes=1", TaskRequest(cores=1, nodes=1)),
        ("gpus=0 retries=0", TaskRequest(gpus=0, retries=0)),
        ("cores=1000000", TaskRequest(cores=10**6)),
        ("mem=0", TaskRequest(memory_mb=0)),
        (f"mem={2**40}", TaskRequest(memory_mb=2**40)),
        ("mem=0.5K", TaskRequest(memory_mb=1)),
        ("after=a after=b,c env=A=1 env='B=x y'", TaskRequest(after=("a", "b", "c"), env=(("A", "1"), ("B", "x y")))),
        ("walltime=0:01", TaskRequest(walltime=1.0)),
        ("walltime=0.5", TaskRequest(walltime=0.5)),
        ("walltime=1:00:30", TaskRequest(walltime=3630.0)),
    ],
)
def test_requests_that_are_taken(words: str, request_: TaskRequest) -> None:
    assert parse_words(words, "here") == request_
    assert parse_words(words_of(request_), "here") == request_


@pytest.mark.parametrize(
    "words",
    [
        "cores=0", "nodes=0", "cores=1000001", "gpus=-1", "cores=1.0", "cores=²", f"mem={2**40 + 1}", "mem=-1", "mem=x",
        "walltime=0:00",
        "walltime=1:2:3:4", "walltime=1::2", "walltime=:1", "cores=1 cores=1", "name=a name=b", "name=a,b", "after=a,",
        "env=1=2", "env=A",
        f"cores={'4' * 5000}", f"walltime=1:{'4' * 5000}", f"walltime={'4' * 5000}", f"mem={'4' * 5000}", f"mem={'4' * 400}T",
        "x=1", "cores",
        "name='",
    ],
)  # fmt: skip
def test_requests_that_are_refused(words: str) -> None:
    with pytest.raises(InputError, match=r"^here"):
        parse_words(words, "here")


def test_columns_of_tables_as_requests() -> None:
    columns = {"cores": 2, "mem": "", "gpus": None, "env": {"A": 1, "B": "x"}, "after": ["a", "b"], "walltime": "1:00"}
    assert from_columns(columns, "here") == TaskRequest(
        cores=2, env=(("A", "1"), ("B", "x")), after=("a", "b"), walltime=60.0
    )
    assert from_columns({"env": "A=1,B=2", "after": "a,b"}, "here") == TaskRequest(
        env=(("A", "1"), ("B", "2")), after=("a", "b")
    )
    assert from_columns({"mem": ""}, "here") is None is parse_words(" ", "here")
    assert (task_memory_mb("1T", "here"), task_memory_mb("3K", "here"), walltime_s("inf", "here")) == (2**20, 1, inf)


@pytest.mark.parametrize("number", ["4" * 5000, "3", "-3", "0"])
def test_values_that_no_template_has(number: str) -> None:
    with pytest.raises(InputError, match="no such value"):
        CommandTemplate(f"x {{{number}}}", ["", ""])


def test_values_of_templates_by_their_numbers() -> None:
    assert CommandTemplate("{1} {2} {-1} {-2} {b}", ["", "b"]).fill(["x", "y"], 1) == "x y y x y"


# ---- task files


def test_lines_of_task_files() -> None:
    text = b"#DISBATCH PERENGINE START a\n#DISBATCH PERENGINE START b\n#DISBATCH PERENGINE STOP c\nx\n#DISBATCH BARRIER k\n"
    text += b"#DISBATCH REPEAT 2 y\n#DISBATCH REPEAT 2 start 5 step 3 z\n#DISBATCH BARRIER CHECK\nw"
    lines = list(TaskReader("t").read(text.splitlines(keepends=True)))
    assert [(line.task_id, line.line_number, line.repeat_index, line.command, line.age, line.key) for line in lines] == [
        (0, 1, -1, "a", 0, ""), (1, 2, -1, "b", 1, ""), (0, 3, -1, "c", 2, ""), (0, 4, -1, "x", 3, ""),
        (1, 5, -1, "#DISBATCH BARRIER k", 3, "k"), (2, 6, 0, "y", 4, ""), (3, 6, 1, "y", 4, ""), (4, 7, 5, "z", 4, ""),
        (5, 7, 8, "z", 4, ""),
        (6, 8, -1, "#DISBATCH BARRIER CHECK", 4, ""), (7, 9, -1, "w", 5, ""),
    ]  # fmt: skip
    kinds = (LineKind.ENGINE_START,) * 2 + (LineKind.ENGINE_STOP, LineKind.TASK, LineKind.BARRIER)
    assert tuple(line.kind for line in lines[:5]) == kinds
    assert lines[9].kind is LineKind.CHECK
    assert TaskLine(0, 1, -1, "x").age == 0


def test_an_item_of_several_lines_has_one_number() -> None:
    items = [b"a\nb\n", b"c", b"d\re", b"\n", b"#DISBATCH PREFIX p \n", b" f \n", b"# g\nh", b"x\n\n"]
    read = [(line.task_id, line.line_number, line.command) for line in TaskReader("t").read(items)]
    assert read == [
        (0, 1, "a"), (1, 1, "b"), (2, 2, "c"), (3, 3, "d"), (4, 3, "e"), (5, 6, "p  f "), (6, 7, "p h"), (7, 8, "p x")
    ]  # fmt: skip
    reader = TaskReader("t")
    assert [(line.task_id, line.line_number, line.command) for item in items for line in reader.feed(item)] == read
    assert [line.age for line in TaskReader("t").read([b"#DISBATCH BARRIER\nx", b"y"])] == [0, 1, 1]


class Slow(io.BytesIO):
    """A pipe that gives a few bytes at a time."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self.most = most

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self.most)


PLAIN = b"a\n b\n\n# c\n  \n"
REPEATED, STOP, BARRIER = b"#DISBATCH REPEAT 3 x\n", b"#DISBATCH PERENGINE STOP x\n", b"#DISBATCH BARRIER CHECK k\n"


@pytest.mark.parametrize("most", [1, 7, 1000])
@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        b"", PLAIN, PLAIN + b"x", b"\xef\xbb\xbf" + PLAIN, b"\xef\xbb\xbf" + STOP,
        STOP + PLAIN + BARRIER + PLAIN, PLAIN + STOP + PLAIN, BARRIER,
        PLAIN + REPEATED + b"y", STOP * 2 + BARRIER * 2 + STOP,
        b"# c\n\n" + STOP + b"x\n", PLAIN + b"#DISBATCH x\n" + PLAIN, b"a\rb\n" + PLAIN,
        PLAIN + b"#PILOTHOUSE cores=2\nx\n", PLAIN + b"#PILOTHOUSE cores=x\nx\n", b"#DISBATCHx\n" + PLAIN, PLAIN + b"x\0\n",
    ],
)  # fmt: skip
def test_what_is_counted_is_what_is_read(text: bytes, lenient: bool, most: int) -> None:
    """The count and the tasks agree, and so do their errors, however the bytes come."""

    def read() -> object:
        kinds = [line.kind for line in read_file(io.BytesIO(text), "t", lenient=lenient)]
        barriers = sum(kind in (LineKind.BARRIER, LineKind.CHECK) for kind in kinds)
        tasks = kinds.count(LineKind.TASK)
        return tasks, barriers, len(kinds) - barriers - tasks

    def counted() -> object:
        totals = check_stream(Slow(text, most), "t", lenient=lenient)
        return totals.tasks, totals.barriers, totals.per_engine

    answers: list[object] = []
    for run in (read, counted):
        try:
            answers.append(run())
        except InputError as problem:
            answers.append(str(problem))
    assert answers[0] == answers[1]


# ---- accounting


def row(**changes: Any) -> AccountedJob:
    fields: dict[str, Any] = {
        "id": "1",
        "fate": Fate.FINISHED,
        "cpus": 1,
        "submitted_at": 1.0,
        "started_at": 2.0,
        "ended_at": 2.5,
    }
    return AccountedJob(**{**fields, **changes})


@pytest.mark.parametrize(("limit_s", "walltime"), [(0.25, 0.25), (0.5, 0.5), (0.75, 0.75), (1.0, 1.0), (-1.0, 1.5)])
def test_short_limits(limit_s: float, walltime: float) -> None:
    found = workload([row(limit_s=limit_s)], "log", "w", units=0)
    (job,) = found.jobs
    assert job.walltime == walltime
    assert [what.split(":")[0] for what in found.oddities] == {0.25: ["cut at the time limit"], -1.0: [GUESSED]}.get(
        limit_s, []
    )


GUESSED = "walltime guessed, the run time and a second"


def test_what_logs_leave_out_is_not_odd(tmp_path: Path) -> None:
    """A job that was not suspended, was submitted and eligible at once, and ended well has nothing odd."""
    path = tmp_path / "log"
    head, line = (
        "JobID|Submit|Start|End|NCPUS|TimelimitRaw|State",
        "1|2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T00:00:20|2|5|COMPLETED",
    )
    path.write_text(f"{head}\n{line}\n\n{line.replace('1|', '2|', 1)}|\n\n")
    found = slurm_sacct.read(path)
    assert (found.oddities, [job.units for job in found.jobs], [job.walltime for job in found.jobs]) == (
        {},
        [2, 2],
        [300.0, 300.0],
    )
    path.write_text(f"{head}|\n{line}|\n{line}|x|\n")
    assert list(slurm_sacct.read(path).oddities.values()) == [1]
    time = {
        "submission": 10,
        "eligible": 10,
        "start": 20,
        "end": 30,
        "elapsed": 10,
        "limit": {"set": True, "number": 1},
    }
    job = {
        "job_id": 7,
        "state": {"current": ["COMPLETED"]},
        "time": time,
        "tres": {"requested": [{"type": "cpu", "count": 3}]},
    }
    path.write_text(json.dumps({"jobs": [job]}))
    found = slurm_sacct.read(path)
    assert (found.oddities, found.jobs[0].walltime, found.jobs[0].units, found.jobs[0].id) == ({}, 60.0, 3, "w0!7")
    path.write_text("JobId=1 UserId=a(1) JobState=COMPLETED ProcCnt=2 TimeLimit=3 SubmitTime=2026-01-01T00:00:00 "
                    "EligibleTime=2026-01-01T00:00:00 StartTime=2026-01-01T00:00:00 EndTime=2026-01-01T00:00:09\n")  # fmt: skip
    found = slurm_jobcomp.read(path)
    assert (found.oddities, found.jobs[0].walltime, found.jobs[0].user) == ({}, 180.0, "a")
    path.write_text(
        json.dumps({"jobs": [{"id": 5, "ncores": 1, "t_submit": 0.5, "t_run": 1, "t_cleanup": 2, "duration": 1.5}]})
    )
    found = flux_jobs.read(path)
    assert (found.oddities, found.jobs[0].walltime, found.jobs[0].units) == ({}, 1.5, 1)


@pytest.mark.parametrize(
    ("changes", "cpus"),
    [
        (
            {
                "tres": {
                    "requested": [{"type": "cpu", "count": 0}],
                    "allocated": [{"type": "mem", "count": 9}, {"type": "cpu", "count": 4}],
                }
            },
            4,
        ),
        ({"required": {"CPUs": 6}}, 6),
        ({"required": {"CPUs": {"set": True, "infinite": False, "number": 1}}}, 1),
        ({"required": {"CPUs": {"infinite": True}}}, None),
        ({"required": {"CPUs": {"set": False, "number": 6}}}, None),
        ({"tres": {"requested": 5}}, None),
        ({"required": {"CPUs": True}}, None),
        ({"required": {"CPUs": 2**53}}, None),
    ],
)
def test_cpus_of_jobs_of_slurm(tmp_path: Path, changes: dict[str, Any], cpus: int | None) -> None:
    path = tmp_path / "log"
    job = {"job_id": 7, "state": {"current": "COMPLETED"}, "time": {"submission": 10, "start": 20, "end": 30}}
    path.write_text(
        json.dumps(
            {"jobs": [{**job, "tres": {"requested": [{"type": "cpu", "count": 1}]}}, {**job, "job_id": 8, **changes}]}
        )
    )
    found = slurm_sacct.read(path)
    assert [one.units for one in found.jobs] == [1, *([cpus] if cpus else [])]
    assert found.oddities.get("left out: no number of CPUs", 0) == (cpus is None)


@pytest.mark.parametrize(
    ("rest", "fate"),
    [
        ("end=30 Resource_List.walltime=10 Exit_status=1", "ended by the time limit: would have run longer"),
        ("end=31 Resource_List.walltime=10 Exit_status=1", "ended by the time limit: would have run longer"),
        ("end=29 Resource_List.walltime=10 Exit_status=1", None),
        ("end=30 Resource_List.walltime=10 Exit_status=0", None),
        (
            "resources_used.walltime=10 Resource_List.walltime=10 Exit_status=1",
            "ended by the time limit: would have run longer",
        ),
        (f"end={2**40} Resource_List.walltime=10", "left out: date of end unknown"),
        (f"end={2**40 - 1} Resource_List.walltime={2**29}", "cut at the time limit: ran longer"),
    ],
)
def test_ends_of_jobs_of_pbs(tmp_path: Path, rest: str, fate: str | None) -> None:
    path = tmp_path / "log"
    line = "01/02/2026 10:00:00;E;{}.head;user=a ctime=10 etime=10 start=20 Resource_List.ncpus=2 {}\n"
    path.write_text(line.format(1, rest) + line.format(2, "end=29 Resource_List.walltime=10"))
    assert [what for what in pbs_log.read(path).oddities if "begins" not in what] == ([fate] if fate else [])


@pytest.mark.parametrize(
    ("fields", "odd"),
    [
        *(({"state": state}, "left out: still waiting") for state in (1, 2, 4, 8, "NEW", "depend", "PRIORITY", "SCHED")),
        *(({"state": state}, "left out: still running") for state in (16, 32, "RUN", "cleanup")),
        *(({"state": 64, "result": result}, None) for result in (1, 2, "COMPLETED", "FAILED", "", 3)),
        *(({"state": "INACTIVE", "result": result}, "cancelled, preempted") for result in (4, "CANCELED")),
        *(({"state": "INACTIVE", "result": result}, "ended by the time limit") for result in (8, "timeout")),
    ],
)
def test_states_of_jobs_of_flux_as_words_and_as_numbers(tmp_path: Path, fields: dict[str, Any], odd: str | None) -> None:
    path = tmp_path / "log"
    job = {"id": 5, "ncores": 1, "t_submit": 1, "t_run": 2, "t_cleanup": 3, "duration": 9}
    path.write_text(json.dumps({"jobs": [job, {**job, "id": 6, **fields}]}))
    assert [what.startswith(str(odd)) for what in flux_jobs.read(path).oddities] == ([True] if odd else [])


def test_a_job_of_slurm_without_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "log"
    job = {"job_id": 7, "time": {"submission": 10, "start": 20, "end": 30}, "required": {"CPUs": 1}}
    for limit, walltime in (({"infinite": True}, inf), ({"set": False, "number": 5}, 11.0), ({"number": 5}, 300.0), (5, 300.0)):
        path.write_text(json.dumps({"jobs": [{**job, "time": {**job["time"], "limit": limit}}]}))  # type: ignore[dict-item]
        assert [one.walltime for one in slurm_sacct.read(path).jobs] == [walltime]


def test_workflows(tmp_path: Path) -> None:
    path = tmp_path / "w.xml"
    path.write_text(
        '<adag><job id="a" runtime="0"/><job id="b" runtime="0.5"/><child ref="b"><parent ref="a"/><x/></child></adag>'
    )
    one, other = dax.read(path).tasks
    assert (one.runtime_s, other.runtime_s, one.parents, other.parents, one.children) == (0.0, 0.5, 0, 1, [other])
    for runtime in ("-0.5", "inf", "nan", "x", ""):
        path.write_text(f'<adag><job id="a" runtime="{runtime}"/></adag>')
        with pytest.raises(InputError, match=r"job a: runtime; expected seconds, 0 or more"):
            dax.read(path)


def test_records_of_lsf_that_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "lsb.acct"
    path.write_text('"JOB_RESIZE" x\n# c\n')
    with pytest.raises(InputError, match=r"no job in it; expected JOB_FINISH"):
        lsf_log.read(path)
    path.write_text("x\n")
    with pytest.raises(InputError, match=r":1: not a record of lsb.acct"):
        lsf_log.read(path)
    path.write_text('"JOB_FINISH" "10.1" 5\n')
    with pytest.raises(InputError, match=r"1 left out: a record that is damaged"):
        lsf_log.read(path)


# ---- fields


def test_amounts_of_slurm() -> None:
    assert [memory_mb(text) for text in ("1K", "2048K", "1G", "1T", "1P", "1.5G", "7Mn", "x")] == [
        0,
        2,
        1024,
        2**20,
        2**30,
        1536,
        7,
        None,
    ]
    assert [count(text) for text in ("1K", "1.5M", "2G", "1T", "1P", "0", "x")] == [
        1000,
        1500000,
        2 * 10**9,
        10**12,
        10**15,
        0,
        None,
    ]
    assert gres("gpu:2,,gpu:a100:3(S:0-1),fpga") == {"gpu": 5, "fpga": 1}
    assert gres("gpu:0") == {"gpu": 0}


@pytest.mark.parametrize(
    ("text", "units", "value"),
    [
        ("2", SPEED_UNITS, 2.0), ("2f", SPEED_UNITS, 2.0), ("2kf", SPEED_UNITS, 2e3), ("2Mflops", SPEED_UNITS, 2e6),
        ("1Yf", SPEED_UNITS, 1e24),
        ("1KiBps", BANDWIDTH_UNITS, 1024.0), ("1kiBps", BANDWIDTH_UNITS, 1024.0), ("1MiBps", BANDWIDTH_UNITS, 2.0**20),
        ("8bps", BANDWIDTH_UNITS, 1.0), ("1kbps", BANDWIDTH_UNITS, 125.0), ("1Kibps", BANDWIDTH_UNITS, 128.0),
        ("3", BANDWIDTH_UNITS, 3.0),
        ("1w", TIME_UNITS, 604800.0), ("1d", TIME_UNITS, 86400.0), ("1h", TIME_UNITS, 3600.0), ("1m", TIME_UNITS, 60.0),
        ("1s", TIME_UNITS, 1.0), ("1", TIME_UNITS, 1.0), ("1ms", TIME_UNITS, 1e-3), ("1us", TIME_UNITS, 1e-6),
        ("1ns", TIME_UNITS, 1e-9),
        ("1ps", TIME_UNITS, 1e-12), ("1x", TIME_UNITS, None), ("-1", TIME_UNITS, None), ("1KBps", BANDWIDTH_UNITS, None),
    ],
)  # fmt: skip
def test_quantities_of_platforms(text: str, units: dict[str, float], value: float | None) -> None:
    assert quantity(text, units) == value


def test_numbers_of_flux_have_so_many_digits() -> None:
    assert [fluid.parse(text) for text in ("f" + "1" * 11, "0" * 20, "0x" + "0" * 16)] == [0, 0, 0]
    for text in ("f" + "1" * 12, "0" * 21, "0x" + "0" * 17):
        with pytest.raises(InputError, match="not a Flux job id"):
            fluid.parse(text)


@pytest.mark.parametrize(
    ("hosts", "cpus"),
    [("n1/0-16777215", 2**24), ("n1/0-16777216", 1), ("n1/3-2", 1), ("n1/2-2", 1), ("n1/0*0", 1), ("n1+n2/0*3", 4)],
)
def test_slots_of_pbs(hosts: str, cpus: int) -> None:
    assert pbs_log.cpus({"exec_host": hosts}) == cpus


def test_a_kind_of_log_is_seen_near_its_beginning() -> None:
    flux, lsf, pbs = b'{"t_submit" : 1}', b'# x\n"JOB_FINISH" "', b"01/02/2026 10:00:00;E;"
    for text in (b"JobId=1", b"JobID|x", b'{"meta": 1, "association": 2}', flux, lsf, pbs):
        assert accounting_logs.reader(b"\n " + text) is not None
    for text in (b"", b'{"meta": 1}', b'{"association": 1}', b'"t_submit": 1', b'"JOB_START" "', b"1/2/2026 10:00:00;E;", b"{}"):
        assert accounting_logs.reader(text) is None
