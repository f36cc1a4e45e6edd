"""`pilothouse run`: the tasks of a file, on this host, on others over ssh, or on the nodes of a batch job."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from pilothouse.cli.options import Factor, Memory, Seconds, Walltime, decider_options


class _WithSources(click.Command):
    """Takes `::: a b` and its like from the command line before options are looked for: values may begin with a dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from pilothouse.formats.argument_sources import split_words

        args, ctx.meta[_SOURCES] = split_words(args)
        return super().parse_args(ctx, args)


_SOURCES = "pilothouse.sources"
BATCH_SYSTEMS = {"slurm": "Slurm", "sge": "SGE", "pbs": "PBS", "lsf": "LSF", "flux": "Flux"}
"""As worlds/live/contexts/batch_systems.py lists them; not imported, so that help is quick."""


def _allocation_options(function: Callable[..., None]) -> Callable[..., None]:
    for name, kind in reversed(BATCH_SYSTEMS.items()):
        help_text = f"Run on the nodes of this {kind} {'instance' if name == 'flux' else 'job'} (default inside one)."
        function = click.option(f"--{name}", "allocation", flag_value=name, help=help_text)(function)
    return function


@click.command(cls=_WithSources)
@click.argument("words", nargs=-1, metavar="FILE | - | COMMAND ::: VALUE... | COMMAND :::: FILE...")
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Everything about the run goes here.")
@click.option(
    "--resume",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Go on with the run of DIR: nothing that finished runs again.",
)
@click.option("--retry-failed", is_flag=True, help="With --resume: tasks that did not succeed run once more.")
@click.option(
    "--finish", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
    help="Ask the run of DIR, which goes on, to begin nothing more and to end when its running tasks have ended.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the commands, and run none.")
