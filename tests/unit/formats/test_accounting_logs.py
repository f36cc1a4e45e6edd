"""PBS's, LSF's and Flux's accounting as workloads: one row for each oddity, and damaged logs are an error of ours."""

from __future__ import annotations

import json
import random
from math import inf
from pathlib import Path

import pytest

from pilothouse.formats import accounting_logs, pbs_log
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, PilothouseError


def read(path: Path, text: str, units: int = 0) -> Workload:
    path.write_text(text)
    reader = accounting_logs.reader(text.encode())
    assert reader is not None
    return reader(path, "w0", units=units)


def jobs(found: Workload) -> list[tuple[object, ...]]:
    return [(job.local_id, job.units, job.submitted_at, job.runtime, job.walltime, job.user) for job in found.jobs]


# ---- PBS and Torque

ASKED = "user=ann group=g jobname=x queue=q ctime=1000 qtime=1000"
PBS = f"""\
01/02/2026 09:00:00;L;license;floating license hour:3 day:3 month:3 max:10
01/02/2026 10:00:00;Q;1.head;queue=q
01/02/2026 10:00:05;S;1.head;{ASKED} etime=1000 start=1005 exec_host=n1/0*4+n2/0*4 Resource_List.ncpus=8
01/02/2026 10:05:00;E;1.head;{ASKED} etime=1000 start=1005 exec_host=n1/0*4+n2/0*4 Resource_List.ncpus=8 \
Resource_List.walltime=00:10:00 session=7 end=1305 Exit_status=0 resources_used.walltime=00:00:00 run_count=1
01/02/2026 10:00:00;Q;2.head;queue=q
01/02/2026 10:01:00;D;2.head;requestor=ann@head
01/02/2026 10:06:00;E;3[7].head;{ASKED} etime=1060 start=1100 exec_host=n1/0+n1/1+n1/2 Resource_List.nodes=1:ppn=3 \
Resource_List.walltime=1:00 end=1190 Exit_status=271
01/02/2026 10:06:00;E;3[].head;{ASKED} start=1100 end=1190
01/02/2026 10:07:00;S;4.head;{ASKED} etime=1000 start=1200 exec_host=n1/0 Resource_List.walltime=2:00:00:00
01/02/2026 10:07:30;R;4.head;{ASKED} start=1200 end=1230
01/02/2026 10:08:00;S;4.head;{ASKED} etime=1000 start=1300 exec_host=n1/0-1,3 Resource_List.walltime=2:00:00:00
01/02/2026 10:09:00;E;4.head;{ASKED} etime=1000 start=1300 end=1400 exec_host=n1/0-1,3 Exit_status=0 \
Resource_List.walltime=2:00:00:00
01/02/2026 10:09:00;D;5.head;requestor=bob@head
01/02/2026 10:09:10;S;6.head;user=bob group="two words" ctime=1010 etime=0 start=1400 Resource_List.select=2:ncpus=3+1:ncpus=2
01/02/2026 10:09:20;D;6.head;requestor=bob@head
01/02/2026 10:09:30;E;6.head;user=bob group="two words" ctime=1010 etime=0 start=1400 end=1420 Exit_status=271 \
Resource_List.select=2:ncpus=3+1:ncpus=2
01/02/2026 10:10:00;S;7.head;{ASKED} start=1500 exec_host=n1/0
01/02/2026 10:10:00;Q;8.head;queue=q
cut off in the mid
01/02/2026 10:11:00;E;9.head;{ASKED} start=0 end=1600 Exit_status=-4
01/02/2026 10:11:00;D;11.head;requestor=ann@head
01/02/2026 10:11:05;E;11.head;user=eve ctime=1020 start=1100 end=1110 Resource_List.ncpus=2 Exit_status=271
01/02/2026 10:12:00;E;10-2.head;{ASKED} start=1500 end=1510 Resource_List.walltime=unlimited Resource_List.nodes=n7+n8:ppn=2
"""


