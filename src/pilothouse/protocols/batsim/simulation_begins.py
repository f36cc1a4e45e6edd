"""SIMULATION_BEGINS in all dialects: our Begins as its `data`, and back.

Generation 2 has `resources_data` and a nested configuration. Generation 3 separates compute from storage resources, has a
flat configuration and adds the profiles. Generation 4 adds zone properties. `Dialect.ANY` has all of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from pilothouse.formats import profile_json
from pilothouse.model.errors import InputError, PeerError
from pilothouse.model.events import Begins
from pilothouse.model.job import Node
from pilothouse.model.profile import Profile
from pilothouse.protocols.batsim.codec import passed_on
from pilothouse.protocols.batsim.settings import Dialect, RedisSettings, Settings


def write(begins: Begins, settings: Settings, dialect: Dialect) -> dict[str, object]:
    """The `data` of SIMULATION_BEGINS."""
    compute = _resources(begins.nodes, dialect)
    storage = _resources(begins.storage, dialect)
    data: dict[str, object] = {"nb_resources": len(compute) + len(storage)}
    if dialect is not Dialect.TWO:
        data["nb_compute_resources"] = len(compute)
        data["nb_storage_resources"] = len(storage)
        data["allow_compute_sharing"] = begins.compute_sharing
        data["allow_storage_sharing"] = begins.storage_sharing
    if dialect in (Dialect.TWO, Dialect.ANY):
        data["allow_time_sharing"] = begins.compute_sharing
    config = settings.nested(begins) if dialect in (Dialect.TWO, Dialect.ANY) else {}
    if dialect is not Dialect.TWO:
        config |= settings.flat(begins, dialect)
    data["config"] = config
    if dialect in (Dialect.TWO, Dialect.ANY):
        data["resources_data"] = [*compute, *storage]
    if dialect is not Dialect.TWO:
        data["compute_resources"] = compute
        data["storage_resources"] = storage
    data["workloads"] = begins.workloads
    if dialect is not Dialect.TWO:
        data["profiles"] = profiles_by_workload(begins)
    return data


def profiles_by_workload(begins: Begins) -> dict[str, dict[str, Raw]]:
    """The profiles of each workload by their names without the workload."""
    found: dict[str, dict[str, Raw]] = {name: {} for name in begins.workloads}
    for profile in begins.profiles.values():
        workload, _, name = profile.name.rpartition("!")
        found.setdefault(workload, {})[name] = profile_text(profile)
    return found


def profile_text(profile: Profile) -> Raw:
    """The JSON text of a profile for a scheduler."""
    return Raw(passed_on(profile.source if profile.source is not None else b"{}").encode())


def _resources(nodes: Iterable[Node], dialect: Dialect) -> list[dict[str, object]]:
    resources: list[dict[str, object]] = []
    for node in nodes:
        properties = {"role": "", **node.properties}
        for index in range(node.count):
            resource: dict[str, object] = {
                "id": node.first + index,
                "name": node.name if node.count == 1 else f"{node.name}:{index}",
                "state": "idle",
                "properties": properties,
            }
            if dialect in (Dialect.FOUR, Dialect.ANY):
                resource["zone_properties"] = node.zone_properties
            resources.append(resource)
    return resources


# ---- reading


class _Resource(Struct):
    id: int
    name: str
    state: str = "idle"
    properties: dict[str, str] = {}
    zone_properties: dict[str, str] = {}


class _Data(Struct):
    nb_resources: int
    config: dict[str, object] = {}
    allow_time_sharing: bool = False
    allow_compute_sharing: bool = False
    allow_storage_sharing: bool = True
    resources_data: list[_Resource] = []
    compute_resources: list[_Resource] = []
    storage_resources: list[_Resource] = []
    workloads: dict[str, str] = {}
    profiles: dict[str, dict[str, Raw]] = {}


class _FlatRedis(Struct, rename=lambda name: f"redis-{name}"):
    enabled: bool = False
    hostname: str = "127.0.0.1"
    port: int = 6379
    prefix: str = "default"


class _Nested(Struct):
    redis: RedisSettings = RedisSettings()


def read(data: Raw, peer: str) -> tuple[Begins, RedisSettings, Dialect]:
    """Reads the data of a Batsim of any generation. Raises PeerError."""
    try:
        written = msgspec.json.decode(data, type=_Data)
        flat = msgspec.convert(written.config, _FlatRedis)
        nested = msgspec.convert(written.config, _Nested)
    except msgspec.ValidationError as problem:
        raise PeerError(peer, str(problem), event="SIMULATION_BEGINS") from None
    config = written.config
    dialect = Dialect.TWO if written.resources_data and not written.compute_resources else Dialect.FOUR
    redis = flat if "redis-enabled" in config else nested.redis
    submission = config.get("job_submission")
    submission = submission if isinstance(submission, dict) else {}
    dynamic = submission.get("from_scheduler") or {}
    begins = Begins(
        nodes=_nodes(written.compute_resources or written.resources_data),
        storage=_nodes(written.storage_resources),
        compute_sharing=written.allow_compute_sharing or written.allow_time_sharing,
        storage_sharing=written.allow_storage_sharing,
        dynamic_registration=bool(config.get("dynamic-jobs-enabled", dynamic.get("enabled", False))),
        acknowledge_registration=bool(config.get("dynamic-jobs-acknowledged", dynamic.get("acknowledge", True))),
        profile_reuse=bool(config.get("profile-reuse-enabled", False)),
        forward_profiles=bool(
            config.get("profiles-forwarded-on-submission", submission.get("forward_profiles", False))
        ),
        forward_unknown_events=bool(config.get("forward-unknown-events", False)),
        workloads=written.workloads,
        profiles=_profiles(written.profiles, peer),
        config=config,
    )
    return begins, RedisSettings(redis.enabled, redis.hostname, redis.port, redis.prefix), dialect


def _nodes(resources: list[_Resource]) -> tuple[Node, ...]:
    return tuple(
        Node(resource.name, resource.id, properties=resource.properties, zone_properties=resource.zone_properties)
        for resource in resources
    )


def _profiles(written: dict[str, dict[str, Raw]], peer: str) -> dict[str, Profile]:
    found = {}
    for workload, profiles in written.items():
        for name, raw in profiles.items():
            profile = read_profile(raw, workload, name, peer, "SIMULATION_BEGINS")
            found[profile.name] = profile
    return found


def read_profile(raw: Raw, workload: str, name: str, peer: str, event: str, dialect: Dialect = Dialect.ANY) -> Profile:
    """A profile of a message. Raises PeerError."""
    place = profile_json.Place(f"profile {name}", workload, Path())
    try:
        profile = profile_json.parse(raw, name, place)
        if dialect.since_three:
            profile_json.refuse_other_generations(raw, place)
        return profile
    except InputError as problem:
        raise PeerError(peer, str(problem), event=event) from None
