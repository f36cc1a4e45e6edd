"""A pytest plugin for two kinds of runs: recording what each test runs, and trying a mutant."""

from __future__ import annotations

import os

import hypothesis
import pytest
import sitecustomize as tracer  # of this folder: the runner puts it into PYTHONPATH


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Any failure finds a mutant: the smallest one is not searched for. Every run draws the same examples."""
    hypothesis.settings.register_profile(
        "mutants",
        hypothesis.settings.get_profile("house"),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        database=None,
        derandomize=True,
    )
    hypothesis.settings.load_profile("mutants")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if tracer.FILE in os.environ:
        tracer.forget()
        os.environ[tracer.TEST] = item.nodeid
        tracer.begin()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if tracer.FILE in os.environ and report.when == "call":
        tracer.append({"test": report.nodeid, "seconds": report.duration, "passed": report.passed})
