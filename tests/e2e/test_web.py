"""`pilothouse web`: a live run in a real Chromium, and each promise of its server by raw sockets."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import components
from browsers import Browser, browser
from e2e.live_runs import COMMAND, finish, rows, start, tasks, until
from pilothouse.cli.main import cli
from pilothouse.views.session_now import PresentJob, SessionNow
from pilothouse.views.web import feed
from pilothouse.views.web.feed import Viewer

EVIL = "<img src=x onerror=window.pwned=1></script><script>window.pwned=2</script>"
GATE = "until test -e go; do sleep 0.02; done"
TEXT = f"echo '{EVIL}' >&2; exit 3\n{GATE}\n: '{EVIL}'; {GATE}\n{GATE}\n" + "true\n" * 20


def pilothouse(*arguments: object) -> None:
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert done.exit_code == 0, (done.output, done.exception)


class Served:
    """A dashboard that was started by its command."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        assert process.stdout is not None
        self.folder = folder
        self.url = process.stdout.readline().strip()
        self.hint = process.stdout.readline().strip()
        base, _, self.token = self.url.partition("#")
        self.base = base.rstrip("/")
        self.port = int(self.base.rpartition(":")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def raw(self, data: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to these bytes; status 0: the connection was closed."""
        with self.connect() as line:
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            found = b""
            while part := line.recv(65536):
                found += part
        head, _, body = found.partition(b"\r\n\r\n")
        return (int(head.split()[1]) if head else 0), body

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        """A request with the token, unless other headers are given; an empty one is left out."""
        sent = {"Host": f"127.0.0.1:{self.port}", "Authorization": f"Bearer {self.token}", "Content-Length": str(len(body))}
        sent |= {"Content-Type": "application/json"} if body else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items() if value)]
        return self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def requests_left(self) -> list[Path]:
        """Requests that wait for the driver, which is stopped meanwhile."""
        return sorted((self.folder / "requests").glob("*")) if (self.folder / "requests").exists() else []


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Served]:
    process = subprocess.Popen(
        [*COMMAND, "web", str(folder), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield Served(process, folder)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[1] == "", "it has complained"
        assert process.returncode == 0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A run of which two tasks wait for a file `go`; the others wait, but for one that has failed."""
    folder = tmp_path_factory.mktemp("live")
    process = start(folder, tasks(folder, TEXT), "--slots", "2", "--dir", "R", "-q")
    until(lambda: len(rows(folder / "R", "SELECT 1 FROM assignments WHERE closed_at IS NULL")) == 2, "two tasks run")
    with served(folder / "R", "--every", "0.2") as found:
        yield found
    (folder / "go").touch()
    finish(process)


@contextmanager
def driver_stopped(served: Served) -> Iterator[None]:
    """While the body runs, requests stay where they are left."""
    held = (Path("/proc/locks").read_text(), (served.folder / "lock").stat().st_ino)
    pids = {int(line.split()[4]) for line in held[0].splitlines() if line.split()[5].endswith(f":{held[1]}")}
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert pids
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


CANCEL = json.dumps({"ask": "cancel", "task": 23}).encode()


def test_the_token_is_needed_for_everything_of_the_run(live: Served) -> None:
    for headers in (
        {"Authorization": ""}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {live.token}x"},
        {"Authorization": f"Basic {live.token}"}, {"Authorization": "", "Cookie": f"token={live.token}"},
    ):  # fmt: skip
        for path in ("/events", "/data", "/output?task=0", "/nothing"):
            assert live.ask("GET", path, **headers)[0] == 401, (path, headers)
        assert live.ask("POST", "/requests", CANCEL, **headers)[0] == 401
    assert live.ask("GET", f"/data?token={live.token}", Authorization="")[0] == 401
    status, body = live.ask("GET", "/", Authorization="")
    assert status == 200
    assert b"live.js" not in body and str(live.folder).encode() not in body and live.token.encode() not in body
    assert len(live.token) >= 32
    assert not live.requests_left()


def test_only_names_of_this_host_are_answered(live: Served) -> None:
    port = live.port
    for host in (
        "evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "127.0.0.1@evil.example",
        f"localhost.:{port}", "127.0.0.1:x", f"0.0.0.0:{port}", "[::1", "",
    ):  # fmt: skip
        assert live.ask("GET", "/", Host=host)[0] == 421, host
        assert live.ask("POST", "/requests", CANCEL, Host=host)[0] == 421, host
    for host in (f"localhost:{port}", "127.0.0.1:9999", f"[::1]:{port}"):  # ssh -L may bring another port
        assert live.ask("GET", "/", Host=host)[0] == 200, host


def test_other_origins_change_nothing(live: Served) -> None:
    for headers in (
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": f"https://127.0.0.1:{live.port}"},
        {"Origin": f"http://localhost:{live.port}"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
    ):  # fmt: skip
        assert live.ask("POST", "/requests", CANCEL, **headers)[0] == 403, headers
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert live.ask("POST", "/requests", CANCEL, Content_Type=kind)[0] == 415, kind
    status, _ = live.ask("OPTIONS", "/requests", Origin="http://evil.example", Access_Control_Request_Method="POST")
    assert status == 405
    assert not live.requests_left()


def test_get_changes_nothing(live: Served) -> None:
    with driver_stopped(live):
        for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "get", "OPTIONS"):
            assert live.ask(method, "/requests", CANCEL)[0] == 405, method
        assert live.ask("GET", "/requests?ask=cancel&task=23")[0] == 405
        for path in ("/", "/data", "/output?task=0"):
            assert live.ask("POST", path, CANCEL)[0] == 405
        assert not live.requests_left()
        status, body = live.ask("POST", "/requests", CANCEL, Origin=f"http://127.0.0.1:{live.port}")
        assert status == 202 and "id" in json.loads(body)
        assert [path.read_bytes() for path in live.requests_left()] == [CANCEL.replace(b" ", b"")], "the check above can fail"
    until(lambda: not live.requests_left(), "the driver takes it")


def test_no_path_is_a_file(live: Served) -> None:
    secret = f"/../{live.folder.name}/keys.json"
    for path in (
        secret, "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2fkeys.json", "/keys.json", "//etc/passwd",
        "/page.js", "/journal.sqlite", "/events/../keys.json", "/output?task=../keys.json", "/output?task=0/../../x",
    ):  # fmt: skip
        status, body = live.ask("GET", path)
        assert status in (400, 404), path
        assert len(body) < 200 and b"root:" not in body and b"secret" not in body


def test_malformed_requests_are_refused(live: Served) -> None:
    good = f"Host: 127.0.0.1:{live.port}\r\nAuthorization: Bearer {live.token}\r\n".encode()
    for data in (
        b"\r\n\r\n", b"GET / HTTP/1.1\r\n" + good + b"Host: x\r\n\r\n", b"GET  / HTTP/1.1\r\n" + good + b"\r\n",
        b"GET http://127.0.0.1/ HTTP/1.1\r\n" + good + b"\r\n", b"GET / HTTP/2\r\n" + good + b"\r\n",
        b"GET / HTTP/1.1\r\n" + good + b" folded\r\n\r\n", b"GET / HTTP/1.1\r\n" + good + b"X\0: y\r\n\r\n",
        b"POST /requests HTTP/1.1\r\n" + good + b"Content-Type: application/json\r\nContent-Length: -1\r\n\r\n",
        b"POST /requests HTTP/1.1\r\n" + good + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n[]",
        b"POST /requests HTTP/1.1\r\n" + good + b"Content-Type: application/json\r\nContent-Length: 1e3\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ):  # fmt: skip
        assert live.raw(data)[0] == 400, data
    chunked = b"POST /requests HTTP/1.1\r\n" + good + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert live.raw(chunked + b"2\r\n{}\r\n0\r\n\r\n")[0] == 501
    assert live.ask("POST", "/requests", b"x", Content_Length="99999999999")[0] == 413
    assert live.raw(b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000)[0] in (0, 431)
    assert live.raw(b"GET / HT")[0] == 0
    assert live.ask("GET", "/", Authorization="")[0] == 200, "and it still answers"


def test_it_listens_on_this_host_alone_and_tells_how_to_come_from_elsewhere(live: Served) -> None:
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if " 0A " in line]
    assert [where for where in listening if where.endswith(f":{live.port:04X}")] == [f"0100007F:{live.port:04X}"]
    assert f"ssh -L {live.port}:127.0.0.1:{live.port} " in live.hint


def test_another_address_is_taken_with_a_warning(live: Served) -> None:
    with served(live.folder, "--address", "127.0.0.2") as found:
        assert found.base.startswith("http://127.0.0.2:") and "can read the token" in found.hint
        with socket.create_connection(("127.0.0.2", found.port), timeout=20) as line:
            line.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.2:{found.port}\r\n\r\n".encode())
            assert line.recv(100).startswith(b"HTTP/1.1 200 ")
        with socket.create_connection(("127.0.0.2", found.port), timeout=20) as line:
            line.sendall(f"GET /data HTTP/1.1\r\nHost: 127.0.0.2:{found.port}\r\n\r\n".encode())
            assert line.recv(100).startswith(b"HTTP/1.1 401 ")


def events(line: socket.socket, count: int) -> list[bytes]:
    found = b""
    while found.count(b"\n\n") < count:
        part = line.recv(65536)
        assert part, "the stream has ended"
        found += part
    return found.partition(b"\r\n\r\n")[2].split(b"\n\n")[:count]


def test_one_reading_is_for_all_viewers(live: Served) -> None:
    asks = f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {live.token}\r\n\r\n".encode()
    lines = [live.connect() for _ in range(20)]
    try:
        for line in lines:
            line.sendall(asks)
        seen = [set(events(line, 4)) for line in lines]
    finally:
        for line in lines:
            line.close()
    assert len(set.union(*seen)) <= 6, "states are the same bytes for all"


def test_strangers_do_not_keep_viewers_out(live: Served) -> None:
    idle = [live.connect() for _ in range(300)]
    try:
        assert live.ask("GET", "/", Authorization="")[0] == 200
    finally:
        for line in idle:
            line.close()


def test_a_viewer_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "STALLED_S", 5.0)

    async def play() -> tuple[int, int, bool]:
        held: list[Viewer] = []

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            held.append(Viewer(writer))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(hold, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1024)
        while not held:
            await asyncio.sleep(0)
        sent, clock = 0, 100.0
        for _ in range(2000):  # its kernel buffers take some
            if not held[0].send(b"x" * 1_000_000, clock):
                break
            sent += held[0].backlog == 0
            clock += 0.1
            await asyncio.sleep(0)
        left = held[0].backlog
        held[0].cut_off()
        await asyncio.sleep(0)
        writer.close()
        server.close()
        return sent, left, clock >= 105.0

    sent, left, late = asyncio.run(play())
    assert sent < 2000 and late, "it was found to be stalled, and not before its time"
    assert left <= 1_000_000, "no more than one state waits for it"


# ---- in a browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    try:
        with browser(tmp_path_factory.mktemp("chromium") / "profile") as made:
            yield made
    except components.MissingComponent as missing:
        pytest.skip(str(missing))


def text_of(chromium: Browser, selector: str) -> str:
    return str(chromium.js(f"document.querySelector({json.dumps(selector)}).innerText"))


def press(chromium: Browser, panel: str, row: str, button: str) -> None:
    """Presses a button twice: it asks whether one is sure."""
    find = f"""[...pilothouse.live.parts.{panel}.body.rows].find(row => row.cells[0].innerText === {json.dumps(row)})"""
    chromium.until(f"{find} !== undefined")
    chromium.js(f"""[...{find}.querySelectorAll('button')].find(b => b.textContent === {json.dumps(button)}).click()""")
    chromium.js(f"""{find}.querySelector('button.armed').click()""")


def test_the_page_follows_a_run_and_its_buttons_work(chromium: Browser, live: Served) -> None:
    chromium.open(live.url)
    chromium.until("pilothouse.page.runs.length > 0 && pilothouse.live.reports > 1")
    assert chromium.problems == []
    assert chromium.js("location.href") == f"{live.base}/", "the token is not left in the address"
    shown = text_of(chromium, "#live")
    assert "running" in shown and EVIL in shown and "echo '<img" in shown
    assert chromium.js("window.pwned === undefined && !document.querySelector('#live img, #live script')")
    assert [int(row) for row in chromium.js("pilothouse.live.look.state.running_tasks.map(task => task.task_id)")] == [1, 2]
    chromium.js("showOutput(0, 'err')")
    chromium.until("document.querySelector('dialog[open] pre')")
    assert text_of(chromium, "dialog pre") == EVIL + "\n" or text_of(chromium, "dialog pre") == EVIL
    chromium.js("document.querySelector('dialog').close()")
    press(chromium, "running", "1", "Cancel")
    chromium.until("pilothouse.live.look.state.running_tasks.some(task => task.task_id === 3)")
    press(chromium, "failures", "0", "Retry")
    chromium.until("pilothouse.live.look.state.answers.some(answer => answer.request.ask === 'retry' && answer.done)")
    chromium.js("""(() => { const [hosts, slots] = document.querySelectorAll('.add input'); slots.value = 1;
        document.querySelector('.add button').click(); })()""")
    chromium.until("pilothouse.live.look.state.engines.some(engine => engine.context === 'added1')")
    chromium.until("pilothouse.page.runs[0].count >= 24", )
    slowest = "[...document.querySelectorAll('#tables .card')].find(card => card.innerText.startsWith('Slowest'))"
    chromium.js(f"{slowest}.querySelectorAll('th')[1].click(); {slowest}.querySelectorAll('th')[1].click()")
    chromium.js("pilothouse.show(pilothouse.page.runs)")
    cells = f"[...{slowest}.querySelectorAll('td:nth-child(2)')].map(cell => cell.innerText)"
    taken = [float(text) for text in chromium.js(cells)]
    assert taken == sorted(taken) and taken[0] < taken[-1], "the order that was chosen stays"
    press(chromium, "engines", "1", "Drain")
    chromium.until("pilothouse.live.look.state.engines.find(engine => engine.context === 'added1').state !== 'running'")
    assert "finishes its tasks and leaves" in text_of(chromium, "#live")
    chromium.js("(() => { const button = document.querySelector('.foot > button'); button.click(); button.click(); })()")
    chromium.until("pilothouse.live.look.state.answers.some(answer => answer.request.ask === 'end-run' && answer.done)")
    assert "nothing more is begun" in text_of(chromium, "#live")
    assert "Idle slots" in chromium.js("pilothouse.page.panels.map(panel => panel.title)")
    assert chromium.js("document.documentElement.scrollWidth") <= 1280
    assert chromium.problems == []


def test_a_page_without_the_token_asks_for_it(chromium: Browser, live: Served) -> None:
    chromium.open("about:blank")
    chromium.open(f"{live.base}/#wrong")
    chromium.until("document.documentElement.dataset.outcome === 'no token'")
    assert live.folder.name not in text_of(chromium, "body").split()
    chromium.js(f"document.querySelector('.token input').value = {json.dumps(live.token)}")
    chromium.js("document.querySelector('.token button').click()")
    chromium.until("document.documentElement.dataset.outcome === 'running'")


def test_a_page_of_another_site_can_do_nothing(chromium: Browser, live: Served, tmp_path: Path) -> None:
    """Even one that knows the token, as pages on other ports of this host are other origins."""
    (tmp_path / "evil.html").write_text(f"<iframe src={live.base}/></iframe>")
    handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: handler(*a, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        chromium.open(f"http://127.0.0.1:{server.server_port}/evil.html")
        with driver_stopped(live):
            for more in ('mode: "no-cors"', 'mode: "cors"', 'mode: "no-cors", headers: {"Content-Type": "text/plain"}',
                         f'headers: {{"Authorization": "Bearer {live.token}", "Content-Type": "application/json"}}'):  # fmt: skip
                outcome = chromium.js(f"""fetch({json.dumps(live.base + "/requests")}, {{ method: "POST", credentials: "include",
                    body: {json.dumps(CANCEL.decode())}, {more} }}).then(a => a.type + a.status, () => "refused")""")
                assert outcome in ("refused", "opaque0"), more
            data, token = json.dumps(f"{live.base}/data"), json.dumps(f"Bearer {live.token}")
            read = f'fetch({data}, {{ headers: {{ Authorization: {token} }} }}).then(() => "read", () => "refused")'
            assert chromium.js(read) == "refused"
            assert not live.requests_left()
        assert any("frame" in problem.lower() for problem in chromium.problems), "it is not framed"
    finally:
        server.shutdown()
        server.server_close()


def test_it_fits_a_narrow_window(chromium: Browser, live: Served) -> None:
    chromium.open("about:blank")
    chromium.open(live.url, width=400, dark=True)
    chromium.until("pilothouse.page.runs.length > 0 && pilothouse.live.parts")
    assert chromium.js("document.documentElement.scrollWidth") <= 400
    assert chromium.js("document.documentElement.dataset.theme") == "dark"


def test_a_simulation_can_be_looked_at_too(chromium: Browser, tmp_path: Path) -> None:
    jobs = "".join(f"{n} {n} -1 5 1 -1 -1 1 9 -1 1 1 1 -1 1 -1 -1 -1\n" for n in range(1, 201))
    (tmp_path / "w.swf").write_text(jobs)
    pilothouse("simulate", "-p", 4, "-w", tmp_path / "w.swf", "-e", f"{tmp_path}/", "-q")
    whole = (tmp_path / "jobs.csv").read_bytes()
    (tmp_path / "schedule.json").unlink()
    (tmp_path / "jobs.csv").write_bytes(whole[: len(whole) // 2])  # as it is while a simulation goes on
    present = [PresentJob("late!1", 90.0, 2, started_at=100.0, units="0-1"), PresentJob("late!2", 95.0, 4, why=EVIL)]
    now = SessionNow(110.0, units=4, free=2, waiting=1, running=1, jobs=present)
    (tmp_path / "now.json").write_bytes(msgspec.json.encode(now))
    with served(tmp_path, "--every", "0.1") as found:
        chromium.open("about:blank")
        chromium.open(found.url)
        chromium.until("pilothouse.page.runs.length > 0 && pilothouse.live.look.ended > 50")
        assert text_of(chromium, ".pill") == "running"
        shown = text_of(chromium, "#live")
        assert "late!1" in shown and "10 s" in shown and EVIL in shown and "2 of 4" in shown
        assert chromium.js("window.pwned === undefined && pilothouse.page.runs[0].ids.includes('late!1')")
        (tmp_path / "now.json").unlink()
        (tmp_path / "jobs.csv").write_bytes(whole)
        chromium.until("pilothouse.page.runs[0].count === 200 && pilothouse.live.look.outcome === 'ended'")
        assert found.ask("POST", "/requests", CANCEL)[0] == 409
        assert chromium.problems == []


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    for arguments, part in (([str(tmp_path / "no")], "no run of that name"), ([str(tmp_path), "--port", "99999"], "99999")):
        done = CliRunner().invoke(cli, ["web", *arguments])
        assert done.exit_code != 0 and part in f"{done.output} {done.exception}"


def test_the_library_needs_no_package_of_its_own() -> None:
    """What `pip install pilothouse` brings is enough."""
    code = "import sys, pilothouse.views.web.server; print(sorted(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for package in ("starlette", "uvicorn", "rich", "matplotlib", "h11"):
        assert f"'{package}'" not in loaded
