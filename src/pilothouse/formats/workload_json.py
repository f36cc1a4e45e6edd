"""Batsim workloads (JSON): `{"nb_res": n, "jobs": [...], "profiles": {...}}`, as Batsim 2 to 5 write them.

`read(path, name)` returns a Workload. Cost: 2.5 µs a job. With `sources=True` the description of each job is kept as it
was written, for protocols that forward it.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.formats import profile_json
from pilothouse.formats.text_input import JSON_PROBLEMS, json_error, read_bytes
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.job import Job
from pilothouse.model.profile import Delay, HomogeneousTask, ParallelTask, Profile, Sequence, Spread, parts_of

_NOTHING = msgspec.Raw(b"null")


class WrittenJob(msgspec.Struct, gc=False):
    id: str | int
    subtime: float
    res: int
    profile: str
    walltime: float | None = None
    extra_data: msgspec.Raw = _NOTHING


class WrittenFile(msgspec.Struct):
    nb_res: int
    jobs: list[WrittenJob]
    profiles: dict[str, msgspec.Raw]


class _FileWithSources(msgspec.Struct):
    nb_res: int
    jobs: list[msgspec.Raw]
    profiles: dict[str, msgspec.Raw]


_FILE = msgspec.json.Decoder(WrittenFile)
_FILE_WITH_SOURCES = msgspec.json.Decoder(_FileWithSources)
_JOB = msgspec.json.Decoder(WrittenJob)


def read(path: str | Path, name: str = "w0", *, sources: bool = False, all_profiles: bool = False) -> Workload:
    """Reads and validates a whole workload; InputError names file and place."""
    return parse(read_bytes(path), path, name, sources=sources, all_profiles=all_profiles)


def parse(
    data: bytes,
    path: str | Path,
    name: str,
    *,
    sources: bool = False,
    elsewhere: Collection[str] = (),
    all_profiles: bool = False,
    decoder: msgspec.json.Decoder[Any] = _FILE,
) -> Workload:
    """The same from the content of the file. `elsewhere` are full names of profiles of other workloads, which sequences
    may have as parts. `all_profiles`: also those that no job needs. `decoder`: a stricter one."""
    try:
        if not data.isascii():
            data.decode()  # profiles are only read later
        if sources:
            file = _FILE_WITH_SOURCES.decode(data)
            written = [_JOB.decode(raw) for raw in file.jobs]
            raws: list[msgspec.Raw | None] = list(file.jobs)
        else:
            file = decoder.decode(data)
            written, raws = file.jobs, []
    except JSON_PROBLEMS as problem:
        raise json_error(path, data, problem) from None
    if file.nb_res <= 0:
        raise InputError(f"{path}: $.nb_res", "the number of resources", expected="1 or more", found=str(file.nb_res))
    reader = _Reader(path, name, file.profiles, elsewhere)
    jobs = reader.jobs(written, raws)
    submitted_at = attrgetter("submitted_at")
    if len(set(map(submitted_at, jobs))) < len(jobs):
        # QUIRK: jobs of one date are submitted in the order of their ids as text, so 10 comes before 2.
        jobs.sort(key=attrgetter("id"))
    jobs.sort(key=submitted_at)
    return Workload(name, str(Path(path).absolute()), file.nb_res, jobs, reader.profiles(all_profiles))


class _Reader:
    """Makes jobs of the entries of one file, and reads profiles when a job needs them."""

    def __init__(
        self, path: str | Path, name: str, profiles: dict[str, msgspec.Raw], elsewhere: Collection[str]
    ) -> None:
        self._path = path
        self._name = name
        self._elsewhere = elsewhere
        self._base = Path(path).absolute().parent
        self._written = profiles
        self._profiles: dict[str, Profile] = {}

    def jobs(self, written: list[WrittenJob], raws: list[msgspec.Raw | None]) -> list[Job]:
        jobs = []
        name, profiles = self._name, self._profiles
        prefix = name + "!"
        for index, w in enumerate(written):
            local, submitted, units = w.id, w.subtime, w.res
            if type(local) is not str:
                local = str(local)
            full = prefix + local
            if name in local:
                full = self._already_full(local, index)
            profile = profiles.get(w.profile) or self._profile(w.profile, index)
            walltime = w.walltime
            if walltime is None or not walltime > 0.0:
                walltime = self._walltime(walltime, index)
            if units < 0:
                raise self._error(index, "res", "the number of resources", expected="0 or more", found=str(units))
            job = Job(full, units, walltime, submitted, profile)
            spec = profile.spec
            if type(spec) is Delay:
                job.runtime = spec.seconds
            elif type(spec) is ParallelTask:
                self._check_size(spec, units, index)
            elif self._is_elastic(profile):
                job.elastic = True
            if w.extra_data is not _NOTHING:
                place = profile_json.Place(f"{self._path}: $.jobs[{index}]", self._name, self._base)
                job.extra_data = profile_json.extra_text(w.extra_data, place)
            if raws:
                job.source = raws[index]
            jobs.append(job)
        if len({job.id for job in jobs}) < len(jobs):
            raise self._twice(jobs)
        return jobs

    def _twice(self, jobs: list[Job]) -> InputError:
        """The error for two jobs with one id: names the place of the second."""
        seen: set[str] = set()
        for index, job in enumerate(jobs):
            if job.id in seen:
                return self._error(index, "id", "a job of that id exists already", found=quoted(job.local_id))
            seen.add(job.id)
        raise AssertionError("all ids differ")

    def profiles(self, with_unneeded: bool) -> dict[str, Profile]:
        """The profiles that a job or a part of one needs, by full name, or all. The others are checked as well."""
        needed = {profile.name: profile for profile in self._profiles.values()}
        if len(needed) < len(self._written):
            for name in self._written:
                if name not in self._profiles:
                    self._read(name, f"$.profiles[{name!r}]", ())
        return {profile.name: profile for profile in self._profiles.values()} if with_unneeded else needed

    def _error(self, index: int, field: str, problem: str, **details: str) -> InputError:
        return InputError(f"{self._path}: $.jobs[{index}].{field}", problem, **details)

    def _already_full(self, local: str, index: int) -> str:
        # QUIRK: an id that contains the workload's name is taken for a full one.
        if local.count("!") != 1:
            problem = "an id with the workload's name in it"
            raise self._error(index, "id", problem, expected="workload!id", found=quoted(local))
        return local

    def _walltime(self, walltime: float | None, index: int) -> float:
        """Of a job whose walltime is not above 0."""
        if walltime is None or walltime == -1:
            return inf
        raise self._error(index, "walltime", "a walltime", expected="above 0, or none", found=f"{walltime:g}")

    def _check_size(self, spec: ParallelTask, units: int, index: int) -> None:
        size = len(spec.flop) or int(len(spec.bytes) ** 0.5)
        if size != units:
            problem = f"its parallel task is for {size} hosts"
            raise self._error(index, "res", problem, expected=str(size), found=str(units))

    def _is_elastic(self, profile: Profile) -> bool:
        """Total amounts are spread over any number of hosts; so is a sequence of such profiles."""
        spec = profile.spec
        if isinstance(spec, HomogeneousTask):
            return spec.spread is Spread.TOTAL
        if isinstance(spec, Sequence):
            own = [part for part in spec.parts if part not in self._elsewhere]
            elastic = (self._is_elastic(self._profiles[part.removeprefix(self._name + "!")]) for part in own)
            return len(own) == len(spec.parts) and all(elastic)
        return False

    def _profile(self, name: str, index: int) -> Profile:
        """Reads a profile and its parts. Unknown names and sequences that contain themselves are errors."""
        raw = self._written.get(name)
        if raw is not None and "!" not in name:
            profile = profile_json.plain_delay(raw, f"{self._name}!{name}")
            if profile is not None:
                self._profiles[name] = profile
                return profile
        self._read(name, f"$.jobs[{index}].profile", ())
        return self._profiles[name]

    def _read(self, name: str, where: str, within: tuple[str, ...]) -> None:
        if name in within:
            circle = " > ".join((*within, name))
            raise InputError(f"{self._path}: {where}", f"profile {name!r} runs itself", found=circle)
        if name in self._profiles:
            return
        local = name.partition("!")[2] if name.startswith(self._name + "!") else name
        raw = self._written.get(name, self._written.get(local))
        if raw is None:
            raise InputError(f"{self._path}: {where}", "unknown profile", found=quoted(name))
        place = profile_json.Place(f"{self._path}: $.profiles[{local!r}]", self._name, self._base)
        profile = profile_json.parse(raw, local, place)
        for part in parts_of(profile.spec):
            if part not in self._elsewhere:
                self._read(part.removeprefix(self._name + "!"), f"$.profiles[{local!r}]", (*within, name))
        self._profiles[name] = profile
