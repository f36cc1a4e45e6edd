"""Status lines made by us and by the real disBatch from the same results: the same bytes, read back the same."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

from pilothouse.dropins.disbatch.status_file import StatusKind, StatusLine, parse_line

THEIRS = """
import json, sys
from disbatch.disBatch import TaskInfo, TaskReport
out = []
for f in json.load(sys.stdin):
    skip = object() if f['kind'] == 'S' else None
    info = TaskInfo(f['id'], f['line'], f['repeat'], bytes.fromhex(f['command']), '', kind=f['kind'], skipInfo=skip)
    report = TaskReport(info, f['node'], f['pid'], f['code'], f['start'], f['finish'],
                        f['out_bytes'], f['out'], f['err_bytes'], f['err'])
    text = str(report)
    out.append([text, str(TaskReport(text))])
json.dump(out, sys.stdout)
"""


def test_the_same_bytes(client_env: Callable[[str], Path]) -> None:
    rng = random.Random(7)
    commands = [b"echo a", b"echo\tx 'y' \"z\"", b"\xff\xfe", b"caf\xc3\xa9", b"", b" a ; b > c "]
    texts = ["", "plain", "tab\t nl\n quote' \"", "\ufffd\u00e9", "x" * 40 + "..." + "y" * 40]
    fields = [
        {
            "id": rng.randrange(10**6), "line": rng.randrange(10**6), "repeat": rng.choice([-1, 0, 17]),
            "command": rng.choice(commands).hex(), "kind": rng.choice("NPSZBC"), "node": rng.choice(["vm", "n1.x"]),
            "pid": rng.randrange(-1, 99999), "code": rng.choice([0, 0, 1, -9, -100, 255]),
            "start": (start := rng.uniform(1e9, 2e9)), "finish": start + rng.expovariate(1),
            "out_bytes": rng.choice([0, 3]), "out": rng.choice(texts), "err_bytes": rng.choice([0, 9]),
            "err": rng.choice(texts),
        }
        for _ in range(300)
    ]  # fmt: skip
    ran = subprocess.run(
        [client_env("disbatch"), "-c", THEIRS], input=json.dumps(fields), capture_output=True, text=True, check=True
    )
    for field, (theirs, theirs_again) in zip(fields, json.loads(ran.stdout), strict=True):
        command = bytes.fromhex(str(field["command"])).decode("utf-8", "surrogateescape")
        ours = StatusLine(
            field["id"], field["line"], field["repeat"], field["node"], field["pid"], field["code"],
            field["start"], field["finish"], command,
            field["out_bytes"], field["out"], field["err_bytes"], field["err"], StatusKind(field["kind"]),
        )  # fmt: skip
        assert str(ours) == theirs
        if field["kind"] not in "SZ":
            assert str(parse_line(theirs)) == theirs_again
