#!/usr/bin/env python3
"""Makes the batprotocol codec from its schema.

    tools/gen_batprotocol.py

Reads src/pilothouse/protocols/batprotocol/schema.fbs and writes messages.py (enums and structs), binary.py (FlatBuffers)
and text.py (JSON) beside it. They are not tracked by git: setup.py calls `write` whenever the package is built or installed.
It understands the part of the schema language that batprotocol uses: tables, enums of bytes, unions of tables, scalars,
strings and vectors, defaults (null too), `(required)`.
"""

# ruff: noqa: E501 (lines of generated code are easier to read unbroken)

from __future__ import annotations

import dataclasses
import keyword
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent.parent / "src/pilothouse/protocols/batprotocol"
HEADER = "# Generated from schema.fbs by tools/gen_batprotocol.py; do not edit.\n# ruff: noqa\n"

SCALARS = {  # schema type -> struct code, width, Python type
    "bool": ("?", 1, "bool"),
    "uint32": ("I", 4, "int"),
    "uint64": ("Q", 8, "int"),
    "float64": ("d", 8, "float"),
}
MOST = {"uint32": 2**32 - 1, "uint64": 2**64 - 1}


@dataclasses.dataclass
class Field:
    name: str
    type: str
    vector: bool
    default: str | None
    required: bool
    slot: int = 0  # vtable slot of the value (a union's type is the one before)


@dataclasses.dataclass
class Schema:
    tables: dict[str, list[Field]]
    enums: dict[str, list[str]]
    unions: dict[str, list[str]]

    def kind(self, field: Field) -> str:
        if field.vector:
            return "vector"
        for kind, names in (("scalar", SCALARS), ("enum", self.enums), ("union", self.unions), ("table", self.tables)):
            if field.type in names:
                return kind
        if field.type == "string":
            return "string"
        raise SystemExit(f"schema.fbs: unknown type {field.type!r} of field {field.name!r}")

    def recursive(self) -> set[str]:
        """Tables that can contain themselves."""

        def below(name: str) -> set[str]:
            found: set[str] = set()
            todo = [name]
            while todo:
                for field in self.tables[todo.pop()]:
                    for inner in self.unions.get(field.type, [field.type] if field.type in self.tables else []):
                        if inner not in found:
                            found.add(inner)
                            todo.append(inner)
            return found

        return {name for name in self.tables if name in below(name)}


def parse(text: str) -> Schema:
    text = re.sub(r"//.*", "", text)
    schema = Schema({}, {}, {})
    for kind, name, body in re.findall(r"(table|enum|union)\s+(\w+)(?:\s*:\s*byte)?\s*\{(.*?)\}", text, re.S):
        if kind != "table":
            getattr(schema, kind + "s")[name] = [part.strip() for part in body.split(",") if part.strip()]
            continue
        fields = schema.tables[name] = []
        for line in filter(None, (part.strip() for part in body.split(";"))):
            match = re.fullmatch(r"(\w+)\s*:\s*(\[?)(\w+)\]?(?:\s*=\s*(\w+))?\s*(\(required\))?", line)
            if match is None:
                raise SystemExit(f"schema.fbs: cannot read {line!r} in table {name}")
            fields.append(Field(match[1], match[3], bool(match[2]), match[4], bool(match[5])))
    for fields in schema.tables.values():
        slot = 0
        for field in fields:
            slot += field.type in schema.unions
            field.slot = slot
            slot += 1
    return schema


def python_name(value: str) -> str:
    return value + "_" if keyword.iskeyword(value) else value