def test_pbs(tmp_path: Path) -> None:
    found = read(tmp_path / "20260102", PBS)
    assert jobs(found) == [
        ("1", 8, 0.0, 300.0, 600.0, "ann"),
        ("10_2", 3, 0.0, 10.0, inf, "ann"),
        ("4", 1, 0.0, 30.0, 172800.0, "ann"),
        ("4#2", 3, 0.0, 100.0, 172800.0, "ann"),
        ("6", 8, 10.0, 20.0, 21.0, "bob"),
        ("11", 2, 20.0, 10.0, 11.0, "eve"),
        ("3_7", 3, 60.0, 60.0, 60.0, "ann"),
    ]
    told = found.oddities
    for what, count in (
        ("never started", 3), ("still waiting", 1), ("still running", 1), ("whole array", 1), ("damaged", 1),
        ("earlier run of a requeued", 1), ("ended by the time limit", 1), ("cancelled, preempted", 2), ("eligible", 1),
        ("no limit was told", 2), ("without a time limit", 1),
    ):  # fmt: skip
        assert sum(n for words, n in told.items() if what in words) == count, (what, told)
    assert len(read(tmp_path / "small", PBS, units=4).jobs) == 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3600", 3600.0), ("30:00", 1800.0), ("1:00:00", 3600.0), ("100:00:00", 360000.0), ("1:02:03:04", 93784.0),
     ("00:00:10.5", 10.0), ("UNLIMITED", inf), ("", None), ("soon", None), ("1:2:3:4:5", None)],
)  # fmt: skip
def test_time_limits_of_pbs_in_every_form(text: str, seconds: float | None) -> None:
    assert pbs_log.duration(text) == seconds


@pytest.mark.parametrize(
    ("pairs", "count"),
    [
        ({"exec_host": "n1/0*13+n2/0*13", "Resource_List.ncpus": "26"}, 26),
        ({"exec_host": "n1/0+n1/1+n2/0"}, 3), ({"exec_host": "n1/0-3,7+n2/1"}, 6),
        ({"exec_host": "n1/0", "Resource_List.ncpus": "8"}, 8),
        ({"Resource_List.nodes": "2:ppn=6+fat:ppn=4+1"}, 17), ({"Resource_List.nodes": "n1:ppn=4+n2"}, 5),
        ({"Resource_List.select": "3"}, 3), ({"Resource_List.select": "2:ncpus=4:mem=1gb+ncpus=1"}, 9), ({}, None),
    ],
)  # fmt: skip
def test_cpus_of_pbs_in_every_form(pairs: dict[str, str], count: int | None) -> None:
    assert pbs_log.cpus(pairs) == count


# ---- LSF

USAGE = "1.5 0.5 " + " ".join(["-1"] * 17)


def finish(job: int, submit: int, start: int, end: int, hosts: list[str], *, status: int = 64, index: int = 0, info: int = 0,
           limit: int | None = 600, extensions: str = "0", usage: str = "0", version: str = "10.1", command: str = "run",
           begin: int = 0, processors: int = 1) -> str:  # fmt: skip
    listed = " ".join([str(len(hosts)), *(f'"{host}"' for host in hosts)])
    head = f'"JOB_FINISH" "{version}" {end} {job} 500 33554438 {processors} {submit} {begin} 0 {start} "ann" "normal" "" ""'
    tail = f'"" "default" {0 if status == 64 else 256} {processors} "" "" {index} 2048 0 "" "" "" "" 0 "" {info} "" -1 "/ann"'
    text = f'{head} "" "h" "/d" "" "" "" "1.{job}" 0 {listed} {status} 60.0 "a name" "{command}" {USAGE} {tail}'
    if limit is not None:
        text += f' "" "" "" -1 "" "" 5136 "" 0 "" "" {extensions} {usage} {limit} 64 2048 "select[type == any] " "" -1'
    return text


