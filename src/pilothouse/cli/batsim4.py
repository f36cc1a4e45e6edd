"""`pilothouse batsim4`: stands in for the command line of Batsim 4, so that its users' scripts work unchanged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from pilothouse.dropins.batsim4.options import Options

EXAMPLES = """
\b
Examples:
  pilothouse batsim4 -p cluster.xml -w workload.json -e out/run
  pilothouse batsim4 -p cluster.xml -w w.json --decider-command "pybatsim schedFcfs -t 0"
  pilothouse batsim4 -p cluster.xml -W workflow.dax -s ipc:///tmp/scheduler

Options and files are Batsim 4.2's; those named --decider-... are ours. A wrong decision ends the run with one line that
names the scheduler's event and the rule, exit code 1; what was written so far is kept. So it is when the scheduler dies,
is silent for longer than --decider-timeout, or answers what it should not. A run that can go nowhere because the
scheduler leaves jobs waiting is told in one line; its exit code is Batsim's 0, or 1 with --fail-on-deadlock.
"""


def parameters(
    options: type[Options], left_out: Collection[str] = (), other_names: Mapping[str, str] | None = None
) -> list[click.Parameter]:
    """A click option for each field of a class of options."""
    found: list[click.Parameter] = []
    hints = get_type_hints(options, include_extras=True)
    for field in options.__struct_fields__:
        if field in left_out:
            continue
        kind, meta = get_args(hints[field])
        extra, default = meta.extra, getattr(options(), field)
        names = [f"-{extra['short']}"] if extra["short"] else []
        name = (other_names or {}).get(field, extra["name"])
        names += [f"--{name}", field] if name else [f"--{field.replace('_', '-')}"]
        more: dict[str, Any] = {"help": meta.description, "metavar": extra["metavar"] or None}
        if kind is bool:
            more["is_flag"] = True
        elif get_origin(kind) is tuple:
            more |= {"multiple": True, "nargs": 1 if get_args(kind)[0] is str else 2}
        else:
            more |= {"default": default, "show_default": bool(default) and not extra["hide_default"]}
            more["type"] = click.Choice(get_args(kind)) if get_origin(kind) is Literal else kind
        found.append(click.Option(names, **more))
    return found


def run(**given: object) -> None:
    import msgspec

    options = msgspec.convert(given, Options)
    if options.version:
        click.echo("v4.2.1")
        return
    if options.simgrid_version:
        click.echo("3.32.0")
        return
    if options.dump_execution_context:
        click.echo(options.execution_context)
        return
    code = wrong(options)
    if code:
        raise click.exceptions.Exit(code)
    from pilothouse.dropins.batsim4.run import simulate

    raise click.exceptions.Exit(simulate(options))


def wrong(options: Options) -> int:
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
                click.echo(f"pilothouse {options.stands_for}: {kind} file {path!r} cannot be found", err=True)
                code |= bit
    for _, text in options.workflow_start:
        code |= _wrong_start(text, options.stands_for)
    return code


def _wrong_start(text: str, command: str) -> int:
    """The bit for a start of a workflow that is no date; 0: it is one."""
    try:
        start = float(text)
    except ValueError:
        code = 0x40
    else:
        code = 0 if 0 <= start < inf else 0x20
    if code:
        problem = f"the start of a workflow should be seconds, 0 or more; found {text!r}"
        click.echo(f"pilothouse {command}: --WS: {problem}", err=True)
    return code


command = click.Command(
    "batsim4",
    callback=run,
    params=parameters(Options),
    help="Simulate jobs under a scheduler that speaks the Batsim protocol: a drop-in for Batsim 4.",
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
