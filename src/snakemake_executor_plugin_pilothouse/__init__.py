"""Snakemake executor plugin: the jobs of a workflow are tasks of one run, inside the allocation that snakemake runs in.

    snakemake --executor pilothouse --jobs 100

In: jobs that snakemake finds ready, with threads, mem_mb, gpu (gpus), runtime, nodes and tasks as it names them. Out: their
ends, as soon as they are known; a log for each job. Snakemake finds this package by its name; nothing else imports it.

A remote executor starts snakemake again for each job, which takes more than a second of CPU time before the job begins
(tests/interop/test_snakemake.py). A job that is a shell command and needs nothing else of snakemake is therefore run as it
stands: `_shell_command` says which. All others (scripts, notebooks, conda, containers, shadow folders, groups, ...) are run by
snakemake.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecMode, ExecutorSettingsBase, SharedFSUsage
from snakemake_interface_executor_plugins.utils import format_cli_arg

from pilothouse import Pool
from pilothouse.model.errors import PilothouseError
from pilothouse.pool import TaskResult
from pilothouse.views.failures import why

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    auto_deploy_default_storage_provider=False,
    pass_group_args=True,
)
LOGS = ".snakemake/pilothouse_logs"
RUNS = ".snakemake/pilothouse"
MOST_COMMAND_BYTES = 100_000
"""A longer command is run by snakemake, which knows what to do: Linux takes no more than 128 KiB in one word."""
_THREAD_VARIABLES = ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR")
_LOG_TAIL_BYTES = 4096


def _setting(type_: type, text: str) -> Any:
    # With its type: snakemake does not look for annotations.
    return field(default=None, metadata={"type": type_, "help": text})


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    slots: int | None = _setting(int, "Cores of this host that jobs may use, also inside an allocation.")
    ssh: str | None = _setting(str, "Run jobs on these hosts over ssh instead: HOST:SLOTS,... with a shared file system.")
    policy: str | None = _setting(str, "What decides which job starts where, as `pilothouse policies` lists it (filler).")
    dir: str | None = _setting(str, f"Folder for the record of the run (default: a new one in {RUNS}).")


class Executor(RealExecutor):
    def __post_init__(self) -> None:
        settings = self.workflow.executor_settings or ExecutorSettings()
        folder = Path(settings.dir or f"{RUNS}/{time.strftime('%Y-%m-%dT%H%M%S')}-{os.getpid()}")
        options: dict[str, Any] = {"policy": settings.policy or "filler", "folder": folder.absolute()}
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            self._pool = (
                Pool(ssh=[settings.ssh], **options) if settings.ssh else Pool.here(slots=settings.slots, **options)
            )
        except (PilothouseError, OSError) as error:
            raise WorkflowError(f"pilothouse: {error}") from error
        self.logger.info(f"Jobs run as tasks of {os.path.relpath(folder)} (pilothouse watch shows them).")
        self._futures: dict[str, Future[TaskResult]] = {}
        self._ended: SimpleQueue[tuple[SubmittedJobInfo, Future[TaskResult]] | None] = SimpleQueue()
        # Snakemake may hold its lock for seconds, while it waits for files: the pool's own thread must not wait for that.
        self._reporter = threading.Thread(target=self._report, name="snakemake reports", daemon=True)
        self._reporter.start()

    def run_job(self, job: Any) -> None:
        log = Path(job.logfile_suggestion(LOGS)).absolute()
        words = _shell_command(job, self.workflow)
        if words is not None:
            self.workflow.async_run(job.prepare())
        env = {"PATH": os.environ.get("PATH", os.defpath), **_environment(job), **self.envvars()}
        # Braces would be placeholders.
        name = str(log).replace("{", "{{").replace("}", "}}")
        try:
            future = self._pool.command(
                words or self.format_job_exec(job), env=env, cwd=os.getcwd(), stdout=name, stderr=name, **_request(job)
            )
        except (PilothouseError, RuntimeError) as error:
            raise WorkflowError(f"pilothouse: {error}") from error
        info = SubmittedJobInfo(job, external_jobid=future.job_id, aux={"log": str(log)})  # type: ignore[attr-defined]
        self._futures[future.job_id] = future  # type: ignore[attr-defined]
        self.report_job_submission(info)
        # Last: snakemake must have noted that a job began before it hears that it ended.
        future.add_done_callback(lambda done: self._ended.put((info, done)))

    def cancel(self) -> None:
        for future in list(self._futures.values()):
            future.cancel()
        self.shutdown()

    def shutdown(self) -> None:
        self._pool.shutdown()
        self._ended.put(None)
        if threading.current_thread() is not self._reporter:
            self._reporter.join()

    def _report(self) -> None:
        """In a thread: tells snakemake how jobs ended."""
        while (entry := self._ended.get()) is not None:
            info, future = entry
            self._futures.pop(info.external_jobid or "", None)
            try:
                result = future.result()
            except CancelledError:
                continue
            except PilothouseError as error:
                self.workflow.scheduler.executor_error_callback(WorkflowError(f"pilothouse: {error}"))
                continue
            if result:
                self.report_job_success(info)
            else:
                log = (info.aux or {})["log"]
                self.report_job_error(info, msg=_reason(result, Path(log)), aux_logs=[log])

    # ---- how snakemake is called for a job that it must run itself

    @property
    def cores(self) -> str:
        return "all"

    def get_exec_mode(self) -> ExecMode:
        return ExecMode.REMOTE

    def get_python_executable(self) -> str:
        return sys.executable

    def get_job_args(self, job: Any, **named: Any) -> str:
        """With as many cores as it asked for, and no more."""
        arguments = str(super().get_job_args(job, cores=max(1, job.threads)))
        if SharedFSUsage.INPUT_OUTPUT in self.workflow.storage_settings.shared_fs_usage:
            arguments += f" {format_cli_arg('--wait-for-files', list(job.get_wait_for_files()))}"
        return arguments


def _request(job: Any) -> dict[str, Any]:
    """What a job asks for, in the words of Pool.command. Snakemake counts runtime in minutes; what is no number (such as
    "<TBD>") is not asked for."""

    def number(*names: str) -> int:
        found = (job.resources.get(name) for name in names)
        return next((value for value in found if isinstance(value, int) and not isinstance(value, bool)), 0)

    threads = max(1, job.threads)
    nodes = max(1, number("nodes"))
    cores = ceil(threads * max(1, number("tasks")) / nodes)
    memory_mb = number("mem_mb") or number("mem_mb_per_cpu") * cores
    runtime_min = number("runtime")
    return {
        "units": cores, "nodes": nodes, "mem": memory_mb, "gpus": number("gpu", "gpus", "nvidia_gpu"),
        "walltime": runtime_min * 60.0 if runtime_min > 0 else inf,
    }  # fmt: skip


def _environment(job: Any) -> dict[str, str]:
    """What snakemake sets for a shell command."""
    env = {f"{name}_NUM_THREADS": str(job.threads) for name in _THREAD_VARIABLES}
    env["VECLIB_MAXIMUM_THREADS"] = str(job.threads)
    folder = job.resources.get("tmpdir")
    if isinstance(folder, str) and folder:
        env |= dict.fromkeys(("TMPDIR", "TMP", "TEMPDIR", "TEMP"), folder)
    return env


def _shell_command(job: Any, workflow: Any) -> list[str] | None:
    """The command of a job that needs nothing of snakemake but its shell. None: snakemake must run it; also where a snakemake of
    another version lacks what we look at."""
    from snakemake.shell import shell

    try:
        rule = job.rule if not job.is_group() else None
        if rule is None or not job.is_shell or job.is_shadow or job.benchmark or rule.is_handover:
            return None
        if workflow.workflow_settings.cache is not None or job.conda_env_spec or job.container_img_url or job.env_modules:
            return None
        if rule.run_func.__globals__ is not workflow.globals:  # of a module: its names are its own
            return None
        files = (*job.input, *job.output, *job.log)
        if any(file.is_storage for file in files) or workflow.storage_settings.shared_fs_usage != SharedFSUsage.all():
            return None
        executable = job.resources.get("shell_exec") or shell.get_executable()
        text = f"{shell._get_process_prefix(executable)} {job.shellcmd} {shell._process_suffix}".strip()
    except AttributeError:
        return None
    if not executable or len(text.encode()) > MOST_COMMAND_BYTES or workflow.remote_execution_settings.precommand:
        return None
    return [executable, "-c", text]


def _reason(result: TaskResult, log: Path) -> str:
    """Why a job failed, in one line: how it ended, where, and the last line of its log."""
    how = why(result.return_code, result.reason)
    said = ""
    if log.is_file():
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
            said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{how}{f' on {result.node}' if result.node else ''}{f': {said}' if said else ''}\n"