def test_lsf(tmp_path: Path) -> None:
    lines = [
        "# 0",
        finish(1, 1000, 1010, 1110, ["16*n1", "16*n2"], limit=43200, usage="2 n1 10 0 5 1 0 n2 10 0 5 1 0", version="9.1"),
        finish(2, 1000, 1100, 1200, ["n1", "n1", "n2"], index=5, extensions='2 1032 "0" 1033 "a b"'),
        finish(2, 1000, 1100, 1160, ["n1"], index=6, status=32, info=5, limit=60),
        finish(3, 1000, 0, 1050, [], status=32, info=14, processors=4),
        finish(4, 1000, 1100, 1150, ["n1"], status=32, info=14, command='sh -c ""echo a b"" > x'),
        finish(5, 1000, 1100, 1130, ["n1"], status=32, info=10),
        finish(5, 1000, 1150, 1190, ["n1"]),
        finish(6, 1000, 1100, 1150, ["n1"], limit=None, version="6.2"),
        finish(7, 1000, 1500, 1550, ["n1"], limit=-1, begin=1400),
        finish(8, 0, 1500, 1550, ["n1"]),
        '"EVENT_ADRSV_FINISH" "10.1" 1200 1300 0',
        finish(9, 1000, 1500, 1550, ["n1"]).replace(" 1500 ", " then "),
    ]
    found = read(tmp_path / "lsb.acct", "\n".join(lines))
    assert jobs(found) == [
        ("1", 32, 0.0, 100.0, 43200.0, "ann"),
        ("2_5", 3, 0.0, 100.0, 600.0, "ann"),
        ("2_6", 1, 0.0, 60.0, 60.0, "ann"),
        ("4", 1, 0.0, 50.0, 600.0, "ann"),
        ("5", 1, 0.0, 30.0, 600.0, "ann"),
        ("5#2", 1, 0.0, 40.0, 600.0, "ann"),
        ("6", 1, 0.0, 50.0, 51.0, "ann"),
        ("7", 1, 400.0, 50.0, 51.0, "ann"),
    ]
    told = found.oddities
    for what, count in (
        ("damaged", 1), ("never started", 1), ("submission unknown", 1), ("ended by the time limit", 1), ("eligible", 1),
        ("cancelled, preempted", 1), ("earlier run of a requeued", 1), ("no limit was told", 2),
    ):  # fmt: skip
        assert sum(n for words, n in told.items() if what in words) == count, (what, told)


def test_ends_of_jobs_of_lsf(tmp_path: Path) -> None:
    """By the reason that LSF gives; none of them counts for a job that is done."""
    cut = {1, 2, 3, 6, 7, 8, 9, 12, 14, 15, 16, 20, 21, 23}
    again = "an earlier run"
    words = {5: "ended by the time limit", 10: again, 11: again, **dict.fromkeys(cut, "cancelled, preempted")}
    for info in range(30):
        for status in (32, 64):
            found = read(tmp_path / "lsb.acct", finish(1, 1000, 1010, 1110, ["n1"], status=status, info=info))
            expected = words.get(info) if status == 32 else None
            assert [what.startswith(str(expected)) for what in found.oddities] == ([True] if expected else []), (info, status)


@pytest.mark.parametrize(
    ("hosts", "processors", "units"), [(["n1"], 8, 1), ([], 8, 8), (["4*n1", "n2", "x*n3"], 1, 6), ([], 0, None)]
)
def test_slots_of_jobs_of_lsf(tmp_path: Path, hosts: list[str], processors: int, units: int | None) -> None:
    kept = finish(1, 1000, 1010, 1110, ["n1"])
    found = read(tmp_path / "lsb.acct", f"{kept}\n{finish(2, 1000, 1010, 1110, hosts, processors=processors)}")
    assert [job.units for job in found.jobs] == [1, *([units] if units else [])]


def test_dates_of_lsf_from_1970_on(tmp_path: Path) -> None:
    found = read(tmp_path / "lsb.acct", finish(1, 1, 1, 1, ["n1"]))
    assert jobs(found) == [("1", 1, 0.0, 0.0, 600.0, "ann")]
    kept = finish(1, 1, 1, 1, ["n1"])
    unknown = {(0, 1, 1): "date of submission unknown", (1, 0, 1): "never started", (1, 1, 0): "date of end unknown"}
    for dates, what in unknown.items():
        assert list(read(tmp_path / "lsb.acct", f"{kept}\n{finish(2, *dates, ['n1'])}").oddities) == [f"left out: {what}"]


def test_a_limit_of_lsf_is_taken_only_where_it_must_be_one(tmp_path: Path) -> None:
    whole = finish(1, 1000, 1010, 1110, ["n1"], limit=600)
    assert read(tmp_path / "lsb.acct", whole).jobs[0].walltime == 600.0
    numbers = " 600 64 2048 "
    for before, after in ((numbers, " 600 x 2048 "), (numbers, " 600 64 x "), ('"select[type == any] "', "7"), (" 600 ", " 0 ")):
        assert read(tmp_path / "lsb.acct", whole.replace(before, after)).jobs[0].walltime == 101.0


# ---- Flux


def flux_job(number: int, **fields: object) -> dict[str, object]:
    plain = {"id": number, "username": "ann", "state": "INACTIVE", "result": "COMPLETED", "t_submit": 1000.5, "t_depend": 1000.5,
             "t_run": 1001.0, "t_cleanup": 1011.25, "t_inactive": 1011.5, "duration": 60.0, "ncores": 4, "ntasks": 2,
             "nnodes": 1, "name": "x"}  # fmt: skip
    return {key: value for key, value in {**plain, **fields}.items() if value is not None}


