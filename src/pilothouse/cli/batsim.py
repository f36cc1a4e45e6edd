"""`pilothouse batsim`: a drop-in for Batsim 5. Options are read by dropins/batsim5/options.py, in Batsim's own way."""

from __future__ import annotations

import sys

import click


class DropIn(click.Command):
    """Hands all arguments over as they are: the program that it stands in for has a parser with ways of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.args = list(args)
        ctx.params = {}
        return []


def run(arguments: list[str]) -> int:
    """The whole program; returns the exit code, negative for a signal."""
    from pilothouse.dropins.batsim5.options import Usage, parse
    from pilothouse.model.errors import PilothouseError

    try:
        options = parse(arguments)
    except Usage as usage:
        if usage.output:
            print(usage.output)
        if usage.error:
            print(usage.error, file=sys.stderr)
        return usage.code
    except PilothouseError as problem:
        print(problem, file=sys.stderr)
        return 1
    from pilothouse.dropins.batsim5.run import simulate

    return simulate(options, arguments)


def main(arguments: list[str]) -> int:
    """Runs, and ends by SIGABRT where the real program does."""
    try:
        code = run(arguments)
    except KeyboardInterrupt:
        print("batsim: interrupted", file=sys.stderr)
        return 130
    if code < 0:
        from pilothouse.dropins.batsim5.run import end_by_abort

        end_by_abort()
    return code


@click.pass_context
def callback(ctx: click.Context) -> None:
    """Simulate jobs under an external decision component: a drop-in for Batsim 5 (`pilothouse batsim --help`)."""
    raise click.exceptions.Exit(main(ctx.args))


command = DropIn(
    "batsim",
    callback=callback,
    help="Simulate jobs under an external decision component: a drop-in for Batsim 5.",
    add_help_option=False,
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
