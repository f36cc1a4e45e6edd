"""RFC 6: requests, responses, and what each end of a connection is built on.

`Caller` makes requests, gives them matchtags and finds the handler of each response; `respond` and `respond_error` make
the answer to a request; `Endpoint` collects what an end has to send and to report. Rules: a response copies topic,
matchtag and routes; a streaming request gets any number of streaming responses and then exactly one error response
(ENODATA is the regular end); an error response carries text, not JSON.

Each request carries the credentials of its sender. The receiver checks them, as libflux does: most methods are for the
owner of the instance alone.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from pilothouse.protocols.rfc27 import frames
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.payloads import PayloadError

OWNER_ONLY = "Request requires owner credentials"
"""The words of libflux."""

MOST_CALLS = 2**20
"""Limit of requests without a response."""

Handler: TypeAlias = Callable[[Message], None]
E = TypeVar("E")


def request(topic: str, payload: bytes | None = None, *, matchtag: int = 0, flags: int = 0) -> Message:
    """A request. The closing NUL of the payload is added here."""
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


def error_text(answer: Message) -> str:
    """An error response in words: the name of its errnum, and its text if it has one."""
    name, text = errno.errorcode.get(answer.errnum, str(answer.errnum)), answer.text()
    return f"{name}: {text}" if text else name


class Caller:
    """The requests of one end that wait for responses."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Handler, bool]] = {}
        self._free: list[int] = []
        self._next = 1

    def call(self, topic: str, payload: bytes | None, handler: Handler, *, streaming: bool = False) -> Message:
        """The request to send; `handler` gets every response to it."""
        if len(self._open) >= MOST_CALLS:
            raise OverflowError(f"more than {MOST_CALLS} requests without a response")
        if self._free:
            tag = self._free.pop()
        else:
            tag = self._next
            self._next += 1
        self._open[tag] = (handler, streaming)
        return request(topic, payload, matchtag=tag, flags=frames.STREAMING if streaming else 0)

    def take(self, response: Message) -> bool:
        """Passes a response to its handler. False: no request has this matchtag."""
        found = self._open.get(response.matchtag)
        if found is None or response.matchtag == 0:
            return False
        handler, streaming = found
        # An error ends a stream; so does a response without the flag, from a peer that does not stream.
        if response.aux1 or not streaming or not response.flags & frames.STREAMING:
            self.forget(response.matchtag)
        handler(response)
        return True

    def forget(self, matchtag: int) -> None:
        """No more responses are expected, whatever the flags said."""
        if self._open.pop(matchtag, None) is not None:
            self._free.append(matchtag)

    def fail_all(self, errnum: int) -> None:
        """The peer is gone: every open request gets this error."""
        abandoned, self._open = self._open, {}
        self._free.clear()
        self._next = 1
        for tag, (handler, _) in abandoned.items():
            handler(Message(frames.RESPONSE, "", None, tag, errnum))


class Endpoint(Generic[E]):
    """One end of a connection, without a socket: messages to send, events for its owner, warnings to log.

    The owner takes all three after every call.
    """

    def __init__(self) -> None:
        self.out: list[Message] = []
        self.events: list[E] = []
        self.warnings: list[str] = []
        self._caller = Caller()

    def take(self) -> list[Message]:
        out, self.out = self.out, []
        return out

    def take_events(self) -> list[E]:
        events, self.events = self.events, []
        return events

    def take_warnings(self) -> list[str]:
        warnings, self.warnings = self.warnings, []
        return warnings

    def _call(self, topic: str, payload: bytes | None, handler: Handler, *, streaming: bool = False) -> None:
        self.out.append(self._caller.call(topic, payload, handler, streaming=streaming))

    def _refuse(self, message: Message, errnum: int, text: str = "") -> None:
        if message.wants_response:
            self.out.append(respond_error(message, errnum, text))

    def _serve(self, handlers: Mapping[str, Callable[..., None]], message: Message, *context: Any) -> None:
        """Passes a request to its handler; unknown and malformed ones are refused."""
        handler = handlers.get(message.topic)
        if handler is None:
            if not message.topic.endswith(".disconnect"):
                self.warnings.append(f"unknown request {message.topic}")
                self._refuse(message, errno.ENOSYS, f"{message.topic}: no such service method")
            return
        try:
            handler(self, *context, message)
        except PayloadError as problem:
            self._malformed(message, str(problem))

    def _malformed(self, message: Message, problem: str) -> None:
        self.warnings.append(f"{message.topic}: malformed payload: {problem}")
        self._refuse(message, errno.EPROTO, problem)

    def _take_response(self, message: Message) -> None:
        if not self._caller.take(message):
            self.warnings.append(f"unexpected response to {message.topic} (matchtag {message.matchtag})")
