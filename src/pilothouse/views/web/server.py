"""The dashboard's server: a page, a stream of states, the page's data, a task's output, and requests to the run.

    GET  /            the page; it holds nothing of the run
    GET  /events      server-sent events: the state, once a second
    GET  /data        the block of the report's page (views/report/pack.py)
    GET  /output      the end of what a task wrote: ?task=N[&stream=out]
    POST /requests    a request of worlds/live/requests.py as JSON

gate.py says who is answered. Loopback by default; TLS is left to ssh.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import Callable
from http import HTTPStatus

import msgspec

from pilothouse.access.user import user_name
from pilothouse.model.errors import InputError, PilothouseError
from pilothouse.model.numerals import whole_number
from pilothouse.views.report.html import page, policy
from pilothouse.views.web.feed import Feed, Viewer
from pilothouse.views.web.gate import LOOPBACK_NAMES, Gate
from pilothouse.views.web.http import (
    END_OF_HEAD,
    MOST_HEAD_BYTES,
    BadRequest,
    Request,
    head,
    read_head,
    response,
)
from pilothouse.views.web.source import Source, open_source
from pilothouse.worlds.live.requests import ask, decode_request

MOST_KNOCKING = 256
"""Connections that have not asked for anything, or not with the token. The oldest is closed first."""
REQUEST_S = 10.0
"""How long a client may take to say what it wants."""
ANSWER_S = 120.0
"""How long it may take to fetch the answer."""
NICENESS = 5
"""The run comes first."""
_CHANGES = ("/requests",)


class Dashboard:
    """Answers connections. `close` ends the streams."""

    def __init__(self, source: Source, token: str, names: frozenset[str], every_s: float) -> None:
        self._source = source
        self._gate = Gate(token, names)
        self._page = page("pilothouse", live=True)
        self._policy = policy(live=True)
        self._knocking: dict[asyncio.StreamWriter, None] = {}
        self.feed = Feed(source, every_s)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        self._knocking[writer] = None
        if len(self._knocking) > MOST_KNOCKING:
            oldest = next(iter(self._knocking))
            del self._knocking[oldest]
            oldest.transport.abort()
        try:
            await self._answer(reader, writer)
            await asyncio.wait_for(writer.drain(), ANSWER_S)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()  # cancelled: the server ends, and asyncio would print a traceback for each connection
        finally:
            self._knocking.pop(writer, None)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            try:
                data = await asyncio.wait_for(reader.readuntil(END_OF_HEAD), REQUEST_S)
            except asyncio.LimitOverrunError:
                text = f"more than {MOST_HEAD_BYTES:,} bytes"
                raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text) from None
            request = read_head(data)
            changes = request.path in _CHANGES
            self._gate.check(request, changes=changes)
            self._knocking.pop(writer, None)
            if request.path == "/events":
                await self._stream(reader, writer)
                return
            body = await asyncio.wait_for(reader.readexactly(request.body_bytes), REQUEST_S) if changes else b""
            writer.write(await self._response(request, body))
        except BadRequest as bad:
            writer.write(response(bad.status, f"{bad.text}\n".encode()))
        except PilothouseError as problem:
            writer.write(response(HTTPStatus.CONFLICT, f"{problem}\n".encode()))

    async def _response(self, request: Request, body: bytes) -> bytes:
        match request.path:
            case "/":
                return response(HTTPStatus.OK, self._page, "text/html; charset=utf-8", policy=self._policy)
            case "/favicon.ico":
                return response(HTTPStatus.NO_CONTENT, b"")
            case "/data":
                if not self.feed.data:
                    raise BadRequest(HTTPStatus.NOT_FOUND, "there is nothing yet: listen to /events first")
                return response(HTTPStatus.OK, self.feed.data, "application/octet-stream")
            case "/output":
                task = whole_number(request.query.get("task", ""))
                if task is None or task < 0:
                    raise BadRequest(HTTPStatus.BAD_REQUEST, "which task? /output?task=N")
                wrote = await self.feed.output(task, stdout=request.query.get("stream") == "out")
                return response(HTTPStatus.OK, wrote)
            case "/requests":
                return self._leave(body)
        raise BadRequest(HTTPStatus.NOT_FOUND, "there is no such page")

    def _leave(self, body: bytes) -> bytes:
        """Leaves a request in the run's folder."""
        if self._source.folder is None:
            raise InputError("the run", "is no live run: nothing can be asked of it")
        try:
            request = decode_request(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise BadRequest(HTTPStatus.BAD_REQUEST, f"not a request: {problem}") from None
        asked = ask(self._source.folder, request)
        return response(HTTPStatus.ACCEPTED, msgspec.json.encode({"id": asked}), "application/json")

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head(HTTPStatus.OK, "text/event-stream"))
        viewer = Viewer(writer)
        self.feed.join(viewer)
        try:
            while await reader.read(1024):  # what it says now is not heard; its end is
                pass
        finally:
            self.feed.leave(viewer)


_ALL = ("0.0.0.0", "::")


def _names(address: str) -> frozenset[str]:
    """What a server at this address may be called."""
    if address in LOOPBACK_NAMES:
        return LOOPBACK_NAMES
    own = {address, os.uname().nodename, socket.getfqdn()}
    with contextlib.suppress(OSError):
        own |= {str(found[4][0]) for found in socket.getaddrinfo(os.uname().nodename, None)}
    return LOOPBACK_NAMES | {f"[{name}]" if ":" in name else name.lower() for name in own}


async def _serve(
    source: Source, address: str, port: int, every_s: float, token: str, say: Callable[[str], None]
) -> None:
    dashboard = Dashboard(source, token, _names(address), every_s)
    try:
        server = await asyncio.start_server(dashboard.serve, address, port, limit=MOST_HEAD_BYTES)
    except OSError as problem:
        raise InputError(f"{address}:{port}", f"cannot listen there: {problem.strerror}", hint="see --port") from problem
    bound = server.sockets[0].getsockname()[1]
    host = os.uname().nodename if address in _ALL else f"[{address}]" if ":" in address else address
    say(f"http://{host}:{bound}/#{token}")
    if address in LOOPBACK_NAMES:
        user = f"{user_name()}@{os.uname().nodename}"
        say(f"from elsewhere: ssh -L {bound}:{host}:{bound} {user}, then the same address there")
    else:
        say(f"everyone on the way to {address} can read the token: prefer the default and ssh -L")
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    feeding = asyncio.ensure_future(dashboard.feed.run())
    try:
        await asyncio.wait({feeding, asyncio.ensure_future(over.wait())}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.close()
        feeding.cancel()
        dashboard.feed.close()
        with contextlib.suppress(asyncio.CancelledError):
            await feeding


def serve(run: str, *, address: str, port: int, every_s: float, say: Callable[[str], None]) -> None:
    """Serves the run that a user named, until a signal. Raises InputError."""
    source = open_source(run)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    asyncio.run(_serve(source, address, port, every_s, secrets.token_urlsafe(24), say))
