"""Jobspec V1 (RFC 25, a subset of RFC 14): what a Flux job asks for.

In: JSON bytes, or the decoded object. Out: a `Jobspec` that says how many nodes, slots per node, cores and GPUs per
slot, for how long, where; or an InputError that names the JSON path. `encode` writes the same document again. Beyond V1,
a slot may hold nodes, as Flux's own schedulers accept it.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import msgspec

from pilothouse.model.errors import InputError, quoted

MOST_COUNT = 2**31 - 1
LONGEST_S = sys.float_info.max


class Jobspec(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `nodes` is 0 if slots may be on any node; otherwise `slots` counts the slots of each node."""

    slots: int
    cores_per_slot: int
    gpus_per_slot: int = 0
    nodes: int = 0
    nodes_per_slot: int = 0
    """A slot spans so many nodes (`slot > node`); then `slots` is 1. 0: slots are on nodes."""
    exclusive: bool = False
    duration_s: float = 0.0
    """0: no limit."""
    queue: str = ""
    constraints: dict[str, Any] | None = None
    command: tuple[str, ...] = ()
    label: str = "task"
    tasks: dict[str, int] = msgspec.field(default_factory=lambda: {"per_slot": 1})
    cwd: str = ""
    environment: dict[str, str] = {}
    attributes: dict[str, Any] = {}
    """All `attributes` as they were read."""

    @property
    def total_slots(self) -> int:
        if self.nodes_per_slot:
            return self.nodes // self.nodes_per_slot
        return self.slots * (self.nodes or 1)

    @property
    def total_cores(self) -> int:
        return self.slots * (self.nodes or 1) * self.cores_per_slot

    @property
    def walltime_s(self) -> float:
        return self.duration_s or math.inf


