"""A real headless Chromium for tests, driven by its DevTools protocol over a pipe.

In: a folder for its profile. Out: `Browser` with `open`, `js`, `picture`, `key`. The pipe (--remote-debugging-pipe) needs
neither a port nor a package: requests are written to descriptor 3, answers come from descriptor 4, each ends with a NUL.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import components

DEADLINE_S = 120.0
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)


class Browser:
    """One page. `problems` are errors that scripts raised and messages that the page's policy wrote."""

    def __init__(self, profile: Path) -> None:
        program = components.find_program("chromium", "chromium")
        ends = (*os.pipe(), *os.pipe())
        # Away from 3 and 4, which theirs become.
        theirs_in, self._out, self._in, theirs_out = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
        for end in ends:
            os.close(end)
        self._process = subprocess.Popen(
            # The descriptors are put at 3 and 4 in a shell: preexec_fn is not safe beside threads.
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash",
             program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._number = 0
        self._session = ""
        self._events: list[dict[str, Any]] = []
        self.problems: list[str] = []
        pages = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        target = pages[0]["targetId"] if pages else self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + DEADLINE_S
        while b"\0" not in self._buffer:
            ready = components.readable(self._in, max(0.0, end - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            assert data, "Chromium does not answer" if not ready else "Chromium has gone"
            self._buffer += data
        first, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(first))

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(str(details.get("exception", {}).get("description", details["text"])))
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        self._events.append(event)

    def wait_for(self, method: str) -> None:
        """Until that event has come since the last `open`."""
        while not any(event.get("method") == method for event in self._events):
            self._note(self._receive())

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._events.clear()
        self.problems.clear()
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def js(self, expression: str) -> Any:
        """The value of an expression; promises are awaited."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition: str) -> None:
        """Until an expression is true; looked at whenever the page draws."""
        ask = f"new Promise(done => {{ const look = () => ({condition}) ? done(true) : setTimeout(look, 10); look(); }})"
        self.js(ask)

    def key(self, text: str, *, code: str = "", shift: bool = False) -> None:
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if kind == "keyDown" and len(text) == 1 else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=text, code=code, modifiers=8 if shift else 0, **typed)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with a new and empty profile."""
    made = Browser(profile)
    try:
        yield made
    finally:
        made.close()
