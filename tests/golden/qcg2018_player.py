"""Recorded runs of the QCG PilotJob Manager of February 2018, and the same requests for ours.

A recording has the nodes, the request file and other input files, and what came of them: replies, jobs.report and files.
`play` runs `pilothouse qcg` on the same; `differences` names what is not the same. Dates, run times, ids and the texts of
refusals are masked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components import ROOT, qcg_address
from pilothouse.protocols.qcg.client import QcgClient

DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
RUN_TIME = re.compile(r"rtime: \S+")
UNIQUE = re.compile(r"(?<=STEP_ID=)\S+")
ENTRY = re.compile(r"^(\S.*) \(([A-Z]+)\)$", re.M)
PROGRAM = ROOT / ".venv" / "bin" / "pilothouse"
TIMEOUT_S = 60


@dataclass
class Played:
    """What ours did."""

    exit_code: int
    replies: list[dict[str, Any]]
    files: dict[str, str] = field(default_factory=dict)
    stderr: str = ""


def load(path: Path) -> dict[str, Any]:
    recording: dict[str, Any] = json.loads(path.read_text())
    return recording


def play(recording: dict[str, Any], folder: Path) -> Played:
    for name, text in recording["input_files"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    raw = recording["raw"]
    (folder / "reqs.json").write_text(raw if raw is not None else json.dumps(recording["requests"]))
    nodes = ",".join(f"{name}:{cores}" for name, cores in recording["nodes"])
    command = [PROGRAM, "qcg", "--envschema", {"direct": "common"}.get(recording["schema"], recording["schema"])]
    command += ["--nodes", nodes] if nodes else []
    command += ["reqs.json"] if recording["interface"] == "file" else ["--net"]
    before = {*recording["input_files"], "reqs.json"}
    process = subprocess.Popen(command, cwd=folder, env=os.environ | recording["env"], stderr=subprocess.PIPE, text=True)
    talk = [] if recording["interface"] == "file" else _talk(recording["replies"], folder, process)
    _, stderr = process.communicate(timeout=TIMEOUT_S)
    found = {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.relative_to(folder).parts[0].startswith(".qcgpjm")
    }
    log = found.pop("service.log", "")
    files = {name: text.replace(str(folder), "$WD") for name, text in found.items() if name not in before}
    return Played(process.returncode, talk or _replies(log), files, stderr)


def _talk(said: list[Any], folder: Path, manager: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Sends the requests at the recorded distances."""
    qcg_address(folder, manager)
    client = QcgClient.of_folder(folder)
    begun, first = time.monotonic(), said[0][0]
    replies = []
    for at, request, _ in said:
        time.sleep(max(0.0, begun + at - first - time.monotonic()))
        replies.append(client.answer(request))
    client.close()
    return replies


def _replies(log: str) -> list[dict[str, Any]]:
    decoder = json.JSONDecoder()
    marks = re.finditer("FileInterface reply message: ", log)
    return [decoder.raw_decode(log, mark.end())[0] for mark in marks]


def states(report: str) -> dict[str, str]:
    return dict(ENTRY.findall(report))


def _entries(report: str) -> dict[str, str]:
    masked = RUN_TIME.sub("rtime: *", DATE.sub("DATE", report))
    found = list(ENTRY.finditer(masked))
    ends = [*(entry.start() for entry in found[1:]), len(masked)]
    return {entry[1]: masked[entry.start() : end] for entry, end in zip(found, ends, strict=False)}


def _masked_reply(reply: dict[str, Any]) -> object:
    if reply["code"]:
        return {"code": reply["code"]}
    return json.loads(DATE.sub("DATE", json.dumps(reply)))


def differences(recording: dict[str, Any], played: Played) -> set[str]:
    """What is not as recorded: `end`, `reply N`, `state JOB`, `report JOB`, `file NAME`, `machine files`."""
    found = set()
    if recording["exit_code"] != played.exit_code:
        found.add("end")
    theirs = recording["replies"]
    if recording["interface"] != "file":
        theirs = [reply for _, _, reply in theirs]
    for number in range(max(len(theirs), len(played.replies))):
        pair = [_masked_reply(replies[number]) if number < len(replies) else None for replies in (theirs, played.replies)]
        if pair[0] != pair[1]:
            found.add(f"reply {number}")
    written, ours = dict(recording["files_written"]), dict(played.files)
    reports = written.pop("jobs.report", ""), ours.pop("jobs.report", "")
    ended = [states(report) for report in reports]
    entries = [_entries(report) for report in reports]
    for name in ended[0].keys() | ended[1].keys():
        if ended[0].get(name) != ended[1].get(name):
            found.add(f"state {name}")
        elif entries[0][name] != entries[1][name]:
            found.add(f"report {name}")
    for name in written.keys() | ours.keys():
        if _masked_file(written.get(name)) != _masked_file(ours.get(name)):
            machine = name.endswith((".hostfile", ".runconfig")) and name not in written
            found.add("machine files" if machine else f"file {name}")
    return found


def _masked_file(text: str | None) -> str | None:
    return None if text is None else UNIQUE.sub("UUID", text)
