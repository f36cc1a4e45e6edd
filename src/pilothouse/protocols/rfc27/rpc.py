"""RFC 6: requests and their responses.

`Caller` makes requests, gives them matchtags and finds the handler of each response; `respond` and `respond_error` make
the answer to a request. Rules: a response copies topic, matchtag and routes; a streaming request gets any number of
streaming responses and then exactly one error response, ENODATA being the regular end; an error carries text, not JSON.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeAlias

from pilothouse.protocols.rfc27 import frames
from pilothouse.protocols.rfc27.frames import Message

ENODATA, EPROTO, ENOSYS, EINVAL = errno.ENODATA, errno.EPROTO, errno.ENOSYS, errno.EINVAL
EEXIST, EBUSY, ENOENT, EHOSTUNREACH, ECANCELED = (
    errno.EEXIST,
    errno.EBUSY,
    errno.ENOENT,
    errno.EHOSTUNREACH,
    errno.ECANCELED,
)
EPERM, EMSGSIZE, EOVERFLOW = errno.EPERM, errno.EMSGSIZE, errno.EOVERFLOW

MOST_CALLS = 2**20
"""No more calls may be unanswered at a time."""

Handler: TypeAlias = Callable[[Message], None]


def request(topic: str, payload: bytes | None = None, *, matchtag: int = 0, flags: int = 0) -> Message:
    """A request; JSON gets its closing NUL here."""
    body = None if payload is None else payload + b"\0"
    return Message(frames.REQUEST, topic, body, matchtag, frames.NODE_ANY, flags)


def respond(to: Message, payload: bytes | None = None, *, streaming: bool = False) -> Message:
    flags = frames.STREAMING if streaming or to.flags & frames.STREAMING else 0
    body = None if payload is None else payload + b"\0"
    return Message(frames.RESPONSE, to.topic, body, to.matchtag, 0, flags, to.routes)


def respond_error(to: Message, errnum: int, text: str = "") -> Message:
    body = text.encode() + b"\0" if text else None
    flags = to.flags & frames.STREAMING
    return Message(frames.RESPONSE, to.topic, body, to.matchtag, errnum, flags, to.routes)


class Caller:
    """The calls of one end that wait for answers."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Handler, bool]] = {}
        self._free: list[int] = []
        self._next = 1

    def call(self, topic: str, payload: bytes | None, handler: Handler, *, streaming: bool = False) -> Message:
        """The request to send; `handler` gets every response to it."""
        if len(self._open) >= MOST_CALLS:
            raise OverflowError(f"more than {MOST_CALLS} calls without an answer")
        if self._free:
            tag = self._free.pop()
        else:
            tag = self._next
            self._next += 1
        self._open[tag] = (handler, streaming)
        return request(topic, payload, matchtag=tag, flags=frames.STREAMING if streaming else 0)

    def take(self, response: Message) -> bool:
        """Hands a response to its handler; False: nobody waits for it."""
        found = self._open.get(response.matchtag)
        if found is None or response.matchtag == 0:
            return False
        handler, streaming = found
        # a stream is over with its first error; an answer without the flag ends it too (a peer that does not stream)
        if response.aux1 or not streaming or not response.flags & frames.STREAMING:
            self._retire(response.matchtag)
        handler(response)
        return True

    def forget(self, matchtag: int) -> None:
        """The call is answered for good, whatever the flags said."""
        if matchtag in self._open:
            self._retire(matchtag)

    def fail_all(self, errnum: int) -> None:
        """The peer is gone: every open call is answered with this error."""
        abandoned, self._open = self._open, {}
        self._free.clear()
        self._next = 1
        for tag, (handler, _) in abandoned.items():
            handler(Message(frames.RESPONSE, "", None, tag, errnum))

    def __len__(self) -> int:
        return len(self._open)

    def _retire(self, matchtag: int) -> None:
        del self._open[matchtag]
        self._free.append(matchtag)


def error_name(errnum: int) -> str:
    return errno.errorcode.get(errnum, str(errnum))
