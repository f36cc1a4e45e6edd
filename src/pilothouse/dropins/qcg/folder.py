"""The manager's folder, `.qcgpjm-service-<id>`, and the files in it that others read.

    service.log        what happened            jobs.report        finished jobs, JSON lines or text
    address            of the network interface track.reqs         accepted jobs, JSON lines
    env.log            the manager's environment track.states      how they ended, JSON lines
    final_status.json  the last status          journal.sqlite     the registry (worlds/live)

What is tracked is handed to the operating system before the client hears of it: a killed manager loses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

import msgspec

from pilothouse.dropins.qcg.answers import Answer
from pilothouse.dropins.qcg.dependencies import Place
from pilothouse.dropins.qcg.registry import Entry, state_name
from pilothouse.dropins.qcg.report import report_entry
from pilothouse.formats.qcg_description import DescriptionError, Dialect, describe
from pilothouse.formats.qcg_requests import Planned
from pilothouse.model.errors import InputError
from pilothouse.model.lifecycle import QCG, JobState

PREFIX = ".qcgpjm-service-"
REMOVED = "REMOVED"
_STATES = {QCG[state]: state for state in (JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED, JobState.OMITTED)}


class Folder:
    """Writes the files of one manager."""

    def __init__(self, path: Path, report_file: str = "jobs.report", report_format: str = "json") -> None:
        self.path = path
        self._report_path = path / report_file
        self._report_format = report_format
        self._reqs: TextIO = (path / "track.reqs").open("a", encoding="utf-8")
        self._states: TextIO = (path / "track.states").open("a", encoding="utf-8")
        self.reported: set[str] = set()
        """Names that the report holds from an earlier life of this manager."""
        self._report: TextIO | None = None
        if report_format != "none":
            self._report = self._report_path.open("a", encoding="utf-8")

    def accepted(self, entries: list[Entry]) -> None:
        for entry in entries:
            line = entry.description.written()
            if entry.dialect is Dialect.SPECIFICATION:
                line["dialect"] = entry.dialect.value
            line["arrived"] = entry.arrived_at
            self._reqs.write(msgspec.json.encode(line).decode() + "\n")
        self._reqs.flush()

    def finished(self, places: list[Place]) -> None:
        for entry, index in places:
            name = entry.full_name(index)
            state = state_name(entry.state_of(index), Dialect.LATER)
            line = {"task": name, "iteration": index, "state": state}
            self._states.write(msgspec.json.encode(line).decode() + "\n")
            if self._report is not None and name not in self.reported:
                self._report.write(report_entry(entry, index, self._report_format))
        self._states.flush()
        if self._report is not None:
            self._report.flush()

    def removed(self, name: str) -> None:
        line = {"task": name, "iteration": None, "state": REMOVED}
        self._states.write(msgspec.json.encode(line).decode() + "\n")
        self._states.flush()

    def write_address(self, address: str) -> None:
        # Whoever waits for this file must never read half of it.
        fresh = self.path / "address.new"
        fresh.write_text(address, encoding="utf-8")
        fresh.replace(self.path / "address")

    def write_environment(self, environment: Mapping[str, str]) -> None:
        path = self.path / "env.log"
        path.touch(mode=0o600)
        path.write_text("".join(f"{name}={value}\n" for name, value in environment.items()), encoding="utf-8")

    def write_status(self, status: Answer) -> None:
        text = msgspec.json.format(msgspec.json.encode(status), indent=2)
        (self.path / "final_status.json").write_bytes(text)

    def link_into(self, wd: Path) -> None:
        """The specification has service.log and jobs.report in the working directory itself."""
        for target in (self.path / "service.log", self._report_path):
            link = wd / target.name
            if link.is_symlink() or not link.exists():
                link.unlink(missing_ok=True)
                link.symlink_to(os.path.relpath(target, wd))

    def close(self) -> None:
        for stream in (self._reqs, self._states, self._report):
            if stream is not None:
                stream.close()

    # ---- what an earlier life left

    def read_reported(self) -> None:
        """Notes which jobs the report holds already, and repairs a line that was cut off."""
        if self._report is None:
            return
        text = self._report_path.read_text(encoding="utf-8")
        if text and not text.endswith("\n"):
            self._report.truncate(text.rfind("\n") + 1)
        for line in text.splitlines(keepends=True):
            if self._report_format == "text":
                if line[0] not in "\t " and " (" in line:
                    self.reported.add(line.partition(" (")[0])
            elif line.endswith("\n"):
                self.reported.add(str(msgspec.json.decode(line)["name"]))

    def tracked_jobs(self) -> Iterator[tuple[Planned, float]]:
        """The jobs that were accepted, in order, and when (0: not known)."""
        for number, line in enumerate(_whole_lines(self.path / "track.reqs"), 1):
            where = f"{self.path / 'track.reqs'}:{number}"
            try:
                raw = msgspec.json.decode(line)
                loop = raw.get("iteration")
                if loop is not None and loop.get("values") is not None:
                    raw["iteration"] = {"values": loop["values"]}  # 0.14.2 tracks their number as well
                dialect = Dialect(raw.pop("dialect", Dialect.LATER.value))
                arrived = float(raw.pop("arrived", 0.0))
                yield Planned(str(raw["name"]), dialect, describe(raw, dialect)), arrived
            except (msgspec.DecodeError, DescriptionError, AttributeError, KeyError, ValueError) as error:
                raise InputError(where, f"not a tracked job: {error}") from None

    def tracked_states(self) -> dict[str, JobState | None]:
        """How jobs and iterations had ended; None: it was removed afterwards."""
        states: dict[str, JobState | None] = {}
        for line in _whole_lines(self.path / "track.states"):
            try:
                raw = msgspec.json.decode(line)
                states[str(raw["task"])] = _STATES.get(raw["state"]) if raw["state"] != REMOVED else None
            except (msgspec.DecodeError, KeyError) as error:
                raise InputError(str(self.path / "track.states"), f"not a tracked state: {error}") from None
        return states


def _whole_lines(path: Path) -> list[bytes]:
    """The last line may have been cut off by whatever ended the manager."""
    text = path.read_bytes() if path.exists() else b""
    return text[: text.rfind(b"\n") + 1].splitlines()


def find_folder(path: Path) -> Path:
    """The folder of a manager: the path itself, or the latest one in it. Raises InputError."""
    if path.name.startswith(PREFIX) and path.is_dir():
        return path
    found = [entry for entry in path.glob(f"{PREFIX}*") if entry.is_dir()] if path.is_dir() else []
    if not found:
        raise InputError(
            str(path), f"Resume directory {path} not exists or is not valid QCG-PilotJob auxiliary directory"
        )
    return max(found, key=lambda entry: entry.stat().st_mtime)
