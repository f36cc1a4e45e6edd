"""Small readers of texts, by tables: times, ranges, variables, counts of lines, sleep states."""

from __future__ import annotations

import io
from math import inf
from pathlib import Path

import msgspec
import pytest

from pilothouse.formats import hostlist, slurm_fields, workload_json
from pilothouse.formats.command_template import CommandTemplate, in_one_line
from pilothouse.formats.platform_xml import read_platform
from pilothouse.formats.qcg_description import Description, DescriptionError, describe
from pilothouse.formats.qcg_dialect import LATER
from pilothouse.formats.qcg_requests import ManagerReport, RequestError, parse_request
from pilothouse.formats.qcg_variables import replaced, replaced_deep
from pilothouse.formats.task_file import Totals, check_stream
from pilothouse.formats.task_request import memory_mb, walltime_s
from pilothouse.model.errors import InputError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("30m", 1800.0), ("2:05", 125.0), ("1:00:00", 3600.0), ("2:30:15", 9015.0), ("0:00:01", 1.0), ("inf", inf)],
)
def test_walltimes(text: str, seconds: float) -> None:
    assert walltime_s(text, "here") == seconds


@pytest.mark.parametrize("text", ["0", "0:00", "0:00:00", "1:2:3:4", "1:x", ""])
def test_what_is_no_walltime(text: str) -> None:
    with pytest.raises(InputError, match=r"^here: "):
        walltime_s(text, "here")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800.0), ("5:00", 300.0), ("1:00:00", 3600.0), ("1:02:03", 3723.0), ("2-00:00:00", 172800.0),
        ("2-12", 216000.0), ("1-02:03", 93780.0), ("1-02:03:04", 93784.0), ("UNLIMITED", inf), ("infinite", inf),
        ("NOT_SET", None), ("", None), ("1-", None),
    ],
)  # fmt: skip
def test_time_limits_of_slurm(text: str, seconds: float | None) -> None:
    assert slurm_fields.time_limit(text) == seconds


def test_trackable_resources_of_slurm() -> None:
    found = slurm_fields.tres("cpu=2,mem=4000M,node=1,gres/gpu=2,nonsense")
    assert found == {"cpu": "2", "mem": "4000M", "node": "1", "gres/gpu": "2"}


@pytest.mark.parametrize("text", ["n[a-b]", "n[1-]", "n[-1]", "n[1-2-3]", "n[]", f"n[{'1' * 50}]"])
def test_what_is_no_range_of_hosts(text: str) -> None:
    with pytest.raises(InputError, match="not a range of host numbers"):
        hostlist.parse(text)


def test_two_dollars_are_one() -> None:
    assert replaced("$$ ${a} $b $$$$", {"a": "1"}) == "$ 1 $b $$"
    assert replaced_deep({"x": ["$$", 1], "y": "$a"}, {"a": "1"}) == {"x": ["$", 1], "y": "1"}


def test_commands_of_several_lines_become_one() -> None:
    assert in_one_line("echo a") == "echo a"
    assert in_one_line("echo 'a'\necho \\b") == "eval $'echo \\'a\\'\\012echo \\\\b'"


@pytest.mark.parametrize("text", ["a\nb", "a\0b"])
def test_a_template_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match="must be one line"):
        CommandTemplate(text, [])


@pytest.mark.parametrize(
    ("data", "totals"),
    [
        (b"a\nb\n", Totals(2, 2, 0, 0)),
        (b"a\nb", Totals(2, 2, 0, 0)),
        (b"a\n\n# c\nb", Totals(4, 2, 0, 0)),
        (b"a\n#DISBATCH BARRIER\nb", Totals(3, 2, 1, 0)),
        (b"", Totals(0, 0, 0, 0)),
    ],
)
def test_lines_and_tasks_are_counted(data: bytes, totals: Totals) -> None:
    assert check_stream(io.BytesIO(data), "tasks") == totals


def test_a_platform_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the platform: No such file or directory"):
        read_platform(tmp_path / "none.xml")


