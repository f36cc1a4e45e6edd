"""The names of deciders on the command line, and what they stand for.

easy, easy:estimate=2x            a policy of the catalog, with options
file.py:Class, package.mod:Class  a policy of the user's; options follow a second colon
batsim:ENDPOINT[?dialect=2]       a scheduler that speaks the Batsim 2-4 protocol (?config=FILE implies dialect 2)
edc:./lib.so[?init=...]           a Batsim 5 decision component, as a library
edc:tcp://...                     ... as a process
rfc27:PATH                        a Flux scheduler on a UNIX socket
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from pilothouse.model.errors import InputError, quoted, suggestion
from pilothouse.policies.base import Policy
from pilothouse.policies.catalog import CATALOG, make, parse_options
from pilothouse.policies.typed_options import typed_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilothouse.core.cluster import Cluster
    from pilothouse.core.contract import Decider, Turn, World


FOREIGN = {
    "batsim": ("pilothouse.protocols.batsim.decider", "batsim_decider"),
    "edc": ("pilothouse.protocols.batprotocol.decider", "edc_decider"),
    "rfc27": ("pilothouse.protocols.rfc27.decider", "Rfc27Decider"),
}
"""Names of foreign schedulers: the module of each, and what in it makes a Decider of an address and options."""


def policy(text: str) -> Policy:
    """A policy by its name."""
    return policy_maker(text)()


def policy_maker(text: str) -> Callable[[], Policy]:
    """What makes policies of this name, one as the other. A user's file is read once."""
    name, _, rest = text.partition(":")
    if name in CATALOG:
        options = parse_options(rest, name) if rest else {}
        return lambda: make(name, options)
    if not rest:
        known = ", ".join(CATALOG)
        hint = suggestion(name, CATALOG)
        raise InputError(name, "no such policy", expected=f"one of {known}, or file.py:Class", hint=hint)
    if (hint := suggestion(name, CATALOG)) and not name.endswith(".py") and "=" in rest:
        raise InputError(name, "no such policy", hint=hint)  # easi:estimate=2x is no module
    class_name, _, given = rest.partition(":")
    return _of_user(name, class_name, parse_options(given, text) if given else {})


def source_file(text: str) -> str:
    """The file that a user's policy is in; "" for one of the catalog."""
    name = text.partition(":")[0]
    if name in CATALOG or name.endswith(".py"):
        return "" if name in CATALOG else name
    return str(getattr(_load_module(name), "__file__", None) or "")


def decider(text: str, *, timeout: float | None = None) -> Decider:
    """A decider by its name: a policy, or a foreign scheduler that a protocol reaches."""
    kind, _, rest = text.partition(":")
    if kind in FOREIGN:
        module, name = FOREIGN[kind]
        made: Decider = getattr(importlib.import_module(module), name)(*_query(rest), timeout=timeout)
        return made
    from pilothouse.core.policy_decider import PolicyDecider
    from pilothouse.launch.start_estimates import StartEstimates

    made_policy = policy_maker(text)
    return PolicyDecider(made_policy(), StartEstimates(made_policy).wait_of)


def world(text: str) -> World:
    """A foreign world by its name: batsim:ENDPOINT[?dialect=2], batprotocol:ENDPOINT, flux[:URI], slurm[:QUEUE:GO]."""
    name, options = _query(text)
    kind, _, address = name.partition(":")
    if kind == "batsim":
        from pilothouse.protocols.batsim.world import batsim_world

        return batsim_world(address, options)
    if kind == "batprotocol":
        from pilothouse.protocols.batprotocol.world import BatprotocolWorld

        return BatprotocolWorld(address)
    if kind == "flux":
        from pilothouse.protocols.rfc27.world import flux_world

        return flux_world(address, options)
    if kind == "slurm":
        from pilothouse.worlds.slurm.world import slurm_world

        return slurm_world(address, options)
    known = "sim, batsim:ENDPOINT, batprotocol:ENDPOINT, flux[:URI] or slurm[:QUEUE:GO]"
    raise InputError(text, "no such world", expected=known)


def notes(world_name: str, by: str) -> Callable[[Turn, Cluster], Turn] | None:
    """What stands around a decider's turn in that world (see Session): logs wrong decisions, and tells users why their jobs
    wait (Flux unless `?notes=0`, Slurm with `?notes=1`). `by`: the name of the decider."""
    kind = world_name.partition("?")[0].partition(":")[0]
    if kind not in ("flux", "slurm"):
        return None
    from pilothouse.launch.start_estimates import StartEstimates
    from pilothouse.protocols.rfc27.pending_reasons import PendingReasons

    default = "0" if kind == "slurm" else "1"
    wanted = _query(world_name)[1].get("notes", default) != "0"
    ahead = None if by.partition(":")[0] in FOREIGN else StartEstimates(policy_maker(by))
    return partial(PendingReasons, notes=wanted, ahead=ahead)


def _query(text: str) -> tuple[str, dict[str, str]]:
    """`address?key=value&key=value`."""
    address, _, query = text.partition("?")
    return address, dict(parse_qsl(query, keep_blank_values=True))


def _of_user(where: str, class_name: str, options: dict[str, str]) -> Callable[[], Policy]:
    module = _load_file(where) if where.endswith(".py") else _load_module(where)
    found = getattr(module, class_name, None)
    if found is None:
        hint = suggestion(class_name, [name for name, value in vars(module).items() if isinstance(value, type)])
        raise InputError(where, f"there is no class {class_name!r} in it", hint=hint)
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise InputError(where, f"{class_name} is not a Policy", hint="derive it from pilothouse.Policy")
    given = typed_options(found, options, f"{where}:{class_name}")

    def made() -> Policy:
        try:
            return found(**given)
        except TypeError as problem:
            raise InputError(f"{where}:{class_name}", f"cannot be made with options {quoted(options)}: {problem}") from None
        except Exception as problem:
            place, what = _where(problem, where)
            raise InputError(f"{place}: {class_name}", what.replace("loaded", "made")) from problem

    return made


def _load_file(path: str) -> object:
    if not Path(path).is_file():
        raise InputError(path, "no such file")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(Path(path).stem, module)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise InputError(*_where(problem, path)) from problem
    return module


def _load_module(name: str) -> object:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        raise InputError(name, f"cannot be imported: {problem}") from None
    except Exception as problem:
        raise InputError(*_where(problem, name)) from problem
    finally:
        sys.path.remove("")


def _where(problem: Exception, path: str) -> tuple[str, str]:
    """The file and line of the user's module where loading it failed."""
    import traceback

    line = getattr(problem, "lineno", None)
    for frame in traceback.extract_tb(problem.__traceback__):
        if Path(frame.filename) == Path(path).absolute() or frame.filename == path:
            line = frame.lineno
    return f"{path}:{line}" if line else path, f"cannot be loaded: {type(problem).__name__}: {problem}"
