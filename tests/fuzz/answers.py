"""What every parser and codec answers to inputs that differ from a seed in one place, and the stories of state machines
(stories.py), recorded as text: `recorded/NAME.xz`.

A change of behaviour that was not meant shows here. Where it was meant, record anew and look at what is printed:

    PYTHONPATH=src:tests:. python -m fuzz.answers [NAME...]
"""

from __future__ import annotations

import json
import lzma
import os
import re
import sys
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path
from random import Random

import msgspec

from fuzz.stories import STORIES
from fuzz.targets import TARGETS, folder
from pilothouse.model.errors import PilothouseError
from pilothouse.worlds.live.records import JobKnown, job_from

RECORDED = Path(__file__).parent / "recorded"
MOST_INPUTS = 1200
"""Of a target."""
MOST_BYTES = 3000
"""Of a seed."""
SHOWN_LINES, SHOWN_CHARACTERS = 12, 400
"""Of a difference."""
_BETWEEN = "\n\f\n"
"""Answers in a file."""
LEFT_OUT = {"grid", "policy", "status", "batsim5-config", "web-request", "now-json", "journal"}
"""They return nothing that could be compared."""
_TOKEN = re.compile(rb'"[^"\n]*"|[0-9]+(?:\.[0-9]+)?|[A-Za-z_]+|\n|[^\s]')
_XML_DECLARATION = re.compile(rb"<\?xml[^>]*>")
"""Left as it is: which declarations are refused depends on the version of expat."""
_VALUES: tuple[object, ...] = (None, True, -1, 0, 2, 2.5, 1e30, "", "x", "2", [], {}, ["x"], {"x": 1})


def names() -> list[str]:
    return [*(name for name in TARGETS if name not in LEFT_OUT and not name.endswith("-door")), *STORIES]


