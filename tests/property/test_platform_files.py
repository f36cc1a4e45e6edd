"""Damaged platform files end in one clear line, never in a traceback, and never in endless work."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.formats.platform_xml import parse_platform
from pilothouse.model.errors import InputError
from pilothouse.worlds.simulated.physics.platform import Platform

FILES = sorted((Path(__file__).parents[1] / "golden/physics/inputs").glob("*/platforms/*.xml"))
TEXTS = [text for path in FILES if len(text := path.read_bytes()) < 8000]
WORDS = [
    b'"',
    b"<",
    b"/>",
    b"zone",
    b"host",
    b"link_ctn",
    b"a0",
    b"0",
    b"-1",
    b"nan",
    b"Full",
    b"None",
    b"Floyd",
    b"Vivaldi",
    b"1e999",
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 3))):
        words = text.split(b'"')
        place = draw(st.integers(0, len(words) - 1))
        kind = draw(st.sampled_from(["drop", "swap", "word"]))
        if kind == "drop":
            del words[place]
        elif kind == "swap":
            other = draw(st.integers(0, len(words) - 1))
            words[place], words[other] = words[other], words[place]
        else:
            words[place] = draw(st.sampled_from(WORDS))
        text = b'"'.join(words)
    return text


@given(text=damaged())
def test_damage_is_one_clear_line(text: bytes) -> None:
    try:
        platform = Platform.from_file(parse_platform(text, "p.xml"))
        for target in range(min(4, len(platform))):
            platform.route(0, target)
    except InputError as error:
        assert "\n" not in str(error)


@given(text=st.binary(max_size=200))
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(InputError):
        parse_platform(text)
