"""Bundles: many tiny one-core jobs that the world sees as one, so that each costs a spawn and not a conversation.

The live world does the same with the lines of a task file (worlds/live/pace.py), and the same Pace decides:
a bundle holds about 2 s of work as jobs have gone so far, none while jobs take longer, and gives back what a slow job would
hold up. Only jobs that ask for one core and no time limit are bundled. Members and results are files in the manager's
folder, so that a resumed manager finds them.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pilothouse.dropins.qcg import bundle_runner
from pilothouse.model.job import Command, Job
from pilothouse.worlds.live.pace import Pace

PREFIX = "::"
"""No job's name begins with this: a colon is refused there."""
MOST_BUNDLED = 2000
LARGER = 12
"""A runner must be started for each bundle, so they are this much larger than those of a task file."""
CUT_S = 3.0
"""A bundle that has run for longer gives back what it has not begun."""


class Result(msgspec.Struct, frozen=True):
    """The end of one member."""

    job_id: str
    return_code: int
    pid: int
    started_at: float
    ended_at: float
    reason: str


class Bundle:
    """Members in order; those without a result yet are `left`."""

    def __init__(self, bundle_id: str, members: list[str]) -> None:
        self.id = bundle_id
        self.members = members
        self.left = list(members)
        self.running = False
        self.command: Command | None = None
        """How to run it, where that could be prepared before its turn."""
        self.returned: list[str] = []
        self.read = 0
        """How much of the results file has been read."""

    @property
    def file_stem(self) -> str:
        return self.id.removeprefix(PREFIX)


