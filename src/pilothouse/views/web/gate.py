"""Who is answered: the checks that a request passes before anything is done for it. Sans-IO.

* Host: a name of this server. A page of another site whose name was made to point here (DNS rebinding) has another one.
* Token: in the Authorization header, for everything but the page itself, which holds nothing of the run. Not a cookie:
  cookies of one port go to every other port of the host, and are sent by pages of other sites.
* Origin: requests that change something, and all that say where they come from, come from this page.
* Method: GET changes nothing; only POST does.
"""

from __future__ import annotations

import hmac
from http import HTTPStatus

from pilothouse.views.web.http import BadRequest, Request

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
OPEN_PATHS = ("/", "/favicon.ico")
"""What is answered without the token."""


class Gate:
    def __init__(self, token: str, names: frozenset[str] = LOOPBACK_NAMES) -> None:
        """`names`: what the server may be called. Its port is not checked: `ssh -L` may bring another."""
        self._token = token.encode()
        self._names = names

    def check(self, request: Request, *, changes: bool) -> None:
        """Raises BadRequest. `changes`: whether its path changes something."""
        host = request.headers.get("host", "")
        name, port = _name_and_port(host)
        if name.lower() not in self._names or not (port.isascii() and port.isdecimal()):
            raise BadRequest(HTTPStatus.MISDIRECTED_REQUEST, "this server has another name")
        if request.method != ("POST" if changes else "GET"):
            raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} takes {'POST' if changes else 'GET'}")
        if request.headers.get("origin", f"http://{host}") != f"http://{host}":
            raise BadRequest(HTTPStatus.FORBIDDEN, "a page of another site may not ask")
        if request.path not in OPEN_PATHS:
            if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                raise BadRequest(HTTPStatus.FORBIDDEN, "a page of another site may not ask")
            kind, _, given = request.headers.get("authorization", "").partition(" ")
            if kind != "Bearer" or not hmac.compare_digest(given.encode("latin-1"), self._token):
                raise BadRequest(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        if changes and request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise BadRequest(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a request is application/json")


def _name_and_port(host: str) -> tuple[str, str]:
    if host.startswith("["):
        name, bracket, rest = host.partition("]")
        return name + bracket, rest.removeprefix(":") or "80"
    name, _, port = host.partition(":")
    return name, port or "80"
