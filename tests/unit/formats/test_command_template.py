"""Commands from templates and arguments."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.formats.argument_sources import Reading, read_arguments, split_words, streams
from pilothouse.formats.command_template import CommandTemplate
from pilothouse.model.errors import InputError

FILES = {
    "list": b"a\nb c\n", "t.csv": b'x,y\n1,"two\nlines"\n2,b\n', "t.jsonl": b'{"n": 1, "s": "x y"}\n\n{"s": "z", "n": [1]}\n',
}  # fmt: skip


def lines_of(name: str) -> Iterator[bytes]:
    return iter(FILES[name].splitlines())


def commands(text: str, *words: str, reading: Reading | None = None) -> list[str]:
    arguments = read_arguments(words, lines_of, reading or Reading())
    template = CommandTemplate(text, arguments.names)
    return [template.fill(row, number) for number, row in enumerate(arguments.rows, 1)]


def test_replacement_strings() -> None:
    assert commands("c {} {.} {/} {//} {/.} {#}", ":::", "d/e.tar.gz") == ["c d/e.tar.gz d/e.tar e.tar.gz d e.tar 1"]
    assert commands("c {2} {1/} {-1}", ":::", "a/x", "b", ":::", "1", "2") == ["c 1 x 1", "c 2 x 2", "c 1 b 1", "c 2 b 2"]
    assert commands("c", ":::", "a b", ":::+", "1") == ["c 'a b' 1"]
    assert commands("c {#}", ":::", "a") == ["c 1 a"]
    assert commands("c {}; awk '{print}' {a,b}", ":::", "x") == ["c x; awk '{print}' {a,b}"]
    assert commands("", ":::", "echo a; true") == commands("{}", ":::", "echo a; true") == ["echo a; true"]


def test_sources() -> None:
    assert commands("c", "::::", "list", ":::", "1", "2") == ["c a 1", "c a 2", "c 'b c' 1", "c 'b c' 2"]
    assert commands("c", ":::", "1", "2", "3", "::::+", "list") == ["c 1 a", "c 2 'b c'"]
    assert commands("c {y} {1} {2.}", "::::", "t.csv") == ["c $'two\\012lines' 1 $'two\\012lines'", "c b 2 b"]
    assert commands("c {n} {s}", "::::", "t.jsonl", ":::", "k") == ["c 1 'x y'", "c '[1]' z"]
    assert commands("c {b}{a}", ":::", "a", "1", ":::", "b", "x", "y", reading=Reading(header=True)) == ["c x1", "c y1"]
    assert commands("c {2}", ":::", "a:b", "c", reading=Reading(colsep=":")) == ["c b", "c ''"]
    assert split_words(["a", "b", ":::", "-c", "::::", "d"]) == (["a", "b"], [":::", "-c", "::::", "d"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("c {2}", ":::a"), ("c {0}", ":::a"), ("# c", ":::a"), ("c\nd", ":::a"), ("c `d {}`", ":::a"),
        ("", ":::#a"), ("", "::: "), ("c {}", ":::\0"),
    ],
)  # fmt: skip
def test_mistakes(text: str, words: str) -> None:
    with pytest.raises(InputError):
        commands(text, words[:3], words[3:])


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8), min_size=1, max_size=4))
def test_a_value_stays_what_it_is_wherever_the_template_has_it(values: list[str]) -> None:
    """Bash is given the commands and prints its arguments."""
    places = ["{1}", "'{1}'", '"{1}"', "x{1}y", '"a $(printf %s {1}; printf .) b"', '\\"{1}']
    expected = ["{}", "{}", "{}", "x{}y", "a {}. b", '"{}']
    template = CommandTemplate("printf '%s\\0' " + " ".join(places), ("",))
    script = "\n".join(template.fill((value,), 1) for value in values)
    said = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout.decode()
    assert said.split("\0")[:-1] == [place.format(value) for value in values for place in expected]


@pytest.mark.parametrize("text", ["# {}", "  #x", "a\nb", "a\0b"])
def test_what_cannot_be_a_command_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="the command"):
        CommandTemplate(text, ("",))


@pytest.mark.parametrize("reading", [Reading(header=True), Reading(colsep=","), Reading(colsep=",", header=True), Reading()])
def test_an_empty_source_gives_no_command(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FILES, "empty", b"")
    assert commands("echo {}", "::::", "empty", reading=reading) == []


def test_which_words_read_standard_input_first() -> None:
    assert streams(["::::", "-"]) and streams(["::::+", "-", ":::", "a"])
    assert not streams([":::", "-"]) and not streams(["::::", "list", "::::", "-"]) and not streams([])
