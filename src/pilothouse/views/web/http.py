"""HTTP/1.1 as the dashboard speaks it: one request a connection, no body but JSON. Sans-IO.

In: the bytes of a request. Out: a Request, or BadRequest with the status to answer. Strict (RFC 9112): what is not plainly a
request of a browser or of curl is refused, so there is nothing to interpret in two ways. No path is ever a file name.

Why not Starlette and uvicorn: five routes and a stream need little of them, and they bring six packages (uvicorn, h11,
starlette, anyio, idna, typing_extensions) where the base installation has four. `python bench/dashboard.py --peer PYTHON` prints:
ours, with all that reads runs, 402 ms to import and 27 MB; theirs alone 482 ms and 28 MB.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from urllib.parse import parse_qsl

import msgspec

MOST_HEAD_BYTES = 16_384
MOST_BODY_BYTES = 10_000
END_OF_HEAD = b"\r\n\r\n"
_TARGET = re.compile(rb"/[!-~]*")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t -~\x80-\xff]*")
_ONCE = {"host", "origin", "authorization", "content-length", "content-type"}
"""A request that has one of these twice could be read in two ways."""


class BadRequest(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By names in lower case."""

    @property
    def body_bytes(self) -> int:
        """The length of its body. Raises BadRequest."""
        if "transfer-encoding" in self.headers:
            raise BadRequest(HTTPStatus.NOT_IMPLEMENTED, "a body needs a Content-Length")
        text = self.headers.get("content-length", "0")
        if not (text.isascii() and text.isdecimal()):
            raise BadRequest(HTTPStatus.BAD_REQUEST, "Content-Length is not a number")
        if len(text) > 9 or int(text) > MOST_BODY_BYTES:
            raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {MOST_BODY_BYTES:,} bytes")
        return int(text)


def read_head(data: bytes) -> Request:
    """A request without its body: everything up to the empty line. Raises BadRequest."""
    first, *lines = data.removesuffix(END_OF_HEAD).split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.1", b"HTTP/1.0") or not words[0].isalpha():
        raise BadRequest(HTTPStatus.BAD_REQUEST, "not a request line of HTTP/1.1")
    if not _TARGET.fullmatch(words[1]):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "the target is not a path")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadRequest(HTTPStatus.BAD_REQUEST, "not a header")
        key = name.decode().lower()
        if key in headers and key in _ONCE:
            raise BadRequest(HTTPStatus.BAD_REQUEST, f"two headers {key}")
        headers[key] = value.strip(b" \t").decode("latin-1")
    path, _, query = words[1].decode().partition("?")
    return Request(words[0].decode(), path, dict(parse_qsl(query, keep_blank_values=True)), headers)


_ALWAYS = (
    ("Cache-Control", "no-store"),
    ("Connection", "close"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)
TEXT = "text/plain; charset=utf-8"
NOTHING = "default-src 'none'"
"""The policy of what is no page."""


def head(status: HTTPStatus, kind: str, *more: tuple[str, str], policy: str = NOTHING) -> bytes:
    """The head of a response. `policy`: its Content-Security-Policy."""
    fields = [("Content-Type", kind), *more, ("Content-Security-Policy", f"{policy}; frame-ancestors 'none'"), *_ALWAYS]
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join(lines).encode("latin-1") + END_OF_HEAD


def response(status: HTTPStatus, body: bytes, kind: str = TEXT, *, policy: str = NOTHING) -> bytes:
    return head(status, kind, ("Content-Length", str(len(body))), policy=policy) + body


def event(name: str, data: bytes) -> bytes:
    """A server-sent event. `data` has no line breaks (JSON)."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
