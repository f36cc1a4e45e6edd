"""What readers of logs, tables and texts refuse: the input, and the key part of the message; and what is taken beside it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilothouse.formats import (
    argument_sources,
    date_text,
    fluid,
    flux_jobs,
    hostlist,
    jobs_csv,
    pbs_log,
    slurm_sacct,
    tables,
    task_file,
    task_table,
    text_input,
    traces,
)  # fmt: skip
from pilothouse.formats.argument_sources import Reading
from pilothouse.formats.command_template import CommandTemplate
from pilothouse.model.errors import InputError

# ---- logs, tables, texts


def file_of(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


SACCT = b"JobID|Submit|Start|End|NCPUS\n"
LOG_READERS: list[tuple[Callable[..., object], bytes, str]] = [
    (flux_jobs.read, b'{"jobs": [{}, 5]}', r"f: jobs\[1\]: not a job; expected an object"),
    (flux_jobs.read, b"[1]", "not the output of flux jobs --json"),
    (flux_jobs.read, b"{", "f:1: not JSON"),
    (pbs_log.read, b"x\n", "f:1: not a line of PBS's accounting"),
    (slurm_sacct.read, b'{"jobs": 5}', "f: not the output of sacct --json"),
    (slurm_sacct.read, b'{"jobs": [{}, 5]}', r"f: jobs\[1\]: not a job"),
    (slurm_sacct.read, b'\n{"jobs": [', "f:2: not JSON"),
    (slurm_sacct.read, b"JobID  Submit\n", "f:1: columns that are aligned with blanks"),
    (slurm_sacct.read, b"JobID|Submit|Start|End\n", "f:1: no column reqcpus"),
    (slurm_sacct.read, b"Submit|Start|End|NCPUS\n", "f:1: no column jobid"),
    (slurm_sacct.read, SACCT + b"1.batch|x|x|x|1\n", "f: no job in it"),
    (
        jobs_csv.read,
        jobs_csv.COLUMNS.encode().replace(b"profile", b"x") + b"\n",
        "f:1: not a jobs.csv; expected a column profile",
    ),
    (traces.read_usage, b"0 x 1 1\n", "f:1: not a phase of usage"),
    (traces.read_usage, b"0 m_usage 1\n", "not a phase of usage"),
    (traces.read_usage, b"0 m_usage 1.5 1\n", "usage is from 0 to 1"),
    (traces.read_usage, b"0 m_usage -0.5 1\n", "usage is from 0 to 1"),
    (traces.read_usage, b"# x\n\n0 m_usage x 1\n", "f:3: usage is from 0 to 1"),
    (traces.read_usage, b"0 m_usage 1 -1\n", "flop 0 or more"),
    (traces.read_usage, b"0 m_usage 1 inf\n", "flop 0 or more"),
    (
        lambda path: traces.read_mpi(path, 0, shared=False),
        b"0 init\n1 init\n",
        "f:2: an action of rank 1 in the trace of rank 0",
    ),
    (lambda path: traces.read_mpi(path, 0, shared=True), b"x init\n", "f:1: not an action"),
    (lambda path: traces.read_mpi(path, 0, shared=True), b"0\n", "f:1: not an action"),
    (lambda path: traces.trace_files(str(path)), b"# none\n", "no trace is listed"),
]


@pytest.mark.parametrize(("read", "data", "problem"), LOG_READERS)
def test_files(read: Callable[[Path], object], data: bytes, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem):
        found = read(file_of(tmp_path / "f", data))
        list(found)  # type: ignore[call-overload]


def test_traces_that_are_taken(tmp_path: Path) -> None:
    assert traces.read_usage(file_of(tmp_path / "u", b"0 m_usage 0 0\n0 m_usage 1 7.5\n")) == [(0.0, 0.0), (1.0, 7.5)]
    path = file_of(tmp_path / "m", b"0 Init\n1 init\n0 send 1 2\n")
    assert [(one.where, one.verb, one.arguments) for one in traces.read_mpi(path, 0, shared=True)] == [
        (f"{path}:1", "init", ()), (f"{path}:3", "send", ("1", "2"))
    ]  # fmt: skip
    assert traces.trace_files(str(file_of(tmp_path / "list", b"# x\na\n b \n"))) == [tmp_path / "a", tmp_path / "b"]


@pytest.mark.parametrize(
    ("kind", "lines", "problem"),
    [
        ("csv", [b"a,b\n", b"1\n"], "t:2: not as many values as columns; expected 2, found 1"),
        ("csv", [b"a,b\n", b'1,"2"x\n'], "t:2: not CSV"),
        ("tsv", [b"a\tb\n", b'1\t"2"x\n'], "t:2: not TSV"),
        ("jsonl", [b'{"a": 1, "b": 2}\n', b"\n", b'{"a": 3}\n'], "t:3: a value is missing; expected a, b, found 'b'"),
        ("jsonl", [b'{"a": 1}\n', b"[1]\n"], "t:2: not a JSON object on one line"),
    ],
)
def test_tables(kind: str, lines: list[bytes], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        list(tables.read_table(lines, "t", kind)[1])


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_tables_that_hold_nothing(kind: str) -> None:
    names, rows = tables.read_table([b"\n"], "t", kind)
    assert (names, list(rows)) == ((), [])


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("csv", b'command\n"a"b\n', "t:2: not CSV"),
        ("tsv", b'command\n"a"b\n', "t:2: not TSV"),
        ("csv", b'command\n"a\nb\n', "t:3: a quotation mark is not closed"),
        ("csv", b"command,cores\na\n", "t:2: 1 values for 2 columns"),
        ("csv", b"command,x\n", "t:1: a column that no task has; expected command, cores, .* found 'x'"),
        ("csv", b"command,cores,cores\n", "t:1: a column twice; .* found 'cores'"),
        ("csv", b"cores\n", "t:1: no command; expected a column named command"),
        ("csv", b"command\n  ,\n", "t:2: 2 values for 1 columns"),
        ("jsonl", b'{"command": ""}\n', "t:1: not a command"),
        ("jsonl", b'{"command": " "}\n', "not a command"),
        ("jsonl", b'{"command": []}\n', "not a command"),
        ("jsonl", b'{"command": ["a", 1]}\n', "not a command"),
        ("jsonl", b'{"command": "a\\u0000"}\n', "not a command"),
        ("jsonl", b'{"command": 5}\n', "not a command"),
        ("jsonl", b"\n[1]\n", "t:2: not a JSON object on one line"),
        (
            "jsonl",
            b'{"command": "%s"}\n' % (b"x" * (task_file.MOST_LINE_BYTES + 1)),
            r"more than a command can have \(131,071 bytes\)",
        ),
    ],
)
def test_tables_of_tasks(kind: str, text: bytes, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        list(task_table.reader_for("t", kind=kind).read(text.splitlines(keepends=True)))


def test_a_value_of_too_many_lines_is_refused_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_table, "MOST_ROW_LINES", 3)
    lines = [b"command\n", b'"a\n', b"b\n", b'c"\n']
    assert [line.command for line in task_table.reader_for("t.csv").read(lines)] == ["a\nb\nc"]
    reader = task_table.reader_for("t.csv")
    with pytest.raises(InputError, match=r"t.csv:5: a value of more than 3 lines"):
        for line in [*lines[:3], b"c\n", b"d\n"]:
            list(reader.feed(line))


def test_task_files_by_their_names(tmp_path: Path) -> None:
    lines = file_of(tmp_path / "t.txt", b"true\n\n#DISBATCH REPEAT 3 x\n")
    table = file_of(tmp_path / "t.CSV", b"command\na\nb\n")
    objects = file_of(tmp_path / "objects", b'{"command": "a"}\n')
    assert [task_table.check_tasks(path) for path in (lines, table)] == [4, 2]
    assert (task_table.check_tasks(objects, kind="jsonl"), task_table.check_tasks(table, kind="lines")) == (1, 3)
    for name in ("none.csv", "none.txt"):
        with pytest.raises(InputError, match=rf"{name}: cannot read the task file: No such file"):
            task_table.check_tasks(tmp_path / name)
    with lines.open("rb") as stream:
        assert len(list(task_table.read_tasks(stream, "t.txt"))) == 4
    assert isinstance(task_table.reader_for("a"), task_file.TaskReader)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"#PILOTHOUSEcores=2\n", "t:1: a request needs one blank after #PILOTHOUSE"),
        (b"#PILOTHOUSE x\n", "t:1: not a request"),
        (b"a\n#PILOTHOUSE after=b\n", "t:2: after=b: no task above has this name"),
        (b"#PILOTHOUSE name=b\nx\n#PILOTHOUSE after=b name=b\n", "t:3: name=b: tasks above wait for this name already"),
    ],
)
def test_requests_in_task_files(text: bytes, problem: str) -> None:
    lines = text.splitlines(keepends=True)
    with pytest.raises(InputError, match=problem):
        list(task_file.TaskReader("t").read(lines))
    told: list[tuple[int, str]] = []
    read = task_file.TaskReader("t", lenient=True, requests=True, on_problem=lambda *said: told.append(said)).read(
        lines
    )
    assert [line.command for line in read] == [line.decode().strip() for line in lines if not line.startswith(b"#")]
    assert [number for number, _ in told] == [len(lines)]
    assert problem.rpartition(": ")[2] in told[0][1]


@pytest.mark.parametrize(
    ("words", "colsep", "problem"),
    [
        (["::::", "-", "::::", "-"], "", "standard input can be read once only"),
        (["::::", "-", "::::+", "-"], "", "standard input can be read once only"),
        (["::::", "-", "-"], "(", "--colsep: not a pattern"),
        ([":::", "a"], "(", "--colsep: not a pattern"),
    ],
)
def test_sources_of_arguments(words: list[str], colsep: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        argument_sources.read_arguments(words, lambda name: iter(()), Reading(colsep))


def test_a_dash_among_values_is_a_value() -> None:
    found = argument_sources.read_arguments([":::", "-", "-", "::::", "f"], lambda name: iter([b"x"]), Reading())
    assert list(found.rows) == [("-", "x"), ("-", "x")]


@pytest.mark.parametrize(
    ("template", "values", "problem"),
    [
        ("{}", ["a\nb"], "command 4: a value holds a character that a command cannot"),
        ("{}", ["a\0b"], "command 4: a value holds a character"),
        ("x {}", ["a\0b"], "a value: holds a NUL byte"),
        ("{}", [" "], "command 4: is empty or a comment"),
        ("{}", [" # x"], "command 4: is empty or a comment"),
        ("# {}", ["a"], "begins with # and is only a comment"),
        ("{2}", ["a"], r"no such value: \{2\}; expected numbers from 1 on, found there is 1"),
        ("{-2}", ["a"], r"no such value: \{-2\}"),
        ("{0}", ["a"], r"no such value: \{0\}"),
        ("`{}`", ["a"], "within backquotes"),
    ],
)
def test_templates(template: str, values: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        CommandTemplate(template, [""] * len(values)).fill(values, 4)


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("a '{%}' {}", "a ''$((PILOTHOUSE_SLOT+1))'' 'b c'"),
        ('a "{%}" {}', "a \"$((PILOTHOUSE_SLOT+1))\" 'b c'"),
        ("a {%} {}", "a $((PILOTHOUSE_SLOT+1)) 'b c'"),
        ('"$(x ({}) {}) {}"', "\"$(x ('b c') 'b c') \"'b c'\"\""),
        ("\"$(x ')' {}) {}\"", "\"$(x ')' 'b c') \"'b c'\"\""),
        ("\\' {}", "\\' 'b c'"),
        ("{#}", "4 'b c'"),
    ],
)
def test_quotes_around_values(template: str, line: str) -> None:
    assert CommandTemplate(template, [""]).fill(["b c"], 4) == line


def test_numbers_of_hosts_and_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostlist, "MOST_HOSTS", 4)
    assert hostlist.parse("n[1-3],m") == ["n1", "n2", "n3", "m"]
    for text in ("n[1-3],m,l", "n[1-5]"):
        with pytest.raises(InputError, match=r"more than 4 hosts"):
            hostlist.parse(text)
    assert fluid.to_f58(0) == "ƒ1"
    with pytest.raises(ValueError, match=r"no FLUID is negative"):
        fluid.to_f58(-1)
    assert [fluid.FluidSource().make(0), fluid.FluidSource(1).make(1)] == [1, 1 << 24 | 1 << 10]


@pytest.mark.parametrize(
    "text",
    ["", "24:01", "Friday x", "mo", "0s", "2026-11-16", "2026-02-30", "x 18:00", "1 2 3", "2026-11-20T T18:00", "today 9:30"],
)
def test_what_is_no_date_to_come(text: str) -> None:
    now = datetime(2026, 11, 17, 9, 30)
    with pytest.raises(InputError, match=r"here: not a date to come"):
        date_text.parse(text, now, "here")
    assert date_text.parse("9:30", now, "here") == datetime(2026, 11, 18, 9, 30)


# ---- files that cannot be read


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gzip.compress(b"0123456789")
    path = file_of(tmp_path / "f.gz", whole)
    assert text_input.read_bytes(path) == b"0123456789"
    for name, problem in (
        ("none", "no such file"),
        ("f.gz/x", "cannot be read: Not a directory"),
        (".", "is a directory"),
    ):
        with pytest.raises(InputError, match=problem):
            text_input.read_bytes(tmp_path / name)
    with pytest.raises(InputError, match=r"is a device"):
        text_input.read_bytes("/dev/zero")
    assert text_input.read_bytes("/dev/null") == b""
    with pytest.raises(InputError, match=r"a damaged gzip file"):
        text_input.read_bytes(file_of(tmp_path / "cut.gz", whole[:-9]))
    for most, taken in ((9, False), (10, True)):
        monkeypatch.setattr(text_input, "MOST_BYTES", most)
        for each in (path, file_of(tmp_path / "plain", b"0123456789")):
            if taken:
                assert len(text_input.read_bytes(each)) == 10
            else:
                with pytest.raises(InputError, match=r"larger than 9 bytes"):
                    text_input.read_bytes(each)

    def none_left(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(gzip, "open", none_left)
    with pytest.raises(InputError, match=r"needs more memory than there is"):
        text_input.read_bytes(path)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"\n[\n  x]", r"f:3:3: not JSON"),
        (b"x", r"f:1:1: not JSON"),
        (b"[1,\n\n", r"f:3: not JSON: Input data was truncated"),
        (b"[" * 500_000, r"f: not JSON: nested too deep"),
        (b'["a",\n"\xff"]', r"f:2: not UTF-8; found byte 0xff"),
        (b'\n["\xff"]', r"f:2: not UTF-8; found byte 0xff"),
        (b'[1, "a"]', r"f: \$\[1\]: Expected `int`, got `str`"),
        (b'"a"', r"f: Expected `array`, got `str`"),
    ],
)
def test_places_of_mistakes_in_json(data: bytes, place: str) -> None:
    with pytest.raises(InputError, match=rf"^{place}"):
        try:
            msgspec.json.decode(data, type=list[Any] if b"\xff" in data or data[:2] == b"[[" else list[int])
        except text_input.JSON_PROBLEMS as problem:
            raise text_input.json_error("f", data, problem) from None