FULL = {
    "name": "a",
    "execution": {
        "exec": "prog", "args": ["1", "x y"], "env": {"E": "v"}, "wd": "w", "stdin": "i", "stdout": "o", "stderr": "e",
        "modules": ["m1", "m2"], "venv": "v", "model": "openmpi", "model_opts": {"mpirun": "mpirun"},
    },
    "resources": {"numCores": {"min": 1, "max": 4}, "numNodes": {"exact": 2}, "nodeCrs": {"GPU": 1, "MEM": 5}, "wt": "90s"},
    "iteration": {"start": 2, "stop": 5},
    "dependencies": {"after": ["b", "c"]},
    "attributes": {"k": 1},
}  # fmt: skip


def written(description: Description) -> Description:
    """A description as it comes back from the file in which a manager writes it down."""
    return describe(msgspec.json.decode(msgspec.json.encode(description.written())), LATER)


@pytest.mark.parametrize("left_out", ["", "resources", "iteration", "dependencies", "attributes"])
def test_a_description_of_a_job_comes_back_as_it_was(left_out: str) -> None:
    raw = {key: value for key, value in FULL.items() if key != left_out}
    description = describe(raw, LATER)
    assert written(description) == description


def test_values_of_a_loop_and_a_script_come_back() -> None:
    raw = {"name": "a", "execution": {"script": "echo"}, "iteration": {"values": ["x", "y"]}}
    description = describe(raw, LATER)
    assert written(description) == description
    assert [description.iteration.value(index) for index in range(2)] == ["x", "y"]  # type: ignore[union-attr]


@pytest.mark.parametrize("more", [{"exec": "x"}, {"args": ["x"]}, {"env": {"x": "y"}}])
def test_a_script_has_no_program_arguments_or_environment(more: dict[str, object]) -> None:
    with pytest.raises(DescriptionError, match="Job script and exec or args or env defined"):
        describe({"name": "a", "execution": {"script": "echo", **more}}, LATER)


def report(**fields: object) -> object:
    return parse_request(msgspec.json.encode(fields), dict, LATER)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"entity": "stranger", "params": {}}, "missing/unknown entity"),
        ({"params": {}}, "missing/unknown entity"),
        ({"entity": "manager"}, "missing register parameters"),
        ({"entity": "manager", "params": {}}, "missing key register parameters"),
        ({"entity": "manager", "params": 3}, "missing key register parameters"),
    ],
)
def test_reports_of_managers_are_checked(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        report(request="register", **fields)


def test_a_manager_registers() -> None:
    params = {"id": "m", "address": "tcp://h:1", "resources": {}}
    assert report(request="register", entity="manager", params=params) == ManagerReport("register", params)


def workload(tmp_path: Path, *ids: str) -> Path:
    jobs = [{"id": name, "subtime": 0, "res": 1, "profile": "p"} for name in ids]
    path = tmp_path / "w.json"
    path.write_bytes(msgspec.json.encode({"nb_res": 4, "jobs": jobs, "profiles": {"p": {"type": "delay", "delay": 1}}}))
    return path


def test_ids_of_a_workload(tmp_path: Path) -> None:
    """An id that holds the workload's name and one `!` is a full one."""
    found = workload_json.read(workload(tmp_path, "1", "w!2"), name="w")
    assert [job.id for job in found.jobs] == ["w!1", "w!2"]
    with pytest.raises(InputError, match=r"\$.jobs\[1\].id: an id with the workload's name in it"):
        workload_json.read(workload(tmp_path, "1", "w!2!3"), name="w")
    with pytest.raises(InputError, match=r"\$.jobs\[2\].id: a job of that id exists already"):
        workload_json.read(workload(tmp_path, "1", "2", "1"), name="w")


@pytest.mark.parametrize(
    ("text", "found"),
    [("100", 100), ("1.5G", 1536), ("8GiB", 8192), ("2T", 2097152), ("2048K", 2), ("1K", 1), ("512mb", 512), ("0", 0)],
)
def test_amounts_of_memory(text: str, found: int) -> None:
    assert memory_mb(text, "here") == found
