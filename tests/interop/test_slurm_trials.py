"""200 random jobs under each kind of decider, each on a loopback Slurm of 8 nodes of its own, all at once.

Most of the time of a trial is Slurm's own waiting for its scheduling passes, so four cost little more than one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.interop.slurm_trial import Trial

from pilothouse.worlds.slurm.lab import Lab
from pilothouse.worlds.slurm.lab_files import parse_shape

pytestmark = pytest.mark.xdist_group("slurm_trials")
ROOT = Path(__file__).parents[2]
JOBS = 200
LIMIT_S = 270.0
By = Callable[[], tuple[str, list[str]]]

POLICY_FILE = """
from pilothouse import Policy

class Widest(Policy):
    def schedule(self, cluster):
        for job in sorted(cluster.queue, key=lambda job: -job.least_units):
            if not cluster.start(job):
                break
"""


def easy(folder: Path, request: pytest.FixtureRequest) -> By:
    return lambda: ("easy", [])


def policy_file(folder: Path, request: pytest.FixtureRequest) -> By:
    (folder / "widest.py").write_text(POLICY_FILE)
    return lambda: (f"{folder}/widest.py:Widest", [])


def component(folder: Path, request: pytest.FixtureRequest) -> By:
    library = folder / "libfcfs.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, ROOT / "tests/edc/fcfs.c"], check=True)
    return lambda: (f"edc:{library}", [])


def pybatsim(folder: Path, request: pytest.FixtureRequest) -> By:
    free_port = request.getfixturevalue("free_port")
    python: Path = request.getfixturevalue("client_env")("pybatsim3")

    def by() -> tuple[str, list[str]]:
        endpoint = f"tcp://127.0.0.1:{free_port()}"
        program = [str(python), str(python.parent / "pybatsim"), "easyBackfill"]
        return f"batsim:{endpoint}", [*program, "-s", endpoint, "-t", "600000"]

    return by


DECIDERS = {decider.__name__: decider for decider in (easy, pybatsim, component, policy_file)}


@pytest.fixture(scope="module")
def trials(
    slurm_programs: dict[str, str], tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[dict[str, float]]]]:
    """Decider -> the figures of its trial, when it is over."""
    made = {name: decider(tmp_path_factory.mktemp(name), request) for name, decider in DECIDERS.items()}
    with ThreadPoolExecutor(len(made)) as pool:
        yield {name: pool.submit(run, tmp_path_factory.mktemp("lab"), by) for name, by in made.items()}


def run(folder: Path, by: By) -> dict[str, float]:
    """In one thread from start to end: the daemons end with the thread that started them."""
    lab = Lab(folder, parse_shape("8x4"))
    lab.start()
    try:
        trial = Trial(lab, by, jobs=JOBS, seed=17)
        trial.run(LIMIT_S)
        return trial.judge()
    finally:
        lab.stop()


@pytest.mark.parametrize("decider", DECIDERS)
def test_disturbed_runs(decider: str, trials: dict[str, Future[dict[str, float]]]) -> None:
    """`python -m tests.interop.slurm_trial --by easy` runs one."""
    figures = trials[decider].result()
    assert figures["jobs"] == JOBS and figures["starts"] >= JOBS - figures["cancelled"]
