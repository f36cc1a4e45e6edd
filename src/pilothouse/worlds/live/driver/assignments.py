"""Assignments: what one decision gives to one engine, how it is sent and how it is ended early. Sans-IO."""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.model.idset import IdSet
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.engines import EngineProxy
from pilothouse.worlds.live.driver.state import DriverState
from pilothouse.worlds.live.driver.task_groups import CUT_S, TaskGroup
from pilothouse.worlds.live.driver.update import KILL_NOTE, record
from pilothouse.worlds.live.wire.messages import Assignment, Kill, Start


def send_assignment(driver: DriverState, proxy: EngineProxy, number: int, group: TaskGroup) -> None:
    slots = tuple(IdSet(proxy.part(group.units)))
    shape = group.job.shape
    wanted = shape.gpus_per_node if shape is not None else 0
    if wanted and not group.gpus:
        group.gpus = tuple(proxy.free_gpus[:wanted])
        del proxy.free_gpus[:wanted]
    environment = group.environment
    if group.job.walltime != environment.walltime:
        environment = msgspec.structs.replace(environment, walltime=group.job.walltime)
    assignment = Assignment(
        number, slots, list(group.tasks.values()), environment, group.gpus,
        _nodes_of(driver, group.units) if group.job.id in driver.spanning or not group.from_file else "",
        CUT_S if group.size > 1 and proxy.joined.context not in driver.context_limits else inf,
    )  # fmt: skip
    proxy.channel.push(Start([assignment]))
    driver.speak_to[proxy.id] = None


def _nodes_of(driver: DriverState, units: IdSet) -> str:
    """`name:count` for each node of the set, in order."""
    parts = []
    rest = units
    while rest:
        proxy = driver.engines.owner(rest.first())
        if proxy is None:  # it has left, and the job is about to be ended
            rest -= IdSet.of([rest.first()])
            continue
        parts.append(f"{proxy.node.name}:{len(rest & proxy.units)}")
        rest -= proxy.units
    return ",".join(parts)


def kill_group(driver: DriverState, group: TaskGroup, reason: str) -> None:
    """Tells its engine to end it."""
    group.kill_reason = group.kill_reason or reason
    proxy = driver.engines.present.get(group.engine)
    if proxy is not None and proxy.welcomed:
        proxy.channel.push(Kill((group.assignment,), reason))
        driver.speak_to[proxy.id] = None


def kill_for_good(driver: DriverState, group: TaskGroup, now: float) -> None:
    """A user or the decider ends it. Recorded, as its engine may hear of it from the next driver only."""
    record(driver, r.Note(f"{KILL_NOTE}{group.job.id}", b"killed"), now)
    kill_group(driver, group, "killed")
