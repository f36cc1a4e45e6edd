"""Reads users' files, plain or gzipped. What is wrong with a file becomes one clear line (InputError)."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from pathlib import Path

import msgspec

from pilothouse.model.errors import InputError

GZIP_MAGIC = b"\x1f\x8b"
MOST_BYTES = 4 * 2**30
"""No input may be larger, unpacked."""
JSON_PROBLEMS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions of msgspec for malformed JSON and for JSON of another structure."""


def read_bytes(path: str | Path) -> bytes:
    """The whole file, unpacked if it is gzipped."""
    try:
        if stat.S_ISCHR(os.stat(path).st_mode) and not os.path.samefile(path, "/dev/null"):
            raise InputError(str(path), "is a device", expected="a file or a pipe")
        data = Path(path).read_bytes()
        if data.startswith(GZIP_MAGIC):
            with gzip.open(path) as stream:
                data = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise InputError(str(path), "no such file") from None
    except IsADirectoryError:
        raise InputError(str(path), "is a directory", expected="a file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise InputError(str(path), f"a damaged gzip file ({problem})") from None
    except OSError as problem:
        raise InputError(str(path), f"cannot be read: {problem.strerror}") from None
    except MemoryError:
        raise InputError(str(path), "needs more memory than there is") from None
    if len(data) > MOST_BYTES:
        raise InputError(str(path), f"larger than {MOST_BYTES} bytes")
    return data


def read_text(path: str | Path) -> str:
    """The whole file as text; bytes that are not UTF-8 are named by their position."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise _encoding_error(path, data, problem.start) from None


def _encoding_error(path: str | Path, data: bytes, position: int) -> InputError:
    line = data.count(b"\n", 0, position) + 1
    return InputError(f"{path}:{line}", "not UTF-8", found=f"byte 0x{data[position]:02x}")


def json_error(path: str | Path, data: bytes, problem: Exception) -> InputError:
    """One of JSON_PROBLEMS as an InputError, with the line if msgspec names the byte."""
    if isinstance(problem, RecursionError):
        return InputError(str(path), "not JSON: nested too deep")
    if isinstance(problem, UnicodeDecodeError):
        # Its position counts from the start of a JSON string, not of the file.
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as in_file:
            return _encoding_error(path, data, in_file.start)
    text = str(problem)
    _, found, rest = text.partition("(byte ")
    if found:
        position = int(rest.rstrip(")"))
        line = data.count(b"\n", 0, position) + 1
        column = position - data.rfind(b"\n", 0, position)
        return InputError(f"{path}:{line}:{column}", f"not JSON: {text[: text.index(' (byte')]}")
    if isinstance(problem, msgspec.ValidationError):
        message, _, where = text.partition(" - at `")
        return InputError(f"{path}: {where.rstrip('`')}" if where else str(path), message)
    lines = data.count(b"\n") + 1
    return InputError(f"{path}:{lines}", f"not JSON: {text}")
