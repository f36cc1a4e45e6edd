"""How many cylinders a context has on each node, by disBatch's rules."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from pilothouse.launch.add_engines import parse_context
from pilothouse.model.errors import InputError
from pilothouse.worlds.live.contexts.layout import Layout, NoContext, plan, slurm_counts

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
    assert slurm_counts("2(x3),1", "") == [2, 2, 2, 1]
    with pytest.raises(InputError):
        slurm_counts("a", "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [((), [(3, 1), (3, 1), (1, 1)]), (("-t", "2"), [(2, 1), (2, 1), (1, 1)]), (("-c", "0.5"), [(6, 0), (6, 0), (2, 0)])],
)
def test_in_2021_slurms_tasks_per_node_are_the_cores(arguments: tuple[str, ...], expected: list[tuple[int, int]]) -> None:
    env = {name: value for name, value in SLURM.items() if name != "SLURM_JOB_CPUS_PER_NODE"}
    options = msgspec.structs.replace(parse_context(arguments), edition=2)
    found = plan(options, env, rank=0, host="here", expand=lambda text: ["n1", "n2", "n3"], read=lambda path: "")
    assert [(node.cylinders, node.cores_per_task) for node in found.nodes] == expected


def test_in_2021_t_is_at_most_what_the_cores_allow() -> None:
    options = msgspec.structs.replace(parse_context(["-s", "far:2", "-t", "9"]), edition=2)
    (node,) = plan(options, {}, rank=0, host="here", expand=str.split, read=str).nodes
    assert node.cylinders == 2


def test_a_variable_that_slurm_has_not_set_is_named() -> None:
    with pytest.raises(InputError, match="SLURM_JOB_CPUS_PER_NODE"):
        layout(env={name: value for name, value in SLURM.items() if name != "SLURM_JOB_CPUS_PER_NODE"})
