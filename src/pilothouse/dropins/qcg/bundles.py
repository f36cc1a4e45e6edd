"""Bundles: many tiny one-core jobs that the world sees as one job, so that each costs a spawn and not a round trip.

The live world does the same with the lines of a task file (worlds/live/feeder.py), and uses the same Pace:
a bundle holds about 2 s of work at the speed of the jobs so far, jobs that take longer are not bundled, and a bundle
returns the members that a slow job would hold up. Only jobs with one core and no time limit are bundled. Members and
results are files in the manager's folder, so that a resumed manager finds them.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pilothouse.dropins.qcg import bundle_runner
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import JobState
from pilothouse.worlds.live.feeder import Pace

PREFIX = "::"
"""No job's name begins with this: colons are refused there."""
MOST_BUNDLED = 2000
LARGER = 12
"""A runner must be started for each bundle, so bundles are this much larger than those of a task file."""
CUT_S = 3.0
"""A bundle that has run for longer returns what it has not begun."""


class Result(msgspec.Struct, frozen=True):
    """The end of one member."""

    job_id: str
    return_code: int
    pid: int
    started_at: float
    ended_at: float
    reason: str

    @property
    def state(self) -> JobState:
        return JobState.SUCCEEDED if self.return_code == 0 else JobState.FAILED


class Bundle:
    """Members in order; those without a result yet are `left`."""

    def __init__(self, bundle_id: str, members: list[str], folder: Path, *, running: bool = False) -> None:
        self.id = bundle_id
        self.members = members
        self.left = list(members)
        self.running = running
        self.command: Command | None = None
        """How to run it, if that could be prepared before its start."""
        self.returned: list[str] = []
        self.bytes_read = 0
        """Of the results file."""
        stem = folder / bundle_id.removeprefix(PREFIX)
        self.spec_file, self.results_file, self.members_file, self.cancel_file = (
            stem.with_name(f"{stem.name}.{ending}") for ending in ("spec", "results", "members", "results.cancel")
        )


class Bundles:
    """Makes bundles and reads their results. `folder` must be the same wherever jobs run, else `enabled` is False."""

    def __init__(self, folder: Path, python: str, session: int, *, enabled: bool = True) -> None:
        self._folder = folder / "bundles"
        self._python = python
        self._session = session
        self._serial = 0
        self.pace = Pace(MOST_BUNDLED if enabled else 1)
        self.alive: dict[str, Bundle] = {}
        self._of_member: dict[str, Bundle] = {}

    def size(self, cores: int, ready: int) -> int:
        """How many jobs the next bundle should hold of so many; 1: no bundle.

        At most half of a core's share, so that bundles get smaller and all cores finish at about the same time.
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
        bundle = self._add(Bundle(f"{PREFIX}{self._session}.{self._serial}", [job.id for job in jobs], self._folder))
        return Job(bundle.id, units=1, submitted_at=jobs[0].submitted_at, priority=jobs[0].priority)

    def _add(self, bundle: Bundle) -> Bundle:
        self.alive[bundle.id] = bundle
        self._of_member |= dict.fromkeys(bundle.members, bundle)
        return bundle

    def of(self, member: str) -> Bundle | None:
        return self._of_member.get(member)

    def drop(self, bundle: Bundle, member: str) -> bool:
        """Takes a member out before the bundle has begun; True if nothing is left of it."""
        bundle.command = None
        self._remove(bundle, member)
        return not bundle.left

    def _remove(self, bundle: Bundle, member: str) -> None:
        bundle.left.remove(member)
        del self._of_member[member]

    def cancel(self, bundle: Bundle, member: str) -> None:
        """The runner skips this member of a running bundle, unless it has begun."""
        with bundle.cancel_file.open("a", encoding="ascii") as stream:
            stream.write(f"{bundle.members.index(member)}\n")

    def write(self, bundle: Bundle, commands: list[Command]) -> Command:
        """Writes the files of a bundle (one command for each member left), and returns the command that runs it."""
        self._folder.mkdir(exist_ok=True)
        positions = {member: position for position, member in enumerate(bundle.members)}
        rows = [
            (positions[member], list(command.argv), command.env, command.cwd,
             _unescaped(command.stdin), _unescaped(command.stdout), _unescaped(command.stderr))
            for member, command in zip(bundle.left, commands, strict=True)
        ]  # fmt: skip
        bundle.members_file.write_bytes(msgspec.json.encode(bundle.members))
        bundle.spec_file.write_bytes(marshal.dumps(rows))
        runner = [self._python, "-I", "-S", str(Path(bundle_runner.__file__).absolute())]
        return Command(
            argv=(*runner, str(bundle.spec_file), str(bundle.results_file), str(CUT_S)), cwd=commands[0].cwd
        )

    def results(self, bundle: Bundle) -> Iterator[Result]:
        """Reads what was written since the last call; also fills `bundle.returned`."""
        try:
            with bundle.results_file.open("rb") as stream:
                stream.seek(bundle.bytes_read)
                text = stream.read()
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        bundle.bytes_read += len(whole)
        for line in whole.decode("utf-8", "replace").splitlines():
            first, *rest = line.split(" ", 5)
            if first == "returned":
                kept = set(bundle.members[: int(rest[0]) + 1])
                bundle.returned = [member for member in bundle.left if member not in kept]
                continue
            job_id = bundle.members[int(first)]
            if job_id in self._of_member and job_id in bundle.left:
                self._remove(bundle, job_id)
                code, pid, started, ended, reason = rest
                yield Result(job_id, int(code), int(pid), float(started), float(ended), reason)

    def take_returned(self, bundle: Bundle) -> list[str]:
        """Members that the runner has returned, and will not begin."""
        returned = [member for member in bundle.returned if member in bundle.left]
        bundle.returned = []
        for member in returned:
            self._remove(bundle, member)
        return returned

    def close(self, bundle: Bundle) -> list[str]:
        """The bundle is over. Returns the members without a result."""
        self.alive.pop(bundle.id, None)
        for member in bundle.left:
            self._of_member.pop(member, None)
        for path in (bundle.spec_file, bundle.results_file, bundle.members_file, bundle.cancel_file):
            path.unlink(missing_ok=True)
        return bundle.left

    def found(self) -> list[Bundle]:
        """Bundles that an earlier manager left."""
        return [
            self._add(Bundle(PREFIX + path.stem, msgspec.json.decode(path.read_bytes()), self._folder, running=True))
            for path in sorted(self._folder.glob("*.members"))
        ]

    def lost(self, bundle: Bundle) -> None:
        """Its node is gone, and its results have been read: the members without one run again."""
        bundle.running = False
        bundle.command = None
        bundle.bytes_read = 0
        bundle.results_file.unlink(missing_ok=True)


def is_narrow(job: Job) -> bool:
    """One core, no time limit, no shape: a job that may be bundled."""
    return job.units == 1 and not job.most_units and job.shape is None and job.walltime == float("inf")


def is_bundle(job_id: str) -> bool:
    return job_id.startswith(PREFIX)


def _unescaped(name: str) -> str:
    """The live world reads braces in file names as placeholders; the runner does not."""
    return name.replace("{{", "{").replace("}}", "}")
