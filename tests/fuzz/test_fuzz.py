"""Damaged inputs for every parser, codec and door: an answer or a PilothouseError, never anything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.edits import KINDS, WORDS, Edit, damaged
from fuzz.targets import TARGETS
from pilothouse.model.errors import PilothouseError

EDITS = st.lists(
    st.tuples(
        st.sampled_from(KINDS), st.integers(0, 1 << 14), st.integers(1, 100), st.sampled_from(WORDS) | st.binary(max_size=8)
    ),
    max_size=6,
)


def run(name: str, data: bytes) -> None:
    with contextlib.suppress(PilothouseError):
        TARGETS[name].run(data)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_corpus(name: str) -> None:
    for data in TARGETS[name].seeds():
        run(name, data)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60)
@given(which=st.integers(0, 1000), edits=EDITS)
def test_damaged_inputs(name: str, which: int, edits: list[Edit]) -> None:
    seeds = TARGETS[name].seeds()
    run(name, damaged(seeds[which % len(seeds)], edits))


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=30)
@given(data=st.binary(max_size=200))
def test_any_bytes(name: str, data: bytes) -> None:
    run(name, data)
