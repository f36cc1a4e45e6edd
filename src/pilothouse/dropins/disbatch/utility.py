"""The utility script of a run, `<prefix>_dbUtil.sh`, and what it starts.

    ./X_dbUtil.sh -s localhost:4,other:8        add a context over ssh
    sbatch -n 40 [-a 1-5] X_dbUtil.sh           add one in a Slurm job, or one per job of an array
    ./X_dbUtil.sh --mon                         watch the run

The script holds no secret: it names the run's folder, which only its owner can read.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pilothouse.dropins.disbatch.context import DisbatchContext, JoinInfo, claim_rank, find_layout
from pilothouse.dropins.disbatch.layout import NoContext
from pilothouse.dropins.disbatch.options import UsageError, parse_context
from pilothouse.launch.signals import leave, on_signals
from pilothouse.model.errors import PilothouseError

LOG_FORMAT = "%(asctime)s %(levelname)-8s %(name)-15s: %(message)s"
_POLL_S = 0.2

# Not by PYTHONPATH, which the tasks would inherit.
_FIND_US = f"import sys; sys.path.append({str(Path(__file__).resolve().parents[3])!r})"
_SCRIPT = """#!/bin/bash
# Adds an execution context to the run {name}, or watches it (--mon).
export DISBATCH_KVSSTCP_HOST={kvs}
if [[ $1 == '--mon' ]]; then
    exec {python} -c {watch} {folder}
fi
exec {python} -c {add} {folder} "$@" \\
    < /dev/null 1> {unique_id}_${{BASHPID-$$}}_context_launch.log
"""


def write_script(path: Path, unique_id: str, folder: Path, kvs_address: str) -> Path:
    """Writes the script (mode 0700); `unique_id` begins the names of the files that contexts write. It is there when it can be
    run, and not before: whoever waits for it may be quick.
    """
    text = _SCRIPT.format(
        name=folder.name.removesuffix("_run"),
        kvs=shlex.quote(kvs_address),
        python=shlex.quote(sys.executable),
        folder=shlex.quote(str(folder)),
        watch=shlex.quote(f"{_FIND_US}; from pilothouse.cli.main import main; sys.argv[1:1] = ['watch']; main()"),
        add=shlex.quote(f"{_FIND_US}; from pilothouse.dropins.disbatch.utility import main; sys.exit(main(sys.argv[1:]))"),
        unique_id=shlex.quote(unique_id),
    )
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
    draft.rename(path)
    return path


def main(arguments: Sequence[str]) -> int:
    """What the script runs: a context from the environment and options, until all its engines have gone."""
    folder = Path(arguments[0])
    try:
        join = JoinInfo.load(folder)
        options = parse_context(arguments[1:]).or_else(join.options)
        rank = claim_rank(folder)
        os.chdir(join.launch.cwd)
        host = socket.gethostname()
        try:
            layout = find_layout(options, os.environ, rank, host)
        except NoContext:
            print("Cannot determine batch execution environment.", file=sys.stderr)
            return 1
        open_context_log(join.unique_id, layout.label, join.log_level)
        if options.gpu:
            print("-g/--gpu does nothing: GPUs are found without it", file=sys.stderr)
        context = DisbatchContext(layout, options, join.unique_id, host)
        context.log.info("%s context started on %s (%d): %r", layout.kind, host, os.getpid(), layout)
        context.start(join.launch)
    except (PilothouseError, UsageError, OSError) as error:
        print(str(error).rstrip(), file=sys.stderr)
        return 1
    with on_signals(leave, signal.SIGTERM):  # the engines end with this program
        try:
            while not context.over:
                context.ended()
                time.sleep(_POLL_S)
        finally:
            context.stop()
    return 0


def open_context_log(unique_id: str, label: str, level: str) -> None:
    """`<prefix>_<label>.context.log`, to which the context's logger writes."""
    handler = logging.FileHandler(f"{unique_id}_{label}.context.log")
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    log = logging.getLogger("disBatch.context")
    log.setLevel(level)
    log.propagate = False
    log.addHandler(handler)
