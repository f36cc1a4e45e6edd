"""Lists the files that four travellers pass: a simulated job, a real task, a Batsim message, a QCG request.

Each run is traced: a file counts if one of its functions was called while the loop ran, from the first `advance` of a world to
its `close`; in engines, from beginning to end. A message is on its way from `decide` to the next `advance`: what the world does
meanwhile is the walk of a job. Imports, reading the input and writing summaries do not count.
`python tools/walks.py` prints a table for ARCHITECTURE.md, `--files` the files themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "pilothouse"

TRACER = """
import atexit, os, sys, threading
_seen = set()
_loop = not sys.argv[0].endswith(("pilothouse", "-m"))
def _note(frame, event, argument):
    global _loop
    if event == "call":
        name = frame.f_code.co_filename
        if frame.f_code.co_name in _STEPS and name.startswith(_ROOT) and sys.argv[0].endswith("__main__.py"):
            _loop = frame.f_code.co_name == _STEPS[0]
        if _loop and name.startswith(_ROOT) and name not in _seen and frame.f_code.co_flags & 1 and not _importing(frame):
            _seen.add(name)
def _importing(frame):
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
def _write():
    sys.setprofile(None)
    with open(os.path.join(os.environ["WALK"], str(os.getpid())), "a") as file:
        file.write("\\n".join(_seen) + "\\n")
_ROOT = os.environ["WALK_ROOT"]
_STEPS = os.environ["WALK_STEPS"].split()
_exit = os._exit
def _leave(code):
    _write()
    _exit(code)
os._exit = _leave
atexit.register(_write)
sys.setprofile(_note)
threading.setprofile(_note)
"""

QCG_REQUESTS = [
    {"request": "submit", "jobs": [{"name": "one", "execution": {"exec": "/bin/true"}, "resources": {"numCores": {"exact": 1}}}]},
    {"request": "control", "command": "finishAfterAllTasksDone"},
]


JOB = "advance close"
MESSAGE = "decide advance close"


def walk(command: str, steps: str, folder: Path) -> list[str]:
    """The files, below src/pilothouse, in which a function ran after the first of these steps and before another."""
    trace = folder / "trace"
    trace.mkdir()
    (folder / "sitecustomize.py").write_text(TRACER)
    env = {**os.environ, "WALK": str(trace), "WALK_ROOT": str(SOURCE), "WALK_STEPS": steps}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    env["PYTHONPATH"] = f"{folder}:{SOURCE.parent}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise SystemExit(f"{command}\n{done.stdout}{done.stderr}")
    found = {line for path in trace.iterdir() for line in path.read_text().splitlines() if line}
    return sorted(str(Path(name).relative_to(SOURCE)) for name in found)


def travellers(folder: Path) -> dict[str, str]:
    """Name -> the command that sends it on its way."""
    (folder / "tasks.txt").write_text("true\n")
    (folder / "requests.json").write_text(json.dumps(QCG_REQUESTS))
    run = "python -m pilothouse"
    platform = ROOT / "tests/golden/batsim4/inputs/platforms/small_platform.xml"
    tiny = ROOT / "examples/tiny.json"
    endpoint = f"ipc://{folder}/socket"
    pybatsim = ROOT / ".venvs/pybatsim3/bin"
    return {
        "a simulated job": f"{run} simulate -p 4 -w {tiny} --policy easy -e out/",
        "a real task": f"{run} run tasks.txt --slots 1 --dir run",
        "a Batsim message": (
            f"{run} batsim4 -p {platform} -w {tiny} -e out -s {endpoint} & "
            f"env -u PYTHONPATH {pybatsim}/python {pybatsim}/pybatsim easyBackfill -s {endpoint} -t 60000 & wait %1"
        ),
        "a QCG request": f"{run} qcg --file --file-path requests.json --wd .",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="list the files as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        names = list(travellers(Path(base)))
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            files = walk(travellers(Path(folder))[name], MESSAGE if "message" in name else JOB, Path(folder))
        print(f"| {name} | {len(files)} |")
        if options.files:
            print("\n".join(f"    {file}" for file in files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
