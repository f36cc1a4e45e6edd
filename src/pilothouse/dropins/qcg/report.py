"""One entry of jobs.report: a finished job or iteration, as a JSON line (0.14.2) or as text (both dialects).

The text of a job in the specification's dialect is indented by blanks and says where it ran as `node:cores`; that of
0.14.2 is indented by tabs and names the cores. Tools that read either find what they know.
"""

from __future__ import annotations

import msgspec

from pilothouse.dropins.qcg.answers import date_text, visible_history
from pilothouse.dropins.qcg.registry import Entry, state_name
from pilothouse.formats.qcg_description import Dialect

FORMATS = ("json", "text", "none")


def json_entry(entry: Entry, index: int | None) -> str:
    life = entry.life_of(index)
    dialect = entry.dialect
    data: dict[str, object] = {
        "name": entry.full_name(index),
        "state": state_name(life.state, dialect),
        "history": [
            {"state": name, "date": date_text(when).replace(" ", "T")} for name, when in visible_history(life, dialect)
        ],
        # The JSON form exists in 0.14.2 only, so it is always told in its words.
        "runtime": life.runtime.shown(Dialect.LATER) if life.runtime is not None else {},
    }
    if index is None:
        description = entry.description
        data["execution"] = description.execution.written()
        data["resources"] = description.resources.written()
        if description.after:
            data["dependencies"] = {"after": list(description.after)}
    if life.messages is not None:
        data["messages"] = life.messages
    return msgspec.json.encode(data).decode() + "\n"


def text_entry(entry: Entry, index: int | None) -> str:
    life = entry.life_of(index)
    dialect = entry.dialect
    specification = dialect is Dialect.SPECIFICATION
    indent = "    " if specification else "\t"
    message = f" {life.messages}" if life.messages is not None else ("" if specification else " ")
    lines = [f"{entry.full_name(index)} ({state_name(life.state, dialect)}){message}"]
    lines.extend(f"{indent}{date_text(when)}: {name}" for name, when in visible_history(life, dialect))
    if life.runtime is not None:
        lines.extend(f"{indent}{key}: {value}" for key, value in life.runtime.shown(dialect).items())
    elif not specification:
        lines.append(indent)
    return "\n".join(lines) + "\n"


def report_entry(entry: Entry, index: int | None, report_format: str) -> str:
    if report_format == "none":
        return ""
    return json_entry(entry, index) if report_format == "json" else text_entry(entry, index)