def inputs(name: str) -> list[bytes]:
    """The seeds, and each of them with one change at a time; an even choice of them if there are many. Of a story: numbers."""
    if name in STORIES:
        return [str(seed).encode() for seed in range(STORIES[name][1])]
    seeds = [seed for seed in TARGETS[name].seeds() if len(seed) <= MOST_BYTES]
    found = list(seeds)
    share = MOST_INPUTS // len(seeds) + 1
    for seed in seeds:
        near = list(dict.fromkeys(neighbours(seed)))
        found += near[:: len(near) // share + 1]
    return found


def neighbours(seed: bytes) -> Iterator[bytes]:
    try:
        value = json.loads(seed)
    except ValueError:
        declared = _XML_DECLARATION.match(seed)
        first = declared.group() if declared is not None else b""
        rest = seed[len(first) :]
        yield from (first + other for other in (_other_texts(rest) if _is_text(seed) else _other_bytes(rest)))
        return
    for other in _others(value):
        yield json.dumps(other).encode()


def _is_text(seed: bytes) -> bool:
    return seed.isascii() and b"\0" not in seed


def _others(value: object) -> Iterator[object]:
    """A JSON value with one part changed, left out or added."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield {name: part for name, part in value.items() if name != key}
            yield from ({**value, key: other} for other in _others(inner))
        yield {**value, "surplus": 1}
    elif isinstance(value, list):
        for index, inner in enumerate(value[:4]):
            yield value[:index] + value[index + 1 :]
            yield from ([*value[:index], other, *value[index + 1 :]] for other in _others(inner))
        yield [*value, *value[:1]]
    elif isinstance(value, str):
        yield from _words(value)
    elif isinstance(value, int | float):
        yield value + 1
    yield from _VALUES


def _words(text: str) -> Iterator[str]:
    yield from (found.decode() for found in _other_texts(text.encode()[:60]))


def _other_texts(seed: bytes) -> Iterator[bytes]:
    """A text with one word, number or sign changed, left out or doubled."""
    for match in _TOKEN.finditer(seed):
        found = match[0]
        others = [b"", found + found]
        if found.isdigit():
            others += [b"0", b"%d" % (int(found[:9]) + 1), b"-1", b"x"]
        elif found.isalpha():
            others += [b"x", b"7", found.swapcase()]
        elif found.startswith(b'"'):
            others += [b'""', b'"x"', b"7", b"null"]
        for other in others:
            yield seed[: match.start()] + other + seed[match.end() :]


def _other_bytes(seed: bytes) -> Iterator[bytes]:
    for at in range(len(seed)):
        yield seed[:at] + bytes((seed[at] ^ 1,)) + seed[at + 1 :]
        yield seed[:at] + bytes((seed[at] ^ 0x80,)) + seed[at + 1 :]
        yield seed[:at] + seed[at + 1 :]


def answer(name: str, data: bytes) -> str:
    """Text of one or more lines; a story has a line or more for each step."""
    if name in STORIES:
        return "\n".join(map(show, STORIES[name][0](Random(int(data)))))
    try:
        shown = show(TARGETS[name].run(data))
    except PilothouseError as problem:
        shown = show(problem)
    return shown.replace(f"{folder()}/", "").replace(str(folder()), "FOLDER").replace(f"-{os.getpid()}", "")


def show(value: object) -> str:
    """Like repr, for values whose repr leaves something out."""
    if isinstance(value, float):
        return f"{value:.9g}"  # the last digits of sums differ between versions of Python
    if isinstance(value, Exception):
        return f"{type(value).__name__}: {value}".replace("\n", " ")
    if isinstance(value, JobKnown) and value.data:
        return f"JobKnown({show(value.job_id)}, {value.task_id}, {show(job_from(value.data))})"
    if isinstance(value, msgspec.Struct):
        return f"{type(value).__name__}({', '.join(_fields(value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{show(key)}: {show(part)}' for key, part in value.items())}}}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(show, value)))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(show, value))}]"
    if hasattr(value, "__next__"):
        return show(list(islice(value, 200)))  # type: ignore[call-overload]
    if type(value).__repr__ is object.__repr__:
        slots = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
        parts = [getattr(value, name) for name in slots if hasattr(value, name)] or list(getattr(value, "__dict__", {}).values())
        return f"{type(value).__name__}({', '.join(map(show, parts))})"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _fields(value: msgspec.Struct) -> Iterator[str]:
    """Fields that have their default value are left out, so that a new field changes no answer that does not use it."""
    for name, default in _defaults(type(value)):
        found = getattr(value, name)
        if default is msgspec.NODEFAULT:
            yield show(found)
        elif found != default:
            yield f"{name}={show(found)}"


@cache
def _defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, object], ...]:
    return tuple(
        (field.name, field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory())
        for field in msgspec.structs.fields(kind)
    )


def recorded(name: str) -> list[str]:
    """Those of before; none if nothing was recorded yet."""
    path = RECORDED / f"{name}.xz"
    return lzma.decompress(path.read_bytes()).decode("utf-8", "surrogateescape").split(_BETWEEN) if path.exists() else []


def differences(name: str) -> Iterator[tuple[bytes, str]]:
    """Inputs with another answer than before: the input, and how the answers differ."""
    for data, was in zip_longest(inputs(name), recorded(name)):
        now = "(no such input any more)" if data is None else answer(name, data)
        if now != was:
            yield data or b"", difference(was or "(not recorded)", now)


def difference(was: str, now: str) -> str:
    lines = unified_diff(_pieces(was), _pieces(now), "before", "now", lineterm="", n=1)
    return "\n".join(line[:SHOWN_CHARACTERS] for line in islice(lines, 2, 2 + SHOWN_LINES))


def _pieces(text: str) -> list[str]:
    """Lines, and the objects in them: a difference far to the right is seen."""
    return re.sub(r", (?=[A-Z]\w*\()", ",\n    ", text).split("\n")


def record(name: str) -> int:
    """The number of answers."""
    found = [answer(name, data) for data in inputs(name)]
    assert not any(_BETWEEN in one for one in found)
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{name}.xz").write_bytes(lzma.compress(_BETWEEN.join(found).encode("utf-8", "surrogateescape")))
    return len(found)


def main() -> None:
    for name in sys.argv[1:] or names():
        for data, changed in islice(differences(name), 5):
            print(f"{name}: input {data[:200]!r}\n{changed}")
        print(f"{name}: {record(name)} answers")


if __name__ == "__main__":
    main()
