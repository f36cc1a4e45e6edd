"""Engines for a run that goes on: the script in its folder, and the program that the script starts.

    ./X_dbUtil.sh -s localhost:4,other:8        adds a context over ssh
    sbatch -n 40 [-a 1-5] X_dbUtil.sh           adds one in a Slurm job, or one per job of an array (qsub, bsub, flux batch: too)
    ./X_dbUtil.sh --mon                         watches the run

`pilothouse run` calls its script add-engines.sh. The script holds no secret: it names the run's folder, which only its owner
can read; the engines' keys are in a file there that goes when the run ends.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pilothouse.access.files import open_shared, read_own, write_whole
from pilothouse.model.errors import InputError, PilothouseError
from pilothouse.worlds.live.contexts import Launch
from pilothouse.worlds.live.contexts.layout import Allocation, ContextOptions, NoContext, plan

if TYPE_CHECKING:
    import argparse

    from pilothouse.worlds.live.contexts.nodes import NodesContext

JOIN_FILE = "join.json"
MOST_CONTEXTS = 100_000
_POLL_S = 0.2

# Not by PYTHONPATH, which the tasks would inherit.
_FIND_US = f"import sys; sys.path.append({str(Path(__file__).resolve().parents[2])!r})"
_SCRIPT = """#!/bin/sh
# Adds an execution context to the run {name}, or watches it (--mon).
export DISBATCH_KVSSTCP_HOST={kvs}
if [ "$1" = --mon ]; then
    exec {python} -c {watch} {folder}
fi
for word; do
    case $word in -h | --help) exec {python} -c {add} {folder} --help ;; esac
done
(umask 022; : > {prefix}_$$_context_launch.log)
exec {python} -c {add} {folder} "$@" \\
    < /dev/null 1> {prefix}_$$_context_launch.log
