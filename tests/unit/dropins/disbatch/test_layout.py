"""How many cylinders a context has on each node, by disBatch's rules; and its command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pilothouse.dropins.disbatch.layout import Layout, NoContext, plan, slurm_counts
from pilothouse.dropins.disbatch.options import UsageError, parse_context, parse_run
from pilothouse.model.errors import InputError

SLURM = {
    "SLURM_JOBID": "7",
    "SLURM_JOB_ID": "7",
    "SLURM_NODELIST": "n[1-3]",
    "SLURM_JOB_CPUS_PER_NODE": "8(x2),4",
    "SLURM_TASKS_PER_NODE": "3(x2),1",
}


def layout(*arguments: str, env: Mapping[str, str] | None = None, rank: int = 0, file: str = "") -> Layout:
    return plan(
        parse_context(arguments), env or {}, rank=rank, host="here",
        expand=lambda text: ["n1", "n2", "n3"], read=lambda path: file,
    )  # fmt: skip


def shape(found: Layout) -> list[tuple[str, int, int]]:
    return [(node.name, node.cylinders, node.cores_per_task) for node in found.nodes]


def test_ssh_nodes_sum_up_and_localhost_is_this_host() -> None:
    found = layout("-s", "localhost:2,far:5", "-s", "here:1")
    assert shape(found) == [("here", 3, 1), ("far", 5, 1)]
    assert found.label == "SSH0" and found.retire_command == "" and len(found.warnings) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(("-c", "2"), (2, 2)), (("-c", "0.5"), (10, 0)), (("-t", "2"), (2, 2)), (("-c", "9"), (0, 5))],
)
def test_ssh_cylinders(arguments: tuple[str, ...], expected: tuple[int, int]) -> None:
    (node,) = layout("-s", "far:5", *arguments).nodes
    assert (node.cylinders, node.cores_per_task) == expected


@pytest.mark.parametrize("text", ["far", "far:", ":3", "far:x"])
def test_ssh_nodes_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError, match="HOST:CORECOUNT"):
        layout("-s", text)


def test_slurm_follows_tasks_per_node() -> None:
    found = layout(env=SLURM)
    assert shape(found) == [("n1", 3, 2), ("n2", 3, 2), ("n3", 1, 4)]
    assert found.label == "J7" and "scontrol update" in found.retire_command
    assert dict(found.launch_env) == {"SLURM_CPU_BIND": "cores", "SLURM_MPI_TYPE": "none"}


@pytest.mark.parametrize(
    ("arguments", "more", "expected"),
    [
        (("-c", "4"), {}, [(2, 4), (2, 4), (1, 4)]),
        (("--fill",), {}, [(8, 1), (8, 1), (4, 1)]),
        (("--fill",), {"CUDA_VISIBLE_DEVICES": "0"}, [(3, 2), (3, 2), (1, 4)]),
        (("-t", "2"), {"SLURM_NTASKS_PER_NODE": "3"}, [(2, 4), (2, 4), (2, 2)]),
        ((), {"SLURM_NTASKS_PER_NODE": "4"}, [(4, 2), (4, 2), (4, 1)]),
        ((), {"SLURM_CPUS_PER_TASK": "4"}, [(2, 4), (2, 4), (1, 4)]),
    ],
)
def test_slurm_cylinders(arguments: tuple[str, ...], more: dict[str, str], expected: list[tuple[int, int]]) -> None:
    found = layout(*arguments, env={**SLURM, **more})
    assert [(node.cylinders, node.cores_per_task) for node in found.nodes] == expected


def test_srun_options_come_from_the_users_file() -> None:
    found = layout(env={**SLURM, "DISBATCH_SLURM_SRUN_OPTIONS_FILE": "f"}, file="SLURM_CPU_BIND=none\n\nA=b=c\n")
    assert found.launch_env == (("SLURM_CPU_BIND", "none"), ("A", "b=c"))


def test_who_wins() -> None:
    assert layout("-s", "a:1", env=SLURM).kind == "SSH"
    assert layout(env={**SLURM, "DISBATCH_SSH_NODELIST": "a:1"}).kind == "Slurm"
    assert layout(env={"DISBATCH_SSH_NODELIST": "a:1"}, rank=3).label == "SSH3"
    with pytest.raises(NoContext):
        layout()


def test_retirement() -> None:
    assert layout("--no-retire", env=SLURM).retire_command == ""
    assert layout("--retire-cmd", "x", env=SLURM).retire_command == "x"


def test_slurm_counts() -> None:
    assert slurm_counts("2(x3),1") == [2, 2, 2, 1]
    with pytest.raises(InputError):
        slurm_counts("a")


def test_a_later_context_takes_over_what_it_does_not_say() -> None:
    run = parse_run(["-c", "2", "-t", "3", "-E", "A,B", "-C", "9", "tasks"]).context
    late = parse_context(["-t", "4"]).or_else(run)
    assert (late.cpus_per_task, late.tasks_per_node, late.env_resources, late.task_limit) == (2, 4, ("A", "B"), 0)


@pytest.mark.parametrize(
    ("arguments", "raised"),
    [
        ([], SystemExit),
        (["--nope", "tasks"], SystemExit),
        (["tasks", "--version"], SystemExit),
        (["--mailFreq", "2", "tasks"], UsageError),
        *((["-c", count, "tasks"], UsageError) for count in ("0", "-2", "nan")),
        (["-t", "-5", "tasks"], UsageError),
        (["-S", "-s", "a:1", "tasks"], UsageError),
        (["--taskserver", "a:1", "--kvsserver", "b:2"], UsageError),
    ],
)
def test_usage_errors(arguments: list[str], raised: type[BaseException], capsys: Any) -> None:
    with pytest.raises(raised) as caught:
        parse_run(arguments)
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 2


def test_abbreviations_and_repeats_as_in_disbatch() -> None:
    options = parse_run(["--fail", "-r", "a", "-r", "b", "--tasksPer=3", "-"])
    assert (options.fail_fast, options.resume_from, options.context.tasks_per_node) == (True, ("a", "b"), 3)
    assert options.task_file == "-"
