"""Is the input possible at all? What no scheduler could make run is refused before anything is simulated.

In: the platform, jobs and profiles. Raises InputError: a task for another number of executors than its job has, amounts
that are no amounts, storage where the platform has none, communication between hosts without a route, profiles that
contain themselves or do not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

from pilothouse.model.errors import InputError
from pilothouse.model.job import Job
from pilothouse.model.profile import (
    Delay,
    HomogeneousTask,
    Merge,
    ParallelTask,
    Profile,
    StagingTask,
    StorageTask,
    parts_of,
)
from pilothouse.worlds.simulated.physics.energy import PowerRange, power_ranges
from pilothouse.worlds.simulated.physics.platform import Platform

MOST_PAIRS = 4096
"""Up to so many pairs of hosts are all tried; on larger platforms one host of each zone stands for the others."""


def check(platform: Platform, jobs: Iterable[Job], profiles: Mapping[str, Profile]) -> None:
    """Refuses what cannot be simulated on this platform."""
    seen: dict[str, bool] = {}
    talks = False
    for job in jobs:
        profile = job.profile
        if profile is None or type(profile.spec) is Delay:
            continue
        communicates = _check_profile(profile, profiles, platform, seen, ())
        if communicates and job.units > 1:
            talks = True
        spec = profile.spec
        if type(spec) is ParallelTask:
            _check_size(spec, job, profile)
    if talks:
        check_routes(platform)


def _check_profile(
    profile: Profile,
    profiles: Mapping[str, Profile],
    platform: Platform,
    seen: dict[str, bool],
    above: tuple[str, ...],
) -> bool:
    """Whether the profile, or a part of it, makes hosts talk to each other."""
    name = profile.name
    if name in above:
        raise InputError(name, f"a profile that contains itself: {' > '.join((*above, name))}")
    known = seen.get(name)
    if known is not None:
        return known
    spec = profile.spec
    _check_amounts(profile)
    if isinstance(spec, StorageTask | StagingTask) and not platform.storage:
        label = spec.storage if isinstance(spec, StorageTask) else spec.source
        raise InputError(name, f"storage {label!r} is needed, but {platform.where} has no host with the role storage")
    talks = isinstance(spec, ParallelTask | HomogeneousTask) and _communicates(spec)
    for part in parts_of(spec):
        inner = profiles.get(part)
        if inner is None:
            raise InputError(name, f"profile {part!r}, which it is made of, does not exist")
        if isinstance(spec, Merge) and not isinstance(inner.spec, ParallelTask | HomogeneousTask | StorageTask | Merge):
            raise InputError(name, f"only parallel tasks can be merged; {part!r} is something else")
        talks = _check_profile(inner, profiles, platform, seen, (*above, name)) or talks
    seen[name] = talks
    return talks


def _communicates(spec: ParallelTask | HomogeneousTask) -> bool:
    return spec.bytes > 0 if isinstance(spec, HomogeneousTask) else any(spec.bytes)


def _check_amounts(profile: Profile) -> None:
    spec = profile.spec
    amounts: tuple[float, ...] = ()
    if isinstance(spec, ParallelTask):
        amounts = spec.flop + spec.bytes
    elif isinstance(spec, HomogeneousTask):
        amounts = (spec.flop, spec.bytes)
    elif isinstance(spec, StorageTask):
        amounts = (spec.read_bytes, spec.write_bytes)
    elif isinstance(spec, StagingTask):
        amounts = (spec.bytes,)
    for amount in amounts:
        if not isfinite(amount) or amount < 0:
            raise InputError(profile.name, "an amount must be a number, 0 or more", found=str(amount))


def _check_size(spec: ParallelTask, job: Job, profile: Profile) -> None:
    count = len(spec.flop) or round(len(spec.bytes) ** 0.5)
    if spec.bytes and len(spec.bytes) != count * count:
        raise InputError(profile.name, f"a matrix of {len(spec.bytes)} amounts", expected=f"{count} x {count}")
    if job.units != count:
        problem = f"profile {profile.name} describes {count} executors"
        raise InputError(f"job {job.id}", problem, expected=f"{job.units}, as the job asks for")


def check_power(platform: Platform) -> None:
    """Every host must say what it draws, where energy is simulated."""
    known: dict[str, list[PowerRange]] = {}
    for host in platform.hosts:
        power_ranges(host, platform.where, known)


def check_routes(platform: Platform) -> None:
    """Every compute host must reach every other one."""
    if not platform.networked:
        return
    hosts = platform.hosts[: platform.compute_count]
    if len(hosts) ** 2 > MOST_PAIRS:
        few: dict[int, list[int]] = {}
        for host in hosts:
            of_zone = few.setdefault(id(host.zone), [])
            if len(of_zone) < 2:
                of_zone.append(host.number)
        numbers = [number for of_zone in few.values() for number in of_zone][:64]
    else:
        numbers = [host.number for host in hosts]
    for source in numbers:
        for target in numbers:
            platform.route(source, target)
