"""`pilothouse qcg`: the QCG PilotJob Manager of the specification. As qcg-pm-service it is a drop-in for that of 0.14."""

from __future__ import annotations

import sys
from typing import Any

import click
from click.core import ParameterSource

_IGNORED = "Accepted for compatibility."
_NO_STATISTICS = "no such statistics are kept; run times are in the report"
_WITHOUT_EFFECT = {
    "disable_nl": "jobs are started by engines all the same",
    "enable_proc_stats": _NO_STATISTICS,
    "enable_rt_stats": _NO_STATISTICS,
    "wrapper_rt_stats": _NO_STATISTICS,
}
"""Options that are accepted but change nothing, and the message for each."""


class _WrongWord(click.BadParameter):
    exit_code = 1


class _Word(click.Choice):  # type: ignore[type-arg]  # click 8.1 has no arguments here
    """A choice whose wrong values end the command with exit code 1, as in qcg-pm-service, not with 2."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as problem:
            raise _WrongWord(problem.message, ctx, param) from None


@click.command()
@click.argument("request_file", required=False, metavar="[REQUESTS]")
@click.option("--net", is_flag=True, help="Listen for requests on the network (loopback unless --net-address).")
@click.option("--net-port", type=int, metavar="PORT", help="Port for requests (implies --net).")
@click.option("--net-pub-port", type=int, metavar="PORT", help="Port for events (implies --net).")
@click.option("--net-port-min", type=int, metavar="PORT", help="Lowest port to try (default 2222; implies --net).")
@click.option("--net-port-max", type=int, metavar="PORT", help="Highest port to try (default 9999; implies --net).")
@click.option(
    "--net-address", default="127.0.0.1", show_default=True, metavar="HOST",
    help="Where to listen; beyond loopback clients need the key in the manager's folder.",
)  # fmt: skip
@click.option(
    "--open-to-all", is_flag=True,
    help="Let every user and host send requests, without a key. They can then run commands as you.",
)  # fmt: skip
@click.option("--disable-pub", is_flag=True, help="No events.")
@click.option(
    "--dialect", type=click.Choice(["2018", "0.14"]), default="2018", show_default=True,
    help="The specification's, or that of qcg-pilotjob 0.14 (qcg-pm-service: 0.14).",
)  # fmt: skip
@click.option("--file", "file", is_flag=True, help="Read requests from a file.")
@click.option("--file-path", metavar="FILE", help="The request file (implies --file; default qcg_pm_reqs.json).")
@click.option("--wd", default=".", show_default=True, metavar="DIR", help="Working directory of the manager.")
@click.option(
    "--envschema", type=_Word(["auto", "slurm", "common"]), default="auto", show_default=True,
    help="Which environment jobs get.",
)  # fmt: skip
@click.option(
    "--resources", type=click.Choice(["auto", "slurm", "local"]), default="auto", show_default=True,
    help="Where nodes and cores come from.",
)  # fmt: skip
@click.option("--nodes", metavar="[NAME:]CORES,...", help="Nodes on this host (implies --resources local).")
@click.option("--ssh", "hosts", multiple=True, metavar="HOST:CORES,...", help="Nodes reached over ssh.")
@click.option(
    "--report-format", type=_Word(["json", "text", "none"]),
    help="Format of jobs.report (default: text; json in the dialect of 0.14).",
)  # fmt: skip
@click.option("--report-file", default="jobs.report", show_default=True, metavar="NAME", help="Name of the report.")
@click.option(
    "--log", "level", default="info", show_default=True, help="Level of service.log.",
    type=click.Choice(["critical", "error", "warning", "info", "debug", "notset"]),
)  # fmt: skip
@click.option("--show-progress", is_flag=True, help="Print each end of a job.")
@click.option("--system-core", is_flag=True, help="Keep one core of the first node for the manager.")
@click.option("--id", "instance", metavar="ID", help="Name of this manager (default: host and a number).")
@click.option("--tags", metavar="TAG,...", help="Shown in service.log.")
@click.option("--resume", metavar="DIR", help="Go on with the manager of DIR: nothing that ended runs again.")
@click.option(
    "--policy", "--by", "by", default="qcg", show_default=True, metavar="DECIDER",
    help="Who decides: QCG's own rules, or any policy or scheduler.",
)  # fmt: skip
@click.option("--slurm-limit-nodes-range-begin", type=int, metavar="N", help="Use the allocation's nodes from here.")
@click.option("--slurm-limit-nodes-range-end", type=int, metavar="N", help="Use the allocation's nodes up to here.")
@click.option("--slurm-resources-file", metavar="FILE", help="The nodes to use, as a governor of 0.14 writes them.")
@click.option(
    "--governor", is_flag=True, help="Run no jobs here: hand them to the managers that register (implies --net)."
)
@click.option("--parent", metavar="ADDRESS", help="Register with the governor there and take jobs from it.")
@click.option("--parent-key", metavar="FILE", help="Its network.key, if it listens beyond loopback.")
@click.option(
    "--slurm-partition-nodes", type=click.IntRange(1), metavar="N",
    help="Start a manager for each N nodes and govern them (implies --governor).",
)  # fmt: skip
@click.option(
    "--nl-init-timeout", type=click.FloatRange(0), default=600.0, show_default=True, metavar="SECONDS",
    help="How long to wait for all nodes, once there is one; later ones join.",
)  # fmt: skip
@click.option(
    "--nl-ready-threshold", type=click.FloatRange(0.1, 1.0, clamp=True), default=1.0, show_default=True, metavar="SHARE",
    help="Begin when this share of the nodes is there.",
)  # fmt: skip
@click.option("--address-fd", type=int, hidden=True, help="Write the address there when requests may come, or what is wrong.")
@click.option("--nl-start-method", type=click.Choice(["slurm", "ssh"]), default="slurm", hidden=True, help=_IGNORED)
@click.option("--disable-nl", is_flag=True, hidden=True, help=_IGNORED)
@click.option("--enable-proc-stats", is_flag=True, hidden=True, help=_IGNORED)
@click.option("--enable-rt-stats", is_flag=True, hidden=True, help=_IGNORED)
@click.option("--wrapper-rt-stats", metavar="FILE", hidden=True, help=_IGNORED)
@click.pass_context
def command(ctx: click.Context, /, **given: object) -> None:
    """Run many jobs inside one allocation, as the QCG PilotJob Manager does.

    Requests come from a file (REQUESTS, or --file-path) or over the network (--net), in the dialect of the specification
    (2018) or, with --dialect 0.14, in that of qcg-pilotjob 0.14. Takes qcg-pm-service's options.

    Exit code 0 when the manager has ended in order, whatever became of its jobs; 1 where it could not begin; 3 if jobs were
    left undone because the request file has no control request that says to wait for them.

    \b
    Examples:
      pilothouse qcg bac16.json
      pilothouse qcg --file-path jobs.json --nodes 4,4 --dialect 0.14
      pilothouse qcg --net --net-port 5555
      pilothouse qcg --resume .qcgpjm-service-host.4711
      pilothouse qcg jobs.json --policy easy
    """
    from pilothouse.dropins.qcg.options import QcgOptions
    from pilothouse.dropins.qcg.run import run

    request_file = given.pop("request_file")
    if request_file is not None:
        given["file_path"] = request_file
    unused = [f"--{name.replace('_', '-')}: {said}" for name, said in _WITHOUT_EFFECT.items() if given.pop(name)]
    if given.pop("nl_start_method") == "ssh":
        unused.append("--nl-start-method: nodes of a Slurm allocation are reached by srun all the same (see --ssh)")
    named = frozenset(name for name in given if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE)
    sys.exit(run(QcgOptions(without_effect=unused, given=named, **given)))  # type: ignore[arg-type]


def main() -> None:
    """The executable qcg-pm-service, which speaks as 0.14 does."""
    command.main(prog_name="qcg-pm-service", default_map={"dialect": "0.14"})


def client_main() -> None:
    """The executable qcg-pm: asks a running manager. A file as the only argument is the specification's `qcg-pm REQUESTS`."""
    from pathlib import Path

    from pilothouse.dropins.qcg.client_command import client
    from pilothouse.model.errors import PilothouseError

    arguments = sys.argv[1:]
    try:
        if len(arguments) == 1 and arguments[0] not in client.commands and Path(arguments[0]).is_file():
            command.main(arguments, prog_name="qcg-pm")
        client.main(prog_name="qcg-pm")
    except PilothouseError as problem:
        click.echo(f"error: {problem}", err=True)
        sys.exit(1)