class Bundles:
    """Makes bundles and reads what became of them. `folder` must be the same wherever jobs run."""

    def __init__(self, folder: Path, python: str, session: int) -> None:
        self._folder = folder / "bundles"
        self._python = python
        self._session = session
        self._serial = 0
        self.pace = Pace(MOST_BUNDLED)
        self.alive: dict[str, Bundle] = {}
        self._of_member: dict[str, Bundle] = {}

    def size(self, cores: int, ready: int) -> int:
        """How many jobs the next bundle should hold of so many; 1: none are bundled.

        Half of a core's share at most, so that bundles get smaller and all cores have done at about the same time.
        """
        size = self.pace.bundle(None, cores)
        return min(MOST_BUNDLED, size * LARGER, max(size, ready // (2 * cores))) if size > 1 else 1

    def gather(self, jobs: list[Job], size: int, cores: int, *, more: bool) -> Iterator[Job]:
        """The same jobs, tiny ones bundled, `size` in each. `more`: others wait behind these."""
        if not more:
            size = min(size, -(-len(jobs) // cores))
        group: list[Job] = []
        for job in jobs:
            if size > 1 and is_narrow(job):
                group.append(job)
                if len(group) == size:
                    yield self._bundled(group)
                    group = []
            else:
                yield job
        if group:
            yield self._bundled(group) if len(group) > 1 else group[0]

    def _bundled(self, jobs: list[Job]) -> Job:
        self._serial += 1
        bundle = Bundle(f"{PREFIX}{self._session}.{self._serial}", [job.id for job in jobs])
        self._adopt(bundle)
        first = jobs[0]
        return Job(bundle.id, units=1, submitted_at=first.submitted_at, priority=first.priority)

    def _adopt(self, bundle: Bundle) -> None:
        self.alive[bundle.id] = bundle
        for member in bundle.members:
            self._of_member[member] = bundle

    def of(self, member: str) -> Bundle | None:
        return self._of_member.get(member)

    def drop(self, bundle: Bundle, member: str) -> bool:
        """Takes a member out before the bundle has begun; True if nothing is left of it."""
        bundle.left.remove(member)
        bundle.command = None
        del self._of_member[member]
        return not bundle.left

    def cancel(self, bundle: Bundle, member: str) -> None:
        """A member of a running bundle shall not be begun; whether it was already, its end will tell."""
        with self._cancel_file(bundle).open("a", encoding="ascii") as stream:
            stream.write(f"{bundle.members.index(member)}\n")

    def _cancel_file(self, bundle: Bundle) -> Path:
        return self._folder / f"{bundle.file_stem}.results.cancel"

    def write(self, bundle: Bundle, commands: list[Command]) -> Command:
        """The files of a bundle that begins, and the command that runs it."""
        self._folder.mkdir(exist_ok=True)
        spec, results, members = self._files(bundle)
        rows = [
            (position, list(command.argv), command.env, command.cwd,
             _plain(command.stdin), _plain(command.stdout), _plain(command.stderr))
            for position, command in zip(self._positions(bundle), commands, strict=True)
        ]  # fmt: skip
        members.write_bytes(msgspec.json.encode(bundle.members))
        with spec.open("wb") as stream:
            marshal.dump(rows, stream)
        runner = str(Path(bundle_runner.__file__).absolute())
        return Command(
            argv=(self._python, "-I", "-S", runner, str(spec), str(results), str(CUT_S)), cwd=commands[0].cwd
        )

    def _positions(self, bundle: Bundle) -> list[int]:
        place = {member: position for position, member in enumerate(bundle.members)}
        return [place[member] for member in bundle.left]

    def _files(self, bundle: Bundle) -> tuple[Path, Path, Path]:
        stem = bundle.file_stem
        return self._folder / f"{stem}.spec", self._folder / f"{stem}.results", self._folder / f"{stem}.members"

    def results(self, bundle: Bundle) -> Iterator[Result]:
        """Ends that have been written since the last look; `bundle.returned` is filled beside."""
        path = self._files(bundle)[1]
        try:
            with path.open("rb") as stream:
                stream.seek(bundle.read)
                text = stream.read()
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        bundle.read += len(whole)
        for line in whole.decode("utf-8", "replace").splitlines():
            first, *rest = line.split(" ", 5)
            if first == "returned":
                at = int(rest[0])
                kept = set(bundle.members[: at + 1])
                bundle.returned = [member for member in bundle.left if member not in kept]
                continue
            job_id = bundle.members[int(first)]
            if job_id in self._of_member and job_id in bundle.left:
                bundle.left.remove(job_id)
                del self._of_member[job_id]
                code, pid, started, ended, reason = rest
                yield Result(job_id, int(code), int(pid), float(started), float(ended), reason)

    def take_returned(self, bundle: Bundle) -> list[str]:
        """Members that the runner has given back, and will not begin."""
        returned = [member for member in bundle.returned if member in bundle.left]
        bundle.returned = []
        for member in returned:
            bundle.left.remove(member)
            del self._of_member[member]
        return returned

    def close(self, bundle: Bundle) -> list[str]:
        """It is over; the members without a result."""
        self.alive.pop(bundle.id, None)
        for member in bundle.left:
            self._of_member.pop(member, None)
        for path in (*self._files(bundle), self._cancel_file(bundle)):
            path.unlink(missing_ok=True)
        return bundle.left

    def found(self) -> Iterator[Bundle]:
        """Bundles of an earlier life whose files are there."""
        for path in sorted(self._folder.glob("*.members")):
            bundle = Bundle(PREFIX + path.stem, msgspec.json.decode(path.read_bytes(), type=list[str]))
            bundle.running = True
            self._adopt(bundle)
            yield bundle

    def lost(self, bundle: Bundle) -> None:
        """Its node is gone: what had no result runs again, and its old results have been read."""
        bundle.running = False
        bundle.command = None
        bundle.read = 0
        self._files(bundle)[1].unlink(missing_ok=True)


def is_narrow(job: Job) -> bool:
    """One core, no time limit, nothing special: a job that may be bundled."""
    return job.units == 1 and not job.most_units and job.shape is None and job.walltime == float("inf")


def is_bundle(job_id: str) -> bool:
    return job_id.startswith(PREFIX)


def _plain(name: str) -> str:
    """The live world reads braces in file names as placeholders; the runner does not."""
    return name.replace("{{", "{").replace("}}", "}")
