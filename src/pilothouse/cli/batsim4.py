"""`pilothouse batsim4`: stands in for the command line of Batsim 4, so that its users' scripts work unchanged."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pilothouse.dropins.batsim4.run import Options

EXAMPLES = """
\b
Examples:
  pilothouse batsim4 -p cluster.xml -w workload.json -e out/run
  pilothouse batsim4 -p cluster.xml -w w.json --decider-command "pybatsim fcfsSched -t 0"
  pilothouse batsim4 -p cluster.xml -W workflow.dax -s ipc:///tmp/scheduler

Options and files are Batsim 4.2's; those named --decider-... are ours. A wrong decision ends the run with one line that
names the scheduler's event and the rule, exit code 1; what was written so far is kept. So it is when the scheduler dies,
is silent for longer than --decider-timeout, or answers what it should not. A run that can go nowhere because the
scheduler leaves jobs waiting is told in one line; its exit code is Batsim's 0, or 1 with --fail-on-deadlock.
"""


def _files(name: str, help_text: str, *, short: str = "") -> click.Option:
    """An option for input files."""
    names = [f"-{short}", f"--{name}"] if short else [f"--{name}"]
    return click.Option(names, multiple=True, metavar="FILE", help=help_text)


def _flag(name: str, help_text: str, *, short: str = "") -> click.Option:
    names = [f"-{short}", f"--{name}"] if short else [f"--{name}"]
    return click.Option(names, is_flag=True, help=help_text)


def _text(name: str, default: str, help_text: str, *, short: str = "") -> click.Option:
    names = [f"-{short}", f"--{name}"] if short else [f"--{name}"]
    return click.Option(names, default=default, show_default=bool(default), help=help_text)


PARAMETERS: list[click.Parameter] = [
    click.Option(["-p", "--platform"], metavar="FILE", help="The platform to simulate (required)."),
    _files("workload", "A workload; may be given several times (w0, w1, ...).", short="w"),
    _files("workflow", "A workflow in DAX; may be given several times (wf0, wf1, ...).", short="W"),
    click.Option(
        ["--WS", "workflow_start"],
        nargs=2,
        multiple=True,
        metavar="FILE START",
        help="A workflow, from START on (wfc0, wfc1, ...).",
    ),
    _files("events", "External events, one JSON object a line."),
    _text("master-host", "master_host", "The host that is not used for computation.", short="m"),
    click.Option(["-r", "--add-role-to-hosts"], multiple=True, metavar="HOSTS:ROLE", help="Gives hosts a role."),
    _flag("energy", "Turns energy on.", short="E"),
    _text("socket-endpoint", "tcp://localhost:28000", "Where the scheduler listens.", short="s"),
    _flag("enable-redis", "Job data goes through Redis."),
    _text("redis-hostname", "127.0.0.1", "The Redis server."),
    click.Option(["--redis-port"], type=int, default=6379, show_default=True, help="Its port."),
    _text("redis-prefix", "default", "The prefix of all keys."),
    _text("export", "out", "The prefix of the files that are written.", short="e"),
    _flag("disable-schedule-tracing", "No _schedule.trace."),
    _flag("disable-machine-state-tracing", "No _machine_states.csv."),
    click.Option(["--mmax"], type=int, default=0, help="At most so many machines; 0: all."),
    _flag("mmax-workload", "At most as many machines as the workloads were made for."),
    _flag("forward-profiles-on-submission", "Profiles are told with each job."),
    _flag("enable-dynamic-jobs", "The scheduler may register jobs."),
    _flag("acknowledge-dynamic-jobs", "Registered jobs are told back."),
    _flag("enable-profile-reuse", "Profiles stay when no job uses them any more."),
    click.Option(
        ["-v", "--verbosity"],
        type=click.Choice(["quiet", "network-only", "information", "debug"]),
        default="information",
        help="How much is told on stderr.",
    ),
    _flag("quiet", "Like -v quiet.", short="q"),
    click.Option(["--workflow-jobs-limit"], type=int, default=0, help="At most so many tasks of a workflow at once."),
    _flag("ignore-beyond-last-workflow", "Jobs after the end of the last workflow are left out."),
    _flag("dump-execution-context", "Prints the context as JSON, and exits."),
    _flag("enable-compute-sharing", "Several jobs may run on one machine."),
    _flag("disable-storage-sharing", "Only one job at a time may use a storage."),
    _flag("no-sched", "No scheduler: all jobs run at once."),
    _text("sched-cfg", "", "A text for the scheduler."),
    _text("sched-cfg-file", "", "A file whose content is for the scheduler."),
    click.Option(["--sg-cfg"], multiple=True, metavar="KEY:VALUE", help="Accepted for compatibility."),
    click.Option(["--sg-log"], multiple=True, metavar="CATEGORY.KEY:VALUE", help="Accepted for compatibility."),
    _flag("forward-unknown-events", "External events of unknown types are told."),
    _flag("version", "Prints the version of Batsim that is stood in for, and exits."),
    _flag("simgrid-version", "Prints the version of SimGrid that is reproduced, and exits."),
    _text("config-file", "", "A configuration file (Batsim 2): redis, job_submission, and what else you like."),
    click.Option(
        ["--decider-timeout"], type=float, default=0.0, metavar="S", help="How long an answer may take; 0: for ever."
    ),
    _text("decider-command", "", "Starts the scheduler with this command, and ends it with the run."),
    _flag("fail-on-deadlock", "Exit code 1, not Batsim's 0, when the scheduler leaves jobs waiting for ever."),
    click.Option(
        ["--decider-dialect"],
        type=click.Choice(["2", "3", "4", "any"]),
        default="4",
        help="The generation of the protocol that the scheduler speaks.",
    ),
]


def run(**given: object) -> None:
    from pilothouse.dropins.batsim4 import run as batsim4_run

    if given.pop("version"):
        click.echo("v4.2.1")
        return
    if given.pop("simgrid_version"):
        click.echo("3.32.0")
        return
    options = batsim4_run.Options.of(given)
    if options.dump_execution_context:
        click.echo(batsim4_run.execution_context(options))
        return
    code = _wrong(options)
    if code:
        raise click.exceptions.Exit(code)
    raise click.exceptions.Exit(batsim4_run.simulate(options))


def _wrong(options: Options) -> int:
    """Batsim's exit code for input files that are not there: one bit for each kind (events share that of workloads)."""
    if not options.platform:
        raise click.UsageError("Missing option '-p' / '--platform'.")
    if options.enable_profile_reuse and not options.enable_dynamic_jobs:
        raise click.UsageError("--enable-profile-reuse needs --enable-dynamic-jobs.")
    code = 0
    kinds = (
        (0x01, "platform", [options.platform]),
        (0x02, "workload", options.workload),
        (0x04, "workflow", options.workflow),
        (0x10, "workflow", [path for path, _ in options.workflow_start]),
        (0x02, "events", options.events),
    )
    for bit, kind, paths in kinds:
        for path in paths:
            if not Path(path).is_file():
                click.echo(f"pilothouse batsim4: {kind} file {path!r} cannot be found", err=True)
                code |= bit
    for _, text in options.workflow_start:
        code |= _wrong_start(text)
    return code


def _wrong_start(text: str) -> int:
    """The bit for a start of a workflow that is no date; 0: it is one."""
    try:
        start = float(text)
    except ValueError:
        code = 0x40
    else:
        code = 0 if 0 <= start < inf else 0x20
    if code:
        problem = f"the start of a workflow should be seconds, 0 or more; found {text!r}"
        click.echo(f"pilothouse batsim4: --WS: {problem}", err=True)
    return code


command = click.Command(
    "batsim4",
    callback=run,
    params=PARAMETERS,
    help="Simulate jobs under a scheduler that speaks the Batsim protocol: a drop-in for Batsim 4.",
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
