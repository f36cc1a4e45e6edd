"""The task file language: what each line becomes, and what is refused where."""

from __future__ import annotations

import io
import os
from itertools import islice
from pathlib import Path

import pytest

from pilothouse.formats.task_file import (
    MOST_LINE_BYTES,
    LineKind,
    TaskLine,
    TaskReader,
    Totals,
    check_file,
    check_stream,
    read_file,
)
from pilothouse.model.errors import InputError


def read(text: str | bytes, *, lenient: bool = False) -> list[TaskLine]:
    data = text.encode() if isinstance(text, str) else text
    return list(read_file(io.BytesIO(data), "tasks", lenient=lenient))


def seen(lines: list[TaskLine]) -> list[tuple[int, int, int, str]]:
    return [(line.task_id, line.line_number, line.repeat_index, line.command) for line in lines]


def test_comments_and_empty_lines_are_skipped_and_counted() -> None:
    assert seen(read("# c\n\n   \n\t# c\n a \n")) == [(0, 5, -1, " a ")]


def test_last_line_without_newline() -> None:
    assert seen(read("a\nb")) == [(0, 1, -1, "a"), (1, 2, -1, "b")]


def test_carriage_returns_end_lines_that_share_one_number() -> None:
    assert seen(read(b"a\r\nb\rc\n")) == [(0, 1, -1, "a"), (1, 2, -1, "b"), (2, 2, -1, "c")]


@pytest.mark.parametrize("text", [b"a\n", b"#DISBATCH REPEAT 2 a\n", b"# c\na", b""])
def test_a_byte_order_mark_is_no_part_of_the_first_line(text: bytes) -> None:
    marked = b"\xef\xbb\xbf" + text
    assert read(marked) == read(text)
    assert check_stream(io.BytesIO(marked), "tasks").tasks == len(read(text))
    reader = TaskReader("tasks")
    assert [line for item in marked.splitlines() for line in reader.feed(item)] == read(text)
    assert read(marked, lenient=True)[0].command.startswith("\ufeff")  # as disBatch takes it


def test_prefix_and_suffix_keep_blanks_and_replace_earlier_ones() -> None:
    text = "#DISBATCH PREFIX  ( x ; \n#DISBATCH suffix ) \na\n#DISBATCH PREFIX \nb\n"
    assert [line.command for line in read(text)] == [" ( x ; a) ", "b) "]


def test_repeat_counts_from_start_by_step() -> None:
    lines = read("#DISBATCH SUFFIX !\n#DISBATCH REPEAT 3 start 100 step 50 p\n#DISBATCH REPEAT 2\n")
    assert seen(lines) == [(0, 2, 100, "p!"), (1, 2, 150, "p!"), (2, 2, 200, "p!"), (3, 3, 0, "!"), (4, 3, 1, "!")]


def test_a_huge_repeat_is_lazy_and_still_counted() -> None:
    text = b"#DISBATCH REPEAT 1000000000 x\n"
    assert len(list(islice(read_file(io.BytesIO(text), "tasks"), 3))) == 3
    assert check_stream(io.BytesIO(text), "tasks").tasks == 10**9


def test_barriers_take_ids_and_raise_the_age() -> None:
    lines = read("a\n#DISBATCH BARRIER\n#DISBATCH BARRIER CHECK some key\nb\n#DISBATCH BARRIER key\n")
    assert [(line.task_id, line.kind, line.age, line.key) for line in lines] == [
        (0, LineKind.TASK, 0, ""),
        (1, LineKind.BARRIER, 0, ""),
        (2, LineKind.CHECK, 1, "some key"),
        (3, LineKind.TASK, 2, ""),
        (4, LineKind.BARRIER, 2, "key"),
    ]
    assert lines[2].command == "#DISBATCH BARRIER CHECK some key"


def test_per_engine_commands_have_ids_of_their_own_and_take_prefix() -> None:
    starts = "#DISBATCH PERENGINE START a\n#DISBATCH PERENGINE STOP b\n#DISBATCH PERENGINE START c\n"
    text = f"#DISBATCH PREFIX p\n{starts}t\n"
    assert [(line.task_id, line.kind, line.command, line.age) for line in read(text)] == [
        (0, LineKind.ENGINE_START, "pa", 0),
        (0, LineKind.ENGINE_STOP, "pb", 1),
        (1, LineKind.ENGINE_START, "pc", 2),
        (0, LineKind.TASK, "pt", 3),
    ]


def test_bytes_that_are_no_text_come_back_as_they_were() -> None:
    (line,) = read(b"echo \xff\xfe\n")
    assert os.fsencode(line.command) == b"echo \xff\xfe"


