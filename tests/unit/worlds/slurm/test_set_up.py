"""What slurm-setup prints and finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilothouse.formats.slurm_resources import records
from pilothouse.model.errors import InputError
from pilothouse.worlds.slurm.book import Pair
from pilothouse.worlds.slurm.lab_files import LabNode, files, parse_shape, slurm_conf
from pilothouse.worlds.slurm.link import Facts
from pilothouse.worlds.slurm.set_up import Asker, check, conf_lines, job_submit_lua

SAMPLES = Path(__file__).parent / "samples"
CONFIG = {
    "SchedulerParameters": "batch_sched_delay=0,default_queue_depth=10000",
    "JobSubmitPlugins": "lua",
    "SlurmUser": "slurm(64030)",
}
ROOT = Asker("root", 0)


def facts(**changes: str) -> Facts:
    shown = records((SAMPLES / "scontrol-show-partition.txt").read_text(), "PartitionName")
    partitions = {row["PartitionName"]: dict(row) for row in shown}
    partitions["go"].update({"Hidden": "NO", **changes})
    return Facts(partitions, dict(CONFIG), {})


def wrong(found: list[object]) -> list[str]:
    return [finding.text for finding in found if finding.level != "ok"]  # type: ignore[attr-defined]


def test_the_recorded_pair_is_right() -> None:
    assert wrong(check(Pair(), facts(), ROOT)) == []


def test_what_is_missing_is_named() -> None:
    for changes, words in (
        ({"MaxTime": "1-00:00:00"}, "MaxTime differs"),
        ({"Nodes": "n[1-4]"}, "Nodes differs"),
        ({"State": "DOWN"}, "go is DOWN"),
        ({"RootOnly": "YES"}, "RootOnly=YES"),
        ({"Hidden": "YES"}, "go is hidden: plain squeue does not show users their jobs there"),
    ):
        assert any(words in text for text in wrong(check(Pair(), facts(**changes), ROOT))), words
    assert any("queue is UP" not in text for text in wrong(check(Pair("free", "go"), facts(), ROOT)))
    assert "there is no partition nothing" in wrong(check(Pair("nothing", "go"), facts(), ROOT))


def test_the_scheduler_and_rights() -> None:
    plain = facts()
    plain.config.update(SchedulerParameters="(null)", JobSubmitPlugins="(null)", MinJobAge="10 sec")
    found = wrong(check(Pair(), plain, ROOT))
    assert len(found) == 4
    assert any("may not move" in text for text in wrong(check(Pair(), facts(), Asker("alice", 1000))))
    for asker in (Asker("alice", 1000, "Operator"), Asker("slurm", 64030)):
        assert wrong(check(Pair(), facts(), asker)) == []


def test_the_texts_name_the_pair() -> None:
    pair = Pair("batch", "batch-go")
    lines = conf_lines(pair, "n[1-64]", whole_nodes=False)
    assert "PartitionName=batch Nodes=n[1-64] State=DOWN\n" in lines and "EXCLUSIVE" not in lines and "Hidden" not in lines
    # They would replace the site's own.
    assert not [line for line in lines.splitlines() if line.startswith(("SchedulerParameters", "JobSubmitPlugins"))]
    lua = job_submit_lua([("batch", "batch-go")], [1000])
    assert '["batch-go"] = "batch"' in lua and "[0] = true, [1000] = true" in lua


def test_the_nodes_of_a_lab() -> None:
    like = parse_shape("8x4")
    assert like.kinds == (LabNode(4),) * 8 and not like.counts_memory and like.names[-1] == "n8"
    unlike = parse_shape("2x4,1x16:gpu=2:memory=8000:disk=500")
    assert unlike.kinds == (LabNode(4), LabNode(4), LabNode(16, 8000, 2, 500)) and unlike.counts_memory
    conf = slurm_conf(Path("/lab"), unlike, host="h", user="u", controller_port=1, node_ports=[2, 3, 4], lua=False)
    assert "NodeName=n3 NodeHostname=h NodeAddr=127.0.0.1 Port=4 CPUs=16 RealMemory=8000 TmpDisk=500" in conf
    assert "Name=gpu File=/lab/gpu[0-1]" in files(Path("/lab"), conf, unlike)["gres.conf"]


@pytest.mark.parametrize("text", ["8x", "0x4", "2x4:gpu=x", "2x4:gpu=100", "4x4,,2x2", "9999x4", "600x1,600x1", "2x4:memory=0"])
def test_texts_that_are_no_nodes(text: str) -> None:
    with pytest.raises(InputError, match="not a shape"):
        parse_shape(text)
