"""What tasks ask for: `#PILOTHOUSE` lines, tables, and what is refused where."""

from __future__ import annotations

import io
import os
from math import inf
from pathlib import Path

import pytest

from pilothouse.formats.task_file import TaskLine, TaskReader, check_stream
from pilothouse.formats.task_request import from_columns, parse_words, words_of
from pilothouse.formats.task_table import check_tasks, read_tasks
from pilothouse.model.errors import InputError
from pilothouse.model.task_request import TaskRequest


def read(text: str, name: str = "tasks") -> list[TaskLine]:
    return list(read_tasks(io.BytesIO(text.encode()), name))


def asked(text: str) -> list[tuple[str, TaskRequest | None]]:
    return [(line.command, line.request) for line in read(text)]


def test_all_keys() -> None:
    text = "cores=4 mem=1.5G gpus=1 walltime=30m nodes=2 retries=3 name=a after=b,c env=A=1,B=x,y env='C=d e'"
    request = parse_words(text, "here")
    env = (("A", "1"), ("B", "x,y"), ("C", "d e"))
    assert request == TaskRequest(4, 1536, 1, 1800.0, 2, 3, "a", ("b", "c"), env)
    assert parse_words(words_of(request), "here") == request
    assert parse_words("walltime=1:30:00 mem=100", "here") == TaskRequest(memory_mb=100, walltime=5400.0)
    assert parse_words("walltime=inf mem=1K", "here") == TaskRequest(memory_mb=1, walltime=inf)
    assert parse_words("  ", "here") is None


def test_a_request_holds_up_to_an_empty_line_or_the_next() -> None:
    two, one = TaskRequest(cores=2), TaskRequest(cores=1)
    text = "a\n#PILOTHOUSE cores=2\nb\n# comment\n#DISBATCH REPEAT 2 c\n\nd\n"
    text += "#PILOTHOUSE cores=2\ne\n#PILOTHOUSE cores=1\nf\n#PILOTHOUSE\ng\n"
    assert asked(text) == [("a", None), ("b", two), ("c", two), ("c", two), ("d", None), ("e", two), ("f", one), ("g", None)]
    assert check_stream(io.BytesIO(text.encode()), "tasks").tasks == 8
    lines = read(text)
    assert lines[1].request is lines[3].request


def test_for_disbatch_it_is_a_comment() -> None:
    reader = TaskReader("tasks", lenient=True)
    assert [line.request for line in reader.read([b"#PILOTHOUSE cores=many\n", b"a\n"])] == [None]
    problems: list[str] = []
    reader = TaskReader("tasks", lenient=True, requests=True, on_problem=lambda number, text: problems.append(f"{number} {text}"))
    assert [line.request for line in reader.read([b"#PILOTHOUSE cores=many\n", b"a\n"])] == [None]
    assert problems[0].startswith("1 tasks:1: cores: not a count")


@pytest.mark.parametrize(
    "line",
    [
        "cores=0", "cores=-1", "cores=x", "cores", "mem=8X", "mem=-1", "gpus=1.5", "walltime=0", "walltime=soon", "nodes=0",
        "name=a,b", "name=", "env=1=2", "env=A", "colour=red", "cores=1 cores=2", "name='a", "after=unknown", "cores=1000000000",
        "walltime=1:2:3:4",
    ],
)  # fmt: skip
def test_mistakes_name_the_line(line: str) -> None:
    with pytest.raises(InputError, match=r"^tasks:2: "):
        read(f"a\n#PILOTHOUSE {line}\nb\n")
    with pytest.raises(InputError, match=r"^tasks:2: "):
        check_stream(io.BytesIO(f"a\n#PILOTHOUSE {line}\nb\n".encode()), "tasks")


def test_tasks_wait_for_names_above_only() -> None:
    assert len(read("#PILOTHOUSE name=a\nx\n#PILOTHOUSE name=a\ny\n#PILOTHOUSE name=b after=a\nz\n")) == 3
    with pytest.raises(InputError, match="tasks:5: name=a: tasks above wait for this name"):
        read("#PILOTHOUSE name=a\nx\n#PILOTHOUSE name=b after=a\ny\n#PILOTHOUSE name=a after=b\nz\n")


def test_tables(tmp_path: Path) -> None:
    csv = 'command,cores,mem,env\n"echo ""a""\nb",2,1G,"A=1,B=2"\n\necho c,,,\n'
    lines = read(csv, "t.csv")
    assert [(line.task_id, line.line_number, line.command) for line in lines] == [(0, 3, 'echo "a"\nb'), (1, 5, "echo c")]
    assert [line.request for line in lines] == [TaskRequest(cores=2, memory_mb=1024, env=(("A", "1"), ("B", "2"))), None]
    json = '{"command": ["echo", "a b"], "cores": 2, "env": {"X": "1,Y=2"}, "name": "n"}\n{"command": "c", "after": ["n"]}\n'
    lines = read(json, "t.jsonl")
    assert [line.command for line in lines] == ["echo 'a b'", "c"]
    assert [line.request for line in lines] == [
        TaskRequest(cores=2, env=(("X", "1,Y=2"),), name="n"), TaskRequest(after=("n",))
    ]  # fmt: skip
    (tmp_path / "t.tsv").write_bytes(b"\xef\xbb\xbfcommand\tcores\r\n\xff\t3\r\n")
    assert check_tasks(tmp_path / "t.tsv") == 1
    with (tmp_path / "t.tsv").open("rb") as stream:
        (line,) = read_tasks(stream, "t.tsv")
    assert os.fsencode(line.command) == b"\xff" and line.request == TaskRequest(cores=3)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "cmd\na\n", "t.csv:1: a column that no task has"),
        ("t.csv", "cores\n1\n", "t.csv:1: no command"),
        ("t.csv", "command,cores,cores\n1,1,1\n", "t.csv:1: a column twice"),
        ("t.csv", "command,cores\na\n", "t.csv:2: 1 values for 2 columns"),
        ("t.csv", "command,cores\na,many\n", "t.csv:2: cores: not a count"),
        ("t.csv", 'command\n"a\nb\n', "t.csv:3: a quotation mark is not closed"),
        ("t.csv", "command\n \n", "t.csv:2: not a command"),
        ("t.jsonl", "[]\n", "t.jsonl:1: not a JSON object"),
        ("t.jsonl", '{"command": 1}\n', "t.jsonl:1: not a command"),
        ("t.jsonl", '\n{"command": "a", "mem": [1]}\n', "t.jsonl:2: mem: not an amount"),
        ("t.jsonl", '{"command": "a", "env": {"1": 2}}\n', "t.jsonl:1: env: not a variable"),
    ],
)
def test_mistakes_in_tables(name: str, text: str, said: str) -> None:
    with pytest.raises(InputError, match=f"^{said}"):
        read(text, name)


def test_empty_columns_are_left_out_wherever_they_are() -> None:
    assert from_columns({"mem": "", "cores": 3, "gpus": None, "name": "x"}, "here") == TaskRequest(cores=3, name="x")
    assert from_columns({"mem": "", "gpus": None}, "here") is None


@pytest.mark.parametrize("name", ["none.csv", "none.jsonl", "none.txt"])
def test_a_task_file_that_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="task file"):
        check_tasks(tmp_path / name)
