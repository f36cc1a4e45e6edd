"""disBatch's command line: the options of a run, with its spellings, defaults and exit codes.

In: arguments. Out: `RunOptions`. argparse is used because disBatch uses it: abbreviations, `--opt=value` and exit code 2 for
an unknown option are then the same. The options of a context are those of launch/add_engines.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec

from pilothouse.launch.add_engines import UsageError, add_context_arguments, context_options
from pilothouse.worlds.live.contexts.layout import ContextOptions

EDITIONS = {"3": 3, "2021": 2}
LOG_LEVELS = ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG")


class RunOptions(msgspec.Struct, frozen=True):
    context: ContextOptions
    task_file: str = ""
    """"": tasks come through the KVS."""
    exit_code: bool = False
    force_resume: bool = False
    kvs_server: str | None = None
    """None: start one."""
    log_file: str = ""
    log_level: str = "INFO"
    mail_every: int = 1
    mail_to: str = ""
    prefix: str = "."
    resume_from: tuple[str, ...] = ()
    retry: bool = False
    startup_only: bool = False
    status_header: bool = False
    use_address: str = ""
    open_to_all: bool = False
    """Ours: everyone may use the key-value service."""
    web: bool = False
    fail_fast: bool = False
    task_command: str = ""
    task_server: bool = False
    version: bool = False

    @property
    def edition(self) -> int:
        """Of disBatch: 3, or 2 (2021)."""
        return self.context.edition


def parse_run(arguments: Sequence[str], program: str = "disBatch") -> RunOptions:
    """Reads a run's command line. Raises UsageError, or SystemExit(2) as argparse does."""
    parser = _run_parser(program)
    said = parser.parse_args(list(arguments))
    if said.mailFreq and not said.mailTo:
        raise UsageError(parser.format_help())
    if said.startup_only and (said.env_resource or said.retire_cmd or said.ssh_node):
        raise UsageError(parser.format_help())
    kvs_server, task_server = said.kvsserver, said.taskserver
    if kvs_server is _STARTED_HERE and isinstance(task_server, str):
        # QUIRK: disBatch takes this for two different servers and refuses.
        kvs_server = task_server
    elif isinstance(task_server, str) and isinstance(kvs_server, str) and kvs_server != task_server:
        raise UsageError("--kvsserver and --taskserver name different servers\n")
    return RunOptions(
        msgspec.structs.replace(context_options(said), edition=EDITIONS[said.dialect]),
        task_file=said.taskfile or "",
        exit_code=said.exit_code,
        force_resume=said.force_resume,
        kvs_server=None if kvs_server is _STARTED_HERE else str(kvs_server or ""),
        log_file=said.logfile or "",
        log_level=said.loglevel,
        mail_every=said.mailFreq or 1,
        mail_to=said.mailTo or "",
        prefix=said.prefix or ".",
        resume_from=tuple(said.resume_from or ()),
        retry=said.retry,
        startup_only=said.startup_only,
        status_header=said.status_header,
        use_address=said.use_address or "",
        open_to_all=said.open_to_all,
        web=said.web,
        fail_fast=said.fail_fast,
        task_command=said.taskcommand or "",
        task_server=task_server is not False,
        version=said.version,
    )


_STARTED_HERE = object()
_EXAMPLES = """examples:
  pilothouse disbatch -s localhost:4 tasks.txt               four tasks at a time, here
  pilothouse disbatch -s h1:8,h2:8 -e tasks.txt              on two hosts, by ssh; exit code 1 if a task fails
  pilothouse shims ~/shims --disbatch; sbatch -n 40 ~/shims/disBatch tasks.txt     on the nodes of a Slurm job
  pilothouse disbatch -s localhost:4 -r tasks_disBatch_261115_042_status.txt -R tasks.txt    what failed, again
"""


def _run_parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Run the tasks of a file, one per line, on the nodes of a batch job or over ssh.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--dialect", choices=EDITIONS, default="3", help="files and messages of disBatch 3.0, or of November 2021")
    add("-e", "--exit-code", action="store_true", help="end with a code other than 0 if a task failed")
    add("--force-resume", action="store_true", help="with -r: go on even if tasks differ from those of the status file")
    add("--kvsserver", nargs="?", default=_STARTED_HERE, metavar="HOST:PORT", help="use a KVS that runs already")
    add("--logfile", metavar="FILE", help="the driver's log (default: PREFIX_driver.log)")
    add("--loglevel", choices=LOG_LEVELS, default="INFO", help="how much is logged (default: INFO)")
    add("--mailFreq", type=int, metavar="N", help="with --mailTo: a mail every N finished tasks (default: 1)")
    add("--mailTo", metavar="ADDR", help="where to send mail about finished tasks")
    add("--open-to-all", action="store_true", help="let every user and host use the KVS (they can then run commands as you)")
    add("-p", "--prefix", metavar="PATH", default=".", help="folder or beginning of the names of all files")
    add("-r", "--resume-from", metavar="STATUSFILE", action="append", help="skip what this status file has results of")
    add("-R", "--retry", action="store_true", help="with -r: run again what failed")
    add("-S", "--startup-only", action="store_true", help="start no context; the utility script adds them")
    add("--status-header", action="store_true", help="begin the status file with a line of column names")
    add("--use-address", metavar="HOST:PORT", help="host name and port that engines and clients can reach")
    add("-w", "--web", action="store_true", help="names the command that shows the run (disBatch 3.0 has no web page either)")
    add("-f", "--fail-fast", action="store_true", help="end everything, with a code other than 0, when a task fails")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--taskcommand", metavar="COMMAND", help="this command gives the tasks, through the KVS")
    source.add_argument("--taskserver", nargs="?", default=False, metavar="HOST:PORT", help="tasks come by KVS")
    source.add_argument("taskfile", nargs="?", help='file of tasks, one per line ("-": standard input)')
    source.add_argument("--version", action="store_true", help="print the version and exit")
    add_context_arguments(parser)
    return parser
