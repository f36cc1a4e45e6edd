"""Batsim 4's command line: one declaration of each option. cli/batsim4.py makes it a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from pilothouse.model.errors import InputError
from pilothouse.protocols.batsim.settings import Dialect, RedisSettings, Settings

Files: TypeAlias = tuple[str, ...]
Verbosity = Literal["quiet", "network-only", "information", "debug"]
Generation = Literal["", "2", "3", "4", "any"]


def option(text: str, short: str = "", *, name: str = "", metavar: str = "", hide_default: bool = False) -> msgspec.Meta:
    """What click is told of an option beside its type and default. `name` where it is not that of the field."""
    return msgspec.Meta(
        description=text, extra={"short": short, "name": name, "metavar": metavar, "hide_default": hide_default}
    )


class Options(msgspec.Struct):
    """Names are those of the long options."""

    stands_for: ClassVar[str] = "batsim4"
    """The name of the command."""

    platform: Annotated[str, option("The platform to simulate (required).", "p", metavar="FILE")] = ""
    workload: Annotated[Files, option("A workload; may be given several times (w0, w1, ...).", "w", metavar="FILE")] = ()
    workflow: Annotated[
        Files, option("A workflow in DAX; may be given several times (wf0, wf1, ...).", "W", metavar="FILE")
    ] = ()
    workflow_start: Annotated[
        tuple[tuple[str, str], ...],
        option("A workflow, from START on (wfc0, wfc1, ...).", name="WS", metavar="FILE START"),
    ] = ()
    events: Annotated[Files, option("External events, one JSON object a line.", metavar="FILE")] = ()
    master_host: Annotated[str, option("The host that is not used for computation.", "m")] = "master_host"
    add_role_to_hosts: Annotated[Files, option("Gives hosts a role.", "r", metavar="HOSTS:ROLE")] = ()
    energy: Annotated[bool, option("Turns energy on.", "E")] = False
    socket_endpoint: Annotated[str, option("Where the scheduler listens.", "s")] = "tcp://localhost:28000"
    enable_redis: Annotated[bool, option("Job data goes through Redis.")] = False
    redis_hostname: Annotated[str, option("The Redis server.")] = "127.0.0.1"
    redis_port: Annotated[int, option("Its port.")] = 6379
    redis_prefix: Annotated[str, option("The prefix of all keys.")] = "default"
    export: Annotated[str, option("The prefix of the files that are written.", "e")] = "out"
    disable_schedule_tracing: Annotated[bool, option("No _schedule.trace.")] = False
    disable_machine_state_tracing: Annotated[bool, option("No _machine_states.csv.")] = False
    mmax: Annotated[int, option("At most so many machines; 0: all.", hide_default=True)] = 0
    mmax_workload: Annotated[bool, option("At most as many machines as the workloads were made for.")] = False
    forward_profiles_on_submission: Annotated[bool, option("Profiles are told with each job.")] = False
    enable_dynamic_jobs: Annotated[bool, option("The scheduler may register jobs.")] = False
    acknowledge_dynamic_jobs: Annotated[bool, option("Registered jobs are told back.")] = False
    enable_profile_reuse: Annotated[bool, option("Profiles stay when no job uses them any more.")] = False
    verbosity: Annotated[Verbosity, option("How much is told on stderr.", "v", hide_default=True)] = "information"
    quiet: Annotated[bool, option("Like -v quiet.", "q")] = False
    workflow_jobs_limit: Annotated[int, option("At most so many tasks of a workflow at once.", hide_default=True)] = 0
    ignore_beyond_last_workflow: Annotated[bool, option("Jobs after the end of the last workflow are left out.")] = False
    dump_execution_context: Annotated[bool, option("Prints the context as JSON, and exits.")] = False
    enable_compute_sharing: Annotated[bool, option("Several jobs may run on one machine.")] = False
    disable_storage_sharing: Annotated[bool, option("Only one job at a time may use a storage.")] = False
    no_sched: Annotated[bool, option("No scheduler: all jobs run at once.")] = False
    sched_cfg: Annotated[str, option("A text for the scheduler.")] = ""
    sched_cfg_file: Annotated[str, option("A file whose content is for the scheduler.")] = ""
    sg_cfg: Annotated[Files, option("A setting of SimGrid (loopbacks, TCP-gamma).", metavar="KEY:VALUE")] = ()
    sg_log: Annotated[Files, option("A log control of SimGrid; it has no effect.", metavar="CATEGORY.KEY:VALUE")] = ()
    forward_unknown_events: Annotated[bool, option("External events of unknown types are told.")] = False
    version: Annotated[bool, option("Prints the version of Batsim that is stood in for, and exits.")] = False
    simgrid_version: Annotated[bool, option("Prints the version of SimGrid that is reproduced, and exits.")] = False
    config_file: Annotated[
        str, option("A configuration file (Batsim 2): redis, job_submission, and what else you like.")
    ] = ""
    decider_timeout: Annotated[
        float, option("How long an answer may take; 0: for ever.", metavar="S", hide_default=True)
    ] = 0.0
    decider_command: Annotated[str, option("Starts the scheduler with this command, and ends it with the run.")] = ""
    decider_ask_estimates: Annotated[
        str,
        option(
            "Asks the scheduler, at the date of each job of this workload, how long the job would wait "
            "(estimate_waiting_time). The jobs are not submitted; _estimates.csv has the answers.",
            metavar="FILE",
        ),
    ] = ""
    fail_on_deadlock: Annotated[
        bool, option("Exit code 1, not Batsim's 0, when the scheduler leaves jobs waiting for ever.")
    ] = False
    decider_dialect: Annotated[
        Generation,
        option(
            "The generation of the protocol that the scheduler speaks: 2, 3, 4 or any. Default: 4, or 2 with --config-file.",
            metavar="GENERATION",
            hide_default=True,
        ),
    ] = ""

    @property
    def dialect(self) -> Dialect:
        """A configuration file is Batsim 2's, and so is the scheduler then."""
        return Dialect.named(self.decider_dialect or ("2" if self.config_file else "4"))

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
