"""Recorded outputs of Slurm are read; damaged ones are an error of ours, never a traceback."""

from __future__ import annotations

import random
from math import inf
from pathlib import Path

import pytest

from pilothouse.formats import slurm_resources
from pilothouse.model.errors import PilothouseError
from pilothouse.worlds.slurm import look, records, requests
from pilothouse.worlds.slurm.look import SEPARATOR, JobReader, NodeRow, read_nodes

SAMPLES = Path(__file__).parent / "samples"


def squeue_text() -> str:
    """The recorded look has other columns than ours: they are put in our order. Ours that it lacks get plain values."""
    head, *lines = (SAMPLES / "squeue-o.txt").read_text().splitlines()
    theirs = head.partition('-o "')[2].rstrip('"').split("|")
    ours = look.JOB_FORMAT.split(SEPARATOR)
    return "\n".join(
        SEPARATOR.join(dict(zip(theirs, line.split("|"), strict=True)).get(column, "1") for column in ours) for line in lines
    )


def sinfo_text() -> str:
    rows = [line.split("|") for line in (SAMPLES / "sinfo-N-o.txt").read_text().splitlines()]
    lines = [[row[0], row[1], row[2], row[3], row[4], row[6], "(null)", "up", "1", "0"] for row in rows]
    return "\n".join(SEPARATOR.join(line) for line in lines)


def read_records(text: str) -> list[object]:
    return [(records.read_request(line), records.read_given(line)) for line in records.by_id(text).values()]


def test_the_recorded_look() -> None:
    rows = {row.id: row for row in JobReader().read(squeue_text())}
    assert rows["3421_2"].holds and rows["3421_2"].node_names == ("n3",)
    assert rows["3426"].wanted_nodes == ("n7",) and rows["3426"].reason.startswith("ReqNodeNotAvail, ")
    assert rows["3418"].depends and not rows["3417"].depends
    assert rows["3419"].priority == 0
    assert rows["3420"].begins_at is not None
    assert rows["3423"].limit_s == 2 * 86400 and rows["3423"].licences == "matlab:1"


def test_an_unchanged_line_is_the_same_row() -> None:
    reader, text = JobReader(), squeue_text()
    first = reader.read(text)
    again = reader.read(text.replace("JobHeldUser", "None"))
    assert sum(one is other for one, other in zip(first, again, strict=True)) == len(first) - 1


def test_nodes() -> None:
    nodes, up = read_nodes(sinfo_text())
    assert [node.name for node in nodes] == [f"n{number}" for number in range(1, 9)]
    assert [node.name for node in nodes if not node.usable] == ["n7"]
    assert "free" in up and nodes[0].partitions == ("free", "queue", "go", "core", "pdown")


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        *(("idle", True), ("mixed", True), ("idle~", True), ("allocated#", True), ("mixed-", True), ("completing", True)),
        *(("idle*", False), ("drained", False), ("down", False), ("unknown", False), ("mixed$", False), ("idle%", False)),
        *(("reserved", False), ("maint", False), ("idle^", False), ("", False)),
    ],
)
def test_states_of_nodes(state: str, usable: bool) -> None:
    assert look.usable_state(state) is usable


def test_reservations_and_heterogeneous_jobs() -> None:
    (found,) = slurm_resources.read_reservations((SAMPLES / "scontrol-show-reservation.txt").read_text())
    assert found.name == "r1" and found.nodes == {"n1", "n2"} and found.ends_at - found.starts_at == 300
    shown = records.by_id((SAMPLES / "scontrol-show-job-het.txt").read_text())
    assert {job: records.read_request(line).comment for job, line in shown.items()} == {"2754": "steered", "2755": "steered"}


def test_damaged_outputs_are_an_error_of_ours() -> None:
    rng = random.Random(17)
    jobs, nodes = squeue_text(), sinfo_text()
    shown = (SAMPLES / "scontrol-show-job-requests.txt").read_text()[-2500:]
    alphabet = [SEPARATOR, "\n", "n[1-", "]", "-", "x", "9" * 30, "", "é", "(null)", "[9-1]"]
    for _ in range(3000):
        text = rng.choice([jobs, nodes, shown])
        for _ in range(rng.randint(1, 6)):
            cut = rng.randrange(len(text))
            text = text[:cut] + rng.choice(alphabet) + text[cut + rng.randint(0, 5) :]
        for read in (JobReader().read, read_nodes, slurm_resources.read_reservations, look.read_licences, read_records):
            try:
                read(text)
            except PilothouseError as problem:
                assert "\n" not in str(problem)


@pytest.mark.parametrize(
    ("wish", "found"),
    [
        *(("a", True), ("c", False), ("a&b", True), ("a&c", False), ("a|c", True), ("c|d", False), ("(c|a)&b", True)),
        *(("(c|d)&b", False), ("c|a&b", True), ("a,b", True), ("a,c", False), ("", True), ("(a", True), ("&", True)),
    ],
)
def test_features(wish: str, found: bool) -> None:
    node = NodeRow("n1", ("go",), True, "idle", 4, 0, {}, ("a", "b"))
    assert requests.has_features(node, wish) is found


def test_limits() -> None:
    reader = JobReader()
    text = squeue_text().splitlines()[0]
    for limit, seconds in (("UNLIMITED", inf), ("5:00", 300), ("1:00:00", 3600), ("2-00:00:00", 172800), ("NOT_SET", inf)):
        assert reader.read(text.replace("5:00", limit))[0].limit_s == seconds