FLUX = [
    flux_job(1),
    flux_job(2, t_depend=1005.5, t_run=1010.0, t_cleanup=1080.0, result="TIMEOUT"),
    flux_job(3, t_run=0.0, t_cleanup=1002.0, result="CANCELED"),
    flux_job(4, result="CANCELED", duration=0.0),
    flux_job(5, ncores=None, state=64, result=2, userid=7, username=None),
    flux_job(6, state="SCHED", t_run=None, t_cleanup=None, t_inactive=None, result=""),
    flux_job(7, state="RUN", t_cleanup=None, t_inactive=None, result=""),
    flux_job(8, t_cleanup=None, duration=None),
    flux_job(9, ncores="", ntasks=""),
]


def test_flux(tmp_path: Path) -> None:
    found = read(tmp_path / "flux.json", json.dumps({"jobs": FLUX}))
    assert jobs(found) == [
        ("1", 4, 0.0, 10.25, 60.0, "ann"),
        ("4", 4, 0.0, 10.25, inf, "ann"),
        ("5", 2, 0.0, 10.25, 60.0, "7"),
        ("8", 4, 0.0, 10.5, 11.5, "ann"),
        ("2", 4, 5.0, 60.0, 60.0, "ann"),
    ]
    told = found.oddities
    for what, count in (
        ("never started", 1), ("still waiting", 1), ("still running", 1), ("no number of CPUs", 1), ("number of tasks", 1),
        ("ended by the time limit", 1), ("cancelled, preempted", 1), ("eligible", 1), ("no limit was told", 1),
        ("without a time limit", 1),
    ):  # fmt: skip
        assert sum(n for words, n in told.items() if what in words) == count, (what, told)
    alone = read(tmp_path / "one.json", json.dumps(FLUX[0]))
    assert jobs(alone) == jobs(found)[:1]


# ---- all of them


@pytest.mark.parametrize(
    "text",
    [PBS.partition("Q;1")[0], '"EVENT_ADRSV_FINISH" "10.1" 1\n', '{"jobs": [], "t_submit": 1}', '{"jobs": {"t_submit": 1}}'],
)
def test_a_log_without_jobs_is_an_error_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path / "log", text)
    assert "\n" not in str(caught.value) and "log" in str(caught.value)


@pytest.mark.parametrize("name", ["pbs", "lsf", "flux"])
def test_damaged_logs_are_an_error_of_ours(name: str, tmp_path: Path) -> None:
    rng = random.Random(f"damaged {name}")
    whole = {
        "pbs": PBS, "flux": json.dumps({"jobs": FLUX}),
        "lsf": "\n".join(finish(number, 1000, 1100, 1200, ["2*n1"]) for number in range(4)),
    }[name]  # fmt: skip
    pieces = [";", "=", '"', "\n", " ", "9" * 25, "-1", "null", "é", "[", "]", "/", "*", "+", "0", "{", ":", "²"]
    for _ in range(200):
        damaged = whole
        for _ in range(rng.randint(1, 8)):
            cut = rng.randrange(len(damaged))
            damaged = damaged[:cut] + rng.choice(pieces) + damaged[cut + rng.randint(0, 9) :]
        reader = accounting_logs.reader(damaged.encode())
        if reader is not None:
            (tmp_path / "log").write_text(damaged)
            try:
                reader(tmp_path / "log", "w0", units=0)
            except PilothouseError as problem:
                assert "\n" not in str(problem)


def test_blank_lines_of_a_pbs_log_are_skipped(tmp_path: Path) -> None:
    text = PBS.replace("\n", "\n\n  \n")
    assert jobs(read(tmp_path / "log", text)) == jobs(read(tmp_path / "log", PBS))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3600", 3600.0), ("30:00", 1800.0), ("1:02:03", 3723.0), ("100:00:00", 360000.0), ("2:01:00:05", 176405.0), ("0", 0.0),
        ("UNLIMITED", inf), ("-1", inf), ("", None), ("x", None), ("1:2:3:4:5", None), ("x:00:00:00", None),
    ],
)  # fmt: skip
def test_durations_of_pbs(text: str, seconds: float | None) -> None:
    assert pbs_log.duration(text) == seconds
