"""A scheduler process for a Flux instance, or for any manager that speaks like one: `python -m ...serve URI --by easy`.

    python -m pilothouse.protocols.rfc27.serve local:///tmp/sched.sock --by fcfs
    python -m pilothouse.protocols.rfc27.serve --by easy              # the instance of $FLUX_URI

It comes back by itself: after a lost connection with a back-off, and, with --restart, after its own crash too; state
comes from the manager's hello.
"""

from __future__ import annotations

import argparse
import logging
import sys

from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.model.errors import PilothouseError
from pilothouse.policies.catalog import make, parse_options
from pilothouse.protocols.rfc27.guard import guard, guarded
from pilothouse.protocols.rfc27.pending_reasons import PendingReasons
from pilothouse.protocols.rfc27.world import FluxWorld


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    if options.restart and not guarded():
        return guard([sys.executable, "-m", "pilothouse.protocols.rfc27.serve", *(arguments or sys.argv[1:])])
    name, _, rest = options.by.partition(":")
    try:
        world = FluxWorld(
            options.uri,
            limit=options.limit,
            strict=options.rfc27 == "1",
            reconnect=not options.once,
            patience_s=options.patience,
        )
        policy = make(name, parse_options(rest, name) if rest else {})
        session = Session(world, PolicyDecider(policy), name=name)
        session.run(PendingReasons(session, world) if options.notes else None)
    except PilothouseError as problem:
        print(f"pilothouse: {problem}", file=sys.stderr)
        return problem.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pilothouse.protocols.rfc27.serve", description=__doc__.split("\n\n")[0])
    parser.add_argument("uri", nargs="?", default="", help="local:///path or tcp://host:port?key=FILE ($FLUX_URI)")
    parser.add_argument("--by", default="easy", help="the policy (pilothouse policies)")
    parser.add_argument("--limit", type=int, default=0, help="most alloc requests at a time; 0: any number")
    parser.add_argument("--rfc27", default="", help="1: speak the specification's dialect from the first word")
    parser.add_argument("--once", action="store_true", help="end with the connection instead of coming back")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds to wait for a socket to appear")
    parser.add_argument("--restart", action="store_true", help="start again after a crash")
    parser.add_argument("--no-notes", dest="notes", action="store_false", help="no annotations for waiting jobs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
