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
from pilothouse.launch.simulation import read_all
from pilothouse.launch.workers import Died, in_processes, useful_workers
from pilothouse.model.errors import InputError, PilothouseError
from pilothouse.policies.base import Policy
from pilothouse.views.metrics import TAU, Collector
from pilothouse.views.progress import counted_progress, progress
from pilothouse.views.schedule import Schedule
from pilothouse.worlds.simulated.inputs import Setup, join
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.shaping import Shaping


def simulate(*, workload: Any, platform: Any, policy: Any = "easy", tau: float = TAU, duration: str = "",
             events: Sequence[str] = (), timeout: float | None = None, load: float = 1.0, week: int | None = None,
             warm_up: float = 0.0, cool_down: float = 0.0) -> Result:  # fmt: skip
    """Runs a workload on a simulated platform under one policy, and returns what happened.

    `workload`: a path of any format that `pilothouse simulate -w` reads (or several), jobs (`Job` with a `runtime` or a
    profile), or a table with the columns `units` and `runtime`, and perhaps `id`, `submitted_at`, `walltime` and `user`: a
    frame of polars or pandas, or a list of dictionaries. `platform`: a number of hosts, "4x28", a SimGrid file, nodes
    (`Node`), or a table with the column `cores`, and perhaps `name`, `gpus`, `memory_mb` and `speed`. `policy`: a name as
    after `--policy` or `--by`, a class derived from `Policy`, one of its objects, or a decider.

    `load` makes jobs arrive so many times as densely, `week` takes one week of the workload (from 0). Jobs that are submitted
    in the first `warm_up` or the last `cool_down` seconds are simulated and left out of the metrics.
    """
    shaping = Shaping(load, week, warm_up, cool_down)
    setup = _setup(workload, platform, duration, events, shaping)
    name, make, _ = _decider(policy, timeout)
    return _run(setup, name, make(), tau, shaping.window(setup.jobs))


def compare(*, workload: Any, platform: Any, policies: Iterable[Any] = ("fcfs", "easy", "easy-sjbf"), tau: float = TAU,
            duration: str = "", events: Sequence[str] = (), load: float = 1.0, week: int | None = None, warm_up: float = 0.0,
            cool_down: float = 0.0, workers: int | None = None) -> Comparison:  # fmt: skip
    """Runs a workload under each of several policies. The inputs are those of `simulate`. A policy that raises does not
    discard the results of the others: see `failed`.

    Long workloads run in several processes, on all cores or as many as `workers` says. Objects and foreign deciders run in
    this one, where the caller can look at them afterwards; names and classes run in the others.
    """
    if isinstance(policies, str):
        raise InputError("policies", "one name", expected="a list of policies", found=policies)
    shaping = Shaping(load, week, warm_up, cool_down)
    setup = _setup(workload, platform, duration, events, shaping)
    window = shaping.window(setup.jobs)
    chosen: dict[str, tuple[Callable[[], Decider], bool]] = {}
    for policy in policies:
        name, make, here = _decider(policy, None)
        if name in chosen:
            raise InputError("policies", f"two are called {name}", hint="give one of them a name: {'name': policy}")
        chosen[name] = make, here
    elsewhere = [name for name, (_, here) in chosen.items() if not here]
    workers = useful_workers(workers, len(elsewhere), len(setup.jobs))

    def run(name: str, hidden: bool = False) -> Result | str:
        try:
            return _run(setup, name, chosen[name][0](), tau, window, hidden=hidden)
        except PilothouseError as problem:
            return str(problem)

    found: dict[str, Result | str] = {}
    if workers > 1:
        with counted_progress(len(elsewhere), "policies") as shown:
            for number, made in in_processes(lambda number: run(elsewhere[number], hidden=True), len(elsewhere), workers):
                found[elsewhere[number]] = str(made) if isinstance(made, Died) else made
                shown(len(found))
    results = {name: found[name] if name in found else run(name) for name in chosen}
    return Comparison(
        {name: made for name, made in results.items() if isinstance(made, Result)},
        {name: made for name, made in results.items() if isinstance(made, str)},
    )


def _run(setup: Setup, name: str, decider: Decider, tau: float, window: tuple[float, float] | None = None, *,
         hidden: bool = False) -> Result:  # fmt: skip
    units = setup.begins.units
    schedule = Schedule(name=name, path="", live=False, policy=name, units=units)
    collector = Collector(tau, schedule.take, window=window)
    began = time.process_time()
    with progress(collector, len(setup.jobs), name, hidden=hidden) as bar:
        outcome = Session(setup.world(collector.add), decider, name=name).run(bar)
    metrics = collector.metrics(units)
    cpu_s = time.process_time() - began
    return Result(schedule, metrics, waiting=tuple(outcome.waiting), problem=outcome.reason,
                  notes=tuple(setup.oddities), cpu_s=cpu_s)  # fmt: skip


def _setup(workload: Any, platform: Any, duration: str, events: Sequence[str], shaping: Shaping) -> Setup:
    shaping.check()
    machine = _platform(platform)
    paths = _paths(workload)
    if paths is not None:
        given = read_all(paths, machine, duration)
    else:
        given = [workload if isinstance(workload, Workload) else workload_of(workload)]
    return join(machine, [shaping.of(one) for one in given], events=events)


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


def _decider(policy: Any, timeout: float | None) -> tuple[str, Callable[[], Decider], bool]:
    """A name, what makes a fresh decider, and whether it belongs to this process: an object, or a foreign decider."""
    if isinstance(policy, str):
        return policy, lambda: naming.decider(policy, timeout=timeout), policy.partition(":")[0] in naming.FOREIGN
    if isinstance(policy, Mapping) and len(policy) == 1:
        ((name, inner),) = policy.items()
        return str(name), *_decider(inner, timeout)[1:]
    if isinstance(policy, type) and issubclass(policy, Policy):
        return policy.__name__, lambda: PolicyDecider(policy()), False
    if isinstance(policy, Policy):
        return type(policy).__name__, lambda: PolicyDecider(policy), True
    if callable(getattr(policy, "decide", None)) and hasattr(policy, "traits"):
        return str(policy.name), lambda: policy, True
    expected = "a name, a class derived from Policy, one of its objects, or a decider"
    raise InputError("policy", "not a policy", expected=expected, found=type(policy).__name__)
