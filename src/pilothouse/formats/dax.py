"""Workflows in DAX (Pegasus' XML): tasks with runtimes, and which task waits for which.

`read(path, name)` returns a Workflow. It reads what a simulation needs, `<job id= runtime=>` and
`<child ref=><parent ref=/></child>`, and ignores files and arguments.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from math import isfinite
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from pilothouse.formats.text_input import read_bytes
from pilothouse.model.errors import InputError, quoted


class Task(msgspec.Struct, eq=False):
    id: str
    runtime_s: float
    children: list[Task] = []
    parents: int = 0
    """How many tasks must be done before this one."""


class Workflow(msgspec.Struct):
    name: str
    path: str
    tasks: list[Task]
    """In the order of the file."""


def read(path: str | Path, name: str = "wf0") -> Workflow:
    """Reads a workflow; InputError says what is wrong with it."""
    try:
        root = ElementTree.fromstring(read_bytes(path))
    except ElementTree.ParseError as problem:
        line, column = problem.position
        raise InputError(f"{path}:{line}:{column}", f"not XML: {problem}") from None
    if _local(root.tag) != "adag":
        raise InputError(str(path), "not a DAX workflow", expected="<adag>", found=f"<{_local(root.tag)}>")
    tasks: dict[str, Task] = {}
    for element in root:
        if _local(element.tag) == "job":
            task = _task(element, path)
            if task.id in tasks:
                raise InputError(str(path), f"two jobs have the id {task.id!r}")
            tasks[task.id] = task
    if not tasks:
        raise InputError(str(path), "a workflow without jobs")
    for element in root:
        if _local(element.tag) == "child":
            _join(element, tasks, path)
    _refuse_circles(tasks, path)
    return Workflow(name, str(Path(path).absolute()), list(tasks.values()))


def _local(tag: str) -> str:
    """A tag without its namespace."""
    return tag.rpartition("}")[2]


def _task(element: ElementTree.Element, path: str | Path) -> Task:
    task_id = element.get("id")
    if not task_id:
        raise InputError(str(path), "a <job> without id")
    text = element.get("runtime", "")
    try:
        runtime = float(text)
    except ValueError:
        runtime = -1.0
    if not (runtime >= 0 and isfinite(runtime)):
        raise InputError(f"{path}: job {task_id}", "runtime", expected="seconds, 0 or more", found=quoted(text))
    return Task(task_id, runtime, [])


def _join(element: ElementTree.Element, tasks: dict[str, Task], path: str | Path) -> None:
    child = _named(element, tasks, path)
    for inner in element:
        if _local(inner.tag) == "parent":
            parent = _named(inner, tasks, path)
            if child not in parent.children:
                parent.children.append(child)
                child.parents += 1


def _named(element: ElementTree.Element, tasks: dict[str, Task], path: str | Path) -> Task:
    name = element.get("ref", "")
    task = tasks.get(name)
    if task is None:
        raise InputError(str(path), f"<{_local(element.tag)}> names a job that does not exist", found=quoted(name))
    return task


def _refuse_circles(tasks: dict[str, Task], path: str | Path) -> None:
    try:
        TopologicalSorter({task.id: [child.id for child in task.children] for task in tasks.values()}).prepare()
    except CycleError as problem:
        raise InputError(str(path), f"jobs wait for each other in a circle, {problem.args[1][0]!r} among them") from None
