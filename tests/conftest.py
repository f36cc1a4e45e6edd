"""Fixtures that every test may ask for by name: real servers, client environments, ports, the reference folder.

A real component that cannot be started is a failure in CI (CI=true) and a skip with its reason elsewhere. Redis and
sshd are started once per test process, Slurm once for all of them; all end with the tests.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

import components

OWNER = "TESTS_OF_PILOTHOUSE_OWNER"
SLURM_DIR = "TESTS_OF_PILOTHOUSE_SLURM"
LEFTOVERS = pytest.StashKey[list[str]]()
UNTRACKED = pytest.StashKey[set[str]]()
HOME = pytest.StashKey[str]()
DESCRIPTORS = pytest.StashKey[dict[str, tuple[int, int]]]()
"""Of each test file: how many were open before and after it."""

# Tests start the command hundreds of times; compiling all modules each time would be most of the work.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = ["peers"]

# A shell ignores SIGINT in what it runs in the background, and whoever is started there inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more about the neighbours on the machine than about the code.
hypothesis.settings.register_profile(
    "house", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--descriptors", action="store_true", help="name the test files after which more files are open (-n 0: in one process)"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Counts open descriptors before and after each test file."""
    counts = item.config.stash.setdefault(DESCRIPTORS, {})
    first = counts.setdefault(item.nodeid.partition("::")[0], (open_descriptors(), 0))[0]
    result = yield
    counts[item.nodeid.partition("::")[0]] = (first, open_descriptors())
    return result


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def pytest_configure(config: pytest.Config) -> None:
    """The first process names itself the owner of what all test processes share."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup: what tests start is not to inherit it
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    if not hasattr(config, "workerinput"):
        os.environ[OWNER] = str(os.getpid())
        os.environ[SLURM_DIR] = tempfile.mkdtemp(prefix="pilothouse-slurm-")
        # Login shells, which QCG's scripts are run by, would read the start-up files of whoever runs the tests: those may
        # speak, and take locks that stay when a test kills such a shell.
        os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        os.environ["HOME"] = config.stash[HOME] = tempfile.mkdtemp(prefix="pilothouse-home-")
        found: set[str] = untracked() if components.in_ci() else set()
        config.stash[UNTRACKED] = found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """The owner ends what was shared, and finds what a test left running: that is a failure.

    After a failure the logs stay for whoever wants to look.
    """
    if not hasattr(session.config, "workerinput"):
        directory = Path(os.environ[SLURM_DIR])
        components.stop_slurm(directory)
        shutil.rmtree(session.config.stash[HOME], ignore_errors=True)
        left = [f"{line} (running; ended now)" for line in components.end_leftovers(f"{OWNER}={os.getpid()}")]
        if components.in_ci():  # elsewhere others may work in the same tree
            before = session.config.stash[UNTRACKED]
            left += [f"{name} (in the source tree)" for name in sorted(untracked() - before)]
        session.config.stash[LEFTOVERS] = left
        if left and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) or not any(directory.iterdir()):
            shutil.rmtree(directory, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--descriptors"):
        for name, (before, after) in config.stash.get(DESCRIPTORS, {}).items():
            if after > before:
                terminalreporter.write_line(f"{name}: {after - before} more descriptors are open ({after})")
    for line in config.stash.get(LEFTOVERS, []):
        terminalreporter.write_line(f"ERROR left behind by a test: {line}", red=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on the one Slurm run one after another in one process (with --dist loadgroup)."""
    for item in items:
        if {"slurm_cluster", "slurm_lab"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("slurm"))


def untracked() -> set[str]:
    """Files and folders of the source tree that git neither knows nor ignores."""
    listed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=components.ROOT, capture_output=True, text=True, check=False
    )
    return {line[3:] for line in listed.stdout.splitlines() if line.startswith("??")}


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return components.ROOT


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of recordings and traces beside the repository; tests that need it are skipped where it is absent."""
    folder = components.ROOT.parent / "shared"
    if not (folder / "reference").is_dir():
        pytest.skip(f"the folder of large recordings is not beside the repository ({folder})")
    return folder


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Call it for a TCP port on 127.0.0.1 that is free now; a different one each time."""
    return components.free_port


@pytest.fixture(scope="session")
def client_env() -> Callable[[str], Path]:
    """`client_env("pybatsim3")` is the Python that has that client (components.CLIENT_ENVIRONMENTS)."""

    def python_of(name: str) -> Path:
        try:
            return components.client_python(name)
        except components.MissingComponent as missing:
            components.unavailable(str(missing))
            raise

    return python_of


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[components.RedisServer]:
    """A real Redis: `.host`, `.port`, `.url`."""
    try:
        server = components.start_redis(tmp_path_factory.mktemp("redis"))
    except components.MissingComponent as missing:
        components.unavailable(str(missing))
        raise
    yield server
    server.stop()


@pytest.fixture(scope="session")
def sshd_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[components.SshHosts]:
    """A real sshd that is the hosts h1..h4: `.env` for programs that call ssh, `.config`, `.names`, `.port`."""
    try:
        hosts = components.start_sshd(tmp_path_factory.mktemp("sshd"))
    except components.MissingComponent as missing:
        components.unavailable(str(missing))
        raise
    yield hosts
    hosts.stop()


@pytest.fixture(scope="session")
def slurm_cluster() -> components.SlurmCluster:
    """A real Slurm of nodes n1..n4 with eight CPUs each: `.env` for programs that call srun, `.conf`, `.nodes`."""
    directory = Path(os.environ[SLURM_DIR])
    try:
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return components.slurm_cluster(directory, int(os.environ[OWNER]))
    except components.MissingComponent as missing:
        components.unavailable(str(missing))
        raise


@pytest.fixture(scope="session")
def slurm_programs() -> dict[str, str]:
    """Slurm's programs: for tests that start a Slurm of their own."""
    try:
        return components.lab.programs()
    except components.MissingComponent as missing:
        components.unavailable(str(missing))
        raise


@pytest.fixture(scope="session")
def pilothouse() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command as a user would: `pilothouse("simulate", "-p", "4", cwd=tmp_path)`; output is captured text."""

    def run(
        *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        complete = {**os.environ, **(env or {})}
        complete["PYTHONPATH"] = f"{components.ROOT / 'src'}:{complete.get('PYTHONPATH', '')}"
        return subprocess.run(
            [sys.executable, "-c", "from pilothouse.cli.main import main; main()", *arguments],
            cwd=cwd,
            env=complete,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return run
