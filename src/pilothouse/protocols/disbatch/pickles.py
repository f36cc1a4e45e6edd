"""Pickles of plain values and instances, read and written without running anything.

In: bytes. Out: None, bool, int, float, str, bytes, list, tuple, dict and `Instance`. `read` interprets the opcodes itself: it
imports nothing and calls nothing that the bytes name. An instance of a class that is not in `CLASSES` is UnknownClass, and so is
everything that would call a function. `write` makes protocol 3, which every Python 3 reads.
"""

from __future__ import annotations

import pickletools
import struct
from typing import Any

import msgspec

MOST_BYTES = 16 << 20
MODULES = ("__main__", "disbatch.disBatch", "disBatch")
"""Where disBatch's classes are: in its program of 2021, and in its package."""
NAMES = ("TaskInfo", "TaskReport", "SSHContext", "SlurmContext", "DisBatchInfo")
CLASSES = {("argparse", "Namespace"), *((module, name) for module in MODULES for name in NAMES)}


class Malformed(ValueError):
    """The bytes are no pickle, or one that holds something else."""


class UnknownClass(Malformed):
    """The pickle names a class or a function that is none of disBatch's messages."""


class Instance(msgspec.Struct, eq=False):
    """An object of one of disBatch's classes: its name and its attributes."""

    module: str
    name: str
    state: dict[str, Any]


class _Class(msgspec.Struct, frozen=True):
    module: str
    name: str


_MARK = object()
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_PLAIN = {
    "INT", "LONG", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}  # fmt: skip


def read(data: bytes) -> Any:
    """Raises Malformed."""
    if len(data) > MOST_BYTES:
        raise Malformed(f"{len(data)} bytes, where {MOST_BYTES} is the most")
    reader = _Reader()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                (value,) = reader.stack
                if value is _MARK or isinstance(value, _Class):
                    raise Malformed("no value")
                return value
            reader.do(opcode.name, argument)
    except UnknownClass:
        raise
    except Exception as error:  # whatever is wrong with the bytes
        raise Malformed(f"not a pickle of plain values: {error}") from error
    raise Malformed("no end")


class _Reader:
    """The stack and the memo of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def do(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _PLAIN:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("EMPTY_LIST", "EMPTY_DICT"):
            stack.append([] if name == "EMPTY_LIST" else {})
        elif name in ("LIST", "TUPLE", "DICT"):
            items = self._marked()
            made: Any = items if name == "LIST" else tuple(items) if name == "TUPLE" else _pairs(items)
            stack.append(made)
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            items = stack[-count:]
            if len(items) != count:
                raise Malformed("too few members")
            stack[-count:] = [tuple(items)]
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else self._marked()
            self._top(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else self._marked()
            self._top(dict).update(_pairs(items))
        elif name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[len(self._memo) if argument is None else argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            module, found = argument.split(" ") if name == "GLOBAL" else (stack.pop(-2), stack.pop())
            if (module, found) not in CLASSES:
                raise UnknownClass(f"{module}.{found}")
            stack.append(_Class(module, found))
        elif name == "NEWOBJ":
            arguments, of = stack.pop(), stack.pop()
            if arguments != () or not isinstance(of, _Class):
                raise UnknownClass("an object with arguments")
            stack.append(Instance(of.module, of.name, {}))
        elif name == "BUILD":
            state = stack.pop()
            if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
                raise Malformed("attributes that are no dictionary")
            self._top(Instance).state.update(state)
        elif name in ("REDUCE", "INST", "OBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"):
            raise UnknownClass(f"opcode {name}, which calls something")
        elif name not in ("PROTO", "FRAME"):
            raise Malformed(f"opcode {name}")

    def _top(self, kind: type[Any]) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise Malformed(f"{kind.__name__} expected")
        return self.stack[-1]

    def _marked(self) -> list[Any]:
        """What was put on the stack since the last mark."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise Malformed("no mark")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def write(value: Any) -> bytes:
    """Raises TypeError for a value of another kind."""
    out = bytearray(b"\x80\x03")
    _write(value, out)
    return bytes(out + b".")


def _write(value: Any, out: bytearray) -> None:
    if value is None:
        out += b"N"
    elif isinstance(value, bool):
        out += b"\x88" if value else b"\x89"
    elif isinstance(value, int):
        if -(2**31) <= value < 2**31:
            out += b"J" + struct.pack("<i", value)
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            out += b"\x8b" + struct.pack("<i", len(data)) + data
    elif isinstance(value, float):
        out += b"G" + struct.pack(">d", value)
    elif isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        out += b"X" + struct.pack("<I", len(data)) + data
    elif isinstance(value, bytes):
        out += b"B" + struct.pack("<I", len(value)) + value
    elif isinstance(value, list):
        out += b"]("
        for item in value:
            _write(item, out)
        out += b"e"
    elif isinstance(value, tuple):
        out += b"("
        for item in value:
            _write(item, out)
        out += b"t"
    elif isinstance(value, dict):
        out += b"}("
        for key, item in value.items():
            _write(key, out)
            _write(item, out)
        out += b"u"
    elif isinstance(value, Instance):
        out += f"c{value.module}\n{value.name}\n".encode() + b")\x81"
        _write(value.state, out)
        out += b"b"
    else:
        raise TypeError(f"{type(value).__name__} is no plain value")
