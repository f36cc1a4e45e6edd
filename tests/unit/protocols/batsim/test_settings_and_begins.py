"""The configuration of the specification, and SIMULATION_BEGINS in all dialects, there and back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from pilothouse.model.errors import InputError, PeerError
from pilothouse.model.events import Begins
from pilothouse.model.job import Node
from pilothouse.model.profile import Delay, Profile
from pilothouse.protocols.batsim.codec import text_of
from pilothouse.protocols.batsim.event_reader import read_begins
from pilothouse.protocols.batsim.event_writer import begins_data, nested_config
from pilothouse.protocols.batsim.settings import Dialect, RedisSettings, Settings

BEGINS = Begins(
    nodes=(Node("a", 0, properties={"mem": "4"}), Node("b", 1, 2)),
    storage=(Node("disk", 3, properties={"role": "storage"}),),
    compute_sharing=True,
    dynamic_registration=True,
    acknowledge_registration=False,
    workloads={"w0": "/w.json"},
    profiles={"w0!d": Profile("w0!d", Delay(1.5), source=Raw(b'{"type": "delay", "delay": 1.5}'))},
)


def test_the_configuration_has_the_specifications_defaults() -> None:
    settings = Settings.parse(b"{}")
    assert settings.redis == RedisSettings(False, "127.0.0.1", 6379, "default")
    assert not settings.job_submission.forward_profiles
    assert not settings.job_submission.from_scheduler.enabled and settings.job_submission.from_scheduler.acknowledge


def test_what_is_written_is_merged_with_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    submission = '{"from_scheduler": {"enabled": true}}'
    path.write_text(f'{{"redis": {{"enabled": true, "port": 7000}}, "job_submission": {submission}, "x": [1]}}')
    settings = Settings.read(path)
    assert settings.redis == RedisSettings(True, "127.0.0.1", 7000, "default")
    assert settings.job_submission.from_scheduler.enabled and settings.job_submission.from_scheduler.acknowledge
    nested = nested_config(settings, BEGINS)
    assert nested["x"] == [1]
    assert nested["redis"] == {"enabled": True, "hostname": "127.0.0.1", "port": 7000, "prefix": "default"}


@pytest.mark.parametrize("text", [b"[]", b"{", b'{"redis": {"port": "many"}}', b'{"job_submission": 3}'])
def test_a_wrong_configuration_is_refused(text: bytes) -> None:
    with pytest.raises(InputError, match="not a configuration"):
        Settings.parse(text)
    with pytest.raises(InputError, match="cannot read the configuration"):
        Settings.read("no/such/file")


def test_generation_2() -> None:
    data = begins_data(BEGINS, Settings(), Dialect.TWO)
    assert set(data) == {"nb_resources", "allow_time_sharing", "config", "resources_data", "workloads"}
    assert data["nb_resources"] == 4 and data["allow_time_sharing"] is True
    names = [(resource["id"], resource["name"]) for resource in data["resources_data"]]  # type: ignore[attr-defined]
    assert names == [(0, "a"), (1, "b:0"), (2, "b:1"), (3, "disk")]


def test_generations_3_and_4_differ_in_what_4_added() -> None:
    three = begins_data(BEGINS, Settings(), Dialect.THREE)
    four = begins_data(BEGINS, Settings(scheduler_config="hello"), Dialect.FOUR)
    assert set(four["config"]) - set(three["config"]) == {"sched-config", "profile-reuse-enabled"}  # type: ignore[call-overload]
    assert four["config"]["sched-config"] == "hello"  # type: ignore[index]
    assert "zone_properties" not in three["compute_resources"][0]  # type: ignore[index]
    assert four["compute_resources"][0]["properties"] == {"role": "", "mem": "4"}  # type: ignore[index]


@pytest.mark.parametrize("dialect", Dialect)
def test_every_dialect_reads_back(dialect: Dialect) -> None:
    settings = Settings(redis=RedisSettings(True, "h", 1, "p"))
    data = Raw(text_of(begins_data(BEGINS, settings, dialect)).encode())
    begins, redis, _ = read_begins(data, "Batsim")
    assert redis == settings.redis
    assert begins.compute_sharing and begins.dynamic_registration and not begins.acknowledge_registration
    assert begins.workloads == {"w0": "/w.json"}
    units = begins.units + sum(node.count for node in begins.storage)
    assert units == 4
    if dialect is not Dialect.TWO:
        assert begins.profiles["w0!d"].spec == Delay(1.5)


def test_a_strange_beginning_is_the_peers_mistake() -> None:
    with pytest.raises(PeerError, match="SIMULATION_BEGINS"):
        read_begins(Raw(b'{"config": {}}'), "Batsim")


def test_unknown_dialects_are_named() -> None:
    with pytest.raises(InputError, match="expected 2, 3, 4 or any, found '5'"):
        Dialect.named("5")


FLAGS = (
    "compute_sharing", "storage_sharing", "dynamic_registration", "acknowledge_registration", "profile_reuse", "forward_profiles",
    "forward_unknown_events",
)  # fmt: skip


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("dialect", [Dialect.TWO, Dialect.THREE, Dialect.FOUR, Dialect.ANY])
def test_every_wish_is_read_as_it_was_written(dialect: Dialect, flag: str) -> None:
    unknown = {Dialect.TWO: {"profile_reuse", "forward_unknown_events"}, Dialect.THREE: {"profile_reuse"}}
    for value in (True, False):
        changes = {name: name == "dynamic_registration" for name in FLAGS} | {flag: value}
        begins = msgspec.structs.replace(BEGINS, **changes)
        found, _, _ = read_begins(Raw(text_of(begins_data(begins, Settings(), dialect)).encode()), "peer")
        expected = value and flag not in unknown.get(dialect, ())
        if dialect is Dialect.TWO and flag == "storage_sharing":
            expected = True  # it knows of no storage
        assert getattr(found, flag) is expected


def test_wishes_that_are_not_written() -> None:
    data = Raw(b'{"nb_resources": 1, "resources_data": [{"id": 0, "name": "a"}], "config": {}}')
    found, redis, dialect = read_begins(data, "peer")
    assert {flag: getattr(found, flag) for flag in FLAGS} == {
        flag: flag in ("acknowledge_registration", "storage_sharing") for flag in FLAGS
    }
    assert dialect is Dialect.TWO and not redis.enabled


@pytest.mark.parametrize("written", [None, 3, "x", [], {}])
def test_members_of_the_configuration_that_are_no_objects_are_left_out(written: object) -> None:
    for config in ({"job_submission": written}, {"job_submission": {"from_scheduler": written}}):
        data = Raw(msgspec.json.encode({"nb_resources": 1, "config": config}))
        found, _, dialect = read_begins(data, "peer")
        assert (found.dynamic_registration, found.acknowledge_registration, found.forward_profiles) == (False, True, False)
        assert dialect is Dialect.FOUR and found.config == config