"""


class UsageError(Exception):
    """Options that do not go together: one line or a help text, and exit code 1."""


class JoinInfo(msgspec.Struct, frozen=True):
    """What a context must know of its run. Secret (it holds the engines' key): the file has mode 0600."""

    launch: Launch
    prefix: str
    """The names of files that contexts write begin with it."""
    log_level: str = "INFO"
    options: ContextOptions = ContextOptions()
    """Those of the run: defaults for contexts that are added later."""

    @classmethod
    def load(cls, folder: Path) -> JoinInfo:
        path = folder / JOIN_FILE
        try:
            return msgspec.json.decode(read_own(path), type=cls)
        except FileNotFoundError as error:
            raise InputError(str(path), "the run is over, or never was here") from error
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(str(path), f"cannot be read: {error}") from error


@contextmanager
def joinable(folder: Path, join: JoinInfo) -> Iterator[None]:
    """While the body runs, contexts may join the run of this folder."""
    path = folder / JOIN_FILE
    write_whole(path, msgspec.json.encode(join))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def write_script(path: Path, prefix: str, folder: Path, kvs_address: str) -> Path:
    """Writes the script (mode 0700). It appears under its name only when it is complete."""
    text = _SCRIPT.format(
        name=folder.name.removesuffix("_run"),
        kvs=shlex.quote(kvs_address),
        python=shlex.quote(sys.executable),
        folder=shlex.quote(str(folder)),
        watch=shlex.quote(f"{_FIND_US}; from pilothouse.__main__ import main; sys.argv[1:1] = ['watch']; main()"),
        add=shlex.quote(f"{_FIND_US}; from pilothouse.launch.add_engines import main; sys.exit(main(sys.argv[1:]))"),
        prefix=shlex.quote(prefix),
    )
    write_whole(path, text.encode(), mode=0o700)
    return path


def main(arguments: Sequence[str]) -> int:
    """The script's program: a context from the environment and options, until all its engines have gone."""
    from pilothouse.launch.signals import leave, on_signals

    folder = Path(arguments[0])
    try:
        said = parse_context(arguments[1:])  # first: its help needs no run
        join = JoinInfo.load(folder)
        options = said.or_else(join.options)
        os.chdir(join.launch.cwd)
        context = open_context(folder, options, join.prefix, join.log_level)
        if options.gpu and options.edition == 3:
            print("-g/--gpu does nothing: GPUs are found without it", file=sys.stderr)
        layout = context.layout
        context.log.info("%s context started on %s (%d): %r", layout.kind, socket.gethostname(), os.getpid(), layout)
        context.start(join.launch)
    except NoContext:
        print("Cannot determine batch execution environment.", file=sys.stderr)
        return 1
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


def open_context(folder: Path, options: ContextOptions, prefix: str, log_level: str) -> NodesContext:
    """The context of this environment, with a number and a log `<prefix>_<label>.context.log` of its own.

    Raises NoContext where there is neither a job of a batch system nor a list of nodes.
    """
    from pilothouse.worlds.live.contexts.nodes import NodesContext

    host = socket.gethostname()
    rank = claim_rank(folder)
    layout = plan(
        options, os.environ, rank=rank, host=host, expand=expand_hosts, read=lambda path: Path(path).read_text(),
        other=_allocation,
    )
    open_log(f"{prefix}_{layout.label}.context.log", log_level, "disBatch.context")
    return NodesContext(layout, options, prefix, host)


def open_log(path: str, level: str, *names: str, mode: str = "a") -> None:
    """Sends the messages of these loggers to a file."""
    open_shared(path, f"{mode}b").close()
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-8s %(name)-15s: %(message)s"))
    for name in names:
        log = logging.getLogger(name)
        log.setLevel(level)
        log.propagate = False
        log.addHandler(handler)


def claim_rank(folder: Path) -> int:
    """The number of a new context of this run; no two get the same, whatever host they are claimed on."""
    for rank in range(MOST_CONTEXTS):
        try:
            os.close(os.open(folder / f"context-{rank}", os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            continue
        return rank
    raise InputError(str(folder), f"more than {MOST_CONTEXTS} contexts")


def _allocation() -> Allocation | None:
    from pilothouse.worlds.live.contexts.batch_systems import around

    found = around(os.environ)
    return found.inside(os.environ) if found is not None else None


def expand_hosts(text: str) -> list[str]:
    """A Slurm host list, written out by Slurm itself."""
    ran = subprocess.run(["scontrol", "show", "hostnames", text], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise InputError("SLURM_NODELIST", f"scontrol cannot read it: {ran.stderr.strip()}")
    return ran.stdout.split()


# ---- the options of a context


def parse_context(arguments: Sequence[str]) -> ContextOptions:
    """Reads the script's command line. Raises UsageError, or SystemExit(2) as argparse does."""
    import argparse

    parser = argparse.ArgumentParser("dbUtil.sh", description="Add an execution context to a running disBatch run.")
    add_context_arguments(parser)
    return context_options(parser.parse_args(list(arguments)))


def context_options(said: argparse.Namespace) -> ContextOptions:
    if not said.cpusPerTask > 0 and said.cpusPerTask != -1.0:
        raise UsageError(f"-c/--cpusPerTask must be more than 0, and is {said.cpusPerTask:g}\n")
    if said.tasksPerNode < -1:
        raise UsageError(f"-t/--tasksPerNode must be 0 or more, and is {said.tasksPerNode}\n")
    resources = ",".join(said.env_resource)
    return ContextOptions(
        task_limit=said.context_task_limit,
        cpus_per_task=None if said.cpusPerTask == -1.0 else said.cpusPerTask,
        env_resources=tuple(resources.split(",")) if resources else (),
        fill=said.fill,
        retire_command=said.retire_cmd,
        label=said.label or "",
        ssh_nodes=tuple(said.ssh_node or ()),
        tasks_per_node=None if said.tasksPerNode == -1 else said.tasksPerNode,
        gpu=said.gpu,
    )


def add_context_arguments(parser: argparse.ArgumentParser) -> None:
    from argparse import SUPPRESS as hidden
    add = parser.add_argument
    add("-C", "--context-task-limit", type=int, default=0, metavar="N", help="leave after N tasks (0: no limit)")
    add("-c", "--cpusPerTask", type=float, default=-1.0, metavar="N", help="cores per task, or a fraction (default: 1)")
    add("-E", "--env-resource", action="append", default=[], metavar="VAR", help=hidden)
    add("--fill", action="store_true", help="use all allocated cores, also those beyond the requested tasks")
    add("-g", "--gpu", action="store_true", help=hidden)
    add("-K", "--no-retire", dest="retire_cmd", action="store_const", const="", help="keep nodes that are no longer needed")
    add("-l", "--label", metavar="NAME", help="name of this context")
    add("-k", "--retire-cmd", metavar="COMMAND", help="how to give a node back (NODES, NODE, RETCODE, ACTIVE, RETIRED are set)")
    add("-s", "--ssh-node", action="append", metavar="HOST:CORECOUNT", help="run tasks here, over ssh (repeatable)")
    add("-t", "--tasksPerNode", type=int, default=-1, metavar="N", help="most tasks at a time on each node")
