"""Counts what tests hold against peers: `pytest -m peer --write-peers` writes peers.json, of which the docs make a table.

A test says `@pytest.mark.peer("batsim5", "what it is held against")` and counts as one; one that goes through many
recordings says how many of how many were equal with the fixture `peer_count`. A test that pins a known difference says
`@pytest.mark.peer_difference("batsim5", "what differs, and why")`. Skipped tests are counted apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("peers.json")
PEERS = {
    "batsim5": ("Batsim", "5.0.0-rc2"),
    "batsim4": ("Batsim", "4.2.1"),
    "batsim2": ("Batsim", "2.0.0"),
    "pybatsim3": ("pybatsim", "3.2.1"),
    "pybatsim2": ("pybatsim", "2.1.1"),
    "flux": ("flux-core", "0.88 and 0.21"),
    "qcg": ("QCG-PilotJob", "0.14.2"),
    "disbatch": ("disBatch", "3.0"),
    "disbatch2021": ("disBatch", "of November 2021"),
}
"""Key -> name and version. tests/test_peers.py compares the versions with what `./do test` installs."""

Count = Callable[[int, int], None]


class Counts:
    """What was seen: peer, suite -> passed, all, skipped; and peer -> differences."""

    def __init__(self) -> None:
        self.suites: dict[tuple[str, str], list[int]] = {}
        self.differences: dict[str, set[str]] = {}

    def add(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        said = dict(report.user_properties)
        if "peer" in said:
            passed, total = said.get("peer count", (1, 1))
            found = self.suites.setdefault((said["peer"][0], said["peer"][1]), [0, 0, 0])
            if report.skipped:
                found[2] += 1
            else:
                found[0] += passed if report.passed else 0
                found[1] += total
        for name, value in report.user_properties if report.passed else ():
            if name == "peer difference":
                self.differences.setdefault(value[0], set()).add(value[1])

    def written(self) -> dict[str, Any]:
        order = [*PEERS]
        suites = sorted(self.suites.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
        return {
            "suites": [
                {"peer": peer, "suite": suite, "passed": passed, "all": total, "skipped": skipped}
                for (peer, suite), (passed, total, skipped) in suites
            ],
            "differences": {peer: sorted(self.differences.get(peer, ())) for peer in order},
        }


COUNTS = pytest.StashKey[Counts]()
STALE = pytest.StashKey[list[str]]()
LARGE = Path(__file__).resolve().parents[2] / "shared/reference"
WRITE = "run: pytest -m peer -n 2 --dist loadgroup --write-peers; python tools/docs.py --write docs/reference/peers.md"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-peers", action="store_true", help="write tests/peers.json (with -m peer)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "peer(key, suite): held against a peer; counted in docs/reference/peers.md")
    config.addinivalue_line("markers", "peer_difference(key, text): pins a known difference from a peer")
    config.stash[COUNTS] = Counts()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Listener(config.stash[COUNTS]))


class _Listener:
    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._counts.add(report)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker("peer")
        marks = [("peer", mark)] if mark is not None else []
        marks += [("peer difference", one) for one in item.iter_markers("peer_difference")]
        for name, one in marks:
            assert one.args[0] in PEERS, f"{item.nodeid}: no peer {one.args[0]}"
            item.user_properties.append((name, list(one.args)))
        if marks:
            item.add_marker("peer")  # `-m peer` chooses them all


@pytest.fixture
def peer_count(request: pytest.FixtureRequest) -> Count:
    """Call it with the numbers of what was equal and of all."""

    def count(passed: int, total: int) -> None:
        request.node.user_properties.append(("peer count", [passed, total]))

    return count


def stale(counts: Counts) -> list[str]:
    """Suites whose counts are not those of peers.json; those with skipped tests depend on what is installed."""
    known = {(one["peer"], one["suite"]): one for one in json.loads(FILE.read_text())["suites"]}
    found = {(one["peer"], one["suite"]): one for one in counts.written()["suites"]}
    return [
        f"{peer}, {suite}: {found.get((peer, suite))}, recorded {known.get((peer, suite))}"
        for peer, suite in sorted(known.keys() | found.keys())
        if known.get((peer, suite)) != found.get((peer, suite))
        and not any(one is not None and one["skipped"] for one in (known.get((peer, suite)), found.get((peer, suite))))
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the counts, or (after a run of all tests, with the large recordings at hand) compares them."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    if config.getoption("--write-peers"):
        FILE.write_text(json.dumps(config.stash[COUNTS].written(), indent=1) + "\n")
        return
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    if everything and not config.option.markexpr and not config.option.collectonly and LARGE.is_dir():
        config.stash[STALE] = stale(config.stash[COUNTS])
        if config.stash[STALE] and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(STALE, []):
        terminalreporter.write_line(f"ERROR peers.json is out of date ({WRITE}): {line}", red=True)
