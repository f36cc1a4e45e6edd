"""Generated task files, read by us and by the real disBatch: ids, line numbers, repeat indices, commands, keys."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pilothouse.formats.task_file import check_stream, read_file
from pilothouse.model.errors import InputError

pytestmark = pytest.mark.peer("disbatch", "the language of its task files")

FILES = 1500
WORDS = [b"echo", b"a", b"start", b"step", b"5", b"CHECK", b"#", b"x;y", b"\xff", b"$DISBATCH_TASKID", b"\xc3\xa9"]
DIRECTIVES = [
    b"PREFIX", b"SUFFIX", b"prefix", b"REPEAT", b"repeat", b"BARRIER", b"BARRIER CHECK", b"barrier", b"BARRIERS",
    b"BARRIER CHECKX", b"PERENGINE START", b"PERENGINE STOP", b"perengine START", b"PERENGINE", b"FOO", b"",
]  # fmt: skip
BLANKS = [b" ", b" ", b" ", b"  ", b"\t", b"", b"\x0b"]
ENDS = [b"\n"] * 8 + [b"\r\n", b"\r", b" \n", b"\n\n"]


def some_line(rng: random.Random) -> bytes:
    def words(most: int) -> bytes:
        return b"".join(rng.choice(WORDS) + rng.choice(BLANKS) for _ in range(rng.randint(0, most)))

    form = rng.random()
    if form < 0.3:
        return words(3)
    if form < 0.4:
        return rng.choice(BLANKS) + b"#" + words(2)
    if form < 0.6:
        repeat = rng.choice(BLANKS).join([b"#DISBATCH REPEAT", b"%d" % rng.randint(0, 4)])
        if rng.random() < 0.5:
            repeat += rng.choice(BLANKS) + b"start" + rng.choice(BLANKS) + b"%d" % rng.randint(0, 9)
        if rng.random() < 0.5:
            repeat += rng.choice(BLANKS) + b"STEP" + rng.choice(BLANKS) + b"%d" % rng.randint(0, 9)
        return repeat + rng.choice(BLANKS) + words(2)
    return b"#DISBATCH" + rng.choice(BLANKS) + rng.choice(DIRECTIVES) + rng.choice(BLANKS) + words(2)


def some_file(rng: random.Random) -> bytes:
    head = b"".join(b"#DISBATCH PERENGINE START s%d\n" % i for i in range(rng.randint(0, 2)) if rng.random() < 0.3)
    return head + b"".join(some_line(rng) + rng.choice(ENDS) for _ in range(rng.randint(0, 8)))


@pytest.fixture(scope="module")
def answers(client_env: Callable[[str], Path]) -> list[tuple[bytes, object]]:
    rng = random.Random(20261115)
    files = [some_file(rng) for _ in range(FILES)]
    ran = subprocess.run(
        [client_env("disbatch"), Path(__file__).with_name("disbatch_lines.py")],
        input=json.dumps([base64.b64encode(text).decode() for text in files]),
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return list(zip(files, json.loads(ran.stdout), strict=True))


def ours(text: bytes, *, lenient: bool) -> list[list[object]]:
    def coded(value: str) -> str:
        return base64.b64encode(os.fsencode(value)).decode()

    return [
        [line.task_id, line.line_number, line.repeat_index, str(line.kind), coded(line.command), coded(line.key)]
        for line in read_file(io.BytesIO(text), "generated", lenient=lenient)
    ]


def test_lenient_reads_every_file_as_disbatch_does(answers: list[tuple[bytes, object]]) -> None:
    compared = 0
    for text, theirs in answers:
        if isinstance(theirs, str):
            continue
        lines = ours(text, lenient=True)
        assert lines == theirs, text
        assert check_stream(io.BytesIO(text), "generated", lenient=True).tasks == sum(line[3] == "N" for line in lines)
        compared += 1
    assert compared > FILES * 0.9


def test_strict_reads_what_it_accepts_as_disbatch_does(answers: list[tuple[bytes, object]]) -> None:
    accepted = refused = 0
    for text, theirs in answers:
        if isinstance(theirs, str):
            continue
        try:
            lines = ours(text, lenient=False)
        except InputError:
            refused += 1
            with pytest.raises(InputError):
                check_stream(io.BytesIO(text), "generated")
            continue
        accepted += 1
        assert lines == theirs, text
        totals = check_stream(io.BytesIO(text), "generated")
        assert totals.tasks == sum(line[3] == "N" for line in lines)
        assert totals.barriers == sum(line[3] in ("B", "C") for line in lines)
    assert accepted > 100 and refused > 100
