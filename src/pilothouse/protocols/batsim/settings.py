"""Settings of the protocol: the dialect, the Redis server, the specification's configuration file.

In: options, or a configuration file. Out: `Settings`, and its two forms in SIMULATION_BEGINS (nested in generation 2,
flat in generations 3 and 4).
"""

from __future__ import annotations

import enum
from pathlib import Path

import msgspec

from pilothouse.model.errors import InputError, quoted


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
    """`written`: the whole configuration file. It is passed on to the scheduler."""

    redis: RedisSettings = RedisSettings()
    job_submission: JobSubmission = JobSubmission()
    scheduler_config: str = ""
    written: dict[str, object] = {}
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
        return cls(known.redis, known.job_submission, written=everything, job_kill=known.job_kill)

    @property
    def extra(self) -> dict[str, object]:
        """The members of the configuration file that only the scheduler reads."""
        return {key: value for key, value in self.written.items() if key not in ("redis", "job_submission")}


class _Written(msgspec.Struct):
    redis: RedisSettings = RedisSettings()
    job_submission: JobSubmission = JobSubmission()
    job_kill: JobKill = JobKill()
