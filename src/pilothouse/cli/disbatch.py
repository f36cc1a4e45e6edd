"""`pilothouse disbatch`: stands in for disBatch, with its options, files, status lines and exit codes.

The executables `disBatch` and `disbatch` in libexec/disbatch call `main` here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click


@click.command(
    "disbatch",
    context_settings={"ignore_unknown_options": True, "help_option_names": [], "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Stand in for disBatch: `pilothouse disbatch --help` shows its options and examples."""
    raise click.exceptions.Exit(drop_in(arguments, "pilothouse disbatch"))


def drop_in(arguments: Sequence[str], program: str) -> int:
    """What disBatch would do with these arguments; its exit code."""
    from pilothouse import __version__
    from pilothouse.dropins.disbatch.names import NoSuchFolder
    from pilothouse.dropins.disbatch.options import parse_run
    from pilothouse.launch.add_engines import UsageError
    from pilothouse.launch.surroundings import check_surroundings
    from pilothouse.model.errors import InputError

    try:
        check_surroundings()
        options = parse_run(arguments, program)
    except UsageError as error:
        print(error, end="", file=sys.stderr)
        return 1
    except InputError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    if options.version:
        print("3.0")  # scripts compare it
        print(f"({program} is pilothouse {__version__})", file=sys.stderr)
        return 0
    if options.context.gpu:
        print(f"{program}: -g/--gpu is not needed any more and changes nothing", file=sys.stderr)
    if options.task_file not in ("", "-"):
        try:
            Path(options.task_file).open("rb").close()
        except OSError as error:
            print(f"{program}: error: argument taskfile: cannot open {options.task_file}: {error}", file=sys.stderr)
            return 2
    if options.web:
        print(f"{program}: there is no web interface here: use pilothouse watch", file=sys.stderr)
        return 1
    from pilothouse.dropins.disbatch.run import run
    from pilothouse.launch.running import calm_collector

    calm_collector()
    try:
        return run(options)
    except NoSuchFolder as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1


def main(arguments: Sequence[str] | None = None, program: str = "disBatch") -> None:
    """The executables' way in."""
    sys.exit(drop_in(sys.argv[1:] if arguments is None else arguments, program))


if __name__ == "__main__":
    main()
