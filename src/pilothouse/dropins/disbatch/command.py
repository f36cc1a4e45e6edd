"""The program disBatch: its command line in, its exit code out. libexec/disbatch and `pilothouse disbatch` call it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pilothouse import __version__
from pilothouse.launch.add_engines import UsageError
from pilothouse.launch.running import calm_collector, check_surroundings
from pilothouse.model.errors import InputError, PilothouseError


def disbatch(arguments: Sequence[str], program: str) -> int:
    """Does what disBatch would do with these arguments; its exit code."""

    def complain(text: object) -> int:
        print(f"{program}: {text}", file=sys.stderr)
        return 1

    from pilothouse.dropins.disbatch.options import parse_run

    if "--engine" in arguments or "--context" in arguments:
        from pilothouse.dropins.disbatch import kvs_engine

        return kvs_engine.main(arguments)
    try:
        check_surroundings()
        options = parse_run(arguments, program)
    except UsageError as error:
        print(error, end="", file=sys.stdout if str(error).startswith("usage:") else sys.stderr)  # disBatch prints its help there
        return 1
    except InputError as error:
        return complain(error)
    if options.version:
        print("3.0")  # scripts compare it
        print(f"({program} is pilothouse {__version__})", file=sys.stderr)
        return 0
    if options.context.gpu and options.edition == 3:
        complain("-g/--gpu is not needed any more and changes nothing")
    if options.task_file not in ("", "-"):
        try:
            Path(options.task_file).open("rb").close()
        except OSError as error:
            complain(f"error: argument taskfile: cannot open {options.task_file}: {error}")
            return 2
    from pilothouse.dropins.disbatch.names import NoSuchFolder
    from pilothouse.dropins.disbatch.run import DisbatchRun

    calm_collector()
    try:
        return DisbatchRun(options).run()
    except NoSuchFolder as error:
        return complain(error)
    except PilothouseError as error:
        print(f"disBatch: {error}", file=sys.stderr)
        return 1


def main(arguments: Sequence[str] | None = None, program: str = "disBatch") -> None:
    """For the executables."""
    sys.exit(disbatch(sys.argv[1:] if arguments is None else arguments, program))
