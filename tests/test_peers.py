"""The table of peers in the documentation: its versions are those that are installed, its figures those of the tests."""

from __future__ import annotations

import json

import components
import peers


def test_versions_are_those_that_the_tests_install() -> None:
    installs = (components.ROOT / "do").read_text()
    for key in ("pybatsim2", "pybatsim3"):
        assert peers.PEERS[key][1] in installs
    for key, package in (("qcg", "qcg-pilotjob"), ("disbatch", "disbatch")):
        assert f"{package}=={peers.PEERS[key][1]}" in installs


def test_every_peer_is_counted_and_what_does_not_pass_has_its_reason() -> None:
    written = json.loads(peers.FILE.read_text())
    assert {one["peer"] for one in written["suites"]} == peers.PEERS.keys()
    for one in written["suites"]:
        assert one["all"] + one["skipped"] > 0
        if one["passed"] < one["all"]:
            assert len(written["differences"][one["peer"]]) >= one["all"] - one["passed"], one


def test_counts_that_changed_are_noticed() -> None:
    counts = peers.Counts()
    written = json.loads(peers.FILE.read_text())
    for one in written["suites"]:
        counts.suites[one["peer"], one["suite"]] = [one["passed"], one["all"], one["skipped"]]
    assert peers.stale(counts) == []
    counts.suites["batsim5", written["suites"][0]["suite"]][1] += 1
    assert len(peers.stale(counts)) == 1
