"""The files of a manager, in its folder `.qcgpjm-service-<id>`.

    service.log        what happened            jobs.report        finished jobs, JSON lines or text
    address            of the network interface track.reqs         accepted jobs, JSON lines
    env.log            the manager's environment track.states      how they ended, JSON lines
    final_status.json  the last status          journal.sqlite     the live world's journal
    start.json         options and request file track.taken        how many requests of the file were taken

Tracked lines are flushed before the client gets its answer: a killed manager loses nothing.

The text report of a job in the specification's dialect shows where it ran as `node:cores`; that of 0.14.2 names the cores, and
shows the job's messages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

import msgspec

from pilothouse.access.files import write_whole
from pilothouse.dropins.qcg.registry import Entry, Item, Registry, date_text, split_name, state_name, visible_history
from pilothouse.formats.qcg_description import DescriptionError, describe
from pilothouse.formats.qcg_dialect import DIALECTS, LATER, SPECIFICATION, Dialect
from pilothouse.formats.qcg_requests import SubmittedJob
from pilothouse.formats.text_input import JSON_PROBLEMS
from pilothouse.model.errors import InputError
from pilothouse.model.lifecycle import FINAL, QCG, JobState
from pilothouse.protocols.qcg.client import manager_folders
from pilothouse.protocols.qcg.network import FOLDER_PREFIX, Answer

_REMOVED = "REMOVED"
_TAKEN = re.compile(rb"([0-9]{1,12}) ([0-9]{1,15})")
_DIALECTS = DIALECTS | {"specification": SPECIFICATION}
"""By their names in track.reqs; the second is that of earlier versions."""
_STATES = {QCG[state]: state for state in (JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED, JobState.OMITTED)}


class TrackedEnds(msgspec.Struct):
    """How a job and its iterations had ended, by their names, and whether the job was removed afterwards."""

    states: dict[str, JobState] = {}
    removed: bool = False


class Start(msgspec.Struct):
    """How a manager was started: what a resumed one needs to go on in the same way."""

    options: dict[str, object]
    requests: list[msgspec.Raw] = []
    """The request file. It is kept because the manager may be killed before it has taken all of it."""

    @classmethod
    def read(cls, folder: Path) -> Start | None:
        """Of an earlier manager; None if it kept none, as 0.14 does. Raises InputError."""
        path = folder / "start.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            return None
        except JSON_PROBLEMS as error:
            raise InputError(str(path), f"not the start of a manager: {error}") from None

    def write(self, folder: Path) -> None:
        write_whole(folder / "start.json", msgspec.json.encode(self))


class _StateLine(msgspec.Struct):
    task: str
    state: str
    number: int = 0


def _is_ours(link: Path) -> bool:
    """Whether this is a link into the folder of a manager."""
    return link.is_symlink() and os.readlink(link).startswith(FOLDER_PREFIX)


class ManagerFiles:
    """Writes the files of one manager, and reads those that an earlier one left."""

    def __init__(
        self, folder: Path, report_file: str = "jobs.report", report_format: str = "json", *, requests: int = 0
    ) -> None:
        """`report_format`: json, text or none. `requests`: how many the request file has."""
        self.folder = folder
        self.taken, size = _last_taken(folder)
        """How many requests of the file were taken."""
        if self.taken < requests and (folder / "track.reqs").is_file():
            # The manager was killed while it took a request, which is taken again: what it has tracked of it is removed.
            os.truncate(folder / "track.reqs", size)
        self._taken = _continued(folder / "track.taken") if requests else None
        self._report_path = folder / report_file
        self._show = {"json": json_report, "text": text_report}.get(report_format)
        self._reqs = _continued(folder / "track.reqs")
        self._states = _continued(folder / "track.states")
        self._report = None if self._show is None else _continued(self._report_path)
        self._reported: set[str] = set()
        """Names of jobs that an earlier manager has reported."""

    def accepted(self, entries: list[Entry]) -> None:
        for entry in entries:
            line = entry.description.written()
            if entry.dialect is not LATER:
                line["dialect"] = entry.dialect.name
            line["arrived"] = entry.arrived_at
            self._reqs.write(_line(line))
        self._reqs.flush()

    def note_taken(self, count: int) -> None:
        """The first `count` requests of the file are taken, and their jobs are tracked."""
        assert self._taken is not None
        self._taken.write(f"{count} {os.fstat(self._reqs.fileno()).st_size}\n")
        self._taken.flush()

    def finished(self, items: list[Item]) -> None:
        for entry, index in items:
            name = entry.full_name(index)
            self._track(entry, index, state_name(entry.state_of(index)))
            if self._report is not None and self._show is not None and name not in self._reported:
                self._report.write(self._show(entry, index))
        self._states.flush()
        if self._report is not None:
            self._report.flush()

    def removed(self, entry: Entry) -> None:
        self._track(entry, None, _REMOVED)
        self._states.flush()

    def _track(self, entry: Entry, index: int | None, state: str) -> None:
        """The number tells jobs apart that had one name, one after another."""
        name = entry.full_name(index)
        self._states.write(_line({"task": name, "iteration": index, "state": state, "number": entry.number}))

    def write_address(self, address: str) -> None:
        # All or nothing: a client that waits for this file must never read half of it.
        write_whole(self.folder / "address", address.encode())

    def write_environment(self, environment: Mapping[str, str]) -> None:
        text = "".join(f"{name}={value}\n" for name, value in environment.items())
        write_whole(self.folder / "env.log", text.encode("utf-8", "surrogateescape"))

    def write_status(self, status: Answer) -> None:
        (self.folder / "final_status.json").write_bytes(msgspec.json.format(msgspec.json.encode(status), indent=2))

    def link_into(self, wd: Path, dialect: Dialect) -> None:
        """The specification has service.log and jobs.report in the working directory itself. What another program has left there
        under these names is renamed. Links that an earlier manager made there are those of the latest one, whatever its dialect.
        """
        for target in (self.folder / "service.log", self._report_path):
            link = wd / target.name
            if not _is_ours(link) and not dialect.files_in_wd:
                continue
            try:
                if os.path.lexists(link) and not _is_ours(link):
                    link.rename(f"{link}.before{self.folder.name.removeprefix(FOLDER_PREFIX[:-1])}")
                draft = wd / f"{self.folder.name}.link"
                draft.unlink(missing_ok=True)
                draft.symlink_to(os.path.relpath(target, wd))
                draft.replace(link)
            except OSError as error:
                raise InputError(str(link), f"cannot be made: {error.strerror}", hint="use another --wd") from None

    def close(self) -> None:
        for stream in (self._reqs, self._states, self._report, self._taken):
            if stream is not None:
                stream.close()

    # ---- what an earlier manager left

    @staticmethod
    def requests_taken(folder: Path) -> int:
        """How many requests of its file the manager of that folder has taken."""
        return _last_taken(folder)[0]

    def read_report(self) -> None:
        """Notes which jobs are reported already."""
        if self._report is None:
            return
        for line in self._report_path.read_text(encoding="utf-8").split("\n"):
            if self._show is json_report:
                self._reported |= {str(msgspec.json.decode(line)["name"])} if line else set()
            elif line[:1] not in ("", "\t", " ") and " (" in line:
                self._reported.add(line.partition(" (")[0])

    def forget_reported(self, registry: Registry) -> None:
        """Names that were reported, and now are those of jobs that have not ended, will be reported again."""
        found = ((name, registry.find(name)) for name in self._reported)
        self._reported = {name for name, item in found if item is not None and item[0].state_of(item[1]) in FINAL}

    def tracked_jobs(self) -> Iterator[tuple[SubmittedJob, float]]:
        """The jobs that were accepted, in order, and when (0: not known)."""
        for number, line in enumerate(_lines_of(self.folder / "track.reqs"), 1):
            where = f"{self.folder / 'track.reqs'}:{number}"
            try:
                raw = msgspec.json.decode(line)
                loop = raw.get("iteration")
                if loop is not None and loop.get("values") is not None:
                    raw["iteration"] = {"values": loop["values"]}  # 0.14.2 tracks their number as well
                dialect = _DIALECTS[raw.pop("dialect", LATER.name)]
                arrived = float(raw.pop("arrived", 0.0))
                yield SubmittedJob(str(raw["name"]), describe(raw, dialect)), arrived
            except (msgspec.DecodeError, DescriptionError, AttributeError, KeyError, ValueError) as error:
                raise InputError(where, f"not a tracked job: {error}") from None

    def tracked_states(self) -> dict[int | str, TrackedEnds]:
        """By the numbers of the jobs; by their names in files of earlier versions and of 0.14.2, which track no numbers."""
        found: dict[int | str, TrackedEnds] = {}
        for line in _lines_of(self.folder / "track.states"):
            try:
                raw = msgspec.json.decode(line, type=_StateLine)
            except JSON_PROBLEMS as error:
                raise InputError(str(self.folder / "track.states"), f"not a tracked state: {error}") from None
            tracked = found.setdefault(raw.number or split_name(raw.task)[0], TrackedEnds())
            if raw.state == _REMOVED:
                tracked.removed = True
            elif raw.state in _STATES:
                tracked.states[raw.task] = _STATES[raw.state]
        return found


def _line(data: dict[str, object]) -> str:
    return msgspec.json.encode(data).decode() + "\n"


def _continued(path: Path) -> TextIO:
    """Opens a file for more lines. A last line that was cut off when the manager was killed is removed."""
    if path.is_file():
        data = path.read_bytes()
        os.truncate(path, data.rfind(b"\n") + 1)
    return path.open("a", encoding="utf-8")


def _last_taken(folder: Path) -> tuple[int, int]:
    """How many requests of the file were taken, and the size of track.reqs then. A request whose jobs a power loss has cut off is
    not taken, and a damaged line does not count.
    """
    path, tracked = folder / "track.taken", folder / "track.reqs"
    there = tracked.stat().st_size if tracked.is_file() else 0
    for line in reversed(_lines_of(path) if path.is_file() else []):
        if (found := _TAKEN.fullmatch(line)) and int(found[2]) <= there:
            return int(found[1]), int(found[2])
    return 0, 0


def _lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


def find_folder(path: Path) -> Path:
    """The folder of a manager: the path itself, or the latest one in it. Raises InputError."""
    found = manager_folders(path)
    if not found:
        raise InputError(
            str(path), f"Resume directory {path} not exists or is not valid QCG-PilotJob auxiliary directory"
        )
    return found[0]


def json_report(entry: Entry, index: int | None) -> str:
    """One line of a JSON report: a job or iteration that has ended."""
    status = entry.status_of(index)
    history = visible_history(status, entry.dialect)
    data: dict[str, object] = {
        "name": entry.full_name(index),
        "state": state_name(status.state, entry.dialect),
        "history": [{"state": name, "date": date_text(when).replace(" ", "T")} for name, when in history],
        # Only 0.14.2 has a JSON report, so that it is written in that dialect.
        "runtime": status.runtime.shown(LATER) if status.runtime is not None else {},
    }
    if index is None:
        description = entry.description
        data["execution"] = description.execution.written()
        data["resources"] = description.resources.written()
        if description.after:
            data["dependencies"] = {"after": list(description.after)}
    if status.messages is not None:
        data["messages"] = status.messages
    return _line(data)


def text_report(entry: Entry, index: int | None) -> str:
    """One entry of a text report: a job or iteration that has ended."""
    status, dialect = entry.status_of(index), entry.dialect
    message = "" if dialect.plain_answers else f" {status.messages or ''}"
    lines = [f"{entry.full_name(index)} ({state_name(status.state, dialect)}){message}"]
    lines += [f"\t{date_text(when)}: {name}" for name, when in visible_history(status, dialect)]
    runtime = status.runtime.shown(dialect) if status.runtime is not None else {}
    lines += [f"\t{key}: {value}" for key, value in runtime.items()] or ["\t"]
    return "\n".join(lines) + "\n"