@click.option("--colsep", default="", metavar="PATTERN", help="Values of :::: files are columns with this between them.")
@click.option("--header", type=click.Choice([":"]), help="The first value of each source (its first line) is its name.")
@click.option(
    "--slots", type=click.IntRange(1),
    help="Tasks at once on this host (default: its cores), or on --ssh hosts without a number.",
)  # fmt: skip
@click.option(
    "--most-slots", type=click.IntRange(1), default=1024, show_default=True, metavar="N",
    help="The most slots that a host may have: each one in use is a process.",
)  # fmt: skip
@click.option("--ssh", "hosts", multiple=True, metavar="HOST[:SLOTS],...", help="Run on these hosts instead.")
@_allocation_options
@click.option(
    "--cores", "--units", "-c", "units", type=click.IntRange(1), default=1, show_default=True,
    help="Slots that each task needs, all on one node.",
)  # fmt: skip
@click.option(
    "--mem", type=Memory(), default=0, metavar="SIZE",
    help="Memory that each task needs, such as 8G. It is ended if it uses more.",
)  # fmt: skip
@click.option(
    "--retry-mem", type=Factor(), default=0.0, metavar="xN",
    help="A task that was ended for its memory runs again with N times as much.",
)  # fmt: skip
@click.option("--gpus", "gpus_per_task", type=click.IntRange(0), default=0, help="GPUs that each task needs.")
@click.option(
    "--nodes", type=click.IntRange(1), default=1, show_default=True,
    help="Nodes that each task needs; the rest is on each of them.",
)  # fmt: skip
@click.option("--env", multiple=True, metavar="NAME[=VALUE],...", help="Variables for all tasks; without VALUE: as it is here.")
@click.option(
    "--node-mem", type=Memory(), default=0, metavar="SIZE",
    help="Memory of each node for tasks (default: what it has).",
)  # fmt: skip
@click.option("--gpu-list", metavar="ID,...", help="GPUs of each node (default here: CUDA_VISIBLE_DEVICES).")
@click.option("--bind", is_flag=True, help="Bind each task to the cores of its slots.")
@click.option(
    "--walltime", type=Walltime(), metavar="TIME",
    help="The most that a task may take (seconds, 30m, 1:30:00): then TERM, later KILL.",
)  # fmt: skip
@click.option("--grace", type=Seconds(), default=10.0, show_default=True, help="Seconds between TERM and KILL.")
@click.option(
    "--linger", type=Seconds(), default=0.05, show_default=True, metavar="SECONDS",
    help="How long a slot waits for the output of commands that a task left in the background.",
)  # fmt: skip
@click.option(
    "--retries", type=click.IntRange(0), default=0, show_default=True, help="Try a failed task again so often."
)
@click.option(
    "--reissue/--no-reissue", default=True, show_default=True, help="Run tasks of a lost engine again elsewhere."
)
@click.option(
    "--once",
    type=click.Choice(["at-least", "at-most"]),
    default="at-least",
    show_default=True,
    help="May a task whose fate is unknown run twice, or must it never?",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first task that fails.")
@click.option("--out", metavar="NAME", default="", help="Files for stdout, such as 'out/{task:06d}.txt'.")
@click.option("--err", metavar="NAME", default="", help="Files for stderr; the same name as --out joins both.")
@click.option(
    "--output-limit", metavar="SIZE[,SIZE]", default="100M,10G", show_default=True,
    help="The most that is kept of one task's output, and of all tasks' (0: nothing). See `pilothouse output`.",
)  # fmt: skip
@decider_options("fcfs")
@click.option(
    "--bundle",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="The most short tasks that are decided about together; 1: each by itself.",
)
@click.option("--window", type=click.IntRange(1), metavar="N", help="Waiting tasks that the decider sees at once.")
@click.option(
    "--wait-for-driver",
    type=Seconds(),
    default=600.0,
    show_default=True,
    help="Seconds that engines wait for a driver that has died.",
)
@click.option(
    "--lost-after", type=Seconds(), default=60.0, show_default=True, help="Seconds until a silent engine is given up."
)
@click.option(
    "--service", is_flag=True, help="Start no engine here; DIR/add-engines.sh adds them, from here or other hosts."
)
@click.option("--auto", type=click.Choice(list(BATCH_SYSTEMS)), help="Submit jobs to this batch system while tasks wait.")
@click.option(
    "--auto-jobs", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="The most of these jobs at a time."
)
@click.option("--auto-slurm", type=click.IntRange(1), hidden=True, metavar="N", help="The same as --auto slurm --auto-jobs N.")
@click.option("--auto-slots", type=click.IntRange(0), default=0, metavar="N", help="Slots that each of them brings.")
@click.option("--auto-idle", type=Seconds(), default=300.0, show_default=True, help="Seconds until an idle one is given back.")
@click.option(
    "--auto-options", "--sbatch-options", default="", metavar="TEXT",
    help="For sbatch, qsub, bsub or flux batch, such as '-n8 --time=60' or '-pe smp 8'.",
)  # fmt: skip
@click.option("--redis", default="", metavar="URL", help="Keep the key-value service's values in this Redis.")
@click.option(
    "--format", "task_format", type=click.Choice(["lines", "csv", "tsv", "jsonl"]),
    help="Of the tasks (default: by the end of FILE's name).",
)  # fmt: skip
@click.option("--lenient", is_flag=True, help="Ignore malformed directives, as disBatch does.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no summary.")
@click.pass_context
def command(
    ctx: click.Context, /, words: tuple[str, ...], folder: Path | None, resume: Path | None, finish: Path | None,
    retry_failed: bool, dry_run: bool, colsep: str, header: str | None, quiet: bool, auto_slurm: int | None, **given: object,
) -> None:  # fmt: skip
    """Run the tasks of FILE, one command per line (`-`: from standard input), or COMMAND once for each value.

    In COMMAND {} stands for the value, {1} and {2} for those of the first and second source, {name} for a column of a .csv or
    .jsonl file, {.} {/} {//} {/.} for parts of a file name, {#} for the number of the command. Options come before `:::`.

    Ctrl-C lets running tasks end and begins nothing more; a second one ends them, a third one kills them.

    Exit code 0 if all succeeded, 1 if one failed or was not run, 2 for a mistake in the input, 130 after Ctrl-C.

    \b
    Examples:
      pilothouse run tasks.txt
      pilothouse run tasks.txt --slots 4 --retries 2 --walltime 3600
      pilothouse run tasks.csv --mem 4G --retry-mem x2
      pilothouse run tasks.txt --ssh node1:16,node2:16
      pilothouse run tasks.txt --auto slurm --auto-jobs 4 --auto-slots 32 --auto-options '-n32 --time=2:00:00'
      pilothouse run tasks.txt --auto sge --auto-slots 8 --auto-options '-pe smp 8'
      pilothouse run 'sim --seed {2} {1} > {1/.}-{2}.out' ::: data/*.in ::: 1 2 3
      pilothouse run --dry-run 'fit --rate {rate} --steps {steps}' :::: parameters.csv
      find . -name '*.png' | pilothouse run 'convert {} {.}.jpg'
      pilothouse run --resume tasks.txt.run1 --retry-failed
      seq 100 | sed 's/^/echo /' | pilothouse run - --out 'out/{task}.txt'
    """
    from pilothouse.formats.argument_sources import Reading
    from pilothouse.launch import live_run
    from pilothouse.launch.commands import commands_of
    from pilothouse.launch.run_options import RunOptions
    from pilothouse.launch.running import check_surroundings

    check_surroundings()
    if finish is not None:
        live_run.finish_run(finish)
        return
    if auto_slurm:
        given |= {"auto": "slurm", "auto_jobs": auto_slurm}
    options = RunOptions(**given)  # type: ignore[arg-type]
    sources: list[str] = ctx.meta[_SOURCES]
    if resume is not None:
        if words or sources or dry_run:
            raise click.UsageError("--resume takes no FILE and no command: the run remembers its own")
        sys.exit(live_run.resume_run(options, resume, retry_failed=retry_failed, quiet=quiet))
    commands = commands_of(words, sources, Reading(colsep, header is not None))
    if commands is None and not words:
        raise click.UsageError("FILE or a command is missing (or --resume DIR)")
    if dry_run:
        sys.exit(live_run.dry_run(options, commands or words[0]))
    sys.exit(live_run.start_run(options, commands or words[0], folder, quiet=quiet))
