"""Recorded runs of disBatch of November 2021, and the same with the drop-in: `pilothouse disbatch --dialect 2021`.

In: a recording (options, files, what was done while it ran, how it ended). Out: a Replay with the same fields as ours has them.
ssh, srun and scontrol are stand-ins that run commands here, with the node's name in FAKE_NODE, as when the runs were recorded.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from disbatch_runs import clean_env
from pilothouse.worlds.live.services.kvs import PICKLE
from pilothouse.worlds.live.services.kvs_client import KvsClient

LIMIT_S = 60.0
STEP_S = 20.0
_ID = re.compile(r"(T|STREAM)_disBatch_\d+_\d{3}")
_STAND_INS = {
    "ssh": '[ "$1" = -- ] && shift\nexport FAKE_NODE="$1"; shift\nexec sh -c "$*"\n',
    "srun": 'while [ "${1#-}" != "$1" ]; do [ "$1" = -w ] && export FAKE_NODE="$2" SLURMD_NODENAME="$2"; shift 2; done\n'
    'export SLURM_LOCALID=0\nexec "$@"\n',
    "scontrol": 'if [ "$1" = show ]; then echo "$3" | tr , "\\n"; else echo "$@" >> scontrol.args; fi\n',
}
COLUMNS = [
    "flags", "id", "line", "repeat", "node", "pid", "code", "took", "start", "end", "out_bytes", "out", "err_bytes", "err",
    "command",
]  # fmt: skip
COMPARED = [name for name in COLUMNS if name not in ("pid", "took", "start", "end")]


@dataclass
class Replay:
    exit_code: int | None
    """None: it ran on at the limit, and was ended."""
    rows: list[dict[str, str]]
    files: dict[str, str]
    text: str
    wall_s: float
    utilities: list[int] = field(default_factory=list)
    """Exit codes of the utility script."""


def recorded_rows(recording: dict[str, Any], *, without: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    rows = [row for rows in recording["status"].values() for row in rows]
    return comparable(rows, without=without)


def comparable(rows: list[dict[str, str]], *, without: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """What must be the same. Tasks that ran at the same time end in any order."""
    return sorted(tuple(row[name] for name in COMPARED if name not in without) for row in rows)


def replay(recording: dict[str, Any], folder: Path) -> Replay:
    work, programs = folder / "work", folder / "programs"
    for made in (work, programs):
        made.mkdir(parents=True)
    for name, body in _STAND_INS.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}")
        (programs / name).chmod(0o755)
    for name, content in recording["input_files"].items():
        (work / name).write_text(content)
    env = {**clean_env(), **{name: str(value) for name, value in recording["env"].items()}}
    env["PATH"] = f"{programs}:{env['PATH']}"
    began = time.monotonic()
    running = subprocess.Popen(
        [sys.executable, "-m", "pilothouse", "disbatch", "--dialect", "2021", *recording["args"]],
        cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    utilities: list[subprocess.Popen[bytes]] = []
    try:
        for step in recording["steps"]:
            _do(step, work, env, utilities, running)
        text, _ = running.communicate(timeout=LIMIT_S)
        code: int | None = running.returncode
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGINT)
        text, _ = running.communicate(timeout=LIMIT_S)
        code = None
    wall_s = time.monotonic() - began
    codes = [utility.wait(timeout=LIMIT_S) for utility in utilities]
    rows = [row for path in work.glob("*_status.txt") for row in _rows(path.read_text(encoding="utf-8"))]
    files = {}
    for path in sorted(work.iterdir()):
        if path.is_file() and path.name not in recording["input_files"] and not path.name.endswith("_status.txt"):
            files[_plain(path.name, running.pid)] = _plain(path.read_text(errors="replace"), running.pid)
    return Replay(code, rows, files, text, wall_s, codes)


def _do(
    step: dict[str, Any],
    work: Path,
    env: dict[str, str],
    utilities: list[subprocess.Popen[bytes]],
    running: subprocess.Popen[str],
) -> None:
    if "util" in step:
        script = _until(lambda: next(work.glob("*_dbUtil.sh"), None), running)
        utilities.append(subprocess.Popen([script, *step["util"]], cwd=work, env=env, stderr=subprocess.DEVNULL))
    elif "put" in step:
        key, (word, value) = step["put"]
        address = _until(lambda: next(work.glob("*_kvsinfo.txt"), None), running).read_text()
        with KvsClient(address) as client:
            client.put(key, pickle.dumps((word, value)), PICKLE)
    elif "kill_engine" in step:
        # The engine of a node writes its log under the node's name; its process is a child of the stand-in for ssh.
        log = _until(lambda: next(work.glob(f"*_{step['kill_engine']}_engine_[0-9]*.log"), None), running)
        pid = re.search(r"pid (\d+)", log.read_text())
        assert pid is not None
        os.kill(int(pid[1]), step["sig"])
    elif "wait" in step:
        # Not by the clock: the first result is there, or nothing can be expected.
        deadline = time.monotonic() + step["wait"]
        while time.monotonic() < deadline and running.poll() is None:
            if any(path.stat().st_size for path in work.glob("*_status.txt")):
                break
            time.sleep(0.05)
    else:
        raise AssertionError(f"unknown step {step}")


def _until(look: Any, running: subprocess.Popen[str]) -> Path:
    deadline = time.monotonic() + STEP_S
    while (found := look()) is None:
        assert time.monotonic() < deadline and running.poll() is None, "the run is not there any more"
        time.sleep(0.02)
    return Path(found)


def _rows(text: str) -> list[dict[str, str]]:
    rows = [dict(zip(COLUMNS, line.split("\t", 14), strict=True)) for line in text.splitlines()]
    for row in rows:
        row["node"] = "$HOST" if row["node"] == socket.gethostname() else row["node"]
    return rows


def _plain(text: str, pid: int) -> str:
    text = _ID.sub(lambda match: f"{match[1]}_disBatch_ID", text).replace(socket.gethostname(), "$HOST")
    text = re.sub(r"_ID_\d+_context_launch", "_ID_PID_context_launch", text)
    return re.sub(r"KVSSTCP_HOST=\S+", "KVSSTCP_HOST=ADDRESS", text)


def load(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
