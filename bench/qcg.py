"""The QCG drop-in: how fast a long list is accepted, and how fast tiny jobs go beside `pilothouse run`.

    python bench/qcg.py [accept] [rate]

`accept` hands 100,000 single jobs to the manager in one request: CPU seconds and the largest memory of its process.
`rate` runs `/bin/true` on two cores as jobs of a request file and as lines of a task file; both take turns, and the
median of the ratios within each turn is told, so that a busy neighbour slows both alike. Where it is allowed, both run
in the real-time class, as those of the figures in the documentation did.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))
SERVICE = ROOT / "libexec" / "qcg" / "qcg-pm-service"
RUN = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); "
       "from pilothouse.cli.main import main; main()", "run"]  # fmt: skip
JOBS = 10_000
TURNS = 3
PEER_ACCEPT_S = 21.7
"""What qcg-pilotjob 0.14.2 took for the same request."""


def accept() -> None:
    from pilothouse.protocols.qcg.client import QcgClient

    with tempfile.TemporaryDirectory() as folder:
        manager = subprocess.Popen([SERVICE, "--net", "--nodes", "1", "--wd", folder, "--log", "warning"])
        while not list(Path(folder).glob(".qcgpjm-service-*/address")):
            time.sleep(0.02)
        client = QcgClient.of_folder(Path(folder), timeout_s=300)
        client.ask("submit", jobs=[{"name": "first", "execution": {"exec": "sleep", "args": ["1000"]}}])
        before = _cpu_s(manager.pid)
        began = time.monotonic()
        client.ask("submit", jobs=[_job(number) for number in range(100_000)])
        took = time.monotonic() - began
        used = _cpu_s(manager.pid) - before
        memory = next(
            line for line in Path(f"/proc/{manager.pid}/status").read_text().splitlines() if line.startswith("VmHWM")
        )
        client.ask("finish")
        client.close()
        manager.wait()
    megabytes = int(memory.split()[1]) / 1024
    print(f"accept 100,000 jobs: {used:.1f} CPU s ({took:.1f} s), {megabytes:.0f} MB; the peer took {PEER_ACCEPT_S} s")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _job(number: int) -> dict[str, object]:
    return {"name": f"j{number}", "execution": {"exec": "/bin/true"}, "resources": {"numCores": {"exact": 1}}}


def rate() -> None:
    ratios = []
    for turn in range(TURNS):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            requests = [
                {"request": "submit", "jobs": [_job(number) for number in range(JOBS)]},
                {"request": "control", "command": "finishAfterAllTasksDone"},
            ]
            (folder / "requests.json").write_text(json.dumps(requests))
            (folder / "tasks.txt").write_text("/bin/true\n" * JOBS)
            lines = _seconds([*RUN, "tasks.txt", "--slots", "2", "-q"], folder)
            jobs = _seconds([str(SERVICE), "requests.json", "--nodes", "2", "--log", "warning"], folder)
        ratios.append(lines / jobs)
        print(f"turn {turn + 1}: run {JOBS / lines:,.0f}/s, qcg {JOBS / jobs:,.0f}/s")
    print(f"rate: {100 * statistics.median(ratios):.0f} % of `pilothouse run` (median of {TURNS}; the aim is 70 %)")


def _alone() -> list[str]:
    """The prefix that keeps neighbours away, where it is allowed."""
    prefix = ["chrt", "-f", "5"]
    allowed = shutil.which("chrt") and subprocess.run([*prefix, "true"], capture_output=True, check=False)
    return prefix if allowed and allowed.returncode == 0 else []


def _seconds(command: list[str], folder: Path) -> float:
    command = [*_alone(), *command]
    began = time.monotonic()
    subprocess.run(command, cwd=folder, check=True)
    return time.monotonic() - began


if __name__ == "__main__":
    for name in sys.argv[1:] or ["accept", "rate"]:
        {"accept": accept, "rate": rate}[name]()
