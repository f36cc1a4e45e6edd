"""`pilothouse.simulate` and `pilothouse.compare`: simulations from Python, with inputs from files, code or data frames."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pilothouse.campaign.frames import nodes_of, workload_of
from pilothouse.campaign.result import Comparison, Result
from pilothouse.core.contract import Decider
from pilothouse.core.policy_decider import PolicyDecider
from pilothouse.core.session import Session
from pilothouse.formats.workload import Workload
from pilothouse.launch import naming
from pilothouse.launch.simulation import load, read_all
from pilothouse.model.errors import InputError, PilothouseError
from pilothouse.policies.base import Policy
from pilothouse.views.metrics import TAU, Collector
from pilothouse.views.progress import progress
from pilothouse.views.schedule import Schedule
from pilothouse.worlds.simulated.inputs import Setup, join
from pilothouse.worlds.simulated.physics.platform import Platform


def simulate(*, workload: Any, platform: Any, policy: Any = "easy", tau: float = TAU, duration: str = "",
             events: Sequence[str] = (), timeout: float | None = None) -> Result:  # fmt: skip
    """Runs a workload on a simulated platform under one policy, and returns what happened.

    `workload`: a path of any format that `pilothouse simulate -w` reads (or several), jobs (`Job` with a `runtime` or a
    profile), or a table with the columns `units` and `runtime`, and perhaps `id`, `submitted_at`, `walltime` and `user`: a
    frame of polars or pandas, or a list of dictionaries. `platform`: a number of hosts, "4x28", a SimGrid file, nodes
    (`Node`), or a table with the column `cores`, and perhaps `name`, `gpus`, `memory_mb` and `speed`. `policy`: a name as
    after `--policy` or `--by`, a class derived from `Policy`, one of its objects, or a decider.
    """
    setup = _setup(workload, platform, duration, events)
    name, make = _decider(policy, timeout)
    return _run(setup, name, make(), tau)


def compare(*, workload: Any, platform: Any, policies: Iterable[Any] = ("fcfs", "easy", "easy-sjbf"), tau: float = TAU,
            duration: str = "", events: Sequence[str] = ()) -> Comparison:  # fmt: skip
    """Runs a workload under each of several policies. The inputs are those of `simulate`. A policy that raises does not
    discard the results of the others: see `failed`."""
    if isinstance(policies, str):
        raise InputError("policies", "one name", expected="a list of policies", found=policies)
    setup = _setup(workload, platform, duration, events)
    chosen: dict[str, Callable[[], Decider]] = {}
    for policy in policies:
        name, make = _decider(policy, None)
        if name in chosen:
            raise InputError("policies", f"two are called {name}", hint="give one of them a name: {'name': policy}")
        chosen[name] = make
    results: dict[str, Result] = {}
    failed: dict[str, str] = {}
    for name, make in chosen.items():
        try:
            results[name] = _run(setup, name, make(), tau)
        except PilothouseError as problem:
            failed[name] = str(problem)
    return Comparison(results, failed)


def _run(setup: Setup, name: str, decider: Decider, tau: float) -> Result:
    units = setup.begins.units
    schedule = Schedule(name=name, path="", live=False, policy=name, units=units)
    collector = Collector(tau, schedule.take)
    began = time.process_time()
    with progress(collector, len(setup.jobs), name) as bar:
        outcome = Session(setup.world(collector.add), decider, name=name).run(bar)
    metrics = collector.metrics(units)
    cpu_s = time.process_time() - began
    return Result(schedule, metrics, waiting=tuple(outcome.waiting), problem=outcome.reason,
                  notes=tuple(setup.oddities), cpu_s=cpu_s)  # fmt: skip


def _setup(workload: Any, platform: Any, duration: str, events: Sequence[str]) -> Setup:
    paths = _paths(workload)
    if paths is not None and isinstance(platform, str | Path | int) and not isinstance(platform, bool):
        return load(str(platform), paths, events, duration)
    machine = _platform(platform)
    if paths is not None:
        return join(machine, read_all(paths, machine, duration), events=events)
    given = workload if isinstance(workload, Workload) else workload_of(workload)
    return join(machine, [given], events=events)


def _paths(workload: Any) -> list[str] | None:
    """Paths of files; None if the workload is something else."""
    if isinstance(workload, str | Path):
        return [str(workload)]
    if isinstance(workload, list | tuple) and workload and all(isinstance(path, str | Path) for path in workload):
        return [str(path) for path in workload]
    return None


def _platform(platform: Any) -> Platform:
    if isinstance(platform, Platform):
        return platform
    if isinstance(platform, str | Path | int):
        return Platform.named(str(platform))
    return Platform.of_table(nodes_of(platform))


def _decider(policy: Any, timeout: float | None) -> tuple[str, Callable[[], Decider]]:
    """A name, and what makes a fresh decider."""
    if isinstance(policy, str):
        return policy, lambda: naming.decider(policy, timeout=timeout)
    if isinstance(policy, Mapping) and len(policy) == 1:
        ((name, inner),) = policy.items()
        return str(name), _decider(inner, timeout)[1]
    if isinstance(policy, type) and issubclass(policy, Policy):
        return policy.__name__, lambda: PolicyDecider(policy())
    if isinstance(policy, Policy):
        return type(policy).__name__, lambda: PolicyDecider(policy)
    if callable(getattr(policy, "decide", None)) and hasattr(policy, "traits"):
        return str(policy.name), lambda: policy
    expected = "a name, a class derived from Policy, one of its objects, or a decider"
    raise InputError("policy", "not a policy", expected=expected, found=type(policy).__name__)
