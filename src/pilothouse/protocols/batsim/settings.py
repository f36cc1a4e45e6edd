"""Settings of the protocol: the dialect, the Redis server, the specification's configuration file.

In: options, or a configuration file. Out: `Settings`, and its two forms in SIMULATION_BEGINS (nested in generation 2,
flat in generations 3 and 4).
"""

from __future__ import annotations

import enum
from pathlib import Path

import msgspec

from pilothouse.model.errors import InputError, quoted
from pilothouse.model.events import Begins


class Dialect(enum.Enum):
    """A generation of the protocol. ANY uses the names of all generations at once, so that every client understands."""

    TWO = "2"
    THREE = "3"
    FOUR = "4"
    ANY = "any"

    @property
    def since_three(self) -> bool:
        """Generation 3 or 4: only the names that generation 3 introduced are used."""
        return self is Dialect.THREE or self is Dialect.FOUR

    @classmethod
    def named(cls, text: str) -> Dialect:
        for dialect in cls:
            if dialect.value == text:
                return dialect
        problem = "unknown dialect of the Batsim protocol"
        raise InputError("dialect", problem, expected="2, 3, 4 or any", found=quoted(text))


class RedisSettings(msgspec.Struct, frozen=True):
    enabled: bool = False
    hostname: str = "127.0.0.1"
    port: int = 6379
    prefix: str = "default"


class FromScheduler(msgspec.Struct, frozen=True):
    enabled: bool = False
    acknowledge: bool = True


class JobSubmission(msgspec.Struct, frozen=True):
    forward_profiles: bool = False
    from_scheduler: FromScheduler = FromScheduler()


class JobKill(msgspec.Struct, frozen=True):
    """An option of Batsim 2 that is not in the specification: JOB_KILLED holds the profiles."""

    forward_profiles: bool = False


class Settings(msgspec.Struct, frozen=True):
    """`extra`: all other members of the configuration; they are passed on to the scheduler."""

    redis: RedisSettings = RedisSettings()
    job_submission: JobSubmission = JobSubmission()
    scheduler_config: str = ""
    extra: dict[str, object] = {}
    job_kill: JobKill = JobKill()

    @classmethod
    def read(cls, path: str | Path) -> Settings:
        """A configuration file. Missing members have the specification's defaults."""
        try:
            data = Path(path).read_bytes()
        except OSError as problem:
            raise InputError(str(path), f"cannot read the configuration: {problem.strerror}") from None
        return cls.parse(data, str(path))

    @classmethod
    def parse(cls, data: bytes, where: str = "configuration") -> Settings:
        try:
            known = msgspec.json.decode(data, type=_Written)
            everything = msgspec.json.decode(data, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise InputError(where, f"not a configuration: {problem}") from None
        extra = {key: value for key, value in everything.items() if key not in ("redis", "job_submission")}
        return cls(known.redis, known.job_submission, extra=extra, job_kill=known.job_kill)

    def nested(self, begins: Begins) -> dict[str, object]:
        """The configuration as generation 2 sends it."""
        return {
            **begins.config,
            **self.extra,
            "redis": msgspec.to_builtins(self.redis),
            "job_submission": {
                "forward_profiles": begins.forward_profiles,
                "from_scheduler": {
                    "enabled": begins.dynamic_registration,
                    "acknowledge": begins.acknowledge_registration,
                },
            },
        }

    def flat(self, begins: Begins, dialect: Dialect) -> dict[str, object]:
        """The configuration as generations 3 and 4 send it."""
        config: dict[str, object] = {
            **begins.config,
            **self.extra,
            "redis-enabled": self.redis.enabled,
            "redis-hostname": self.redis.hostname,
            "redis-port": self.redis.port,
            "redis-prefix": self.redis.prefix,
            "profiles-forwarded-on-submission": begins.forward_profiles,
            "dynamic-jobs-enabled": begins.dynamic_registration,
            "dynamic-jobs-acknowledged": begins.dynamic_registration and begins.acknowledge_registration,
        }
        if dialect is not Dialect.THREE:
            config["profile-reuse-enabled"] = begins.profile_reuse
            config["sched-config"] = self.scheduler_config
        config["forward-unknown-events"] = begins.forward_unknown_events
        return config


class _Written(msgspec.Struct):
    redis: RedisSettings = RedisSettings()
    job_submission: JobSubmission = JobSubmission()
    job_kill: JobKill = JobKill()
