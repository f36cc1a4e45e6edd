"""Lines of the status file, and resuming from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilothouse.dropins.disbatch.status_file import (
    HEADER,
    EarlierRuns,
    StatusKind,
    StatusLine,
    StatusWriter,
    parse_line,
    snippet_text,
)
from pilothouse.formats.task_file import TaskLine
from pilothouse.model.errors import InputError


def result(task_id: int, code: int = 0, command: str = "true", kind: StatusKind = StatusKind.TASK) -> StatusLine:
    return StatusLine(task_id, task_id + 1, -1, "n1", 77, code, 100.0, 101.5, command, kind=kind)


def line(task_id: int, command: str = "true") -> TaskLine:
    return TaskLine(task_id, task_id + 1, -1, command)


def test_a_line_has_flags_and_fields() -> None:
    said = StatusLine(3, 7, 110, "n2", 9, -9, 1.25, 3.0, "a\tb", 2, "o\n", 1, "'", StatusKind.TASK)
    assert str(said) == "ROE \t3\t7\t110\tn2\t9\t-9\t1.750\t1.250\t3.000\t2\t'o\\n'\t1\t\"'\"\ta\tb"
    assert parse_line(str(said)) == said


@pytest.mark.parametrize(("kind", "flags"), [("N", "    "), ("P", "   P"), ("S", "   S"), ("B", "B    ")])
def test_flags_of_kinds(kind: str, flags: str) -> None:
    said = result(1, kind=StatusKind(kind))
    assert said.flags == flags
    assert parse_line(str(said)).kind == kind


def test_a_command_that_is_no_text_is_written_as_bytes() -> None:
    said = result(0, command="echo \udcff 'é'")
    assert str(said).endswith("""b"echo \\xff '\\xc3\\xa9'\"""")
    assert parse_line(str(said)).command == said.command


def test_a_command_that_looks_like_bytes_stays_text() -> None:
    assert parse_line(str(result(0, command="b'ls'"))).command == "b'ls'"


@pytest.mark.parametrize(
    ("count", "kept", "text"),
    [(0, b"", ""), (40, b"x" * 40, "x" * 40), (42, b"x" * 40 + b"yz", "x" * 40 + "...yz"), (2, b"\xff\n", "\ufffd\n")],
)
def test_snippets(count: int, kept: bytes, text: str) -> None:
    assert snippet_text(count, kept) == text


def test_resume_skips_what_has_a_result(tmp_path: Path) -> None:
    path = tmp_path / "s"
    writer = StatusWriter(path, header=True)
    writer.write([result(0), result(1, 2), result(5, kind=StatusKind.PER_ENGINE), result(6, kind=StatusKind.SKIPPED)])
    writer.close()
    with path.open("a") as file:
        file.write("    \t7\t8\t-1\tn1")
    assert path.read_text().startswith(HEADER + "\n")
    earlier = EarlierRuns()
    earlier.read(path)
    assert [i for i in range(8) if earlier.result_of(line(i)) is not None] == [0, 1]
    assert earlier.unreadable == 1
    retrying = EarlierRuns(retry=True)
    retrying.read(path)
    assert [i for i in range(8) if retrying.result_of(line(i)) is not None] == [0]


def test_a_success_in_any_file_counts(tmp_path: Path) -> None:
    for name, codes in (("a", (-9, 0)), ("b", (0, 3))):
        (tmp_path / name).write_text("".join(f"{result(i, code)}\n" for i, code in enumerate(codes)))
    earlier = EarlierRuns(retry=True)
    earlier.read(tmp_path / "a")
    earlier.read(tmp_path / "b")
    assert all(earlier.result_of(line(i)) is not None for i in range(2))


def test_another_command_is_refused_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "s").write_text(f"{result(0)}\n")
    earlier = EarlierRuns()
    earlier.read(tmp_path / "s")
    with pytest.raises(InputError, match="--force-resume"):
        earlier.result_of(line(0, "false"))
    earlier.force = True
    assert earlier.result_of(line(0, "false")) is not None


def test_a_skipped_line_differs_by_its_flag_only() -> None:
    said = result(0, 3)
    assert str(said.skipped()) == "R  S" + str(said)[4:]


QUOTED = " O  \t0\t1\t-1\tn\t1\t0\t0.100\t1.000\t1.100\t2\t'a\\n'\t0\t''\t\"printf 'a\\\\n'\""


def test_a_line_of_2021_is_read_and_written_back() -> None:
    said = parse_line(QUOTED, 2)
    assert said.command == r"printf 'a\n'"
    assert parse_line(said.text(2), 2).command == said.command
    assert said.text(2).endswith(QUOTED.rsplit("\t", maxsplit=1)[-1])


def test_quoted_commands_are_resumed_from_in_both_dialects_and_other_ones_are_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text(QUOTED + "\n" + QUOTED.replace(" O  ", " O S").replace("\t0\t1\t", "\t1\t2\t") + "\n")
    for edition in (3, 2):
        earlier = EarlierRuns(edition=edition)
        earlier.read(path)
        same = TaskLine(0, 1, -1, r"printf 'a\n'")
        found = earlier.result_of(same)
        assert found is not None and found.command == same.command
        with pytest.raises(InputError):
            earlier.result_of(TaskLine(0, 1, -1, "printf a"))
        # In 2021 the lines of skipped tasks count as well.
        assert (earlier.result_of(TaskLine(1, 2, -1, same.command)) is not None) == (edition == 2)


@pytest.mark.parametrize("command", ["'a' 'b", "(" * 5000, "-" * 200_000 + "1", "b'a'", "3", ""])
def test_a_command_that_is_not_quoted_is_a_line_that_cannot_be_read(tmp_path: Path, command: str) -> None:
    (tmp_path / "s").write_text(QUOTED.rpartition("\t")[0] + "\t" + command + "\n")
    earlier = EarlierRuns(edition=2)
    earlier.read(tmp_path / "s")
    assert earlier.unreadable == 1
