"""Workflows in DAX: tasks and who waits for whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilothouse.formats import dax
from pilothouse.model.errors import InputError

DIAMOND = """<?xml version="1.0"?>
<adag xmlns="http://pegasus.isi.edu/schema/DAX" name="t">
  <job id="A" runtime="1.5"><uses file="x" link="input"/></job>
  <job id="B" runtime="2"/> <job id="C" runtime="3"/> <job id="D" runtime="4"/>
  <child ref="B"><parent ref="A"/></child>
  <child ref="C"><parent ref="A"/><parent ref="A"/></child>
  <child ref="D"><parent ref="B"/><parent ref="C"/></child>
</adag>"""


def read(tmp_path: Path, text: str) -> dax.Workflow:
    path = tmp_path / "w.dax"
    path.write_text(text)
    return dax.read(path, "wf3")


def test_a_diamond(tmp_path: Path) -> None:
    workflow = read(tmp_path, DIAMOND)
    tasks = {task.id: task for task in workflow.tasks}
    assert workflow.name == "wf3" and list(tasks) == ["A", "B", "C", "D"]
    assert [task.runtime_s for task in workflow.tasks] == [1.5, 2.0, 3.0, 4.0]
    assert [child.id for child in tasks["A"].children] == ["B", "C"]
    assert [tasks[name].parents for name in "ABCD"] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<adag><job", "not XML"),
        ("<dag/>", "not a DAX workflow"),
        ("<adag/>", "a workflow without jobs"),
        ('<adag><job runtime="1"/></adag>', "a <job> without id"),
        ('<adag><job id="A"/></adag>', "job A: runtime; expected seconds, 0 or more, found ''"),
        ('<adag><job id="A" runtime="-1"/></adag>', "expected seconds, 0 or more"),
        ('<adag><job id="A" runtime="1"/><job id="A" runtime="1"/></adag>', "two jobs have the id 'A'"),
        ('<adag><job id="A" runtime="1"/><child ref="Z"/></adag>', "names a job that does not exist; found 'Z'"),
        (DIAMOND.replace("</adag>", '<child ref="A"><parent ref="D"/></child></adag>'), "wait for each other in a circle"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert problem in str(caught.value)
