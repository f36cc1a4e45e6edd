"""Batsim 4's command line: one declaration of each option. cli/batsim4.py makes it a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from pilothouse.model.errors import InputError
from pilothouse.protocols.batsim.settings import RedisSettings, Settings

Files: TypeAlias = tuple[str, ...]
Verbosity = Literal["quiet", "network-only", "information", "debug"]
Generation = Literal["2", "3", "4", "any"]


def _help(text: str, short: str = "", *, name: str = "", metavar: str = "", hide_default: bool = False) -> msgspec.Meta:
    """What click is told of an option beside its type and default. `name` where it is not that of the field."""
    return msgspec.Meta(
        description=text, extra={"short": short, "name": name, "metavar": metavar, "hide_default": hide_default}
    )


class Options(msgspec.Struct):
    """Names are those of the long options."""

    platform: Annotated[str, _help("The platform to simulate (required).", "p", metavar="FILE")] = ""
    workload: Annotated[Files, _help("A workload; may be given several times (w0, w1, ...).", "w", metavar="FILE")] = ()
    workflow: Annotated[
        Files, _help("A workflow in DAX; may be given several times (wf0, wf1, ...).", "W", metavar="FILE")
    ] = ()
    workflow_start: Annotated[
        tuple[tuple[str, str], ...],
        _help("A workflow, from START on (wfc0, wfc1, ...).", name="WS", metavar="FILE START"),
    ] = ()
    events: Annotated[Files, _help("External events, one JSON object a line.", metavar="FILE")] = ()
    master_host: Annotated[str, _help("The host that is not used for computation.", "m")] = "master_host"
    add_role_to_hosts: Annotated[Files, _help("Gives hosts a role.", "r", metavar="HOSTS:ROLE")] = ()
    energy: Annotated[bool, _help("Turns energy on.", "E")] = False
    socket_endpoint: Annotated[str, _help("Where the scheduler listens.", "s")] = "tcp://localhost:28000"
    enable_redis: Annotated[bool, _help("Job data goes through Redis.")] = False
    redis_hostname: Annotated[str, _help("The Redis server.")] = "127.0.0.1"
    redis_port: Annotated[int, _help("Its port.")] = 6379
    redis_prefix: Annotated[str, _help("The prefix of all keys.")] = "default"
    export: Annotated[str, _help("The prefix of the files that are written.", "e")] = "out"
    disable_schedule_tracing: Annotated[bool, _help("No _schedule.trace.")] = False
    disable_machine_state_tracing: Annotated[bool, _help("No _machine_states.csv.")] = False
    mmax: Annotated[int, _help("At most so many machines; 0: all.", hide_default=True)] = 0
    mmax_workload: Annotated[bool, _help("At most as many machines as the workloads were made for.")] = False
    forward_profiles_on_submission: Annotated[bool, _help("Profiles are told with each job.")] = False
    enable_dynamic_jobs: Annotated[bool, _help("The scheduler may register jobs.")] = False
    acknowledge_dynamic_jobs: Annotated[bool, _help("Registered jobs are told back.")] = False
    enable_profile_reuse: Annotated[bool, _help("Profiles stay when no job uses them any more.")] = False
    verbosity: Annotated[Verbosity, _help("How much is told on stderr.", "v", hide_default=True)] = "information"
    quiet: Annotated[bool, _help("Like -v quiet.", "q")] = False
    workflow_jobs_limit: Annotated[int, _help("At most so many tasks of a workflow at once.", hide_default=True)] = 0
    ignore_beyond_last_workflow: Annotated[bool, _help("Jobs after the end of the last workflow are left out.")] = False
    dump_execution_context: Annotated[bool, _help("Prints the context as JSON, and exits.")] = False
    enable_compute_sharing: Annotated[bool, _help("Several jobs may run on one machine.")] = False
    disable_storage_sharing: Annotated[bool, _help("Only one job at a time may use a storage.")] = False
    no_sched: Annotated[bool, _help("No scheduler: all jobs run at once.")] = False
    sched_cfg: Annotated[str, _help("A text for the scheduler.")] = ""
    sched_cfg_file: Annotated[str, _help("A file whose content is for the scheduler.")] = ""
    sg_cfg: Annotated[Files, _help("A setting of SimGrid (loopbacks, TCP-gamma).", metavar="KEY:VALUE")] = ()
    sg_log: Annotated[Files, _help("A log control of SimGrid; it has no effect.", metavar="CATEGORY.KEY:VALUE")] = ()
    forward_unknown_events: Annotated[bool, _help("External events of unknown types are told.")] = False
    version: Annotated[bool, _help("Prints the version of Batsim that is stood in for, and exits.")] = False
    simgrid_version: Annotated[bool, _help("Prints the version of SimGrid that is reproduced, and exits.")] = False
    config_file: Annotated[
        str, _help("A configuration file (Batsim 2): redis, job_submission, and what else you like.")
    ] = ""
    decider_timeout: Annotated[
        float, _help("How long an answer may take; 0: for ever.", metavar="S", hide_default=True)
    ] = 0.0
    decider_command: Annotated[str, _help("Starts the scheduler with this command, and ends it with the run.")] = ""
    fail_on_deadlock: Annotated[
        bool, _help("Exit code 1, not Batsim's 0, when the scheduler leaves jobs waiting for ever.")
    ] = False
    decider_dialect: Annotated[
        Generation, _help("The generation of the protocol that the scheduler speaks.", hide_default=True)
    ] = "4"

    def settings(self) -> Settings:
        """Redis and registration, from the configuration file or from options; options add to the file."""
        written = Settings.read(self.config_file) if self.config_file else Settings()
        config = self.sched_cfg
        if self.sched_cfg_file:
            try:
                config = Path(self.sched_cfg_file).read_text(encoding="utf-8")
            except OSError as problem:
                raise InputError(self.sched_cfg_file, f"cannot be read: {problem.strerror}") from None
        redis = written.redis
        if self.enable_redis:
            redis = RedisSettings(True, self.redis_hostname, self.redis_port, self.redis_prefix)
        elif not redis.enabled and not self.config_file:
            redis = RedisSettings(False, self.redis_hostname, self.redis_port, self.redis_prefix)
        return msgspec.structs.replace(written, redis=redis, scheduler_config=config)

    @property
    def execution_context(self) -> str:
        """What `--dump-execution-context` prints."""
        return json.dumps(
            {
                "socket_endpoint": self.socket_endpoint,
                "redis_enabled": self.enable_redis,
                "redis_hostname": self.redis_hostname,
                "redis_port": self.redis_port,
                "redis_prefix": self.redis_prefix,
                "export_prefix": self.export,
                "external_scheduler": not self.no_sched,
            }
        )