def parse(data: bytes | str, *, where: str = "jobspec", whole: bool = True) -> Jobspec:
    """Reads JSON text. If not `whole`, only what a scheduler needs is read and checked: managers send a redacted copy."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(where, f"not JSON: {error}") from None
    return from_object(document, where=where, whole=whole)


def from_object(document: object, *, where: str = "jobspec", whole: bool = True) -> Jobspec:
    """Reads the decoded document."""
    top = _object(document, where)
    if top.get("version") != 1 or isinstance(top.get("version"), bool):
        raise InputError(f"{where}.version", "not a V1 jobspec", expected="1", found=quoted(top.get("version")))
    if whole and (unknown := top.keys() - {"version", "resources", "tasks", "attributes"}):
        raise InputError(where, "a key that V1 does not have", found=quoted(min(unknown)))
    nodes, exclusive, slot, path = _slot_of(top.get("resources"), f"{where}.resources")
    slots, spans, content, content_path = _count(slot, path), 0, slot.get("with"), f"{path}.with"
    inner = content[0] if isinstance(content, list) and len(content) == 1 else None
    if not nodes and isinstance(inner, dict) and inner.get("type") == "node" and "with" in inner:
        # `slot > node`: Flux's own schedulers accept it.
        content_path += "[0]"
        spans = _count(inner, content_path)
        slots, nodes, exclusive = 1, slots * spans, exclusive or _flag(inner, content_path)
        content, content_path = inner.get("with"), f"{content_path}.with"
        if nodes > MOST_COUNT:
            raise InputError(path, "too many nodes", found=str(nodes))
    cores, gpus = _slot_content(content, content_path)
    label = slot.get("label")
    if not isinstance(label, str) or not label:
        raise InputError(f"{path}.label", "a slot needs a label", found=quoted(label))
    command, tasks = _tasks(top.get("tasks"), label, f"{where}.tasks") if whole else ((), {"per_slot": 1})
    attributes = _object(top.get("attributes") or {}, f"{where}.attributes")
    system = _object(attributes.get("system") or {}, f"{where}.attributes.system")
    at = f"{where}.attributes.system"
    constraints = system.get("constraints")
    environment = _object(system.get("environment") or {}, f"{at}.environment") if whole else {}
    return Jobspec(
        slots=slots,
        cores_per_slot=cores,
        gpus_per_slot=gpus,
        nodes=nodes,
        nodes_per_slot=spans,
        exclusive=exclusive,
        duration_s=_duration(system.get("duration"), f"{at}.duration"),
        queue=_text(system.get("queue"), f"{at}.queue"),
        constraints=None if constraints is None else _object(constraints, f"{at}.constraints"),
        command=command,
        label=label,
        tasks=tasks,
        cwd=_text(system.get("cwd"), f"{at}.cwd") if whole else "",
        environment={key: str(text) for key, text in environment.items()},
        attributes=attributes if whole else {},
    )


def to_object(spec: Jobspec) -> dict[str, Any]:
    """The document that `from_object` reads."""
    content: list[dict[str, Any]] = [{"type": "core", "count": spec.cores_per_slot}]
    if spec.gpus_per_slot:
        content.append({"type": "gpu", "count": spec.gpus_per_slot})
    resource: dict[str, Any] = {"type": "slot", "count": spec.slots, "with": content, "label": spec.label}
    if spec.nodes_per_slot:
        inner = {"type": "node", "count": spec.nodes_per_slot, "with": content}
        resource |= {"count": spec.nodes // spec.nodes_per_slot, "with": [inner]}
    elif spec.nodes:
        resource = {"type": "node", "count": spec.nodes, "with": [resource]}
    if spec.exclusive:
        resource["exclusive"] = True
    system: dict[str, Any] = dict(spec.attributes.get("system") or {})
    system["duration"] = spec.duration_s
    for key, value in (("queue", spec.queue), ("constraints", spec.constraints), ("cwd", spec.cwd)):
        if value:
            system[key] = value
    if spec.environment:
        system["environment"] = spec.environment
    task = {"command": list(spec.command), "slot": spec.label, "count": spec.tasks}
    attributes = {**spec.attributes, "system": system}
    return {"version": 1, "resources": [resource], "tasks": [task], "attributes": attributes}


def encode(spec: Jobspec) -> bytes:
    return msgspec.json.encode(to_object(spec))


def _slot_of(resources: object, where: str) -> tuple[int, bool, dict[str, Any], str]:
    """(nodes, exclusive, the slot, its path). V1 knows `slot` and `node > slot`, nothing else."""
    resource, path = _only(resources, where)
    if resource.get("type") == "slot":
        return 0, _flag(resource, path), resource, path
    if resource.get("type") != "node":
        raise InputError(f"{path}.type", "V1 begins with a node or a slot", found=quoted(resource.get("type")))
    slot, slot_path = _only(resource.get("with"), f"{path}.with")
    if slot.get("type") != "slot":
        raise InputError(f"{slot_path}.type", "a node holds slots", found=quoted(slot.get("type")))
    return _count(resource, path), _flag(resource, path) or _flag(slot, slot_path), slot, slot_path


def _slot_content(children: object, where: str) -> tuple[int, int]:
    if not isinstance(children, list) or not 1 <= len(children) <= 3:
        raise InputError(where, "a slot holds cores, and may hold GPUs and memory", found=quoted(children))
    counts: dict[str, int] = {}
    for i, child in enumerate(children):
        path = f"{where}[{i}]"
        kind = _object(child, path).get("type")
        if kind not in ("core", "gpu", "memory") or kind in counts:
            raise InputError(f"{path}.type", "a slot holds one entry each of cores, GPUs and memory", found=quoted(kind))
        # Flux's inventories say nothing of memory: it is not counted, as by Flux's own schedulers.
        counts[kind] = _count(child, path, least=1 if kind == "core" else 0)
    if "core" not in counts:
        raise InputError(where, "a slot needs cores", found=quoted(children))
    return counts["core"], counts.get("gpu", 0)


def _tasks(tasks: object, label: str, where: str) -> tuple[tuple[str, ...], dict[str, int]]:
    task, path = _only(tasks, where)
    command = task.get("command")
    if isinstance(command, str):
        command = [command]
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise InputError(f"{path}.command", "a command is a list of words", found=quoted(command))
    if task.get("slot") != label:
        raise InputError(f"{path}.slot", f"no slot of this name, only {label!r}", found=quoted(task.get("slot")))
    count = _object(task.get("count"), f"{path}.count")
    if len(count) != 1 or not count.keys() <= {"per_slot", "total"}:
        raise InputError(f"{path}.count", "expected per_slot or total", found=quoted(count))
    return tuple(command), {key: _positive(value, f"{path}.count.{key}") for key, value in count.items()}


def _only(items: object, where: str) -> tuple[dict[str, Any], str]:
    if not isinstance(items, list) or len(items) != 1:
        raise InputError(where, "V1 has a list of exactly one entry here", found=quoted(items))
    return _object(items[0], f"{where}[0]"), f"{where}[0]"


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(where, "expected an object", found=quoted(value))
    return value


def _count(resource: dict[str, Any], where: str, least: int = 1) -> int:
    return _positive(resource.get("count"), f"{where}.count", least)


def _positive(value: object, where: str, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_COUNT:
        raise InputError(where, "not a count", expected=f"an integer of at least {least}", found=quoted(value))
    return value


def _flag(resource: dict[str, Any], where: str) -> bool:
    value = resource.get("exclusive", False)
    if not isinstance(value, bool):
        raise InputError(f"{where}.exclusive", "expected true or false", found=quoted(value))
    return value


def _duration(value: object, where: str) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_S:
        raise InputError(where, "not a duration", expected="seconds, 0 for none", found=quoted(value))
    return float(value)


def _text(value: object, where: str) -> str:
    if value is not None and not isinstance(value, str):
        raise InputError(where, "expected a text", found=quoted(value))
    return value or ""

