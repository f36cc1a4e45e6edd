"""Job data in Redis, with the keys and values of Batsim.

Keys: `<prefix>:nb_res`, `<prefix>:job_<workload>!<id>`, `<prefix>:profile_<workload>!<profile>`. Values are JSON text,
written before JOB_SUBMITTED is sent, and never deleted. Needs the extra `redis`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilothouse.model.errors import InputError, PeerError, RunError
from pilothouse.protocols.batsim.settings import RedisSettings

if TYPE_CHECKING:
    import redis

CONNECT_TIMEOUT_S = 5.0


class RedisStore:
    """Connects at once, so that a missing server is an error before the run begins."""

    def __init__(self, settings: RedisSettings, peer: str = "scheduler") -> None:
        try:
            import redis
        except ImportError:
            hint = "pip install 'pilothouse[redis]'"
            raise InputError("--enable-redis", "needs the redis client", hint=hint) from None
        self._errors = redis.RedisError
        self._where = f"Redis at {settings.hostname}:{settings.port}"
        self._prefix = settings.prefix
        self._peer = peer
        self._read: set[str] = set()
        """Jobs whose description the scheduler wrote: it stays as it is."""
        self._client: redis.Redis = redis.Redis(
            host=settings.hostname,
            port=settings.port,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=CONNECT_TIMEOUT_S,
        )
        try:
            self._client.ping()
        except self._errors as problem:
            raise RunError(f"{self._where}: cannot be reached ({problem})") from None

    def put_begins(self, nb_res: int) -> None:
        self._set("nb_res", str(nb_res).encode())

    def put_job(self, job_id: str, description: bytes) -> None:
        if job_id not in self._read:
            self._set(f"job_{job_id}", description)

    def put_profile(self, workload: str, name: str, description: bytes) -> None:
        self._set(f"profile_{workload}!{name}", description)

    def get_job(self, job_id: str) -> bytes:
        """The description of a job that the scheduler wrote. Raises PeerError if there is none."""
        self._read.add(job_id)
        return self._get(f"job_{job_id}")

    def get_profile(self, workload: str, name: str) -> bytes:
        """The profile that the scheduler wrote. Raises PeerError if there is none."""
        return self._get(f"profile_{workload}!{name}")

    def _set(self, key: str, value: bytes) -> None:
        try:
            self._client.set(f"{self._prefix}:{key}", value)
        except self._errors as problem:
            raise RunError(f"{self._where}: cannot write {self._prefix}:{key} ({problem})") from None

    def _get(self, key: str) -> bytes:
        full = f"{self._prefix}:{key}"
        try:
            value = self._client.get(full)
        except self._errors as problem:
            raise RunError(f"{self._where}: cannot read {full} ({problem})") from None
        if not isinstance(value, bytes):
            raise PeerError(self._peer, f"there is no key {full} in {self._where}")
        return value

    def close(self) -> None:
        self._client.close()
