"""The command `pilothouse`: a table of subcommands, each in a file of its own and loaded only when it is called."""

from __future__ import annotations

import importlib
import os
import sys

import click

from pilothouse import __version__
from pilothouse.model.errors import PilothouseError

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("pilothouse.cli.demo", "Try it: schedulers on a real trace, real tasks here, a report."),
    "init": ("pilothouse.cli.init", "Write a small project: a policy, a workload, a task file, a sweep."),
    "simulate": ("pilothouse.cli.simulate", "Run a workload on a simulated cluster under one policy."),
    "compare": ("pilothouse.cli.compare", "Run a workload under several policies, side by side."),
    "sweep": ("pilothouse.cli.sweep", "Run a grid of simulations on many cores, and say which differences are significant."),
    "convert": ("pilothouse.cli.convert", "Write a workload of any format, or a generated one, as an SWF log."),
    "explain": ("pilothouse.cli.explain", "Say why a task waits, where it runs or how it ended; why a job started when it did."),
    "plot": ("pilothouse.cli.plot", "Draw runs into a figure: Gantt chart, utilisation, queue, waits."),
    "report": ("pilothouse.cli.report", "Write one HTML file about runs: charts to zoom, tables, reasons."),
    "diff": ("pilothouse.cli.diff", "Say what changed from one run to another."),
    "step": ("pilothouse.cli.step", "Step through a schedule: queue, free units, decisions and reasons."),
    "policies": ("pilothouse.cli.policies", "List the policies and their options."),
    "run": ("pilothouse.cli.run", "Run real tasks here, over ssh or inside Slurm."),
    "tasks": ("pilothouse.cli.tasks", "List the tasks of a run."),
    "output": ("pilothouse.cli.output", "Print what tasks of a run wrote."),
    "watch": ("pilothouse.cli.watch", "Watch a running or finished run in the terminal."),
    "web": ("pilothouse.cli.web", "Watch a running or finished run in a browser."),
    "forecast": ("pilothouse.cli.forecast", "Say when a task file would be done, in simulated time."),
    "steer": ("pilothouse.cli.steer", "Join any world to any decider."),
    "flux-module": ("pilothouse.cli.flux_module", "Run a scheduler module of Flux against our manager."),
    "whatif": ("pilothouse.cli.whatif", "Say when the waiting jobs of a Slurm would start under each policy."),
    "slurm-setup": ("pilothouse.cli.slurm_setup", "Print, check or undo the configuration of a steered Slurm."),
    "slurm-lab": ("pilothouse.cli.slurm_lab", "Start a real Slurm with emulated nodes on this machine."),
    "batsim": ("pilothouse.cli.batsim", "Stand in for Batsim 5."),
    "batsim4": ("pilothouse.cli.batsim4", "Stand in for Batsim 4."),
    "batsim2": ("pilothouse.cli.batsim2", "Stand in for Batsim 2."),
    "edc-library": ("pilothouse.cli.edc_library", "Build a policy into a library that Batsim 5 can load."),
    "disbatch": ("pilothouse.cli.disbatch", "Stand in for disBatch."),
    "qcg": ("pilothouse.cli.qcg", "Stand in for QCG PilotJob's service."),
    "shims": ("pilothouse.cli.shims", "Write the drop-ins into a folder, under the names of what they replace."),
    "completion": ("pilothouse.cli.completion", "Print the script that completes commands in your shell."),
}
"""Name -> module that holds `command`, and the line shown by --help (so that help loads nothing)."""

AIMS: dict[str, tuple[str, ...]] = {
    "Begin": ("demo", "init"),
    "Simulate a cluster": ("simulate", "compare", "sweep", "forecast", "policies", "convert"),
    "Run real tasks": ("run", "tasks", "output", "watch", "web"),
    "Steer a resource manager": ("steer", "whatif", "slurm-setup", "slurm-lab", "flux-module", "edc-library"),
    "Look at runs": ("plot", "report", "explain", "diff", "step"),
    "Replace another program": ("batsim", "batsim4", "batsim2", "disbatch", "qcg", "shims"),
    "Your shell": ("completion",),
}
"""The commands by what one wants to do, as --help shows them."""


class LazyGroup(click.Group):
    """Loads a subcommand's module when it is needed, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in COMMANDS)  # one column for all sections
        for aim, names in AIMS.items():
            with formatter.section(aim):
                formatter.write_dl([(name.ljust(width), COMMANDS[name][1]) for name in names])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Each command has its own --help with examples. Begin with: pilothouse demo",
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="pilothouse")
@click.option("--traceback", is_flag=True, help="Show where an error came from, besides the line that says what is wrong.")
@click.pass_context
def cli(ctx: click.Context, traceback: bool) -> None:
    """Write a scheduler once, and steer with it a simulated cluster, the tasks of your own allocation, or a resource manager.

    \b
    Examples:
      pilothouse compare  -p 100 -w trace.swf.gz --policy fcfs,easy,easy-sjbf
      pilothouse simulate -p cluster.xml -w workload.json --policy easy -e out/
      pilothouse run tasks.txt
    """
    if traceback:
        os.environ["PILOTHOUSE_TRACEBACK"] = "1"
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Runs the command; an expected error is one line on stderr and its exit code."""
    try:
        # Outside of standalone mode click returns the code of an Exit instead of raising it.
        code = cli.main(prog_name="pilothouse", standalone_mode=False)
        if isinstance(code, int):
            sys.exit(code)
    except click.Abort:
        click.echo("pilothouse: interrupted", err=True)
        sys.exit(130)
    except click.ClickException as problem:
        problem.show()
        sys.exit(problem.exit_code)
    except PilothouseError as problem:
        from pilothouse.views.telling import tell

        tell(str(problem), problem)
        sys.exit(problem.exit_code)
    except RecursionError:
        click.echo("pilothouse: an input is nested too deep", err=True)
        sys.exit(2)
    except MemoryError:
        click.echo("pilothouse: not enough memory", err=True)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as problem:
        # A full disk, or a folder that cannot be written.
        click.echo(f"pilothouse: {problem.filename or 'output'}: {problem.strerror or problem}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
