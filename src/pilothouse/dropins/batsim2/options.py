"""Batsim 2's command line: the options that it shares with Batsim 4, some of them under an earlier name."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from pilothouse.dropins.batsim4.options import Options, option
from pilothouse.protocols.batsim.settings import Settings

EARLIER_NAMES = {"enable_compute_sharing": "allow-time-sharing", "no_sched": "batexec"}
LATER = frozenset(
    (
        "acknowledge_dynamic_jobs", "add_role_to_hosts", "decider_dialect", "disable_storage_sharing",
        "dump_execution_context", "enable_dynamic_jobs", "enable_profile_reuse", "enable_redis", "events",
        "fail_on_deadlock", "forward_profiles_on_submission", "forward_unknown_events", "sched_cfg", "sched_cfg_file",
        "sg_cfg", "sg_log",
    )
)  # fmt: skip
"""Options that came after Batsim 2."""


class Batsim2Options(Options):
    """A run that can go nowhere is an error, as in Batsim 2."""

    stands_for: ClassVar[str] = "batsim2"
    workload: Annotated[tuple[str, ...], option("A workload; may be given several times.", "w", metavar="FILE")] = ()
    redis_hostname: Annotated[str, option("The Redis server, if not that of the configuration file.")] = ""
    redis_port: Annotated[int, option("Its port.", hide_default=True)] = 0
    redis_prefix: Annotated[str, option("The prefix of all keys.")] = ""
    config_file: Annotated[str, option("The configuration: redis, job_submission, and what else you like.")] = ""
    decider_dialect: Literal["2"] = "2"
    fail_on_deadlock: bool = True

    def settings(self) -> Settings:
        written = Settings.read(self.config_file) if self.config_file else Settings()
        given = {"hostname": self.redis_hostname, "port": self.redis_port, "prefix": self.redis_prefix}
        redis = msgspec.structs.replace(written.redis, **{name: value for name, value in given.items() if value})
        return msgspec.structs.replace(written, redis=redis)