@pytest.mark.parametrize(
    ("text", "where", "word"),
    [
        ("a\n#DISBATCH FOO\n", "tasks:2", "unknown directive"),
        ("a\n\n#DISBATCH PERENGINE START x\n", "tasks:3", "before all tasks"),
        ("#DISBATCH REPEAT 0\n#DISBATCH PERENGINE STOP x\n", "tasks:2", "before all tasks"),
        ("#DISBATCH PREFIX\n", "tasks:1", "PREFIX text"),
        ("#DISBATCH REPEAT many x\n", "tasks:1", "REPEAT n"),
        ("#DISBATCH REPEAT -1 x\n", "tasks:1", "REPEAT n"),
        ("#DISBATCH REPEAT 3\tx\n", "tasks:1", "REPEAT n"),
        ("#DISBATCH REPEAT 3 step 2 start 1 x\n", "tasks:1", "in this order"),
        ("#DISBATCH REPEAT 3 start x\n", "tasks:1", "in this order"),
        ("#DISBATCH BARRIERS\n", "tasks:1", "BARRIER [key]"),
        ("#DISBATCH BARRIER CHECKED\n", "tasks:1", "BARRIER [key]"),
        ("#DISBATCH barrier\n", "tasks:1", "in capitals"),
        ("#DISBATCH PERENGINE x\n", "tasks:1", "PERENGINE START command"),
        ("#DISBATCH\n", "tasks:1", "blank after"),
        ("#DISBATCHED\n", "tasks:1", "blank after"),
        ("a\0b\n", "tasks:1", "NUL"),
    ],
)
def test_a_mistake_is_an_error_with_file_and_line(text: str, where: str, word: str) -> None:
    for reading in (lambda: read(text), lambda: check_stream(io.BytesIO(text.encode()), "tasks")):
        with pytest.raises(InputError) as caught:
            reading()
        assert str(caught.value).startswith(where + ": ")
        assert word in str(caught.value)


def test_lenient_reports_and_ignores_an_unknown_directive() -> None:
    problems: list[tuple[int, str]] = []
    lines = read_file(io.BytesIO(b"a\n#DISBATCH FOO\nb\n"), "t", lenient=True, on_problem=lambda *p: problems.append(p))
    assert [line.command for line in lines] == ["a", "b"]
    assert [number for number, _ in problems] == [2]


def test_lenient_late_per_engine_drops_the_rest() -> None:
    assert [line.command for line in read("a\n#DISBATCH PERENGINE START x\nb\nc\n", lenient=True)] == ["a"]


def test_mark_without_blank() -> None:
    assert seen(read("#DISBATCHED\n", lenient=True)) == [(0, 1, -1, "#DISBATCHED")]


def test_barrier_with_a_tail() -> None:
    kinds = [(line.kind, line.key) for line in read("#DISBATCH BARRIERS\n#DISBATCH BARRIER CHECKED x\n", lenient=True)]
    assert kinds == [(LineKind.BARRIER, ""), (LineKind.CHECK, "")]


def test_an_item_of_several_lines_has_one_number() -> None:
    reader = TaskReader("kvs")
    assert seen(list(reader.read([b"a\nb", b"c\n"]))) == [(0, 1, -1, "a"), (1, 1, -1, "b"), (2, 2, -1, "c")]


def test_check_counts_what_reading_gives(tmp_path: Path) -> None:
    path = tmp_path / "tasks"
    plain = b"".join(b"echo %d # x\n" % i for i in range(70_000))
    path.write_bytes(b"#DISBATCH PERENGINE START s\n" + plain + b"\n# c\n#DISBATCH REPEAT 5\n#DISBATCH BARRIER\nlast")
    assert check_file(path) == Totals(lines=70_006, tasks=70_006, barriers=1, per_engine=1)
    with path.open("rb") as stream:
        assert sum(1 for _ in read_file(stream, "tasks")) == 70_008


def test_a_mistake_after_a_million_lines_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "tasks"
    path.write_bytes(b"true\n" * 300_000 + b"#DISBATCH PERENGINE STOP x\n")
    with pytest.raises(InputError, match="tasks:300001: PERENGINE after"):
        check_file(path)


def test_an_absent_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the task file"):
        check_file(tmp_path / "none")


@pytest.mark.parametrize(("line", "problem"), [(b"a\0b", "a NUL byte"), (b"x" * (MOST_LINE_BYTES + 1), "more than a command")])
def test_lines_that_no_command_can_hold(line: bytes, problem: str) -> None:
    """A lenient reader takes them as they are."""
    with pytest.raises(InputError, match=problem):
        list(read_file(io.BytesIO(line + b"\n"), "tasks"))
    [kept] = read_file(io.BytesIO(line + b"\n"), "tasks", lenient=True)
    assert len(kept.command) == len(line)
    [longest] = read_file(io.BytesIO(b"x" * MOST_LINE_BYTES), "tasks")
    assert len(longest.command) == MOST_LINE_BYTES


def test_the_language_of_2021() -> None:
    text = b"""#DISBATCH PERENGINE echo E
one
#DISBATCH barrier a key
#DISBATCH BARRIER CHECK
#DISBATCH BARRIER CHECK key
#DISBATCHED
#DISBATCH BARRIERS
#DISBATCH PERNODE echo N
#DISBATCH repeat 2 two
three\x0c four
"""
    problems: list[int] = []
    reader = TaskReader("tasks", lenient=True, edition=2, on_problem=lambda number, _: problems.append(number))
    read = list(reader.read(text.splitlines(keepends=True)))
    assert [(line.task_id, line.kind.value, line.key, line.age) for line in read] == [
        (0, "P", "", 0), (1, "N", "", 1), (2, "B", "a key", 1), (3, "C", "", 2), (4, "B", "CHECK key", 3), (5, "P", "", 4),
        (6, "N", "", 5), (7, "N", "", 5), (8, "N", "", 5), (9, "N", "", 5),
    ]  # fmt: skip
    assert [line.command for line in read if line.kind.value == "P"] == ["echo E", "echo N"]
    assert problems == [7]
    assert [(line.line_number, line.command) for line in read[-2:]] == [(10, "three"), (10, " four")]