class Writer:
    """The three generated modules of one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.loops = schema.recursive()

    # -- messages.py

    def annotation(self, field: Field) -> str:
        kind = self.schema.kind(field)
        if kind == "scalar":
            base = SCALARS[field.type][2]
            return f"{base} | None" if field.default == "null" else base
        if kind == "enum":
            return field.type
        if kind == "vector":
            inner = {"string": "str"}.get(field.type, SCALARS.get(field.type, ("", 0, field.type))[2])
            base = f"list[{inner}]"
        else:
            base = {"string": "str"}.get(field.type, field.type)
        return base if field.required else f"{base} | None"

    def default(self, field: Field) -> str:
        """The default as a Python expression; required fields have none."""
        kind = self.schema.kind(field)
        if kind == "enum":
            return f"{field.type}.{python_name(field.default or self.schema.enums[field.type][0])}"
        if kind == "scalar" and field.default != "null":
            if field.type == "bool":
                return "True" if field.default == "true" else "False"
            return {"float64": "0.0"}.get(field.type, "0") if field.default is None else field.default
        return "None"

    def ordered(self, name: str) -> list[Field]:
        """Fields in the order of the struct: the required ones first."""
        return sorted(self.schema.tables[name], key=lambda field: not field.required)

    def messages(self) -> str:
        out = [
            '"""The messages of batprotocol as frozen structs: enums, tables, unions. Names are those of the schema.\n\n'
            "Required fields come first; an absent string, vector, table, union or optional number is None.\n"
            '"""\n',
            HEADER,
            "from __future__ import annotations\n",
            "from enum import IntEnum\nfrom typing import TypeAlias\n\nimport msgspec\n\n",
        ]
        for name, values in self.schema.enums.items():
            out.append(f"class {name}(IntEnum):")
            out += [f"    {python_name(value)} = {number}" for number, value in enumerate(values)]
            out.append("\n")
        for name in self.schema.tables:
            out.append(f"class {name}(msgspec.Struct, frozen=True):")
            fields = self.ordered(name)
            for field in fields:
                tail = "" if field.required else f" = {self.default(field)}"
                out.append(f"    {field.name}: {self.annotation(field)}{tail}")
            if not fields:
                out.append("    pass")
            out.append("\n")
        for name, members in self.schema.unions.items():
            body = "\n    | ".join(members)
            out.append(f"{name}: TypeAlias = (\n    {body}\n)")
        return "\n".join(out) + "\n"

    # -- binary.py

    def layout(self, name: str) -> tuple[list[tuple[int, str, Field, bool]], int, int, int]:
        """Where we put fields: [(offset, code, field, is union's type)], size of the table, vtable size, table's place."""
        items: list[tuple[str, Field, bool]] = []
        for field in self.schema.tables[name]:
            kind = self.schema.kind(field)
            if kind == "union":
                items += [("B", field, True), ("I", field, False)]
            elif kind == "scalar":
                items.append((SCALARS[field.type][0], field, False))
            else:
                items.append(("b" if kind == "enum" else "I", field, False))
        width = {"B": 1, "?": 1, "b": 1, "I": 4, "Q": 8, "d": 8}
        fours = [item for item in items if width[item[0]] == 4]
        placed: list[tuple[int, str, Field, bool]] = []
        end = 4
        eights = [item for item in items if width[item[0]] == 8]
        if eights and fours:  # one of four bytes fills the hole behind the distance to the vtable
            placed.append((4, *fours.pop(0)))
            end = 8
        for item in eights:
            end = (end + 7) & ~7
            placed.append((end, *item))
            end += 8
        for item in fours:
            placed.append((end, *item))
            end += 4
        for item in items:
            if width[item[0]] == 1:
                placed.append((end, *item))
                end += 1
        slots = self.slots(name)
        vtable = 4 + 2 * slots
        return placed, end, vtable, (vtable + 7) & ~7

    def slots(self, name: str) -> int:
        fields = self.schema.tables[name]
        return fields[-1].slot + 1 if fields else 0

    def put(self, name: str) -> list[str]:
        placed, end, vtable, at = self.layout(name)
        total = (at + end + 7) & ~7
        body: list[str] = []
        offset_of = {(field.slot if not is_type else field.slot - 1): offset for offset, _, field, is_type in placed}
        optional: dict[int, str] = {}  # slot -> expression that is true if the field is present
        values: dict[tuple[str, bool], str] = {}
        parts: list[str] = []
        for i, field in enumerate(self.schema.tables[name]):
            kind = self.schema.kind(field)
            get = f"m.{field.name}"
            slot_at = at + offset_of[field.slot]
            if kind == "scalar":
                if field.default == "null":
                    body.append(f"v{i} = {get}")
                    optional[field.slot] = f"v{i} is not None"
                    values[field.name, False] = f"v{i} or 0"
                else:
                    values[field.name, False] = get
                continue
            if kind == "enum":
                values[field.name, False] = get
                continue
            start = " + ".join([str(total - slot_at), *(f"len({part})" for part in parts)])
            part = f"p{i}"
            lines: list[str] = []
            if kind == "union":
                lines += [f"t{i}, put, at = _MEMBERS_{field.type}[type(v{i})]", f"{part} = put(v{i})", f"o{i} = {start} + at"]
            elif kind == "string":
                lines += [f"{part} = put_text(v{i})", f"o{i} = {start}"]
            elif kind == "table":
                lines += [f"{part} = _put_{field.type}(v{i})", f"o{i} = {start} + {self.layout(field.type)[3]}"]
            elif field.type == "string":
                lines += [f"{part} = put_parts([put_text(x) for x in v{i}], 0)", f"o{i} = {start}"]
            elif field.type in SCALARS:
                code, width, _ = SCALARS[field.type]
                shift = " + 4" if width == 8 else ""
                lines += [f'{part} = put_numbers("{code}", {width}, v{i})', f"o{i} = {start}{shift}"]
            else:
                inner = self.layout(field.type)[3]
                lines += [f"{part} = put_parts([_put_{field.type}(x) for x in v{i}], {inner})", f"o{i} = {start}"]
            body.append(f"v{i} = {get}")
            if field.required:
                body += lines
            else:
                body.append(f"if v{i} is None:")
                nothing = f"{part}, o{i} = b'', 0".replace("'", '"')
                body += [f"    t{i} = 0"] if kind == "union" else []
                body.append(f"    {nothing}")
                body.append("else:")
                body += ["    " + line for line in lines]
                optional[field.slot] = f"o{i}"
                if kind == "union":
                    optional[field.slot - 1] = f"o{i}"
            parts.append(part)
            values[field.name, False] = f"o{i}"
            if kind == "union":
                values[field.name, True] = f"t{i}"
        # the fixed part: vtable, padding, distance to it, fields
        codes, arguments, constant = "<", [], b""
        words = [vtable.to_bytes(2, "little"), end.to_bytes(2, "little")]

        def flush() -> None:
            nonlocal constant, codes
            if constant:
                codes += f"{len(constant)}s"
                arguments.append(repr(constant))
                constant = b""

        constant = b"".join(words)
        for slot in range(self.slots(name)):
            if slot in optional:
                flush()
                codes += "H"
                arguments.append(f"{offset_of[slot]} if {optional[slot]} else 0")
            else:
                constant += offset_of[slot].to_bytes(2, "little")
        constant += bytes(at - vtable) + at.to_bytes(4, "little")
        flush()
        position = 4
        for offset, code, field, is_type in placed:
            if offset > position:
                codes += f"{offset - position}x"
            codes += code
            arguments.append(values[field.name, is_type])
            position = offset + {"B": 1, "?": 1, "b": 1, "I": 4, "Q": 8, "d": 8}[code]
        codes += f"{total - at - position}x" if total > at + position else ""
        out = [f'_pack_{name} = struct.Struct("{codes}").pack\n\n', f"def _put_{name}(m: {name}) -> bytes:"]
        for line in body:
            out += ["    " + piece for piece in line.split("\n")]
        tail = "".join(f" + {part}" for part in parts)
        out.append(f"    return _pack_{name}({', '.join(arguments)}){tail}")
        return out

    def get(self, name: str) -> list[str]:
        fields = self.schema.tables[name]
        codes, defaults = [], []
        for field in fields:
            kind = self.schema.kind(field)
            if kind == "union":
                codes += ["B", "I"]
                defaults += ["0", "0"]
            elif kind == "scalar":
                codes.append(SCALARS[field.type][0])
                defaults.append(self.default(field))
            elif kind == "enum":
                codes.append("b")
                number = self.schema.enums[field.type].index(field.default) if field.default else 0
                defaults.append(str(number))
            else:
                codes.append("I")
                defaults.append("0")
        pack = f"({', '.join(defaults)}{',' if len(defaults) == 1 else ''})"
        out = [f'_TABLE_{name} = Table("{name}", {codes!r}, {pack})'.replace("'", '"')]
        out.append(f"_shape_{name} = _TABLE_{name}.shapes.get\n\n")
        out.append(f"def _get_{name}(r: Reader, pos: int) -> {name}:")
        if name in self.loops:
            out.append("    r.descend()")
        out += [
            "    data = r.data",
            "    at = pos - _I32(data, pos)[0]",
            f"    read, rest, sort, d = _shape_{name}(data[at : at + _U16(data, at)[0]]) or _TABLE_{name}.learn(data, at)",
        ]
        if not fields:
            return [*out, "    read(data, pos)", f"    return {name}()"]
        out += ["    v = read(data, pos) + rest", "    if sort is not None:", "        v = sort(v)"]
        found: dict[str, str] = {}
        for field in fields:
            kind = self.schema.kind(field)
            value = f"v[{field.slot}]"
            place = f"pos + d[{field.slot}] + {value}"
            if kind == "scalar":
                found[field.name] = value
                continue
            if kind == "enum":
                out += [
                    f"    if not 0 <= {value} < {len(self.schema.enums[field.type])}:",
                    f'        raise unknown_value("{field.type}", {value})',
                ]
                found[field.name] = f"_VALUES_{field.type}[{value}]"
                continue
            if kind == "union":
                get = f"_member_{field.type}(r, v[{field.slot - 1}], {place})"
                absent = f"not v[{field.slot - 1}] or not {value}"
                if not field.required:
                    out += [
                        f"    if v[{field.slot - 1}] and not {value}:",
                        f'        raise missing("{name}", "{field.name}")',
                    ]
            else:
                absent = f"not {value}"
                if kind == "string":
                    get = f"r.text({place})"
                elif kind == "table":
                    get = f"_get_{field.type}(r, {place})"
                elif field.type == "string":
                    get = f"r.texts({place})"
                elif field.type in SCALARS:
                    code, width, _ = SCALARS[field.type]
                    get = f'r.numbers({place}, "{code}", {width})'
                else:
                    get = f"[_get_{field.type}(r, at) for at in r.places({place})]"
            if field.required:
                out += [f"    if {absent}:", f'        raise missing("{name}", "{field.name}")']
                found[field.name] = get
            else:
                found[field.name] = f"None if {absent} else {get}"
        arguments = ", ".join(found[field.name] for field in self.ordered(name))
        if name in self.loops:
            out += [f"    made = {name}({arguments})", "    r.depth -= 1", "    return made"]
        else:
            out.append(f"    return {name}({arguments})")
        return out

    def binary(self) -> str:
        out = [
            '"""batprotocol messages in FlatBuffers: `encode(message) -> bytes`, `decode(bytes) -> Message`.\n\n'
            'Raises Malformed for what no schema-abiding writer writes; `codec` is the door that names the peer.\n"""\n',
            HEADER,
            "from __future__ import annotations\n",
            "import struct\nfrom collections.abc import Callable\nfrom typing import Any\n",
            "from pilothouse.protocols.batprotocol.messages import (",
            *(f"    {name}," for name in sorted([*self.schema.tables, *self.schema.enums, *self.schema.unions])),
            ")",
            "from pilothouse.protocols.batprotocol.wire import (\n    Malformed,\n    Reader,\n    Table,\n    missing,\n"
            "    put_numbers,\n    put_parts,\n    put_text,\n    unknown_member,\n    unknown_value,\n)\n",
        ]
        out.append('_I32 = struct.Struct("<i").unpack_from\n_U16 = struct.Struct("<H").unpack_from')
        for name in self.schema.enums:
            out.append(f"_VALUES_{name} = tuple({name})")
        out.append("\n")
        for name in self.schema.tables:
            out += [*self.put(name), "\n", *self.get(name), "\n"]
        for name, members in self.schema.unions.items():
            out.append(f"_MEMBERS_{name}: dict[type, tuple[int, Callable[[Any], bytes], int]] = {{")
            for number, member in enumerate(members, 1):
                out.append(f"    {member}: ({number}, _put_{member}, {self.layout(member)[3]}),")
            out.append("}")
            out.append(f"_GET_{name}: tuple[Callable[[Reader, int], {name}], ...] = (")
            out += [f"    _get_{member}," for member in members]
            out.append(")\n\n")
            out.append(f"def _member_{name}(r: Reader, number: int, pos: int) -> {name}:")
            out.append(f"    if number > {len(members)}:")
            out.append(f'        raise unknown_member("{name}", number)')
            out.append(f"    return _GET_{name}[number - 1](r, pos)\n\n")
        placed, _, _, at = self.layout("Message")
        now_at = 8 + at + next(offset for offset, _, field, _ in placed if field.name == "now")
        out.append(
            f'_ROOT = struct.Struct("<I4x")\n_ROOT_AT = _ROOT.pack({8 + at})\n\n\n'
            "# What stands before the only event of a message, but for the date.\n"
            "_ONE = _put_EventAndTimestamp(EventAndTimestamp())\n"
            "_BEFORE_ONE = (_ROOT_AT + _put_Message(Message(0.0, [EventAndTimestamp()])))[: -len(_ONE)]\n"
            f"_BEFORE_NOW, _AFTER_NOW = _BEFORE_ONE[:{now_at}], _BEFORE_ONE[{now_at + 8} :]\n"
            '_pack_date = struct.Struct("<d").pack\n\n\n'
            "def encode(message: Message) -> bytes:\n"
            "    events = message.events\n"
            "    try:\n"
            "        if events is not None and len(events) == 1:\n"
            "            return _BEFORE_NOW + _pack_date(message.now) + _AFTER_NOW + _put_EventAndTimestamp(events[0])\n"
            "        return _ROOT_AT + _put_Message(message)\n"
            "    except (struct.error, KeyError, UnicodeEncodeError) as problem:\n"
            '        raise Malformed(f"this message cannot be written: {problem}") from None\n\n\n'
            "def decode(data: bytes) -> Message:\n"
            "    if len(data) < 8:\n"
            '        raise Malformed(f"{len(data)} bytes are no message")\n'
            "    try:\n        return _get_Message(Reader(data), _ROOT.unpack_from(data)[0])\n"
            "    except struct.error:\n"
            '        raise Malformed(f"a table lies outside of the buffer of {len(data)} bytes") from None\n'
        )
        return "\n".join(out)

    # -- text.py

    def to_json(self, name: str) -> list[str]:
        out = [f"def _put_{name}(m: {name}) -> str:"]
        pieces: list[tuple[str | None, str]] = []  # condition, f-string body
        for field in self.schema.tables[name]:
            kind = self.schema.kind(field)
            get = f"m.{field.name}"
            head = f'"{field.name}": '
            if kind == "scalar":
                show = {
                    "bool": f'"true" if {get} else "false"',
                    "float64": f"json_number({get})",
                }.get(field.type, get)
                if field.default == "null":
                    show = f'"null" if {get} is None else {show}'
                pieces.append((None, f"{head}{{{show}}}"))
                continue
            if kind == "enum":
                pieces.append((None, f'{head}"{{_NAMES_{field.type}[{get}]}}"'))
                continue
            if kind == "string":
                body = f"{head}{{json_text({get})}}"
            elif kind == "table":
                body = f"{head}{{_put_{field.type}({get})}}"
            elif kind == "union":
                body = f'"{field.name}_type": "{{type({get}).__name__}}",{head}{{_PUT_{field.type}[type({get})]({get})}}'
            elif field.type in ("string", "float64", "uint32"):
                maker = {"string": "json_texts", "float64": "json_numbers", "uint32": "json_integers"}[field.type]
                body = f"{head}{{{maker}({get})}}"
            else:
                body = f'{head}[{{",".join([_put_{field.type}(x) for x in {get}])}}]'
            pieces.append((None if field.required else f"{get} is not None", body))
        if not pieces:
            return [out[0], '    return "{}"']

        hoisted = 0

        def clean(body: str, indent: str) -> str:
            """The f-string without quotes inside of its braces: expressions that have some get a line of their own."""

            def hoist(match: re.Match[str]) -> str:
                nonlocal hoisted
                if '"' not in match[1]:
                    return match[0]
                hoisted += 1
                out.append(f"{indent}x{hoisted} = {match[1]}")
                return f"{{x{hoisted}}}"

            return re.sub(r"\{([^{}]*)\}", hoist, body)

        if all(condition is None for condition, _ in pieces):
            body = clean(",".join(body for _, body in pieces), "    ")
            out.append(f"    return f'{{{{{body}}}}}'")
            return out
        out.append("    parts = []")
        for condition, body in pieces:
            indent = "    "
            if condition is not None:
                out.append(f"    if {condition}:")
                indent = "        "
            body = clean(body, indent)
            out.append(f"{indent}parts.append(f'{body}')")
        out.append('    return "{" + ",".join(parts) + "}"')
        return out

    def from_json(self, name: str) -> list[str]:
        fields = self.schema.tables[name]
        keys = []
        for field in fields:
            keys += [f"{field.name}_type"] if self.schema.kind(field) == "union" else []
            keys.append(field.name)
        listed = ", ".join(f'"{key}"' for key in keys)
        out = [
            f"_KEYS_{name} = frozenset(({listed}{',' if len(keys) == 1 else ''}))\n\n".replace(" = frozenset(())", ": frozenset[str] = frozenset()"),
            f"def _get_{name}(value: Any) -> {name}:",
            f'    {"f = " if fields else ""}fields_of(value, _KEYS_{name}, "{name}")',
        ]
        found: dict[str, str] = {}
        for i, field in enumerate(fields):
            kind = self.schema.kind(field)
            where = f'"{name}", "{field.name}"'
            take = f'f.get("{field.name}")'
            if kind == "scalar":
                reader = {
                    "bool": f"read_bool(v{i}, {where})",
                    "float64": f"read_float(v{i}, {where})",
                }.get(field.type, f"read_integer(v{i}, {MOST.get(field.type, 0)}, {where})")
                out.append(f"    v{i} = {take}")
                found[field.name] = f"{self.default(field)} if v{i} is None else {reader}"
            elif kind == "enum":
                out.append(f"    v{i} = {take}")
                out.append(f"    if v{i} is not None and (type(v{i}) not in (str, int) or v{i} not in _READ_{field.type}):")
                out.append(f'        raise unknown_value("{field.type}", v{i})')
                found[field.name] = f"{self.default(field)} if v{i} is None else _READ_{field.type}[v{i}]"
            elif kind == "union":
                out.append(f"    v{i} = _member_{field.type}(f, {where})")
                if field.required:
                    out += [f"    if v{i} is None:", f"        raise missing({where})"]
                found[field.name] = f"v{i}"
            else:
                out.append(f"    v{i} = {take}")
                if kind == "string":
                    get = f"read_text(v{i}, {where})"
                elif kind == "table":
                    get = f"_get_{field.type}(v{i})"
                    if field.required:
                        out += [f"    if v{i} is None:", f"        raise missing({where})"]
                else:
                    inner = {
                        "string": f"read_text(x, {where})",
                        "float64": f"read_float(x, {where})",
                        "uint32": f"read_integer(x, {MOST['uint32']}, {where})",
                    }.get(field.type, f"_get_{field.type}(x)")
                    get = f"[{inner} for x in read_list(v{i}, {where})]"
                found[field.name] = get if field.required else f"None if v{i} is None else {get}"
        out.append(f"    return {name}({', '.join(found[field.name] for field in self.ordered(name))})")
        return out

    def text(self) -> str:
        out = [
            '"""batprotocol messages in JSON: `encode(message) -> str` as the peer prints them, `decode(value) -> Message`.\n\n'
            "`decode` takes what a JSON parser made of the text, and is as strict as the peer: unknown fields, absent required\n"
            'ones, and a union\'s value before its type are errors (Malformed).\n"""\n',
            HEADER,
            "from __future__ import annotations\n",
            "from collections.abc import Callable\nfrom typing import Any\n",
            "from pilothouse.protocols.batprotocol.messages import (",
            *(f"    {name}," for name in sorted([*self.schema.tables, *self.schema.enums, *self.schema.unions])),
            ")",
            "from pilothouse.protocols.batprotocol.wire import (\n    Malformed,\n    fields_of,\n    json_integers,\n"
            "    json_number,\n    json_numbers,\n    json_text,\n    json_texts,\n    member_name,\n    missing,\n    read_bool,\n"
            "    read_float,\n    read_integer,\n    read_list,\n    read_text,\n    unknown_value,\n)\n",
        ]
        for name, values in self.schema.enums.items():
            out.append(f"_NAMES_{name} = ({', '.join(repr(v) for v in values)})".replace("'", '"'))
            out.append(
                f"_READ_{name}: dict[Any, {name}] = "
                f"{{key: value for value, text in zip({name}, _NAMES_{name}, strict=True) for key in (text, int(value))}}"
            )
        out.append("\n")
        for name in self.schema.tables:
            out += [*self.to_json(name), "\n", *self.from_json(name), "\n"]
        for name, members in self.schema.unions.items():
            out.append(f"_PUT_{name}: dict[type, Callable[[Any], str]] = {{")
            out += [f"    {member}: _put_{member}," for member in members]
            out.append("}")
            out.append(f"_GET_{name}: dict[Any, Callable[[Any], {name}]] = {{")
            for number, member in enumerate(members, 1):
                out.append(f'    "{member}": _get_{member},\n    {number}: _get_{member},')
            out.append("}\n\n")
            out.append(f"def _member_{name}(fields: dict[str, Any], table: str, field: str) -> {name} | None:")
            out.append("    member = member_name(fields, table, field)")
            out.append("    if member is None:\n        return None")
            out.append(f"    get = _GET_{name}.get(member) if type(member) in (str, int) else None")
            out.append("    if get is None:")
            out.append(f'        raise Malformed(f"{{table}}.{{field}}: {{member!r:.60}} is no member of union {name}")')
            out.append("    return get(fields[field])\n\n")
        out.append("encode: Callable[[Message], str] = _put_Message\ndecode: Callable[[Any], Message] = _get_Message\n")
        return "\n".join(out)


def generated() -> dict[pathlib.Path, str]:
    """Path -> text of each module."""
    writer = Writer(parse((HERE / "schema.fbs").read_text()))
    texts = {"messages": writer.messages(), "binary": writer.binary(), "text": writer.text()}
    return {HERE / f"{name}.py": re.sub(r"\n{4,}", "\n\n\n", text).rstrip("\n") + "\n" for name, text in texts.items()}


def write() -> None:
    """Writes the modules; a file that is right already keeps its date."""
    for path, text in generated().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    write()
