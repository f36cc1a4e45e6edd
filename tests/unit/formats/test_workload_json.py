"""Workloads of Batsim: which jobs come out, in which order, with which profiles, and what is refused."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilothouse.formats import workload_json
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError
from pilothouse.model.profile import Delay

PROFILES: dict[str, Any] = {
    "d": {"type": "delay", "delay": 0.5},
    "long": {"type": "delay", "delay": 9, "ret": 3},
    "two": {"type": "parallel", "cpu": [1, 2], "com": [0, 0, 0, 0]},
    "sends": {"type": "ParallelTaskProfile", "com": [0] * 9},
    "total": {"type": "parallel_homogeneous_total", "cpu": 5, "com": 1},
    "each": {"type": "parallel_homogeneous", "cpu": 5, "com": 1},
    "totals": {"type": "composed", "seq": ["total", "w!total"]},
    "mixed": {"type": "composed", "seq": ["total", "each"]},
    "abroad": {"type": "composed", "seq": ["total", "v!x"]},
}


def job(number: object = 1, **fields: object) -> dict[str, object]:
    return {"id": number, "subtime": 0, "res": 1, "profile": "d", **fields}


def text(*jobs: dict[str, object], units: int = 4, profiles: dict[str, Any] | None = None) -> bytes:
    return msgspec.json.encode(
        {"nb_res": units, "jobs": list(jobs), "profiles": PROFILES if profiles is None else profiles}
    )


def parsed(*jobs: dict[str, object], **more: Any) -> Workload:
    return workload_json.parse(text(*jobs, **more), "f.json", "w", elsewhere={"v!x"})


@pytest.mark.parametrize(
    ("dates", "order"),
    [
        ({"1": 5, "2": 3, "3": 4}, ["2", "3", "1"]),
        ({"2": 5, "10": 5, "1": 6}, ["10", "2", "1"]),
        ({"b": 1, "a": 1, "c": 0}, ["c", "a", "b"]),
        ({"1": -5, "2": -6.5}, ["2", "1"]),
    ],
)
def test_jobs_come_by_date_and_then_by_their_ids_as_text(dates: dict[str, float], order: list[str]) -> None:
    found = parsed(*(job(name, subtime=date) for name, date in dates.items()))
    assert [one.local_id for one in found.jobs] == order
    assert [one.submitted_at for one in found.jobs] == sorted(dates.values())


@pytest.mark.parametrize(
    ("fields", "walltime"),
    [({}, inf), ({"walltime": None}, inf), ({"walltime": -1}, inf), ({"walltime": 0.5}, 0.5), ({"walltime": 1}, 1.0)],
)  # fmt: skip
def test_walltimes(fields: dict[str, object], walltime: float) -> None:
    (found,) = parsed(job(**fields)).jobs
    assert (found.walltime, found.runtime, found.units, found.extra_data, found.source) == (
        walltime,
        0.5,
        1,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"walltime": 0}, r"jobs\[1\].walltime: a walltime; expected above 0, or none, found 0"),
        ({"walltime": -2}, r"jobs\[1\].walltime: .* found -2"),
        ({"res": -1}, r"jobs\[1\].res: the number of resources; expected 0 or more, found -1"),
        ({"profile": "none"}, r"jobs\[1\].profile: unknown profile"),
        ({"profile": "two", "res": 3}, r"jobs\[1\].res: its parallel task is for 2 hosts; expected 2, found 3"),
        ({"profile": "sends", "res": 2}, r"jobs\[1\].res: its parallel task is for 3 hosts"),
        ({"extra_data": 5}, r"jobs\[1\]: extra_data must be"),
        ({"subtime": "x"}, r"jobs\[1\].subtime|Expected `float`"),
    ],
)
def test_jobs_that_are_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parsed(job(0), job(1, **fields))


def test_sizes_down_to_nothing_are_taken() -> None:
    found = parsed(job(1, res=0), job(2, profile="two", res=2), job(3, profile="sends", res=3), units=1)
    assert [one.units for one in found.jobs] == [0, 2, 3]
    assert found.units == 1


@pytest.mark.parametrize("units", [0, -1])
def test_a_machine_has_resources(units: int) -> None:
    with pytest.raises(InputError, match=r"f.json: \$.nb_res: the number of resources; expected 1 or more"):
        parsed(job(), units=units)


@pytest.mark.parametrize(
    ("profile", "elastic"), [("total", True), ("totals", True), ("each", False), ("mixed", False), ("abroad", False)]
)
def test_total_amounts_are_for_any_number_of_hosts(profile: str, elastic: bool) -> None:
    (found,) = parsed(job(profile=profile, res=3)).jobs
    assert found.elastic is elastic
    assert found.runtime is None


def test_jobs_share_profiles_and_only_those_that_are_needed_are_kept() -> None:
    found = parsed(job(1), job(2), job(3, profile="long"), job(4, profile="totals"), job(5, profile="w!long"))
    profiles = [one.profile for one in found.jobs if one.profile is not None]
    assert profiles[0] is profiles[1]
    assert (profiles[2].name, profiles[2].spec, profiles[2].return_code) == ("w!long", Delay(9.0), 3)
    assert (profiles[4].name, profiles[4].spec, profiles[4].return_code) == ("w!long", Delay(9.0), 3)
    assert set(found.profiles) == {"w!d", "w!long", "w!totals", "w!total"}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"type": "delay", "delay": 0}, "field 'delay'"),
        ({"type": "nonsense"}, "unknown type of profile"),
        ({"type": "composed", "seq": ["bad"]}, "profile 'bad' runs itself; found bad > bad"),
        ({"type": "composed", "seq": ["d", "none"]}, "unknown profile; found 'none'"),
    ],
)
def test_profiles_that_no_job_needs_are_checked_as_well(written: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=rf"f.json: \$.profiles\['bad'\]: {problem}"):
        parsed(job(), profiles={**PROFILES, "bad": written})


def test_profiles_under_full_names() -> None:
    found = parsed(job(profile="w!d"), job(2, profile="w!r"), profiles={"w!d": PROFILES["d"], "w!r": PROFILES["long"]})
    assert [one.profile.name for one in found.jobs if one.profile is not None] == ["w!d", "w!r"] == list(found.profiles)
    (one,) = parsed(job(extra_data=None)).jobs
    assert one.extra_data is None


def test_rings_of_sequences_are_refused() -> None:
    profiles = {"a": {"type": "composed", "seq": ["b"]}, "b": {"type": "composed", "seq": ["w!a"]}}
    with pytest.raises(InputError, match=r"profile 'a' runs itself; found a > b > a"):
        parsed(job(profile="a"), profiles=profiles)


@pytest.mark.parametrize("place", ["id", "extra", "profile", "unneeded"])
def test_bytes_that_are_no_text_are_named_by_their_line(place: str) -> None:
    names = dict.fromkeys(("id", "extra", "profile", "unneeded"), "é") | {place: "@"}
    data = text(job(names["id"], extra_data=names["extra"], profile="p"), profiles={
        "p": {"type": "delay", "delay": 1, "extra_data": names["profile"]},
        "q": {"type": "delay", "delay": 1, "extra_data": names["unneeded"]},
    })  # fmt: skip
    for sources in (False, True):
        with pytest.raises(InputError, match=r"f.json:2: not UTF-8; found byte 0xff"):
            workload_json.parse(b"\n" + data.replace(b"@", b"\xff"), "f.json", "w", sources=sources)
        (found,) = workload_json.parse(data.replace(b"@", "é".encode()), "f.json", "w", sources=sources).jobs
        assert (found.local_id, found.extra_data) == ("é", "é")


def test_the_description_of_a_job_is_kept_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(text(job("b", subtime=2, extra_data={"x": [1]}), job("a"), profiles={"d": PROFILES["d"]}))
    later, earlier = workload_json.read(path).jobs, workload_json.read(path, sources=True).jobs
    assert [one.source for one in later] == [None, None]
    assert [msgspec.json.decode(one.source) for one in earlier if one.source is not None] == [
        job("a"), job("b", subtime=2, extra_data={"x": [1]})
    ]  # fmt: skip
    assert [one.extra_data for one in later] == [one.extra_data for one in earlier] == [None, '{"x":[1]}']
    assert [one.id for one in later] == ["w0!a", "w0!b"]
